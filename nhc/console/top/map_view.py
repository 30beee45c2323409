"""The map: a line a group, a sign a node. Only the lines in sight are painted, whatever the number of nodes."""

from __future__ import annotations

from typing import ClassVar, List, Sequence

from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

from nhc.console.top.frame import STATES, MapLine, cells

LABEL = 16
"""Columns for a group's name."""


class MapView(ScrollView, can_focus=True):
    """Groups with their nodes; the cursor is on a group."""

    BINDINGS: ClassVar[List[BindingType]] = [
        Binding("up", "move(-1)", "Up", show=False),
        Binding("down", "move(1)", "Down", show=False),
        Binding("pageup", "move(-20)", "Page up", show=False),
        Binding("pagedown", "move(20)", "Page down", show=False),
        Binding("n", "sick(1)", "Next sick group"),
        Binding("enter", "choose", "Its nodes"),
    ]
    cursor: reactive[int] = reactive(0)

    class Chosen(Message):
        """A group whose nodes are to be listed."""

        def __init__(self, group: str) -> None:
            super().__init__()
            self.group = group

    def __init__(self, name: str) -> None:
        super().__init__(id=name)
        self.lines_of: List[MapLine] = []
        self._styles = {letter: Style.parse(style) for letter, (_name, _sign, style) in STATES.items()}

    def show(self, lines: Sequence[MapLine]) -> None:
        """Another picture; the cursor stays on its group."""
        before = self.lines_of[self.cursor].group if self.cursor < len(self.lines_of) else ""
        self.lines_of = list(lines)
        place = next((at for at, line in enumerate(self.lines_of) if line.group == before), self.cursor)
        self.cursor = max(0, min(place, len(self.lines_of) - 1))
        self.virtual_size = Size(self.size.width, len(self.lines_of))
        self.refresh()

    def render_line(self, y: int) -> Strip:
        place = y + int(self.scroll_offset.y)
        width = self.size.width
        if place >= len(self.lines_of):
            return Strip.blank(width)
        line = self.lines_of[place]
        here = place == self.cursor and self.has_focus
        mark = ">" if place == self.cursor else " "
        name = line.group or "(none)"
        label = name if len(name) <= LABEL else name[: LABEL - 1] + "…"
        segments = [Segment(f"{mark}{label:<{LABEL}} ", Style(reverse=here, bold=line.sick > 0))]
        segments += _runs(cells(line.letters, max(1, width - LABEL - 3)), self._styles)
        return Strip(segments).adjust_cell_length(width)

    def action_move(self, steps: int) -> None:
        self.cursor = max(0, min(self.cursor + steps, len(self.lines_of) - 1))

    def action_sick(self, steps: int) -> None:
        """To the next group with an unhealthy node."""
        count = len(self.lines_of)
        for step in range(1, count + 1):
            place = (self.cursor + step * steps) % count
            if self.lines_of[place].sick:
                self.cursor = place
                return

    def action_choose(self) -> None:
        if self.lines_of:
            self.post_message(self.Chosen(self.lines_of[self.cursor].group))

    def watch_cursor(self) -> None:
        if self.is_mounted:
            self.scroll_to_region(Region(0, self.cursor, 1, 1), animate=False)
            self.refresh()


def _runs(letters: str, styles: dict[str, Style]) -> List[Segment]:
    """Neighbours of one state are one segment."""
    segments: List[Segment] = []
    begin = 0
    for place in range(1, len(letters) + 1):
        if place == len(letters) or letters[place] != letters[begin]:
            letter = letters[begin]
            segments.append(Segment(STATES[letter][1] * (place - begin), styles[letter]))
            begin = place
    return segments
