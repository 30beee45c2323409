"""What a plan knows of the checks of installed packages: where each is, and what changes when a package does."""

from __future__ import annotations

from nhc.core.light import TYPE_CHECKING
from nhc.core.plugins import CHECKS, directories, offers

if TYPE_CHECKING:
    from typing import Sequence, Tuple

    from nhc.core.language.classifier import Classifier
    from nhc.core.plan import Plan


def with_offered(plan: Plan, classifier: Classifier) -> Plan:
    """The plan with the installed packages' checks that it names, and what changes when one comes, changes or goes."""
    there = offers(CHECKS)
    used = [there[name] for name, check in classifier.sought.items() if check is not None and name in there]
    offered = tuple((offer.name, offer.where, offer.distribution) for offer in used)
    inputs = (*plan.inputs, *watched(offered)) if plan.inputs else ()  # without any it is not to be kept
    return plan._replace(inputs=inputs, offered=offered)


def watched(offered: Sequence[Tuple[str, str, str]]) -> Tuple[str, ...]:
    """The files and directories that change when one of these checks' packages does, or when another is installed."""
    there = offers(CHECKS)
    files = (path for name, _where, _distribution in offered if name in there for path in there[name].files)
    return tuple(dict.fromkeys((*directories(), *files)))
