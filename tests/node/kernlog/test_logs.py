"""Logs that others have posted: every fatal one is found, and none of the others takes a node out."""

from pathlib import Path

import pytest

from nhc.node.facts.kernel_lines import parse_line
from nhc.node.kernlog.collect import take_in
from nhc.node.kernlog.findings import current

NOW = 1_800_000_000.0
LOGS = [row.split("\t") for row in (Path(__file__).parent / "logs.tsv").read_text().splitlines()[3:]]


@pytest.mark.parametrize(("label", "source", "lines"), LOGS, ids=[f"{row[0]}-{row[2][:50]}" for row in LOGS])
def test_what_a_node_makes_of_a_log(label, source, lines):
    records = [parse_line(line, NOW) for line in lines.split("\\n")]
    state = {"boot": "boot-1"}
    read = [(record.text, NOW + (record.since_boot or at)) for at, record in enumerate(records) if record.kernel]
    take_in(state, read, max((when for _text, when in read), default=NOW))
    fatal = [key for key, finding in current(state) if finding["severity"] == "fatal"]
    assert bool(fatal) is (label == "fatal"), (source, fatal or [key for key, _finding in current(state)])
