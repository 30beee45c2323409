"""What one `nhc fleet check` is to do: the nodes its user named, what they run, and what becomes of the reports."""

from __future__ import annotations

import os
from typing import Any, List, Mapping, NamedTuple, Optional, Tuple

from nhc.fleet.node_sources import WantedNodes
from nhc.fleet.preflight import WantedChecks
from nhc.fleet.settings import FleetSettings


class SweepRequest(NamedTuple):
    """`site` is fleet.toml with what the command line says of its keys; "" and None stand for what was not said."""

    nodes: WantedNodes
    checks: WantedChecks
    suite: str
    ask_pass: bool
    ask_sudo_pass: bool
    form: str
    quiet: bool
    max_unhealthy: Optional[Tuple[Optional[int], float]]
    """A number of nodes, or None and a share of them: up to so many may be unhealthy."""
    mark: Optional[str]
    apply: bool
    site: FleetSettings


def request(site: FleetSettings, options: Mapping[str, Any]) -> SweepRequest:
    """Of the settings and the options of `nhc fleet check`, by click's names."""
    said = {name: options[name] for name in ("user", "sudo", "timeout") if options[name] is not None}
    site = site._replace(**said)
    facts = tuple(fact for fact in (*site.facts, site.group_by) if fact)
    wanted = WantedNodes(
        options["sets"], options["exclude"], options["inventories"], options["limit"], options["sources"],
        options["files"], facts, _vault(site), options["all_nodes"],
    )  # fmt: skip
    checks = WantedChecks(
        options["config"], site.scripts, options["profile"], options["check"], options["tag"], options["context"]
    )
    same = {name: options[name] for name in SweepRequest._fields if name in options}
    return SweepRequest(wanted, checks, site=site, **same)


def _vault(site: FleetSettings) -> Tuple[str, ...]:
    """Ansible's own options for the inventory's vault."""
    arguments: List[str] = []
    for name in site.vault_files:
        label, at, path = name.rpartition("@")
        full = os.path.abspath(os.path.expanduser(path))
        arguments += ["--vault-id", f"{label}@{full}"] if at else ["--vault-password-file", full]
    return tuple([*arguments, "--ask-vault-pass"] if site.ask_vault_pass else arguments)
