"""Words as bash splits them, and what is left to bash."""

from __future__ import annotations

import subprocess
from typing import List, Optional

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nhc.core.language import shell_words


def split(text: str) -> Optional[List[str]]:
    found = shell_words.split(text)
    return None if found is None else [word.text for word in found]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("check_fs_mount_rw -f /", ["check_fs_mount_rw", "-f", "/"]),
        ("a  'b  c' \"d e\"f", ["a", "b  c", "d ef"]),
        (r"a\ b '\$' \\", ["a b", r"\$", "\\"]),
        (r'''"a\"b" "\$x" "\n"''', ['a"b', "$x", r"\n"]),
        ("check x # comment ' with a quote", ["check", "x"]),
        ("check x#y", ["check", "x#y"]),
        ("check '' \"\"", ["check", "", ""]),
        ("check *.conf [ab]?", ["check", "*.conf", "[ab]?"]),  # LBNL NHC runs with set -f
        ("check cost$ a$/b", ["check", "cost$", "a$/b"]),
        ("check {} a{b}", ["check", "{}", "a{b}"]),
        ("", []),
        ("# only a comment", []),
    ],
)
def test_plain_words(text: str, expected: List[str]) -> None:
    assert split(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "a | b", "a && b", "a; b", "a &", "a > f", "a < f", "(a)", "a $(b)", "a `b`", "a $X", "a ${X}", 'a "$X"',
        "a $((1))",
        "a ~", "a ~root/x", "A=~ b", "a {b,c}", "a {1..3}", "[[ -f x ]]", "! a", "if true", "{ a", "time a", "a 'b",
        'a "b',
        "a\\", "a $'x'", 'a $"x"', "a\nb", "while x", "function f", "a $1", "a $[1]", "*(a)",
    ],
)  # fmt: skip
def test_what_only_a_shell_can_read(text: str) -> None:
    assert shell_words.split(text) is None


def test_known_variables_are_filled_in() -> None:
    known = {"RATE": "400", "TWO": "a b", "EMPTY": ""}.get
    found = shell_words.split('check_hw_ib $RATE "${TWO}" "$EMPTY" "${EMPTY:-x}"', known)
    assert found is not None
    assert [word.text for word in found] == ["check_hw_ib", "400", "a b", "", "x"]
    assert shell_words.split("check $TWO", known) is None  # it would become two words
    assert shell_words.split("check $EMPTY", known) is None  # it would vanish
    assert shell_words.split("check $UNKNOWN", known) is None


def test_assignments() -> None:
    found = shell_words.split("""A=1 B='x y' "C"=2 1D=3 e=""")
    assert found is not None
    assert [shell_words.assignment(word) for word in found] == [("A", "1"), ("B", "x y"), None, None, ("e", "")]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("A=$(nproc)", True),
        ('export A="$B/x" C=`d`', True),
        ("A=$((1 + 2)) # why", True),
        ("declare -a LIST=( a 'b )' )", True),
        ("A[3]=x; B+=y", True),
        ("f() { echo x; }", True),
        ("export NAME", True),
        ("A=1 command", False),
        ("A=$(x) && y", False),
        ("A=$(x) | y", False),
        ("check_x", False),
        ("A='unclosed", False),
        ("", False),
    ],
)
def test_lines_that_can_be_run_again(line: str, expected: bool) -> None:
    assert shell_words.assigns_only(line) is expected


_WORD = st.text(alphabet=st.characters(blacklist_categories=["Cs"], blacklist_characters="\0\n\r"), max_size=12)


@given(st.lists(_WORD, min_size=1, max_size=6))
def test_quoting_round_trips(argv: List[str]) -> None:
    text = shell_words.quote(argv)
    found = shell_words.split(text)
    if argv[0] in shell_words.RESERVED:  # no quotes were needed around it, so it keeps its meaning
        return
    assert found is not None
    assert [word.text for word in found] == argv


@given(st.text(max_size=40))
def test_no_text_raises(text: str) -> None:
    shell_words.split(text, {"a": "b"}.get)
    shell_words.assigns_only(text)


_SHELLISH = st.text(alphabet=st.sampled_from("ab $'\"\\#~{},.=*[]-!%:@^"), max_size=14)


@pytest.mark.thorough
@settings(max_examples=60, deadline=None)
@given(st.lists(_SHELLISH, min_size=40, max_size=80))
def test_words_are_bashs(texts: List[str]) -> None:
    ours = [(text, split(f"x {text}")) for text in texts]
    ours = [(text, found) for text, found in ours if found is not None]
    script = "set -f\n" + "".join(f"printf '%s\\0' \x01 x {text}\n" for text, _found in ours)
    done = subprocess.run(["bash", "--norc"], input=script, capture_output=True, text=True, check=True)
    runs = [run.split("\0")[:-1] for run in done.stdout.split("\x01\0")[1:]]
    assert runs == [found for _text, found in ours]
