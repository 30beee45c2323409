"""The Google repairer: the contract for each way, and the situations that are Google's own."""

from __future__ import annotations

import ast
import importlib.util
import json
import time
from pathlib import Path

import pytest
import yaml

from nhc.lab.testing.repairers import RepairerContract, RepairerWorld
from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.repair import Answer, EvidenceBudget, Machine, Order, Rung, Sent, Stage
from nhc_adapters.cloud.google.api import PERMISSIONS, behavior, place
from nhc_adapters.cloud.google.repairer import GoogleRepairer
from nhc_adapters.kubernetes.repair.gke import progress as gke_progress
from nhc_adapters.kubernetes.repair.gke import wanted
from tests.support.clouds.cut_models import cut_google
from tests.support.clouds.google import MODEL, TOKEN, FakeGoogle

ROOT = Path(__file__).resolve().parents[3]
ZONE = {"project": "p1", "zone": "us-central1-a"}
RESERVED = {"reservationAffinity": {"consumeReservationType": "SPECIFIC_RESERVATION"}}


def of(name, fake, **more):
    address = fake.instances[name]["networkInterfaces"][0]["networkIP"]
    return Machine(name, f"gce://p1/us-central1-a/{name}", address, **more)


def repairer(fake, timeout=5.0, **settings):
    given = {key.replace("_", "-"): value for key, value in settings.items()}
    return GoogleRepairer({"endpoint": fake.url, "metadata": fake.url, **ZONE, **given}, {}, timeout)


class GoogleWorld(RepairerWorld):
    secrets = (TOKEN,)
    made_by = GoogleRepairer
    takes_key = True

    def __init__(self, rung, group="", instance=None, **settings):
        self.fake, self.rung = FakeGoogle(), rung
        self.machine = of(self.fake.instance(group, **(instance or {})), self.fake)
        self.repairer = repairer(self.fake, **settings)

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
        return self.machine._replace(address="10.128.9.9")

    def take_effect(self):
        self.fake.settle()

    def effect_fails(self):
        self.fake.fail()
        return True


WORLDS = {
    "reset": lambda: GoogleWorld(Rung.REBOOT),
    "stop-start": lambda: GoogleWorld(Rung.POWER_CYCLE),
    "recreate": lambda: GoogleWorld(Rung.REPLACE, "workers"),
    "report-faulty": lambda: GoogleWorld(Rung.REPLACE, instance=RESERVED),
}


@pytest.fixture(params=WORLDS)
def world(request):
    made = WORLDS[request.param]()
    yield made
    made.fake.close()
    assert made.fake.wrong == [], "what Google's own model does not allow"


class TestGoogle(RepairerContract):
    pass


@pytest.fixture
def fake():
    made = FakeGoogle()
    yield made
    made.close()
    assert made.wrong == []


def order(machine, rung, because="Xid79: gpu3 fell off the bus"):
    return Order("6b1f0a52-5f3c-4b57-9a3f-1f0e2d3c4b5a", "17", 1, machine, rung, because)


@pytest.mark.parametrize(
    ("provider", "found"),
    [
        ("gce://p1/us-central1-a/gpu-1", ("p1", "us-central1-a", "gpu-1")),
        ("gce://example.com:p1/us-central1-a/gpu-1", ("example.com:p1", "us-central1-a", "gpu-1")),
        ("gce://p1/us-central1-a/gpu-1/more", None),
        ("gce://p1/us-central1-a", None),
        ("aws:///us-east-1a/i-0123456789abcdef0", None),
        ("x-gce://p1/us-central1-a/gpu-1", None),
    ],
)
def test_the_instance_is_read_off_the_provider_id_alone(provider, found):
    assert place(Machine("gpu-9", provider, settings={"project": "p", "zone": "z", "instance": "i"})) == found
    assert place(Machine("gpu-9", settings={"project": "p", "zone": "z", "instance": "i"})) == ("p", "z", "i")


@pytest.mark.parametrize(
    ("because", "word"),
    [
        ("Xid79: gpu3 fell off the bus", "UNRECOVERABLE_GPU_ERROR"),
        ("check_gpu_bandwidth: gpu3 has 20 GB/s, below 45", "PERFORMANCE"),
        ("silent data corruption on gpu1", "SILENT_DATA_CORRUPTION"),
        ("check_fs_free: / is full", "BEHAVIOR_UNSPECIFIED"),
    ],
)
def test_a_fault_is_told_in_googles_words(because, word):
    assert behavior(because) == word


def test_a_report_names_the_fault(fake):
    machine = of(fake.instance(**RESERVED), fake)
    assert repairer(fake).send(order(machine, Rung.REPLACE)).answer is Answer.ACCEPTED
    reason = {"behavior": "UNRECOVERABLE_GPU_ERROR", "description": "Xid79: gpu3 fell off the bus"}
    assert fake.asked[-1]["body"] == {"disruptionSchedule": "IMMEDIATE", "faultReasons": [reason]}


def test_a_host_out_for_repair_is_waited_for_and_the_instance_started(fake):
    machine = of(fake.instance(**RESERVED), fake)
    mine, todo = repairer(fake), order(machine, Rung.REPLACE)
    before = mine.look(machine)
    sent = mine.send(todo)
    assert mine.progress(todo, sent, before).stage is Stage.WORKING
    seen = fake.instances[machine.node]
    fake.operations[0]["status"] = "DONE"
    seen["status"] = "REPAIRING"
    assert mine.progress(todo, sent, before).stage is Stage.WORKING
    assert "repairs the host" in [claim.doing for claim in mine.claims(machine)]
    seen["status"] = "TERMINATED"
    fake.pending = []
    assert mine.progress(todo, sent, before).stage is Stage.HALFWAY
    started = mine.complete(todo, sent)
    assert mine.progress(todo, started, before).stage is Stage.WORKING
    fake.settle()
    assert mine.progress(todo, started, before).stage is Stage.DONE
    assert fake.calls == ["instances.reportHostAsFaulty", "instances.start"]
    assert len(set(fake.keys)) == 2, "the start has a key of its own"


def test_a_start_in_the_hour_that_autumn_has_twice_is_seen(fake):
    """Google's times carry the offset of Pacific time, which changes in the night of a reset."""
    machine = of(fake.instance(), fake)
    mine, todo, seen = repairer(fake), order(machine, Rung.POWER_CYCLE), fake.instances[machine.node]
    seen["lastStartTimestamp"] = "2026-11-01T01:50:00.000-07:00"
    before = mine.look(machine)
    sent = mine.send(todo)
    fake.settle()
    started = mine.complete(todo, sent)
    fake.settle()
    seen["lastStartTimestamp"] = "2026-11-01T01:05:00.000-08:00"
    assert mine.progress(todo, started, before).stage is Stage.DONE


def test_an_order_that_never_arrived_is_said_after_a_while(fake):
    machine = of(fake.instance(), fake)
    mine, todo = repairer(fake), order(machine, Rung.REBOOT)
    sent, before = Sent(Answer.AMBIGUOUS, "the loop stopped before it knew the answer"), mine.look(machine)
    assert mine.progress(todo, sent, before).stage is Stage.WORKING
    seen = mine.progress(todo, sent, before._replace(at=time.time() - 1000))
    assert (seen.stage, "no operation" in seen.message) == (Stage.NOT_BEGUN, True)


def test_a_recreated_instance_is_another_though_its_name_is_the_same(fake):
    machine = of(fake.instance("workers"), fake)
    mine, todo = repairer(fake), order(machine, Rung.REPLACE)
    before = mine.look(machine)
    sent = mine.send(todo)
    fake.managed[machine.node]["currentAction"] = "VERIFYING"
    assert "VERIFYING" in mine.progress(todo, sent, before).message
    assert [claim.actor for claim in mine.claims(machine)] == ["managed-instance-group"]
    fake.settle()
    after = mine.look(machine)
    assert after.instance != before.instance
    assert mine.progress(todo, sent, before).stage is Stage.DONE
    stale = machine._replace(settings={"instance_id": before.instance})
    assert mine.send(order(stale, Rung.REPLACE)).answer is Answer.REFUSED
    assert fake.calls == ["instanceGroupManagers.recreateInstances"]


@pytest.mark.parametrize(
    ("group", "instance", "settings", "rung", "why"),
    [
        ("", {}, {}, Rung.REPLACE, "no managed instance group"),
        ("", {}, {"replace": "report-faulty"}, Rung.REPLACE, "in a reservation"),
        ("workers", {}, {}, Rung.POWER_CYCLE, "would repair an instance that is stopped"),
        ("", {"disks": [{"type": "SCRATCH"}]}, {}, Rung.POWER_CYCLE, "local SSDs"),
        ("", {"status": "TERMINATED"}, {}, Rung.REBOOT, "TERMINATED"),
        ("", {}, {}, Rung.RELOAD_DRIVER, "no reload-driver"),
    ],
)
def test_what_is_not_possible_is_said_and_not_sent(fake, group, instance, settings, rung, why):
    machine = of(fake.instance(group, **instance), fake)
    mine = repairer(fake, **settings)
    assert why in mine.can(machine, rung)
    sent = mine.send(order(machine, rung))
    assert (sent.answer, fake.calls, why in sent.message) == (Answer.REFUSED, [], True)


def test_local_disks_are_given_up_only_where_the_site_says_so(fake):
    machine = of(fake.instance(disks=[{"type": "SCRATCH"}]), fake)
    assert repairer(fake, discard_local_ssd="yes").send(order(machine, Rung.POWER_CYCLE)).answer is Answer.ACCEPTED
    assert fake.asked[-1]["discardLocalSsd"] == "true"


def test_other_actors_are_found(fake):
    maintenance = {"type": "SCHEDULED", "maintenanceStatus": "PENDING", "windowStartTime": "2026-11-30T00:00:00Z"}
    machine = of(fake.instance("workers", resourceStatus={"upcomingMaintenance": maintenance}), fake)
    mine = repairer(fake, gke_auto_repair="yes")
    assert [claim.actor for claim in mine.claims(machine)] == ["google"]
    fake.healing = {"autoHealingPolicies": [{"healthCheck": "global/healthChecks/h"}]}
    assert [claim.actor for claim in mine.claims(machine)] == ["google", "managed-instance-group"]
    fake.healing["instanceLifecyclePolicy"] = {"onFailedHealthCheck": "DO_NOTHING"}
    assert [claim.actor for claim in mine.claims(machine)] == ["google"]
    fake._operation("stop", machine.node, {})
    assert "nhc@p1.iam.gserviceaccount.com" in [claim.actor for claim in mine.claims(machine)]
    labels = {"cloud.google.com/gke-nodepool": "a3", "cloud.google.com/fault-behavior": "XID"}
    found = {claim.actor: claim.source for claim in mine.claims(Machine("n1", labels=labels))}
    assert found["gke"] == "label cloud.google.com/fault-behavior=XID"
    assert "gke-auto-repair" in found


def test_gkes_labels_and_their_progress():
    assert wanted(Rung.REPLACE, "UNRECOVERABLE_GPU_ERROR") == {"cloud.google.com/fault-behavior": "XID"}
    assert wanted(Rung.REBOOT, "") == {"cloud.google.com/perform-reboot": "true"}
    status = "cloud.google.com/report-and-replace-status"
    asked = wanted(Rung.REPLACE, "")
    assert gke_progress({**asked, status: "PodsEvicted"}, asked).stage is Stage.WORKING
    for word in ("Error", "ERROR"):
        assert gke_progress({**asked, status: word}, asked).stage is Stage.FAILED
    assert gke_progress({}, asked).stage is Stage.WORKING, "no label is no proof that the host was replaced"


def test_rights_that_are_missing_are_named(fake):
    fake.instance()
    fake.granted = {"compute.instances.get", "compute.instances.reset"}
    found = {right.name: right.granted for right in repairer(fake).rights()}
    assert found["compute.instances.reset"] is True
    assert found["compute.instances.update"] is False
    unset = GoogleRepairer({"endpoint": fake.url, "metadata": fake.url}, {})
    assert {right.granted for right in unset.rights()} == {None}


def test_the_console_is_evidence(fake):
    machine = of(fake.instance(), fake)
    (console,) = repairer(fake).evidence(machine, EvidenceBudget(size=50))
    assert (console.name, console.cut) == ("console.txt", True)
    assert console.content.endswith(b"79\n")


def test_a_token_is_asked_for_once_and_again_before_it_ends(fake):
    machine = of(fake.instance(), fake)
    mine = repairer(fake)
    for _time in range(5):
        mine.look(machine)
    assert fake.requests.count("token") == 1


def test_other_credentials_need_the_library_and_say_so(fake, monkeypatch):
    machine = of(fake.instance(), fake)
    mine = repairer(fake, credentials="default")
    monkeypatch.setitem(__import__("sys").modules, "google.auth", None)
    with pytest.raises(AdapterError, match="extra gcp"):
        mine.look(machine)


def test_the_role_holds_exactly_what_the_calls_take():
    role = yaml.safe_load((ROOT / "adapters/google/role-repair.yaml").read_text())
    assert sorted(role["includedPermissions"]) == sorted({one for one in PERMISSIONS.values() if one})
    called = {
        node.args[0].value
        for path in (ROOT / "adapters/nhc_adapters/cloud/google").glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and getattr(node.func, "attr", "") == "call"
        and node.args
        and isinstance(node.args[0], ast.Constant)
        and "." in node.args[0].value
    }
    both = {f"{kind}.{verb}" for kind in ("zoneOperations", "regionOperations") for verb in ("get", "list")}
    assert called | both == set(PERMISSIONS)


if importlib.util.find_spec("googleapiclient"):  # 137 MB: only where somebody has it

    def test_the_part_of_googles_model_is_still_what_google_ships():
        import googleapiclient

        shipped = Path(googleapiclient.__file__).parent / "discovery_cache/documents/compute.v1.json"
        now, ours = cut_google(json.loads(shipped.read_text())), json.loads(MODEL.read_text())
        assert {**now, "revision": ""} == {**ours, "revision": ""}
