"""Spares on a real control plane: one takes pods for a node that is out, and waits again after it."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from nhc.marks.ports.adapter import AdapterError, Effect, SettingError
from nhc.store import audit, episodes, spares
from nhc.store.connect import open_store
from nhc_adapters.kubernetes.api.client import MERGE_PATCH, namespaced
from nhc_adapters.kubernetes.nodes.own_marks import HOLD
from nhc_adapters.kubernetes.spares import SPARE, KubernetesSpares
from tests.support.kube import REPOSITORY, Kube, environment
from tests.support.new_store import new_store
from tests.support.waiting import until


class SpareSite:
    """A pool of this test's own, and `nhc spares` as the account of adapters/kubernetes/spares."""

    def __init__(self, kube: Kube, place: Path) -> None:
        self.kube, self.place = kube, place
        self.pool = f"pool-{kube.prefix}"
        config = kube.kubeconfig(place, self.account())
        new_store(str(place)).close()
        (place / "remedy.toml").write_text(f'store = "sqlite:///{place}/store.db"\n[sources]\nadapter = "kubernetes"\n')
        (place / "spares.toml").write_text(
            f'[pools.gpu]\ntype = "kubernetes"\nspare = "{self.pool}"\nkubeconfig = "{config}"\n'
            f'for = "{kube.prefix}-*"\nafter = "1m"\n'
        )
        self.env = environment(NHC_KUBECONFIG=str(config), HOME=str(place))

    def account(self) -> str:
        """A token with the rights that we publish, and no other."""
        rights = yaml.safe_load_all((REPOSITORY / "adapters/kubernetes/spares/rbac.yaml").read_text())
        account, role, binding = rights
        namespace = self.kube.namespace
        account["metadata"]["namespace"] = binding["subjects"][0]["namespace"] = namespace
        role["metadata"]["name"] = binding["metadata"]["name"] = binding["roleRef"]["name"] = f"nhc-spares-{namespace}"
        self.kube.admin.post(namespaced(namespace, "serviceaccounts"), account)
        for plural, body in (("clusterroles", role), ("clusterrolebindings", binding)):
            self.kube.admin.post(f"/apis/rbac.authorization.k8s.io/v1/{plural}", body)
        return self.kube.token("nhc-spares", namespace)

    def spare(self, name: str) -> str:
        """A node that waits, healthy by its agent's word."""
        made = self.kube.node(name, labels={SPARE: self.pool})
        self.kube.ready(made)
        self.kube.set_condition(made, "NhcHealthy", "True", "NodeIsHealthy")
        taint = {"key": SPARE, "value": self.pool, "effect": "NoSchedule"}
        self.kube.admin.patch(f"/api/v1/nodes/{made}", {"spec": {"taints": [OTHERS, taint]}}, MERGE_PATCH)
        return made

    def ask(self, *words: str) -> Any:
        argv = [sys.executable, "-m", "nhc", *words, "--pools", f"{self.place}/spares.toml", "-s",
                f"{self.place}/remedy.toml"]  # fmt: skip
        done = subprocess.run(argv, env=self.env, capture_output=True, text=True, timeout=120, check=False)
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def keeper(self) -> KubernetesSpares:
        return KubernetesSpares({"spare": self.pool, "kubeconfig": str(self.place / "kubeconfig")})

    def marks(self, node: str) -> tuple[Any, list[str]]:
        found = self.kube.get(node)
        taints = found["spec"].get("taints") or []
        return found["metadata"]["labels"].get(SPARE), sorted(taint["key"] for taint in taints)

    def store(self) -> Any:
        return open_store(f"sqlite:///{self.place}/store.db", create=False)

    def rows(self) -> list[tuple[str, str, str]]:
        store = self.store()
        try:
            with store.read() as connection:
                return [(row.node, row.state, row.stands_for) for row in spares.in_use(connection)]
        finally:
            store.close()


OTHERS = {"key": "example.org/mine", "effect": "NoSchedule"}


@pytest.fixture
def site(kube: Kube, tmp_path: Path) -> SpareSite:
    return SpareSite(kube, tmp_path)


def test_a_spare_goes_in_takes_pods_and_comes_back(kube: Kube, site: SpareSite) -> None:
    spare, other = site.spare("s1"), site.spare("s2")
    sick = kube.node("sick")
    kube.ready(sick)
    shown = site.ask("spares", "verify")
    assert shown.returncode == 0, shown
    kube.admin.patch(f"/api/v1/nodes/{sick}", {"spec": {"unschedulable": True}}, MERGE_PATCH)
    store = site.store()
    with store.write() as connection:
        row, _ = episodes.open_episode(connection, sick, "check_x|Bad|", action="reboot", rung="reboot",
                                       state="watching", now=time.time() - 600, by="test")  # fmt: skip
    dry = site.ask("spares", "swap")
    assert (dry.returncode, f"would swap-in  {spare}  for {sick}" in dry.stdout) == (0, True), dry
    assert site.marks(spare) == (site.pool, [OTHERS["key"], SPARE])
    done = site.ask("spares", "swap", "--apply")
    assert (done.returncode, site.rows()) == (0, [(spare, "in-service", sick)]), done
    assert site.marks(spare) == (None, [OTHERS["key"]]), "another's taint stays"
    again = site.ask("spares", "swap", "--apply")
    assert (again.returncode, site.rows()) == (0, [(spare, "in-service", sick)]), again
    assert site.marks(other) == (site.pool, [OTHERS["key"], SPARE]), "never two for one node"
    kube.pod("work", spare)
    with store.write() as connection:
        step = episodes.EpisodeStep("test", "episode.returned")
        episodes.save_step(connection, row, step, now=time.time(), state="returned", ended=time.time())
    kube.admin.patch(f"/api/v1/nodes/{sick}", {"spec": {"unschedulable": None}}, MERGE_PATCH)
    busy = site.ask("spares", "swap", "--apply")
    assert (busy.returncode, "/work still runs on it" in busy.stdout) == (1, True), busy
    assert site.marks(spare)[1] == [OTHERS["key"], SPARE], "it takes no new pods"
    assert (site.rows(), kube.pods()) == ([(spare, "leaving", sick)], ["work"])
    kube.admin.delete(namespaced(kube.namespace, "pods", "work"))
    until(lambda: not kube.pods())
    until(lambda: site.ask("spares", "swap", "--apply").returncode == 0)
    assert (site.rows(), site.marks(spare)[0]) == ([], site.pool)
    with store.read() as connection:
        whats = [one.what for one in audit.entries(connection, node=spare, limit=50)]
    store.close()
    assert whats == ["spare.entering", "spare.in-service", "spare.leaving", "spare.waiting"]


def test_both_calls_change_nothing_where_they_took_effect_and_what_is_held_is_left(kube: Kube, site: SpareSite) -> None:
    spare, keeper = site.spare("s1"), site.keeper()
    effects = [call(spare).effect for call in (keeper.back, keeper.into_service, keeper.into_service, keeper.back)]
    assert effects == [Effect.UNCHANGED, Effect.CHANGED, Effect.UNCHANGED, Effect.CHANGED]
    assert keeper.waiting() == [spare]
    kube.admin.patch(f"/api/v1/nodes/{spare}", {"metadata": {"annotations": {HOLD: "ann looks"}}}, MERGE_PATCH)
    held = keeper.into_service(spare)
    assert (held.effect, "ann looks" in held.message) == (Effect.FAILED, True)
    assert keeper.waiting() == [spare]


def test_spares_of_another_pool_are_left_alone(kube: Kube, site: SpareSite) -> None:
    spare = site.spare("s1")
    mine = KubernetesSpares({"spare": "elsewhere", "kubeconfig": str(site.place / "kubeconfig")})
    before = site.marks(spare)
    assert mine.waiting() == []
    assert mine.into_service(spare).effect is Effect.UNCHANGED
    assert "another pool" in mine.back(spare).message
    assert site.marks(spare) == before


def test_what_cannot_be_is_said(site: SpareSite) -> None:
    gone = site.keeper().back("no-such-node")
    assert (gone.effect, "404" in gone.message) == (Effect.FAILED, True)
    with pytest.raises(SettingError, match="spare: "):
        KubernetesSpares({"kubeconfig": str(site.place / "kubeconfig")})
    with pytest.raises(AdapterError, match="no such file"):
        KubernetesSpares({"spare": "gpu", "kubeconfig": str(site.place / "none")})
