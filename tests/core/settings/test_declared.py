"""Settings that are declared once: what is read, what is refused, and the examples that are installed.

Each key of each file is tried: its default, its bounds, a value of another kind, and a name that is almost right.
"""

from __future__ import annotations

import atexit
import json
import os
from functools import cache
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Dict, Iterator, List, NamedTuple, Tuple

import pytest
from click.testing import CliRunner

from nhc.agent.otel import OtelSettings
from nhc.agent.server_push import PushSettings
from nhc.cli.click_app import application
from nhc.core.settings import declared, settings_file, toml_text
from nhc.core.settings.declared import Reference, SettingsFile
from nhc.core.settings.files import FILES, file_of
from nhc.core.settings.settings_file import SettingsError, Table
from nhc.marks import plugins
from nhc.marks.ports.adapter import SettingError
from nhc.marks.ports.part_settings import read as read_part
from nhc_adapters.cloud.aws.cloudwatch import CloudWatchSettings
from nhc_adapters.kubernetes.sink import KubernetesSink

ROOT = Path(__file__).resolve().parents[3]
SINKS = {
    "server": PushSettings, "otel": OtelSettings, "kubernetes": KubernetesSink, "cloudwatch": CloudWatchSettings,
}  # fmt: skip
DECLARING = [kind for kind in plugins.KINDS if kind not in (plugins.ADAPTERS, plugins.SINKS)]
"""An adapter is told by variables, a sink has its own reader."""
WITNESS = {"sinks.server": 'url = "https://nhc"\ntoken-file = "t"\n', "runner job": 'image = "i"\n'}
"""What a file needs at least, where its example does not say that."""

MEANT = {"gate.toml:scheduler", "remedy.toml:policy", "store.toml:url", "train.toml:nodes", "train.toml:work[].command",
         "sinks.server:token-file", "remedy.toml:repairers.NAME.type", "remedy.toml:reasons.NAME.settle",
         "launcher ssh:state", "runner job:image"}  # fmt: skip
"""Keys that say something by being there, whatever they hold, or without which the example is nothing."""
ABSENT = object()


@declared.settings
class Keep(NamedTuple):
    history: float = declared.seconds("history", 90 * 86400.0, "how long", least=86400.0)


@declared.settings
class Pool(NamedTuple):
    name: str
    type: str = declared.text("type", declared.NEEDED, "of what kind", shown='"slurm"')
    own: Dict[str, str] = declared.rest(shown='size = "2"')


@declared.settings
class Whole(NamedTuple):
    path: str = ""
    name: str = declared.text("name", "x", "a help that is far too long to stand beside its key " * 2)
    share: int = declared.count("limits.share", 3, least=1, most=9)
    mode: bool = declared.choice("mode", {"on": True, "off": False}, False)
    words: Tuple[str, ...] = declared.texts("words", ("a",), one=True)
    rates: Dict[str, int] = declared.by_word("rates", {"a": "a", "b": "b"}, declared.count("", 1, most=5), {"b": 2})
    keep: Keep = declared.part("keep", Keep)
    more: Keep = declared.part("more", Keep, optional=True)
    pools: Tuple[Pool, ...] = declared.tables("pools", Pool, sample="gpu", live=True)

    def checked(self, table: Table) -> Whole:
        if self.name == "no":
            raise table.wrong("name", "a name")
        return self


FILE = SettingsFile(Whole, "x.toml", "A head.")
USUAL = Whole("x.toml", rates={"a": 1, "b": 2}, more=None)


def test_what_a_file_says_and_what_it_does_not_say():
    assert FILE.parse("") == USUAL
    text = (
        'name = "y"\nmode = "on"\nwords = "b"\n[limits]\nshare = 9\n[keep]\nhistory = "2d"\n[rates]\na = 5\n'
        '[more]\n[pools.p]\ntype = "t"\nsize = 3\n'
    )  # fmt: skip
    assert FILE.parse(text) == Whole(
        "x.toml", "y", 9, True, ("b",), {"a": 5, "b": 2}, Keep(2 * 86400.0), Keep(), (Pool("p", "t", {"size": "3"}),)
    )


def test_what_another_default_says_is_kept_where_the_file_says_nothing():
    found = declared.read(Whole, settings_file.parse("[limits]\nshare = 4\n", "x"), Whole(name="z", keep=Keep(86400.0)))
    assert (found.name, found.share, found.keep) == ("z", 4, Keep(86400.0))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[limits]\nshare = 10\n", "x.toml:2: limits.share: 10 is too large: expected 9 or less"),
        ("[limits]\nshar = 3\n", "x.toml:2: limits.shar: there is no such key: did you mean 'share'?"),
        ('[keep]\nhistory = "1h"\n', "x.toml:2: keep.history: '1h' is too small: expected 1d or more"),
        ('mode = "yes"\n', "x.toml:1: mode: 'yes' is not one of on, off"),
        ("path = 1\n", "x.toml:1: path: there is no such key: known are "),
        ('name = "no"\n', "x.toml:1: name: 'no' is not a name"),
        ("[pools.p]\n", "x.toml:1: pools.p.type: missing"),
        ("[rates]\nb = 6\n", "x.toml:2: rates.b: 6 is too large"),
        ("[rates]\nc = 1\n", "x.toml:2: rates.c: there is no such key"),
    ],
)
def test_a_mistake_is_one_line_with_its_key(text, said):
    with pytest.raises(SettingsError) as raised:
        FILE.parse(text)
    assert str(raised.value).startswith(said)


def test_an_example_has_every_key_and_its_values_are_the_defaults():
    lines = FILE.example().splitlines()
    assert lines[0] == "# A head."
    assert max(map(len, lines)) <= declared.WIDTH
    assert {'# name = "x"', "[limits]", "# share = 3", "[keep]", '# words = ["a"]', '# mode = "off"', "# [more]",
            "# a = 1", "# b = 2", "[pools.gpu]", '# size = "2"'} <= set(lines)  # fmt: skip
    assert FILE.parse(FILE.example()) == USUAL._replace(pools=(Pool("gpu", "slurm"),))


# Every key of every file.


def _files() -> Iterator[Tuple[str, SettingsFile[Any]]]:
    for name in FILES:
        yield name, file_of(name)
    for name, kind in SINKS.items():
        yield f"sinks.{name}", SettingsFile(kind, f"sinks.{name}", "")
    for part in DECLARING:
        for name, where in part.ours.items():
            yield f"{part.noun} {name}", SettingsFile(part.open(name).SETTINGS, where, "")


KINDS = dict(_files())
KEYS = [pytest.param(name, one, id=f"{name}:{one.key}") for name, file in KINDS.items() for one in file.reference()]


def least_text(name: str) -> str:
    return WITNESS.get(name) or KINDS[name].example()


def written(value: Dict[str, Any], where: str = "") -> List[str]:
    """TOML of tables within tables."""
    inner = [key for key, item in value.items() if isinstance(item, dict) or _tables(item)]
    lines = [f"{json.dumps(key)} = {_toml(item)}" for key, item in value.items() if key not in inner]
    for key in inner:
        name = f"{where}.{json.dumps(key)}" if where else json.dumps(key)
        for item in [value[key]] if isinstance(value[key], dict) else value[key]:
            lines += [f"[{name}]" if isinstance(value[key], dict) else f"[[{name}]]", *written(item, name)]
    return lines


def _tables(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, dict) for item in value)


def _toml(value: object) -> str:
    return json.dumps(value)


@cache
def secret(key: str) -> str:
    """A file with a secret for this key, "" for a key that names none."""
    contents = {"secret-file": "whsec_" + "bmV3" * 8, "url-file": "https://hooks.example.org/x"}
    if not key.endswith("-file"):
        return ""
    with NamedTemporaryFile("w", prefix="nhc-secret-", delete=False) as file:
        file.write(contents.get(key, "secret"))
    atexit.register(os.unlink, file.name)
    return file.name


def with_key(name: str, one: Reference, value: object, key: str = "") -> Tuple[str, str]:
    """The file with a value at a key, and how messages call the key."""
    tables = toml_text.parse(least_text(name))
    at: Any = tables
    *path, last = (key or one.key).replace("[]", ".[]").split(".")
    shown: List[str] = []
    for word in path:
        if word == "[]":
            at = at[0]
            shown[-1] += "[1]"
            continue
        kind = word.partition("(")[2].rstrip(")")
        named = f"a-{kind}" if kind else next(iter(at), "made-up") if word == "NAME" else word
        at = at.setdefault(named, {"kind": kind} if kind else [{}] if f"{word}[]" in one.key else {})
        shown.append(named)
    last = "made-up" if last in ("NAME", "*") else last
    table = one.key.rpartition(".")[0]
    for other in KINDS[name].reference():
        if other.default == "needed" and other.key.rpartition(".")[0] == table:
            key_there = other.key.rpartition(".")[2]
            at.setdefault(key_there, secret(key_there) or json.loads(other.setting.shown))
    at.pop(last, None)
    at.update({} if value is ABSENT else {last: value})
    shown.append(last)
    return "\n".join(written(tables)) + "\n", ".".join(shown)


def read(name: str, text: str) -> Any:
    return KINDS[name].parse(text, name)


def refused(name: str, text: str) -> str:
    with pytest.raises(SettingsError) as raised:
        read(name, text)
    return str(raised.value)


@pytest.mark.parametrize(("name", "one"), KEYS)
def test_each_key_of_each_file(name, one):
    setting, (text, called) = one.setting, with_key(name, one, [[1]])
    if one.form.startswith("tables"):  # what such tables hold has rules, and tests, of its own
        return
    wrong = refused(name, text)
    line = next(number for number, row in enumerate(text.splitlines(), 1) if "= [[1]]" in row)
    assert f"{name}:{line}: {called}: " in wrong
    if one.default and one.default != "needed" and f"{name}:{one.key}" not in MEANT:
        said = read(name, with_key(name, one, json.loads(one.default))[0])
        assert usual(said) == usual(read(name, with_key(name, one, ABSENT)[0]))
    scale = 100 if one.form == "share" else 1
    for end, beyond, why in ((setting.least, -1, "small"), (setting.most, 1, "large")):
        if end is not None:
            value = end * scale + beyond * (
                1 if one.form in ("whole number", "size") else 0.001 + abs(end) * scale * 0.01
            )
            assert f"{called}: " in (said := refused(name, with_key(name, one, value)[0]))
            assert f"too {why}" in said or "is not" in said
    if not called.endswith("made-up") and not _own(name, one):
        said = refused(name, with_key(name, one, 1, f"{one.key}x")[0])
        assert f"{called}x: there is no such key: did you mean " in said


def usual(settings: Any) -> Dict[str, Any]:
    """The values that can be compared: channels of notices are objects that send."""
    return {key: value for key, value in settings._asdict().items() if key != "channels"}


def _own(name: str, one: Reference) -> bool:
    """Whether its table takes keys that are a plug-in's own."""
    table = one.key.rpartition(".")[0]
    return any(other.setting.rest and other.key == f"{table}.*" for other in KINDS[name].reference())


@pytest.mark.parametrize("name", FILES)
def test_the_example_that_is_installed_is_made_from_the_declaration(name):
    text = (ROOT / "conf" / f"{name}.example").read_text()
    assert text == file_of(name).example()
    file_of(name).parse(text)
    assert all(len(line) <= declared.WIDTH for line in text.splitlines())


@declared.settings
class OfTexts(NamedTuple):
    on: bool = declared.flag("on", True)
    many: int = declared.count("many", 3, most=9)
    names: Tuple[str, ...] = declared.texts("names", ())
    place: str = declared.path("place", "/x")
    long: float = declared.seconds("long", 5.0)
    words: Tuple[str, ...] = declared.shell_words("words")


def test_a_part_is_given_texts():
    given = {"on": "no", "many": "4", "names": "a, b", "place": "/y", "long": "2m", "words": "a 'b c'"}
    assert read_part(OfTexts, given) == (False, 4, ("a", "b"), "/y", 120.0, ("a", "b c"))
    assert read_part(OfTexts, dict.fromkeys(given, "")) == read_part(OfTexts, None) == OfTexts()


@pytest.mark.parametrize(
    ("given", "key", "said"),
    [
        ({"on": "perhaps"}, "on", "'perhaps' is neither"), ({"many": "10"}, "many", "10 is too large"),
        ({"many": "-1"}, "many", "'-1' is not a whole"), ({"place": "y"}, "place", "'y' is not an absolute path"),
        ({"long": "soon"}, "long", "'soon' is not a duration"), ({"words": "'"}, "words", "No closing quotation"),
        ({"nmes": "a", "many": "x"}, "nmes", "there is no such key: did you mean 'names'?"),
    ],
)  # fmt: skip
def test_a_text_that_makes_no_sense_is_named(given, key, said):
    with pytest.raises(SettingError) as raised:
        read_part(OfTexts, given, "sinks.x")
    assert str(raised.value).startswith(f"sinks.x.{key}: {said}")


READS = [
    ("remedy.toml", ["serve", "remedy"], "[repairers.aws]\nregoin = 'x'", "2: repairers.aws.regoin: there is no"),
    ("remedy.toml", ["serve", "remedy"], "[verify]\nsuite = 'quick'\n[verify.job]\nkeep = '1d'", "job.image: missing"),
    ("jobs.toml", ["serve", "job"], "[controllers.kubernetes]\nkinds = 'cronjob'", "2: controllers.kubernetes.kinds: "),
    ("spares.toml", ["spares", "swap"], "[pools.a]\ntype = 'slurm'\nfor = ['a*']", "pools.a.reservation: missing"),
    ("gate.toml", ["gate", "run"], "scheduler = 'slurm'\n[groups.a]\nnodes = ['a']\n[adapter]\ntimeout = 'x'",
     "5: adapter.timeout: 'x' is not"),
    ("server.toml", ["serve", "server"], "lisen = 'x'", "1: lisen: there is no such key"),
    ("serve.toml", ["serve"], "[remedy]\n[remdy]", "2: remdy: there is no such key"),
    ("notices.toml", ["serve", "notices"], "evry = 1", "1: evry: there is no such key"),
    ("console.toml", ["serve", "console"], "stale = 'never'", "1: stale: 'never' is not a duration"),
    ("fleet.toml", ["fleet", "check"], "fanot = 1", "1: fanot: there is no such key"),
    ("train.toml", ["train", "run"], "nmae = 'x'", "name: missing, and it is needed"),
    ("kubernetes.toml", ["serve", "kubernetes"], "aply = true", "1: aply: there is no such key"),
    ("policy.toml", ["sync", "slurm"], "[bonds]", "1: bonds: there is no such key"),
]  # fmt: skip


def named(option: str, path: Path) -> List[str]:
    """A settings file as the value of an option, or as the only argument."""
    return [str(path)] if option == "--" else [option, str(path)]


@pytest.mark.parametrize(("name", "words", "wrong", "said"), READS)
def test_each_command_that_reads_a_file_can_only_check_it(tmp_path, name, words, wrong, said):
    path = tmp_path / name
    option = {"policy.toml": "--policy", "spares.toml": "--pools", "train.toml": "--"}.get(name, "--settings")
    path.write_text(wrong)
    done = CliRunner().invoke(application, [*words, *named(option, path), "--check-settings"])
    assert (done.exit_code, said in done.output) == (2, True), done.output
    path.write_text(file_of(name).example())
    done = CliRunner().invoke(application, [*words, "--check-settings", *named(option, path)])
    assert (done.exit_code, done.output) == (0, f"{path}: nothing is wrong\n"), "in whatever order"
