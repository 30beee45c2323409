"""node-problem-detector's own programs where they are not installed: our checks answer to their command lines.

Its stock monitors call health-checker and log-counter. A node that has left node-problem-detector behind keeps the
monitors' files and not the programs.
"""

from __future__ import annotations

from nhc.core.check import BadArguments, find
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Outcome, unknown

if TYPE_CHECKING:
    from typing import List, Optional, Sequence

PROGRAMS = {"health-checker": "check_npd_health", "log-counter": "check_npd_log_counter"}
_DURATIONS = ("cooldown-time", "loopback-time", "health-check-timeout", "lookback", "delay")
_IGNORED = ("v", "vmodule", "logtostderr", "crictl-path", "cri-timeout")
"""Of its logging, and of crictl, which we do without."""
_KNOWN = (*_DURATIONS, "component", "service", "systemd-service", "cri-socket-path", "journald-source", "log-path",
          "count", "pattern", "revert-pattern")  # fmt: skip


def stand_in(host: Host, path: str, arguments: Sequence[str]) -> Optional[Outcome]:
    """What our check says in the program's place; None for a program of another name."""
    name = PROGRAMS.get(path.rsplit("/", 1)[-1])
    check = find(name) if name else None
    if check is None:
        return None
    try:
        outcome = check.run(host, **check.parse(translate(arguments)))
    except BadArguments as error:
        return unknown("PluginUnusable", f"{path} is not installed, and {name} does not understand: {error}")
    assert isinstance(outcome, Outcome)
    return outcome


def translate(arguments: Sequence[str]) -> List[str]:
    """Its command line as our checks take it. Raises BadArguments."""
    options: List[str] = []
    left = list(arguments)
    while left:
        argument = left.pop(0)
        name, equals, value = argument.lstrip("-").partition("=")
        if not argument.startswith("-"):
            raise BadArguments(f"unexpected argument {argument!r}")
        if name == "enable-repair":
            if (value or "true").lower() in ("true", "t", "1"):
                options.append("--enable-repair")
            continue
        if name == "logtostderr" or (name in _IGNORED and equals):
            continue
        if not equals:
            if not left:
                raise BadArguments(f"Option --{name} requires an argument.")
            value = left.pop(0)
        if name in _IGNORED:
            continue
        if name == "log-pattern":
            for each in value.split(","):
                options += ["--log-pattern", each]
        elif name in _KNOWN:
            if name in _DURATIONS and not value:
                continue
            options += [f"--{name}", _seconds(value) if name in _DURATIONS else value]
        else:
            raise BadArguments(f"Invalid option:  --{name}")
    return options


def _seconds(value: str) -> str:
    """A duration as Go writes it, in seconds. Raises BadArguments."""
    from nhc.node.kernlog.npd_rules import go_duration

    try:
        return f"{go_duration(value):f}"
    except ValueError as error:
        raise BadArguments(str(error)) from None
