#!/bin/sh
# Slurm's Prolog, or PrologSlurmctld: run nhc-prolog, and let nothing but its verdict reach Slurm.
#
# Slurm drains the node of a failing Prolog and requeues the job, whatever the reason.
# nhc-prolog says so with status 75 alone. Any other end (nhc is not installed, its Python does not start, it was
# killed, it hung) is logged, left on the node as a comment, and answered with 0.
# See docs/slurm.md. Slurm gives hooks no PATH.

PATH=/usr/sbin:/usr/bin:/sbin:/bin:/opt/slurm/bin:/usr/local/bin
export PATH
program=/usr/bin/nhc-prolog
limit=40 # seconds; nhc-prolog's own deadline is shorter
# Whether a healthy verdict that nhc has kept will do (NHC_PROLOG_MAX_AGE, docs/slurm.md). Where you give nhc-prolog
# arguments below, say no here: the verdict may be another configuration's.
kept=yes

broken() {
    logger -t nhc -p daemon.err "nhc-prolog: $1" 2>/dev/null
    [ -n "$SLURMD_NODENAME" ] || return # on the controller there is no node to comment on
    # Watch only: no comment either, the log has it.
    grep -Eqs '^[[:space:]]*(export[[:space:]]+)?NHC_WATCH_ONLY=["'\''"]?[1-9yt]' /etc/default/nhc /etc/sysconfig/nhc && return
    # Once an hour: a broken nhc must not burden the controller at every job. The hooks read this note, and take the
    # comment away once they work again (nhc/hooks/internal_error.py).
    note=${NHC_STATE_DIR:-/run/nhc}/broken/$SLURMD_NODENAME/prolog
    [ -n "$(find "$note" -mmin -60 2>/dev/null)" ] && return
    (umask 077 && mkdir -p "${note%/*}" && : >"$note") 2>/dev/null
    case $(scontrol show node "$SLURMD_NODENAME" 2>/dev/null | sed -n 's/^   Comment=//p') in
    '' | NHC:*) scontrol update NodeName="$SLURMD_NODENAME" Comment="NHC: nhc-prolog $1" 2>/dev/null ;;
    esac
}

# Whether the node was found healthy a moment ago, by a file that root alone can write (nhc/node/planning/cached_verdict.py). One
# process is started, no Python. Whatever is not as it was then says no, and the checks run.
healthy() {
    file=${NHC_STATE_DIR:-/run/nhc}/prolog-healthy
    [ "$kept" = yes ] && [ -f "$file" ] && [ -O "$file" ] && [ -O "${file%/*}" ] && [ ! -L "$file" ] || return 1
    case ${SLURM_SCRIPT_CONTEXT:-prolog_slurmd} in prolog_slurmd) ;; *) return 1 ;; esac
    {
        IFS= read -r form && [ "$form" = "nhc-prolog-healthy 1" ] || return 1
        IFS= read -r boot && IFS= read -r node && IFS= read -r until && IFS= read -r count || return 1
        IFS= read -r booted </proc/sys/kernel/random/boot_id && [ "$boot" = "$booted" ] || return 1
        [ "$node" = "${SLURMD_NODENAME:-}" ] || return 1
        IFS=" ." read -r now rest </proc/uptime && [ "$now" -lt "$until" ] || return 1
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
