"""Settings that are declared once: a frozen dataclass, each of whose fields carries its key, unit, bounds and help.

    @dataclass(frozen=True)
    class ServerSettings:
        listen: str = declared.text("listen", "127.0.0.1:20259", "any other address than loopback takes [tls]")
        body: int = declared.size("limits.body", 4 << 20, "of one push, packed", least=1024, most=256 << 20)
        keep: Keep = declared.part("keep", Keep)                     # a dataclass of its own, read from [keep]

    settings = declared.read(ServerSettings, settings_file.load(path))
    text = declared.example(ServerSettings, HEAD)                    # conf/server.toml.example

A key with dots stands in tables. `read` calls no `finish`: what only the caller can judge comes before it. What runs
before a job reads its settings by `settings_file` alone: dataclasses cost more to import than such a run may take.
"""

from __future__ import annotations

import json
import textwrap
from dataclasses import MISSING, Field, field, fields
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Dict,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
    Type,
    TypeVar,
)

from nhc.core.units import show_seconds, show_size

if TYPE_CHECKING:
    from nhc.core.settings.settings_file import Table

T = TypeVar("T")
WIDTH = 120
COLUMN = 40
"""Where the help begins that stands beside its key."""


class Setting(NamedTuple):
    """How a field is read and shown. `group` is the dataclass of a table of its own, `shown` the example's value."""

    key: str
    help: str
    read: Callable[[Table, str, Any], Any]
    show: Callable[[Any], str]
    group: Optional[type] = None
    shown: str = ""


def _field(
    key: str, default: Any, help: str, read: Callable[[Table, str, Any], Any], show: Callable[[Any], str] = json.dumps,
    shown: str = "",
) -> Any:  # fmt: skip
    return field(default=default, metadata={"setting": Setting(key, help, read, show, shown=shown)})


def text(key: str, default: str = "", help: str = "", *, shown: str = "") -> Any:
    """Any text. `shown` is an example's TOML where the default is none."""
    return _field(key, default, help, lambda table, name, value: table.text(name, value), shown=shown)


def texts(key: str, default: Sequence[str] = (), help: str = "", *, one: bool = False, shown: str = "") -> Any:
    """A list of texts; with `one` a single text stands for a list of one."""

    def read(table: Table, name: str, value: Sequence[str]) -> Tuple[str, ...]:
        return table.text_or_texts(name, value) if one else table.texts(name, value)

    return _field(key, tuple(default), help, read, lambda value: json.dumps(list(value)), shown)


def count(key: str, default: int, help: str = "", *, least: int = 0, most: Optional[int] = None) -> Any:
    """A whole number from `least` to `most`."""
    return _field(key, default, help, lambda table, name, value: table.count(name, value, least, most))


def seconds(key: str, default: float, help: str = "", *, least: float = 0.0, most: Optional[float] = None) -> Any:
    """A duration in seconds: `"10m"`, or a number."""
    return _field(
        key, default, help, lambda table, name, value: table.seconds(name, value, least, most),
        lambda value: json.dumps(show_seconds(value)),
    )  # fmt: skip


def size(key: str, default: int, help: str = "", *, least: int = 0, most: Optional[int] = None) -> Any:
    """A size in bytes: `"64MB"`, or a number."""
    return _field(
        key, default, help, lambda table, name, value: table.size(name, value, least, most),
        lambda value: json.dumps(show_size(value / 1024)),
    )  # fmt: skip


def choice(key: str, choices: Mapping[str, Any], default: Any, help: str = "") -> Any:
    """What one word of several stands for."""
    words = {value: word for word, value in choices.items()}
    return _field(
        key, default, help, lambda table, name, value: table.choice(name, choices, value),
        lambda value: json.dumps(words[value]),
    )  # fmt: skip


def converted(
    key: str, convert: Callable[[str], Any], default: Any, help: str = "", *, show: Callable[[Any], str] = str,
    shown: str = "",
) -> Any:  # fmt: skip
    """What a function makes of a text; its ValueError says what was expected. `show` makes the text of a value."""
    return _field(
        key, default, help, lambda table, name, value: table.converted(name, convert, value),
        lambda value: json.dumps(show(value)), shown,
    )  # fmt: skip


def part(key: str, kind: type) -> Any:
    """A table with a dataclass of its own."""
    return field(
        default_factory=kind,
        metadata={"setting": Setting(key, "", lambda table, name, _value: read(kind, table.table(name)), str, kind)},
    )


def read(kind: Type[T], table: Table, **given: Any) -> T:
    """The values in a table, `given` those that no file has. Raises SettingsError."""
    values = dict(given)
    for one in fields(kind):  # type: ignore[arg-type]
        setting = one.metadata.get("setting")
        if setting is not None:
            *path, name = setting.key.split(".")
            at = table
            for word in path:
                at = at.table(word)
            values[one.name] = setting.read(at, name, default_of(one))
    return kind(**values)


def default_of(one: Field[Any]) -> Any:
    """The value of a field where nobody says one."""
    return one.default if one.default is not MISSING or one.default_factory is MISSING else one.default_factory()


def example(kind: type, head: str, **sections: str) -> str:
    """A file with every key and its default behind `#`. `head` comes first, and a text of `sections` after its table's
    name.
    """
    tables: Dict[str, List[str]] = {"": []}
    _describe(kind, "", tables)
    lines = _comment(head)
    for name, rows in tables.items():
        intro = _comment(sections[_word(name)]) if _word(name) in sections else []
        if rows or intro:
            lines += ["", *intro, *([f"[{name}]"] if name else []), *rows]
    return "\n".join(lines) + "\n"


def _word(name: str) -> str:
    return name.replace(".", "_").replace("-", "_")


def _describe(kind: type, prefix: str, tables: Dict[str, List[str]]) -> None:
    for one in fields(kind):
        setting = one.metadata.get("setting")
        if setting is None:
            continue
        whole = f"{prefix}.{setting.key}" if prefix else setting.key
        if setting.group is not None:
            tables.setdefault(whole, [])
            _describe(setting.group, whole, tables)
            continue
        name, _, key = whole.rpartition(".")
        row = f"# {key} = {setting.shown or setting.show(default_of(one))}"
        beside = f"{row:{COLUMN}}# {setting.help}" if setting.help else row
        rows = tables.setdefault(name, [])
        rows += [beside] if len(beside) <= WIDTH else [*_comment(setting.help), row]


def _comment(text: str) -> List[str]:
    """Paragraphs as lines that begin with `#`."""
    lines: List[str] = []
    for paragraph in text.strip().split("\n\n"):
        lines += [
            *(["#"] if lines else []),
            *textwrap.wrap(paragraph, WIDTH, initial_indent="# ", subsequent_indent="# "),
        ]
    return lines
