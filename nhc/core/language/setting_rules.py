"""What the variables that nhc itself reads can be set to, so that `TIMEOUT=abc` is a mistake and not a default."""

from __future__ import annotations

import re

from nhc.core import units
from nhc.core.light import TYPE_CHECKING
from nhc.core.resource_manager import LEFTOVER_KINDS, NAMES, NO_HOOK_ADAPTERS, adapter_name

if TYPE_CHECKING:
    from typing import Callable, Dict

    from typing_extensions import TypeAlias

Rule: TypeAlias = "Callable[[str], object]"
"""Raises ValueError for a value that cannot be meant."""


def _seconds(value: str) -> None:
    if not re.fullmatch(r"\d+(\.\d*)?|\.\d+", value):
        raise ValueError(f"expected seconds, as in 30, not {value!r}")


def _number(value: str) -> None:
    if not re.fullmatch(r"\d+(\.\d*)?", value):
        raise ValueError(f"expected a number, not {value!r}")


def _switch(value: str) -> None:
    if value not in ("0", "1", ""):
        raise ValueError(f"expected 0 or 1, not {value!r}")


def _manager(value: str) -> None:
    """A site's own adapter may have any name: only what is nearly one of ours is taken for a mistake."""
    from nhc.core.language.line_options import near

    other = NO_HOOK_ADAPTERS.get(adapter_name(value))
    if other:
        raise ValueError(other)
    known = (*NAMES, "none")
    close = near(value.lower(), known)
    if value.lower() not in known and close:
        raise ValueError(f"no resource manager is called {value!r}{close}")


def _kinds(value: str) -> None:
    for kind in value.replace(",", " ").split():
        if kind not in LEFTOVER_KINDS:
            raise ValueError(f"expected some of {', '.join(LEFTOVER_KINDS)}, not {kind!r}")


def _ceiling(value: str) -> None:
    from nhc.core.limits import read_limit

    if value:
        read_limit(value)


RULES: Dict[str, Rule] = {
    "MARK_OFFLINE": _switch,
    "MAX_SYS_UID": _number,
    "MCELOG_MAX_CORRECTED_RATE": _number,
    "MCELOG_MAX_UNCORRECTED_RATE": _number,
    "NHC_BOOT_WINDOW": units.seconds,
    "NHC_CHECK_ALL": _switch,
    "NHC_EPILOG_CLEAN": _kinds,
    "NHC_EPILOG_DRAIN": _kinds,
    "NHC_EPILOG_FIND": _kinds,
    "NHC_EPILOG_GPU_MB": _number,
    "NHC_EPILOG_LOGINS": _switch,
    "NHC_EPILOG_MAX_AGE": units.seconds,
    "NHC_EPILOG_TIMEOUT": _seconds,
    "NHC_EPILOG_WHY": _switch,
    "NHC_HEALTHCHECK_MAX_AGE": units.seconds,
    "NHC_HEALTHCHECK_TIMEOUT": _seconds,
    "NHC_MAX_DRAINED": _ceiling,
    "NHC_PROLOG_MAX_AGE": units.seconds,
    "NHC_PROLOG_TIMEOUT": _seconds,
    "NHC_REREAD": _seconds,
    "NHC_RM": _manager,
    "TIMEOUT": _seconds,
}


OTHERS = frozenset([
    "NHC_ALLOW_WRITABLE_CONFIG", "NHC_AUTH_USERS", "NHC_CHECK_FORKED", "NHC_DEEP_DUE", "NHC_DEVICES",
    "NHC_EPILOG_TMP", "NHC_FD_ERR", "NHC_FD_OUT",
    "NHC_FLEET_HISTORY", "NHC_HYPERPOD", "NHC_KUBECONFIG", "NHC_KUBE_CONTEXT", "NHC_KUBE_VOCABULARY",
    "NHC_LEDGER_DIR", "NHC_MCHECK_COMMAND", "NHC_MCHECK_DELIM", "NHC_METADATA_URL", "NHC_MUTES", "NHC_NODE_MAP",
    "NHC_NODE_NAME", "NHC_PID", "NHC_PROFILE", "NHC_RM_PATH", "NHC_ROOT", "NHC_SID", "NHC_SLURMREST",
    "NHC_SLURMREST_TOKEN_FILE", "NHC_SLURMREST_USER", "NHC_SSH_PASSWORD", "NHC_START_TS", "NHC_STATE_DIR",
    "NHC_SUDO_PASSWORD", "NHC_USER_SKIP", "NHC_WATCH_ONLY",
])  # fmt: skip
"""Variables of ours, and of LBNL NHC, that may have any value."""


def _misspelt(name: str) -> str:
    """A site may have variables of its own: only what is nearly one of ours is taken for a mistake."""
    from difflib import get_close_matches

    close = get_close_matches(name, [*RULES, *OTHERS], 1, 0.9)
    return f"no such setting: {name} (did you mean {close[0]}?)" if close else ""


def problem(name: str, value: str) -> str:
    """What is wrong with setting `name` to `value`, empty where nothing is."""
    rule = RULES.get(name)
    if rule is None and name.startswith("NHC_") and name.partition("[")[0] not in OTHERS:
        return _misspelt(name)
    if rule is None or "$" in value:
        return ""
    try:
        rule(value)
    except ValueError as error:
        return f"{name}: {error}"
    return ""
