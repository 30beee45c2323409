"""What a check's declaration says of one line of the configuration: the check and its arguments, or what is wrong."""

from __future__ import annotations

from nhc.core.check import BadArguments, find
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Outcome, unknown
from nhc.core.plan import Declared

if TYPE_CHECKING:
    from typing import Any, Dict, Mapping, Sequence, Tuple, Union

    from nhc.core.check import Check


def resolve(argv: Sequence[str]) -> Union[Outcome, Tuple[Check, Dict[str, Any]]]:
    """The check that a line names and its arguments, or the outcome where there is none such. Imports its family."""
    try:
        check = find(argv[0])
    except Exception as error:
        return unknown("CheckBroken", f"{argv[0]} cannot be loaded: {error}")
    if check is None:
        return unknown("NoSuchCheck", f"there is no check called {argv[0]}")
    if check.broken:
        return unknown("CheckBroken", f"{argv[0]} cannot be loaded: {check.broken}")
    try:
        return check, check.parse(argv[1:])
    except BadArguments as error:
        return unknown("BadArguments", str(error))


def declare(argv: Sequence[str]) -> Union[Outcome, Declared]:
    """What the declaration says, as values that can be kept."""
    resolved = resolve(argv)
    if isinstance(resolved, Outcome):
        return resolved
    check, arguments = resolved
    timeout, own = _deadline(check, arguments)
    changes = check.changes or any(arguments[param.name] != param.default for param in check.params if param.changes)
    return Declared(
        timeout, own, check.on_timeout, check.needs, check.tags, changes, check.samples, check.source, check.parts,
        check.settles, check.starting,
    )  # fmt: skip


KEEPS = ("timeout", "deadline")
"""Names of parameters by which a check gets its own deadline."""


def _deadline(check: Check, arguments: Mapping[str, object]) -> Tuple[float, bool]:
    """Seconds for a check with these arguments, and whether it keeps a deadline itself.

    `check_cmd_output -t 60` asks for a minute, whatever the check is declared with. A deep check's `duration` is for
    how long it loads the node, and comes on top.
    """
    own = next((arguments[name] for name in KEEPS if arguments.get(name) is not None), None)
    load = arguments.get("duration")
    timeout = max(check.timeout, own) if isinstance(own, (int, float)) else check.timeout
    if check.lasts is not None:
        timeout = max(timeout, check.lasts(arguments))
    return timeout + (load if isinstance(load, (int, float)) else 0.0), own is not None
