#!/bin/sh
# Slurm's PrologSlurmctld: a large job waits until each of its nodes has a good deep verdict that is young enough.
#
# NHC_DEEP_DUE in /etc/default/nhc or /etc/sysconfig/nhc says which jobs and how young, as options of `nhc deep due`:
#     NHC_DEEP_DUE="--more-than 8 --younger-than 7d"
# Without it, and with NHC_WATCH_ONLY=1, no job waits: who would is logged, by the rule below.
#
# Slurm requeues a batch job whose PrologSlurmctld fails and ends an srun or salloc, whatever the reason. Only the
# verdict comes to that. Where nhc cannot tell (no store, no nhc, too slow) the job starts and syslog says so;
# --on-unknown refuse in NHC_DEEP_DUE has it wait. See docs/deep-checks.md. It runs as SlurmUser, without a PATH.

PATH=/usr/sbin:/usr/bin:/sbin:/bin:/opt/slurm/bin:/usr/local/bin
export PATH
program=/usr/bin/nhc
settings="/etc/default/nhc /etc/sysconfig/nhc"
limit=60 # seconds; PrologEpilogTimeout in slurm.conf is to be longer

# Its value without quotes. The file is read, not run.
set_to() {
    sed -n "s/^[[:space:]]*\(export[[:space:]][[:space:]]*\)\{0,1\}$1=[\"']\{0,1\}\([^\"'#]*\).*/\2/p" $settings 2>/dev/null | tail -n 1
}

log() {
    logger -t nhc -p "daemon.$1" "job $SLURM_JOB_ID: nhc deep due: $2" 2>/dev/null
}

rule=$(set_to NHC_DEEP_DUE)
hold=yes
case $(set_to NHC_WATCH_ONLY) in [1-9yt]*) hold=no ;; esac
[ -n "$rule" ] || hold=no
tell=
[ $hold = yes ] && tell=--tell-job
# Options of the site's own file are to be split into words.
# shellcheck disable=SC2086
said=$(timeout -k 5 "$limit" "$program" deep due --more-than 8 --younger-than 7d $tell $rule 2>&1)
status=$?
case $status in
0)
    [ -z "$said" ] || log warning "$said"
    exit 0
    ;;
1)
    if [ $hold = no ]; then
        log notice "the job starts; it would wait for: $said"
        exit 0
    fi
    log notice "the job waits: $said"
    exit 1
    ;;
esac
case "$hold $rule" in
yes*"--on-unknown refuse"* | yes*"--on-unknown=refuse"*)
    log err "status $status, the job waits: $said"
    exit 1
    ;;
esac
log err "status $status, the job starts: $said"
exit 0
