"""What is fuzzed: a generator of inputs and what must hold of each. Every input is plain JSON, so that it can be kept.

What may be raised is what the function says that it raises; anything else is a failure, as is a broken promise.
"""

import json
import math
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any, Callable, NamedTuple

from hypothesis import strategies as st

from nhc.agent import settings as agent_settings
from nhc.agent.npd_monitors import load_log_monitor, load_plugin_monitor
from nhc.core import units
from nhc.core.language import loader
from nhc.core.language.loader import ConfigError
from nhc.core.matching import node_ranges, nodeset
from nhc.core.model import Action, CheckResult, Metric, Outcome, Report, Verdict
from nhc.core.render import json as wire
from nhc.core.render import nagios, npd, prometheus, text
from nhc.core.settings.settings_file import SettingsError
from nhc.marks.policy.policy_file import parse as parse_policy
from nhc.node.checks.kmsg import outcome
from nhc.node.commands.log import LineFolder, as_object, as_text
from nhc.node.commands.record import judge
from nhc.node.facts import kernel_lines
from nhc.node.kernlog import findings
from nhc.node.kernlog.catalogue import Matcher
from nhc.node.kernlog.collect import take_in
from nhc.node.kernlog.npd_rules import RuleReader, go_duration, parse
from nhc.node.kernlog.source import BadRules

TESTS = Path(__file__).resolve().parents[1]
KEPT = TESTS / "nodes" / "h100-xid79"


class Target(NamedTuple):
    """`examples` says how many inputs the fixed part tries."""

    inputs: st.SearchStrategy[Any]
    holds: Callable[[Any], None]
    examples: int = 100


def pieces(*known: str) -> st.SearchStrategy[str]:
    """Texts made of what the parser knows and of anything else."""
    return st.lists(st.sampled_from(known) | st.text(max_size=6), max_size=12).map("".join)


def one_line(error: object) -> None:
    """What a person reads of a refusal."""
    assert str(error)
    assert "\n" not in str(error)


# Units.

UNITS = pieces(
    "1",
    "0",
    "9" * 310,
    ".5",
    "1e400",
    "-",
    "+",
    "k",
    "KiB",
    "GB",
    "TB",
    "%",
    "ms",
    "s",
    "m",
    "h",
    "d",
    "25d",
    " ",
    "nan",
    "inf",
    "_",
    "٣",
    "0x10",
    "1.5.2",
)


def a_unit_is_a_number_or_one_line(given: str) -> None:
    for convert in (
        units.seconds,
        units.size_kb,
        units.size_bytes,
        units.count,
        units.percent,
        units.integer,
        units.whole,
        units.number,
    ):
        try:
            value = convert(given)
        except ValueError as error:
            one_line(error)
            continue
        assert math.isfinite(value), (convert, given, value)
    try:
        assert math.isfinite(go_duration(given))
    except ValueError:
        pass


# Kernel lines.

REAL = [row.split("\t")[-1] for row in (TESTS / "node/kernlog/lines.tsv").read_text().splitlines() if "\t" in row]
LINES = st.lists(
    pieces(
        "NVRM: Xid (PCI:0000:3b:00): ",
        "79, ",
        "74, pid=1, 00000000 ",
        "0x",
        "SXid",
        "mlx5_core 0000:3b:00.0: ",
        "EDAC MC0: ",
        "Out of memory: Killed process ",
        "Nov 21 02:28:15 n1 kernel: ",
        "[ 1713.68] ",
        "<4>",
        "3,1,2,-;",
        '{"MESSAGE": ',
        "\0",
        "\x1b[2J",
        "\n ",
        " SUBSYSTEM=pci",
    )
    | st.sampled_from(REAL).flatmap(
        lambda line: st.tuples(st.just(line), st.integers(0, 400), st.text(max_size=5)).map(
            lambda given: given[0][: given[1]] + given[2] + given[0][given[1] + len(given[2]) :]
        )
    ),
    max_size=5,
)


def every_line_has_a_meaning_or_none(given: list[str]) -> None:
    for line in given:
        kernel_lines.parse_line(line, 1.7e9)
        kernel_lines.parse_record(line)
        kernel_lines.parse_journal(line)
    state: dict[str, Any] = {}
    findings.enter_boot(state, "b", lambda _finding: None)
    take_in(state, [(line, None) for line in given], 1.7e9)
    take_in(json.loads(json.dumps(state)), [(line, 1.7e9) for line in given], 1.7e9)
    for _key, finding in findings.current(state):
        outcome(finding)
    folder = LineFolder(Matcher(), show_all=True)
    folder.feed("\n".join(given))
    for shown in as_text(folder.entries(), folder.lines):
        assert "\n" not in shown
    json.dumps([as_object(entry) for entry in folder.entries()])


# Settings and policies.

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | UNITS | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
TOML = pieces(
    "[agent]\n",
    "[sinks.kubernetes]\n",
    "[bounds.fleet]\n",
    "[bounds.fleet.rate]\n",
    "apply = ",
    "out = ",
    "mark = ",
    "true\n",
    '"10%"\n',
    '"20 per 1h"\n',
    "node = ",
    "listen = ",
    "retry = ",
    "config = ",
    "[",
    "]\n",
    "'",
    '"""',
    "=",
    "1" * 400,
    "1979-05-27\n",
    "nan\n",
    "a.b = ",
    "{",
    "}",
)


def settings_are_read_or_refused(given: str) -> None:
    for read, refusal in ((agent_settings.parse, SettingsError), (parse_policy, SettingsError)):
        try:
            read(given, "file.toml")
        except refusal as error:
            one_line(error)


# node-problem-detector's files.

RULE = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["permanent", "temporary"]) | VALUES,
        "reason": st.text(max_size=6) | VALUES,
        "condition": st.sampled_from(["A"]) | VALUES,
        "path": st.just("/bin/true") | VALUES,
        "args": VALUES,
        "timeout": UNITS | VALUES,
        "pattern": pieces(
            "(?i)",
            "(",
            ")",
            "[",
            "]",
            "[[:alpha:]]",
            "\\",
            "\\Q",
            "\\E",
            "\\pL",
            "\\p{",
            "{",
            "2,1}",
            "*",
            "+",
            "?",
            "|",
            "$",
            "^",
            "(?P<n>",
            "\\z",
            "\\n",
            "a",
        )
        | VALUES,
    },
)
NPD = st.fixed_dictionaries(
    {},
    optional={
        "plugin": st.sampled_from(["kmsg", "journald", "filelog", "custom"]) | VALUES,
        "rules": st.lists(RULE, max_size=3) | VALUES,
        "conditions": st.just([{"type": "A"}]) | VALUES,
        "bufferSize": st.integers(0, 20) | VALUES,
        "lookback": UNITS | VALUES,
        "pluginConfig": VALUES,
        "logPath": VALUES,
        "skipList": VALUES,
        "source": VALUES,
        "metricsReporting": VALUES,
    },
)


def a_monitor_is_read_or_refused(given: Any) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "monitor.json")
        Path(path).write_text(json.dumps(given))
        for load in (load_log_monitor, load_plugin_monitor):
            try:
                load(path)
            except SettingsError as error:
                one_line(error)
        try:
            read = RuleReader(parse(json.dumps(given), path).rules)
        except BadRules as error:
            one_line(error)
            return
        for line in ("a", "A b\tc", "", "\u00e9"):
            read.read(line)


# Node sets.

NODES = pieces(
    "n",
    "gpu",
    "[",
    "]",
    "-",
    ",",
    "01",
    "1-3",
    "9999999",
    "{",
    "}",
    "!",
    "/",
    "*",
    "?",
    "(",
    ")",
    "|",
    "^",
    "$",
    " ",
    ".",
)


def a_node_set_is_read_or_refused(given: str) -> None:
    if nodeset.needs_library(given) or any(sign in given for sign in "/*?("):
        return  # other people's parsers, and patterns, which have a deadline of their own
    nodeset.problem(given)
    nodeset.mcheck("n1", given)
    try:
        names = node_ranges.expand(given)
    except nodeset.BadRange as error:
        one_line(error)
        return
    again = node_ranges.expand(node_ranges.fold(names))
    assert again == sorted(names, key=again.index)


# Reports through every output.

TEXT = st.text(max_size=20) | pieces(
    "\x1b[2J", "\r", "\n", "\0", "|", "'", '"', "\\", "\u202e", "\ud800", "{", "}", "é"
)
RESULT = st.tuples(st.sampled_from([verdict.name for verdict in Verdict]), TEXT, TEXT, TEXT, st.floats(), st.integers())


def every_output_takes_every_report(given: Any) -> None:
    results = tuple(
        CheckResult(
            "check_x",
            Outcome(
                Verdict[verdict], "Reason", message, target, (Metric(line, metric, "B"),), Action.NONE, (line, message)
            ),
            0.5,
            line,
            line,
            (target,),
            0,
            number % 3,
        )
        for verdict, message, target, line, metric, number in given
        if math.isfinite(metric)
    )
    report = Report(*("n1", "b", 1.7e9, 0.1), results=results, notes=tuple(row[1] for row in given))
    for shown in (
        text.render(report, verbose=2, evidence=True),
        nagios.render(report),
        npd.render(report),
        prometheus.render(report),
    ):
        assert all(char.isprintable() or char == "\n" for char in shown), shown
        shown.encode()
    for indent in (0, 2):
        said = wire.render(report, indent)
        said.encode()
        assert wire.parse(said).verdict is report.verdict
        assert wire.render(wire.parse(said), indent) == said


# Lines of configuration.

CONFIG = pieces(
    "* || ",
    "n1 || ",
    "{n[1-9]} ",
    "|",
    "||",
    "|every 5m| ",
    "|timeout 25d| ",
    "strikes 0, ",
    "check_fs_mount ",
    "check_hw_mem_free ",
    "-f ",
    "/ ",
    "1k ",
    "include ",
    "X=",
    "$X ",
    "`",
    "$(",
    ")",
    "'",
    '"',
    "\\",
    "\n",
    "#",
    ";",
    "&& ",
    "export ",
    "9" * 310,
    "tags ",
    "context ",
    "\0",
    "\t",
    "!",
    "export",
)


def a_configuration_is_a_plan_or_problems(given: str) -> None:
    if any(sign in given for sign in ("@", "include")):
        return
    for strict in (False, True):
        try:
            plan = loader.load_text(given, "nhc.conf", "n1", strict=strict)
        except ConfigError as error:
            one_line(error.problems[0].show())
            continue
        for item in plan.items:
            assert item.name
            assert item.strikes >= 0
            assert item.timeout is None or 0 < item.timeout < math.inf


# Recorded nodes.

ANSWERS = json.loads((KEPT / "answers.json").read_text())
CHANGES = st.lists(
    st.tuples(st.integers(0, len(ANSWERS) - 1), st.fixed_dictionaries({"value": VALUES})), min_size=1, max_size=12
)


def a_recording_of_nonsense_is_judged(given: Any) -> None:
    answers = [list(pair) for pair in ANSWERS]
    for place, answer in given:
        answers[place][1] = answer
    with tempfile.TemporaryDirectory() as directory:
        kept = os.path.join(directory, "kept")
        shutil.copytree(KEPT, kept)
        Path(kept, "answers.json").write_text(json.dumps(answers))
        report = judge(kept)
        assert report.results
        text.render(report)


TARGETS = {
    "units": Target(UNITS, a_unit_is_a_number_or_one_line),
    "kernel lines": Target(LINES, every_line_has_a_meaning_or_none, 60),
    "settings": Target(TOML, settings_are_read_or_refused),
    "npd files": Target(NPD, a_monitor_is_read_or_refused, 60),
    "node sets": Target(NODES, a_node_set_is_read_or_refused),
    "reports": Target(st.lists(RESULT, max_size=4), every_output_takes_every_report, 60),
    "configuration": Target(CONFIG, a_configuration_is_a_plan_or_problems, 60),
    "recordings": Target(CHANGES, a_recording_of_nonsense_is_judged, 3),
}
