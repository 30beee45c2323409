"""What one `nhc fleet check` is to do: the nodes its user named, what they run, and what becomes of the reports."""

from __future__ import annotations

import os
from typing import List, Optional, Tuple

from nhc.core.command_line import options
from nhc.fleet.node_sources import WantedNodes
from nhc.fleet.preflight import WantedChecks
from nhc.fleet.settings import FleetSettings

FORMATS = ("text", "json", "jsonl")


def _limit(value: str) -> Tuple[Optional[int], float]:
    """`5` or `2.5%`: a count, or a share. Raises ValueError."""
    number = value[:-1] if value.endswith("%") else value
    try:
        limit = float(number) if value.endswith("%") else int(number)
    except ValueError:
        limit = -1
    if not (0 <= limit <= 100 if value.endswith("%") else limit >= 0):  # nan is neither
        raise ValueError(f"{value!r} is neither a number of nodes nor a share such as 2%")
    return (None, limit / 100) if value.endswith("%") else (int(limit), 0.0)


class HowReached(options.CommandOptions):
    settings: str = options.settings_file("fleet.toml", checked=True, heading="How nodes are reached")
    given: Tuple[str, ...] = options.texts(
        "--set", "KEY=VALUE", "A key of that file for this sweep, such as fanout=16, transport=openssh, "
        "accept-new=true, html=FILE (repeatable).",
    )  # fmt: skip
    user: Optional[str] = options.setting("-u --user", FleetSettings, "user", "NAME")
    ask_pass: bool = options.flag("--ask-pass", "Ask for the login's password (or read it from $NHC_SSH_PASSWORD).")
    sudo: Optional[bool] = options.setting("--sudo", FleetSettings, "sudo")
    ask_sudo_pass: bool = options.flag("--ask-sudo-pass", "With --sudo: ask for its password (or $NHC_SUDO_PASSWORD).")
    timeout: Optional[float] = options.setting("-t --timeout", FleetSettings, "timeout", "TIME")


class WhatFollows(options.CommandOptions):
    form: str = options.choice(
        "-f --format", FORMATS, "text: folded; json: one document; jsonl: each node's report as it arrives.", "text",
        heading="What is shown and kept",
    )  # fmt: skip
    quiet: bool = options.flag("-q --quiet", "Leave out what is well.")
    max_unhealthy: Optional[Tuple[Optional[int], float]] = options.text(
        "--max-unhealthy", "LIMIT", "Exit 0 while at most this many nodes (5) or this share (2%) are CRIT or UNKNOWN.",
        None, convert=_limit, heading="What follows",
    )  # fmt: skip
    mark: str = options.text(
        "--mark", "ADAPTER", "Hand the reports to slurm, kubernetes, ...: shows what would be marked."
    )
    apply: bool = options.flag("--apply", "With --mark: do it, under the policy's ceilings.")


class SweepRequest(WantedNodes, WantedChecks, HowReached, WhatFollows):
    """The command line of a sweep. `max_unhealthy` is a number of nodes, or None and a share of them."""


class HistoryOptions(options.CommandOptions):
    """Which history of sweeps."""

    settings: str = options.settings_file("fleet.toml", heading="Which sweeps")
    history: Optional[str] = options.setting(
        "--history", FleetSettings, "history", "FILE", "The history that sweeps are kept in."
    )


class FleetDiff(HistoryOptions, options.Formatted):
    old: str = options.argument("[OLD]", default="last-1")
    new: str = options.argument("[NEW]", default="last")


class FleetReport(HistoryOptions):
    sweep: str = options.argument("[SWEEP]", default="last")
    listed: bool = options.flag("--list", "List the sweeps kept.", heading="Which sweeps")
    by: Optional[str] = options.setting("--by", FleetSettings, "by", "node|check", heading="What is shown")
    form: str = options.choice("-f --format", (*FORMATS, "html"), "Output format.", "text")
    output: str = options.text("-o --output", "FILE", "Write to this file instead of standard output.")
    quiet: bool = options.flag("-q --quiet", "Leave out what is well.")


def facts(site: FleetSettings) -> Tuple[str, ...]:
    """The variables of an inventory that are kept."""
    return tuple(fact for fact in (*site.facts, site.group_by) if fact)


def vault(site: FleetSettings) -> Tuple[str, ...]:
    """Ansible's own options for the inventory's vault."""
    arguments: List[str] = []
    for name in site.vault_files:
        label, at, path = name.rpartition("@")
        full = os.path.abspath(os.path.expanduser(path))
        arguments += ["--vault-id", f"{label}@{full}"] if at else ["--vault-password-file", full]
    return tuple([*arguments, "--ask-vault-pass"] if site.ask_vault_pass else arguments)
