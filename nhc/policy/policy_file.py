"""A policy as TOML (conf/policy.toml.example), read into `nhc.policy.decide.Policy`.

    apply = false
    [ceiling]
    all = "10%"
    gpu = "4 25%"
    [rate]
    mark = "20 per 1h"
    [repair]
    allow = ["reboot"]

Every mistake is one line that names the file, the line, the key, the value and what was expected.
"""

from __future__ import annotations

from typing import NamedTuple

from nhc.policy.decide import Policy
from nhc.policy.limits import Rate, read_limit, read_rate
from nhc.ports.adapter import Operation
from nhc.settings import settings_file

REPAIRS = {"reboot": Operation.REBOOT, "replace": Operation.REPLACE}


class PolicyFile(NamedTuple):
    """A policy, and whether it is carried out without `--apply`."""

    policy: Policy = Policy()
    apply: bool = False


def load(path: str) -> PolicyFile:
    """Read a file. Raises SettingsError."""
    return read(settings_file.load(path))


def parse(text: str, path: str = "policy") -> PolicyFile:
    """The policy in a TOML text. Raises SettingsError."""
    return read(settings_file.parse(text, path))


def read(file: settings_file.Table) -> PolicyFile:
    """The policy in a file's tables. Raises SettingsError."""
    default = Policy()
    ceiling, rates, repair = file.table("ceiling"), file.table("rate"), file.table("repair")
    ceilings = {name: ceiling.converted(name, read_limit, default.ceiling) for name in ceiling.names()}
    policy = Policy(
        ceiling=ceilings.pop("all", default.ceiling),
        groups=ceilings,
        count_all=file.flag("count-all"),
        rates={one: rates.converted(one.value, read_rate, Rate(0, 0.0)) for one in Operation if one.value in rates},
        repairs=frozenset(repair.choices("allow", REPAIRS)),
        cooldown=repair.seconds("cooldown", default.cooldown),
        attempts=repair.count("attempts", default.attempts),
        window=repair.seconds("window", default.window),
        protected=file.texts("protected"),
        max_age=file.seconds("max-age", default.max_age),
        healthy_for=file.seconds("healthy-for", default.healthy_for),
    )
    apply = file.flag("apply")
    file.finish()
    return PolicyFile(policy, apply)
