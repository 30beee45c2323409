"""Messages of a log judged in order: by the catalogue, by rule files, and into the state of findings."""

from __future__ import annotations

from nhc.core.light import TYPE_CHECKING
from nhc.node.kernlog.collect import add

if TYPE_CHECKING:
    from typing import Callable, Dict, Optional, Sequence, Tuple

    from nhc.node.kernlog.npd_rules import Rule
    from nhc.node.kernlog.state_types import LogState


def take_in(
    state: LogState,
    messages: Sequence[Tuple[str, Optional[float]]],
    now: float,
    rules: Sequence[Rule] = (),
    catalogue: bool = True,
    look: Optional[Callable[[int], str]] = None,
) -> None:
    """Judge messages, each with its time (None: now), and collect what they mean into a state.

    `rules` apply to all messages, the catalogue only where `catalogue` says that they are the kernel's. `look` gives
    what a process that a line names belongs to, by its number (`nhc.node.kernlog.programs.origin`).
    """
    if not messages:
        return
    if rules:
        from nhc.node.kernlog.npd_rules import RuleReader

        reader = RuleReader(rules, state.get("tail", []))
        for text, when in messages:
            for match in reader.read(text):
                add(state, match, now if when is None else when, now)
        state["tail"] = reader.tail()
    if not catalogue:
        return
    from nhc.node.kernlog.catalogue import Matcher, lines_of

    matcher = Matcher(state.get("driver", ""))
    lines = [(line, when) for text, when in messages for line in (lines_of(text) if "\n" in text else (text,))]
    texts = [line for line, _when in lines]
    starts: Dict[int, int] = {}
    at = 0
    for index, text in enumerate(texts):
        starts[at] = index
        at += len(text) + 1
    for start, _end, numbers in matcher.candidates("\n".join(texts)):
        index = starts[start]
        judged = matcher.judge(texts[index], numbers)
        if judged is not None:
            when = lines[index][1]
            add(state, judged, now if when is None else when, now, look)
    if matcher.driver:
        state["driver"] = matcher.driver
