"""Cards taken out of their slots: what a person asked for, what was pulled, what died."""

import pytest

from nhc.lab.testing.fake_host import FakeHost
from nhc.node.kernlog.collect import take_in
from nhc.node.kernlog.findings import current
from nhc.node.kernlog.hotplug import ASKED, SLOTS, TOGETHER
from nhc.node.kernlog.node_context import beside_node
from nhc.node.kernlog.shape import fit

NOW = 1_700_000_000.0
SLOT = "pcieport 0000:17:01.0: pciehp: Slot(3): "
PRESSES = (f"{SLOT}Powering off due to button press", f"{SLOT}Button press: will power off in 5 sec")
CANCELS = (f"{SLOT}Button cancel", f"{SLOT}Button press: canceling request to power off")
DOWN, EMPTY = f"{SLOT}Link Down", f"{SLOT}Card not present"
LOST = "nvme nvme0: Removing after probe failure status: -19"
ROOT = "22 1 0:31 / / rw - ext4 {} rw\n"


def log(*messages):
    state = {}
    for after, line in messages:
        take_in(state, [(line, NOW + after)], NOW)
    return state


def keys(state):
    return [key for key, _finding in current(state)]


@pytest.mark.parametrize("press", PRESSES)
def test_a_link_that_goes_down_soon_after_its_button_was_pressed_is_no_fault(press):
    assert keys(log((0, press), (ASKED, DOWN))) == []
    assert keys(log((0, press), (ASKED + 1, DOWN))) == ["pcie/SlotLinkDown/0000:17:01.0"]


@pytest.mark.parametrize("cancel", CANCELS)
def test_a_button_pressed_again_keeps_the_slot(cancel):
    assert keys(log((0, PRESSES[0]), (2, cancel), (4, DOWN))) == ["pcie/SlotLinkDown/0000:17:01.0"]


def test_the_button_of_another_slot_excuses_nothing():
    for other in (PRESSES[0].replace("Slot(3)", "Slot(4)"), PRESSES[0].replace("17:01", "17:02")):
        assert keys(log((0, other), (2, DOWN))) == ["pcie/SlotLinkDown/0000:17:01.0"]


def test_the_memory_of_buttons_is_bounded():
    state = log(*((number, PRESSES[0].replace("(3)", f"({number})")) for number in range(SLOTS + 9)))
    assert len(state["slots"]) == SLOTS


def severity(state, files):
    host = FakeHost({"/proc/bus/pci/devices": "", "/proc/swaps": "Filename\n", **files})
    standing, gone = beside_node(host, state, current(state, ("nvme",)))
    assert gone == []
    return [finding["severity"] for _key, finding in standing]


ELSEWHERE = {"/proc/self/mountinfo": ROOT.format("/dev/nvme1n1p2")}


def test_a_drive_fails_with_the_card_that_was_taken_out():
    assert severity(log((0, EMPTY), (TOGETHER, LOST)), ELSEWHERE) == ["degraded"]
    assert severity(log((0, LOST), (5, EMPTY)), ELSEWHERE) == ["degraded"], "whichever comes first"
    assert severity(log((0, EMPTY), (TOGETHER + 1, LOST)), ELSEWHERE) == ["fatal"]


@pytest.mark.parametrize(
    ("line", "files"),
    [
        (DOWN, ELSEWHERE),  # the card is still in its slot
        (EMPTY, {"/proc/self/mountinfo": ROOT.format("/dev/nvme0n1p2")}),  # the node mounts it
        (EMPTY, {**ELSEWHERE, "/sys/class/nvme/nvme0/state": "dead\n"}),  # another card was taken out
        (EMPTY, {}),  # nobody can tell what the node mounts
    ],
)
def test_a_drive_that_died_stays_fatal(line, files):
    assert severity(log((0, line), (20, LOST)), files) == ["fatal"]


def test_a_store_that_somebody_else_wrote_is_mended():
    assert fit({"slots": {"a": "soon", "b": 1.0}, "taken_out": "now"}) == {"slots": {"b": 1.0}}
