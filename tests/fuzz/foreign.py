"""What other programs say: readers of their JSON and their bytes, a true answer of each, and what may be raised.

An input is a true answer with some of it changed for values that JSON knows and nobody expects. A case costs
microseconds, so that `make fuzz CASES=1000000` tries each reader a million times.
"""

import copy
import json
import pickle
from random import Random
from typing import Any, Callable, NamedTuple

from nhc.agent import nvhcd, server_push
from nhc.core.render import json as wire
from nhc.core.system import otlp
from nhc.core.system.bounded_read import parse_json
from nhc.core.system.http_client import HttpAnswer
from nhc.fleet.node_result import read_report
from nhc.fleet.transport import Node, Trouble
from nhc.jobs import flight_record
from nhc.jobs.why_logs import JobLogs
from nhc.marks import push
from nhc.node.checks import cloud, deep_disk, deep_gemm, deep_network, deep_nvbandwidth
from nhc.node.commands.log import LineFolder, Matcher
from nhc.node.facts import dcgm, neuron, smart
from nhc.node.facts.kernel_lines import message, parse_line
from nhc_adapters import pbs
from nhc_adapters.bmc import redfish
from nhc_adapters.cloud.rest import json_at
from nhc_adapters.kubernetes.api.errors import api_error
from nhc_adapters.kubernetes.controller import acknowledged, ledger
from nhc_adapters.kubernetes.controller.loki import LokiError, read_answer
from nhc_adapters.kubernetes.controller.node_report import Accelerators, judge, parse_fault
from nhc_adapters.kubernetes.gates import read_known
from nhc_adapters.kubernetes.jobs import job_end
from nhc_adapters.kubernetes.jobs.kinds import AVOIDS
from nhc_adapters.kubernetes.jobs.placement import avoided
from nhc_adapters.kubernetes.nodes import drains, manual, overruled, own_marks
from nhc_adapters.kubernetes.nodes.view import GATE, node_state
from nhc_adapters.kubernetes.repair.repairer import pieces_in
from nhc_adapters.kubernetes.repair.shown_on_nodes import KURED_LOCK, of_kured
from nhc_adapters.slurm.job_states import parse_json_node_jobs
from nhc_adapters.slurm.marker import parse_json_jobs
from nhc_adapters.slurm.states import json_identities, parse_json_nodes

DEEP = "[" * 3000
DIGITS = "9" * 5000
"""More than `int` takes."""
ODD: list[Any] = [
    None, True, False, 0, -1, 1, 4, 2**31, 2**63, 10**30, 10**400, 1.5, -0.0, 1e308, float("nan"), float("inf"), "",
    "x", "0", DIGITS, "²", "1e999", "-1", "NaN", "\ud800", "\x1b[2J\n", "a" * 300, [], {}, [[]], [None], {"a": None},
    {"": []}, [1, 2, 3], [[1, 2], {"b": {}}],
]  # fmt: skip
"""What nobody expects in a field."""


class Reader(NamedTuple):
    """`answers` are true ones, `read` takes the text of one, `promised` is all that it may raise."""

    answers: tuple[Any, ...]
    read: Callable[[str], Any]
    promised: tuple[type[Exception], ...] = (ValueError,)


def changed(answer: Any, random: Random) -> Any:
    """A copy with one to three values, at any depth, taken away, doubled or changed for an odd one."""
    top = [copy.deepcopy(answer)]
    for _ in range(random.randint(1, 3)):
        place, key = top, 0
        while isinstance(place[key], (dict, list)) and place[key] and random.random() < 0.8:
            place = place[key]
            key = random.choice(list(place) if isinstance(place, dict) else range(len(place)))
        act = random.random()
        if place is not top and act < 0.15:
            del place[key]
        elif isinstance(place, list) and place is not top and act < 0.25:
            place.append(place[key])
        else:
            place[key] = copy.deepcopy(random.choice(ODD))
    return top[0]


def text(reader: Reader, random: Random) -> str:
    """An answer for the reader: mostly JSON of another shape, now and then no JSON at all."""
    answer = random.choice(reader.answers)
    said = answer if isinstance(answer, str) else json.dumps(changed(answer, random))
    act = random.random()
    if act < 0.02:
        return DEEP
    if act < 0.08 or isinstance(answer, str):
        at, size = random.randrange(len(said) + 1), random.randrange(1, 12)
        return (
            said[:at]
            + random.choice(("", '"', "{", "]", "\0", "9" * 40, DIGITS, "²", "\ud83d", "..", " NaN "))
            + said[at + size :]
        )
    return said


# Slurm.

NODES = {"nodes": [
    {"name": "n1", "state": ["IDLE", "DRAIN"], "reason": "NHC: [node] check_x: bad", "reason_set_by_user": "root",
     "reason_changed_at": {"set": True, "infinite": False, "number": 1700000000}, "partitions": ["a"],
     "instance_id": "i-1", "address": "10.0.0.1"},
    {"name": "n2", "state": "idle", "state_flags": ["CLOUD"], "reason": "", "reason_changed_at": 0,
     "partitions": ["a"]},
]}  # fmt: skip
JOBS = {"jobs": [
    {"job_id": 7, "job_state": ["RUNNING"], "nodes": "n[1-3]", "name": "train", "user_name": "u", "user_id": 1000,
     "start_time": {"set": True, "number": 1700000000}, "array_job_id": {"set": True, "number": 3},
     "array_task_id": {"set": True, "number": 1}, "het_job_id": 0},
    {"job_id": 8, "job_state": "PENDING", "nodes": "", "name": "x"},
]}  # fmt: skip


def slurm_nodes(said: str) -> None:
    value = json.loads(said)
    json_identities(value if isinstance(value, dict) else {})
    parse_json_nodes(value if isinstance(value, dict) else {})


def slurm_jobs(said: str) -> None:
    value = json.loads(said)
    value = value if isinstance(value, dict) else {}
    parse_json_jobs(value)
    parse_json_node_jobs(value, "n1")


# Disks, accelerators, tools.

DISK = {"smartctl": {"exit_status": 0, "messages": [{"string": "m"}]}, "smart_status": {"passed": True},
        "smart_support": {"available": True}, "model_name": "D", "scsi_grown_defect_list": 2,
        "scsi_error_counter_log": {"read": {"total_uncorrected_errors": 1}},
        "ata_smart_attributes": {"table": [{"id": 5, "name": "R", "when_failed": "now", "flags": {"prefailure": True},
                                            "raw": {"value": 1}}]},
        "devices": [{"name": "/dev/sda", "type": "sat"}],
        "nvme_smart_health_information_log": {"critical_warning": 0, "percentage_used": 1, "available_spare": 100,
                                              "media_errors": 0, "temperature": 40}}  # fmt: skip
NVME = {"critical_warning": {"value": 0}, "percent_used": 3, "avail_spare": 100, "media_errors": 0, "temperature": 310}


def disks(said: str) -> None:
    for parse in (smart.parse_scan, smart.parse_disk, smart.parse_smartctl_nvme, smart.parse_nvme_cli):
        try:
            parse(said)
        except smart.SmartError:
            pass


NEURON = [{"neuron_device": 0, "bdf": "00:1e.0", "nc_count": 2, "memory_size": 1 << 34, "connected_to": [1, 2],
           "neuron_processes": [{"pid": 7, "command": "python a"}]}]  # fmt: skip


def neurons(said: str) -> None:
    for each in neuron.parse_neuron_ls(said):
        neuron.device(each["neuron_device"], each, {}, {})


BURN = "\n".join(json.dumps(one) for one in (
    {"kind": "begin", "engine": "torch", "version": "2", "size": 8192, "dtype": "bf16", "seconds": 60},
    {"kind": "device", "device": 0, "name": "g", "rounds": 8, "seconds": 60.0, "tflops": 712.4, "slowest": 690.1,
     "hash": "91c1", "changed": 0, "wrong": 0, "nan": 0},
    {"kind": "end", "devices": 1},
))  # fmt: skip
DEVICE = {**json.loads(BURN.splitlines()[1]), "device": 1}
FIO = {"fio version": "fio-3.33", "jobs": [{"jobname": "w", "error": 0, **{
    way: {"io_bytes": 1 << 20, "bw_bytes": 10, "bw": 1, "runtime": 5, "clat_ns": {"percentile": {"99.000000": 7}}}
    for way in ("read", "write")}}]}  # fmt: skip
IPERF = {"start": {"version": "iperf 3.12"}, "end": {"sum_sent": {"bits_per_second": 1e9, "retransmits": 0},
    "sum_received": {"bits_per_second": 1e9, "seconds": 5}}}  # fmt: skip
BANDWIDTH = {"nvbandwidth": {"version": "0.8", "Driver Version": "1", "GPU Device list": ["0: H100"], "testcases": [
    {"name": "a", "status": "Passed", "bandwidth_matrix": [["N/A", "1.5"]], "sum": 1.5}]}}  # fmt: skip
DCGM = {"DCGM Diagnostic": {
    "metadata": {"version": "4.2", "Driver Version Detected": "5"}, "GPU Device IDs": ["2330"],
    "entity_groups": [{"entity_group": "GPU", "entities": [{"entity_id": 0, "device_id": "2330"}]}],
    "test_categories": [{"category": "Hardware", "tests": [
        {"name": "Memory", "results": [{"entity_group": "GPU", "entity_id": 0, "status": "Fail", "info": ["i"],
                                        "warnings": [{"error_id": 3, "error_severity": 2, "warning": "w"}]}],
         "test_summary": {"status": "Fail"}}]}]}}  # fmt: skip


# Clouds, controllers, Kubernetes.

EVENTS = {"Events": [{"EventType": "Reboot", "Resources": ["vm"], "NotBefore": "Mon, 19 Sep 2026 18:29:47 GMT",
                      "EventStatus": "Scheduled", "Description": "d"}]}  # fmt: skip
UPCOMING = {"maintenance": {"maintenance_status": "ONGOING", "maintenance_reasons": ["r"], "type": "SCHEDULED",
                            "window_start_time": "2026-01-01T00:00:00Z"}}  # fmt: skip
SCHEDULED = [{"State": "active", "Code": "system-reboot", "NotBefore": "21 Jan 2026 09:00:43 GMT", "Description": "d"}]
SPOT = {"action": "stop", "time": "2026-01-01T00:00:00Z"}
DUE = {"timeMaintenanceRebootDue": "2026-01-01T00:00:00Z"}
BODIES = {"aws": ("scheduled", "spot"), "gcp": ("upcoming",), "azure": ("events",), "oci": ("due",)}
ASKED = ("scheduled", "spot", "rebalance", "event", "upcoming", "preempted", "name", "events", "due")


def clouds(said: str) -> None:
    for name, bodies in BODIES.items():
        for body in bodies:
            answers = {one: [404, ""] for one in ASKED}
            try:
                cloud.announcements(name, {**answers, body: [200, said]})
            except (cloud.BadAnswer, cloud.NoHttpResponse):
                pass
    json_at(said.encode("utf-8", "replace"), "error", "details")


SYSTEM = {"UUID": "u", "PowerState": "On", "LastResetTime": "t", "LogServices": {"@odata.id": "/l"}, "Actions": {
    "#ComputerSystem.Reset": {"target": "/t", "ResetType@Redfish.AllowableValues": ["On"],
                              "@Redfish.ActionInfo": "/a"}},
    "error": {"message": "m", "@Message.ExtendedInfo": [{"Message": "more"}]}}  # fmt: skip


def controllers(said: str) -> None:
    redfish._error_message(said.encode("utf-8", "replace"))
    value = json.loads(said) if said != DEEP else {}
    if isinstance(value, dict):
        redfish._read_system("/s", value)


STATUS = {"kind": "Status", "reason": "Conflict", "message": "m", "details": {"retryAfterSeconds": 3}}
OWN = {
    "cordon": True,
    "note": "n",
    "taints": ["a"],
    "labels": {"l": "v"},
    "annotations": {"a": "v"},
    "by": "p",
    "boot": "b",
    "since": "2026-01-01T00:00:00Z",
    "until": "2026-01-01T00:00:00Z",
    "faults": {"GpuLost": ["f", 2]},
    "state": "draining",
    "seen": {"s": "t"},
    "opened": 1.5,
    "closed": 0,
    "GpuLost": {"gpu0": 1.5},
    "nodeID": "n1",
    "locks": [{"nodeID": "n2"}],
}
"""All that stands in annotations of ours and of kured, at once."""
NOTES = (own_marks.SET, own_marks.DRAIN, manual.MANUAL, overruled.OVERRULED, GATE, acknowledged.ACKNOWLEDGED)


def kubernetes(said: str) -> None:
    api_error(409, {"Retry-After": said[:20]}, said.encode("utf-8", "replace"))
    node = {"metadata": {"name": "n1", "annotations": dict.fromkeys(NOTES, said)}}
    own_marks.read_own(node)
    overruled.read_overruled(node)
    manual.read_manual(node)
    drains.read_drain(node)
    drains.begun(node, 5.0)
    read_known(node)
    acknowledged.acknowledged(node, "GpuLost")
    of_kured({"metadata": {"annotations": {KURED_LOCK: said}}}, "n1")
    avoided({"metadata": {"annotations": {AVOIDS: said}}})
    ledger._read(said)


# What nodes and agents say.

RESULT = {"check": "check_x", "verdict": "CRIT", "reason": "Bad", "message": "m", "target": "t", "action": "reboot",
          "metrics": [{"name": "m", "value": 1.5, "unit": "B"}], "evidence": ["e"], "elapsed": 0.1, "source": "s",
          "line": "l", "tags": ["t"], "strike": 0, "strikes": 0, "scope": "device",
          "device": {"pci": "0000:3b:00.0"}}  # fmt: skip
REPORT = {"schema": 1, "version": "1", "host": "n1", "boot_id": "b", "started": 1.7e9, "elapsed": 0.5,
          "verdict": "CRIT", "results": [RESULT], "notes": ["n"], "not_run": 0,
          "labels": {"profile": "gpu"}}  # fmt: skip
PUSH = {
    "nhc": "push",
    "schema": 1,
    "node": "n1",
    "lost": 0,
    "boot": "b1",
    "seq": 9000,
    "reports": [
        {"at": 1.5, "seq": 8000, "complete": True, "report": REPORT},
        {
            "at": 61.5,
            "seq": 8001,
            "complete": True,
            "unchanged": "d",
            "started": 61.0,
            "elapsed": 0.5,
            "results": [RESULT],
        },
    ],
}


def encoded(said: str) -> bytes:
    return said.encode("utf-8", "surrogatepass")


def bytes_of(said: str) -> bytes:
    """Any bytes at all: each character is one."""
    return said.encode("latin-1", "replace")


def collector(said: str) -> None:
    answer = HttpAnswer(400, {"content-type": "application/x-protobuf"}, bytes_of(said))
    otlp._message(answer)
    partial = otlp._fields(otlp._fields(answer.data).get(1))
    otlp._text(partial.get(2))


def scheduler(said: str) -> None:
    nvhcd.asked_for(nvhcd.read_request(bytes_of(said)))


LOG = """[rank3]: Traceback (most recent call last):
[rank3]:   File "/train.py", line 3, in step
[rank3]: torch.OutOfMemoryError: CUDA out of memory.
iteration 10 step time: 0.52 s loss: 1.0
node1: node1:12:34 [0] NCCL WARN NET/IB : Got completion with error 12
0: [rank0]:[E1126 10:00:00 ProcessGroupNCCL.cpp:632] [Rank 0] Watchdog caught collective operation timeout
slurmstepd: error: *** JOB 5 ON node1 CANCELLED AT 2026-01-01T00:00:00 DUE TO NODE FAILURE ***
"""


def job_log(said: str) -> None:
    logs = JobLogs(["node1"])
    logs.read("log", said.split("\n"), 2026)
    logs.clues()


NODE = {
    "metadata": {"name": "n1", "uid": "u", "labels": {"node.kubernetes.io/instance-type": "p5.48xlarge"},
                 "annotations": {"nvidia.com/gpu.count": "8"}, "creationTimestamp": "2026-01-01T00:00:00Z"},
    "spec": {"unschedulable": True, "taints": [{"key": "nhc/health", "value": "faulty", "effect": "NoSchedule",
                                                "timeAdded": "2026-01-01T00:00:00Z"}]},
    "status": {
        "capacity": {"nvidia.com/gpu": "8", "cpu": "4"}, "allocatable": {"nvidia.com/gpu": "7"},
        "nodeInfo": {"bootID": "b", "kubeletVersion": "v1.37.0"},
        "conditions": [
            {"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T00:00:00Z",
             "lastTransitionTime": "2026-01-01T00:00:00Z", "reason": "KubeletReady", "message": "m"},
            {"type": "GpuXid", "status": "True", "lastHeartbeatTime": "2026-01-01T00:00:00Z",
             "lastTransitionTime": "2026-01-01T00:00:00Z", "reason": "Xid79",
             "message": "[reboot] check_kmsg: 0000:3b:00.0: fell off, and 3 more"},
        ],
    },
}  # fmt: skip
FAULTS = [parse_fault("GpuXid"), parse_fault("Ready=False,5m")]


def of_type(said: str, kinds: Any) -> Any:
    """What is said with each value that is of another type than the true answer's taken away: the API server's part."""
    return _of_type(parse_json(said), kinds)


def _of_type(value: Any, kinds: Any) -> Any:
    if isinstance(kinds, dict):
        value = value if isinstance(value, dict) else {}
        return {key: _of_type(value[key], kinds[key]) for key in kinds if key in value}
    if isinstance(kinds, list):
        return [_of_type(one, kinds[0]) for one in value] if isinstance(value, list) else []
    return value if isinstance(value, type(kinds)) else kinds


def nodes(said: str) -> None:
    node = of_type(said, NODE)
    node["metadata"] = {"name": "n1", **node.get("metadata", {})}
    judge(node, FAULTS, 1.7e9, accelerators_of=Accelerators((("nvidia.com/gpu", 8),), True))
    node_state(node)


POD = {
    "metadata": {"name": "p", "labels": {"batch.kubernetes.io/job-completion-index": "1"}},
    "spec": {"nodeName": "n1", "containers": [
        {"name": "c", "env": [{"name": "RANK", "value": "3"}], "resources": {"limits": {"nvidia.com/gpu": "8"}}}]},
}  # fmt: skip


def pods(said: str) -> None:
    pod = of_type(said, POD)
    job_end._rank(pod)
    job_end._gpus([pod])


STREAMS = {
    "status": "success",
    "data": {
        "resultType": "streams",
        "result": [
            {
                "stream": {"k8s_node_name": "n1"},
                "values": [["1700000000000000000", "NVRM: Xid (PCI:0000:3b:00): 79, x"]],
            }
        ],
    },
}
LINES = "\n".join((
    json.dumps({"MESSAGE": "NVRM: Xid (PCI:0000:3b:00): 79, gone", "PRIORITY": "3", "_TRANSPORT": "kernel",
                "__REALTIME_TIMESTAMP": "1700000000000000", "_SOURCE_MONOTONIC_TIMESTAMP": "5", "SYSLOG_PID": "7"}),
    "6,1234,5678,-;NVRM: Xid (PCI:0000:3b:00): 79, pid=1", "<4>[   12.345678] mce: [Hardware Error]: CPU 1",
    "Nov 21 02:28:15 host kernel: EXT4-fs error (device sda1): x", "2026-11-21T02:28:15.123456+01:00 host kernel: x",
    "[Mon May 25 12:34:56 2026] Out of memory: Killed process 12 (a)",
    "kern  :err   : [    1.5] nvme nvme0: I/O 1 QID 2",
))  # fmt: skip


def log_lines(said: str) -> None:
    """As a follower of a log reads them: none of it may end with an exception."""
    for line in said.split("\n"):
        parse_line(line, 1.7e9)
        message(line)
    folder = LineFolder(Matcher(), True)
    folder.feed(said)
    folder.entries()


def evidence(said: str) -> None:
    pieces_in(said, 1 << 20)


FLIGHT = {"entries": [{"collective_seq_id": 3, "state": "completed", "profiling_name": "p",
                       "process_group": ["0", "d"]},
                      {"seq_id": 4, "pg_id": 0, "is_p2p": False}],
          "pg_status": {"0": {"last_enqueued_collective": 4, "last_completed_collective": 3}},
          "pg_config": {"0": {"ranks": "[0, 1]"}, "1": {"ranks": [0, 1]}}}  # fmt: skip
PICKLED = pickle.dumps(FLIGHT, protocol=2).decode("latin-1")


def flight(said: str) -> None:
    """In this process: a child bounds its memory and its time besides."""
    content = said.encode("latin-1", "replace")
    if content.lstrip()[:1] not in (b"{", b"["):
        flight_record._check_opcodes(content)
    flight_record._read(content, 1)


PROTOBUF = "\x0a\x0b\x08\x05\x12\x07partial\x12\x04text\x2a\x03a=b"
READERS = {
    "slurm nodes": Reader((NODES,), slurm_nodes, (ValueError, RecursionError)),
    "slurm jobs": Reader((JOBS,), slurm_jobs, (ValueError, RecursionError)),
    "pbs": Reader(({"nodes": {"n1": {"state": "free", "comment": "c", "queue": "q", "jobs": ["1"]}}},), pbs.parse_json),
    "disks": Reader((DISK, NVME), disks, ()),
    "neuron": Reader((NEURON,), neurons),
    "burns": Reader((DEVICE,), lambda said: deep_gemm.parse_burn(f"{BURN}\n{said}")),
    "fio": Reader((FIO,), deep_disk.parse_fio),
    "iperf3": Reader((IPERF,), deep_network.parse_iperf3),
    "nvbandwidth": Reader((BANDWIDTH,), deep_nvbandwidth.parse_json),
    "dcgm": Reader((DCGM, {"iterations": [DCGM]}), dcgm.parse),
    "clouds": Reader((SCHEDULED, SPOT, UPCOMING, EVENTS, DUE), clouds, ()),
    "redfish": Reader((SYSTEM,), controllers),
    "kubernetes nodes": Reader((NODE,), nodes),
    "kubernetes pods": Reader((POD,), pods),
    "evidence": Reader(({"piece": "dmesg", "content": "eJwDAAAAAAE=", "cut": True}, {"looked_for": 3}), evidence, ()),
    "loki": Reader((STREAMS,), lambda said: read_answer(parse_json(said), "k8s_node_name"), (ValueError, LokiError)),
    "log lines": Reader((LINES,), log_lines, ()),
    "kubernetes": Reader((OWN, STATUS, [1.5, "n1", "cordon"], ["n1"]), kubernetes, ()),
    "push": Reader((PUSH,), lambda said: push.parse(encoded(said))),
    "report": Reader((REPORT,), wire.parse),
    "sweep": Reader((REPORT,), lambda said: read_report(said, Node("n1"), 1.7e9), (Trouble,)),
    "server": Reader(
        ({"refused": ["r"], "notes": ["n"], "digest": "d", "whole": True, "error": "e"},),
        lambda said: (server_push._error(encoded(said)), server_push._parsed(encoded(said))), (server_push.NotNow,),
    ),
    "nvhcd looks": Reader(({"results": [RESULT]}, {"error": "e"}), lambda said: nvhcd.read_answer(encoded(said))),
    "nvhcd": Reader((PROTOBUF,), scheduler),
    "otlp": Reader((PROTOBUF,), collector, ()),
    "job logs": Reader((LOG,), job_log, ()),
    "flight records": Reader((FLIGHT, PICKLED), flight, (flight_record.BadFlightRecord, ValueError)),
}  # fmt: skip


def holds(name: str, said: str) -> None:
    """The reader takes the text, or raises what it promises."""
    reader = READERS[name]
    try:
        reader.read(said)
    except reader.promised:
        pass
