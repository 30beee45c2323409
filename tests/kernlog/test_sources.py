"""Each row of the catalogue has a source, lines that it must match, near misses, a filter as wide as its pattern."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nhc.data.reader import read, table
from nhc.kernlog.catalogue import Matcher, rows
from nhc.kernlog.filters import derive, implies, written

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


def test_the_filter_is_what_the_patterns_give():
    """`python -m nhc.kernlog.filters --write` fills it in."""
    assert written(read("kernel.tsv")) == read("kernel.tsv")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.kind}-{row.code}")
def test_no_filter_is_narrower_than_its_pattern(row):
    assert implies(row.pattern, row.texts)
    assert not row.gate or implies(row.pattern, [row.gate])


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
    from nhc.facts.kmsg import message

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
