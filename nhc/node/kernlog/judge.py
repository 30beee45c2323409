"""Messages of a log judged in order: by the catalogue, by rule files, and into the state of findings."""

from __future__ import annotations

from nhc.core.light import TYPE_CHECKING
from nhc.node.kernlog.collect import COMPLAINTS, add, complain

if TYPE_CHECKING:
    from typing import Callable, Dict, Optional, Sequence, Tuple

    from nhc.node.kernlog.npd_rules import Rule
    from nhc.node.kernlog.state_types import LogState


def _names_device(line: str) -> bool:
    """Whether the second word of a line has the form of a PCI address (`xhci_hcd 0000:3a:00.0: `)."""
    second = line[:60].partition(" ")[2].partition(" ")[0]
    return len(second) == 13 and second[4] == ":" and second[12] == ":"


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
        said = lines[index][1]
        when = now if said is None else said
        if judged is None:
            from nhc.node.kernlog.complaints import complaint

            judged = complaint(texts[index])
        if judged is not None:
            add(state, judged, when, now, look)
        else:
            if _names_device(texts[index]):
                from nhc.node.kernlog.device_role import note_peripheral

                note_peripheral(state, texts[index], when)
            if any(word in texts[index] for word in COMPLAINTS):
                complain(state, texts[index], when)
    if matcher.driver:
        state["driver"] = matcher.driver
