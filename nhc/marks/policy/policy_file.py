"""A policy as TOML (conf/policy.toml.example), read into `nhc.marks.policy.decide.Policy`.

    apply = false
    [bounds.fleet]
    out = "10%"
    [bounds.fleet.rate]
    mark = "20 per 1h"
    [repair]
    allow = ["reboot"]

Every mistake is one line that names the file, the line, the key, the value and what was expected.
"""

from __future__ import annotations

import os
from typing import NamedTuple, Optional

from nhc.core.limits import read_limit
from nhc.core.settings import settings_file
from nhc.marks.policy.bounds import Bounds
from nhc.marks.policy.bounds_file import read_bounds
from nhc.marks.policy.decide import Policy
from nhc.marks.ports.adapter import Operation

PATH = "/etc/nhc/policy.toml"
REPAIRS = {"reboot": Operation.REBOOT, "replace": Operation.REPLACE}


BOUNDS = Policy().bounds


class PolicyFile(NamedTuple):
    """A policy, and whether it is carried out without `--apply`."""

    policy: Policy = Policy()
    apply: bool = False


def policy_of(path: Optional[str] = None, max_drained: Optional[str] = None) -> PolicyFile:
    """The policy of a command line: a file, the usual one where it is there, or the defaults, with its own ceiling.

    Raises SettingsError, ValueError.
    """
    path = path or (PATH if os.path.exists(PATH) else None)
    settings = load(path) if path else PolicyFile()
    if not max_drained:
        return settings
    try:
        bound = read_limit(max_drained)
    except ValueError as error:
        raise ValueError(f"--max-drained: {error}") from None
    return settings._replace(policy=settings.policy.with_ceiling(bound))


def load(path: str, bounds: Bounds = BOUNDS) -> PolicyFile:
    """Read a file; `bounds` holds where the file says nothing. Raises SettingsError."""
    return read(settings_file.load(path), bounds)


def parse(text: str, path: str = "policy") -> PolicyFile:
    """The policy in a TOML text. Raises SettingsError."""
    return read(settings_file.parse(text, path))


def read(file: settings_file.Table, bounds: Bounds = BOUNDS) -> PolicyFile:
    """The policy in a file's tables. Raises SettingsError."""
    default, repair = Policy(), file.table("repair")
    policy = Policy(
        bounds=read_bounds(file, bounds),
        count_all=file.flag("count-all"),
        repairs=frozenset(repair.choices("allow", REPAIRS)),
        cooldown=repair.seconds("cooldown", default.cooldown),
        max_age=file.seconds("max-age", default.max_age),
        healthy_for=file.seconds("healthy-for", default.healthy_for),
    )
    apply = file.flag("apply")
    file.finish()
    return PolicyFile(policy, apply)
