"""A controller that may not do its work says which right is missing, to whoever asks, and goes on when it has it."""

from __future__ import annotations

import contextlib
import urllib.error
import urllib.request
from typing import Any, Iterator

import pytest
import yaml

from nhc.core.limits import Limit, Rate
from nhc.marks.policy.bounds import FLEET, Bounds, RadiusBounds
from nhc.marks.policy.mark_decision import Policy
from nhc_adapters.kubernetes.api.client import Client
from nhc_adapters.kubernetes.api.lease import Lease
from nhc_adapters.kubernetes.api.rights import ClusterRight, denied
from nhc_adapters.kubernetes.controller.controller import Controller
from nhc_adapters.kubernetes.controller.http_server import ControllerServer
from nhc_adapters.kubernetes.controller.loki import LokiSettings
from nhc_adapters.kubernetes.controller.podlogs import PodLogs
from nhc_adapters.kubernetes.controller.rights import of_controller
from nhc_adapters.kubernetes.controller.settings import make
from tests.adapters.kubernetes.test_controller import settings
from tests.support.kube import Kube
from tests.support.waiting import until

RBAC = "/apis/rbac.authorization.k8s.io/v1"
SYSTEM = "nhc-system"


class Account:
    """A ServiceAccount whose rights are added rule by rule, as the log asks for."""

    def __init__(self, kube: Kube) -> None:
        self.kube, self.name = kube, f"{kube.prefix}-controller"
        self.rules: list[dict[str, Any]] = []
        for path, kind in ((RBAC, "ClusterRole"), (f"{RBAC}/namespaces/{kube.namespace}", "Role")):
            body = {"metadata": {"name": self.name}, "rules": []}
            kube.admin.post(f"{path}/{kind.lower()}s", body)
            subject = {"kind": "ServiceAccount", "name": "default", "namespace": kube.namespace}
            reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": self.name}
            kube.admin.post(
                f"{path}/{kind.lower()}bindings",
                {"metadata": {"name": self.name}, "roleRef": reference, "subjects": [subject]},
            )

    def client(self) -> Client:
        return self.kube.client(self.kube.token("default", self.kube.namespace), connections=8, retry_for=0.3)

    def follow(self, lines: list[str]) -> None:
        """Add the rules that these lines ask for, where they ask for them."""
        for line in lines:
            if not line.startswith("missing right: "):
                continue
            rule = yaml.safe_load(line.split(" of this account: ")[1].split(" [once")[0])
            mine = f"a Role in namespace {self.kube.namespace}" in line
            path = f"{RBAC}/namespaces/{self.kube.namespace}/roles" if mine else f"{RBAC}/clusterroles"
            if "namespace default" in line:
                continue  # events: not needed to lead
            found = self.kube.admin.get(f"{path}/{self.name}")
            found["rules"] = [*(found.get("rules") or []), rule]
            self.kube.admin.put(f"{path}/{self.name}", found)

    def remove(self) -> None:
        for kind in ("clusterrolebinding", "clusterrole"):
            self.kube.admin.delete(f"{RBAC}/{kind}s/{self.name}")


@pytest.fixture
def account(kube: Kube) -> Iterator[Account]:
    made = Account(kube)
    yield made
    made.remove()


@contextlib.contextmanager
def running(client: Client, chosen: Any) -> Iterator[tuple[Controller, list[str]]]:
    said: list[str] = []
    lease = Lease(client, chosen.namespace, every=0.2, duration=30.0, renew_within=20.0)
    controller = Controller(client, chosen, lease=lease, log=said.append)
    controller.rights.soon = 0.2
    controller.start()
    try:
        yield controller, said
    finally:
        controller.close()


def get(server: ControllerServer, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}{path}", timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_each_missing_right_is_one_line_with_its_rule_and_following_the_lines_is_enough(
    kube: Kube, account: Account
) -> None:
    node = kube.node(fake=False)
    chosen = settings(
        kube, policy=Policy(Bounds({FLEET: RadiusBounds(Limit(share=1.0), rates={"mark": Rate(5, 60.0)})}))
    )
    with running(account.client(), chosen) as (controller, said):
        server = ControllerServer("127.0.0.1:0", controller)
        try:
            until(controller.rights.asked.is_set)
            missing = [line for line in said if line.startswith("missing right: ")]
            assert len(missing) == len(controller.rights.missing) > 8
            assert any(line.startswith(f"missing right: update leases nhc-controller in {kube.namespace} ") for line in
                       missing)  # fmt: skip
            until(lambda: any("holding the Lease" in line and "403 Forbidden" in line for line in said))
            status, text = get(server, "/readyz")
            assert (status, text[:15]) == (503, "missing right: ")
            assert get(server, "/healthz")[0] == 200  # a restart would give it no right
            assert 'nhc_kubernetes_right_missing{right="list nodes"} 1' in get(server, "/metrics")[1]
            assert 'nhc_kubernetes_failing{what="holding the Lease' in get(server, "/metrics")[1]

            account.follow(said)
            until(controller.leading.is_set)
            kube.set_condition(node, "NhcHealthy", "False", "Xid79", "check_kmsg: Xid 79")
            until(lambda: kube.get(node)["spec"].get("unschedulable"))
            until(lambda: "right granted: list nodes" in said)
            left = ["create events in default", "patch events in default"]
            until(lambda: [str(right) for right in controller.rights.missing] == left)
            # One outage, told once however often each thread met it.
            assert sum("holding the Lease" in line for line in said) == 1
        finally:
            server.close()


def test_a_namespace_that_is_not_there_is_said_and_once_it_is_the_controller_leads(kube: Kube) -> None:
    away = f"{kube.prefix}-away"
    chosen = make(namespace=away, selector=f"test={kube.prefix}")
    with running(kube.client(kube.plane.token, retry_for=0.3), chosen) as (controller, said):
        until(lambda: any(f'namespaces "{away}" not found' in line for line in said))
        assert f'namespaces "{away}" not found' in controller.unready()
        kube.admin.post("/api/v1/namespaces", {"metadata": {"name": away}})
        until(controller.leading.is_set)
        until(lambda: controller.unready() == "")
        assert any(line.startswith("the API server works again after ") for line in said)
    kube.admin.delete(f"/api/v1/namespaces/{away}")


def test_the_rules_that_are_shipped_are_all_that_a_controller_ever_needs(kube: Kube, installed: Any) -> None:
    policy = Policy(Bounds({FLEET: RadiusBounds(rates={"mark": Rate(1, 60.0)})}))
    every = make(drain=True, apply=True, policy=policy, loki=LokiSettings("http://loki"), namespace=SYSTEM)
    client = kube.client(kube.token("nhc-controller", SYSTEM))
    assert denied(client, of_controller(every)) == []
    logs = make(podlogs=PodLogs(("train",)), namespace=SYSTEM)
    (lacking,) = denied(client, of_controller(logs))
    assert lacking.missing() == (
        "missing right: get pods/log in train ([podlogs] namespaces); add to a Role in namespace train of this "
        'account: {apiGroups: [""], resources: [pods/log], verbs: [get]}'
    )


def test_a_right_names_its_rule_as_yaml() -> None:
    right = ClusterRight("update", "leases", "coordination.k8s.io", "ns", "nhc-controller", "x")
    assert yaml.safe_load(right.rule()) == {
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "resourceNames": ["nhc-controller"],
        "verbs": ["update"],
    }
