"""Match strings and node ranges, against LBNL NHC's own cases, bash, and ClusterShell."""

from __future__ import annotations

import subprocess

import pytest
from ClusterShell.NodeSet import NodeSet
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nhc.core.matching import nodeset
from nhc.core.matching.node_ranges import expand, fold, fold_for_scheduler
from nhc.core.matching.nodeset import BadRange, mcheck, nodeset_match, problem

# What LBNL NHC 1.4.3 says of each.
PINNED = [
    ("This is a test.", "/test/", True),
    ("some.hostname.com", r"/\./", True),
    ("hostname", r"/\./", False),
    ("host.example.com", r"/example\.(com|net|org)$/", True),
    ("1 2 3 4 5", "/(^| )1/", True),
    ("somenode", "!/node/", False),
    ("bigmem01", "!/gpu/", True),
    ("n0000.testbed", "{n00[00-59].testbed}", True),
    ("n0021.testbed", "{n00[00-59].testbed}", True),
    ("n0059.testbed", "{n00[00-59].testbed}", True),
    ("n0000.testbed", "{n0[000-059].testbed}", True),
    ("n0034.testbed", "{n0[000-059].testbed}", True),
    ("n0059.testbed", "{n0[000-059].testbed}", True),
    ("n0000.cluster", "{n0000.cluster}", True),
    ("n0100.cluster", "{n00[00-99].cluster}", False),
    ("n0005.cluster", "{n000[5-5].cluster}", True),
    ("n0200.cluster", "{n[00-10]00.cluster}", True),
    ("fx-r0-n42", "{fx-r0-n[0-42]}", True),
    ("idplx-r2-n21", "{idplx-r0-n[0-42],idplx-r1-n[0-42],idplx-r2-n[0-42],idplx-r3-n[0-42]}", True),
    ("idplx-r4-n04", "{idplx-r0-n[0-42],idplx-r1-n[0-42],idplx-r2-n[0-42],idplx-r3-n[0-42]}", False),
    ("n2345.gpu", "!{n[0000-9999].gpu}", False),
    ("n1123.phi", "!{n0[100-199].phi}", True),
    ("n0000.testbed", "n*.*", True),
    ("some*glob", r"*\**", True),
    ("hostname", r"\*", False),
    ("host.example.com", "*.?xample.[CcNnOo][OoEeRr][MmTtGg]", True),
    ("1 2 3 4 5", "*1*", True),
    ("n0001", "!n00*", False),
    ("n0001", "!n11*", True),
    ("Testing", "//^Testing$//", False),
    ("Testing", "/^Testing$/", True),
    ("n0000.foo", "{{n000[0-9].foo}}", False),
    ("n0000.foo", "{n000[0-9].foo}", True),
    ("/usr/sbin/sshd", "sshd*", False),
    ("/usr/sbin/sshd", "*sshd", True),
]


@pytest.mark.parametrize(("string", "pattern", "expected"), PINNED)
def test_matches_as_lbnl_nhc_does(string: str, pattern: str, expected: bool) -> None:
    assert mcheck(string, pattern) is expected


@pytest.mark.parametrize(
    ("name", "pattern", "expected"),
    [
        ("login", "{node[01-10],login}", True),  # issue 180 of LBNL NHC
        ("node07", "{node[01-10],login}", True),
        ("node11", "{node[01-10],login}", False),
        ("node5", "{node[1-10]}", True),  # as pdsh and ClusterShell have it
        ("node05", "{node[1-10]}", True),  # as LBNL NHC has it
        ("node005", "{node[1-10]}", False),
        ("node10", "{node[10-01]}", False),  # a mistake, as for Slurm and ClusterShell
        ("r1n03", "{r[1-2]n[01-04]}", True),
        ("r3n03", "{r[1-2]n[01-04]}", False),
        ("n7", "{n[1-3,7]}", True),
        ("n5", "{n[1-3,7]}", False),
        ("7", "{[1-9]}", True),
        ("gpu1", "!(gpu*|login)", False),
        ("n1", "!(gpu*|login)", True),
    ],
)
def test_lists_mix_names_and_ranges(name: str, pattern: str, expected: bool) -> None:
    assert mcheck(name, pattern) is expected


@pytest.mark.parametrize(
    ("name", "listed", "expected"),
    [
        ("a5", "a[1-9]!a5", False),
        ("a4", "a[1-9]!a5", True),
        ("a4", "a[1-5]&a[4-9]", True),
        ("a3", "a[1-5]&a[4-9]", False),
        ("n4", "n[0-8/2]", True),
        ("n5", "n[0-8/2]", False),
    ],
)
def test_set_algebra_is_clustershells(name: str, listed: str, expected: bool) -> None:
    assert nodeset_match(name, listed) is expected


def test_set_algebra_without_the_library_matches_nothing_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ClusterShell.NodeSet", None)
    monkeypatch.setattr(nodeset, "_matchers", {})

    assert mcheck("a1", "{a[1-9]!a5}") is False
    wrong = problem("{a[1-9]!a5}")
    assert wrong is not None
    assert "ClusterShell" in wrong[0]


@pytest.mark.parametrize(
    "pattern", ["{n[1-}", "{n[a-b]}", "{a,,b}", "{n b}", "/a(/", "/*a/", "/a{2,1}/", "/[z-a]/", "/x\\/"]
)
def test_what_cannot_be_read_matches_nothing_and_is_reported(pattern: str) -> None:
    assert mcheck("n1", pattern) is False
    assert mcheck("n1", f"!{pattern}") is True
    assert problem(pattern) is not None
    assert problem(f"!{pattern}") is not None


@pytest.mark.parametrize("pattern", ["/", "", "!", "{", "[", "a[", "*(a", "!(", "\\"])
def test_odd_patterns_are_globs(pattern: str) -> None:
    assert problem(pattern) is None
    assert mcheck("node1", pattern) is pattern.startswith("!")


def test_a_list_that_is_not_closed_is_a_problem_although_it_is_a_glob() -> None:
    assert problem("{gpu[001") == ("'{gpu[001' is not closed: expected a list in braces, as in {node[01-99]}", 8)
    assert mcheck("gpu001", "{gpu[001") is False


def test_a_problem_says_where() -> None:
    assert problem("!{n1,m[1-x]}") == ("'m[1-x]': '1-x' is not a range of numbers such as 01-99", 6)


@pytest.mark.thorough
@given(st.text(max_size=30), st.text(alphabet=st.sampled_from("a1[]{}()*?+!/\\-^$.|,:&@x09 "), max_size=20))
@example("1" * 5000, "{n[1-9]}")
@example("n" + "1" * 5000, "{n[1-9]}")
def test_no_pattern_raises(string: str, pattern: str) -> None:
    assert mcheck(string, pattern) in (True, False)
    problem(pattern)


# Against bash itself.

_GLOB = st.text(alphabet=st.sampled_from("ab1-]["), max_size=3)
_PIECE = st.sampled_from(
    ["a", "b", "1", "*", "?", "[ab]", "[!a]", "[^a1]", "[]a]", "[a-b]", "[[:digit:]]", "[[:alpha:]b]", "[", "\\*", "-",
     "@(a|b)", "?(a)", "*(ab|1)", "+(a|b1)", "!(a)", "!(a|b*)", "@(a|?(b)1)", "[a\\]]", "[b-a]"]
)  # fmt: skip
_GLOBS = st.lists(_PIECE, max_size=4).map("".join)
_EREPIECE = st.sampled_from(
    ["a", "b", "1", ".", "^", "$", "(a|b)", "(a|)", "[ab]", "[^a]", "[]a]", "[[:digit:]]+", "a*", "b+", "1?", "a{2}",
     "a{1,}", "a{,2}", "(ab)*", "\\.", "\\<", "\\>", "\\b", "\\w", "(a)\\1", "a+?", "x|", "\\d",
     "a**", "{", "(", ")", "*", "[a\\]"]
)  # fmt: skip
_ERES = st.lists(_EREPIECE, max_size=4).map("".join)
_STRINGS = st.text(alphabet=st.sampled_from("ab1-].*[\\ x"), max_size=5)


def _ask_bash(script: str, pairs: list[tuple[str, str]]) -> list[bool]:
    words = [word for pair in pairs for word in pair]
    loop = f"while (( $# )); do {script} && echo 1 || echo 0; shift 2; done"
    done = subprocess.run(
        ["bash", "--norc", "-c", loop, "bash", *words],
        capture_output=True, text=True, env={"LC_ALL": "C", "PATH": "/usr/bin:/bin"}, check=True,
    )  # fmt: skip
    return [line == "1" for line in done.stdout.split()]


@pytest.mark.thorough
@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(_STRINGS, _GLOBS), min_size=30, max_size=60))
def test_globs_are_bashs(pairs: list[tuple[str, str]]) -> None:
    pairs = [(string, pattern) for string, pattern in pairs if not pattern.startswith(("!", "/", "{"))]
    # bash 5.2 says that the empty string matches `*!(a)a` and `*?(a)!(a)a`, which end in a letter: a defect of its own,
    # wherever `!(...)` comes after a `*`.
    pairs = [(string, pattern) for string, pattern in pairs if "!(" not in pattern.partition("*")[2]]
    assert [mcheck(*pair) for pair in pairs] == _ask_bash("[[ $1 == $2 ]]", pairs)


@pytest.mark.thorough
@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(_STRINGS, _ERES), min_size=30, max_size=60))
def test_regular_expressions_are_bashs(pairs: list[tuple[str, str]]) -> None:
    # glibc's matcher loses matches where a back-reference stands beside an alternative: a defect of its own.
    pairs = [(string, pattern) for string, pattern in pairs if not ("\\1" in pattern and "|" in pattern)]
    answers = _ask_bash("[[ $1 =~ $2 ]] 2>/dev/null", pairs)
    assert [mcheck(string, f"/{pattern}/") for string, pattern in pairs] == answers


# Ranges, against ClusterShell.


def _range(low: int, high: int, width: int) -> str:
    return f"[{min(low, high):0{width}d}-{max(low, high):0{width}d}]"


_RANGES = st.builds(_range, st.integers(0, 120), st.integers(0, 120), st.sampled_from([3, 4]))
_GROUPS = st.builds(
    lambda prefix, span, suffix: f"{prefix}{span}{suffix}",
    st.sampled_from(["n", "gpu-", "r1n"]), _RANGES, st.sampled_from(["", "-ib", ".cluster"]),
)  # fmt: skip
_LISTS = st.lists(st.one_of(_GROUPS, st.sampled_from(["login", "n5", "head.cluster"])), min_size=1, max_size=4).map(
    ",".join
)


@pytest.mark.thorough
@settings(max_examples=60, deadline=None)
@given(_LISTS, st.integers(0, 130), st.sampled_from([3, 4]))
def test_ranges_are_clustershells(listed: str, number: int, width: int) -> None:
    names = NodeSet(listed)
    assert set(expand(listed)) == set(names)
    for name in (f"n{number:0{width}d}", f"gpu-{number:0{width}d}-ib", f"r1n{number:0{width}d}.cluster", "login", "n5"):
        assert nodeset_match(name, listed) is (name in names)


@pytest.mark.thorough
@settings(max_examples=80, deadline=None)
@given(st.lists(st.builds(
    lambda prefix, number, width: f"{prefix}{number:0{width}d}",
    st.sampled_from(["n", "gpu", "r1-n"]), st.integers(0, 120), st.sampled_from([0, 2, 3]),
), max_size=30))  # fmt: skip
def test_folding_loses_nothing(names: list[str]) -> None:
    folded = fold(names)
    assert sorted(expand(folded)) == sorted(set(names))
    if len({len(name) for name in names}) == 1 and names:
        assert set(NodeSet(folded)) == set(names)


@pytest.mark.parametrize(
    ("names", "folded"),
    [
        ([f"gpu{n:03d}" for n in range(1, 128)], "gpu[001-127]"),
        ([f"n{n}" for n in range(8, 13)], "n[8-12]"),
        (["n1", "n3", "n2", "login", "n7"], "n[1-3,7],login"),
        (["n1.cluster2", "n2.cluster2"], "n[1-2].cluster2"),
        (["r1n1", "r1n2", "r2n1"], "r1n[1-2],r2n1"),
        ([f"r{rack}n{node:02}" for rack in range(1, 41) for node in range(1, 33)], "r[1-40]n[01-32]"),
        ([f"a{one}-b{two}-c{three}.x" for one in "12" for two in "34" for three in "56"], "a[1-2]-b[3-4]-c[5-6].x"),
        (["r1n1", "r1n2", "r2n1", "r2n2", "r3n1"], "r[1-2]n[1-2],r3n1"),
        (["r1n01", "r1n02", "r2n1", "r2n2"], "r1n[01-02],r2n[1-2]"),
        (["login", "login"], "login"),
        ([], ""),
    ],
)
def test_names_fold(names: list[str], folded: str) -> None:
    assert fold(names) == folded


@pytest.mark.parametrize(
    ("names", "folded"),
    [
        (["r1n01", "r1n02", "r2n01", "r2n02"], "r1n[01-02],r2n[01-02]"),
        (["gpu1.example.org", "gpu2.example.org"], "gpu1.example.org,gpu2.example.org"),
        (["rack1-left", "rack2-left", "n1", "n2"], "rack1-left,rack2-left,n[1-2]"),
        (["r1n3", "r2n3"], "r1n3,r2n3"),
        (["login"], "login"),
        (["1", "2"], "[1-2]"),
    ],
)
def test_names_fold_for_a_scheduler(names: list[str], folded: str) -> None:
    assert fold_for_scheduler(names) == folded
    assert expand(folded) == names


@pytest.mark.parametrize("listed", ["n[3-1]", "n[1,10-01]", "r[1-2]n[02-01]"])
def test_a_range_that_ends_before_it_begins_is_a_mistake(listed: str) -> None:
    with pytest.raises(BadRange, match="ends before it begins"):
        expand(listed)
    assert "ends before it begins" in str(problem(f"{{{listed}}}"))


@pytest.mark.thorough
@settings(max_examples=80, deadline=None)
@given(st.lists(st.builds(
    lambda rack, node, width, tail: f"r{rack}n{node:0{width}d}{tail}",
    st.integers(0, 12), st.integers(0, 12), st.sampled_from([0, 2, 3]), st.sampled_from(["", ".x", "-0", "-1"]),
), max_size=40))  # fmt: skip
def test_folding_in_more_than_one_number_loses_nothing(names: list[str]) -> None:
    for folded in (fold(names), fold_for_scheduler(names)):
        assert sorted(expand(folded)) == sorted(set(names))


def test_a_typing_error_does_not_take_the_memory() -> None:
    with pytest.raises(BadRange, match="more than 1000000"):
        expand("n[0-99999999999]")
    with pytest.raises(BadRange, match="more than 1000000"):
        expand("n[0-9999]m[0-9999]")
