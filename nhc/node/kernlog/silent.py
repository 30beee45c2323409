"""Machines that die without a word: a boot that follows no shutdown is counted, and comes back as a finding.

Nothing in a kernel's log tells of a power failure, a hang or a reset by a watchdog: the next boot does. One can be
anybody's mishap. The second within a week is a person's to look at, the third takes the node out (repeats.tsv).
"""

from __future__ import annotations

from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Action
from nhc.core.timestamps import utc
from nhc.node.facts import boots
from nhc.node.kernlog.lasting import agent_ended
from nhc.node.kernlog.match import INFO, Match

if TYPE_CHECKING:
    from typing import Optional

    from nhc.core.host import Host

BEFORE = 86400.0
"""Seconds before a boot in which a record of a crash is taken for the cause of it."""


def unclean_boot(host: Host, boot: str) -> Optional[Match]:
    """The boot that runs, if the one before it ended without a shutdown and nobody reset the machine on purpose.

    Either witness acquits: the records of boots, and an agent that was told to end. Where neither tells there is none.
    """
    recorded, told = boots.ended_orderly(host), agent_ended(host.memory, boot)
    if recorded or told or (recorded is None and told is None) or boots.by_command(host):
        return None
    booted = host.time() - host.monotonic()
    cause = _cause(host, booted)
    message = f"the node went down without a shutdown{f': {cause}' if cause else ''}"
    line = f"the boot of {utc(booted)} follows no shutdown"
    return Match("boot", "Unclean", INFO, Action.NONE, "", message, line)


def _cause(host: Host, booted: float) -> str:
    """What a dying kernel left behind, "" for nothing."""
    from nhc.node.facts import crashes

    try:
        found = [crash for crash in crashes.crashes(host) if -BEFORE <= crash.at - booted <= boots.SKEW]
    except OSError:
        return ""
    return found[-1].cause if found else ""
