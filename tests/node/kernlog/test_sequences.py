"""Sequences, not lines, are what a verdict is about: each is judged live, offline and across a restart, alike."""

import json

import pytest

from nhc.lab.testing.fake_host import FakeHost
from nhc.node.checks.kmsg import reason_of
from nhc.node.commands.log import classify_command
from tests.support.kernel_sequences import FILES, SCENARIOS, Node, abort, xid


@pytest.fixture(params=list(SCENARIOS))
def scenario(request):
    return SCENARIOS[request.param]


def test_live(scenario, tmp_path):
    lines, expected, files = scenario
    node = Node(tmp_path, live=True)
    for at, line in lines:
        node.says(at, line)
    assert node.ends(files) == expected
    node.stop()


@pytest.mark.thorough
def test_across_a_restart(scenario, tmp_path):
    lines, expected, files = scenario
    for cut in sorted({len(lines) * part // 5 for part in range(1, 5)}):
        directory = tmp_path / str(cut)
        directory.mkdir()
        node = Node(directory, live=True)
        for at, line in lines[:cut]:
            node.says(at, line)
        node.stop()
        node.start()
        for at, line in lines[cut:]:
            node.says(at, line)
        assert node.ends(files) == expected, f"restarted after line {cut}"
        node.stop()


def test_offline(scenario, tmp_path, capsys):
    lines, expected, files = scenario
    path = tmp_path / "dmesg"
    path.write_text("".join(f"[{at:12.6f}] {line}\n" for at, line in lines))
    host = FakeHost({**FILES, **files})
    assert classify_command(str(path), format="json", findings=True, root=host.root) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {
        f"{reason_of(one['kind'], one['code'])} {one['device']}": (one["severity"], one["action"]) for one in found
    } == expected


def test_without_a_node_what_only_the_node_could_tell_is_never_fatal(tmp_path, capsys):
    path = tmp_path / "dmesg"
    path.write_text("".join(f"[{at:12.6f}] {line}\n" for at, line in [*abort("sda2"), (20, xid(79))]))
    assert classify_command(str(path), findings=True) == 0
    text = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in text] == ["fatal", "degraded", "degraded", "degraded", "4"]
    assert text[-1] == "4 findings stand at the end of the log, 1 of them fatal"
