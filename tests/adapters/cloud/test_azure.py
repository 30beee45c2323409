"""The Azure repairer: the contract for each way, and the situations that are Azure's own."""

from __future__ import annotations

import importlib.util
import json
import uuid
from pathlib import Path

import pytest

from nhc.lab.testing.repairers import RepairerContract, RepairerWorld
from nhc.marks.ports.repair import Answer, EvidenceBudget, Machine, Order, Rung, Stage
from nhc_adapters.cloud.azure.api import vm
from nhc_adapters.cloud.azure.repairer import ACTIONS, AzureRepairer, category
from tests.support.clouds.azure import MODEL, SIGNATURE, SUBSCRIPTION, TOKEN, FakeAzure
from tests.support.clouds.cut_models import cut_azure

ROOT = Path(__file__).resolve().parents[3]
AKS = {"kubernetes.azure.com/agentpool": "gpus"}
REMOVED = {"properties": {"additionalDetails": {"statusCode": "NodeRemovedFromService", "terminalInsight": True}}}
SEEN = {"properties": {"additionalDetails": {"statusCode": "AcknowledgedUnhealthy", "terminalInsight": False}}}


def of(path, fake, **more):
    return Machine("gpu-1", f"azure://{path}", uuid=fake.machines[path.lower()]["vmId"], **more)


def repairer(fake, **settings):
    given = {key.replace("_", "-"): value for key, value in settings.items()}
    where = {"subscription": SUBSCRIPTION, "resource-group": "RG1"}
    return AzureRepairer({"endpoint": fake.url, "metadata": fake.url, **where, **given}, {}, 5.0)


class AzureWorld(RepairerWorld):
    secrets = (TOKEN, SIGNATURE)
    made_by = AzureRepairer

    def __init__(self, rung, scale_set="", names=True, fails=True, labels=None, group="RG1", lost=True, **settings):
        self.fake, self.rung, self.names_replacement, self.fails = FakeAzure(), rung, names, fails
        self.sees_lost = lost  # Azure shows that the machine was worked on, and not by whom
        path = self.fake.machine("3" if scale_set else "gpu-1", scale_set, group)
        self.machine = of(path, self.fake, labels=labels or {})
        self.repairer = repairer(self.fake, **settings)

    def calls(self):
        return self.fake.calls

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
        return self.machine._replace(uuid=str(uuid.uuid4()))

    def take_effect(self):
        if self.fake.reports and not self.fake.insights:
            self.fake.insights = [SEEN, REMOVED]
        self.fake.settle()

    def effect_fails(self):
        if self.fake.reports:
            self.fake.insights = [
                {"properties": {"additionalDetails": {"statusCode": "NoAction", "terminalInsight": True}}}
            ]
        elif self.fails:
            self.fake.fail()
        return self.fails


WORLDS = {
    "restart": lambda: AzureWorld(Rung.REBOOT, lost=False),
    "restart-uniform": lambda: AzureWorld(Rung.REBOOT, "workers", lost=False),
    "power-cycle": lambda: AzureWorld(Rung.POWER_CYCLE),
    "redeploy": lambda: AzureWorld(Rung.REPLACE, lost=False),
    "reimage-uniform": lambda: AzureWorld(Rung.REPLACE, "workers", lost=False, replace="reimage"),
    "deallocate": lambda: AzureWorld(Rung.REPLACE, replace="deallocate"),
    "delete-uniform": lambda: AzureWorld(Rung.REPLACE, "workers", names=False, fails=False, replace="delete"),
    "report": lambda: AzureWorld(Rung.REPLACE, replace="report"),
    "aks": lambda: AzureWorld(
        Rung.REPLACE, "aks-gpus", names=False, fails=False, labels=AKS, group="MC_prod_ml_eastus", replace="aks"
    ),
}


@pytest.fixture(params=WORLDS)
def world(request):
    made = WORLDS[request.param]()
    yield made
    made.fake.close()
    assert made.fake.wrong == [], "what Azure's own model does not allow"


class TestAzure(RepairerContract):
    def order(self, world, **changes):
        # HOSTILE text and all: a report's name follows from the machine, its boot and the fault.
        return super().order(world, **changes)


@pytest.fixture
def fake():
    made = FakeAzure()
    yield made
    made.close()
    assert made.wrong == []


def order(machine, rung, because="Xid79: gpu3 fell off the bus"):
    return Order("6b1f0a52-5f3c-4b57-9a3f-1f0e2d3c4b5a", "17", 1, machine, rung, because)


BASE = "/subscriptions/s1/resourceGroups/RG/providers/Microsoft.Compute"


@pytest.mark.parametrize(
    ("provider", "found"),
    [
        (f"azure://{BASE}/virtualMachines/gpu-1", ("s1", "RG", "", "gpu-1")),
        (f"azure://{BASE.lower()}/virtualmachines/gpu-1", ("s1", "rg", "", "gpu-1")),
        (f"{BASE}/virtualMachines/gpu-1", ("s1", "RG", "", "gpu-1")),
        (f"azure://{BASE}/virtualMachineScaleSets/vmss/virtualMachines/3", ("s1", "RG", "vmss", "3")),
        (f"azure://{BASE}/virtualMachines/gpu-1/extensions/x", None),
        ("gce://p1/us-central1-a/gpu-1", None),
    ],
)
def test_the_machine_is_read_off_the_provider_id(provider, found):
    assert vm(Machine("n1", provider)) == found


def test_the_byte_order_of_the_uuid_does_not_matter(fake):
    machine = of(fake.machine(), fake)
    swapped = str(uuid.UUID(bytes_le=uuid.UUID(machine.uuid).bytes))
    assert swapped != machine.uuid
    assert repairer(fake).can(machine._replace(uuid=swapped), Rung.REBOOT) == ""
    assert "another machine" in repairer(fake).can(machine._replace(uuid=str(uuid.uuid4())), Rung.REBOOT)


@pytest.mark.parametrize(
    ("because", "word"),
    [
        ("Xid79: gpu3", "XID79FallenOffBus"),
        ("GpuFallenOffBus: gpu3 does not answer", "XID79FallenOffBus"),
        ("Xid48: double bit ECC error", "XID48DoubleBitECC"),
        ("Xid119: GSP timeout", "GpuXIDError"),
        ("GpuCountMismatch: 7 of 8 GPUs: one is missing", "HpcMissingGpu"),
        ("check_hw_ib: mlx5_0 InfiniBand port is down", "IBPortDown"),
        ("InfiniBand link flapping on mlx5_3", "IBPortFlapping"),
        ("NvlinkInactive: gpu0 link 3", "NvLink"),
        ("RowRemapFailure: gpu2", "HpcRowRemapFailure"),
        ("check_fs_free: / is full", "HpcGenericFailure"),
    ],
)
def test_a_fault_is_told_in_azures_words(because, word):
    assert category(because) == f"Resource.Hpc.Unhealthy.{word}"


def test_a_report_carries_the_log_and_says_it_once(fake, tmp_path):
    (tmp_path / "gpu-1.log.gz").write_bytes(b"\x1f\x8bthe log")
    machine = of(fake.machine(), fake, boot_id="b1", settings={"serial": "1654321", "model": "H100"})
    mine = repairer(fake, replace="report", log_directory=str(tmp_path))
    for _time in range(2):
        assert mine.send(order(machine, Rung.REPLACE)).answer is Answer.ACCEPTED
    ((_name, report),) = fake.reports.items()
    assert report["impactCategory"].endswith("XID79FallenOffBus")
    more = report["additionalProperties"]
    assert (more["SerialNumber"], more["ModelNumber"]) == ("1654321", "H100")
    assert more["LogUrl"] == f"{fake.url}/blob/20261122080000_0a1b2c3d.gz"
    assert fake.blobs["/blob/20261122080000_0a1b2c3d.gz"] == b"\x1f\x8bthe log"
    assert mine.send(order(machine._replace(boot_id="b2"), Rung.REPLACE)).answer is Answer.ACCEPTED
    assert len(fake.reports) == 2


def test_only_a_terminal_insight_has_the_machine_deallocated(fake):
    machine = of(fake.machine(), fake)
    mine, todo = repairer(fake, replace="report"), order(machine, Rung.REPLACE)
    before = mine.look(machine)
    sent = mine.send(todo)
    assert "nothing" in mine.progress(todo, sent, before).message
    fake.insights = [SEEN]
    assert mine.progress(todo, sent, before).stage is Stage.WORKING
    fake.insights = [SEEN, REMOVED]
    assert mine.progress(todo, sent, before).stage is Stage.HALFWAY
    sent = mine.complete(todo, sent)
    assert mine.progress(todo, sent, before).stage is Stage.WORKING
    fake.settle()
    assert mine.progress(todo, sent, before).stage is Stage.HALFWAY
    sent = mine.complete(todo, sent)
    fake.settle()
    assert mine.progress(todo, sent, before).stage is Stage.DONE
    assert fake.calls == ["report", "deallocate", "start"]


def test_a_pool_comes_back_to_its_size_and_no_further(fake):
    path = fake.machine("3", "aks-gpus", "MC_prod_ml_eastus")
    machine = of(path, fake, labels=AKS)
    mine, todo = repairer(fake, replace="aks"), order(machine, Rung.REPLACE)
    before = mine.look(machine)
    sent = mine.send(todo)
    assert (sent.answer, sent.request_id) == (Answer.ACCEPTED, "size/3")
    fake.settle()
    assert fake.pool["count"] == 2
    assert mine.progress(todo, sent, before).stage is Stage.HALFWAY
    for _time in range(2):
        sent = mine.complete(todo, sent)
    assert fake.pool["count"] == 3
    assert mine.progress(todo, sent, before).stage is Stage.DONE
    assert fake.calls == ["deleteMachines", "grow"]


def test_a_machine_that_azure_works_on_is_left_and_claimed(fake):
    path = fake.machine(state="updating")
    mine = repairer(fake)
    sent = mine.send(order(of(path, fake), Rung.REBOOT))
    assert (sent.answer, sent.retry_after > 0, fake.calls) == (Answer.REFUSED, True, [])
    assert [claim.doing for claim in mine.claims(of(path, fake))] == ["provisioning is updating"]
    fake.machines[path.lower()].update(
        state="succeeded", maintenance={"maintenanceWindowStartTime": "2026-12-01T00:00:00Z"}
    )
    assert [claim.doing for claim in mine.claims(of(path, fake))] == ["maintenance from 2026-12-01T00:00:00Z"]


def test_a_machine_that_is_stopped_is_left(fake):
    machine = of(fake.machine(power="deallocated"), fake)
    assert "deallocated" in repairer(fake).can(machine, Rung.REBOOT)
    assert repairer(fake).send(order(machine, Rung.REBOOT)).answer is Answer.REFUSED
    assert fake.calls == []


def test_rights_that_are_missing_are_named(fake):
    fake.grants = [{"actions": ["Microsoft.Compute/virtualMachines/*"], "notActions": ["*/delete", "*/restart/action"]}]
    found = {right.name: right.granted for right in repairer(fake).rights()}
    assert found["Microsoft.Compute/virtualMachines/redeploy/action"] is True
    assert found["Microsoft.Compute/virtualMachines/restart/action"] is False
    assert found["Microsoft.Compute/virtualMachineScaleSets/virtualMachines/read"] is False
    assert "Microsoft.Compute/virtualMachines/delete" not in found, "nothing is deleted by these settings"
    unset = AzureRepairer({"endpoint": fake.url, "metadata": fake.url}, {})
    assert {right.granted for right in unset.rights()} == {None}


def test_the_console_is_evidence(fake):
    machine = of(fake.machine(), fake)
    pieces = {piece.name: piece for piece in repairer(fake).evidence(machine, EvidenceBudget())}
    assert list(pieces) == ["console.txt", "screenshot.bmp"]
    assert pieces["console.txt"].content.endswith(b"79\n")


def test_the_role_holds_exactly_what_the_calls_take():
    role = json.loads((ROOT / "adapters/azure/role-repair.json").read_text())
    assert sorted(role["Actions"]) == sorted(ACTIONS)
    assert role["NotActions"] == []


if importlib.util.find_spec("azure") and importlib.util.find_spec("azure.mgmt"):  # only where somebody has them

    def test_the_part_of_azures_model_is_still_what_azure_ships():
        import azure.mgmt

        (folder,) = list(azure.mgmt.__path__)
        now, ours = cut_azure(Path(folder)), json.loads(MODEL.read_text())
        assert {**now, "versions": {}} == {**ours, "versions": {}}
