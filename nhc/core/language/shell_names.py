"""The names that nhc and the shell share: variables that checks read, functions that our shell has, a site's own."""

from __future__ import annotations

from nhc.core.light import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import FrozenSet, Tuple

SETTINGS = (
    "DFI_CMD", "DFI_FLAGS", "DF_CMD", "DF_FLAGS", "HOSTNAME", "HOSTNAME_S", "JOBFILE_PATH", "LOGIN_DEFS_SRC",
    "MAX_SYS_UID", "MCELOG", "MCELOG_ARGS", "MCELOG_MAX_CORRECTED_RATE", "MCELOG_MAX_UNCORRECTED_RATE",
    "MDIAG_CMD", "MOUNT_CMD", "NCCL_TOPO_FILE", "NETSTAT_ARGS", "NETSTAT_CMD", "NHC_AUTH_USERS",
    "NHC_DEEP_EXPECTED", "NHC_DEVICES", "NHC_RM", "NHC_WATCH_ONLY",
    "NVIDIA_HEALTHMON", "NVIDIA_HEALTHMON_ARGS", "NVIDIA_SMI_HEALTHMON", "NVIDIA_SMI_HEALTHMON_ARGS",
    "PASSWD_DATA_SRC", "PATH", "PBS_SERVER_HOME", "RM_DAEMON_MATCH", "SLURMD_NODENAME", "SLURM_SCONTROL", "SLURM_SINFO",
    "SQUEUE_CMD", "SQUEUE_FMT_ARGS", "SQUEUE_NODE", "SS_ARGS", "SS_CMD", "STAT_CMD", "STAT_FMT_ARGS", "TIMEOUT",
)  # fmt: skip
"""The variables that built-in checks read. A check called from a shell line sees the shell's values of these."""

HELPERS = frozenset([
    "array_join", "array_pop", "array_push", "array_shift", "array_split", "array_unshift", "bash_stack_trace",
    "dbg", "die", "eecho", "kill_watchdog", "log", "mcheck", "mcheck_external", "mcheck_glob", "mcheck_range",
    "mcheck_regexp", "nhc_cmd_with_timeout", "nhc_common_get_max_sys_uid", "nhc_common_get_uid",
    "nhc_common_get_unix_time", "nhc_common_get_userid", "nhc_common_load_passwd", "nhc_common_parse_count",
    "nhc_common_parse_passwd_entry", "nhc_common_parse_size", "nhc_common_unparse_count",
    "nhc_common_unparse_size", "nhc_fs_df_gather_data", "nhc_fs_dfi_gather_data",
    "nhc_fs_mounts_gather_data", "nhc_hw_gather_data", "nhc_loadavg_gather_data", "nhc_ps_gather_data",
    "nhc_ps_pid_lineage", "oecho", "syslog", "syslog_flush", "vecho", "vlog",
])  # fmt: skip
"""The functions that our shell defines for site scripts (data/shell.bash)."""


class Scripts(NamedTuple):
    """The site's scripts (`site_scripts.scan`). `text` is all of them; `assignments` are those at the left margin."""

    paths: Tuple[str, ...] = ()
    functions: FrozenSet[str] = frozenset()
    text: str = ""
    assignments: Tuple[str, ...] = ()
    notes: Tuple[str, ...] = ()
    directories: Tuple[str, ...] = ()


NO_SCRIPTS = Scripts()
