# The shell of one run: what site scripts were written against, and the bridge to our checks.
#
# Descriptors that nhc opens: 60 lines to run, 61 requests, 62 replies, 63 and 64 the two ends of a pipe that
# holds one byte. Whoever takes that byte may speak: checks may run in the background of a line.
# Requests are fields that end in NUL, preceded by their number; the first is who asks. A reply begins with whom it
# is for: one to a process that was killed meanwhile is passed over.

shopt -s extglob
set -f

# --- the bridge

nhc__send() {
    local IFS= nhc__turn
    read -r -N 1 -u 63 nhc__turn
    printf '%s\0' "$(( $# + 1 ))" "$BASHPID" "$@" >&61
    printf x >&64
}

nhc__ask() {
    local IFS= nhc__turn
    read -r -N 1 -u 63 nhc__turn
    printf '%s\0' "$(( $# + 1 ))" "$BASHPID" "$@" >&61
    while read -r -d '' -u 62 nhc__turn; do
        [[ "$nhc__turn" == "$BASHPID "* ]] && break
    done
    nhc__reply="${nhc__turn#* }"
    printf x >&64
}

# A check of ours, called from a line or a script. What it finds, nhc knows; the shell learns the status.
nhc__call() {
    local nhc__name nhc__reply=3
    local -a nhc__values=( )
    for nhc__name in $nhc__settings; do
        [[ -n "${!nhc__name+set}" ]] && nhc__values+=( "$nhc__name=${!nhc__name}" )
    done
    nhc__ask call "$#" "$@" "${nhc__values[@]}"
    [[ "$nhc__reply" == *' '* ]] && eval "${nhc__reply#* }" # the array of check_cmd_output -O
    nhc__reply="${nhc__reply%% *}"
    if [[ "$nhc__reply" == 1 ]]; then
        CHECK_DIED=1
        if [[ "${NHC_CHECK_ALL:-0}" == 1 ]]; then
            (( FAIL_CNT++ ))
            return 1
        fi
        exit 1
    fi
    return "${nhc__reply:-3}"
}

nhc__gather() {
    local nhc__reply=''
    nhc__ask gather "$1"
    eval "$nhc__reply"
}

# What a command that bash does not find comes to (its `command_not_found_handle`, set by nhc).
nhc__missing() {
    printf '%s: command not found\n' "$1" >&2
    return 127
}

# Lines are evaluated here, in one function that lives as long as they do: `local` and `declare` in a line
# keep their meaning, and `return`, `break` and `continue` end the line alone.
nhc__serve() {
    while nhc__next; do
        eval "$CHECK"
        nhc__end "$?"
    done
}

nhc__next() {
    [[ -n "$nhc__open" ]] && nhc__end 0
    IFS= read -r -d '' -u 60 nhc__assign || exit 0
    IFS= read -r -d '' -u 60 CHECK || exit 0
    eval "$nhc__assign"
    CHECK_DIED=0
    nhc__open=1
    return 0
}

nhc__end() {
    nhc__open=''
    syslog_flush
    nhc__send end "$1" "${FAIL_CNT:-0}"
}

nhc__main() {
    nhc__send ready 0
    while :; do
        nhc__serve
        nhc__end "$?"
    done
}

# --- saying things

die() {
    IFS=$' \t\n'
    local RET="${1-1}"
    shift
    CHECK_DIED=1
    nhc__send die "$RET" "$*" "${FUNCNAME[1]-}"
    if [[ "${NHC_CHECK_ALL:-0}" == 1 ]]; then
        (( FAIL_CNT++ ))
        return 0
    fi
    syslog_flush
    exit "$RET"
}

nhc__say() {
    local IFS=' ' nhc__when=''
    [[ "${TS:-0}" != 0 ]] && nhc__when="[$SECONDS] - "
    printf '%s\n' "$nhc__when$*"
}

log() { [[ "${SILENT:-0}" == 0 ]] && nhc__say "$@"; return 0; }
dbg() { [[ "${DEBUG:-0}" == 1 ]] && nhc__say "DEBUG:  $*"; return 0; }
vlog() { [[ "${VERBOSE:-0}" == 1 ]] && nhc__say "$@"; return 0; }
oecho() { [[ "${SILENT:-0}" == 0 ]] && nhc__say "$@" >&"${NHC_FD_OUT:-1}"; return 0; }
eecho() { [[ "${SILENT:-0}" == 0 ]] && nhc__say "$@" >&"${NHC_FD_ERR:-2}"; return 0; }
vecho() { [[ "${VERBOSE:-0}" == 1 ]] && nhc__say "$@" >&"${NHC_FD_OUT:-1}"; return 0; }

syslog() { LOGGER_TEXT+="${LOGGER_TEXT:+$'\n'}$*"; }

syslog_flush() {
    [[ -n "${LOGGER_TEXT-}" ]] || return 0
    printf '%s\n' "$LOGGER_TEXT" | logger -p daemon.err -t "${NAME:-nhc}[$$]" 2>/dev/null
    LOGGER_TEXT=''
}

kill_watchdog() { return 0; }
toggle_bash_tracing() { if [[ $- == *x* ]]; then set +x; else set -x; fi; }
toggle_debug_mode() { DEBUG=$(( ! ${DEBUG:-0} )); }

# --- match strings

mcheck_regexp() { [[ "$1" =~ $2 ]] 2>/dev/null && return 0; return 1; }
mcheck_glob() { [[ "$1" == $2 ]]; }

mcheck_range() {
    local nhc__reply=1
    nhc__ask match "$1" "{$2}"
    return "${nhc__reply:-3}"
}

mcheck_external() {
    local command="${NHC_MCHECK_COMMAND[$1]-}"
    command="${command//'%h'/\"\$1\"}"
    command="${command//'%m'/\"\$2\"}"
    bash -f -c "$command" nhc "$2" "$3"
}

mcheck() {
    local string="$1" match="$2" status=0 negate=0 delimiters i
    [[ "${match:0:1}" == '!' ]] && { negate=1; match="${match:1}"; }
    if (( ${#match} > 1 )) && [[ "$match" == /*/ ]]; then
        mcheck_regexp "$string" "${match:1:${#match}-2}" || status=1
    elif [[ "$match" == '{'*'}' ]]; then
        mcheck_range "$string" "${match:1:${#match}-2}" || status=1
    else
        for i in "${!NHC_MCHECK_DELIM[@]}"; do
            delimiters="${NHC_MCHECK_DELIM[i]}"
            if [[ ${#match} -gt 1 && -n "$delimiters" && "${match:0:1}" == "${delimiters:0:1}" &&
                  "${match: -1}" == "${delimiters: -1}" ]]; then
                mcheck_external "$i" "$string" "${match:1:${#match}-2}" || status=1
                return $(( status ^ negate ))
            fi
        done
        mcheck_glob "$string" "$match" || status=1
    fi
    return $(( status ^ negate ))
}

# --- sizes and counts: a value and the name of the variable that receives the result

nhc__scale() {
    local number="$1" into="$2" base="$3" exponent="$4"
    while (( exponent-- > 0 )); do
        number=$(( number * base ))
    done
    [[ -n "$into" ]] && printf -v "$into" '%s' "$number"
    return 0
}

nhc_common_parse_size() {
    local value="${1%[bB]}" power=0
    case "$value" in
        *[mM]) power=1 ;; *[gG]) power=2 ;; *[tT]) power=3 ;; *[pP]) power=4 ;; *[eE]) power=5 ;;
    esac
    nhc__scale "${value%[kKmMgGtTpPeE]}" "${2-}" "${3:-1024}" "$power"
}

nhc_common_parse_count() {
    local value="$1" power=0
    case "$value" in
        *[kK]) power=1 ;; *[mM]) power=2 ;; *[gG]) power=3 ;; *[tT]) power=4 ;; *[pP]) power=5 ;; *[eE]) power=6 ;;
    esac
    nhc__scale "${value%[kKmMgGtTpPeE]}" "${2-}" "${3:-1000}" "$power"
}

# The largest unit that loses less than a tenth. Arguments: units, suffix, number, variable, base, variable for
# the error.
nhc__show() {
    local units="$1" suffix="$2" number="${3-}" into="${4-}" base="${5:-1000}" into_error="${6-}"
    local unit=0 rest error=0
    if (( base == 0 )); then
        die 1 "${FUNCNAME[1]}:  Syntax error:  Multiplier factor is 0"
        return 1
    fi
    if [[ -n "$number" ]]; then
        while (( number >= base && unit < ${#units} - 1 )); do
            rest=$(( number % base * 100 / base ))
            (( (rest > 50 ? 100 - rest : rest) > 10 )) && break
            error=$(( number % base )) number=$(( number / base )) unit=$(( unit + 1 ))
        done
        (( error >= base / 2 && error > 0 )) && number=$(( number + 1 )) error=$(( base - error ))
        local letter="${units:unit:1}"
        number+="${letter#_}$suffix"
    fi
    [[ -n "$into" ]] && printf -v "$into" '%s' "$number"
    [[ -n "$into_error" ]] && printf -v "$into_error" '%s' "$error"
    return 0
}

nhc_common_unparse_size() { nhc__show kMGTPE B "${1-}" "${2-}" "${3:-1024}" "${4-}"; }
nhc_common_unparse_count() { nhc__show _kMGTPE '' "${1-}" "${2-}" "${3:-1000}" "${4-}"; }

# --- users

nhc_common_parse_passwd_entry() {
    local IFS=: user password uid gid gecos home shell
    read -r user password uid gid gecos home shell <<< "$1"
    [[ "$uid" =~ ^[0-9]+$ ]] || return 1
    PWDATA_UIDS+=( "$uid" )
    PWDATA_USERS+=( "$user" )
    (( uid < 100 )) && PWDATA_SYSTEM_USERS+=( "$user" )
    PWUID_USER[uid]="$user" PWUID_GID[uid]="$gid" PWUID_GECOS[uid]="$gecos"
    PWUID_HOME[uid]="$home" PWUID_SHELL[uid]="$shell"
    PWDATA_USERID_MAP+="||$user:$uid"
    [[ -n "${2-}" ]] && printf -v "$2" '%s' "$uid"
    return 0
}

nhc_common_load_passwd() {
    local entry
    while IFS= read -r entry || [[ -n "$entry" ]]; do
        nhc_common_parse_passwd_entry "$entry"
    done < "${PASSWD_DATA_SRC:-/etc/passwd}"
}

nhc_common_get_uid() {
    local found="$1"
    if [[ ! "$found" =~ ^[0-9]+$ ]]; then
        found="$(getent passwd -- "$1" | { IFS=: read -r _ _ uid _ && printf %s "$uid"; })"
    fi
    printf -v "$2" '%s' "$found"
}

nhc_common_get_userid() {
    local found="$1"
    if [[ "$found" =~ ^[0-9]+$ ]]; then
        found="$(getent passwd -- "$1" | { IFS=: read -r user _ && printf %s "$user"; })"
    fi
    printf -v "$2" '%s' "${found:-$1}"
}

nhc_common_get_max_sys_uid() {
    local key value rest uid_min='' sys_max=''
    MAX_SYS_UID="${MAX_SYS_UID:-99}"
    [[ -r "${LOGIN_DEFS_SRC:-/etc/login.defs}" ]] || return 1
    while read -r key value rest; do
        case "$key" in
            UID_MIN) uid_min="${value//[^0-9]}" ;;
            SYS_UID_MAX) sys_max="${value//[^0-9]}" ;;
        esac
    done < "${LOGIN_DEFS_SRC:-/etc/login.defs}"
    if [[ -n "$sys_max" ]]; then
        MAX_SYS_UID=$(( 10#$sys_max ))
    elif [[ -n "$uid_min" ]]; then
        MAX_SYS_UID=$(( 10#$uid_min - 1 ))
    fi
    (( MAX_SYS_UID > 0 )) || MAX_SYS_UID=99
    return 0
}

# --- time and commands

# After this call $SECONDS is Unix time, as scripts that use it expect.
nhc_common_get_unix_time() {
    (( SECONDS >= 946684800 )) && return 0
    ELAPSED_SECONDS=$SECONDS
    printf -v SECONDS '%(%s)T' -1
    NHC_START_TS=$(( SECONDS - ELAPSED_SECONDS ))
}

nhc_cmd_with_timeout() {
    local seconds="$1"
    shift
    if type -P timeout >/dev/null; then
        timeout --kill-after=1 "$seconds" "$@"
        return
    fi
    "$@" &
    local child=$!
    ( sleep "$seconds"; kill -TERM "$child"; sleep 1; kill -KILL "$child" ) >/dev/null 2>&1 &
    local guard=$! status
    wait "$child"
    status=$?
    kill "$guard" 2>/dev/null
    return "$status"
}

# --- facts, from nhc itself

nhc_hw_gather_data() { nhc__gather hw; }
nhc_ps_gather_data() { nhc_common_get_max_sys_uid; nhc__gather ps; }
nhc_loadavg_gather_data() { nhc__gather loadavg; }
nhc_fs_mounts_gather_data() { nhc__gather mounts; }
nhc_fs_df_gather_data() { nhc__gather df; }
nhc_fs_dfi_gather_data() { nhc__gather dfi; }

nhc_ps_pid_lineage() {
    local pid="$1" seen=0
    [[ -n "${2-}" ]] || return 1
    (( ${#PS_PROCS[@]} )) || nhc_ps_gather_data
    while [[ -n "$pid" && "$pid" -gt 1 && seen -lt 100 ]]; do
        pid="${PS_PPID[pid]-}" seen=$(( seen + 1 ))
        [[ -n "$pid" ]] && mcheck "${PS_ARGS[pid]-}" "$2" && return 0
    done
    return 1
}

# --- arrays, by name

array_push() { local nhc__name="$1"; shift; eval "$nhc__name+=( \"\$@\" )"; }
array_unshift() { local nhc__name="$1"; shift; eval "$nhc__name=( \"\$@\" \"\${$nhc__name[@]}\" )"; }

array_shift() { eval "$1=( \"\${$1[@]:${2:-1}}\" )"; }

array_pop() {
    local nhc__count="${2:-1}" nhc__length nhc__at
    local -a nhc__taken=( )
    eval "nhc__length=\${#$1[@]}"
    for (( nhc__at = nhc__length - nhc__count; nhc__at < nhc__length; nhc__at++ )); do
        (( nhc__at < 0 )) && continue
        eval "nhc__taken+=( \"\${$1[nhc__at]}\" ); unset '$1[nhc__at]'"
    done
    [[ -n "${3-}" ]] && printf -v "$3" '%s' "${nhc__taken[*]}"
    return 0
}

array_split() {
    local IFS="$1"
    eval "$3=( \$2 )"
}

array_join() {
    local nhc__text='' nhc__item nhc__first=1
    local -a nhc__items=( )
    eval "nhc__items=( \"\${$2[@]}\" )"
    for nhc__item in "${nhc__items[@]}"; do
        [[ -z "$nhc__first" ]] && nhc__text+="$1"
        nhc__text+="$nhc__item" nhc__first=''
    done
    if [[ -n "${3-}" ]]; then printf -v "$3" '%s' "$nhc__text"; else printf '%s\n' "$nhc__text"; fi
}

bash_stack_trace() {
    local frame
    for (( frame = 1; frame < ${#FUNCNAME[@]}; frame++ )); do
        printf '[BT]:  %s at %s:%s\n' "${FUNCNAME[frame]}" "${BASH_SOURCE[frame]:-?}" "${BASH_LINENO[frame-1]:-?}"
    done
}

# --- variables

PWUID_USER=( ) PWUID_GID=( ) PWUID_GECOS=( ) PWUID_HOME=( ) PWUID_SHELL=( )
PWDATA_UIDS=( ) PWDATA_USERS=( ) PWDATA_SYSTEM_USERS=( ) PWDATA_USERID_MAP=''
PS_PROCS=( ) LOGGER_TEXT='' FAIL_CNT=0 PASS_CNT=0 CHECK='' CHECK_DIED=0 RET=0 nhc__open=''
NHC_FD_OUT=1 NHC_FD_ERR=2 NHC_PID=$$ NHC_SID=-$$ NHC_START_TS=0 WATCHDOG_PID=0
HW_SOCKETS=0 HW_CORES=0 HW_THREADS=0 HW_RAM_TOTAL=0 HW_RAM_FREE=0 HW_SWAP_TOTAL=0 HW_SWAP_FREE=0
HW_IB_STATE=( ) HW_IB_PHYS_STATE=( ) HW_IB_RATE=( ) HW_IB_DEV=( ) HW_MODULES=( ) HW_ETH_DEV=( )
