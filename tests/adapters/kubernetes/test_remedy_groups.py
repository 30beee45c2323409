"""Bounds and holds by blast radius on a real control plane: labels say where nodes are that no store knows."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Iterator, List

import pytest

from nhc.remedy.actuators import Actuators
from nhc.remedy.episode_flow import EpisodeLoop
from nhc.remedy.repairers import Repairers
from nhc.remedy.repairs import repair_loop
from nhc.store import holds
from nhc_adapters.kubernetes.plugin import Adapter
from tests.support.kube import Kube
from tests.support.kube_remedy import settings
from tests.support.new_store import new_store
from tests.support.run import nhc

ZONE = {"topology.kubernetes.io/zone": "za", "example.com/team": "red"}
BOUND = "[bounds.zone]\nout = 1\n"


class Site:
    """Three nodes of one zone and one of another, and the loop over them."""

    def __init__(self, kube: Kube, base: Path) -> None:
        self.kube, self.base = kube, base
        self.nodes = [kube.node(f"za{number}", fake=False, labels=ZONE) for number in range(3)]
        self.nodes.append(kube.node("zb", fake=False, labels={"topology.kubernetes.io/zone": "zb"}))
        given = {"NHC_KUBECONFIG": str(kube.kubeconfig(base)), "NHC_KUBE_GROUPS": "team=example.com/team"}
        self.adapter = Adapter(given)
        self.adapter.cluster.selector = f"test={kube.prefix}"
        self.store = new_store(str(base))

    def loop(self, more: str) -> EpisodeLoop:
        actuators = Actuators(self.adapter, Repairers((), (), (self.adapter,)), workers=0)
        wanted = settings(more=more, out=4)
        wanted = wanted._replace(bounds=wanted.bounds._replace(first_run_for=0.0))
        return repair_loop(self.store, wanted, actuators, reports=self.adapter.condition_reports)

    def sick(self, *nodes: str) -> None:
        for node in nodes:
            self.kube.set_condition(node, "NhcHealthy", "False", "Xid95", "check_gpu_xid: Xid 95 [action: reboot]")

    def out(self) -> List[str]:
        return [node for node in self.nodes if self.kube.get(node)["spec"].get("unschedulable")]


@pytest.fixture
def site(kube: Kube, tmp_path: Path) -> Iterator[Site]:
    made = Site(kube, tmp_path)
    yield made
    made.store.close()
    made.adapter.close()


@pytest.mark.parametrize("bound", ["[bounds.zone]\nout = 1\n", "[bounds.team]\nout = 1\n"])
def test_a_bound_by_a_label_holds(site: Site, bound: str) -> None:
    site.sick(*site.nodes)
    loop = site.loop(bound)
    for _more in range(3):
        loop.round()
    assert len([node for node in site.out() if node in site.nodes[:3]]) == 1
    assert site.nodes[3] in site.out()


def test_a_hold_on_a_zone_holds_its_nodes(site: Site) -> None:
    with site.store.write() as connection:
        holds.hold(connection, "group", "zone=za", by="ann", why="power work", now=1.0, until=None)
    site.sick(*site.nodes)
    loop = site.loop("")
    for _more in range(3):
        last = loop.round()
    assert site.out() == [site.nodes[3]]
    assert any("zone=za held by ann: power work" in one.why for one in last.waiting)


@pytest.mark.parametrize(("more", "said", "begins"), [
    ("[bounds.row]\nout = 1\n", "bounds.row: no node is in such a group: the nodes' groups are of these kinds", False),
    ("[bounds.named]\ngpu = 1\n", "bounds.named.gpu: no node is in such a group: the nodes' groups", True),
    ("", "the hold on zone=zz by ann holds no node", True),
])  # fmt: skip
def test_a_bound_or_a_hold_that_matches_nothing_is_said(site: Site, more: str, said: str, begins: bool) -> None:
    with site.store.write() as connection:
        if not more:
            holds.hold(connection, "group", "zone=zz", by="ann", why="power work", now=1.0, until=None)
    site.sick(site.nodes[0])
    loop = site.loop(more)
    for _more in range(3):
        last = loop.round()
    assert any(said in line for line in last.problems), last.problems
    assert bool(site.out()) is begins  # under a bound on a kind that no node has, nothing begins


def test_the_command_refuses_a_hold_on_a_group_that_is_not_there(site: Site, tmp_path: Path) -> None:
    file = tmp_path / "remedy.toml"
    file.write_text(
        f'store = "{site.store.engine.url}"\n[sources]\nadapter = "kubernetes"\n'
        f'[sources.settings]\nNHC_KUBECONFIG = "{site.kube.kubeconfig(tmp_path)}"\n'
    )

    def hold(name: str) -> Any:
        return nhc("hold", "remedy", name, "--why", "power work", "--settings", str(file))

    assert hold("zone=za").returncode == 0
    refused = hold("zone=nowhere")
    assert (refused.returncode, "no node is in that group: nothing is held" in refused.stderr) == (2, True)
