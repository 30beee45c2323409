"""What drivers print, read; and which GPUs one reset takes, decided."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nhc_adapters.node.hand import carry_out, nvidia
from nhc_adapters.node.hand.plan import FABRIC_MANAGER, plan
from nhc_adapters.node.hand.values import AskedRepair, Holder, LoadedUnit, NodeFacts, Refusal, RepairDevice, RepairPlan
from nhc_adapters.node.reach import archive

GPUS = tuple(RepairDevice(n, f"00000000:{24 + n:02X}:00.0", files=(f"/dev/nvidia{n}",), linked=True) for n in range(4))
PARTLY = """\
GPU 00000000:18:00.0 was successfully reset.
The following GPUs could not be reset:
  GPU 00000000:19:00.0: In use by another client

1 device is currently being used by one or more other processes (e.g., Fabric Manager, CUDA application, graphics
application such as an X server, or a monitoring application such as another instance of nvidia-smi).
"""


def facts(**changes):
    return NodeFacts("boot", "uuid", "nvidia", GPUS)._replace(**changes)


def asked(**changes):
    return AskedRepair("k" * 36, "reset-device", "gpu1", uuid="uuid")._replace(**changes)


def of(architecture):
    return tuple(one._replace(architecture=architecture) for one in GPUS)


def test_each_gpu_of_a_reset_has_its_own_result():
    judged = nvidia.judge_reset(255, PARTLY, GPUS[:2])
    assert judged.results == {"gpu0": "reset", "gpu1": "In use by another client"}
    assert not judged.fine
    assert nvidia.judge_reset(0, "GPU 00000000:18:00.0 was successfully reset.\nAll done.\n", GPUS[:1]).fine
    assert not nvidia.judge_reset(0, "All done.\n", GPUS[:1]).fine, "nothing was said of it"
    assert not nvidia.judge_reset(255, "GPU 00000000:18:00.0 was successfully reset.\n", GPUS[:1]).fine


def test_amd_smi_ends_well_and_says_that_it_failed():
    one = (RepairDevice(0, "a"),)
    assert carry_out.judge_reset(0, "GPU: 0\n    GPU_RESET: Successfully reset GPU\n", one).fine
    judged = carry_out.judge_reset(0, "GPU: 0\n    GPU_RESET: Failed to reset GPU\n", one)
    assert (judged.fine, judged.message) == (False, "gpu0: Failed to reset GPU")
    assert not carry_out.judge_reset(0, "", one).fine
    assert not carry_out.judge_reset(0, "GPU: 1\n    Successfully reset GPU\n", one).fine


@given(st.text(), st.integers(0, 255))
def test_no_text_is_a_success_that_does_not_say_so(text, status):
    if "uccess" not in text:
        assert not nvidia.judge_reset(status, text, GPUS[:1]).fine
        assert not carry_out.judge_reset(status, text, GPUS[:1]).fine


@given(st.text())
def test_no_text_breaks_the_list_of_gpus(text):
    with pytest.raises(ValueError, match="nvidia-smi"):
        nvidia.parse_devices(f"{text}<")


def test_entities_are_not_read():
    with pytest.raises(ValueError, match="entities"):
        nvidia.parse_devices('<!DOCTYPE x [<!ENTITY a "aaaa">]><nvidia_smi_log>&a;</nvidia_smi_log>')


@pytest.mark.parametrize(
    ("architecture", "switches", "manager", "together"),
    [
        ("hopper", True, False, 1),
        ("hopper", False, False, 1),
        ("ampere", True, True, 1),
        ("ampere", True, False, 4),  # behind NVSwitches the Fabric Manager must run
        ("ampere", False, False, 1),
        ("volta", False, False, 4),
        ("volta", True, True, 4),
    ],
)
def test_which_gpus_are_reset_together(architecture, switches, manager, together):
    units = {FABRIC_MANAGER: LoadedUnit(manager, "1", ())}
    made = plan(facts(devices=of(architecture), switches=switches, units=units), asked(stoppable=(FABRIC_MANAGER,)))
    assert isinstance(made, RepairPlan)
    assert len(made.devices) == together
    assert len(made.commands[0][-1].split(",")) == together
    assert made.undo == (), "the Fabric Manager holds none of them"


def test_the_fabric_manager_that_a_reset_needs_is_not_stopped():
    held = Holder(7, "nv-fabricmanage", FABRIC_MANAGER, False, ("/dev/nvidia1",))
    units = {FABRIC_MANAGER: LoadedUnit(True, "1", ())}
    made = plan(
        facts(devices=of("ampere"), switches=True, units=units, holders=(held,)), asked(stoppable=(FABRIC_MANAGER,))
    )
    assert isinstance(made, Refusal)
    assert "nv-fabricmanage (pid 7" in made.message
    made = plan(
        facts(devices=of("hopper"), switches=True, units=units, holders=(held,)), asked(stoppable=(FABRIC_MANAGER,))
    )
    assert [one.name for one in made.undo] == [FABRIC_MANAGER]


@pytest.mark.parametrize("name", ["gpu1", "0000:19:00.0", "00000000:19:00.0"])
def test_a_gpu_goes_by_the_names_of_faults(name):
    made = plan(facts(devices=of("hopper")), asked(device=name))
    assert [one.number for one in made.devices] == [1]


def test_another_machine_is_refused():
    assert isinstance(plan(facts(), asked(uuid="other")), Refusal)
    assert isinstance(plan(facts(), asked(uuid="", boot="other")), Refusal)
    assert isinstance(plan(facts(), asked(uuid="", boot="")), Refusal)


def test_the_program_fits_the_pipe_that_it_is_sent_through():
    assert len(archive()) < 60 << 10
