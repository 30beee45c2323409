"""Where each key of a TOML text stands, whatever the text looks like."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nhc.core.settings import toml_text

EVERYTHING = '''\
# a comment = 1
a = 1  # b = 2
list = [
  "x = 1", # ]
  { inner = 1 },
]
"with space".z = """
[not.a.table]
c = 1
"""
raw = \'\'\'it's "]" here\'\'\'

[table]
d = 'e = 1 # ['
f.g = 1.5

[[rule]]
n = 1
[[ rule ]]
n = 2979-05-27T07:32:00Z
[rule."sub"]
k = "a \\" ] quote"
[[rule.deep]]
z = 1
'''

PLACES = {
    ("a",): 2,
    ("list",): 3,
    ("with space",): 7,
    ("with space", "z"): 7,
    ("raw",): 11,
    ("table",): 13,
    ("table", "d"): 14,
    ("table", "f"): 15,
    ("table", "f", "g"): 15,
    ("rule",): 17,
    ("rule", 0): 17,
    ("rule", 0, "n"): 18,
    ("rule", 1): 19,
    ("rule", 1, "n"): 20,
    ("rule", 1, "sub"): 21,
    ("rule", 1, "sub", "k"): 22,
    ("rule", 1, "deep"): 23,
    ("rule", 1, "deep", 0): 23,
    ("rule", 1, "deep", 0, "z"): 24,
}


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_every_key_and_table_has_its_line(ending):
    text = EVERYTHING.replace("\n", ending)
    toml_text.parse(text)  # the example is TOML
    assert toml_text.lines(text) == PLACES


KEYS = st.one_of(st.sampled_from(["a", "b-1", "rule"]), st.text(min_size=1, max_size=4).filter(str.isprintable))
SCALARS = st.one_of(st.integers(-9, 9), st.booleans(), st.text(max_size=8).filter(str.isprintable))
TABLES = st.recursive(
    st.dictionaries(KEYS, SCALARS, max_size=3),
    lambda inner: st.dictionaries(KEYS, st.one_of(SCALARS, inner, st.lists(inner, min_size=1, max_size=3)), max_size=4),
    max_leaves=12,
)


def written(value, line_of, where=(), header=(), text=""):
    """The value as TOML, one statement a line; `line_of` notes where each key was put."""
    for key, one in value.items():
        if not isinstance(one, (dict, list)):
            text += f"{quoted(key)} = {quoted(one) if isinstance(one, str) else json.dumps(one)} # {quoted(key)} = 0\n"
            line_of[(*where, key)] = text.count("\n")
    for key, one in value.items():
        name = ".".join(quoted(part) for part in (*header, key))
        if isinstance(one, dict):
            text += f"\n[{name}]\n"
            line_of[(*where, key)] = text.count("\n")
            text = written(one, line_of, (*where, key), (*header, key), text)
        elif isinstance(one, list):
            for number, part in enumerate(one):
                text += f"[[{name}]]\n"
                line_of.setdefault((*where, key), text.count("\n"))
                line_of[(*where, key, number)] = text.count("\n")
                text = written(part, line_of, (*where, key, number), (*header, key), text)
    return text


def quoted(text):
    return json.dumps(text, ensure_ascii=False)


@pytest.mark.thorough
@given(TABLES)
def test_the_lines_are_those_that_the_keys_were_written_on(value):
    expected: dict = {}
    text = written(value, expected)
    assert toml_text.parse(text) == value
    assert toml_text.lines(text) == expected
