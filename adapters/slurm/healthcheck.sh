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
# Where you give nhc-healthcheck arguments below, say no here: the verdict may be another configuration's.
kept=yes

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

# Whether the node was found healthy, and the agent has found the same lines good since (NHC_HEALTHCHECK_MAX_AGE,
# docs/slurm.md), by files that root alone can write (nhc/node/planning/cached_verdict.py). One process is started, no Python.
# Whatever is not as it was then says no, and the checks run.
healthy() {
    state=${NHC_STATE_DIR:-/run/nhc}
    file=$state/healthcheck-healthy
    agent=$state/agent-healthy
    [ "$kept" = yes ] && [ -f "$file" ] && [ -f "$agent" ] && [ -O "$state" ] || return 1
    [ -O "$file" ] && [ -O "$agent" ] && [ ! -L "$file" ] && [ ! -L "$agent" ] || return 1
    [ ! -e "$state/broken/${SLURMD_NODENAME:-}/healthcheck" ] || return 1
    IFS= read -r booted </proc/sys/kernel/random/boot_id && IFS=" ." read -r now rest </proc/uptime || return 1
    {
        IFS= read -r form && [ "$form" = "nhc-agent-healthy 1" ] || return 1
        IFS= read -r boot && IFS= read -r node && IFS= read -r judged && IFS= read -r lines || return 1
        [ "$boot" = "$booted" ] && [ "$node" = "${SLURMD_NODENAME:-}" ] && [ "$judged" -le "$now" ] || return 1
    } <"$agent" 2>/dev/null
    {
        IFS= read -r form && [ "$form" = "nhc-healthcheck-healthy 1" ] || return 1
        IFS= read -r boot && IFS= read -r node && IFS= read -r until && IFS= read -r age && IFS= read -r same || return 1
        [ "$boot" = "$booted" ] && [ "$node" = "${SLURMD_NODENAME:-}" ] && [ "$now" -lt "$until" ] || return 1
        [ "$same" = "$lines" ] && [ $((now - judged)) -lt "$age" ] || return 1
        IFS= read -r count || return 1
        set --
        while [ "$count" -gt 0 ]; do
            IFS= read -r line || return 1
            set -- "$@" "$line"
            count=$((count - 1))
        done
        then=
        while IFS= read -r line; do
            then="$then$line
"
        done
    } <"$file" 2>/dev/null
    [ $# -gt 0 ] && [ "$(LC_ALL=C stat -L -c '%n %d %i %s %.9Y %.9Z' -- "$@" 2>/dev/null)
" = "$then" ]
}

if [ ! -x "$program" ]; then
    broken "is not installed"
    exit 0
fi
healthy && exit 0
timeout -k 5 "$limit" "$program" >/dev/null 2>&1
status=$?
case $status in
# timeout's own, the shell's (not to be run, not found), and death by a signal
124 | 126 | 127 | 13[0-9] | 143) broken "ended with status $status" ;;
esac
# Every other status is the node's verdict, which has been acted on.
exit 0
