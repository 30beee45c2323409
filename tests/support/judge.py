"""Run one check the way a configuration line would: words in, outcomes out."""

from __future__ import annotations

import shlex
from typing import List

from nhc.core.check import find
from nhc.core.host import Host
from nhc.core.model import Outcome, worst
from nhc.node.run.engine import call


def judge_all(host: Host, line: str) -> List[Outcome]:
    """Every outcome of `check_x arguments` on `host`. Raises BadArguments as the parser does."""
    name, *words = shlex.split(line)
    check = find(name)
    assert check is not None, name
    return call(check, check.parse(words), host)


def judge(host: Host, line: str) -> Outcome:
    """The most significant of them."""
    return worst(tuple(judge_all(host, line)))
