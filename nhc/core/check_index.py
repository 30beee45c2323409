"""Which module of nhc.node.checks holds a check: what `nhc.core.check.find` goes by, and what listings walk.

Nothing is registered. `check_fs_mount_rw` lies in the module with the longest name that it begins with: of
fs_mount_rw.py, fs_mount.py and fs.py the first that there is. ELSEWHERE has the exceptions.
"""

from __future__ import annotations

import sys

from nhc.core.light import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Dict, List, Tuple

OFFERED: Dict[str, Tuple[str, str]] = {}
"""Installed packages' checks that the plan in force needs: name to `module:function` and the package with its version.

The reading of a plan fills it (`nhc.node.planning.cache`), so that no run and no worker asks what is installed.
"""

ELSEWHERE: Dict[str, str] = {
    "app_gpu": "gpu_clocks",
    "deep_cpu_gemm": "deep_gemm",
    "deep_efa": "deep_rdma",
    "deep_nccom": "deep_collective",
    "deep_triad": "deep_gemm",
    "fabric_manager": "gpu_fabric",
    "gpu_clock": "gpu_clocks",
    "gpu_compute": "gpu_modes",
    "gpu_driver": "gpu_firmware",
    "gpu_ecc": "gpu_memory",
    "gpu_ecc_mode": "gpu_modes",
    "gpu_idle": "gpu_clocks",
    "gpu_inforom": "gpu_firmware",
    "gpu_mig": "gpu_modes",
    "gpu_p2p": "gpu_links",
    "gpu_persistence": "gpu_modes",
    "gpu_power": "gpu_clocks",
    "gpu_retired": "gpu_memory",
    "gpu_row": "gpu_memory",
    "gpu_stalled": "gpu_clocks",
    "gpu_temp": "gpu_clocks",
    "gpu_xgmi": "gpu_links",
    "hw_physmem": "hw_mem",
    "hw_swap": "hw_mem",
    "ib_firmware": "ib_identity",
    "ib_guid": "ib_identity",
    "ib_link": "ib_flapping",
    "ib_pkeys": "ib_identity",
    "kubelet": "runtime",
    "nv": "nvsmi",
    "nvlink": "gpu_links",
    "ps_cpu": "ps_usage",
    "ps_dstate": "procstate",
    "ps_kswapd": "ps_load",
    "ps_loadavg": "ps_load",
    "ps_mem": "ps_usage",
    "ps_physmem": "ps_usage",
    "ps_time": "ps_usage",
    "ps_unauth_users": "ps_users",
    "ps_userproc_lineage": "ps_users",
    "ps_zombies": "procstate",
    "reboot": "uptime",
    "ssh": "certs",
    "tls": "certs",
    "vbios": "gpu_firmware",
}
"""Where checks lie in a module that their names do not begin with. The longest beginning wins."""

PACKAGE = "nhc.node.checks"
_MOST_WORDS = 8
"""No module's name has more; a name out of a configuration may have thousands."""


def module_of(name: str) -> str:
    """The module that would define the check `name`, whether or not it does; "" where there is none.

    Imports no module of checks.
    """
    parts = name.split("_")[1:]
    for end in range(min(len(parts), _MOST_WORDS), 0, -1):
        begins = "_".join(parts[:end])
        if begins in ELSEWHERE:
            return f"{PACKAGE}.{ELSEWHERE[begins]}"
        if _is_there(begins):
            return f"{PACKAGE}.{begins}"
    return ""


def families() -> List[str]:
    """Every module of nhc.node.checks: for listings, never on the path of a run."""
    from pkgutil import iter_modules

    return sorted(module.name for module in iter_modules(_path()))


def _path() -> List[str]:
    return list(__import__(PACKAGE, fromlist=["__path__"]).__path__)


def _is_there(family: str) -> bool:
    """Whether nhc.node.checks has such a module: what an import asks first, in 10 microseconds, from directories
    known.
    """
    name = f"{PACKAGE}.{family}"
    if name in sys.modules:
        return True
    if not family.isidentifier() or family[0] == "_":
        return False
    path = _path()
    # getattr: an old package's finder may be of the kind before PEP 451.
    return any(getattr(finder, "find_spec", _finds_nothing)(name, path) is not None for finder in sys.meta_path)


def _finds_nothing(name: str, path: List[str]) -> None:
    return None
