"""check_moab_sched, check_moab_rm and check_moab_torque."""

import pytest

from nhc.core.model import Verdict
from nhc.lab.testing.fake_host import Completed, FakeHost
from tests.support.judge import judge

SCHED = "Moab Server running on master:42559 (Mode: NORMAL)\n  Version: 7.2.5 (revision 1)\nALERT:  disk low\n"
RM = """\
diagnosing resource managers

RM[torque]    State: Active  Type: PBS  ResourceType: COMPUTE
RM[internal]  State: ---     Type: SSS
RM[internal2] State: Down    Type: SSS
"""
QMGR = "set server scheduling = True\nset server keep_completed = 300\n"


def see(line, answer, settings=None):
    return judge(FakeHost({}, {"mdiag": answer, "qmgr": answer, "/opt/mdiag": answer}, settings), line)


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("check_moab_sched", SCHED),
        ("check_moab_sched -v 7.2.5 -m '/NORMAL/' -a '/licence/'", SCHED),
        ("check_moab_sched -v '7.2.*'", SCHED),
        ("check_moab_rm -m '/torque/'", RM),
        ("check_moab_torque -m '/keep_completed = 300/'", QMGR),
    ],
)
def test_a_well_one_passes(line, answer):
    assert see(line, answer).verdict is Verdict.OK


@pytest.mark.parametrize(
    ("line", "answer", "message"),
    [
        ("check_moab_sched -v 7.2.6", SCHED, "Moab version 7.2.5 != expected version 7.2.6"),
        ("check_moab_sched -a '/disk/'", SCHED, "Moab Alert:  disk low"),
        ("check_moab_sched -m '/DRAIN/'", SCHED, '"/DRAIN/" failed to match "mdiag -S -v" output.'),
        ("check_moab_rm", RM.replace("Active", "Down"), 'External resource manager "RM[torque]" is in state "Down"'),
        (
            "check_moab_torque",
            QMGR.replace("True", "False"),
            'Scheduling not active (set to "False") in TORQUE configuration',
        ),
        ("check_moab_torque", Completed(1, "", "cannot connect"), '1 returned by "qmgr -c print server".'),
        (
            "check_moab_rm -t 3",
            Completed(143, "", "", True),
            'TIMEOUT after 3s for "mdiag -R -v"; subprocess terminated.',
        ),
    ],
)
def test_a_sick_one_fails_in_lbnl_words(line, answer, message):
    outcome = see(line, answer)

    assert (outcome.verdict, outcome.message) == (Verdict.CRIT, message)


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("check_moab_sched", ""),
        ("check_moab_sched -v 7", "no version here\n"),
        ("check_moab_rm", "nothing\n"),
        ("check_moab_torque", "nothing\n"),
    ],
)
def test_output_without_what_is_judged_is_unknown(line, answer):
    assert see(line, answer).verdict is Verdict.UNKNOWN


def test_a_missing_command_is_unknown_and_another_can_be_named():
    assert judge(FakeHost(), "check_moab_sched").reason == "CommandMissing"
    assert see("check_moab_rm", RM, {"MDIAG_CMD": "/opt/mdiag"}).verdict is Verdict.OK
