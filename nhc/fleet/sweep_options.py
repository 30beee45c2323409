"""What `nhc fleet check` was asked for: its options, and the settings of fleet.toml (`nhc.fleet.settings`), by name."""

from __future__ import annotations

from typing import Optional, Tuple, TypedDict


class SweepOptions(TypedDict):
    """Times are in seconds; "" and None stand for what was not said."""

    sets: Tuple[str, ...]
    exclude: Tuple[str, ...]
    all_nodes: bool
    inventories: Tuple[str, ...]
    limit: str
    vault_files: Tuple[str, ...]
    ask_vault_pass: bool
    sources: Tuple[str, ...]
    files: Tuple[str, ...]
    config: Tuple[str, ...]
    scripts: Tuple[str, ...]
    profile: str
    check: Tuple[str, ...]
    tag: Tuple[str, ...]
    context: str
    suite: str
    facts: Tuple[str, ...]
    use: str
    pyz: str
    python: str
    node_dir: str
    transport: str
    ssh_config: str
    port: int
    accept_new: bool
    user: str
    identity: str
    ask_pass: bool
    sudo: bool
    ask_sudo_pass: bool
    fanout: int
    shards: int
    connect_timeout: float
    timeout: float
    retries: int
    form: str
    by: str
    skipped: bool
    html: str
    json_path: str
    group_by: str
    outliers: bool
    history: str
    keep_history: bool
    quiet: bool
    color: str
    store: str
    max_unhealthy: Optional[Tuple[Optional[int], float]]
    mark: Optional[str]
    apply: bool
    policy_path: str
    max_drained: str
    ledger_path: str


class ReportOptions(TypedDict):
    """What `nhc fleet report` was asked for."""

    sweep: str
    listed: bool
    history: Optional[str]
    form: str
    by: str
    group_by: str
    output: Optional[str]
    skipped: bool
    quiet: bool
    outliers: bool
    color: str


class DiffOptions(TypedDict):
    """What `nhc fleet diff` was asked for."""

    old: str
    new: str
    history: Optional[str]
    form: str
