"""Numbers as configurations write them; the language that the readers accept is held to a regular expression."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nhc.core import units

NUMBER = r"(\d+(?:\.\d+)?)"
LANGUAGES = {
    units.size_kb: re.compile(rf"{NUMBER}\s*[kmgtpe]?(i?b)?", re.IGNORECASE | re.ASCII),
    units.size_bytes: re.compile(rf"{NUMBER}\s*[kmgtpe]?(i?b)?", re.IGNORECASE | re.ASCII),
    units.count: re.compile(rf"{NUMBER}\s*[kmgtpe]?", re.IGNORECASE | re.ASCII),
    units.seconds: re.compile(rf"{NUMBER}\s*(ms|s|m|h|d|w)?", re.IGNORECASE | re.ASCII),
    units.number: re.compile(NUMBER, re.ASCII),
}
NUMBERS = st.sampled_from(("1", "1.5", "08", "4096"))
UNITS = st.sampled_from(("", " ", "k", "MiB", "gb", "ms", "d", "ib", "b"))
WRITTEN = st.one_of(
    st.text(st.sampled_from("019. kKmMGibBsShdw%-+_e\n"), max_size=6), st.tuples(NUMBERS, UNITS).map("".join)
)


@given(WRITTEN)
@example("")
@example("1.")
@example(".5")
@example("1 ")
@example("1k b")
@example("1bb")
def test_just_these_are_read(text):
    for read, language in LANGUAGES.items():
        if language.fullmatch(text):
            assert read(text) >= 0
        else:
            with pytest.raises(ValueError, match="is not a"):
                read(text)


@pytest.mark.parametrize(
    ("text", "kb", "size"),
    [
        ("1", 1, 1), ("1b", 1, 1), ("4096B", 4, 4096), ("1k", 1, 1024), ("1KiB", 1, 1024), ("08", 8, 8),
        ("1.5G", 1572864, 1610612736), ("64 GB", 67108864, 68719476736), ("2e", 2 * 1024**5, 2 * 1024**6),
        ("1025b", 2, 1025),
    ],
)  # fmt: skip
def test_sizes(text, kb, size):
    assert units.size_kb(text) == kb
    assert units.size_bytes(text) == size


def test_what_others_wrote_is_a_whole_number_or_none():
    for said, whole in (("0", 0), (7, 7), (str(2**64), 2**64)):
        assert units.whole_of_digits(said) == whole
    for said in ("9" * 21, "9" * 5000, "\u00b2", "\u0663", "-1", "1.5", "", None, True, ["1"]):
        assert units.whole_of_digits(said) is None


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("500ms", 0.5), ("2m", 120), ("1.5 h", 5400), ("1D", 86400), ("1w", 604800)]
)
def test_durations(text, seconds):
    assert units.seconds(text) == seconds


def test_counts_and_shares():
    assert units.count("10k") == 10_000
    assert units.percent("99.5%") == 99.5
    for text in ("101", "%", "-1%", "1%%"):
        with pytest.raises(ValueError, match="percentage"):
            units.percent(text)


@pytest.mark.parametrize("digits", [310, 5000])
@pytest.mark.parametrize("unit", ["", "k", "E"])
@pytest.mark.parametrize("read", [units.size_kb, units.size_bytes, units.count, units.seconds, units.number,
                                  units.integer, units.percent])  # fmt: skip
def test_a_number_of_hundreds_of_digits_is_one_short_line(read, unit, digits):
    with pytest.raises(ValueError, match=r"is too large|is not a") as caught:
        read("9" * digits + unit)
    assert len(str(caught.value)) < 150


def test_durations_end_where_no_clock_goes():
    assert units.seconds("25d") == 25 * 86400
    with pytest.raises(ValueError, match="'99999w' is too large"):
        units.seconds("99999w")


@pytest.mark.parametrize(
    ("kilobytes", "said"),
    [
        (0, "0kB"),
        (512, "512kB"),
        (1024, "1MB"),
        (1536, "1.5MB"),
        (19030200, "18.1GB"),
        (1048575, "1GB"),
        (1 << 60, "1024EB"),
    ],
)
def test_a_size_as_a_person_says_it(kilobytes, said):
    assert units.show_size(kilobytes) == said


def test_one_of_a_thing_is_not_several():
    assert [units.show_number(count, "more person") for count in (0, 1, 2)] == [
        "0 more persons", "1 more person", "2 more persons",
    ]  # fmt: skip


def test_a_word_is_one_of_those_that_are_known_or_they_are_named():
    word = units.one_of(("nic", "all"))
    assert word("all") == "all"
    with pytest.raises(ValueError, match=r"^'both' is not one of nic, all$"):
        word("both")
