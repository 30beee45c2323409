"""The Oracle repairer: the contract for each way, and the situations that are Oracle's own."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import tempfile
from pathlib import Path

import pytest

from nhc.lab.testing.repairers import RepairerContract, RepairerWorld
from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.repair import Answer, EvidenceBudget, Machine, Order, Rung, Sent, Stage
from nhc_adapters.cloud.oracle import api
from nhc_adapters.cloud.oracle.api import PERMISSIONS, ocid
from nhc_adapters.cloud.oracle.repairer import OracleRepairer
from tests.support.clouds.cut_models import cut_oracle
from tests.support.clouds.oracle import CLUSTER, COMPARTMENT, KEY_ID, MODEL, NODE_POOL, POOL, FakeOracle

ROOT = Path(__file__).resolve().parents[3]
TAGGED = {"Ops": {"owner": "ml"}, "ComputeInstanceHostActions": {"CustomerReportedHostStatus": "unhealthy"}}


def repairer(fake, **settings):
    given = {key.replace("_", "-"): value for key, value in settings.items()}
    base = {"endpoint": fake.url, "credentials": "config", "config-file": str(fake.config), "compartment": COMPARTMENT}
    return OracleRepairer({**base, **given}, {}, 5.0)


class OracleWorld(RepairerWorld):
    secrets = (KEY_ID, "BEGIN PRIVATE KEY")
    made_by = OracleRepairer

    def __init__(self, rung, kind="", sees=True, names=False, key=False, **settings):
        self._directory = tempfile.TemporaryDirectory()
        self.fake, self.rung = FakeOracle(Path(self._directory.name)), rung
        self.sees_effect, self.names_replacement, self.takes_key = sees, names, key
        self.machine = Machine("gpu-1", f"oci://{self.fake.instance(kind)}")
        self.gone = self.fake.instance(lifecycleState="TERMINATED")
        self.repairer = repairer(self.fake, **settings)

    def close(self):
        self.fake.close()
        self._directory.cleanup()

    def calls(self):
        return self.fake.calls

    def keys_seen(self):
        return self.fake.keys

    def lose_next_answer(self):
        self.fake.next_fault = "lost"

    def fail_next_call(self):
        self.fake.next_fault = "error"

    def throttle_next_call(self):
        self.fake.next_fault = "throttled"

    def deny(self):
        self.fake.denied = True

    def vanish(self):
        self.fake.vanish()

    def stranger(self):
        return self.machine._replace(provider_id=f"oci://{self.gone}")

    def take_effect(self):
        self.fake.settle()

    def effect_fails(self):
        if self.rung is not Rung.REPLACE:
            self.fake.instances[ocid(self.machine)]["lifecycleState"] = "STOPPED"
            return True
        if self.fake.work:
            self.fake.work["w1"] = "FAILED"
            return True
        return False


WORLDS = {
    "softreset": lambda: OracleWorld(Rung.REBOOT, sees=False, key=True),
    "reset": lambda: OracleWorld(Rung.POWER_CYCLE, sees=False, key=True),
    "pool": lambda: OracleWorld(Rung.REPLACE, "pool", names=True, key=True, pool=POOL),
    "oke": lambda: OracleWorld(Rung.REPLACE, "oke", replace="oke", node_pool=NODE_POOL),
    "memory-cluster": lambda: OracleWorld(Rung.REPLACE, replace="memory-cluster", gpu_memory_cluster=CLUSTER),
    "terminate": lambda: OracleWorld(Rung.REPLACE, replace="terminate"),
    "reboot-migrate": lambda: OracleWorld(Rung.REPLACE, sees=False, key=True, replace="reboot-migrate"),
}


@pytest.fixture(params=WORLDS)
def world(request, monkeypatch):
    monkeypatch.setattr(api, "POLL", 0.01)
    made = WORLDS[request.param]()
    yield made
    made.close()
    assert made.fake.wrong == [], "what Oracle's own model does not allow"


class TestOracle(RepairerContract):
    pass


@pytest.fixture
def fake(tmp_path):
    made = FakeOracle(tmp_path)
    yield made
    made.close()
    assert made.wrong == []


def order(machine, rung):
    return Order("6b1f0a52-5f3c-4b57-9a3f-1f0e2d3c4b5a", "17", 1, machine, rung, "Xid79: gpu3 fell off the bus")


@pytest.mark.parametrize(
    ("provider", "found"),
    [
        ("ocid1.instance.oc1.us-chicago-1.abc", "ocid1.instance.oc1.us-chicago-1.abc"),
        ("oci://ocid1.instance.oc1.iad.abc", "ocid1.instance.oc1.iad.abc"),
        ("ocid1.tenancy.oc1..abc", ""),
        ("oci://ocid1.instance.oc1.iad.abc/more", ""),
        ("aws:///us-east-1a/i-0123456789abcdef0", ""),
    ],
)
def test_the_instance_is_read_off_the_provider_id(provider, found):
    assert ocid(Machine("n1", provider)) == found


def test_the_host_is_tagged_before_the_instance_goes_and_other_tags_stay(fake):
    machine = Machine("n1", fake.instance("pool"))
    assert repairer(fake, pool=POOL).send(order(machine, Rung.REPLACE)).answer is Answer.ACCEPTED
    assert fake.instances[machine.provider_id]["definedTags"] == TAGGED
    assert [name for name in fake.requests if name in ("update_instance", "detach_instance_pool_instance")] == [
        "update_instance",
        "detach_instance_pool_instance",
    ]
    assert fake.bodies[-1] == {"instanceId": machine.provider_id, "isAutoTerminate": True, "isDecrementSize": False}


def test_without_the_tag_nothing_goes(fake):
    fake.namespace = False
    machine = Machine("n1", fake.instance("pool"))
    sent = repairer(fake, pool=POOL).send(order(machine, Rung.REPLACE))
    assert (sent.answer, fake.calls) == (Answer.REFUSED, [])
    assert "tag namespace" in sent.message


def test_a_change_by_somebody_else_in_between_refuses_ours(fake):
    machine = Machine("n1", fake.instance())
    mine = repairer(fake)
    target = mine._prepare(order(machine, Rung.REBOOT))
    fake.instances[machine.provider_id]["etag"] = "another"
    with pytest.raises(AdapterError, match="NoEtagMatch"):
        mine._act(order(machine, Rung.REBOOT), target)


@pytest.mark.parametrize(("reboot", "action"), [("softreset", "SOFTRESET"), ("reset", "RESET")])
def test_a_reboot_is_soft_unless_the_site_says_otherwise(fake, reboot, action):
    machine = Machine("n1", fake.instance())
    repairer(fake, reboot=reboot).send(order(machine, Rung.REBOOT))
    assert fake.queries[-1] == {"action": action}
    repairer(fake, reboot=reboot).send(order(machine, Rung.POWER_CYCLE))
    assert fake.queries[-1] == {"action": "RESET"}


def test_what_is_not_possible_is_said_and_not_sent(fake):
    machine = Machine("n1", fake.instance())
    for settings, why in (({"replace": "pool"}, "repairers.oracle.pool"), ({"pool": POOL}, "not of the instance pool")):
        mine = repairer(fake, **settings)
        assert why in mine.can(machine, Rung.REPLACE)
        assert mine.send(order(machine, Rung.REPLACE)).answer is Answer.REFUSED
    assert fake.calls == []


def test_a_memory_cluster_comes_back_to_its_size_after_a_lost_answer(fake):
    machine = Machine("n1", fake.instance())
    mine = repairer(fake, replace="memory-cluster", gpu_memory_cluster=CLUSTER)
    todo, before = order(machine, Rung.REPLACE), mine.look(machine)
    fake.next_fault = "lost"
    sent = mine.send(todo)
    assert (sent.answer, sent.request_id) == (Answer.AMBIGUOUS, "size/4")
    fake.settle()
    assert mine.progress(todo, sent, before).stage is Stage.HALFWAY
    for _time in range(2):
        sent = mine.complete(todo, sent)
    assert mine.progress(todo, sent, before).stage is Stage.DONE
    assert fake.calls == ["terminate_instance", "update_compute_gpu_memory_cluster"]


def test_nothing_follows_where_nothing_is_to_follow(fake):
    machine = Machine("n1", fake.instance())
    sent = repairer(fake).complete(order(machine, Rung.REBOOT), Sent(Answer.ACCEPTED, ""))
    assert (sent.answer, fake.calls) == (Answer.REFUSED, [])


def test_oracles_maintenance_is_claimed(fake):
    machine = Machine("n1", fake.instance())
    event = {
        "instanceId": machine.provider_id, "instanceAction": "REBOOT_MIGRATION", "maintenanceCategory": "MANDATORY",
        "maintenanceReason": "HARDWARE_REPLACEMENT", "lifecycleState": "SCHEDULED",
        "timeWindowStart": "2026-12-01T00:00:00Z",
    }  # fmt: skip
    fake.events = [event, {**event, "lifecycleState": "SUCCEEDED"}, {**event, "instanceAction": "NONE"}]
    (claim,) = repairer(fake).claims(machine)
    assert claim.actor == "oracle"
    assert "HARDWARE_REPLACEMENT is SCHEDULED, at 2026-12-01" in claim.doing
    fake.instances[machine.provider_id]["lifecycleState"] = "STOPPING"
    assert "STOPPING" in repairer(fake).claims(machine)[0].doing


def test_the_console_is_evidence_and_is_deleted_again(fake, monkeypatch):
    monkeypatch.setattr(api, "POLL", 0.01)
    machine = Machine("n1", fake.instance())
    (console,) = repairer(fake).evidence(machine, EvidenceBudget(size=50))
    assert (console.cut, console.content[-3:]) == (True, b"79\n")
    assert fake.requests[-1] == "delete_console_history"


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda path: path.unlink(), "No such file"),
        (lambda path: path.write_text("[DEFAULT]\nuser=u\n"), "no 'key_file' in"),
        (lambda path: path.write_text("nothing of the kind"), "config"),
        (lambda path: (path.parent / "key.pem").write_text("no key"), "no private key"),
    ],
)
def test_a_configuration_that_is_no_use_is_said_in_one_line(fake, spoil, said):
    machine = Machine("n1", fake.instance())
    spoil(fake.config)
    with pytest.raises(AdapterError, match=said) as caught:
        repairer(fake).look(machine)
    assert "\n" not in str(caught.value)


def test_principals_need_the_library_and_say_so(fake, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "oci.auth", None)
    with pytest.raises(AdapterError, match="extra oci"):
        repairer(fake, credentials="instance-principal").look(Machine("n1", fake.instance()))


def test_the_policy_holds_exactly_what_the_calls_take():
    text = (ROOT / "adapters/oracle/policy-repair.txt").read_text()
    granted = {one for group in re.findall(r"\{([^}]+)\}", text) for one in re.split(r"[,\s]+", group) if one}
    assert granted == {*PERMISSIONS.values(), "TAG_NAMESPACE_USE"}
    called = {
        node.args[0].value
        for path in (ROOT / "adapters/nhc_adapters/cloud/oracle").glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and getattr(node.func, "attr", "") == "call"
        and len(node.args) > 2
        and isinstance(node.args[0], ast.Constant)
    }
    assert called - {"the metadata service"} == set(PERMISSIONS) == set(json.loads(MODEL.read_text())["methods"])


if importlib.util.find_spec("oci"):  # 286 MB: only where somebody has it

    def test_the_part_of_oracles_model_is_still_what_oracle_ships():
        import oci

        now, ours = cut_oracle(Path(oci.__file__).parent), json.loads(MODEL.read_text())
        assert {**now, "version": ""} == {**ours, "version": ""}
