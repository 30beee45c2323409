"""The reader of settings files: typed values, and one line with file, line, key, value and what was expected."""

from __future__ import annotations

import pytest

from nhc.core.settings.settings_file import SettingsError, parse

EVERY = """
flag = true
name = "n1"
rows = 12
ratio = 0.5
age = "10m"
short = 2.5
limit = "64MB"
jitter = "5%"
form = "json"
one = "a"
several = ["a", "b"]
allow = ["reboot", "replace"]
[inner]
name = "within"
[sinks.first]
url = "x"
[sinks.second]
[[rule]]
match = "one"
[[rule]]
match = "two"
"""


def test_each_value_arrives_as_its_type_and_nothing_is_unknown():
    file = parse(EVERY, "s.toml")
    assert file.flag("flag") is True
    assert file.text("name") == file.secret("name") == "n1"
    assert (file.count("rows", 1), file.number("ratio", 1.0), file.number("rows", 1.0)) == (12, 0.5, 12.0)
    assert (file.seconds("age", 1.0), file.seconds("short", 1.0)) == (600.0, 2.5)
    assert (file.size("limit", 1), file.share("jitter", 1.0)) == (64 << 20, 0.05)
    assert file.choice("form", {"json": 1, "text": 2}, 2) == 1
    assert (file.text_or_texts("one"), file.text_or_texts("several"), file.texts("several")) == (
        ("a",), ("a", "b"), ("a", "b"),
    )  # fmt: skip
    assert file.choices("allow", {"reboot": "R", "replace": "P"}) == ("R", "P")
    assert file.converted("name", str.upper, "") == "N1"
    assert file.table("inner").text("name") == "within"
    assert {name: one.text("url", "none") for name, one in file.table("sinks").tables().items()} == {
        "first": "x",
        "second": "none",
    }
    assert [rule.text("match") for rule in file.list_of_tables("rule")] == ["one", "two"]
    file.finish()


def test_what_the_file_does_not_name_is_the_default():
    file = parse("", "s.toml")
    assert (file.flag("a"), file.flag("a", True), file.text("b"), file.count("c", 3)) == (False, True, "", 3)
    assert (file.seconds("d", 1.5), file.size("e", 9), file.share("f", 0.25), file.number("g", 0.5)) == (
        1.5,
        9,
        0.25,
        0.5,
    )
    assert (file.texts("h", ["x"]), file.choice("i", {}, 7), file.choices("j", {}, (8,))) == (("x",), 7, (8,))
    assert (file.table("k").names(), file.list_of_tables("m"), file.converted("n", int, 4)) == ((), [], 4)
    file.finish()


def read(file):
    """What a room reads: some of each kind, with bounds."""
    file.flag("flag")
    file.text("name")
    file.secret("password")
    file.count("rows", 1, least=1, most=100)
    file.number("ratio", 0.5, most=1.0)
    file.seconds("age", 60.0, least=1.0, most=3600.0)
    file.size("limit", 1, most=1 << 30)
    file.share("jitter", 0.1, most=0.5)
    file.choice("form", {"json": 1, "text": 2}, 1)
    file.texts("several")
    file.choices("allow", {"reboot": 1, "replace": 2})
    inner = file.table("inner")
    inner.converted("word", int, 0)
    for rule in file.list_of_tables("rule"):
        rule.require("match")
        rule.text("match")
    for one in file.table("sinks").tables().values():
        one.text("url")
    file.finish()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("\nflga = true", ":2: flga: there is no such key: did you mean 'flag'?"),
        ("[innner]", ":1: innner: there is no such key: did you mean 'inner'?"),
        ("[inner]\n\nwrod = 1", ":3: inner.wrod: there is no such key: did you mean 'word'?"),
        ("[inner]\nzzzzz = 1", ":2: inner.zzzzz: there is no such key: known are word"),
        ("[[rule]]\nmatch = 'a'\n[[rule]]\nmatch = 'b'\nmacth = 1",
         ":5: rule[2].macth: there is no such key: did you mean 'match'?"),
        ("[[rule]]\nmatch = 'a'\n[[rule]]", ":3: rule[2].match: missing, and it is needed"),
        ("[sinks.a]\n[sinks.b]\nurl = 3", ":3: sinks.b.url: 3 is not a text"),
        ("sinks.a = 1", ":1: sinks.a: 1 is not a table"),
        ("flag = 'yes'", ":1: flag: 'yes' is neither true nor false"),
        ("name = ['a']", ":1: name: ['a'] is not a text"),
        ("password = 12345", ":1: password: the value (not shown) is not a text"),
        ("rows = true", ":1: rows: true is not a whole number"),
        ("rows = 1.5", ":1: rows: 1.5 is not a whole number"),
        ("rows = 0", ":1: rows: 0 is too small: expected 1 or more"),
        ("rows = 101", ":1: rows: 101 is too large: expected 100 or less"),
        ("ratio = nan", ":1: ratio: nan is not a number"),
        ("ratio = 2", ":1: ratio: 2 is too large: expected 1 or less"),
        ("age = 'soon'", ":1: age: 'soon' is not a duration (a number with ms, s, m, h, d or w, as in 10s)"),
        ("age = true", ":1: age: true is not a duration, as in 10m"),
        ("age = '2h'", ":1: age: '2h' is too large: expected 1h or less"),
        ("age = -5", ":1: age: '-5' is not a duration (a number with ms, s, m, h, d or w, as in 10s)"),
        ("limit = '2GB'", ":1: limit: '2GB' is too large: expected 1GB or less"),
        ("jitter = '51%'", ":1: jitter: '51%' is too large: expected 50% or less"),
        ("jitter = '101%'", ":1: jitter: '101%' is not a percentage (0 to 100)"),
        ("form = 'xml'", ":1: form: 'xml' is not one of json, text"),
        ("several = 'a'", ":1: several: 'a' is not a list of texts"),
        ("several = ['a', 1]", ":1: several: ['a', 1] is not a list of texts"),
        ("allow = ['reboot', 'explode']", ":1: allow: 'explode' is not one of reboot, replace"),
        ("inner = 3", ":1: inner: 3 is not a table"),
        ("[inner]\nword = [1]", ":2: inner.word: [1] is not a text"),
        ("rule = {}", ":1: rule: {} is not a list of tables, [[rule]] each"),
        ("name = 1\nname = 2\n", ": Cannot overwrite a value (at line 2, column 9)"),
    ],
)  # fmt: skip
def test_a_mistake_names_file_line_key_value_and_what_was_expected(text, said):
    with pytest.raises(SettingsError) as caught:
        read(parse(text, "s.toml"))
    assert str(caught.value) == f"s.toml{said}"


def test_a_long_value_is_cut_and_what_the_caller_finds_wrong_has_the_same_form():
    file = parse(f"# c\nname = '{'x' * 500}'", "s.toml")
    with pytest.raises(SettingsError) as caught:
        file.choice("name", {"a": 1}, 1)
    assert len(str(caught.value)) < 130
    assert (
        str(parse("\npattern = '('", "s.toml").wrong("pattern", "a pattern"))
        == "s.toml:2: pattern: '(' is not a pattern"
    )


def test_tables_read_by_rules_of_their_own_hold_nothing_unknown():
    file = parse("[sinks.a]\nx = 1\ny = { z = 2 }", "s.toml")
    assert {name: one.raw() for name, one in file.table("sinks").tables().items()} == {"a": {"x": 1, "y": {"z": 2}}}
    file.finish()
