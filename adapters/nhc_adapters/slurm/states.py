"""Slurm's node states: turns its states and flags into what nhc needs to know. Pure, standard library only.

A state is one base state and a set of flags (`src/common/slurm_protocol_defs.c`, slurm.h's NODE_STATE_*). The symbols
behind sinfo's short states (`*~#!%$@^-+`) mean flags and are never parsed. The table of what nhc does in each state is
in docs/slurm.md and is a test.
"""

from __future__ import annotations

import re
from typing import Any, Dict, FrozenSet, Iterable, List, Mapping, Optional, Tuple

from nhc.core.json_values import number_of, objects_in, objects_of, text_in, text_of, texts_of
from nhc.core.model import Action
from nhc.core.system.process import Completed
from nhc.marks.ports.adapter import SCHEDULER, Mark, NodeState
from nhc.marks.ports.marks import read_mark_text

# Names that changed between releases, or that differ between scontrol's text and its JSON.
SAME = {
    "ALLOC": "ALLOCATED",
    "MIX": "MIXED",
    "COMP": "COMPLETING",
    "MAINT": "MAINTENANCE",
    "RESV": "RESERVED",
    "RES": "RESERVED",
    "NO_RESPOND": "NOT_RESPONDING",
    "POWERED_OFF": "POWERED_DOWN",
    "POWER_SAVE": "POWERED_DOWN",
    "REBOOT": "REBOOT_REQUESTED",
    "INVAL": "INVALID_REG",
    "INVALID": "INVALID_REG",
    "PLND": "PLANNED",
}

HELD: Tuple[Tuple[str, str], ...] = (
    ("REBOOT_ISSUED", "it is rebooting"),
    ("REBOOT_REQUESTED", "a reboot is pending"),
    ("POWERING_UP", "it is powering up"),
    ("POWER_UP", "it is about to power up"),
    ("POWERING_DOWN", "it is powering down"),
    ("POWER_DOWN", "it is about to power down"),
    ("POWER_DRAIN", "it powers down when its work has ended"),
    ("POWERED_DOWN", "it is powered down"),
    ("MAINTENANCE", "it is in a maintenance reservation"),
    ("FUTURE", "it is not part of the cluster yet"),
    ("DYNAMIC_FUTURE", "it is not part of the cluster yet"),
)
"""Flags under which a node is left as it is, the first that applies naming the reason."""

# UNKNOWN is in neither list: every node is for a moment after slurmctld has restarted, and a drain set then holds.
OUT = frozenset({"DRAIN", "DOWN", "ERROR", "FAIL", "FUTURE", "INVALID_REG", "REBOOT_ISSUED", "MAINTENANCE"})
ABSENT = frozenset({"POWERED_DOWN", "FUTURE", "DYNAMIC_FUTURE"})
BUSY = frozenset({"ALLOCATED", "MIXED", "COMPLETING"})

HYPERPOD = {"action:reboot": Action.REBOOT, "action:replace": Action.REPLACE}
"""SageMaker HyperPod's reasons, that its own agent acts on."""
HYPERPOD_OWNER = "hyperpod"


KEPT = frozenset({"DRAIN", "FAIL"})
"""What keeps a node out once it responds again. One that is only DOWN goes back (ReturnToService): slurmctld removes
the drain from a node whose reboot has timed out (src/slurmctld/power_save.c).
"""

NOT_RESPONDING = "Not responding"
"""What slurmctld itself writes when a slurmd has not responded for SlurmdTimeout (src/slurmctld/ping_nodes.c)."""

_REBOOTED = re.compile(r"(?: : reboot (?:issued|complete))+$")
"""What slurmctld appends to the reason of a node that it reboots."""


def flags_of(names: Iterable[str]) -> FrozenSet[str]:
    """Flags in one spelling."""
    upper = (name.strip().upper() for name in names)
    return frozenset(SAME.get(name, name) for name in upper if name)


def node_state(
    name: str,
    states: Iterable[str],
    reason: str = "",
    user: str = "",
    since: Optional[float] = None,
    partitions: Iterable[str] = (),
    next_state: str = "",
    booted: Optional[float] = None,
) -> NodeState:
    """The value that the rest of nhc sees. `next_state` is what a reboot ends in, "" for the state before it."""
    states = [state for state in states if state]
    flags = flags_of(states)
    held = next((why for flag, why in HELD if flag in flags), "")
    awaited = "REBOOT_ISSUED" in flags
    powers_up = "POWERING_UP" in flags and not flags & KEPT
    mark, available = read_reason(reason, user, since), not flags & OUT
    # Our reason on a node that nothing keeps out is one that an earlier mark has left. slurmctld 23.11 to 25.11 without
    # an accounting storage keeps it when the node is resumed, until a job runs there: what took it away,
    # clusteracct_storage_g_node_up (src/interfaces/accounting_storage.c), ends before it does. The reason of a reboot
    # that is ordered of a node in service counts.
    if mark is not None and mark.ours and available and "REBOOT_REQUESTED" not in flags:
        mark = None
    return NodeState(
        name=name,
        shown="+".join(states).lower() or "unknown",
        available=available,
        busy=bool(flags & BUSY),
        mark=mark,
        hold=held,
        groups=tuple(sorted(set(partitions))),
        flags=flags,
        absent=bool(flags & ABSENT),
        returns=powers_up or (next_state != "DOWN" if awaited and next_state else "DOWN" in flags and not flags & KEPT),
        rebooting=awaited or "POWERING_UP" in flags,
        booted=booted or 0.0,
    )


def read_reason(reason: str, user: str = "", since: Optional[float] = None) -> Optional[Mark]:
    """The mark behind a reason; HyperPod's words are its own, with the action they order."""
    reason = _REBOOTED.sub("", reason.strip())
    if reason.lower() in ("", "none", "(null)"):
        return None
    if reason == NOT_RESPONDING:
        return Mark(reason, since=since or None, owner=SCHEDULER)
    action = HYPERPOD.get(reason.lower())
    if action is not None:
        return Mark(reason, action, since, HYPERPOD_OWNER)
    return read_mark_text(reason, "" if user.lower() in ("unknown", "(null)") else user, since or None)


# sinfo -O: every release has it, one line for each node and partition.

SINFO = ("sinfo", "-a", "-h", "-N", "-O", "NodeList:|,StateComplete:|,Partition:|,User:|,Timestamp:|,Reason:|")
"""The reason is last, so that a bar in it splits nothing. SLURM_TIME_FORMAT=%s makes the time a number."""


def parse_sinfo(text: str) -> List[NodeState]:
    """What the command above printed. Raises ValueError for a line that is not of it."""
    rows: Dict[str, Tuple[str, str, str, str]] = {}
    groups: Dict[str, List[str]] = {}
    row = ""
    for line in text.splitlines():
        row = f"{row} {line}" if row else line  # a reason may hold line breaks; a row ends in a bar
        if not row.strip():
            continue
        fields = row.split("|", 5)
        if len(fields) == 6 and row.endswith("|"):
            name, state, partition, user, when, reason = (field.strip() for field in fields)
            rows[name] = (state, user, when, reason[:-1].strip())
            groups.setdefault(name, []).append(partition.rstrip("*"))
            row = ""
    if row.strip():
        raise ValueError(f"sinfo printed {row!r}")
    return [
        node_state(name, state.split("+"), reason, user, _number(when), groups[name])
        for name, (state, user, when, reason) in sorted(rows.items())
    ]


# scontrol show node: one node's block of `Key=Value` words; the reason is a line of its own.

_SIGNED = re.compile(r"\s*\[([^\[\]@]*)@([^\[\]]*)\]\s*$")


def parse_show(text: str) -> List[NodeState]:
    """What `scontrol show node` printed. Raises ValueError where a node has no state."""
    return [_show_node(block) for block in re.split(r"^(?=NodeName=)", text, flags=re.MULTILINE) if block.strip()]


def _show_node(block: str) -> NodeState:
    name = re.match(r"NodeName=(\S+)", block)
    state = re.search(r"^\s+State=(\S+)", block, re.MULTILINE)
    if name is None or state is None:
        raise ValueError(f"scontrol printed {block[:80]!r}")
    partitions = re.search(r"^\s+Partitions=(\S+)", block, re.MULTILINE)
    # The last of the fields that hold free text, so nothing in it can be taken for one of the above.
    reason = re.search(r"^   Reason=(.*?)(?=^   \w+=|\Z)", block, re.MULTILINE | re.DOTALL)
    why, user, when = reason[1].strip() if reason else "", "", None
    signed = _SIGNED.search(why)
    if signed:
        why, user, when = why[: signed.start()], signed[1], _number(signed[2])
    # `IDLE*+DRAIN` of older releases: the symbols stand for flags that are spelled out as well.
    states = [state_name.rstrip("*~#!%$@^-+") for state_name in state[1].split("+")]
    groups = partitions[1].split(",") if partitions else ()
    then = re.search(r"^   NextState=(\S+)$", block.partition("\n   Reason=")[0], re.MULTILINE)
    booted = _number(show_fields(block).get("BootTime"))
    return node_state(name[1], states, " ".join(why.split()), user, when, groups, then[1] if then else "", booted)


_FREE_TEXT = re.compile(r"^   (?:Reason|Comment|Extra)=.*(?:\n(?!   \w+=).+)*", re.MULTILINE)
"""What people and programs write about a node: anything, another field's name too."""
_NO_NODE = re.compile(r"^Node \S+ not found", re.MULTILINE)


def show_fields(block: str) -> Dict[str, str]:
    """One node's `Key=Value` words, without those that hold free text."""
    return dict(re.findall(r"(?:^|\s)([A-Z][A-Za-z]+)=(\S*)", _FREE_TEXT.sub("", block)))


def names_unknown_node(done: Completed) -> bool:
    """Whether `scontrol show node` has failed for a node that slurmctld does not know; it shows the others then."""
    return bool(done.status and _NO_NODE.search(done.stdout + done.stderr))


def parse_config(text: str) -> Dict[str, str]:
    """What `scontrol show config` printed, by name."""
    pairs = (line.partition("=") for line in text.splitlines())
    return {key.strip(): value.strip() for key, equals, value in pairs if equals}


Identity = Tuple[str, str]
"""A node's InstanceId and its address (NodeAddr), "" for none: an address that is the node's name says nothing new."""


def show_identities(text: str) -> Dict[str, Identity]:
    """Which machines stand behind the nodes, by what `scontrol show node` printed."""
    identities = {}
    for block in re.split(r"^(?=NodeName=)", text, flags=re.MULTILINE):
        fields = show_fields(block)
        if "NodeName" in fields:
            name = fields["NodeName"]
            identities[name] = _identity(name, fields.get("InstanceId", ""), fields.get("NodeAddr", ""))
    return identities


def json_identities(value: Mapping[str, object]) -> Dict[str, Identity]:
    """The same by Slurm's JSON."""
    identities = {}
    for row in objects_of(value.get("nodes")):
        name = text_of(row.get("name"))
        if name:
            identities[name] = _identity(name, str(row.get("instance_id") or ""), str(row.get("address") or ""))
    return identities


def _identity(node: str, instance: str, address: str) -> Identity:
    return "" if instance.lower() in ("(null)", "none", "n/a") else instance, "" if address == node else address


# JSON: scontrol --json of Slurm 23.02 and later, slurmrestd of 22.05 and later. Times became objects in
# v0.0.40 ({"set": true, "infinite": false, "number": N}), states lists of words in v0.0.39.


def parse_json_nodes(value: Mapping[str, object]) -> List[NodeState]:
    """The `nodes` of a JSON answer. Raises ValueError where it is none."""
    if "nodes" not in value:
        raise ValueError("no list of nodes in Slurm's JSON")
    return sorted(map(_json_node, objects_in(value, "nodes")), key=lambda state: state.name)


def _json_node(node: Mapping[str, object]) -> NodeState:
    name = text_in(node, "name")
    states = _texts(node.get("state")) + _texts(node.get("state_flags"))
    if not states:
        raise ValueError(f"node {name} has no state in Slurm's JSON")
    return node_state(
        name,
        states,
        str(node.get("reason") or ""),
        str(node.get("reason_set_by_user") or ""),
        _number(node.get("reason_changed_at")),
        _texts(node.get("partitions")),
        booted=_number(node.get("boot_time")),
    )


def _texts(value: object) -> List[str]:
    if isinstance(value, str):
        return value.replace(",", "+").split("+")
    return texts_of(value)


def _number(value: Any) -> Optional[float]:
    """A time, None if there is none (0, "Unknown", an unset object)."""
    if isinstance(value, dict):
        value = value.get("number") if value.get("set", True) else None
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    return number_of(value) or None
