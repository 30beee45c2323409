"""The catalogue of what programs print: each row judges its example, and not its near miss."""

import pytest

from nhc.data import reader
from nhc.jobs import log_catalogue
from nhc.jobs.log_catalogue import ADVICE, CASCADE, INITIATING, TEARDOWN

ROWS = {row.kind: row for row in log_catalogue.rows()}
SOURCES = {kind: rest for kind, *rest in reader.table("job_log_sources.tsv")}
CLASSES = {"program", "memory", "time", "disk", "node", "gpu", "network", "storage", "scheduler", "unknown"}


def test_every_row_has_a_source_an_example_and_a_near_miss():
    assert len(ROWS) == len(log_catalogue.rows()) >= 120
    assert list(SOURCES) == list(ROWS)
    assert all(all(cell.strip() for cell in cells) for cells in SOURCES.values())


@pytest.mark.parametrize("row", ROWS.values(), ids=lambda row: row.kind)
def test_a_row_has_known_values(row):
    assert row.cause in CLASSES
    assert row.role in (INITIATING, CASCADE, TEARDOWN, ADVICE)
    assert row.domain in ("workload", "infrastructure", "unknown")
    assert row.restart in ("no", "may", "unknown")
    assert row.role == ADVICE or row.message
    assert all(len(text) >= 5 for text in row.texts)


@pytest.mark.parametrize("kind", ROWS)
def test_a_row_judges_its_example_and_not_its_near_miss(kind):
    _, example, near_miss = SOURCES[kind]

    row, _ = log_catalogue.judge(example)
    near = log_catalogue.judge(near_miss)

    assert row.kind == kind
    assert near is None or near[0].kind != kind


@pytest.mark.parametrize(
    "line", ["Killed", "step 20 | loss 2.31 | grad norm 0.7", "", "loading checkpoint shards: 3/3"]
)
def test_a_bare_kill_is_unknown_and_progress_is_nothing(line):
    judged = log_catalogue.judge(line)
    assert judged is None or (line == "Killed" and judged[0].cause == "unknown")


def test_no_near_miss_is_called_a_cause_of_another_row():
    """A near miss may fit another row, but never one that would blame somebody for it."""
    blamed = {kind: log_catalogue.judge(near)[0].kind for kind, (_, _, near) in SOURCES.items()
              if log_catalogue.judge(near) and log_catalogue.judge(near)[0].role == INITIATING}  # fmt: skip
    assert blamed == {"cuda-argument": "cuda-ordinal"}
