"""AMD's scale-up fabric, as ROCm CVS' own tests have the driver's file and AFM's answers."""

import json

import pytest

from nhc.core.host import Completed
from nhc.core.model import Verdict
from nhc.lab.testing.fake_host import FakeHost
from tests.support.judge import judge, judge_all
from tests.support.nvml.fake import functions_tree

GPUS = [f"0000:{index + 1:02x}:00.0" for index in range(4)]
ALL, SOME = "f" * 18, "fff000000fff000000"


def devices(phase="ACTIVE", vpod=range(4), **of):
    return {"devices": [
        {"bdf": f"{gpu[:-1]}1", "accelerator_id": index, "config_phase": of.get(f"phase{index}", phase),
         "virtualization_mode": "bare-metal", "local_accelerators": [0, 1, 2, 3],
         "vpod_accelerators": list(of.get(f"vpod{index}", vpod)), "num_network_ports": 36}
        for index, gpu in enumerate(GPUS)
    ]}  # fmt: skip


def ports(down=()):
    return {"devices": [
        {"bdf": f"{gpu[:-1]}1", "ports": [
            {"port": port, "state": "DOWN" if (index, port) in down else "UP", "spec": {"station_id": port // 2}}
            for port in range(36)]}
        for index, gpu in enumerate(GPUS)
    ]}  # fmt: skip


def node(masks=(ALL,) * 4, afm=None, of_ports=None, module=True, tool=True):
    files = functions_tree([(gpu, 0x1002, 0x75B0, 0x120000) for gpu in GPUS], "amdgpu")
    for gpu, mask in zip(GPUS, masks):
        files[f"/sys/bus/pci/devices/{gpu}/ualink/stations/lane_en_bitmap"] = f"{mask}\n"
    if module:
        files["/sys/module/ifoe/refcnt"] = "4\n"

    def said(answer, usual):
        answer = usual if answer is None else answer
        return answer if isinstance(answer, (str, Completed)) else json.dumps(answer)

    commands = {"afmctl show device --json": said(afm, devices()), "afmctl show port": said(of_ports, ports())}
    return FakeHost(files, commands if tool else {})


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        (node(), []),
        (node(masks=[SOME] * 4, of_ports=ports(down={(0, 8), (2, 9)})), []),  # of stations that are switched off
        (node(masks=["f0c0f0f0f0f0f0f0f0", ALL, ALL, ALL]), [("IfoeStationPartial", GPUS[0])]),
        (node(masks=[ALL, "0" * 18, ALL, ALL]), [("IfoeStationPartial", GPUS[1])]),
        (node(module=False), [("IfoeNotLoaded", "")]),
        (node(afm=devices("PROVIDER")), [("IfoeNotActive", gpu) for gpu in GPUS]),
        (node(afm=devices(phase2="INIT")), [("IfoeNotActive", GPUS[2])]),
        (node(afm=devices(vpod=range(4, 8))), [("IfoeVpod", gpu) for gpu in GPUS]),
        (node(afm=devices(vpod3=range(8))), [("IfoeVpod", "")]),
        (node(of_ports=ports(down={(1, 0), (1, 1)})), [("IfoeLinkDown", GPUS[1])]),
        (node(masks=[SOME] * 4, of_ports=ports(down={(1, 0)})), [("IfoeLinkDown", GPUS[1])]),
    ],
)
def test_what_amds_own_admission_refuses(host, expected):
    found = judge_all(host, "check_gpu_ifoe")
    assert [(o.reason, o.target) for o in found if o.verdict is Verdict.CRIT] == expected
    assert [o.verdict for o in found] == ([Verdict.CRIT] * len(expected) or [Verdict.OK])


def test_gpus_with_different_stations_are_a_warning():
    assert judge(node(masks=[ALL, ALL, ALL, SOME]), "check_gpu_ifoe").reason == "IfoeStationsMixed"


@pytest.mark.parametrize(
    "host",
    [
        node(tool=False),
        node(afm="afmctl: no agent\n"),
        node(afm={"devices": [{"bdf": 3}]}),
        node(afm=Completed(1, "", "cannot reach the node agent\n")),
        node(of_ports=Completed(124, "", "", True)),
        node(of_ports={"devices": []}),
        node(masks=["xyz", ALL, ALL, ALL]),
    ],
)
def test_what_cannot_be_told_is_unknown(host):
    assert {o.verdict for o in judge_all(host, "check_gpu_ifoe")} <= {Verdict.UNKNOWN}


def test_gpus_without_such_a_fabric():
    bare = FakeHost(functions_tree([(GPUS[0], 0x1002, 0x74A1, 0x120000)], "amdgpu"))
    assert judge(bare, "check_gpu_ifoe").verdict is Verdict.SKIP
    assert judge(FakeHost(), "check_gpu_ifoe").verdict is Verdict.SKIP
