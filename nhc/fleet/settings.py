"""fleet.toml (conf/fleet.toml.example): what a site says once of its sweeps; `--set KEY=VALUE` says it for one."""

from __future__ import annotations

from typing import Dict, NamedTuple, Sequence, Tuple

from nhc.core.settings import declared
from nhc.core.settings.settings_file import Table

PATH = "/etc/nhc/fleet.toml"
FANOUT = 4096
HEAD = """
How `nhc fleet check` goes about a sweep: /etc/nhc/fleet.toml, or the file that -s names. `nhc fleet check --set
KEY=VALUE` says any of it for one sweep. docs/fleet.md explains it. What stands here behind # is the default, save for
names.
"""
USE, TRANSPORTS = ("auto", "pushed", "installed"), ("ssh", "paramiko", "openssh", "local")
BY, COLOURS = ("node", "check"), ("auto", "always", "never")


def _words(words: Sequence[str]) -> Dict[str, str]:
    return {word: word for word in words}


@declared.settings
class FleetSettings(NamedTuple):
    """All of it. Times are in seconds; "" and 0 stand for what is not said."""

    user: str = declared.text("user", "", "who logs in, where the inventory names nobody")
    sudo: bool = declared.flag("sudo", False, "run as root through sudo, which must ask for no password")
    timeout: float = declared.seconds("timeout", 60.0, "for the checks on a node; kept there, too", least=0.001)
    transport: str = declared.choice(
        "transport", _words(TRANSPORTS), "ssh",
        "ssh: in this process, by libssh where that will do, else by paramiko; paramiko: by that alone; openssh: the "
        "ssh program; local: no connection.",
    )  # fmt: skip
    ssh_config: str = declared.text(
        "ssh-config", "", "in place of the user's and the system's", shown='"/etc/nhc/ssh_config"'
    )
    port: int = declared.count("port", 0, "where the inventory names none", most=65535)
    accept_new: bool = declared.flag(
        "accept-new", False, "accept and remember host keys of hosts not known yet; a changed key is never accepted"
    )
    identity: str = declared.text("identity", "", "a private key to offer", shown='"/root/.ssh/sweep"')
    fanout: int = declared.count("fanout", 128, "nodes at once", least=1, most=FANOUT)
    shards: int = declared.count("shards", 0, "processes; 0: one per core", most=256)
    connect_timeout: float = declared.seconds(
        "connect-timeout", 10.0,
        "for connecting and logging in, all tries together; as long again for a command to start", least=0.001,
    )  # fmt: skip
    retries: int = declared.count(
        "retries", 1, "after what may pass: a connection that broke, a resolver that is busy", most=10
    )
    vault_files: Tuple[str, ...] = declared.texts(
        "vault-password-file", (),
        "[ID@]FILE of the inventory's vault: a file that holds the password, or a program that prints it", one=True,
    )  # fmt: skip
    ask_vault_pass: bool = declared.flag("ask-vault-pass", False, "ask for the password of the inventory's vault")
    use: str = declared.choice(
        "nhc", _words(USE), "auto", "auto: the node's own nhc where it is this version, else one that is sent"
    )
    pyz: str = declared.text("pyz", "", "the nhc.pyz to send; default: one built from this nhc")
    python: str = declared.text("python", "", "the nodes' Python; default: the first that fits")
    node_dir: str = declared.text(
        "node-dir", "",
        "Where nodes keep what is sent: a directory of the user's own. Default: /var/cache/nhc-fleet or "
        "/var/tmp/nhc-UID.",
    )  # fmt: skip
    scripts: Tuple[str, ...] = declared.texts(
        "scripts", (), "directories of site checks (*.nhc) to send and load", one=True
    )
    facts: Tuple[str, ...] = declared.texts(
        "label", (), "variables of the inventory to keep with each report", one=True
    )
    by: str = declared.choice("by", _words(BY), "node", "fold results by node, or by check")
    skipped: bool = declared.flag("skipped", False, "by check: also list checks that had nothing to judge")
    outliers: bool = declared.flag("outliers", True, "list nodes whose metrics are far from their peers'")
    color: str = declared.choice("color", _words(COLOURS), "auto", "auto: on a terminal")
    html: str = declared.text("html", "", "also write an HTML report there")
    json_path: str = declared.text("json", "", "also write there what --format json prints")
    group_by: str = declared.text(
        "group-by",
        "",
        "The variable or group that the HTML report's heat map is grouped by. Default: rack, else the first group.",
    )
    keep_history: bool = declared.flag("keep-history", True, "keep sweeps")
    history: str = declared.text("history", "", "where; default: $NHC_FLEET_HISTORY, ~/.local/share/nhc/fleet.sqlite")
    store: str = declared.secret("store", "", "with --suite: keep what it measured in this store, too")
    policy_path: str = declared.text(
        "policy", "", "with --mark: ceilings and rates; default: /etc/nhc/policy.toml, if any"
    )
    max_drained: str = declared.text("max-drained", "", "with --mark: most nodes marked at once: 20, 10% or none")
    ledger_path: str = declared.text("ledger", "", "with --mark: where operations are remembered")

    def checked(self, table: Table) -> FleetSettings:
        """The same. Raises SettingsError where a path on the nodes is none."""
        if self.node_dir and not self.node_dir.startswith("/"):
            raise table.wrong("node-dir", "an absolute path")
        return self


FILE = declared.SettingsFile(FleetSettings, PATH, HEAD, optional=True)
