"""A settings file in TOML: typed values out of its tables, and every mistake one line with file, line and key.

    file = settings_file.load("/etc/nhc/policy.toml")
    apply = file.flag("apply")                                    # false where the file says nothing
    age = file.seconds("max-age", 3600.0, least=1.0)              # "10m" or 600
    share = file.share("jitter", 0.05)                            # "5%" is 0.05
    limit = file.size("rotate-at", 64 << 20)                      # "64MB", in bytes
    form = file.choice("format", {"json": JSON, "text": TEXT}, JSON)
    rate = file.converted("rate", parse_rate, DEFAULT)            # any function of a text that raises ValueError
    repair = file.table("repair")                                 # [repair], empty where there is none
    allow = repair.choices("allow", {"reboot": Operation.REBOOT}) # a list of such words
    for name, rule in file.table("rules").tables().items():       # [rules.NAME] each
        rule.require("match")
        ...
    for rule in file.list_of_tables("rule"):                      # [[rule]] each
        ...
    raise rule.wrong("match", "a pattern")                        # what only the caller can judge, in the same form
    file.finish()                                                 # last: refuses every key that nobody asked for

A mistake reads `/etc/nhc/policy.toml:3: repair.cooldown: 'soon' is not a duration (...)`. A key counts as known once
it was asked for, so what is read and what is allowed are never two lists; `finish` looks at every table that was
taken out. All functions raise SettingsError.
"""

from __future__ import annotations

from nhc.core.exit_status import EXIT_USAGE, ExpectedError
from nhc.core.light import TYPE_CHECKING
from nhc.core.settings import toml_text
from nhc.core.system.bounded_read import cause, read_text
from nhc.core.units import percent, seconds, show_seconds, show_size, size_bytes

if TYPE_CHECKING:
    from typing import (
        Callable,
        Collection,
        Dict,
        FrozenSet,
        Iterable,
        List,
        Mapping,
        Optional,
        Sequence,
        Set,
        Tuple,
        TypeVar,
    )

    T = TypeVar("T")


class SettingsError(ExpectedError, ValueError):
    """Settings that cannot be used: one line for a person. `key` and `problem` are its parts where it is about one."""

    status = EXIT_USAGE

    def __init__(self, line: str, key: str = "", problem: str = "") -> None:
        super().__init__(line)
        self.key, self.problem = key, problem


def load(path: str) -> Table:
    """The settings in a file. Raises SettingsError."""
    return parse(text_of(path), path)


def text_of(path: str) -> str:
    """A settings file's text, where not only the values count. Raises SettingsError."""
    try:
        return read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: {cause(error)}") from None


def parse(text: str, path: str) -> Table:
    """The settings in a text; `path` is what messages call it."""
    try:
        value = toml_text.parse(text)
    except (toml_text.BadToml, toml_text.NoToml) as error:
        raise SettingsError(f"{path}: {' '.join(str(error).split())}") from None
    return Table(_File(path, text), value, ())


def of(value: Mapping[str, object], *where: str) -> Table:
    """A table that was read before, as a sink is given its own; messages name `where` and the key, and no file."""
    return Table(_File("", ""), value, where)


class _File:
    """The name of a file, and where its keys stand: worked out when there is something to complain of."""

    def __init__(self, path: str, text: str) -> None:
        self.path, self.text = path, text

    def place(self, where: toml_text.Path) -> str:
        """`policy.toml:3: `: the line of the key, or of the table around it."""
        if not self.path:
            return ""
        known = toml_text.lines(self.text)
        for length in range(len(where), 0, -1):
            if where[:length] in known:
                return f"{self.path}:{known[where[:length]]}: "
        return f"{self.path}: "


class Table:
    """One table of a settings file. A function that reads a key returns `default` where the file does not name it."""

    def __init__(self, file: _File, value: Mapping[str, object], where: toml_text.Path) -> None:
        self._file, self._value, self._where = file, value, where
        self._asked: Set[str] = set()
        self._taken: Dict[toml_text.Path, Table] = {}

    @property
    def path(self) -> str:
        """The file's name."""
        return self._file.path

    def __contains__(self, key: str) -> bool:
        self._asked.add(key)
        return key in self._value

    @property
    def known(self) -> FrozenSet[str]:
        """The keys that were asked for so far."""
        return frozenset(self._asked)

    def names(self) -> Tuple[str, ...]:
        """Its keys, all of which count as asked for: where names are the site's own."""
        self._asked.update(self._value)
        return tuple(self._value)

    # One value.

    def flag(self, key: str, default: bool = False) -> bool:
        """`true` or `false`."""
        if key not in self:
            return default
        value = self._value[key]
        if not isinstance(value, bool):
            raise self.error(key, f"{_quoted(value)} is neither true nor false")
        return value

    def text(self, key: str, default: str = "") -> str:
        """Any text."""
        if key not in self:
            return default
        value = self._value[key]
        if not isinstance(value, str):
            raise self.wrong(key, "a text")
        return value

    def secret(self, key: str, default: str = "") -> str:
        """A text that no message shows."""
        if key in self and not isinstance(self._value[key], str):
            raise self.error(key, "the value (not shown) is not a text")
        return self.text(key, default)

    def count(self, key: str, default: int, least: int = 0, most: Optional[int] = None) -> int:
        """A whole number from `least` to `most`."""
        if key not in self:
            return default
        value = self._value[key]
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.wrong(key, "a whole number")
        self._bounded(key, value, least, most, _plain)
        return value

    def number(self, key: str, default: float, least: Optional[float] = None, most: Optional[float] = None) -> float:
        """A number from `least` to `most`."""
        if key not in self:
            return default
        value = self._value[key]
        if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value:  # nan is no number
            raise self.wrong(key, "a number")
        self._bounded(key, value, least, most, _plain)
        return float(value)

    def seconds(self, key: str, default: float, least: float = 0.0, most: Optional[float] = None) -> float:
        """A duration in seconds: `"10m"`, or a number."""
        return self._measured(key, seconds, default, least, most, show_seconds, "a duration, as in 10m")

    def size(self, key: str, default: int, least: int = 0, most: Optional[int] = None) -> int:
        """A size in bytes: `"64MB"`, or a number."""
        return int(self._measured(key, size_bytes, default, least, most, _bytes, "a size, as in 64MB"))

    def share(self, key: str, default: float, least: float = 0.0, most: float = 1.0) -> float:
        """A share from 0 to 1: `"10%"` or `10` is 0.1."""
        return self._measured(
            key,
            lambda text: percent(text) / 100,
            default,
            least,
            most,
            lambda share: f"{share * 100:.4g}%",
            "a share, as in 10%",
        )

    def choice(self, key: str, choices: Mapping[str, T], default: T) -> T:
        """What one word of several stands for."""
        return self._chosen(key, self._value[key], choices) if key in self else default

    def converted(self, key: str, convert: Callable[[str], T], default: T) -> T:
        """What a function makes of a text or a number; its ValueError says what was expected."""
        if key not in self:
            return default
        value = self._value[key]
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            raise self.wrong(key, "a text")
        try:
            return convert(str(value))
        except ValueError as error:
            raise self.error(key, str(error)) from None

    def plain(self, key: str) -> str:
        """A text, a number or a truth value, as text: a plug-in's own setting, which it judges itself."""
        value = self._value.get(key, "") if key in self else ""
        return str(value).lower() if isinstance(value, bool) else self.converted(key, str, "")

    def plain_texts(self, but: Collection[str] = ()) -> Dict[str, str]:
        """All keys but these in that way."""
        return {key: self.plain(key) for key in self.names() if key not in but}

    # Lists.

    def texts(self, key: str, default: Sequence[str] = ()) -> Tuple[str, ...]:
        """A list of texts."""
        if key not in self:
            return tuple(default)
        value = self._value[key]
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.wrong(key, "a list of texts")
        return tuple(value)

    def text_or_texts(self, key: str, default: Sequence[str] = ()) -> Tuple[str, ...]:
        """A list of texts; a single text stands for a list of one."""
        if key in self and isinstance(self._value[key], str):
            return (self.text(key),)
        return self.texts(key, default)

    def choices(self, key: str, choices: Mapping[str, T], default: Sequence[T] = ()) -> Tuple[T, ...]:
        """What each word of a list stands for."""
        if key not in self:
            return tuple(default)
        return tuple(self._chosen(key, text, choices) for text in self.texts(key))

    # Tables.

    def table(self, key: str) -> Table:
        """A table within this one, empty where the file has none."""
        value = self._value[key] if key in self else {}
        if not isinstance(value, dict):
            raise self.wrong(key, "a table")
        return self._take(value, (*self._where, key))

    def tables(self) -> Dict[str, Table]:
        """The tables within this one by name; it may hold nothing else."""
        return {name: self.table(name) for name in self.names()}

    def list_of_tables(self, key: str) -> List[Table]:
        """The tables [[key]], in order; messages count them from 1."""
        value = self._value[key] if key in self else []
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise self.wrong(key, f"a list of tables, [[{key}]] each")
        return [self._take(item, (*self._where, key, number)) for number, item in enumerate(value)]

    def raw(self) -> Mapping[str, object]:
        """The whole table, for a caller that reads it by rules of its own; every key then counts as asked for."""
        self.names()
        return self._value

    # Mistakes.

    def require(self, *keys: str) -> None:
        """Refuses a table that lacks one of these keys."""
        for key in keys:
            if key not in self:
                problem = "missing, and it is needed"
                raise SettingsError(f"{self._file.place(self._where)}{self.name(key)}: {problem}", key, problem)

    def wrong(self, key: str, expected: str) -> SettingsError:
        """`FILE:LINE: KEY: VALUE is not EXPECTED`, to be raised."""
        return self.error(key, f"{_quoted(self._value.get(key))} is not {expected}")

    def error(self, key: str, problem: str) -> SettingsError:
        """`FILE:LINE: KEY: PROBLEM`, to be raised."""
        return SettingsError(f"{self.place(key)}{self.name(key)}: {problem}", key, problem)

    def place(self, key: str) -> str:
        """`FILE:LINE: ` of a key, or of the table around it."""
        return self._file.place((*self._where, key))

    def name(self, key: str) -> str:
        """A key with the tables around it: `repair.cooldown`, `rule[2].match`."""
        whole = ""
        for part in (*self._where, key):
            whole += f"[{part + 1}]" if isinstance(part, int) else f".{part}" if whole else part
        return whole

    def finish(self) -> None:
        """Refuses the first key, here and in every table that was taken out, that nobody asked for."""
        self.refuse_others(self._asked)
        for table in self._taken.values():
            table.finish()

    def refuse_others(self, known: Collection[str]) -> None:
        """Refuses the first key that is not among these."""
        for key in self._value:
            if key not in known:
                raise self.error(key, f"there is no such key: {_hint(key, known)}")

    def _take(self, value: Mapping[str, object], where: toml_text.Path) -> Table:
        return self._taken.setdefault(where, Table(self._file, value, where))

    def _chosen(self, key: str, value: object, choices: Mapping[str, T]) -> T:
        if not isinstance(value, str) or value not in choices:
            raise self.error(key, f"{_quoted(value)} is not one of {', '.join(choices)}")
        return choices[value]

    def _measured(
        self, key: str, convert: Callable[[str], float], default: float, least: float, most: Optional[float],
        show: Callable[[float], str], expected: str,
    ) -> float:  # fmt: skip
        if key not in self:
            return default
        if isinstance(self._value[key], bool):
            raise self.wrong(key, expected)
        value = self.converted(key, convert, default)
        self._bounded(key, value, least, most, show)
        return value

    def _bounded(
        self, key: str, value: float, least: Optional[float], most: Optional[float], show: Callable[[float], str]
    ) -> None:
        if least is not None and value < least:
            raise self.error(key, f"{_quoted(self._value[key])} is too small: expected {show(least)} or more")
        if most is not None and value > most:
            raise self.error(key, f"{_quoted(self._value[key])} is too large: expected {show(most)} or less")


def _plain(value: float) -> str:
    return f"{value:.15g}"


def _bytes(value: float) -> str:
    return show_size(value / 1024) if value >= 1024 else f"{value:.0f} bytes"


def _quoted(value: object) -> str:
    """A value as a message quotes it: not all of a long one, and on one line."""
    text = str(value).lower() if isinstance(value, bool) else repr(value)
    return text if len(text) <= 80 else f"{text[:60]}...{text[-10:]}"


def _hint(key: str, known: Iterable[str]) -> str:
    from difflib import get_close_matches

    names = sorted(known)
    near = get_close_matches(key, names, 1)
    return f"did you mean {near[0]!r}?" if near else f"known are {', '.join(names)}" if names else "none is known here"
