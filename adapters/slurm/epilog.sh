#!/bin/sh
# Slurm's Epilog: run nhc-epilog, and let nothing but its verdict reach Slurm.
#
# Slurm drains the node of a failing Epilog, whatever the reason.
# nhc-epilog says so with status 75 alone. Any other end (nhc is not installed, its Python does not start, it was
# killed, it hung) is logged, left on the node as a comment, and answered with 0.
# See docs/slurm.md. Slurm gives hooks no PATH.

PATH=/usr/sbin:/usr/bin:/sbin:/bin:/opt/slurm/bin:/usr/local/bin
export PATH
program=/usr/bin/nhc-epilog
limit=60 # seconds; nhc-epilog's own deadline is shorter

broken() {
    logger -t nhc -p daemon.err "nhc-epilog: $1" 2>/dev/null
    [ -n "$SLURMD_NODENAME" ] || return # on the controller there is no node to comment on
    # Watch only: no comment either, the log has it.
    grep -Eqs '^[[:space:]]*(export[[:space:]]+)?NHC_WATCH_ONLY=["'\''"]?[1-9yt]' /etc/default/nhc /etc/sysconfig/nhc && return
    # Once an hour: a broken nhc must not burden the controller at every job. The hooks read this note, and take the
    # comment away once they work again (nhc/hooks/internal_error.py).
    note=${NHC_STATE_DIR:-/run/nhc}/broken/$SLURMD_NODENAME/epilog
    [ -n "$(find "$note" -mmin -60 2>/dev/null)" ] && return
    (umask 077 && mkdir -p "${note%/*}" && : >"$note") 2>/dev/null
    case $(scontrol show node "$SLURMD_NODENAME" 2>/dev/null | sed -n 's/^   Comment=//p') in
    '' | NHC:*) scontrol update NodeName="$SLURMD_NODENAME" Comment="NHC: nhc-epilog $1" 2>/dev/null ;;
    esac
}

if [ ! -x "$program" ]; then
    broken "is not installed"
    exit 0
fi
timeout -k 5 "$limit" "$program"
status=$?
case $status in
0) exit 0 ;;
75) exit 1 ;;
*)
    broken "ended with status $status"
    exit 0
    ;;
esac
