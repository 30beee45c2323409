"""What a preflight is: the suite that an init container runs before a pod's own containers start."""

from __future__ import annotations

import re
from typing import NamedTuple

from nhc.core.settings import declared

SUITE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,40}")
"""The name of a suite, as a label takes it."""

MOST = 60.0
"""Seconds that `NHC_PROLOG_SUITE_TIME` takes at most: a suite of seconds, and no deep test."""


def _suite(text: str) -> str:
    """A suite by its name. Raises ValueError."""
    if not SUITE.fullmatch(text):
        raise ValueError(f"{text!r} is no suite's name (nhc list suites): letters, digits, - and _")
    return text


@declared.settings
class PreflightSettings(NamedTuple):
    """No image means that no pod gets an init container, and that none is looked at.

    `share` (0 to 1): where more of the nodes than this failed within `window` seconds, the suite is doubted.
    """

    image: str = declared.text(
        "image", "", "of the init container: nhc, and what the suite needs; unset: no preflight",
        shown='"registry.example.com/nhc:0.1.0"',
    )  # fmt: skip
    suite: str = declared.converted("suite", _suite, "prejob", "a pod's annotation nhc/preflight names another")
    timeout: float = declared.seconds("timeout", 30.0, "of the suite", least=1.0, most=MOST)
    on_unknown: str = declared.choice(
        "on-unknown", {"admit": "admit", "refuse": "refuse"}, "admit",
        "whether a pod starts whose suite could not tell",
    )  # fmt: skip
    every: float = declared.seconds("every", 5.0, "how often pods with a preflight are looked at", least=0.1)
    spread: int = declared.count("spread", 2, "where it fails on more nodes than this ...")
    share: float = declared.share("share", 0.5, "... and on more than this share of those that ran it ...")
    window: float = declared.seconds("window", 600.0, "... within this time, no node is blamed: the suite is doubted")

    @property
    def on(self) -> bool:
        """Whether pods get a preflight."""
        return bool(self.image)
