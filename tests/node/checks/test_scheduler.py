"""The scheduler from the node's side. Slurm's own answers: tests/adapters/test_scheduler_checks.py."""

import pytest

from nhc.core.host import Completed
from nhc.core.model import Verdict
from nhc.lab.testing.fake_host import FakeHost
from nhc.node.facts.scheduler import parse_slurm_ping
from tests.support.judge import judge

HUNG = Completed(143, "", "", timed_out=True)
BACKUP = "Slurmctld(primary) at h1 is DOWN\nSlurmctld(backup) at h2 is UP\n"
PBS_GONE = Completed(111, "", "Connection refused\nqstat: cannot connect to server head (errno=111)")
LSF_GONE = Completed(255, "", "lsid: ls_getclustername(): LIM is down; try later")
FLUX_GONE = Completed(1, "", "flux-ping: Unable to connect to Flux: broker socket /run/flux/local was not found")


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("Slurmctld(primary) at head is UP\n", {"primary head": True}),
        ("Slurmctld(primary) at h1 is DOWN\nSlurmctld(backup) at h2 is UP\n", {"primary h1": False, "backup h2": True}),
        ("Slurmctld(primary/backup) at h1/h2 are UP/DOWN\n", {"primary h1/h2": True, "backup h1/h2": False}),
        ("slurm_load_ctl_conf error", {}),
    ],
)
def test_what_scontrol_ping_says(said, expected):
    assert parse_slurm_ping(said) == expected


@pytest.mark.parametrize(
    ("commands", "expected"),
    [
        ({"scontrol": "Slurmctld(primary) at head is UP\n"}, (Verdict.OK, "")),
        ({"scontrol": BACKUP}, (Verdict.WARN, "SchedulerPartly")),
        ({"scontrol": Completed(1, "Slurmctld(primary) at h1 is DOWN\n")}, (Verdict.WARN, "SchedulerSilent")),
        ({"scontrol": HUNG}, (Verdict.WARN, "SchedulerSilent")),
        ({"scontrol": Completed(1, "", "scontrol: fatal: Could not establish a configuration source")},
         (Verdict.UNKNOWN, "SchedulerUntold")),
        ({"pbsnodes": "", "qstat": "Server Max Tot\nhead 0 2\n"}, (Verdict.OK, "")),
        ({"pbsnodes": "", "qstat": PBS_GONE}, (Verdict.WARN, "SchedulerSilent")),
        ({"pbsnodes": ""}, (Verdict.UNKNOWN, "CommandMissing")),
        ({"lsid": "IBM Spectrum LSF\nMy cluster name is c1\nMy master name is head\n"}, (Verdict.OK, "")),
        ({"lsid": LSF_GONE}, (Verdict.WARN, "SchedulerSilent")),
        ({"qhost": Completed(1, "", "error: can't resolve hostname \"none\"")}, (Verdict.OK, "")),
        ({"qhost": Completed(1, "", "error: commlib error: got select error (Connection refused)")},
         (Verdict.WARN, "SchedulerSilent")),
        ({"flux": "0!broker.ping pad=0 seq=0 time=0.1 ms\n"}, (Verdict.OK, "")),
        ({"flux": FLUX_GONE}, (Verdict.WARN, "SchedulerSilent")),
        ({}, (Verdict.SKIP, "NoScheduler")),
        ({"scontrol": "", "pbsnodes": ""}, (Verdict.UNKNOWN, "NoResourceManager")),
    ],
)  # fmt: skip
def test_a_scheduler_that_answers_or_does_not(commands, expected):
    found = judge(FakeHost({}, commands), "check_scheduler_ping")
    assert (found.verdict, found.reason) == expected, found
    if expected[1] == "SchedulerSilent":
        assert judge(FakeHost({}, commands), "check_scheduler_ping -c").verdict is Verdict.CRIT


def slurm(state, reason=""):
    why = f" Reason={reason} [root@2026-11-20T01:02:03]" if reason else ""
    return {
        "scontrol": f"NodeName=node001 Arch=x86_64 CoresPerSocket=8 State={state} ThreadsPerCore=1{why} Comment=x\n"
    }


LSF = "HOST_NAME          STATUS          JL/U    MAX  NJOBS\nnode001.example    {}              -      8      0\n"
QHOST = (
    "HOSTNAME                ARCH         NCPU NSOC NCOR NTHR  LOAD  MEMTOT  MEMUSE  SWAPTO  SWAPUS\n"
    "----------------------------------------------------------------------------------------------\n"
    "global                  -               -    -    -    -     -       -       -       -       -\n"
    "node001                 lx-amd64        8    1    8    8  {}   15.5G    1.2G     0.0     0.0\n"
)


@pytest.mark.parametrize(
    ("commands", "expected"),
    [
        (slurm("IDLE"), (Verdict.OK, "")),
        (slurm("MIXED+CLOUD"), (Verdict.OK, "")),
        (slurm("IDLE+DRAIN", "kmsg: bad DIMM"), (Verdict.OK, "")),
        (slurm("DOWN*", "Not responding"), (Verdict.WARN, "NodeNotInService")),
        (slurm("IDLE*+DRAIN", "x"), (Verdict.WARN, "NodeNotInService")),
        (slurm("IDLE+DRAIN+INVALID_REG", "Low RealMemory"), (Verdict.WARN, "NodeNotInService")),
        ({"scontrol": Completed(1, "", "Node node001 not found")}, (Verdict.WARN, "NodeUnknown")),
        ({"scontrol": HUNG}, (Verdict.UNKNOWN, "SchedulerUntold")),
        ({"scontrol": Completed(1, "", "scontrol: error: res_nsearch error: Unknown host")},
         (Verdict.UNKNOWN, "SchedulerUntold")),
        ({"lsid": "", "bhosts": Completed(255, "", "node001: Bad host name, host group name or cluster name")},
         (Verdict.WARN, "NodeUnknown")),
        ({"scontrol": Completed(1, "", "slurm_load_node error: Unable to contact slurm controller")},
         (Verdict.UNKNOWN, "SchedulerUntold")),
        ({"pbsnodes": "node001\n     Mom = node001\n     state = free\n"}, (Verdict.OK, "")),
        ({"pbsnodes": "node001\n     state = down,offline\n     comment = node down: communication closed\n"},
         (Verdict.WARN, "NodeNotInService")),
        ({"pbsnodes": "node001\n     state = offline\n"}, (Verdict.OK, "")),
        ({"pbsnodes": Completed(1, "", "Node: node001,  Error: Unknown node")}, (Verdict.WARN, "NodeUnknown")),
        ({"lsid": "", "bhosts": LSF.format("ok")}, (Verdict.OK, "")),
        ({"lsid": "", "bhosts": LSF.format("closed_Adm")}, (Verdict.OK, "")),
        ({"lsid": "", "bhosts": LSF.format("unreach")}, (Verdict.WARN, "NodeNotInService")),
        ({"qhost": QHOST.format("0.12")}, (Verdict.OK, "")),
        ({"qhost": QHOST.format("-")}, (Verdict.WARN, "NodeNotInService")),
        ({"flux": ""}, (Verdict.UNKNOWN, "SchedulerUntold")),
        ({}, (Verdict.SKIP, "NoScheduler")),
        ({"scontrol": "", "pbsnodes": ""}, (Verdict.UNKNOWN, "NoResourceManager")),
    ],
)  # fmt: skip
def test_what_it_thinks_of_this_node(commands, expected):
    found = judge(FakeHost({}, commands), "check_scheduler_node")
    assert (found.verdict, found.reason) == expected, found


def test_the_schedulers_reason_is_told_and_torque_is_asked_its_way():
    assert "Low RealMemory" in judge(FakeHost({}, slurm("DOWN", "Low RealMemory")), "check_scheduler_node").message
    assert "taken out (drain): kmsg: bad DIMM" in judge(FakeHost({}, slurm("IDLE+DRAIN", "kmsg: bad DIMM")),
                                                         "check_scheduler_node").message  # fmt: skip

    def torque(argv, _stdin):
        if "-v" in argv:
            return Completed(1, "", "pbsnodes: invalid option -- 'v'\nusage: pbsnodes [-{c|d|o|r}]")
        return Completed(0, "node001\n     state = down\n     note = bad disk\n")

    assert judge(FakeHost({}, {"pbsnodes": torque}), "check_scheduler_node").message.endswith("as down: bad disk")


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"NHC_NODE_NAME": "n7"}, "n7"),
        ({"NHC_NODE_MAP": "vm=n8 h=n9"}, "n9"),
        ({"HOSTNAME": "gpu7.x"}, "gpu7"),
        ({}, "h"),
    ],
)
def test_the_node_is_asked_for_as_the_scheduler_calls_it(settings, name):
    shown = f"NodeName={name} Arch=x86_64 State=IDLE ThreadsPerCore=1\n"
    host = FakeHost({}, {"scontrol": shown}, settings)
    host.system.node = "h"
    assert judge(host, "check_scheduler_node -r slurm").target == name
    assert host.system.ran[-1][-1] == name
