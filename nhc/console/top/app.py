"""`nhc top`: problems first, then a map by group, the nodes, and the repairs, in a terminal."""

from __future__ import annotations

import time
from typing import Callable, ClassVar, List, NamedTuple, Optional, Sequence, Tuple, TypeVar

from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.screen import ModalScreen
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widgets import DataTable, Footer, Input, Label, Static, TabbedContent, TabPane

from nhc.console.snapshot import FleetProblem, Snapshot
from nhc.console.sources import FleetSource, SourceError
from nhc.console.top import frame
from nhc.console.top.frame import STATES, MapLine, NodeFilter, NodeLine, age, cells, trend
from nhc.core.model import Report, printable
from nhc.marks.ports.marks import cause_in_words
from nhc.remedy import detail as details
from nhc.remedy import operators
from nhc.remedy.cases import standing_cause
from nhc.store import episodes, holds
from nhc.store.database import Store
from nhc.store.errors import RequestRefused, StoreError

# Tables that are filled again every few seconds while a person reads them.


Row = Tuple[str, Sequence[Text]]
"""A row's key and its cells."""
Columns = Sequence[Tuple[str, Optional[int]]]
"""Of each column its title and its width, None for as wide as it has to be."""


class LiveTable(DataTable[Text]):
    """The cursor stays on its row and the visible rows stay in place, even if rows are added above them."""

    def __init__(self, columns: Columns, name: str) -> None:
        super().__init__(cursor_type="row", id=name)
        self.titles = columns
        self.keys: List[str] = []

    def on_mount(self) -> None:
        for title, width in self.titles:
            self.add_column(title, width=width, key=title)

    def fill(self, rows: Sequence[Row]) -> None:
        """Show these rows. If they are the same ones as before, only changed cells are updated."""
        keys = [key for key, _cells in rows]
        if keys == self.keys:
            for at, (_key, cells) in enumerate(rows):
                for column, cell in enumerate(cells):
                    if self.get_cell_at((at, column)) != cell:  # type: ignore[arg-type]
                        self.update_cell_at((at, column), cell)  # type: ignore[arg-type]
            return
        chosen, offset = self.chosen, self.scroll_offset
        above = self.cursor_row - int(offset.y)
        self.clear()
        self.keys = keys
        for key, cells in rows:
            self.add_row(*cells, key=key)
        if chosen in self.keys:
            row = self.keys.index(chosen)
            self.move_cursor(row=row, animate=False, scroll=False)
            self.scroll_to(y=max(0, row - above), animate=False, force=True)

    @property
    def chosen(self) -> str:
        """The key of the row that the cursor is on, "" where there is none."""
        return self.keys[self.cursor_row] if 0 <= self.cursor_row < len(self.keys) else ""


# The repairs that are under way, and what a person decides about them: read from the store, written into it.


ROWS = 200


class RepairLine(NamedTuple):
    """An open episode of the remedy loop. `cause` is in words: the check, the reason, the target where there is one."""

    number: int
    node: str
    state: str
    rung: str
    cause: str
    waiting: str
    updated: float

    @property
    def asks(self) -> bool:
        """Whether it waits for a person."""
        return self.state == episodes.AWAITING


def open_repairs(store: Store) -> List[RepairLine]:
    """The open episodes, those that wait for a person first, the longest of them at the top. Raises StoreError."""
    with store.read() as connection:
        rows = episodes.by_need(connection, is_open=True, limit=ROWS)
    lines = []
    for row in rows:
        try:
            waiting = details.read(row.detail).waiting
        except details.BadDetail as error:
            waiting = str(error)
        lines.append(
            RepairLine(row.id, row.node, row.state, row.rung, cause_in_words(standing_cause(row)), waiting, row.updated)
        )
    return lines


def decide(store: Store, by: str, line: RepairLine, agree: bool, why: str) -> str:
    """Agree to a repair or refuse it; what to tell the person. Raises RequestRefused, StoreError."""
    if not agree and not why.strip():
        raise RequestRefused("say why it is refused")
    return operators.decide(store, line.number, by=by, agree=agree, why=why, now=time.time())


def hold(store: Store, by: str, node: str, why: str) -> str:
    """Have nothing done to a node; what to tell the person. Raises RequestRefused, StoreError."""
    if not why.strip():
        raise RequestRefused("say why it is held")
    with store.write() as connection:
        holds.hold(connection, "node", node, by=by, why=why, now=time.time())
    return f"{node} is held by {by}"


def release(store: Store, by: str, node: str, why: str) -> str:
    """End what holds a node; what to tell the person. Raises RequestRefused, StoreError."""
    with store.write() as connection:
        ended = holds.release(connection, "node", node, by=by, now=time.time(), why=why)
    if not ended:
        raise RequestRefused(f"nothing holds {node}")
    return f"{node} is released by {by}"


# Rows of the tables: what a fleet's values look like in cells.


PROBLEMS: Columns = (("", 8), ("nodes", 6), ("reason", 24), ("check", 24), ("since", 6), ("hour", 12), ("which", None))
NODES: Columns = (("node", 24), ("", 8), ("since", 6), ("reasons", 32), ("message", None))
REPAIRS: Columns = (("episode", 8), ("node", 20), ("state", 18), ("repair", 14), ("cause", 40), ("waits for", None))
_STYLES = {name: style for name, _sign, style in STATES.values()}


def of_problems(causes: Sequence[FleetProblem], now: float) -> List[Row]:
    """A row a cause; its key is the check and the reason, a line each."""
    return [
        (f"{cause.check}\n{cause.reason}", [
            Text(cause.verdict, _STYLES.get(cause.verdict, "")), Text(str(cause.affected), justify="right"),
            Text(cause.reason), Text(cause.check), Text(age(now, cause.began)), Text(trend(cause.trend)),
            Text(_which(cause)),
        ])
        for cause in causes
    ]  # fmt: skip


def of_nodes(lines: Sequence[NodeLine], now: float) -> List[Row]:
    """A row a node, whose name is its key."""
    return [
        (line.node, [
            Text(line.node), Text(STATES[line.letter][0], STATES[line.letter][2]), Text(age(now, line.since)),
            Text(printable(line.reasons)), Text(printable(line.message)),
        ])
        for line in lines
    ]  # fmt: skip


def of_repairs(lines: Sequence[RepairLine]) -> List[Row]:
    """A row an episode, whose number is its key."""
    return [
        (str(line.number), [
            Text(str(line.number)), Text(line.node), Text(line.state, "bold yellow" if line.asks else ""),
            Text(line.rung), Text(printable(line.cause)), Text(printable(line.waiting)),
        ])
        for line in lines
    ]  # fmt: skip


def _which(cause: FleetProblem) -> str:
    shares = ", ".join(f"{hit} of {of} of {fact} {group}" for fact, group, hit, of in cause.shares[:2])
    return printable(f"{shares}: {cause.nodes}" if shares else cause.nodes)


# The map: a line a group, a sign a node. Only the visible lines are painted, for any number of nodes.


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


# A question to the person at the terminal: what is to be done, confirmed by typing a word, with a reason.


class ActQuestion(NamedTuple):
    """`what` is going to happen, `confirm` is to be typed, `needs_why` says that a reason has to be given."""

    what: str
    confirm: str
    needs_why: bool


class Confirmed(NamedTuple):
    """The person's yes, with the reason."""

    why: str


class Ask(ModalScreen[Optional[Confirmed]]):
    """Nothing happens unless the word has been typed; Escape ends it."""

    BINDINGS: ClassVar[List[BindingType]] = [Binding("escape", "dismiss(None)", "Leave it")]
    CSS = """
    Ask { align: center middle; }
    Ask > Vertical { width: 70; height: auto; border: round $primary; padding: 1 2; background: $surface; }
    """

    def __init__(self, question: ActQuestion) -> None:
        super().__init__()
        self.question = question

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Label(self.question.what, markup=False)
            yield Label(f"To confirm, type {self.question.confirm}. Escape leaves all as it is.", markup=False)
            yield Input(placeholder=self.question.confirm, id="confirm")
            yield Input(placeholder="why" if self.question.needs_why else "why (may be left out)", id="why")
            yield Label("", id="wrong", markup=False)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()  # the filter's field is submitted to the application
        if event.input.id == "confirm":
            self.query_one("#why", Input).focus()
            return
        typed = self.query_one("#confirm", Input).value.strip()
        why = self.query_one("#why", Input).value.strip()
        wrong = self.query_one("#wrong", Label)
        if typed != self.question.confirm:
            wrong.update(f"{typed!r} is not {self.question.confirm}")
        elif self.question.needs_why and not why:
            wrong.update("say why: others will read it")
        else:
            self.dismiss(Confirmed(why))


class KeyList(ModalScreen[None]):
    """Every key with what it does; any of Escape, `?` and Enter ends it."""

    BINDINGS: ClassVar[List[BindingType]] = [Binding("escape,question_mark,enter,q", "dismiss(None)", "Close")]
    CSS = """
    KeyList { align: center middle; }
    KeyList > Vertical { width: 60; height: auto; border: round $primary; padding: 1 2; background: $surface; }
    """

    def __init__(self, keys: Sequence[Tuple[str, str]]) -> None:
        super().__init__()
        self.keys = keys

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Label("\n".join(f"{key:8}{what}" for key, what in self.keys), markup=False, id="keys")


T = TypeVar("T")


class TopSettings(NamedTuple):
    """`every` is in seconds between two looks. `person` is who decides, "" where nothing may be decided."""

    every: float = 2.0
    person: str = ""


class Look(NamedTuple):
    """What was read at once."""

    snapshot: Snapshot
    repairs: List[RepairLine]


class TopApp(App[None]):
    """It reads in the background; what is typed, chosen or scrolled stays as it is."""

    ENABLE_COMMAND_PALETTE = False
    TITLE = "nhc top"
    CSS = """
    #summary, #trouble, #said { height: 1; }
    #trouble { color: $error; }
    #filter { display: none; }
    #filter.asked { display: block; }
    #pane { height: 40%; border-top: solid $primary; display: none; }
    #pane.open { display: block; }
    TabbedContent { height: 1fr; }
    LiveTable, MapView { height: 1fr; }
    """
    BINDINGS: ClassVar[List[BindingType]] = [
        Binding("1", "tab('problems')", "Problems"),
        Binding("2", "tab('map')", "Map"),
        Binding("3", "tab('nodes')", "Nodes"),
        Binding("4", "tab('repairs')", "Repairs"),
        Binding("slash", "filter", "Filter", key_display="/"),
        Binding("g", "group", "Group by"),
        Binding("p", "pause", "Pause"),
        Binding("escape", "back", "Back", show=False),
        Binding("a", "decide(True)", "Approve"),
        Binding("x", "decide(False)", "Refuse"),
        Binding("h", "hold", "Hold"),
        Binding("r", "release", "Release"),
        Binding("question_mark", "keys", "Keys", key_display="?"),
        Binding("q", "quit", "Quit"),
        Binding("ctrl+c", "quit", show=False, priority=True),  # the library's own only says which key ends it
    ]

    def __init__(
        self, source: FleetSource, store: Optional[Store], settings: TopSettings, clock: Callable[[], float] = time.time
    ) -> None:
        super().__init__()
        self.source, self.store, self.settings, self.clock = source, store, settings, clock
        self.seen: Optional[Look] = None
        self.wanted = NodeFilter()
        self.fact = 0
        self.paused = False
        self.node = ""

    def compose(self) -> ComposeResult:
        yield Static("reading …", id="summary", markup=False)
        yield Static("", id="trouble", markup=False)
        with TabbedContent(initial="problems"):
            with TabPane("Problems", id="problems"):
                yield LiveTable(PROBLEMS, "problems-table")
            with TabPane("Map", id="map"):
                yield MapView("map-view")
            with TabPane("Nodes", id="nodes"):
                yield LiveTable(NODES, "nodes-table")
            with TabPane("Repairs", id="repairs"):
                yield LiveTable(REPAIRS, "repairs-table")
        with VerticalScroll(id="pane"):
            yield Static("", id="pane-text", markup=False)
        yield Static("", id="said", markup=False)
        yield Input(placeholder="a part of a name, a node set, a rack, a reason or a message", id="filter")
        yield Footer()

    def on_mount(self) -> None:
        self.query_one("#problems-table").focus()
        self.read()
        self.set_interval(self.settings.every, self.read_again)

    def check_action(self, action: str, parameters: object) -> Optional[bool]:
        """The key for a decision is shown only to a user who may decide."""
        if action in ("decide", "hold", "release"):
            return bool(self.settings.person and self.store is not None)
        return True

    # Reading.

    def read_again(self) -> None:
        if not self.paused:
            self.read()

    @work(thread=True, exclusive=True, group="read")
    def read(self) -> None:
        """Read the fleet in a separate thread: a store that hangs does not block the keys."""
        try:
            snapshot = self.source.snapshot()
            open_ones = open_repairs(self.store) if self.store is not None else []
        except (SourceError, StoreError, OSError) as error:
            self._give(self.trouble, printable(str(error)))
            return
        self._give(self.show, Look(snapshot, open_ones))

    def _give(self, painter: Callable[[T], None], value: T) -> None:
        """From a thread: paint what it has read, unless the screen was closed meanwhile."""
        self.call_from_thread(lambda: painter(value) if self.query("#summary") else None)

    def trouble(self, why: str) -> None:
        """The fleet cannot be read now: the screen keeps the old data, and says so."""
        stale = f"; shown is what was read {age(self.clock(), self.seen.snapshot.at)} ago" if self.seen else ""
        self.query_one("#trouble", Static).update(f"cannot read {self.source.name}: {why}{stale}")

    def show(self, look: Look) -> None:
        self.seen = look
        self.query_one("#trouble", Static).update("")
        self.paint()

    # Painting.

    def paint(self) -> None:
        if self.seen is None:
            return
        snapshot = self.seen.snapshot
        paused = "[paused] " if self.paused else ""
        about = printable("; ".join(snapshot.notes)) or self.source.name
        self.query_one("#summary", Static).update(f"{paused}{frame.summary(snapshot)}  {about}")
        self._paint_problems(snapshot)
        self._paint_map(snapshot)
        self._paint_nodes(snapshot)
        self._paint_repairs(self.seen.repairs)
        self._paint_pane()

    def _paint_problems(self, snapshot: Snapshot) -> None:
        causes, left_out = frame.problems(snapshot)
        self.query_one("#problems-table", LiveTable).fill(of_problems(causes, snapshot.at))
        self._title("problems", f"Problems ({len(causes) + left_out})")

    def _paint_map(self, snapshot: Snapshot) -> None:
        fact = self._fact(snapshot)
        self.query_one("#map-view", MapView).show(frame.map_lines(snapshot, fact))
        self._title("map", f"Map by {fact}" if fact else "Map")

    def _paint_nodes(self, snapshot: Snapshot) -> None:
        lines, left_out = frame.node_lines(snapshot, self.wanted)
        self.query_one("#nodes-table", LiveTable).fill(of_nodes(lines, snapshot.at))
        count = f"{len(lines)} of {len(lines) + left_out}" if left_out else str(len(lines))
        description = frame.describe(self.wanted)
        self._title("nodes", f"Nodes ({count}{f': {description}' if description else ''})")

    def _paint_repairs(self, lines: List[RepairLine]) -> None:
        self.query_one("#repairs-table", LiveTable).fill(of_repairs(lines))
        asking = sum(line.asks for line in lines)
        self._title("repairs", f"Repairs ({len(lines)}{f', {asking} wait for you' if asking else ''})")

    def _paint_pane(self) -> None:
        pane = self.query_one("#pane")
        pane.set_class(bool(self.node), "open")
        if self.node:
            self.read_node(self.node)

    @work(thread=True, exclusive=True, group="node")
    def read_node(self, name: str) -> None:
        """A node's latest report, which the snapshot does not hold."""
        report: Optional[Report] = None
        try:
            report = self.source.report(name)
        except (SourceError, StoreError, OSError) as error:
            self._give(self.trouble, printable(str(error)))
        if self.seen is not None:
            text = "\n".join(frame.node_text(self.seen.snapshot, name, report))
            self._give(lambda text: self.query_one("#pane-text", Static).update(text), text)

    def _title(self, pane: str, text: str) -> None:
        self.query_one(TabbedContent).get_tab(pane).label = text

    def _fact(self, snapshot: Snapshot) -> str:
        known = frame.facts(snapshot)
        return known[self.fact % len(known)] if known else ""

    # Moving about.

    def action_tab(self, name: str) -> None:
        self.query_one(TabbedContent).active = name
        target = "#map-view" if name == "map" else f"#{name}-table"
        self.query_one(target).focus()

    def action_keys(self) -> None:
        """Every key that does something here, also where the footer has no room for it."""
        known = [
            binding for binding in (*self.BINDINGS, *MapView.BINDINGS) if isinstance(binding, Binding) and binding.show
        ]
        offered = [binding for binding in known if self.check_action(binding.action.partition("(")[0], ())]
        keys = [(binding.key_display or binding.key, binding.description) for binding in offered]
        self.push_screen(KeyList([*keys, ("escape", "Back")]))

    def action_filter(self) -> None:
        field = self.query_one("#filter", Input)
        field.add_class("asked")
        field.value = self.wanted.text
        self.action_tab("nodes")
        field.focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.wanted = NodeFilter(event.value.strip())
        self._end_filter()

    def _end_filter(self) -> None:
        self.query_one("#filter", Input).remove_class("asked")
        self.paint()
        self.action_tab("nodes")

    def action_group(self) -> None:
        self.fact += 1
        self.paint()

    def action_pause(self) -> None:
        self.paused = not self.paused
        self.paint()

    async def action_back(self) -> None:
        """One step back: the field, the node, then what the list is narrowed to."""
        if self.query_one("#filter").has_class("asked"):
            self._end_filter()
        elif self.node:
            self.node = ""
            self._paint_pane()
        elif self.wanted != NodeFilter():
            self.wanted = NodeFilter()
            self.paint()

    def on_map_view_chosen(self, event: MapView.Chosen) -> None:
        if self.seen is not None:
            self._narrow(NodeFilter(group=(self._fact(self.seen.snapshot), event.group)))

    def on_data_table_row_selected(self, event: LiveTable.RowSelected) -> None:
        key = str(event.row_key.value)
        if event.data_table.id == "problems-table":
            check, _, reason = key.partition("\n")
            self._narrow(NodeFilter(cause=(check, reason)))
            return
        line = self._repair(key) if event.data_table.id == "repairs-table" else None
        self.node = line.node if line else key
        self._paint_pane()

    def _narrow(self, wanted: NodeFilter) -> None:
        self.wanted = wanted
        self.paint()
        self.action_tab("nodes")

    # Deciding.

    def _repair(self, key: str) -> Optional[RepairLine]:
        return next((line for line in (self.seen.repairs if self.seen else ()) if str(line.number) == key), None)

    def _chosen_node(self) -> str:
        active = self.query_one(TabbedContent).active
        if active == "repairs":
            line = self._repair(self.query_one("#repairs-table", LiveTable).chosen)
            return line.node if line else ""
        return self.query_one("#nodes-table", LiveTable).chosen if active == "nodes" else self.node

    def action_decide(self, agree: bool) -> None:
        line = self._repair(self.query_one("#repairs-table", LiveTable).chosen)
        if line is None or self.query_one(TabbedContent).active != "repairs":
            self._say("choose a repair first (4)")
            return
        if not line.asks:
            self._say(f"episode {line.number} waits for nobody: it is {line.state}")
            return
        what = f"{'Agree to' if agree else 'Refuse'} {line.rung} of {line.node}\n{line.cause}\n{line.waiting}"
        self._ask(
            ActQuestion(what, line.node, not agree),
            lambda store, why: decide(store, self.settings.person, line, agree, why),
        )

    def action_hold(self) -> None:
        self._ask_of_node("Hold {name}: no mark, no repair, no clear until it is released.", True, hold)

    def action_release(self) -> None:
        self._ask_of_node("Release {name}: the loop may act on it again.", False, release)

    def _ask_of_node(self, what: str, needs_why: bool, act: Callable[[Store, str, str, str], str]) -> None:
        name = self._chosen_node()
        if not name:
            self._say("choose a node first (3)")
            return
        question = ActQuestion(what.format(name=name), name, needs_why)
        self._ask(question, lambda store, why: act(store, self.settings.person, name, why))

    def _ask(self, question: ActQuestion, act: Callable[[Store, str], str]) -> None:
        def answered(answer: Optional[Confirmed]) -> None:
            if answer is None or self.store is None:
                self._say("nothing was done")
                return
            try:
                self._say(act(self.store, answer.why))
            except (RequestRefused, StoreError) as error:
                self._say(printable(str(error)))
            self.read()

        self.push_screen(Ask(question), answered)

    def _say(self, text: str) -> None:
        self.query_one("#said", Static).update(text)
