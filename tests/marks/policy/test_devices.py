"""Whose fault it is: one device's, and the others go on; or the node's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nhc.core.model import Action, CheckResult, DeviceId, Outcome, Scope, Verdict
from nhc.core.settings import declared, settings_file
from nhc.marks.policy.devices import DEVICE, NODE, DeviceSettings, by_device, split
from nhc.marks.ports.marks import cause_of, most_drastic

KEEP = DeviceSettings(DEVICE)
GPU3 = DeviceId("0000:3b:00.0", "GPU-3", "3", "1650")
GPU4 = DeviceId("0000:5e:00.0", "GPU-4")


def fault(device: DeviceId, reason: str = "GpuFailed", scope: Scope = Scope.DEVICE, verdict: Verdict = Verdict.CRIT,
          action: Action = Action.RESET_DEVICE) -> CheckResult:  # fmt: skip
    return CheckResult("check_gpu", Outcome(verdict, reason, "bad", "gpu3", action=action, scope=scope, device=device))


def test_several_faults_of_a_device_are_one_problem():
    by_log = fault(DeviceId("0000:3b:00.0"), "Xid48")
    found = split([by_log, fault(GPU3, "GpuRowRemapFailed", action=Action.REPLACE)], KEEP)
    assert found.node == ()
    (device,) = found.devices
    assert device.device == GPU3
    assert cause_of(device.results[0]) == "check_gpu|Xid48|gpu3"
    assert most_drastic(device.results).outcome.action is Action.REPLACE
    assert len(device.results) == 2


def test_two_devices_are_the_nodes_fault():
    found = split([fault(GPU3), fault(GPU4)], KEEP)
    assert found.devices == ()
    assert len(found.node) == 2
    assert found.why == "2 devices fail, and 2 are the node's fault"
    assert len(split([fault(GPU3), fault(GPU4)], KEEP._replace(most=3)).devices) == 2


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (fault(DeviceId(), "FsFull", Scope.NODE), "FsFull is of the node"),
        (fault(GPU3, "LinkDown", Scope.LINK), "LinkDown is of the link"),
        (fault(GPU3, "SXid12020", Scope.BOARD), "SXid12020 is of the board"),
        (fault(DeviceId(minor="3"), "GpuFailed"), "GpuFailed is of the device that nothing names"),
    ],
)
def test_a_fault_of_anything_else_takes_the_node(other: CheckResult, why: str):
    found = split([fault(GPU4), other], KEEP)
    assert found == (
        (),
        (fault(GPU4), other),
        why,
    )


def test_only_failures_count():
    assert (
        split([fault(GPU3), fault(GPU4, verdict=Verdict.WARN), fault(GPU4, verdict=Verdict.UNKNOWN)], KEEP).node == ()
    )
    assert split([fault(GPU4, verdict=Verdict.UNKNOWN)], KEEP) == ((), (), "")


def test_without_the_setting_it_is_the_node_as_ever():
    assert split([fault(GPU3)], DeviceSettings()) == ((), (fault(GPU3),), "")


names = st.sampled_from(["", "a", "b", "c"])
devices = st.builds(DeviceId, names, names).filter(lambda one: one.known)


@pytest.mark.thorough
@given(st.lists(devices, min_size=1, max_size=6), st.randoms())
def test_every_fault_is_counted_once(found: list[DeviceId], random):
    results = [fault(device, f"R{number}") for number, device in enumerate(found)]
    random.shuffle(results)
    groups = by_device(results)
    assert sorted(one.outcome.reason for group in groups for one in group.results) == sorted(
        one.outcome.reason for one in results
    )
    assert [group.results[0] for group in groups] == [
        one for one in results if any(one is group.results[0] for group in groups)
    ]
    for group in groups:  # two names of one device never count twice
        assert not any(group.device.same(other.device) for other in groups if other is not group)


def read(text: str) -> DeviceSettings:
    file = settings_file.parse(text, "remedy.toml")
    found = declared.read(DeviceSettings, file.table("devices"))
    file.finish()
    return found


def test_the_settings():
    assert read("") == DeviceSettings(NODE, 2)
    assert read('[devices]\nkeep = "device"\nmost = 3\n') == DeviceSettings(DEVICE, 3)
    for text, complaint in (('keep = "gpu"', "'gpu'"), ("most = 0", "most"), ("moist = 2", "moist")):
        with pytest.raises(settings_file.SettingsError, match=complaint):
            read(f"[devices]\n{text}\n")
