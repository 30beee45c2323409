"""The ladder goes up only, skips what cannot be with the reason, and ends at a person."""

from hypothesis import given
from hypothesis import strategies as st

from nhc.core.limits import Mode
from nhc.core.model import Action
from nhc.marks.ports.repair import LADDER, Rung
from nhc.remedy.ladder import REFUSALS, Ability, NodeFault, Try, first_rung, next_rung
from nhc.store.attempts import AttemptStatus

ON = dict.fromkeys(Rung, Mode.ON)
FAILED, REFUSED = AttemptStatus.FAILED, AttemptStatus.REFUSED


def fault(action=Action.REBOOT, reason="X", target=""):
    return NodeFault("n1", f"check_x|{reason}|{target}", reason, "bad", action, 1.0, 1.0, target)


def anything(_rung, _device):
    return Ability()


def test_it_begins_where_the_hardest_fault_suggests():
    assert first_rung([fault(Action.RESET_DEVICE), fault(Action.REBOOT), fault(Action.INSPECT)]) is Rung.REBOOT
    assert first_rung([fault(Action.INSPECT)]) is Rung.ESCALATE
    assert first_rung([fault(Action.NONE)]) is Rung.ESCALATE


def test_soft_and_hard_are_two_rungs():
    """Complaint 10: a soft reset does not cure a GPU; the harder one follows it."""
    first = next_rung([fault()], [], ON, anything)
    second = next_rung([fault()], [Try(first.rung, "", FAILED)], ON, anything)
    assert (first.rung, second.rung) == (Rung.REBOOT, Rung.POWER_CYCLE)


def test_each_device_is_reset_before_the_driver_is_loaded_anew():
    faults = [fault(Action.RESET_DEVICE, target="gpu5"), fault(Action.RESET_DEVICE, target="gpu3")]
    tried, seen = [], []
    for _ in range(3):
        choice = next_rung(faults, tried, ON, anything)
        seen.append((choice.rung, choice.device))
        tried.append(Try(choice.rung, choice.device, FAILED))
    assert seen == [(Rung.RESET_DEVICE, "gpu3"), (Rung.RESET_DEVICE, "gpu5"), (Rung.RELOAD_DRIVER, "")]


def test_a_gpu_off_its_bus_is_not_reset():
    choice = next_rung([fault(Action.RESET_DEVICE, "Xid79", "gpu3")], [], ON, anything)
    assert choice.rung is Rung.REBOOT
    assert [(one.rung, "off its bus" in one.why) for one in choice.skipped] == [
        (Rung.RESET_DEVICE, True), (Rung.RELOAD_DRIVER, True)
    ]  # fmt: skip


def test_what_nobody_can_do_is_skipped_with_the_reason():
    choice = next_rung([fault()], [], ON, lambda rung, _: Ability("" if rung is Rung.REPLACE else "no BMC"))
    assert choice.rung is Rung.REPLACE
    assert [(one.rung, one.why) for one in choice.skipped] == [(Rung.REBOOT, "no BMC"), (Rung.POWER_CYCLE, "no BMC")]


def test_what_is_not_enabled_ends_the_ladder_rather_than_giving_way_to_a_harder_repair():
    choice = next_rung([fault()], [], {**ON, Rung.REBOOT: Mode.DRY_RUN}, anything)
    assert (choice.rung, choice.why) == (Rung.ESCALATE, "would reboot, which is not enabled (dry run)")
    assert next_rung([fault()], [], {}, anything).rung is Rung.ESCALATE  # nothing is enabled unless it is named


def test_a_machine_that_stands_in_the_way_is_asked_again_a_few_times():
    tried = [Try(Rung.REBOOT, "", REFUSED, retry=True)] * (REFUSALS - 1)
    assert next_rung([fault()], tried, ON, anything).rung is Rung.REBOOT
    tried.append(Try(Rung.REBOOT, "", REFUSED, retry=True))
    assert next_rung([fault()], tried, ON, anything).rung is Rung.POWER_CYCLE
    assert next_rung([fault()], [Try(Rung.REBOOT, "", REFUSED)], ON, anything).rung is Rung.POWER_CYCLE


def test_what_cannot_be_asked_now_is_waited_for_and_a_missing_right_is_for_a_person():
    waits = next_rung([fault()], [], ON, lambda *_: Ability("throttled", again=30.0))
    assert (waits.rung, waits.again, waits.why) == (Rung.REBOOT, 30.0, "throttled")
    denied = next_rung([fault()], [], ON, lambda *_: Ability("403", right="ec2:DescribeInstances"))
    assert (denied.rung, denied.why) == (Rung.ESCALATE, "the right ec2:DescribeInstances is missing: 403")


FAULTS = st.builds(
    fault, st.sampled_from(list(Action)), st.sampled_from(["X", "Xid79"]), st.sampled_from(["", "gpu1", "gpu2"])
)


@given(
    st.lists(FAULTS, min_size=1, max_size=4),
    st.dictionaries(st.sampled_from(list(Rung)), st.sampled_from(list(Mode))),
    st.sets(st.sampled_from(list(Rung))),
)  # fmt: skip
def test_it_always_ends_goes_up_only_and_asks_nothing_twice(faults, modes, cannot):
    tried = []
    while True:
        choice = next_rung(faults, tried, modes, lambda rung, _device: Ability("cannot" if rung in cannot else ""))
        if choice.rung is Rung.ESCALATE:
            assert choice.why
            break
        assert modes[choice.rung] is Mode.ON
        assert choice.rung not in cannot
        assert (choice.rung, choice.device) not in [(one.rung, one.device) for one in tried]
        assert all(LADDER.index(one.rung) <= LADDER.index(choice.rung) for one in tried)
        tried.append(Try(choice.rung, choice.device, FAILED))
    assert len(tried) <= 2 * 3 + len(LADDER)
