"""node-problem-detector's configuration files, in the shapes that its repository has them."""

import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nhc.agent.event_loop import Timer
from nhc.agent.kmsg_follower import Follower
from nhc.agent.npd_monitors import (
    FALSE,
    REMOVED,
    TRUE,
    UNKNOWN,
    Default,
    FileFollower,
    JournalFollower,
    LogReader,
    Monitors,
    RuleConditions,
    Stats,
    load_log_monitor,
    load_plugin_monitor,
)
from nhc.core.model import Verdict
from nhc.core.settings.settings_file import SettingsError
from nhc.core.state.store import State
from nhc.lab.testing.fake_host import FakeHost
from nhc.node.facts.kernel_lines import Record
from nhc.node.kernlog.npd_rules import go_duration
from tests.agent.test_journal import Played
from tests.support.judge import judge
from tests.support.run import nhc
from tests.support.waiting import until

KERNEL = {
    "plugin": "kmsg",
    "logPath": "/dev/kmsg",
    "lookback": "5m",
    "bufferSize": 10,
    "source": "kernel-monitor",
    "conditions": [{"type": "KernelDeadlock", "reason": "KernelHasNoDeadlock", "message": "kernel has no deadlock"}],
    "rules": [
        {"type": "temporary", "reason": "OOMKilling", "pattern": "Killed process \\d+ (.+) total-vm:\\d+kB.*"},
        {
            "type": "temporary",
            "reason": "TwoLines",
            "pattern": "first half\\nsecond half",
            "patternGeneratedMessageSuffix": "see the runbook",
        },
        {
            "type": "permanent",
            "condition": "KernelDeadlock",
            "reason": "DockerHung",
            "pattern": "task docker:\\w+ blocked for more than \\w+ seconds\\.",
        },
    ],
}
OOM = "Killed process 42 (python) total-vm:1000kB, anon-rss:1kB"


def write(tmp_path, value, name="monitor.json"):
    path = tmp_path / name
    path.write_text(json.dumps(value))
    return str(path)


def plugin(tmp_path, body, rules, **options):
    script = tmp_path / "plugin.sh"
    script.write_text(f"#!/bin/sh\n{body}\n")
    script.chmod(0o755)
    made = [{**rule, "path": str(script)} for rule in rules]
    return {
        "plugin": "custom",
        "pluginConfig": {"invoke_interval": "1s", "timeout": "2s", **options},
        "source": "custom-monitor",
        "conditions": [{"type": "Ntp", "reason": "NtpIsUp", "message": "ntp is up"}],
        "rules": made,
    }


PERMANENT = {"type": "permanent", "condition": "Ntp", "reason": "NtpIsDown"}
TEMPORARY = {"type": "temporary", "reason": "NtpIsDown"}


class Heard:
    """What conditions emit and count."""

    def __init__(self, monitor=None):
        self.events, self.counts = [], {}
        self.conditions = RuleConditions(lambda: 1.7e9)
        self.conditions.emit = lambda what, more: self.events.append((what, dict(more)))
        self.conditions.count = self.count
        if monitor:
            self.conditions.define(monitor.conditions, monitor.source)
            self.reader = LogReader(monitor, self.conditions, lambda: None)

    def count(self, _kind, reason, times):
        self.counts[reason] = self.counts.get(reason, 0) + times

    def say(self, *lines):
        self.reader.read([Record(line) for line in lines])

    def standing(self):
        (entry,) = self.conditions.standing.values()
        return entry["status"], entry["reason"], entry["message"]


@pytest.fixture
def kernel(tmp_path):
    return Heard(load_log_monitor(write(tmp_path, KERNEL)))


def test_counters_begin_at_nought_so_that_their_first_rise_is_seen(kernel):
    assert kernel.counts == {"OOMKilling": 0, "TwoLines": 0, "DockerHung": 0}
    assert kernel.conditions.gauges == {("KernelDeadlock", "DockerHung"): 0.0}
    assert kernel.standing() == (FALSE, "KernelHasNoDeadlock", "kernel has no deadlock")


def test_a_temporary_rule_is_an_event_each_time(kernel):
    kernel.say("quiet", OOM, OOM)
    assert [(what, more["reason"], more["message"]) for what, more in kernel.events] == [
        ("log.event", "OOMKilling", OOM)
    ] * 2
    assert kernel.counts["OOMKilling"] == 2
    assert kernel.standing()[0] == FALSE


def test_a_pattern_spans_lines_also_from_one_batch_to_the_next(kernel):
    kernel.say("x", "first half")
    kernel.say("second half")
    kernel.say("more")
    assert [more["message"] for _what, more in kernel.events] == ["first half second half; see the runbook"]


def test_a_permanent_rule_sets_its_condition_once_and_it_stands(kernel):
    line = "task docker:20744 blocked for more than 120 seconds."
    kernel.say(line)
    kernel.say(line, "quiet")
    assert kernel.standing() == (TRUE, "DockerHung", line)
    assert [what for what, _more in kernel.events] == ["condition.changed"]
    assert kernel.counts["DockerHung"] == 1
    assert kernel.conditions.gauges["KernelDeadlock", "DockerHung"] == 1.0


def test_the_next_life_keeps_the_condition_and_an_acknowledgement_ends_it(kernel, tmp_path):
    kernel.say("task docker:20744 blocked for more than 120 seconds.")
    again = Heard(load_log_monitor(write(tmp_path, KERNEL)))
    again.conditions.load(json.loads(json.dumps(kernel.conditions.dump())))
    assert again.standing() == kernel.standing()
    assert again.events == []
    assert again.conditions.gauges["KernelDeadlock", "DockerHung"] == 1.0
    assert again.conditions.end("KernelDeadlock")
    assert again.standing()[0] == FALSE
    assert not again.conditions.end("KernelDeadlock")


def test_lines_of_the_past_and_of_the_skip_list_are_left_out(tmp_path):
    heard = Heard(load_log_monitor(write(tmp_path, {**KERNEL, "skipList": ["harmless"]})))
    heard.reader.since = 100.0
    heard.reader.read([Record(OOM, 99.0), Record(f"{OOM} harmless", 101.0), Record(OOM, 101.0)])
    assert len(heard.events) == 1


def test_two_rules_of_one_condition_do_not_flap():
    heard = Heard()
    heard.conditions.define([Default("Disk", "DiskIsFine", "fine")], "s")
    for name, reason in (("a", "Full"), ("b", "Slow")):
        heard.conditions.rule(name, "Disk", reason, True)
    for _ in range(5):
        heard.conditions.say("a", "Disk", TRUE, "Full", "full")
        heard.conditions.say("b", "Disk", FALSE, "Slow", "ok")
    assert heard.standing() == (TRUE, "Full", "full")
    assert len(heard.events) == 1
    heard.conditions.say("b", "Disk", UNKNOWN, "Slow", "no answer")
    assert heard.standing()[0] == TRUE
    heard.conditions.say("a", "Disk", FALSE, "Full", "ok")
    assert heard.standing() == (UNKNOWN, "DiskIsFine", "no answer")


def test_a_plugin_s_passing_problem_is_counted_each_time_and_told_when_it_is_new():
    heard = Heard()
    for message in ("down", "down", "worse"):
        heard.conditions.temporary("p", "s", "NtpIsDown", message, every=False, metrics=True)
    heard.conditions.over("p")
    heard.conditions.temporary("p", "s", "NtpIsDown", "down", every=False, metrics=True)
    assert heard.counts["NtpIsDown"] == 4
    assert [more["message"] for _what, more in heard.events] == ["down", "worse", "down"]


@pytest.mark.parametrize(
    ("text", "seconds"), [("30s", 30.0), ("1m30s", 90.0), ("500ms", 0.5), ("1.5h", 5400.0), ("0", 0.0), ("2us", 2e-6)]
)
def test_durations_as_go_writes_them(text, seconds):
    assert go_duration(text) == pytest.approx(seconds)


@given(st.text(max_size=12))
def test_no_text_breaks_the_reading_of_durations(text):
    try:
        found = go_duration(text)
    except ValueError:
        return
    assert found >= 0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"plugin": "syslog"}, "plugin: 'syslog', expected kmsg, journald or filelog"),
        ({"lookback": "soon"}, "lookback: 'soon', expected a duration"),
        ({"rules": [{"type": "permanent", "reason": "R", "pattern": "x", "condition": "None"}]}, "rule 1: condition"),
        ({"rules": [{"type": "temporary", "reason": "R", "pattern": "("}]}, "rule 1: pattern"),
        ({"plugin": "filelog", "logPath": ""}, "a filelog monitor needs one"),
        ({"metricsReporting": "yes"}, "metricsReporting: 'yes', expected true or false"),
    ],
)
def test_a_mistake_in_a_log_monitor_is_one_clear_line(tmp_path, change, said):
    path = write(tmp_path, {**KERNEL, **change})
    with pytest.raises(SettingsError) as caught:
        load_log_monitor(path)
    assert str(caught.value).startswith(path)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"pluginConfig": {"timeout": "x"}}, "timeout: 'x'"),
        ({"rules": [{"type": "permanent", "reason": "R", "path": "/x"}]}, "rule 1: condition"),
        ({"rules": [{"type": "sometimes"}]}, "rule 1: type"),
        ({"plugin": "kmsg"}, "plugin: 'kmsg', expected custom"),
    ],
)
def test_a_mistake_in_a_plugin_monitor_is_one_clear_line(tmp_path, change, said):
    path = write(tmp_path, {**plugin(tmp_path, "", [PERMANENT]), **change})
    with pytest.raises(SettingsError, match=said):
        load_plugin_monitor(path)


def test_a_plugin_s_defaults_and_its_rules_own_times(tmp_path):
    raw = plugin(tmp_path, "", [{**PERMANENT, "timeout": "1s", "invoke_interval": "5m", "args": ["-x"]}, TEMPORARY])
    raw["pluginConfig"] = {}
    monitor = load_plugin_monitor(write(tmp_path, raw))
    first, second = monitor.rules
    assert (first.timeout, first.every, first.args) == (1.0, 300.0, ("-x",))
    assert (second.timeout, second.every, monitor.limit) == (5.0, 30.0, 80)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("body", "verdict", "message"),
    [
        ("echo fine; exit 0", Verdict.OK, "fine"),
        ("echo '  ntp is down  '; exit 1", Verdict.CRIT, "ntp is down"),
        ("echo dunno; exit 2", Verdict.UNKNOWN, "dunno"),
        ("exit 7", Verdict.UNKNOWN, "exit status 7"),
        ("kill -9 $$", Verdict.UNKNOWN, "exit status 137"),
        ("sleep 9", Verdict.UNKNOWN, "no answer within 500ms"),
        (f"echo {'x' * 200}; exit 1", Verdict.CRIT, "x" * 80),
        ("setsid sleep 9 & exit 1", Verdict.CRIT, "NtpIsDown"),  # a child that keeps the output open
    ],
)
def test_the_plugin_protocol(tmp_path, body, verdict, message):
    from nhc.core.host import Host

    script = tmp_path / "plugin.sh"
    script.write_text(f"#!/bin/sh\n{body}\n")
    script.chmod(0o755)
    outcome = judge(Host(), f"check_npd_plugin -t 500ms -r NtpIsDown {script}")
    assert (outcome.verdict, outcome.message) == (verdict, message)


def test_a_plugin_that_is_not_there_could_not_tell():
    outcome = judge(FakeHost(), "check_npd_plugin /opt/none.sh --its-own -x")
    assert (outcome.verdict, outcome.reason) == (Verdict.UNKNOWN, "PluginUnusable")


def test_a_log_file_is_followed_across_rotation(tmp_path):
    monitor = load_log_monitor(write(tmp_path, {**KERNEL, "plugin": "filelog", "lookback": "", "logPath": "/log"}))
    host = FakeHost({"/log": f"{OOM} of long ago\n"})
    heard = Heard(monitor)
    follower = FileFollower(None, host, heard.reader)
    follower._follow("/log")
    assert heard.events == []
    with open(host.path("/log"), "a") as file:
        file.write(f"Nov 14 22:13:20 n1 kernel: {OOM}\n")
    follower._follow("/log")
    assert [more["message"] for _what, more in heard.events] == [OOM]
    os.rename(host.path("/log"), host.path("/log.1"))
    host.write("/log", f"Nov 14 22:13:21 n1 kernel: {OOM}\n")
    follower._follow("/log")
    follower._follow("/log")
    assert len(heard.events) == 2


def test_the_file_s_own_expressions_take_a_line_apart(tmp_path):
    raw = {
        **KERNEL,
        "plugin": "filelog",
        "logPath": "/log",
        "pluginConfig": {"timestamp": '^time="(\\S*)"', "message": 'msg="([^\\n]*)"', "timestampFormat": "2006"},
    }
    follower = FileFollower(None, FakeHost(), Heard(load_log_monitor(write(tmp_path, raw))).reader)
    record = follower._record('time="2023-11-14T22:13:20Z" level=error msg="it broke"', 1.7e9)
    assert (record.text, record.when) == ("it broke", 1.7e9)


# How the stock filelog monitors (config/ of node-problem-detector v1.34) take a line apart.
STOCK_FILELOGS = [
    ({"timestamp": "^.{15}", "message": "(?i)Currently unreadable.*sectors|(?i)Offline uncorrectable sectors"},
     "Nov 14 22:13:20 n1 smartd[7]: Device: /dev/sda, 120 CURRENTLY unreadable (pending) sectors",
     "CURRENTLY unreadable (pending) sectors"),
    ({"timestamp": "^.{15}", "message": r"kernel: \[.*\] (.*)"},
     "Nov 14 22:13:20 n1 kernel: [   12.5] it broke", "it broke"),
    ({"timestamp": '^time="(\\S*)"', "message": 'msg="([^\n]*)"'},
     'time="2023-11-14T22:13:20Z" level=error msg="it broke"', "it broke"),
    ({"timestamp": "^(.{6})|^(.{15})", "message": "(a)|n1 (?i)(KERNEL): (.*)$"},
     "Nov 14 22:13:20 n1 kernel: the last group counts", "the last group counts"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "line", "text"), STOCK_FILELOGS)
def test_the_stock_filelog_monitors_take_their_lines_apart(options, line, text, tmp_path):
    raw = {**KERNEL, "plugin": "filelog", "logPath": "/log", "pluginConfig": {**options, "timestampFormat": "x"}}
    follower = FileFollower(None, FakeHost(), Heard(load_log_monitor(write(tmp_path, raw))).reader)
    assert follower._record(line, 1.7e9).text == text


@pytest.mark.thorough
def test_check_settings_reads_every_file_that_the_settings_name(tmp_path):
    def said(content, key="system-log-monitor"):
        (tmp_path / "monitor.json").write_text(content)
        (tmp_path / "agent.toml").write_text(f'[npd]\n{key} = "{tmp_path / "monitor.json"}"\n')
        done = nhc("serve", "agent", "--check-settings", "--settings", tmp_path / "agent.toml")
        assert "Traceback" not in done.stderr
        assert len(done.stderr.splitlines()) == (done.returncode != 0)
        return done.returncode, done.stderr

    filelog = {**KERNEL, "plugin": "filelog", "logPath": "/log"}
    assert said(json.dumps({**filelog, "pluginConfig": STOCK_FILELOGS[0][0]})) == (0, "")
    # config/disk-log-message-filelog.json of node-problem-detector v1.34 has commas after its last elements
    shipped = '{"plugin": "filelog", "logPath": "/log", "conditions": [], "source": "a,]", "rules": [%s\n,\t], }'
    rule = '{"type": "temporary", "reason": "DiskBadBlock", "pattern": "bad, }",}'
    assert said(shipped % rule) == (0, "")
    (monitor,) = load_log_monitor(str(tmp_path / "monitor.json")).rules
    assert (monitor.reason, monitor.pattern.search("a bad, }") is not None) == ("DiskBadBlock", True)
    for content, key, expected in [
        (shipped % f"{rule},", "system-log-monitor", "monitor.json: not JSON: Expecting property name"),
        ("not json", "system-log-monitor", "monitor.json: not JSON"),
        ("not json", "custom-plugin-monitor", "monitor.json: not JSON"),
        ("not json", "system-stats-monitor", "monitor.json: not JSON"),
        ("[" * 100_000, "system-log-monitor", "monitor.json: not JSON"),
        (json.dumps({**filelog, "pluginConfig": {"message": "(a"}}), "system-log-monitor", "message '(a'"),
        (json.dumps({**KERNEL, "plugin": "kafka"}), "system-log-monitor", "plugin: 'kafka'"),
        (json.dumps({"net": {"excludeInterfaceRegexp": "a)"}}), "system-stats-monitor", "excludeInterfaceRegexp 'a)'"),
    ]:
        status, error = said(content, key)
        assert (status, expected in error) == (2, True), error
    (tmp_path / "agent.toml").write_text("[sinks.nowhere]\n")
    done = nhc("serve", "agent", "--check-settings", "--settings", tmp_path / "agent.toml")
    assert (done.returncode, "no sink called 'nowhere'" in done.stderr) == (2, True)


def test_stats_keep_the_names_and_labels_of_the_dashboards(tmp_path):
    wanted = ["cpu/load_1m", "cpu/usage_time", "system/cpu_stat", "memory/bytes_used", "host/uptime", "net/rx_bytes",
              "disk/operation_count", "disk/bytes_used", "system/os_feature"]  # fmt: skip
    raw = {"invokeInterval": "60s", "net": {"excludeInterfaceRegexp": "^(lo|veth)"},
           "disk": {"includeAllAttachedBlk": True}, "osFeature": {"KnownModulesConfigPath": "known.json"}}  # fmt: skip
    groups = {"system/os_feature": "osFeature", "system/cpu_stat": "cpu"}
    for metric in wanted:
        group = raw.setdefault(groups.get(metric, metric.partition("/")[0]), {})
        group.setdefault("metricsConfigs", {})[metric] = {"displayName": metric}
    write(tmp_path, [{"moduleName": "zfs"}], "known.json")
    host = FakeHost({
        "/proc/loadavg": "0.50 0.40 0.30 1/100 7\n",
        "/proc/stat": "cpu  10 20 30 40 50 60 70 80 90 100\ncpu0 10 20 30 40 50 60 70 80 90 100\nprocesses 5\n",
        "/proc/meminfo": "MemTotal: 100 kB\nMemFree: 40 kB\nBuffers: 10 kB\nCached: 20 kB\nSlab: 5 kB\n",
        "/proc/uptime": "123.45 1\n",
        "/proc/sys/kernel/osrelease": "6.1.0\n",
        "/etc/os-release": 'ID=debian\nVERSION="12 (bookworm)"\n',
        "/proc/net/dev": "h\nh\n  eth0: 7 1 0 0 0 0 0 0 8 2 0 0 0 0 0 0\n    lo: 9 1 0 0 0 0 0 0 9 1 0 0 0 0 0 0\n",
        "/proc/mounts": "/dev/sda1 / ext4 rw,relatime 0 0\nproc /proc proc rw 0 0\n",
        "/proc/diskstats": "   8 1 sda1 1 2 3 4 5 6 7 8 0 9 10\n   8 2 sdb 1 2 3 4 5 6 7 8 0 9 10\n",
        "/proc/cmdline": "quiet csm.enabled=1\n",
        "/proc/modules": "nvidia 1 0 - Live 0x0 (POE)\nzfs 1 0 - Live 0x0 (POE)\nfoo 1 0 - Live 0x0 (O)\n",
    })  # fmt: skip
    from nhc.core.host import Filesystem

    host.system.filesystems["/"] = Filesystem(1000, 400, 300, 1, 1, 1, False)
    stats = Stats(write(tmp_path, raw))
    shown = "".join(family.render() for family in stats.families(host)).splitlines()
    for line in (
        "cpu_load_1m 0.5",
        'cpu_usage_time{state="guest_nice"} 100',
        'system_cpu_stat{cpu="cpu0",stage="softIRQ"} 0.7',
        'memory_bytes_used{state="used"} 25600',
        'host_uptime{kernel_version="6.1.0",os_version="debian 12 (bookworm)"} 123',
        'net_rx_bytes{interface_name="eth0"} 7',
        'disk_operation_count{device_name="sda1",direction="write"} 5',
        'disk_bytes_used{device_name="sda1",fs_type="ext4",mount_option="rw,relatime",state="used"} 600',
        'system_os_feature{os_feature="UnknownModules",value="foo"} 1',
        'system_os_feature{os_feature="GPUSupport"} 1',
        'system_os_feature{os_feature="KTD"} 1',
    ):
        assert line in shown
    assert not [line for line in shown if '"lo"' in line or "sdb" in line]
    host.remove("/proc/loadavg")
    host.system.uptime += 61
    assert "cpu_load_1m 0.5" not in "".join(family.render() for family in stats.families(host))


@pytest.mark.thorough
def test_the_agent_runs_its_files_as_they_are(agent, tmp_path):
    good = tmp_path / "good"
    raw = plugin(tmp_path, f"test -e {good} && exit 0; echo ntp is down; exit 1", [PERMANENT, TEMPORARY],
                 invoke_interval="300ms")  # fmt: skip
    settings = (
        f'[npd]\nsystem-log-monitor = "{write(tmp_path, KERNEL, "log.json")}"\n'
        f'custom-plugin-monitor = "{write(tmp_path, raw, "custom.json")}"\n'
    )
    agent.configure("* || true\n", settings)
    agent.start()

    def ntp():
        return next(c for c in json.loads(agent.get("/conditions")[1]) if c["type"] == "Ntp")

    assert (ntp()["status"], ntp()["reason"], ntp()["message"]) == ("True", "NtpIsDown", "ntp is down")
    first = ntp()["transition"]
    until(lambda: 'problem_counter{reason="NtpIsDown"} 4' in agent.get("/metrics")[1])
    assert 'problem_gauge{type="Ntp",reason="NtpIsDown"} 1\n' in agent.get("/metrics")[1]
    assert 'problem_gauge{type="KernelDeadlock",reason="DockerHung"} 0\n' in agent.get("/metrics")[1]
    agent.stop()
    agent.start()
    assert ntp()["transition"] == first
    good.write_text("")
    until(lambda: ntp()["status"] == "False")
    assert ntp()["reason"] == "NtpIsUp"
    until(lambda: len(agent.events("condition.changed")) == 2)  # the sink writes them in its own time


# A log that cannot be read says nothing of its conditions.

FILELOG = {
    "plugin": "filelog",
    "pluginConfig": {"timestamp": "^.{15}", "message": "(.*)", "timestampFormat": "Jan _2 15:04:05"},
    "lookback": "5m",
    "source": "kubelet-monitor",
    "conditions": [{"type": "KubeletNetworking", "reason": "Healthy", "message": "kubelet is well"}],
    "rules": [{"type": "permanent", "condition": "KubeletNetworking", "reason": "NoAddress", "pattern": ".*no IP.*"}],
}


class Rounds:
    """An event loop that runs what is due when a test says so."""

    def __init__(self):
        self.due, self.now = [], 0.0

    def clock(self):
        return self.now

    def after(self, seconds, call):
        timer = Timer(self.now + seconds, call, lambda: None)
        self.due.append(timer)
        return timer

    def run(self, seconds=1.0):
        self.now += seconds
        ready, self.due = (
            [one for one in self.due if one.when <= self.now],
            [one for one in self.due if one.when > self.now],
        )
        for timer in ready:
            if timer.callback is not None:
                timer.callback()


def test_a_log_file_that_is_not_there_or_goes_away_leaves_its_condition_unknown(tmp_path):
    host, loop = FakeHost({}), Rounds()
    heard = Heard(load_log_monitor(write(tmp_path, {**FILELOG, "logPath": "/var/log/kubelet.log"})))
    follower = FileFollower(loop, host, heard.reader)
    follower.start()
    assert heard.standing()[0] == UNKNOWN
    assert "/var/log/kubelet.log: No such file" in heard.standing()[2]
    host.write("/var/log/kubelet.log", "")
    loop.run()
    assert heard.standing() == (FALSE, "Healthy", "kubelet is well")
    host.remove("/var/log/kubelet.log")
    loop.run()
    assert heard.standing()[0] == UNKNOWN
    host.write("/var/log/kubelet.log", "Nov 14 22:13:20 no IP is left\n")
    loop.run()
    assert heard.standing()[:2] == (TRUE, "NoAddress")
    host.remove("/var/log/kubelet.log")
    loop.run()
    assert heard.standing()[:2] == (TRUE, "NoAddress")  # what was found stands
    assert heard.conditions.end("KubeletNetworking")
    follower.close()


def test_without_a_journal_and_after_journalctl_has_ended_a_condition_is_unknown(tmp_path):
    played = Played("exec sleep 60")
    heard = Heard(load_log_monitor(write(tmp_path, {**FILELOG, "plugin": "journald", "pluginConfig": {}})))
    heard.reader.monitor.options.update(source="kubelet")
    follower = JournalFollower(played.loop, played.host, heard.reader)
    follower.start()
    assert (heard.standing()[0], played.started) == (UNKNOWN, [])
    assert "journald" in heard.standing()[2]
    played.host.write("/run/log/journal/0123/system.journal", "x")
    played.clock += 6
    played.until(lambda: played.started)
    assert heard.standing()[0] == UNKNOWN
    played.clock += 6
    played.until(lambda: heard.standing()[0] == FALSE)
    os.kill(follower._child.pid, 9)
    played.until(lambda: heard.standing()[0] == UNKNOWN)
    assert "journalctl ended" in heard.standing()[2]
    played.clock += 61
    played.until(lambda: len(played.started) == 2)
    played.clock += 6
    played.until(lambda: heard.standing()[0] == FALSE)
    played.host.remove("/run/log/journal/0123/system.journal")  # journald was told to keep nothing any more
    played.clock += 6
    played.until(lambda: heard.standing()[0] == UNKNOWN)
    follower.close()


@pytest.mark.thorough
def test_a_kernel_log_that_is_not_followed_and_a_file_that_is_missing_are_unknown_from_the_start(agent, tmp_path):
    missing = write(tmp_path, {**FILELOG, "logPath": str(tmp_path / "kubelet.log")}, "file.json")
    settings = f'[npd]\nsystem-log-monitor = ["{write(tmp_path, KERNEL, "log.json")}", "{missing}"]\n'
    agent.configure("* || true\n", settings, agent="kernel-log = false")
    agent.start()

    def statuses():
        return {c["type"]: c["status"] for c in json.loads(agent.get("/conditions")[1])}

    assert {kind: statuses()[kind] for kind in ("KernelDeadlock", "KubeletNetworking")} == {
        "KernelDeadlock": "Unknown", "KubeletNetworking": "Unknown",
    }  # fmt: skip
    assert agent.events("condition.changed") == []
    (tmp_path / "kubelet.log").write_text("")
    until(lambda: statuses()["KubeletNetworking"] == "False")
    until(lambda: agent.events("condition.changed"))


# What is published of a file.


def test_without_metrics_a_condition_that_stands_has_no_gauge_and_no_counter(tmp_path):
    heard = Heard(load_log_monitor(write(tmp_path, {**KERNEL, "metricsReporting": False})))
    heard.say("task docker:20744 blocked for more than 120 seconds.", OOM)
    assert heard.standing()[:2] == (TRUE, "DockerHung")
    assert (heard.counts, heard.conditions.gauges) == ({}, {})


@pytest.mark.parametrize("kind", ["DiskPressure", "Ready", "NetworkUnavailable"])
def test_a_file_that_claims_a_condition_of_the_kubelets_is_refused_by_its_name(tmp_path, kind):
    conditions = [{"type": kind, "reason": "Fine", "message": ""}]
    made = plugin(tmp_path, "", [{**PERMANENT, "condition": kind}])
    with pytest.raises(SettingsError, match=f"conditions: '{kind}'"):
        load_plugin_monitor(write(tmp_path, {**made, "conditions": conditions}))
    with pytest.raises(SettingsError, match=f"conditions: '{kind}'"):
        load_log_monitor(write(tmp_path, {**KERNEL, "conditions": [*KERNEL["conditions"], *conditions]}))


@pytest.mark.thorough
@pytest.mark.parametrize("how", ["reload", "restart"])
@pytest.mark.parametrize("left", [True, False])
def test_a_condition_whose_file_was_removed_is_set_to_its_default_and_then_no_more(agent, tmp_path, how, left):
    one = write(tmp_path, plugin(tmp_path, "exit 1", [PERMANENT], invoke_interval="200ms"), "one.json")
    log = write(tmp_path, {**FILELOG, "logPath": str(tmp_path / "log")}, "log.json")
    (tmp_path / "log").write_text("")
    other = f'system-log-monitor = "{log}"\n' if left else ""
    agent.configure("* || true\n", f'[npd]\ncustom-plugin-monitor = "{one}"\n{other}')
    agent.start()

    def conditions():
        return {c["type"]: (c["status"], c["reason"]) for c in json.loads(agent.get("/conditions")[1])}

    until(lambda: conditions().get("Ntp") == ("True", "NtpIsDown"))
    agent.configure("* || true\n", f"[npd]\n{other}" if left else "")
    if how == "restart":
        agent.stop()
        agent.start()
    else:
        assert agent.nhc("agent", "reload").returncode == 0
    until(lambda: conditions().get("Ntp") == ("False", "NtpIsUp"))
    assert ("KubeletNetworking" in conditions()) is left
    until(lambda: [e["status"] for e in agent.events("condition.changed") if e["type"] == "Ntp"] == ["True", "False"])


def test_the_default_of_a_condition_that_was_removed_is_published_for_a_while(kernel):
    now = [1.7e9]
    kernel.say("task docker:20744 blocked for more than 120 seconds.")
    after = RuleConditions(lambda: now[0])
    after.load(json.loads(json.dumps(kernel.conditions.dump())))
    (shown,) = after.published()
    assert (shown["type"], shown["status"], shown["reason"]) == ("KernelDeadlock", FALSE, "KernelHasNoDeadlock")
    now[0] += REMOVED - 1
    once_more = RuleConditions(lambda: now[0])
    once_more.load(json.loads(json.dumps(after.dump())))
    assert once_more.published() == [shown]
    now[0] += 2
    assert once_more.published() == []


class Told:
    """What monitors emit and count."""

    def __init__(self):
        self.events = []

    def emit(self, what, more):
        self.events.append((what, more.get("status", "")))

    def count_problem(self, _kind, _reason, _times=1):
        """Nothing."""


def test_a_kernel_log_that_cannot_be_opened_is_unknown_and_what_it_said_meanwhile_is_read_later(tmp_path):
    played, told = Played("exit 0"), Told()
    kmsg = Follower(played.loop, played.host, State(str(tmp_path / "state")), lambda: None, lambda _line: None)
    monitors = Monitors([load_log_monitor(write(tmp_path, KERNEL))], [], [])
    assert not kmsg.start()
    monitors.start(played.host, played.loop, told, lambda: None, kmsg)
    (shown,) = monitors.conditions()
    assert (shown["status"], told.events) == (UNKNOWN, [])
    assert "/dev/kmsg" in shown["message"]
    os.makedirs(os.path.dirname(played.host.path("/dev/kmsg")), exist_ok=True)
    os.mkfifo(played.host.path("/dev/kmsg"))
    writer = os.open(played.host.path("/dev/kmsg"), os.O_RDWR | os.O_NONBLOCK)  # with nobody to write, it would end
    played.host.system.kernel.append("4,7,5000000,-;task docker:20744 blocked for more than 120 seconds.")
    played.host.system.uptime = 10.0
    assert kmsg.start()
    played.clock += 2
    played.until(lambda: monitors.conditions()[0]["status"] == TRUE)
    assert told.events == [("condition.changed", FALSE), ("condition.changed", TRUE)]
    kmsg.close()
    os.close(writer)
    monitors.close()


def test_what_a_log_holds_when_the_agent_begins_is_told(tmp_path):
    """By the look-back: a line of a moment ago is an event, and a condition that it sets is one."""
    played, told = Played("exit 0"), Told()
    raw = {**KERNEL, "plugin": "filelog", "logPath": "/log", "pluginConfig": {}}
    monitors = Monitors([load_log_monitor(write(tmp_path, raw))], [], [])
    played.host.system.uptime = 1000.0
    stamp = "Nov 14 22:13:20 n1 kernel: "
    played.host.write("/log", f"{stamp}{OOM}\n{stamp}task docker:20744 blocked for more than 120 seconds.\n")
    monitors.start(played.host, played.loop, told, lambda: None, None)
    assert told.events == [("log.event", ""), ("condition.changed", TRUE)]
    monitors.close()
