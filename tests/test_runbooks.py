"""Every reason that a check or the kernel catalogue can give has a runbook that a person can follow."""

from __future__ import annotations

import ast
import json
import re

import pytest

from nhc.core.data.reader import table
from nhc.core.limits import Mode
from nhc.core.model import Action
from nhc.marks.ports.repair import Rung
from nhc.node.checks.gpu import fault
from nhc.node.checks.kmsg import reason_of
from nhc.node.facts.accelerator_values import LOST, Device
from nhc.node.kernlog.xid import NEURON
from nhc.node.planning import runbooks
from nhc.remedy.ladder import Ability, NodeFault, Try, next_rung
from nhc.store.attempts import AttemptStatus
from tests.support.run import ROOT, nhc

CAMEL = re.compile(r"[A-Z][a-z0-9]+(?:[A-Z][A-Za-z0-9]*)+")
NOT_REASONS = frozenset([
    # Words of other programs' answers and of files
    "ActiveState", "ClusterShell", "InfiniBand", "InfoROM", "LinkSpeedExtSupported", "LinkSpeedExtSupported2",
    "LinkSpeedSupported", "LinkUp", "LinkWidthSupported", "LoadState", "MainPID", "AllocMem",
    "MemAvailable", "MemFree", "MemSpecLimit", "MemTotal", "RealMemory", "RmProfilingAdminOnly",
    "NeuronLink", "NetworkReady", "NotBefore", "EventStatus", "EventType", "OpenStack", "OracleCloud", "RuntimeReady",
    "NoHttpResponse", "P2P", "SubState", "SrcValid", "TransBlk",
    "LogMessage", "TimeGenerated", "ReqRedir", "CmpltRedir", "UpstreamFwd", "EgressCtrl", "DirectTrans",
    "SwapFree", "SwapTotal", "UncParity", "UncSecDed", "VirtualBox",
    # The first half of a reason
    "GpuDriver", "GpuInforom", "GpuVbios", "NvidiaHealthmon", "NvidiaSmi",
])  # fmt: skip
ROOMS = ("node/checks", "node/facts", "fleet", "hooks", "node/run", "core/state")
ALONE = ("core/declare", "core/model", "agent/check_round", "agent/problems")


def constants(node: ast.AST) -> set[str]:
    return {one.value for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str)}


def given_reasons(tree: ast.AST) -> set[str]:
    """What is handed to crit(), warn(), unknown(), skip(), Trouble() and Outcome() as the reason, each branch of it."""
    found: set[str] = set()
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        name = call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")
        given = [word.value for word in call.keywords if word.arg == "reason"]
        if name in ("crit", "warn", "unknown", "skip", "Trouble"):
            given += call.args[:1]
        elif name == "Outcome":
            given += call.args[1:2]
        for argument in given:
            if not isinstance(argument, ast.JoinedStr):
                found |= {text for text in constants(argument) if re.fullmatch(r"[A-Z][A-Za-z0-9]+", text)}
    for row in (node.elts for node in ast.walk(tree) if isinstance(node, ast.Tuple)):
        kinds = [type(one.value) for one in row if isinstance(one, ast.Constant)]
        if kinds == [str, str, bool]:  # what ssh says, the reason for it, whether it may pass
            found |= {text for text in constants(row[1]) if re.fullmatch(r"[A-Z][A-Za-z0-9]+", text)}
    return found


def in_code() -> dict[str, str]:
    """Every reason that the code can give, and the module it is in."""
    paths = [
        path for room in ROOMS for path in sorted((ROOT / "nhc" / room).rglob("*.py")) if "commands" not in path.parts
    ]
    paths += [ROOT / "nhc" / f"{name}.py" for name in ALONE if (ROOT / "nhc" / f"{name}.py").exists()]
    found: dict[str, str] = {}
    for path in paths:
        tree = ast.parse(path.read_text())
        named = {text for text in constants(tree) if CAMEL.fullmatch(text)} - NOT_REASONS
        direct = set() if "facts" in path.parts else given_reasons(tree)
        for one in named | direct:
            found.setdefault(one, str(path.relative_to(ROOT)))
    for half in ("GpuDriver", "GpuInforom", "GpuVbios"):
        found |= {
            f"{half}Mixed": "nhc/node/checks/gpu_firmware.py",
            f"{half}Unexpected": "nhc/node/checks/gpu_firmware.py",
        }
    for half in ("NvidiaHealthmon", "NvidiaSmi"):
        found |= {f"{half}{end}": "nhc/node/checks/nvsmi.py" for end in ("Crashed", "Hangs")}
    for place in ("Dram", "Sram"):
        found |= {f"Gpu{place}{kind}": "nhc/node/checks/gpu_memory.py" for kind in ("Corrected", "Uncorrected")}
    found |= {f"Gpu{what}Mode": "nhc/node/checks/gpu_modes.py" for what in ("Ecc", "Mig", "Persistence")}
    return found


def in_catalogue() -> list[str]:
    rows = [row for row in table("kernel.tsv") if row[1] and row[2]]
    found = [reason_of(row[0], row[1]) for row in rows]
    found += [f"Xid{row[0]}" for row in table("xid.tsv")] + [f"SXid{row[0]}" for row in table("sxid.tsv")]
    return sorted({*found, *(f"NeuronHasError_{code}" for code in NEURON)})


@pytest.mark.thorough
def test_every_reason_of_the_code_has_a_runbook():
    known = set(runbooks.reasons())
    found = in_code()
    assert len(found) > 300
    missing = {name: path for name, path in found.items() if name not in known}
    assert not missing, (
        "write runbooks in nhc/core/data/runbooks.txt, or as RUNBOOKS of the module (or name what is no reason in "
        f"NOT_REASONS): {missing}"
    )


def test_every_reason_of_the_kernel_catalogue_has_a_runbook():
    found = in_catalogue()
    assert len(found) > 600
    known = set(runbooks.reasons())
    assert [name for name in found if name not in known] == []


OF_THE_NODE = {
    "GpuCountMismatch", "GpuMissing", "GpuPeermem", "GpuRebootRequired", "GpuDramRepairable", "DriverNotLoaded",
    "GpuMemoryNuma", "GpuStalled",
}  # fmt: skip
"""Of GPU checks: what is counted over all devices, or is of the driver."""


@pytest.mark.thorough
def test_each_fault_of_a_gpu_check_speaks_of_a_device_or_is_known_not_to():
    rows = [row[0] for row in table("scopes.tsv")]
    assert len(set(rows)) == len(rows)
    assert [name for name in rows if not name.endswith("*") and name not in set(runbooks.reasons())] == []
    faults: set[str] = set()
    for path in sorted((ROOT / "nhc/node/checks").glob("gpu*.py")):
        for call in (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)):
            if isinstance(call.func, ast.Name) and call.func.id in ("crit", "warn") and call.args:
                faults |= {text for text in constants(call.args[0]) if CAMEL.fullmatch(text)}
    assert len(faults) > 25
    assert sorted(faults - set(rows) - OF_THE_NODE) == []


@pytest.mark.parametrize(
    "name", ["Xid79", "Xid13", "Xid1", "SXid12020", "NeuronHasError_DMA_ERROR", "NodeOom", "GpuCountMismatch"]
)
def test_a_runbook_is_whole(name):
    found = runbooks.find(name)
    assert found is not None
    assert found.reason == name
    for text in (found.means, found.causes, found.do, found.confirm, found.source):
        assert len(text) > 8
    assert found.action in {action.value for action in Action}


def test_every_block_is_whole_and_in_short_sentences():
    for name, fields in {**runbooks.brought().blocks, **runbooks.blocks()}.items():
        assert tuple(fields) == runbooks.FIELDS, name
        assert fields["action"] in {action.value for action in Action}, name
        for field in ("means", "causes", "do", "confirm"):
            assert fields[field].endswith("."), f"{name}: {field}"
            longest = max(re.split(r"[.:;] ", fields[field]), key=lambda sentence: len(sentence.split()))
            assert len(longest.split()) <= 36, f"{name}: {field}: {longest}"


FIRST = {Action.REBOOT.value: r"[Rr]eboot", Action.RESET_DEVICE.value: r"[Rr]eset"}
"""How a runbook names the repair that its reason suggests."""
POWER_CYCLE = re.compile(r"[Pp]ower(?: cycle|-cycle| the \w+ off| it off| off and on)")


@pytest.mark.thorough
def test_a_runbook_asks_for_the_suggested_repair_before_a_harder_one():
    """A person follows the runbook, the loop the action: both begin at the same rung of the ladder and go up."""
    asked, harder = [], []
    for name in runbooks.reasons():
        found = runbooks.find(name)
        power = POWER_CYCLE.search(found.do)
        if power and found.action in FIRST:
            first = re.search(FIRST[found.action], found.do)
            asked.append(name)
            if not first or first.start() > power.start():
                harder.append(f"{name}, action {found.action}: {found.do}")
    assert {"GpuLost", "Xid79", "GpuMissing", "PcieDeviceGone", "NvswitchMissing", "NvmeNotLive"} <= set(asked)
    assert harder == []


def test_a_lost_gpu_s_action_and_ladder_and_runbook_agree():
    """NVIDIA's catalogue says RESTART_BM for Xid 79: a reboot, and only then the power."""
    device = Device("nvidia", 3, fault=LOST, problem="it fell off the bus")
    judged = fault(device)
    lost = NodeFault("n1", "check_gpu_lost/GpuLost", judged.reason, judged.message, judged.action, 0.0)
    everything = dict.fromkeys(Rung, Mode.ON)
    assert next_rung([lost], [], everything, lambda rung, device: Ability()).rung is Rung.REBOOT
    tried = [Try(Rung.REBOOT, "", AttemptStatus.SUCCEEDED)]
    assert next_rung([lost], tried, everything, lambda rung, device: Ability()).rung is Rung.POWER_CYCLE
    for reason in ("GpuLost", "Xid79"):
        assert runbooks.find(reason).action == judged.action.value == "reboot"


def test_every_action_of_a_catalogue_has_its_template():
    templates = runbooks.blocks()
    for kind, file in (("Xid", "xid.tsv"), ("SXid", "sxid.tsv")):
        assert {f"{kind}:{row[3] or 'none'}" for row in table(file)} <= set(templates)


@pytest.mark.thorough
def test_explain_tells_a_reason_as_it_stands_in_a_report():
    said = nhc("explain", "Xid79").stdout
    assert "fatal" in said.splitlines()[0]
    for heading in (
        "What it means",
        "Likely causes",
        "What to do",
        "How to confirm the repair",
        "Suggested action",
        "Sources",
    ):
        assert f"\n{heading}\n" in said
    assert nhc("explain", "xid79").stdout == said
    told = json.loads(nhc("explain", "GpuCountMismatch", "--format", "json").stdout)
    assert (told["reason"], told["action"]) == ("GpuCountMismatch", "inspect")


@pytest.mark.thorough
def test_a_reason_that_there_is_not_is_answered_with_the_nearest():
    done = nhc("explain", "GpuCountMismach")
    assert done.returncode == 2
    assert "did you mean GpuCountMismatch" in done.stderr
    assert nhc("explain", "Xid99999").returncode == 2


@pytest.mark.parametrize("words", [["79"], ["Xid", "79"], ["Xid 79"], ["xid-79"], ["XID: 79"], ["079"]])
def test_an_xid_is_explained_however_it_is_written(words):
    assert runbooks.find(" ".join(words)) == runbooks.find("Xid79")
    done = nhc("explain", *words)
    assert (done.returncode, done.stdout.split(":")[0]) == (0, "Xid79")


@pytest.mark.parametrize("words", [["177"], ["Xid", "200"], ["Xid9999"]])
def test_an_xid_that_is_newer_than_the_catalogue_is_called_so(words):
    done = nhc("explain", *words)
    assert done.returncode == 2
    assert "newer than this catalogue, which ends at 176" in done.stderr


def test_a_number_that_nvidia_has_left_out_is_not_called_newer():
    assert "is not in this catalogue, which ends at 176" in runbooks.unknown_xid("Xid 0")
    assert runbooks.unknown_xid("GpuLost") == "" == runbooks.unknown_xid("SXid 99999")


@pytest.mark.parametrize("words", [["GpuLost", "79"], ["Xid", "79", "79"], ["check", "gpu_ecc"], ["Gpu", "Lost"]])
def test_several_words_are_one_name_only_where_they_are_an_xids(words):
    done = nhc("explain", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert "unexpected extra argument" in done.stderr
