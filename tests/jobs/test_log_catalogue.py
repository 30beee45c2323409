"""The catalogue of what programs print: each row judges its example, and not its near miss."""

import pytest

from nhc.core.data import reader
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


@pytest.mark.parametrize(
    ("line", "kind", "cause"),
    [
        ("/src/embed.hip:583: void gather(long): Device-side assertion `i < n' failed.", "cuda-assert-line", "program"),
        ("torch.OutOfMemoryError: HIP out of memory. Tried to allocate 4.50 GiB.", "gpu-memory", "program"),
        ("torch.AcceleratorError: HIP error: unspecified launch failure", "cuda-launch-failure", "gpu"),
        ("RuntimeError: HIP error: invalid device function", "cuda-argument", "program"),
        ("RuntimeError: No HIP GPUs are available", "cuda-no-device", "gpu"),
        ("HW Exception by GPU node-1 (Agent handle: 0x12e7) reason :ECC", "hip-ecc", "node"),
        ("Memory access fault by GPU node-4 on address 0x7551. Reason: Generic hang recovery.", "hip-hang", "gpu"),
        ("Memory access fault by GPU node-4 on address 0x7551d8402000. Reason: Unknown.", "hip-fault", "gpu"),
        ("n1:9:9 [0] src/enqueue.cc:2061 NCCL WARN HIP failure 'unspecified launch failure' at src/enqueue.cc:2061",
         "cuda-launch-failure", "gpu"),
        ("n1:9:9 [0] NCCL WARN HIP failure 'the operation cannot be performed in the present state' at src/e.cc:9",
         "nccl-cuda-failure", "unknown"),
    ],
)  # fmt: skip
def test_what_rocm_prints_is_judged_as_what_cuda_prints(line, kind, cause):
    row, _ = log_catalogue.judge(line)
    assert (row.kind, row.cause) == (kind, cause)
