#!/bin/sh
# Slurm's HealthCheckProgram: run nhc-healthcheck, and let nothing but its verdict reach Slurm.
#
# It marks the node and puts it back by itself; Slurm only logs its status. That nhc is not installed, does not
# start, was killed or hung is logged and left on the node as a comment.
# See docs/slurm.md. Slurm gives hooks no PATH.

PATH=/usr/sbin:/usr/bin:/sbin:/bin:/opt/slurm/bin:/usr/local/bin
export PATH
program=/usr/bin/nhc-healthcheck
limit=55 # seconds; nhc-healthcheck's own deadline is shorter

broken() {
    logger -t nhc -p daemon.err "nhc-healthcheck: $1" 2>/dev/null
    [ -n "$SLURMD_NODENAME" ] || return # on the controller there is no node to comment on
    # Watch only: no comment either, the log has it.
    grep -Eqs '^[[:space:]]*(export[[:space:]]+)?NHC_WATCH_ONLY=["'\''"]?[1-9yt]' /etc/default/nhc /etc/sysconfig/nhc && return
    # Once an hour: a broken nhc must not burden the controller at every job. The hooks read this note, and take the
    # comment away once they work again (nhc/hooks/internal_error.py).
    note=${NHC_STATE_DIR:-/run/nhc}/broken/$SLURMD_NODENAME/healthcheck
    [ -n "$(find "$note" -mmin -60 2>/dev/null)" ] && return
    (umask 077 && mkdir -p "${note%/*}" && : >"$note") 2>/dev/null
    case $(scontrol show node "$SLURMD_NODENAME" 2>/dev/null | sed -n 's/^   Comment=//p') in
    '' | NHC:*) scontrol update NodeName="$SLURMD_NODENAME" Comment="NHC: nhc-healthcheck $1" 2>/dev/null ;;
    esac
}

if [ ! -x "$program" ]; then
    broken "is not installed"
    exit 0
fi
timeout -k 5 "$limit" "$program" >/dev/null 2>&1
status=$?
case $status in
# timeout's own, the shell's (not to be run, not found), and death by a signal
124 | 126 | 127 | 13[0-9] | 143) broken "ended with status $status" ;;
esac
# Every other status is the node's verdict, which has been acted on.
exit 0
