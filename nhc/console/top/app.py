"""`nhc top`: problems first, then a map by group, the nodes, and the repairs, in a terminal."""

from __future__ import annotations

import time
from typing import Callable, ClassVar, List, NamedTuple, Optional, TypeVar

from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import Footer, Input, Static, TabbedContent, TabPane

from nhc.console.snapshot import Snapshot
from nhc.console.sources import FleetSource, SourceError
from nhc.console.top import frame, repairs, rows
from nhc.console.top.ask import ActQuestion, Ask, Confirmed, KeyList
from nhc.console.top.frame import NodeFilter, age
from nhc.console.top.map_view import MapView
from nhc.console.top.repairs import RepairLine
from nhc.console.top.tables import LiveTable
from nhc.core.model import Report, printable
from nhc.store.database import Store
from nhc.store.errors import RequestRefused, StoreError

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
    """Reads in the background; what is typed, chosen or scrolled stays as it is."""

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
                yield LiveTable(rows.PROBLEMS, "problems-table")
            with TabPane("Map", id="map"):
                yield MapView("map-view")
            with TabPane("Nodes", id="nodes"):
                yield LiveTable(rows.NODES, "nodes-table")
            with TabPane("Repairs", id="repairs"):
                yield LiveTable(rows.REPAIRS, "repairs-table")
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
        """Read the fleet, away from the screen: a store that hangs holds up no key."""
        try:
            snapshot = self.source.snapshot()
            open_ones = repairs.open_repairs(self.store) if self.store is not None else []
        except (SourceError, StoreError, OSError) as error:
            self._give(self.trouble, printable(str(error)))
            return
        self._give(self.show, Look(snapshot, open_ones))

    def _give(self, painter: Callable[[T], None], value: T) -> None:
        """From a thread: paint what it has read, unless the screen was closed meanwhile."""
        self.call_from_thread(lambda: painter(value) if self.query("#summary") else None)

    def trouble(self, why: str) -> None:
        """It cannot be read now: what is shown gets older, and says so."""
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
        self.query_one("#problems-table", LiveTable).fill(rows.of_problems(causes, snapshot.at))
        self._title("problems", f"Problems ({len(causes) + left_out})")

    def _paint_map(self, snapshot: Snapshot) -> None:
        fact = self._fact(snapshot)
        self.query_one("#map-view", MapView).show(frame.map_lines(snapshot, fact))
        self._title("map", f"Map by {fact}" if fact else "Map")

    def _paint_nodes(self, snapshot: Snapshot) -> None:
        lines, left_out = frame.node_lines(snapshot, self.wanted)
        self.query_one("#nodes-table", LiveTable).fill(rows.of_nodes(lines, snapshot.at))
        count = f"{len(lines)} of {len(lines) + left_out}" if left_out else str(len(lines))
        description = frame.describe(self.wanted)
        self._title("nodes", f"Nodes ({count}{f': {description}' if description else ''})")

    def _paint_repairs(self, lines: List[RepairLine]) -> None:
        self.query_one("#repairs-table", LiveTable).fill(rows.of_repairs(lines))
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
            lambda store, why: repairs.decide(store, self.settings.person, line, agree, why),
        )

    def action_hold(self) -> None:
        self._ask_of_node("Hold {name}: no mark, no repair, no clear until it is released.", True, repairs.hold)

    def action_release(self) -> None:
        self._ask_of_node("Release {name}: the loop may act on it again.", False, repairs.release)

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
