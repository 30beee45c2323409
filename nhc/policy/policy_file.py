"""A policy as TOML (conf/policy.toml.example), read into `nhc.policy.decide.Policy`.

    apply = false
    [ceiling]
    all = "10%"
    gpu = "4 25%"
    [rate]
    mark = "20 per 1h"
    [repair]
    allow = ["reboot"]

Every mistake is one line that names the file, the key, the value and what was expected.
"""

from __future__ import annotations

import re
from typing import Any, Callable, Dict, List, Mapping, NamedTuple

from nhc import toml_text
from nhc.policy.decide import Policy, Rate, read_ceiling
from nhc.ports import Operation
from nhc.system.bounded_read import cause, read_text
from nhc.units import seconds

REPAIRS = {"reboot": Operation.REBOOT, "replace": Operation.REPLACE}


class PolicyError(ValueError):
    """A policy that cannot be used, in one line."""


class PolicyFile(NamedTuple):
    """A policy, and whether it may be carried out without being told so on the command line."""

    policy: Policy = Policy()
    apply: bool = False


def load(path: str) -> PolicyFile:
    """Read a file. Raises PolicyError."""
    try:
        text = read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        raise PolicyError(f"{path}: {cause(error)}") from None
    return parse(text, path)


def parse(text: str, path: str = "policy") -> PolicyFile:
    """The policy in a TOML text. Raises PolicyError."""
    try:
        value = toml_text.parse(text)
    except (toml_text.BadToml, toml_text.NoToml) as error:
        raise PolicyError(f"{path}: {error}") from None
    return _Reader(path).read(value)


def rate(text: str) -> Rate:
    """`20 per 1h`. Raises ValueError."""
    match = re.fullmatch(r"\s*(\d+)\s+per\s+(\S+)\s*", text)
    if match is None:
        raise ValueError(f"{text!r} is not a rate such as '20 per 1h'")
    return Rate(int(match[1]), seconds(match[2]))


class _Reader:
    """Reads the tables one by one, and refuses every key that it does not know."""

    def __init__(self, path: str) -> None:
        self.path = path

    def fail(self, key: str, expected: str) -> PolicyError:
        return PolicyError(f"{self.path}: {key}: {expected}")

    def read(self, value: Dict[str, Any]) -> PolicyFile:
        keys = {"apply", "protected", "max-age", "healthy-for", "count-all", "ceiling", "rate", "repair"}
        self.known("", value, keys)
        ceilings = {
            name: self.convert(f"ceiling.{name}", read_ceiling, text)
            for name, text in self.table(value, "ceiling").items()
        }
        rates = self.table(value, "rate")
        self.known("rate.", rates, {operation.value for operation in Operation})
        repair = self.table(value, "repair")
        self.known("repair.", repair, {"allow", "cooldown", "attempts", "window"})
        default = Policy()
        policy = Policy(
            ceiling=ceilings.pop("all", default.ceiling),
            groups=ceilings,
            count_all=self.flag(value, "count-all"),
            rates={Operation(name): self.convert(f"rate.{name}", rate, text) for name, text in rates.items()},
            repairs=frozenset(self.repair(word) for word in self.words(repair, "allow", "repair.")),
            cooldown=self.seconds(repair, "cooldown", default.cooldown, "repair."),
            attempts=self.count(repair, "attempts", default.attempts),
            window=self.seconds(repair, "window", default.window, "repair."),
            protected=tuple(self.words(value, "protected")),
            max_age=self.seconds(value, "max-age", default.max_age),
            healthy_for=self.seconds(value, "healthy-for", default.healthy_for),
        )  # fmt: skip
        return PolicyFile(policy, self.flag(value, "apply"))

    def known(self, where: str, table: Mapping[str, Any], keys: set[str]) -> None:
        for key in table:
            if key not in keys:
                from difflib import get_close_matches

                near = get_close_matches(key, sorted(keys), 1)
                hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(sorted(keys))}"
                raise self.fail(f"{where}{key}", f"there is no such key: {hint}")

    def table(self, value: Mapping[str, Any], key: str) -> Dict[str, Any]:
        found = value.get(key, {})
        if not isinstance(found, dict):
            raise self.fail(key, f"{found!r} is not a table")
        return found

    def flag(self, value: Mapping[str, Any], key: str) -> bool:
        found = value.get(key, False)
        if not isinstance(found, bool):
            raise self.fail(key, f"{found!r} is neither true nor false")
        return found

    def words(self, value: Mapping[str, Any], key: str, where: str = "") -> List[str]:
        found = value.get(key, [])
        if not isinstance(found, list) or not all(isinstance(word, str) for word in found):
            raise self.fail(f"{where}{key}", f"{found!r} is not a list of texts")
        return found

    def count(self, value: Mapping[str, Any], key: str, default: int) -> int:
        found: object = value.get(key, default)
        if isinstance(found, bool) or not isinstance(found, int) or found < 0:
            raise self.fail(f"repair.{key}", f"{found!r} is not a whole number")
        return found

    def seconds(self, value: Mapping[str, Any], key: str, default: float, where: str = "") -> float:
        return default if key not in value else self.convert(f"{where}{key}", seconds, value[key])

    def repair(self, word: str) -> Operation:
        if word not in REPAIRS:
            raise self.fail("repair.allow", f"{word!r} is not one of {', '.join(REPAIRS)}")
        return REPAIRS[word]

    def convert(self, key: str, function: Callable[[str], Any], value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            raise self.fail(key, f"{value!r} is not a text")
        try:
            return function(str(value))
        except ValueError as error:
            raise self.fail(key, str(error)) from None
