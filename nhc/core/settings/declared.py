"""Settings that are declared once: a NamedTuple, each of whose fields carries its key, unit, bounds, default and help.

    @declared.settings
    class ServerSettings(NamedTuple):
        listen: str = declared.text("listen", "127.0.0.1:20259", "any other address than loopback takes [tls]")
        body: int = declared.size("limits.body", 4 << 20, "of one push, packed", least=1024, most=256 << 20)
        keep: Keep = declared.part("keep", Keep)                     # a declared NamedTuple, read from [keep]
        pools: Tuple[Pool, ...] = declared.tables("pools", Pool, sample="gpu")  # one each from [pools.NAME]

        def checked(self, table: Table) -> ServerSettings: ...       # what fields have to do with one another

    FILE = SettingsFile(ServerSettings, "/etc/nhc/server.toml", HEAD)
    settings = FILE.load(path)                                       # the values, or one line on what is wrong
    text = FILE.example()                                            # conf/server.toml.example
    rows = FILE.reference()                                          # the reference page

    own = of_texts(AwsSettings, {"region": "eu-west-1"}, "repairers", "aws")  # a plug-in's own table, which is texts

A key with dots stands in tables. To everybody else the class is a NamedTuple with plain defaults.
"""

from __future__ import annotations

import os

from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.core.settings import settings_file, toml_text
from nhc.core.system.bounded_read import cause, read_text
from nhc.core.units import show_seconds, show_size

if TYPE_CHECKING:
    from typing import (
        Any,
        Callable,
        Collection,
        Dict,
        Generic,
        Iterator,
        List,
        Mapping,
        Optional,
        Sequence,
        Tuple,
        Type,
        TypeVar,
    )

    from nhc.core.settings.settings_file import Table

    T = TypeVar("T")
    C = TypeVar("C", bound=type)
    Reader = Callable[[Table, str, Any], Any]

    class _OfKind(Generic[T]):
        pass

else:
    T = None

    class _Unchecked:
        __class_getitem__ = classmethod(lambda cls, _kind: cls)

    _OfKind = _Unchecked


WIDTH = 120
COLUMN = 40
"""Where the help begins that stands beside its key."""
NEEDED: Any = ["needed"]
"""The default of a key that a file has to name."""


def _json(value: object) -> str:
    import json

    return json.dumps(value)


class Setting(NamedTuple):
    """How a field is read and shown.

    `form` says what its value is, `least` and `most` bound it. `shown` is the value of an example, where that is not
    the default. A table has a `group`, the declared class of what is in it; `within` is the sample name of one of
    several, `[]` of a list; `usual` are those that are there by default. Tables of several `kinds` have a sample name
    and a class each. An example has them behind `#` unless they are `live`. `more` follows there as comments.
    """

    key: str
    default: Any
    help: str
    read: Reader
    form: str = ""
    show: Callable[[Any], str] = _json
    shown: str = ""
    least: Optional[float] = None
    most: Optional[float] = None
    group: Optional[type] = None
    within: str = ""
    live: bool = False
    more: str = ""
    absent: Optional[Callable[[], Any]] = None
    fields: Mapping[str, Setting] = {}
    words: Mapping[str, Any] = {}
    kinds: Mapping[str, Tuple[str, type]] = {}
    usual: Mapping[str, Any] = {}
    rest: bool = False


_DECLARED: Dict[type, Dict[str, Setting]] = {}


def settings(kind: C) -> C:
    """The class with plain defaults; `read` knows its settings."""
    defaults: Dict[str, Any] = kind._field_defaults  # type: ignore[attr-defined]
    found = {name: value for name, value in defaults.items() if type(value) is Setting}
    _DECLARED[kind] = found
    defaults.update((name, setting.default) for name, setting in found.items())
    for name in [name for name, value in defaults.items() if value is NEEDED]:
        if name != next(iter(defaults)):
            raise TypeError(f"{kind.__name__}.{name}: what is needed comes first")
        del defaults[name]
    kind.__new__.__defaults__ = tuple(defaults.values())
    return kind


# One value.


def _field(key: str, default: Any, help: str, read: Reader, form: str, **more: Any) -> Any:
    return Setting(key, default, help, read, form, **more)


def flag(key: str, default: Optional[bool] = False, help: str = "") -> Any:
    """`true` or `false`."""
    return _field(key, default, help, lambda table, name, value: table.flag(name, value), "true or false")


def text(key: str, default: Any = "", help: str = "", **more: Any) -> Any:
    """Any text. `shown` is an example's TOML where the default is none."""
    return _field(key, default, help, lambda table, name, value: table.text(name, value), "text", **more)


def secret(key: str, default: Any = "", help: str = "", **more: Any) -> Any:
    """A text that no message shows."""
    return _field(key, default, help, lambda table, name, value: table.secret(name, value), "text", **more)


def texts(
    key: str, default: Any = (), help: str = "", *, one: bool = False,
    each: Optional[Callable[[str], Any]] = None, made: Callable[[Any], Any] = tuple, **more: Any,
) -> Any:  # fmt: skip
    """A list of texts; with `one` a single text stands for a list of one. `each` makes something of a text; its
    ValueError says what was expected. `made` is what holds them.
    """

    def read(table: Table, name: str, value: Any) -> Any:
        if name not in table:
            return value
        found = table.text_or_texts(name) if one else table.texts(name)
        try:
            return made(found if each is None else [each(item) for item in found])
        except ValueError as error:
            raise table.error(name, str(error)) from None

    return _field(key, default, help, read, "text or list of texts" if one else "list of texts",
                  **{"show": lambda value: _json([str(item) for item in value]), **more})  # fmt: skip


def choices(
    key: str, known: Mapping[str, Any], default: Any = (), help: str = "", *, made: Callable[[Any], Any] = tuple,
    **more: Any,
) -> Any:  # fmt: skip
    """What each word of a list stands for."""

    def read(table: Table, name: str, value: Any) -> Any:
        return made(table.choices(name, known)) if name in table else value

    def show(value: Any) -> str:
        return _json([word for word, meant in known.items() if meant in value])

    return _field(key, default, help, read, f"list of {', '.join(known)}", **{"show": show, **more})


def choice(key: str, known: Mapping[str, Any], default: Any, help: str = "", **more: Any) -> Any:
    """What one word of several stands for."""

    def show(value: Any) -> str:
        return _json(next(word for word, meant in known.items() if meant == value))

    return _field(key, default, help, lambda table, name, value: table.choice(name, known, value),
                  " or ".join(known), **{"show": show, **more})  # fmt: skip


def word(key: str, known: Sequence[str], default: str = "", help: str = "", **more: Any) -> Any:
    """One of some words, the first where `default` names none."""
    return choice(key, {one: one for one in known}, default or known[0], help, **more)


def count(key: str, default: Any, help: str = "", *, least: int = 0, most: Optional[int] = None, **more: Any) -> Any:
    """A whole number from `least` to `most`."""
    return _bounded("count", "whole number", str, key, default, help, least, most, more)


def seconds(
    key: str, default: Any, help: str = "", *, least: float = 0.0, most: Optional[float] = None, **more: Any
) -> Any:
    """A duration in seconds: `"10m"`, or a number."""
    return _bounded(
        "seconds",
        "duration",
        _duration,
        key,
        default,
        help,
        least,
        most,
        more,
    )


def size(key: str, default: Any, help: str = "", *, least: int = 0, most: Optional[int] = None, **more: Any) -> Any:
    """A size in bytes: `"64MB"`, or a number."""
    return _bounded("size", "size", lambda value: show_size(value / 1024), key, default, help, least, most, more)


def share(
    key: str, default: Any, help: str = "", *, least: float = 0.0, most: Optional[float] = 1.0, **more: Any
) -> Any:
    """A share from 0 to 1: `"10%"` is 0.1."""
    return _bounded("share", "share", lambda value: f"{value * 100:.4g}%", key, default, help, least, most, more)


def _bounded(
    method: str, form: str, show: Callable[[Any], str], key: str, default: Any, help: str, least: Any, most: Any,
    more: Dict[str, Any],
) -> Any:  # fmt: skip
    def read(table: Table, name: str, value: Any) -> Any:
        return getattr(table, method)(name, value, least, most) if name in table else value

    more.setdefault("show", show if method == "count" else lambda value: _json(show(value)))
    return _field(key, default, help, read, form, least=least, most=most, **more)


def converted(
    key: str, convert: Callable[[str], Any], default: Any, help: str = "", *, form: str = "text",
    show: Callable[[Any], str] = str, **more: Any,
) -> Any:  # fmt: skip
    """What a function makes of a text; its ValueError says what was expected. `show` makes the text of a value. An
    empty text is an empty default.
    """

    def made(text: str) -> Any:
        return convert(text) if text or default else default

    return _field(key, default, help, lambda table, name, value: table.converted(name, made, value), form,
                  show=lambda value: _json(show(value)), **more)  # fmt: skip


def path(key: str, default: Any, help: str = "", **more: Any) -> Any:
    """An absolute path."""

    def absolute(text: str) -> str:
        if not os.path.isabs(text):
            raise ValueError(f"{text!r} is not an absolute path")
        return text

    return converted(key, absolute, default, help, **more)


def secret_file(
    key: str, default: Any = "", help: str = "", *, each: Optional[Callable[[str], Any]] = None, **more: Any
) -> Any:
    """What a file holds that not everybody can read, or what `each` makes of it; no message shows it."""

    def read_file(table: Table, name: str, value: Any) -> Any:
        if name not in table:
            return value
        import stat

        at = table.text(name)
        if not at and value is not NEEDED:
            return value
        try:
            if os.stat(at).st_mode & stat.S_IROTH:
                raise table.error(name, f"{at} can be read by everybody: chmod o-r")
            content = read_text(at).strip()
        except (OSError, UnicodeDecodeError) as error:
            raise table.error(name, f"{at}: {cause(error)}") from None
        if not content:
            raise table.error(name, f"{at} is empty")
        try:
            return content if each is None else each(content)
        except ValueError as error:
            raise table.error(name, str(error)) from None

    return _field(key, default, help, read_file, "file with a secret", **more)


def shell_words(key: str, default: Sequence[str] = (), help: str = "", **more: Any) -> Any:
    """Words with blanks between them, quoted as a shell has them."""

    def split(text: str) -> Tuple[str, ...]:
        import shlex

        return tuple(shlex.split(text))

    return converted(key, split, tuple(default), help, **{"show": " ".join, **more})


def _duration(value: float) -> str:
    return show_seconds(value) if value else "0s"


# Tables.


def part(
    key: str, kind: type, help: str = "", *, default: Any = None, only: Collection[str] = (), optional: bool = False,
    live: bool = False, more: str = "", **fields: Any,
) -> Any:  # fmt: skip
    """A table with a declared class of its own; with `key` "" its keys stand among the others.

    `default` are its values where nobody says any, `only` the names of the fields that it has here, beside `fields`,
    which stand for those of the class. An `optional` one is None where the file lacks it.
    """
    taken = {**_fields(kind, only), **fields}

    def read_part(table: Table, name: str, value: Any) -> Any:
        if optional and name not in table:
            return None
        return _read(kind, taken, table.table(name) if name else table, value, {})

    usual = None if optional else kind() if default is None else default
    return Setting(key, usual, help, read_part, group=kind, fields=taken, live=live or not optional,
                   more=more)  # fmt: skip


def tables(
    key: str, kind: type, help: str = "", *, sample: str = "", name: str = "name",
    made: Callable[[Any], Any] = tuple, default: Sequence[Any] = (), **more: Any,
) -> Any:  # fmt: skip
    """The tables [key.NAME], each of the declared class, whose field `name` is NAME. `made` is what holds them.

    Those of `default` are there whether or not the file names them; what it says of one stands for that alone.
    """
    usual = {getattr(one, name): one for one in default}

    def read_tables(table: Table, key: str, _usual: Any) -> Any:
        named = table.table(key).tables() if key in table else {}
        found = [_read(kind, _DECLARED[kind], one, usual.get(word), {name: word}) for word, one in named.items()]
        return made([*found, *(one for word, one in usual.items() if word not in named)])

    return Setting(key, made(default), help, read_tables, group=kind, fields=_DECLARED[kind],
                   within=sample or next(iter(usual)), usual=usual, **more)  # fmt: skip


def tables_of_kinds(
    key: str, kinds: Mapping[str, Tuple[str, type]], help: str = "", *, made: Callable[[str, str, Any], Any],
    **more: Any,
) -> Any:  # fmt: skip
    """The tables [key.NAME], each of the declared class that its `kind` names; an example has a sample of each kind.
    `made` makes a value of the name, the kind and what the class reads.
    """

    def read_kinds(table: Table, name: str, _usual: Any) -> Any:
        found = {}
        for word, one in table.table(name).tables().items():
            one.require("kind")
            _sample, kind = one.choice("kind", kinds, next(iter(kinds.values())))
            one.refuse_others({"kind", *(setting.key for setting in _DECLARED[kind].values())})
            found[word] = made(word, one.text("kind"), _read(kind, _DECLARED[kind], one, None, {}))
        return found

    return Setting(key, {}, help, read_kinds, kinds=kinds, **more)


def tables_in_order(key: str, kind: type, help: str = "", **more: Any) -> Any:
    """The tables [[key]], each of the declared class."""

    def read_list(table: Table, key: str, usual: Any) -> Any:
        if key not in table:
            return usual
        return tuple(_read(kind, _DECLARED[kind], one, None, {}) for one in table.list_of_tables(key))

    return Setting(key, (), help, read_list, group=kind, fields=_DECLARED[kind], within="[]", **more)


def entries(
    key: str, read_one: Callable[[Table, str], Any], help: str = "", *, form: str = "text", shown: str = "",
    made: Callable[[Any], Any] = dict, **more: Any,
) -> Any:  # fmt: skip
    """A table whose keys are the site's own: each is read by `read_one`. `shown` is lines of an example."""

    def read_entries(table: Table, name: str, usual: Any) -> Any:
        if name not in table:
            return usual
        inner = table.table(name)
        return made({word: read_one(inner, word) for word in inner.names()})

    return Setting(key, made({}), help, read_entries, form, shown=shown, within="NAME", **more)


def by_word(
    key: str, words: Mapping[str, Any], item: Setting, default: Mapping[Any, Any], help: str = "", **more: Any
) -> Any:
    """A table with the same kind of value for each of some words, as a mapping of what the words stand for. A value
    that is None is left out.
    """

    def read_words(table: Table, name: str, usual: Any) -> Any:
        inner, found = table.table(name) if name else table, {}
        for word, meant in words.items():
            found[meant] = item.read(inner, word, usual.get(meant, item.default))
        return {meant: value for meant, value in found.items() if value is not None}

    return Setting(key, default, help, read_words, item.form, item.show, least=item.least, most=item.most,
                   words=words, fields={"": item}, **more)  # fmt: skip


def rest(help: str = "", **more: Any) -> Any:
    """All keys of the table that no other field names, as texts: settings of a plug-in, which judges them itself."""

    def read_rest(table: Table, _name: str, taken: Any) -> Any:
        return table.plain_texts(taken)

    return Setting("", {}, help, read_rest, "text", rest=True, **more)


def own(key: str, default: Any, read: Reader, help: str = "", *, group: Optional[type] = None, **more: Any) -> Any:
    """What a function reads from the table that `key` stands in, by a rule that no other form has. Without a form, or a
    `group` of whose fields it has `only` some, nothing of it is shown.
    """
    only = more.pop("only", ())
    if group is not None:
        more["fields"] = _fields(group, only)
    return Setting(key, default, help, read, group=group, **more)


def _fields(kind: type, only: Collection[str] = ()) -> Dict[str, Setting]:
    declared = _DECLARED.get(kind, {})
    return {name: setting for name, setting in declared.items() if not only or name in only}


# Reading.


def read(kind: Type[T], table: Table, default: Optional[T] = None, *, only: Collection[str] = (), **given: Any) -> T:
    """The values in a table, `given` those that no file has; of the fields only these. Raises SettingsError."""
    found: T = _read(kind, _fields(kind, only), table, default, given)
    return found


def _read(kind: Any, fields: Mapping[str, Setting], table: Table, default: Any, given: Dict[str, Any]) -> Any:
    values = dict(given) if default is None else {**default._asdict(), **given}
    for setting in fields.values():
        if setting.default is NEEDED and "." not in setting.key:
            table.require(setting.key)
    for name, setting in fields.items():
        at, key = table, setting.key
        while "." in key:
            word, _, key = key.partition(".")
            at = at.table(word)
        usual: Any = values[name] if default is not None else setting.default
        if setting.rest:
            usual = {other.key.partition(".")[0] for other in fields.values()}
        elif setting.absent is not None and key not in at:
            usual = setting.absent()
        values[name] = setting.read(at, key, usual)
    made = kind(**values)
    return made.checked(table) if hasattr(kind, "checked") else made


def whole(kind: Type[T], table: Table, **given: Any) -> T:
    """The same; a key that no field names is refused."""
    found: T = read(kind, table, **given)
    table.finish()
    return found


_FLAGS = {"yes": True, "true": True, "no": False, "false": False}


def of_texts(kind: Type[T], settings: Mapping[str, str], *where: str) -> T:
    """The values of a plug-in's own table, which it is given as texts: `yes` and `no` are flags, commas part a list,
    and an empty text is a key that is not there. `where` are the tables around it. Raises SettingsError.
    """
    forms = {one.key: one.form for one in reference(kind)}
    table = settings_file.of(settings, *where)
    table.refuse_others(forms)
    typed = {key: _typed(str(value), forms[key]) for key, value in settings.items() if str(value)}
    return whole(kind, settings_file.of(typed, *where))


def _typed(text: str, form: str) -> object:
    """What TOML would have for a text of this form; what makes no sense stays a text, which its reader refuses."""
    if form == "true or false":
        return _FLAGS.get(text.lower(), text)
    if form == "whole number":
        return int(text) if text.isascii() and text.isdigit() else text
    if form.startswith("list"):
        return [part.strip() for part in text.split(",") if part.strip()]
    return text


def reference(kind: type) -> Iterator[Reference]:
    """Every key of a declared class."""
    return _reference(_DECLARED[kind], "", None)


class AsOption(NamedTuple):
    """What a field is as an option of a command: its help, and what makes its value of a text (none for a flag), whose
    ValueError says what was expected; `many` where each text is one of a list.
    """

    help: str
    convert: Optional[Callable[[str], Any]]
    many: bool


def option_of(kind: type, field: str) -> AsOption:
    """A field of a declared class as an option of a command."""
    setting = _DECLARED[kind][field]
    key, listed = setting.key.rpartition(".")[2], "list" in setting.form

    def convert(text: str) -> Any:
        value: object = [text] if listed else _typed(text, setting.form)
        try:
            found = setting.read(settings_file.of({key: value}), key, setting.default)
        except settings_file.SettingsError as error:
            raise ValueError(error.problem) from None
        return next(iter(found)) if listed else found

    usual = (
        ""
        if setting.default in (None, NEEDED, "", (), False, True) or listed
        else setting.show(setting.default).strip('"')
    )
    more = "; ".join(filter(None, (_ends(setting), usual and f"default: {usual}")))
    text = f"{setting.help[:1].upper()}{setting.help[1:]}".rstrip(".") + (f" ({more})." if more else ".")
    return AsOption(text, None if setting.form == "true or false" else convert, listed)


class SettingsFile(_OfKind[T]):
    """A file of settings: its class, where it is, and how its example begins.

    `optional`: where no file is named and the usual one is not there, the defaults hold. `also` judges what only others
    can, as the settings of plug-ins, and raises SettingsError.
    """

    def __init__(
        self, kind: Type[T], path: str, head: str, *, optional: bool = False, intros: Mapping[str, str] = {},
        also: Optional[Callable[[T, Table], None]] = None,
    ) -> None:  # fmt: skip
        self.kind, self.path, self.head, self.optional, self.intros = kind, path, head, optional, intros
        self.also = also
        self.name = os.path.basename(path)

    def load(self, path: str = "", given: Sequence[str] = (), overrides: Mapping[str, Any] = {}) -> T:
        """The settings in a file, the usual one where none is named. `given` are `KEY=VALUE` of a command line, and
        `overrides` values by field of its options (`CommandOptions.overrides`); they stand for the file's. Raises
        SettingsError.
        """
        found: Any = self._load(path, given)
        if overrides:
            found = found._replace(**overrides)
            found = found.checked(settings_file.of({})) if hasattr(found, "checked") else found
        return found  # type: ignore[no-any-return]

    def _load(self, path: str, given: Sequence[str]) -> T:
        if not path and self.optional and not os.path.exists(self.path):
            found = self.read(settings_file.parse("", ""))
        else:
            found = self.read(settings_file.load(path or self.path))
        if not given:
            return found
        said = self._said(given)
        found = read(self.kind, said, found)
        said.finish()
        return found

    def check(self, path: str = "") -> str:
        """Read the file, the usual one where none is named; one line that nothing is wrong. Raises SettingsError."""
        if not path and self.optional and not os.path.exists(self.path):
            return f"no {self.path}: the defaults hold"
        file = settings_file.load(path or self.path)
        found = self.read(file)
        if self.also is not None:
            self.also(found, file)
        return f"{path or self.path}: nothing is wrong"

    def _said(self, given: Sequence[str]) -> Table:
        """`KEY=VALUE` each as a table. Of a key the last one counts; each is one of a list where the key is one."""
        forms = {one.key: one.form for one in self.reference()}
        said: Dict[str, Any] = {}
        for text in given:
            key, sign, value = text.partition("=")
            if not sign:
                raise settings_file.SettingsError(f"--set {text}: expected KEY=VALUE")
            at, form = said, forms.get(key, "")
            *path, last = key.split(".")
            for word in path:
                at = at.setdefault(word, {})
            if "list" in form:
                at[last] = [*at.get(last, []), value]
            else:
                at[last] = value if form == "text" else _toml_value(value)
        return settings_file.of(said, "--set")

    def parse(self, text: str, path: str = "") -> T:
        """The settings in a text. Raises SettingsError."""
        return self.read(settings_file.parse(text, path or self.name))

    def read(self, file: Table, **given: Any) -> T:
        """The settings in a file's tables, and what no file has. Raises SettingsError."""
        fields: Tuple[str, ...] = self.kind._fields  # type: ignore[attr-defined]
        if "path" in fields:
            given["path"] = file.path
        return whole(self.kind, file, **given)

    def example(self) -> str:
        """A file with every key and its default behind `#`; what a file has to name stands there without."""
        return _example(self.kind, self.head, self.intros)

    def reference(self) -> Iterator[Reference]:
        """Every key."""
        return reference(self.kind)


def _toml_value(text: str) -> object:
    """What a value is in TOML; a text without quotes is itself."""
    try:
        return toml_text.parse(f"value = {text}")["value"]
    except toml_text.BadToml:
        return text


# The example.


def _example(kind: type, head: str, intros: Mapping[str, str]) -> str:
    tables: Dict[str, List[str]] = {"": []}
    live: Dict[str, bool] = {"": True}
    starts: Dict[str, List[str]] = {name: _comment(text) for name, text in intros.items()}
    ends: Dict[str, List[str]] = {}

    def walk(fields: Mapping[str, Setting], prefix: str, shown: bool, default: Any) -> None:
        for name, setting in fields.items():
            whole = ".".join(filter(None, (prefix, setting.key)))
            usual: Any = setting.default if default is None else getattr(default, name)
            if setting.within == "[]" or (setting.group is not None and setting.key):
                there = setting.usual or {setting.within: None if setting.within else usual}
                for sample, known in there.items():
                    inner = f"[{whole}]" if sample == "[]" else ".".join(filter(None, (whole, sample)))
                    tables.setdefault(inner, [])
                    live[inner] = shown and setting.live
                    starts.setdefault(inner, _comment(setting.help if sample == setting.within else ""))
                    ends[inner] = _comment(setting.more, verbatim=True)
                    walk(setting.fields, whole if inner[0] == "[" else inner, live[inner], known)
            elif setting.group is not None:
                walk(setting.fields, prefix, shown, usual)
            elif setting.kinds:
                for word, (sample, kind) in setting.kinds.items():
                    inner = f"{whole}.{sample}"
                    needed = [one for one in _DECLARED[kind].values() if one.default is NEEDED]
                    live[inner] = shown and not any(one.form == "file with a secret" for one in needed)
                    tables[inner] = [f'{"" if live[inner] else "# "}kind = "{word}"']
                    starts[inner] = _comment(setting.help if word == next(iter(setting.kinds)) else "")
                    walk(_DECLARED[kind], inner, live[inner], None)
            elif setting.words:
                tables.setdefault(whole, [])
                live.setdefault(whole, shown)
                starts.setdefault(whole, _comment(setting.help))
                item = setting.fields[""]
                for word, meant in setting.words.items():
                    value: Any = usual.get(meant, item.default)
                    tables[whole] += [] if value is None else _rows(item, word, value, shown)
            elif setting.within:
                text = setting.shown or ("" if setting.show is _json else setting.show(usual))
                tables.setdefault(whole, []).extend(
                    line if shown and setting.live else f"# {line}" for line in text.splitlines()
                )
                live.setdefault(whole, shown)
                starts.setdefault(whole, _comment(setting.help))
            elif setting.form or setting.rest:
                at, key = (prefix, "") if setting.rest else whole.rpartition(".")[::2]
                at = f"[{at}]" if f"[{at}]" in tables else at
                live.setdefault(at, shown)
                rows, more = tables.setdefault(at, []), _rows(setting, key, usual, shown)
                rows += ["", *more] if rows and len(more) > 1 else more

    walk(_DECLARED[kind], "", True, None)
    lines = _comment(head)
    for name, rows in tables.items():
        if not rows and not ends.get(name) and not starts.get(name):
            continue
        own = any(row[:1] == "[" or row[:3] == "# [" for row in rows)
        title = [f"{'' if live[name] else '# '}[{name}]"] if name and not own else []
        lines += ["", *starts.get(name, []), *title, *rows]
        lines += ["#" * bool(rows), *ends[name]] if ends.get(name) else []
    return "\n".join(lines) + "\n"


def _rows(setting: Setting, key: str, usual: Any, live: bool) -> List[str]:
    if setting.rest:
        return [*_comment(setting.help), *(line if live and setting.live else f"# {line}"
                                           for line in setting.shown.splitlines())]  # fmt: skip
    mark = "" if live and (usual is NEEDED or setting.live) else "# "
    example = setting.shown if usual is NEEDED or usual == setting.default else ""
    value = example or ("" if usual is None else setting.show(usual))
    row = f"{mark}{key} = {value}"
    if len(row) > WIDTH and value.startswith("["):
        row = f"{mark}{key} = [\n{mark}    " + value[1:-1].replace('", "', f'",\n{mark}    "') + f",\n{mark}]"
        return [*_comment(setting.help), *row.splitlines()]
    beside = f"{row:{COLUMN - 1}} # {setting.help}" if setting.help else row
    return [beside] if len(beside) <= WIDTH else [*_comment(setting.help), row]


def _comment(text: str, verbatim: bool = False) -> List[str]:
    """Paragraphs as lines that begin with `#`."""
    import textwrap

    if verbatim:
        return [f"# {line}".rstrip() for line in text.strip("\n").splitlines()]
    lines: List[str] = []
    for paragraph in filter(None, text.strip().split("\n\n")):
        lines += [
            *(["#"] if lines else []),
            *textwrap.wrap(paragraph, WIDTH, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False),
        ]
    return lines


# The reference page.


class Reference(NamedTuple):
    """A key with the tables around it, what its value is, its bounds, its default as TOML, and what it means."""

    key: str
    form: str
    bounds: str
    default: str
    help: str
    setting: Setting


def _reference(fields: Mapping[str, Setting], prefix: str, default: Any) -> Iterator[Reference]:
    for name, setting in fields.items():
        within = "NAME" if setting.within and setting.within != "[]" else ""
        whole = ".".join(filter(None, (prefix, setting.key, within))) + ("[]" if setting.within == "[]" else "")
        usual: Any = setting.default if default is None else getattr(default, name)
        if setting.group is not None:
            yield from _reference(setting.fields, whole, None if setting.within else usual)
            continue
        for word, (_sample, kind) in setting.kinds.items():
            yield from _reference(_DECLARED[kind], f"{whole}.NAME({word})", None)
        if not setting.form:
            continue
        if setting.words:
            item = setting.fields[""]
            for word, meant in setting.words.items():
                value: Any = usual.get(meant, item.default)
                shown = "" if value is None else item.show(value)
                yield Reference(f"{whole}.{word}", item.form, _ends(item), shown, setting.help, item)
            continue
        none = usual is None or usual is NEEDED or setting.within or setting.rest
        shown = "needed" if usual is NEEDED else "" if none else setting.show(usual)
        key = f"{prefix}.*" if setting.rest else whole
        yield Reference(key, setting.form, _ends(setting), shown, setting.help, setting)


def _ends(setting: Setting) -> str:
    ends = (("from", setting.least or None), ("to", setting.most))
    return " ".join(f"{word} {setting.show(end)}".replace('"', "") for word, end in ends if end is not None)
