"""The monitors that the settings name, put to work in the agent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from nhc.agent.check_round import Finished, key_of
from nhc.agent.event_loop import Loop
from nhc.agent.kmsg_follower import Follower
from nhc.agent.npd_conditions import FALSE, TRUE, UNKNOWN, RuleConditions
from nhc.agent.npd_config import LogMonitor, PluginMonitor, PluginRule, load_log_monitor, load_plugin_monitor
from nhc.agent.npd_logs import POLL, FileFollower, JournalFollower, LogReader, catch_up
from nhc.agent.publisher import Publisher
from nhc.agent.settings import AgentSettings
from nhc.core.host import Host
from nhc.core.model import Verdict
from nhc.core.plan import BUILT_IN, Item
from nhc.core.settings.settings_file import SettingsError
from nhc.core.system.kernel_ring import KMSG
from nhc.marks.ports.sinks import NodeCondition
from nhc.node.kernlog.npd_rules import PERMANENT

if TYPE_CHECKING:
    from nhc.agent.npd_stats import Stats
    from nhc.core.prometheus_family import Family
    from nhc.node.facts.kernel_lines import Record

CHECK = "check_npd_plugin"


def load(settings: AgentSettings) -> Optional[Monitors]:
    """The monitors of the settings' files, None where they name none. Raises SettingsError."""
    if not (settings.system_log or settings.custom_plugin or settings.system_stats):
        return None
    stats = []
    for path in settings.system_stats:
        from nhc.agent.npd_stats import Stats

        stats.append(Stats(path))
    try:
        return Monitors(
            [load_log_monitor(path) for path in settings.system_log],
            [load_plugin_monitor(path) for path in settings.custom_plugin],
            stats,
        )
    except (OverflowError, RecursionError) as error:
        raise SettingsError(f"{settings.path}: npd: {error}") from None


class Monitors:
    """All of them."""

    def __init__(self, logs: List[LogMonitor], plugins: List[PluginMonitor], stats: List[Stats]) -> None:
        self.logs, self.plugins, self.stats = logs, plugins, stats
        self._seeds: Dict[str, int] = {}
        self.conditions_kept = RuleConditions(self._clock, self._seed)
        self._host: Optional[Host] = None
        self._on_change: Optional[Callable[[], None]] = None
        self.followers: List[Union[FileFollower, JournalFollower]] = []
        self._kernel: List[LogReader] = []
        self._kmsg: Optional[Follower] = None
        self._loop: Optional[Loop] = None
        self.number = -1
        """The last record of the kernel's log that the rules have seen."""
        self.cursors: Dict[str, str] = {}
        """Where each monitor of journald's has read to, before a restart: a cursor, or @ and a time."""
        self._items: List[Item] = []
        self._plugins: Dict[str, Tuple[PluginMonitor, PluginRule, str]] = {}
        monitors: Sequence[Union[LogMonitor, PluginMonitor]] = (*logs, *plugins)
        for monitor in monitors:
            self.conditions_kept.define(monitor.conditions, monitor.source)
        self.readers = [LogReader(monitor, self.conditions_kept, self._changed) for monitor in logs]
        for plugin in plugins:
            for number, rule in enumerate(plugin.rules, 1):
                name = f"{plugin.path}#{number}"
                item = _item(plugin, rule, number)
                self._items.append(item)
                self._plugins[key_of(item)] = (plugin, rule, name)
                if rule.type == PERMANENT:
                    self.conditions_kept.rule(name, rule.condition, rule.reason, plugin.metrics)
                elif plugin.metrics:
                    self._seed("", rule.reason, 0)

    def _clock(self) -> float:
        if self._host is not None:
            return self._host.time()
        import time

        return time.time()

    def _seed(self, _kind: str, reason: str, _times: int) -> None:
        self._seeds[reason] = 0

    def items(self) -> List[Item]:
        """The plugins, as checks of the agent's own."""
        return self._items

    def owns(self, key: str) -> bool:
        """Whether a check is one of the plugins."""
        return key in self._plugins

    def start(
        self,
        host: Host,
        loop: Loop,
        publisher: Publisher,
        changed: Callable[[], None],
        kmsg: Optional[Follower],
    ) -> None:
        """Begin to follow the logs. `changed` is called when a condition is another; `kmsg` follows the kernel's."""
        self._host, self._on_change = host, changed
        self.conditions_kept.connect(publisher.emit, publisher.count_problem)
        self.conditions_kept.begin()
        for reason in self._seeds:
            publisher.count_problem("", reason, 0)
        loop.after(0.0, self.conditions_kept.tell_removed)  # once there are sinks to hear it
        now = host.time()
        booted = now - host.monotonic()
        kernel: List[LogReader] = []
        for reader in self.readers:
            lookback = reader.monitor.lookback
            reader.begin_at(max(now - lookback if lookback else now, booted + reader.monitor.delay))
            if reader.monitor.plugin == "kmsg":
                kernel.append(reader)
            elif reader.monitor.plugin == "journald":
                self._follow(self._journal(host, loop, reader, booted))
            else:
                self._follow(FileFollower(loop, host, reader))
        self._kernel, self._kmsg, self._loop = kernel, kmsg, loop
        if kernel and kmsg:
            if self.number >= 0:  # read so far before a restart: what came since is new, however long ago
                for reader in kernel:
                    reader.begin_at(booted + reader.monitor.delay)
            self.number = catch_up(host, kernel, self.number)
            for reader in kernel:
                reader.begin_at(booted + reader.monitor.delay)
            kmsg.tell_every_record(self._read_ring)
            self._look_at_ring()
        self.conditions_kept.begun()

    def _journal(self, host: Host, loop: Loop, reader: LogReader, booted: float) -> JournalFollower:
        """As with the kernel's own: what came since the last read before a restart is new, however long ago."""
        cursor = self.cursors.get(reader.monitor.path, "")
        if cursor:
            first = booted + reader.monitor.delay
            reader.begin_at(max(first, float(cursor[1:])) if cursor[0] == "@" else first)
        return JournalFollower(loop, host, reader, cursor if cursor[:1] != "@" else "")

    def _follow(self, follower: Union[FileFollower, JournalFollower]) -> None:
        self.followers.append(follower)
        follower.start()

    def close(self) -> None:
        self._kmsg = None
        self.cursors = self._places()
        for follower in self.followers:
            follower.close()
        self.followers.clear()

    def _read_ring(self, records: Sequence[Record]) -> None:
        """Have the rules read records of the kernel's log, without those that `catch_up` has read."""
        fresh = [record for record in records if record.number > self.number]
        if fresh:
            self.number = fresh[-1].number
            for reader in self._kernel:
                reader.read(fresh)

    def _look_at_ring(self) -> None:
        """See, now and then, whether the kernel's log is followed; what it said meanwhile is read then."""
        if self._kmsg is None or self._loop is None or self._host is None:
            return
        if not self._kmsg.live:
            problem = self._kmsg.problem or f"{KMSG} is not followed (kernel-log = false)"
            for reader in self._kernel:
                reader.cannot_read(problem)
        elif any(reader.problem for reader in self._kernel):
            for reader in self._kernel:
                reader.cannot_read("")
            self.number = catch_up(self._host, self._kernel, self.number)
        self._loop.after(POLL, self._look_at_ring)

    def _changed(self) -> None:
        if self._on_change:
            self._on_change()

    def judged(self, finished: Finished) -> None:
        """Enter what the plugins of a round reported."""
        changed = False
        for key in finished.keys:
            known = self._plugins.get(key)
            results = finished.results.get(key)
            if known is None or not results:
                continue
            plugin, rule, name = known
            outcome = results[0].outcome
            status = {Verdict.OK: FALSE, Verdict.UNKNOWN: UNKNOWN, Verdict.SKIP: UNKNOWN}.get(outcome.verdict, TRUE)
            if rule.type == PERMANENT:
                changed |= self.conditions_kept.say(name, rule.condition, status, rule.reason, outcome.message)
            elif status == FALSE:
                self.conditions_kept.over(name)
            else:
                self.conditions_kept.temporary(
                    name, plugin.source, rule.reason, outcome.message, every=False, metrics=plugin.metrics
                )
        if changed:
            self._changed()

    def ack(self, condition: str) -> bool:
        """End a condition that a log rule has set; only the plugin itself ends a plugin's. Returns whether it stood."""
        plugins = {name for _plugin, _rule, name in self._plugins.values()}
        if any(name in plugins for name in self.conditions_kept.rules.get(condition, ())):
            return False
        ended = condition in self.conditions_kept.standing and self.conditions_kept.end(condition)
        if ended:
            self._changed()
        return ended

    def end(self, keys: Sequence[str], everything: bool) -> List[str]:
        """End the conditions that are named, as `condition/TYPE`, or all. Returns what ended."""
        named = [entry["type"] for entry in self.conditions() if everything or f"condition/{entry['type']}" in keys]
        return [f"condition/{name}" for name in named if self.ack(name)]

    # What the agent shows.

    def conditions(self) -> List[NodeCondition]:
        return self.conditions_kept.published()

    def gauges(self) -> Dict[Tuple[str, str], float]:
        return self.conditions_kept.gauges

    def families(self) -> List[Family]:
        host = self._host
        return [family for stats in self.stats for family in stats.families(host)] if host else []

    def problems(self) -> List[str]:
        """What keeps logs from being read."""
        return [f"{reader.monitor.path}: {reader.problem}" for reader in self.readers if reader.problem]

    # Across restarts, and from one configuration to the next.

    def dump(self) -> Dict[str, Any]:
        return {**self.conditions_kept.dump(), "number": self.number, "cursors": self._places()}

    def _places(self) -> Dict[str, str]:
        journals = (follower for follower in self.followers if isinstance(follower, JournalFollower))
        return {**self.cursors, **{journal.reader.monitor.path: journal.place for journal in journals}}

    def load(self, kept: Mapping[str, object]) -> None:
        number = kept.get("number")
        self.number = number if isinstance(number, int) else -1
        cursors = kept.get("cursors")
        self.cursors = {str(path): str(at) for path, at in cursors.items()} if isinstance(cursors, dict) else {}
        self.conditions_kept.load(kept)

    def take_over(self, before: Monitors) -> None:
        """Go on from the monitors of the configuration before, and end those."""
        before.close()
        self.load(before.dump())


def _item(plugin: PluginMonitor, rule: PluginRule, number: int) -> Item:
    options = ["--timeout", f"{rule.timeout:g}", "--max-output", str(plugin.limit), "--reason", rule.reason]
    if rule.type != PERMANENT:
        options.append("--temporary")
    argv = (CHECK, *options, rule.path, *rule.args)
    return Item(BUILT_IN, CHECK, " ".join(argv), f"{plugin.path}: rule {number}", argv, every=rule.every)
