"""spares.toml (conf/spares.toml.example): the pools of spare nodes, and when one is swapped in."""

from __future__ import annotations

from typing import Mapping, NamedTuple, Tuple

from nhc.core.settings import declared
from nhc.core.settings.settings_file import SettingsError, Table
from nhc.marks.plugins import SPARE_POOLS
from nhc.marks.ports.part_settings import PartTable, check

PATH = "/etc/nhc/spares.toml"
HOUR = 3600.0
HEAD = """
Pools of spare nodes: /etc/nhc/spares.toml, read by `nhc spares`. docs/maintenance.md explains them. Who marks, the
store and the age of reports are those of remedy.toml.
"""
OTHERS = """
Without nodes that wait: one is added to an instance group of SageMaker HyperPod, kept or deleted after the repair.
[pools.hyperpod]
type = "hyperpod"
for = ["hyperpod-i-*"]
cluster = "ml-cluster"
group = "gpus"
group-limit = 66                      # the group never gets more nodes than this by nhc
after-repair = "keep"                 # or "delete": the added node, when the node that was out is back and it is idle
region = "us-east-1"
"""


@declared.settings
class PoolSettings(NamedTuple):
    """One pool. Times are in seconds.

    `serves` are patterns of the nodes that its spares stand in for. `size` spares are wanted. One is swapped in when a
    node has been out for `after`, and at most `most` are in service at one time. A spare counts as verified by a fresh
    healthy report and, if `suite` is set, by a healthy verdict of that deep suite not older than `verified`. `timeout`
    is for one request to the keeper of the spares.
    """

    name: str
    type: str = declared.text(
        "type", declared.NEEDED, "who keeps the spares: slurm, kubernetes, hyperpod", shown='"slurm"'
    )
    serves: Tuple[str, ...] = declared.texts(
        "for", declared.NEEDED, "the nodes that they stand in for, as shell patterns", one=True, shown='["gpu*"]'
    )
    size: int = declared.count(
        "size", 1, "so many verified spares are wanted; `nhc spares verify` says when there are fewer", least=1
    )
    after: float = declared.seconds(
        "after", 0.5 * HOUR, "a node that an episode has had out for so long gets a spare", least=60.0
    )
    most: int = declared.count("most", 1, "spares in service at one time", least=1)
    suite: str = declared.text(
        "suite", "", 'a deep suite of which a spare needs a healthy verdict, beside a fresh healthy report; "": none'
    )
    verified: float = declared.seconds("verified", 7 * 24 * HOUR, "how old that verdict may be", least=HOUR)
    settings: Mapping[str, str] = declared.rest(
        "Slurm's spares wait in reservations called NAME-NODE, here nhc-spare-gpu128. In Kubernetes they are nodes "
        'with the label and the taint nhc/spare; then this is type = "kubernetes", spare = "gpu".',
        shown='reservation = "nhc-spare"',
        live=True,
    )
    timeout: float = declared.seconds("timeout", 30.0, "for one question to who keeps them", least=1.0)


@declared.settings
class SparesSettings(NamedTuple):
    """All of spares.toml."""

    pools: Tuple[PoolSettings, ...] = declared.tables("pools", PoolSettings, sample="gpu", live=True, more=OTHERS)

    def checked(self, table: Table) -> SparesSettings:
        """The same. Raises SettingsError if there is no pool."""
        if not self.pools:
            raise SettingsError(f"{table.path}: pools: missing: name a pool as [pools.gpu]")
        return self


def parts(settings: SparesSettings, file: Table) -> None:
    """Check the settings of the keeper of the spares. Raises SettingsError."""
    check(file, (PartTable(f"pools.{pool.name}", SPARE_POOLS, pool.type, pool.settings) for pool in settings.pools))


FILE = declared.SettingsFile(SparesSettings, PATH, HEAD, also=parts)


def load(path: str) -> Tuple[PoolSettings, ...]:
    """The pools in a file. Raises SettingsError."""
    return FILE.load(path).pools
