"""node-problem-detector's rule files, read as they are."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nhc.node.kernlog.npd_rules import RuleReader, needle, parse, translate
from nhc.node.kernlog.source import BadRules


def config(*rules, **more):
    conditions = [{"type": "KernelDeadlock", "reason": "KernelHasNoDeadlock", "message": "kernel has no deadlock"}]
    return json.dumps(
        {"plugin": "kmsg", "source": "kernel-monitor", "conditions": conditions, "rules": list(rules), **more}
    )


def temporary(pattern, reason="Seen"):
    return {"type": "temporary", "reason": reason, "pattern": pattern}


def read(text, *lines):
    rules = RuleReader(parse(text, "x.json").rules)
    return [[match.code for match in rules.read(line)] for line in lines]


# The patterns of the detector's own kernel-monitor.json and readonly-monitor.json, each with a line it is for.
OWN = [
    (r"Killed process \d+ (.+) total-vm:\d+kB, anon-rss:\d+kB, file-rss:\d+kB.*",
     "Out of memory: Killed process 1012 (heapster) total-vm:327128kB, anon-rss:306328kB, file-rss:11132kB"),
    (r"task [\S ]+:\w+ blocked for more than \w+ seconds\.",
     "INFO: task umount.aufs:21568 blocked for more than 120 seconds."),
    (r"unregister_netdevice: waiting for \w+ to become free. Usage count = \d+",
     "unregister_netdevice: waiting for eth0 to become free. Usage count = 1"),
    (r"BUG: unable to handle kernel NULL pointer dereference at .*",
     "BUG: unable to handle kernel NULL pointer dereference at 00000000000000a0"),
    (r"divide error: 0000 \[#\d+\] SMP", "divide error: 0000 [#0] SMP"),
    (r"EXT4-fs error .*", "EXT4-fs error (device sda1): ext4_find_entry:1455: inode #2"),
    (r"XFS .* Shutting down filesystem.?", "XFS (sda1): Corruption detected! Shutting down filesystem."),
    (r".*\[Hardware Error\]: event severity: corrected$", "{1}[Hardware Error]: event severity: corrected"),
    (r"Remounting filesystem read-only", "EXT4-fs (sda1): Remounting filesystem read-only"),
    (r".*([1-9]\d{2,}) (Currently unreadable.*sectors|Offline uncorrectable sectors).*",
     "Device: /dev/sda [SAT], 123 Currently unreadable (pending) sectors"),
]  # fmt: skip


@pytest.mark.parametrize(("pattern", "line"), OWN, ids=[pattern[:30] for pattern, _ in OWN])
def test_the_detectors_own_patterns_match_their_lines(pattern, line):
    assert read(config(temporary(pattern)), "something else", line) == [[], ["Seen"]]


def test_a_pattern_is_anchored_where_the_line_ends():
    text = config(temporary("broke"))
    assert read(text, "it broke", "it broke badly", "it broke ") == [["Seen"], [], []]


def test_a_pattern_can_span_lines():
    text = config(temporary(r"first\nsecond line"), bufferSize=3)
    assert read(text, "the first", "second line", "third", "second line") == [[], ["Seen"], [], []]


def test_a_span_is_no_longer_than_the_buffer():
    text = config(temporary(r"first[\s\S]*last"), bufferSize=3)
    assert read(text, "first", "x", "last") == [[], [], ["Seen"]]
    assert read(text, "first", "x", "y", "last") == [[], [], [], []]


def test_the_last_lines_of_one_run_are_the_first_of_the_next():
    rules = parse(config(temporary(r"first\nsecond"), bufferSize=3), "x").rules
    before = RuleReader(rules)
    before.read("the first")
    assert [m.code for m in RuleReader(rules, before.tail()).read("second")] == ["Seen"]


def test_a_permanent_rule_is_fatal_and_names_its_condition():
    text = config({"type": "permanent", "condition": "KernelDeadlock", "reason": "DockerHung", "pattern": "hung"})
    (match,) = RuleReader(parse(text, "x").rules).read("hung")
    assert (match.kind, match.code, match.severity) == ("npd", "DockerHung", "fatal")
    assert "KernelDeadlock" in match.message
    (match,) = RuleReader(parse(config(temporary("hung")), "x").rules).read("hung")
    assert match.severity == "info", "an event, which sets no condition"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("not json", "not JSON"),
        ("[]", "list of rules"),
        (config({"type": "sometimes", "reason": "x", "pattern": "x"}), "rule 1: type: 'sometimes'"),
        (config(temporary("(")), "rule 1: pattern"),
        (
            config({"type": "permanent", "condition": "Nope", "reason": "x", "pattern": "x"}),
            "rule 1: condition: 'Nope'",
        ),
        (config(temporary("x"), {"type": "temporary", "reason": "x"}), "rule 2: expected a reason and a pattern"),
        (config(bufferSize=0), "bufferSize: 0"),
    ],
)
def test_a_bad_file_is_named_with_what_was_expected(text, expected):
    with pytest.raises(BadRules, match=re.escape(expected)) as caught:
        parse(text, "/etc/npd/monitor.json")
    assert str(caught.value).startswith("/etc/npd/monitor.json: ")


@pytest.mark.parametrize(
    ("go", "text", "matches"),
    [
        ("(?i)abc", "ABC", True),
        ("x(?i)abc", "xABC", True),
        ("x(?i)abc", "XABC", False),
        ("(?i)one|(?i)two", "TWO", True),
        ("one|(?i)two|three", "THREE", True),
        ("one|(?i)two", "ONE", False),
        ("(a(?i)b)c", "aBc", True),
        ("(a(?i)b)c", "aBC", False),
        (r"a\z", "a", True),
        ("a$", "a\n", False),
        ("[[:digit:]]+", "123", True),
        ("[^[:space:]]+x", "ax", True),
        ("[^[:space:]]+x", " x", False),
        (r"\d", "٣", False),
        (r"\Qa.b\E", "a.b", True),
        (r"\Qa.b\E", "axb", False),
        (r"\pL+", "añb", True),
        ("[]]", "]", True),
        ("(?s)a.b", "a\nb", True),
        ("(?P<n>a)b", "ab", True),
        ("(?<n>a)b", "ab", True),
        ("(?i)a(?-i)b", "Ab", True),
        ("(?i)a(?-i)b", "AB", False),
        ("(?i-s:a)b", "Ab", True),
        ("(?iU)a+", "AA", True),
        ("(?m)^b$", "a\nb", True),
        ("(?m)x|(?-m)^b$", "a\nb", False),
        (r"\x{41}b", "Ab", True),
    ],
)
def test_gos_expressions_mean_what_they_mean_in_go(go, text, matches):
    (rule,) = parse(config(temporary(go)), "x").rules
    assert (rule.pattern.search(text) is not None) is matches


@given(
    st.sampled_from(
        [pattern for pattern, _ in OWN] + ["ab?c", "a{0}bc", "x[abc]yz", "(opt)?must", r"a\.b", "^start.*end$", "q+uu"]
    )
)
def test_the_needle_is_in_every_match(pattern):
    compiled = re.compile(translate(pattern))
    for text in [line for _, line in OWN] + [
        "ac",
        "abc",
        "bc",
        "xbyz",
        "must",
        "optmust",
        "a.b",
        "start x end",
        "qquu",
    ]:
        found = compiled.search(text)
        if found:
            assert needle(pattern) in found[0]


@given(st.text(max_size=40))
def test_no_pattern_ends_in_a_traceback(pattern):
    try:
        parse(config(temporary(pattern)), "x")
    except BadRules:
        pass
