"""Each row of the catalogue has a source, lines that it must match, near misses, a filter as wide as its pattern."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nhc.core.data.reader import read, table
from nhc.node.kernlog.catalogue import Matcher, rows
from nhc.node.kernlog.filters import derive, implies, written

SOURCES = [tuple(cells) for cells in table("kernel_sources.tsv")]
ROWS = rows()


def of(kind, code):
    return [row for row in ROWS if (row.kind, row.code) == (kind, code)]


@pytest.mark.parametrize("cells", SOURCES, ids=lambda cells: f"{cells[0]}-{cells[1]}-{cells[4][:40]}")
def test_a_row_matches_its_examples_and_not_its_near_misses(cells):
    kind, code, printed_by, _versions, example, near = cells
    assert of(kind, code)
    assert re.search(r"\.[ch]\b|documentation|README|\.py$", printed_by), "a file, or the vendor's document"
    found = Matcher().judge(example)
    if (kind, code) != ("nvrm", "Subject"):  # names the GPU of the lines after it and means nothing by itself
        assert found is not None
        assert found.kind == kind
        assert found.code == code or not code
    assert near
    other = Matcher().judge(near)
    assert other is None or (other.kind, other.code) != (kind, code or other.code)


KERNELS = ("4.18", "5.4", "5.10", "5.14", "5.15", "6.1", "6.8", "6.12", "6.14")
BRANCHES = ("515", "525", "535", "545", "550", "555", "560", "565", "570", "575", "580")
#: What no kernel's or NVIDIA's public source has: the vendors' own documents, drivers and logs; what is nhc's own.
ELSEWHERE = {"neuron": "2.x", "lustre": "lustre-release 2026", "drill": "-"}


def versions(cell):
    """The versions of a cell: `4.18 5.10-6.14` is all but 5.4. Raises ValueError for one that was not read."""
    found = set()
    for part in cell.split():
        first, _, last = part.partition("-")
        order = KERNELS if first in KERNELS else BRANCHES
        found |= set(order[order.index(first) : order.index(last or first) + 1])
    return found


def test_each_wording_names_the_versions_in_which_it_was_found():
    for kind, _code, printed_by, cell, example, _near in SOURCES:
        if cell in ("", "amzn-drivers", ELSEWHERE.get(kind)):
            assert cell or kind in ELSEWHERE or re.search("before|between|lines of logs", printed_by), example
            continue
        found = versions(cell.replace("470", "").strip())
        assert found or cell == "470", example
        assert found <= set(KERNELS) or found <= set(BRANCHES), example


def test_every_row_was_found_in_a_source_and_old_and_new_wordings_leave_no_hole():
    """From the first version that has the text to the last, each version has one of a row's wordings."""
    for kind, code in {(row.kind, row.code) for row in ROWS} - {(kind, "") for kind in ELSEWHERE}:
        cells = [row[3] for row in SOURCES if row[:2] == (kind, code)]
        if kind in ELSEWHERE and code != "ProbeFailed":
            continue
        found = set().union(*(versions(cell.replace("470", "")) for cell in cells if cell != "amzn-drivers"))
        if not found:
            if any("lines of logs" in row[2] for row in SOURCES if row[:2] == (kind, code)):
                continue  # nobody has read it in every version's source: it is known from where it was printed
            assert "470" in cells or (kind, code) in (("exhausted", "TimeWait"),), (kind, code)
            continue
        order = KERNELS if found <= set(KERNELS) else BRANCHES
        first, last = (order.index(one) for one in (min(found, key=order.index), max(found, key=order.index)))
        holes = set(order[first : last + 1]) - found
        assert holes <= HOLES.get((kind, code), set()), (kind, code)


#: Text that a branch between others lacks: it was taken out and came back.
HOLES = {
    ("nvrm", "PeermemContext"): {"545"},
    ("nvrm", "RcAllChannels"): {"545", "555"},
    ("pcie", "Inaccessible"): {"5.4"},
}


def test_every_row_has_a_source_and_an_example_of_its_own():
    examples = {(kind, code): [] for kind, code, *_ in SOURCES}
    for kind, code, _printed, _versions, example, _near in SOURCES:
        examples[kind, code].append(example)
    homeless = [
        (row.kind, row.code, row.pattern)
        for row in ROWS
        if not any(re.search(row.pattern, line) for line in examples.get((row.kind, row.code), ()))
    ]
    assert homeless == []
    assert {(row.kind, row.code) for row in ROWS} == set(examples)


@pytest.mark.thorough
def test_the_filter_is_what_the_patterns_give():
    """`python -m nhc.node.kernlog.filters --write` fills it in."""
    assert written(read("kernel.tsv")) == read("kernel.tsv")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.kind}-{row.code}")
def test_no_filter_is_narrower_than_its_pattern(row):
    assert implies(row.pattern, row.texts)
    assert not row.gate or implies(row.pattern, row.gate.split("||"))


@pytest.mark.parametrize(
    ("pattern", "texts", "wide"),
    [
        ("Out of memory(?: \\([^)]*\\))?: Kill(?:ed)? process", ["Out of memory: Kill"], False),  # what was wrong once
        ("[Ff]ailed to copy", ["failed to copy"], False),
        ("[Ff]ailed to copy", ["ailed to copy"], True),
        ("(?:self-)?detected (?:expedited )?stalls?", ["detected stall"], False),
        ("(?:abc|x+)d", ["abc"], False),
        ("(?:abc|ab)+d", ["ab"], True),
        ("^(?!no)(?:one|two) \\d+ end$", ["one", "two"], True),
        ("^(?!no)(?:one|two) \\d+ end$", ["one"], False),
        ("a.*b", ["ab"], False),
    ],
)
def test_what_a_pattern_implies(pattern, texts, wide):
    assert implies(pattern, texts) is wide


def test_what_follows_from_a_pattern():
    assert derive("(?:nvidia: probe of \\S+ failed|nvidia \\S+: probe failed) with error") == [
        ": probe failed",
        "nvidia: probe of ",
    ]
    assert derive("(?:foo|bar) \\d+ failed hard") == [" failed hard"]
    assert derive("\\d+") == []


STAMPS = (
    "", "[    1.5] ", "<4>[    1.5][  T7] ", "Nov 21 02:28:15 host kernel: ", "kern  :warn  : [    1.5] ",
    "2026-11-21T02:28:15.1+00:00 host kernel: [ 1.5] ", "Sat 2026-11-21 02:28:15 UTC kernel: ", "4,1,1500000,-;",
)  # fmt: skip
DIGIT = re.compile(r"\b0000:[0-9a-f]{2}:[0-9a-f]{2}\.\d\b")
PID = re.compile(r"(?<=pid )\d+|(?<=sector )\d+|(?<=logical block )\d+|(?<=pid=)\d+")


@given(cells=st.sampled_from(SOURCES), stamp=st.sampled_from(STAMPS), bus=st.integers(0, 255), slot=st.integers(0, 31),
       domain=st.integers(0, 0xFFFF), number=st.integers(1, 10**9))  # fmt: skip
def test_an_example_is_found_in_a_log_whatever_its_stamp_address_and_numbers(cells, stamp, bus, slot, domain, number):
    from nhc.node.facts.kernel_lines import message

    kind, code, _printed, _versions, example, _near = cells
    line = DIGIT.sub(f"{domain:04x}:{bus:02x}:{slot:02x}.0", PID.sub(str(number), example))
    text = f"quiet\n{stamp}{line}\nquiet"
    matcher = Matcher()
    spans = list(matcher.candidates(text))
    assert [text[start:end] for start, end, _numbers in spans] == [stamp + line]
    start, end, numbers = spans[0]
    said = message(text[start:end])
    assert said is not None
    found = matcher.judge(said, numbers)
    if (kind, code) != ("nvrm", "Subject"):
        assert found is not None
        assert found.kind == kind
