"""Numbers as configurations write them: sizes, counts, durations, percentages; whole numbers as others write them.

Each function takes the text and returns a number, or raises ValueError saying what was expected. `one_of` makes one.
They serve as converters of check parameters (`nhc.core.check.Param`).
"""

from __future__ import annotations

from nhc.core.light import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Callable, Iterable, Optional, Tuple

# No regular expressions: nearly every run reads a size or two, few need `re` (docs/performance.md).
_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_POWER = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5, "e": 6}
_LARGEST = 1e24
"""Above it a number is a slip of the hand: a million exabytes. 310 digits are no float any more."""
_DIGITS = 20
"""Digits of 2**64."""
_LONGEST = 1e9
"""Seconds, some thirty years."""
_SECONDS = {"ms": 0.001, "": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}


def text(value: str) -> str:
    """Any text, as it is."""
    return value


def one_of(words: Iterable[str]) -> Callable[[str], str]:
    """A converter that takes these words alone; its error lists them in this order."""
    known = tuple(words)

    def word(value: str) -> str:
        if value not in known:
            raise ValueError(f"{value!r} is not one of {', '.join(known)}")
        return value

    return word


def integer(value: str) -> int:
    """A whole decimal number, negative ones included; `08` is eight (never octal)."""
    try:
        parsed = int(value, 10)
    except ValueError:
        raise ValueError(f"{_quoted(value)} is not a whole number") from None
    return int(_bounded(parsed, value))


def whole(value: str) -> int:
    """A whole decimal number, 0 or more: how many of something there are."""
    parsed = integer(value)
    if parsed < 0:
        raise ValueError(f"{value!r} is below 0: expected a whole number, 0 or more")
    return parsed


def whole_of_digits(value: object) -> Optional[int]:
    """A whole number of 64 bits that others wrote in ASCII digits, None for any other value.

    `int` takes digits of every script. It raises ValueError for more than 4,300 of them (Python 3.11), and for "²",
    which `str.isdigit` lets pass.
    """
    digits = str(value)
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS else None


def number(value: str) -> float:
    """A decimal number that is not negative."""
    if not _is_number(value):
        raise ValueError(f"{_quoted(value)} is not a number")
    return _bounded(float(value), value)


def size_kb(value: str) -> int:
    """A size in kB, 1024-based, `k` where no unit is given: LBNL NHC's sizes. `1.5G` is 1572864."""
    amount, unit = _size(value)
    if unit == "b":
        return int(-(-amount // 1024))  # "4096B" says bytes outright; "1b" is more than nothing
    return int(_bounded(amount * 1024 ** ((_POWER.get(unit[:1]) or 1) - 1), value))


def size_bytes(value: str) -> int:
    """A size in bytes, 1024-based, bytes where no unit is given."""
    amount, unit = _size(value)
    return int(_bounded(amount * 1024 ** _POWER.get(unit[:1], 0), value))


def _size(value: str) -> Tuple[float, str]:
    amount, unit = _apart(value)
    prefix = unit[:1] if unit[:1] in _POWER else ""
    if amount is None or unit[len(prefix) :] not in ("", "b", "ib"):
        raise ValueError(f"{_quoted(value)} is not a size (a number with k, M, G, T, P or E, as in 64GB)")
    return amount, unit


def count(value: str) -> int:
    """A count, 1000-based: `10k` is 10000."""
    amount, unit = _apart(value)
    if amount is None or unit not in _POWER:
        raise ValueError(f"{_quoted(value)} is not a count (a number with k, M, G, T, P or E, as in 10k)")
    return int(_bounded(amount * 1000 ** _POWER[unit], value))


def seconds(value: str) -> float:
    """A duration in seconds: `90`, `500ms`, `2m`, `1.5h`, `1d`, `1w`."""
    amount, unit = _apart(value)
    if amount is None or unit not in _SECONDS:
        raise ValueError(f"{_quoted(value)} is not a duration (a number with ms, s, m, h, d or w, as in 10s)")
    return _bounded(amount * _SECONDS[unit], value, _LONGEST)


def percent(value: str) -> float:
    """A percentage, 0 to 100, the sign optional."""
    digits = value[:-1] if value.endswith("%") else value
    if not _is_number(digits) or float(digits) > 100:
        raise ValueError(f"{_quoted(value)} is not a percentage (0 to 100)")
    return float(digits)


def _bounded(parsed: float, value: str, most: float = _LARGEST) -> float:
    """The number, where it is one that can be meant."""
    if not -most <= parsed <= most:
        raise ValueError(f"{_quoted(value)} is too large")
    return parsed


def _quoted(value: str) -> str:
    """What was written, as a message quotes it."""
    return repr(value if len(value) <= 60 else f"{value[:40]}...{value[-10:]}")


def _apart(value: str) -> Tuple[Optional[float], str]:
    """`1.5 GB` as 1.5 and `gb`; None where it does not begin with a number, or holds more than the two."""
    number = value.rstrip(_LETTERS)
    unit = value[len(number) :].lower()
    number = number.rstrip()
    return (float(number) if _is_number(number) else None), unit


def _is_number(value: str) -> bool:
    """Whether it is decimal digits, and digits again behind a point where there is one."""
    whole, point, part = value.partition(".")
    return whole.isdecimal() and (part.isdecimal() or not point)


def show_kb(kilobytes: float) -> str:
    """A size in kB for a person: the largest unit that loses at most a tenth. 1572864 is `1536MB`."""
    value, unit = _scale(int(kilobytes), 1024, 5)
    return f"{value}{'kMGTPE'[unit]}B"


def show_size(kilobytes: float) -> str:
    """A size in kB as a person says it: `18.1GB`, `512MB`. Messages that LBNL NHC has too use `show_kb`."""
    value, unit = float(kilobytes), 0
    while value >= 1023.95 and unit < 5:
        value, unit = value / 1024, unit + 1
    text = f"{value:.1f}"
    return f"{text[:-2] if text.endswith('.0') else text}{'kMGTPE'[unit]}B"


def show_count(value: int) -> str:
    """A count for a person: the largest unit that loses at most a tenth. 1500000 is `1500k`, 10000 `10k`."""
    value, unit = _scale(value, 1000, 6)
    return f"{value}{('', 'k', 'M', 'G', 'T', 'P', 'E')[unit]}"


def _scale(value: int, step: int, last: int) -> Tuple[int, int]:
    """`value` in a larger unit, and which: LBNL NHC's rule to the digit, as its messages quote the result."""
    unit = lost = 0
    while value >= step and unit < last:
        share = value % step * 100 // step
        if (100 - share if share > 50 else share) > 10:
            break
        value, lost, unit = value // step, value % step, unit + 1
    return value + (lost >= step // 2 and unit > 0), unit


def show_age(seconds: float) -> str:
    """How long ago, in the largest unit that fits: `90s`, `12m`, `7h`, `3d`."""
    seconds = max(0.0, seconds)
    for unit, size in (("d", 86400.0), ("h", 3600.0), ("m", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds:.0f}s"


def show_number(number: int, noun: str) -> str:
    """How many of something, for a person: `1 node`, `2 nodes`. The noun is one that takes an s."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def show_seconds(value: float) -> str:
    """A duration for a person: `850ms`, `9.5s`, `4m10s`, `3h20m`, `12d4h`."""
    if value < 1:
        return f"{value * 1000:.0f}ms"
    if value < 60:
        return f"{value:.1f}s".replace(".0s", "s")
    whole = int(value)
    for big, name, small, below in ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if whole >= big:
            rest = whole % big // small
            return f"{whole // big}{name}{f'{rest}{below}' if rest else ''}"
    return f"{whole}s"
