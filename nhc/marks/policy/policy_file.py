"""A policy as TOML (conf/policy.toml.example): `nhc.marks.policy.mark_decision.Policy`."""

from __future__ import annotations

import os
from typing import NamedTuple, Optional

from nhc.core.limits import read_limit
from nhc.core.settings import declared, settings_file
from nhc.core.settings.settings_file import Table
from nhc.marks.policy.bounds import Bounds
from nhc.marks.policy.mark_decision import Policy

PATH = "/etc/nhc/policy.toml"
HEAD = """
What nhc may do by itself to a fleet: /etc/nhc/policy.toml. Every key may be left out; what stands here behind # is the
default, save for names. Read by `nhc sync`, `nhc fleet check --mark`, the controller of `nhc kubernetes`, and the
remedy loop and trains where remedy.toml says policy = "policy.toml". docs/remedy.md has the forms of a limit, and which
part counts what.
"""

INTROS = {
    "repair": "What sync and the controller may do beyond marking: nothing unless listed. Only nodes that nhc took out "
    "and that are idle.",
}


@declared.settings
class PolicyFile(NamedTuple):
    """A policy, and whether it is carried out without `--apply`."""

    policy: Policy = declared.part("", Policy)
    apply: bool = declared.flag("apply", False, "carry plans out without being told to on the command line")


FILE = declared.SettingsFile(PolicyFile, PATH, HEAD, optional=True, intros=INTROS)
parse = FILE.parse


def policy_of(path: Optional[str] = None, max_drained: Optional[str] = None) -> PolicyFile:
    """The policy of a command line: a file, the usual one if it exists, or the defaults, with its own ceiling.

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


def load(path: str, bounds: Optional[Bounds] = None) -> PolicyFile:
    """Read a file; `bounds` applies if the file says nothing. Raises SettingsError."""
    file: Table = settings_file.load(path)
    usual = PolicyFile()
    if bounds is not None:
        usual = usual._replace(policy=usual.policy._replace(bounds=bounds))
    found = declared.read(PolicyFile, file, usual)
    file.finish()
    return found
