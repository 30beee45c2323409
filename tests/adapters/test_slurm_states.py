"""Slurm's states: what nhc does in each of them, and that text, fields and JSON say the same."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nhc.core.model import Action
from nhc.marks.ports.adapter import REMEDY_OWNER, AdapterError, Effect, Mark
from nhc.marks.ports.marks import may_clear, may_mark
from nhc_adapters._command import understood
from nhc_adapters.slurm import states
from nhc_adapters.slurm.states import node_state, parse_json_nodes, parse_show, parse_sinfo

MARK = Mark("check_x: new")
YES, SAME, NO = Effect.CHANGED, Effect.UNCHANGED, Effect.REFUSED

# state, reason, what marking does, what clearing does. docs/slurm.md holds the same table.
TABLE = [
    ("IDLE", "", YES, SAME),
    ("ALLOCATED", "", YES, SAME),
    ("MIXED", "", YES, SAME),
    ("ALLOCATED+COMPLETING", "", YES, SAME),
    ("IDLE+RESERVED", "", YES, SAME),
    ("IDLE+PLANNED", "", YES, SAME),
    ("IDLE+CLOUD", "", YES, SAME),
    ("IDLE+DYNAMIC_NORM", "", YES, SAME),
    ("IDLE+NOT_RESPONDING", "", YES, SAME),
    ("IDLE+BLOCKED", "", YES, SAME),
    ("UNKNOWN", "", YES, SAME),
    ("IDLE", "a note", YES, SAME),
    ("IDLE", "NHC: check_x: new", YES, SAME),
    ("IDLE+DRAIN", "", NO, NO),
    ("IDLE+DRAIN", "new DIMM", NO, NO),
    ("ALLOCATED+DRAIN", "new DIMM", NO, NO),
    ("IDLE+DRAIN", "Prolog error", NO, NO),
    ("IDLE+DRAIN+INVALID_REG", "Low RealMemory", NO, NO),
    ("IDLE+DRAIN", "NHC: check_x: old", YES, YES),
    ("IDLE+DRAIN", "NHC: check_x: new", SAME, YES),
    ("MIXED+DRAIN", "NHC: check_x: new", SAME, YES),
    ("DOWN+DRAIN", "NHC: check_x: new", SAME, YES),
    ("DOWN", "NHC: check_x: new", SAME, YES),
    ("IDLE+FAIL", "NHC: check_x: new", SAME, YES),
    ("IDLE+DRAIN", "NHC-REMEDY: check_x: new", NO, NO),
    ("IDLE", "NHC-REMEDY: check_x: new", YES, SAME),
    ("DOWN", "Not responding", NO, NO),
    ("DOWN+NOT_RESPONDING", "", NO, NO),
    ("IDLE+FAIL", "vendor", NO, NO),
    ("ERROR", "", NO, NO),
    ("FUTURE", "", NO, NO),
    ("IDLE+MAINTENANCE+RESERVED", "", NO, NO),
    ("IDLE+DRAIN+MAINTENANCE", "NHC: check_x: new", NO, NO),
    ("IDLE+REBOOT_REQUESTED", "", NO, SAME),
    ("IDLE+REBOOT_REQUESTED", "NHC: check_x: new", NO, NO),
    ("IDLE+DRAIN+REBOOT_REQUESTED", "NHC: check_x: new", NO, NO),
    ("DOWN+DRAIN+REBOOT_ISSUED", "Reboot ASAP : reboot issued", NO, NO),
    ("DOWN+DRAIN+REBOOT_ISSUED", "NHC: check_x: new", NO, NO),
    ("IDLE+POWER_DOWN", "", NO, SAME),
    ("IDLE+POWER_DRAIN", "", NO, SAME),
    ("IDLE+POWERING_DOWN", "", NO, SAME),
    ("IDLE+POWERED_DOWN+CLOUD", "", NO, SAME),
    ("IDLE+POWERED_DOWN+CLOUD", "NHC: check_x: old", NO, SAME),
    ("IDLE+POWERING_UP+CLOUD", "", NO, SAME),
    ("ALLOCATED+POWER_UP", "", NO, SAME),
    ("IDLE+DRAIN+POWERED_DOWN", "NHC: check_x: new", NO, NO),
]


@pytest.mark.parametrize(("state", "reason", "marked", "cleared"), TABLE)
def test_what_is_done_in_each_state(state, reason, marked, cleared):
    node = node_state("n1", state.split("+"), reason, "root", 1.0)
    assert may_mark(node, MARK)[0] is marked
    assert may_clear(node)[0] is cleared


def test_the_loop_takes_over_what_a_hook_has_marked_and_clears_its_own():
    hooks, own = (node_state("n1", ["IDLE", "DRAIN"], f"{tag}: check_x: new") for tag in ("NHC", "NHC-REMEDY"))
    wanted = MARK._replace(owner=REMEDY_OWNER)
    assert (may_mark(hooks, wanted)[0], may_mark(own, wanted)[0]) == (YES, SAME)
    assert (may_clear(hooks, REMEDY_OWNER)[0], may_clear(own, REMEDY_OWNER)[0]) == (YES, YES)


def test_the_documented_table_is_this_one():
    text = (Path(__file__).parents[2] / "docs/slurm.md").read_text()
    table = text.partition("| State | Reason | Unhealthy | Healthy |\n")[2]
    rows = [line.split("|")[1:5] for line in table.splitlines() if line.startswith("| `")]
    words = {"drain": YES, "nothing": SAME, "left alone": NO, "resume": YES, "refresh": YES}
    cells = [[re.findall(r"`([^`]+)`", cell) for cell in row[:2]] for row in rows]
    documented = [
        (state, reason, *(words[cell.strip()] for cell in row[2:]))
        for row, (some, reasons) in zip(rows, cells)
        for state in some
        for reason in reasons
    ]
    assert sorted(documented, key=str) == sorted([(s, r or "none", m, c) for s, r, m, c in TABLE], key=str)


@pytest.mark.parametrize(
    ("short", "long"),
    [("MIX", "MIXED"), ("MAINT", "MAINTENANCE"), ("POWERED_OFF", "POWERED_DOWN"), ("NO_RESPOND", "NOT_RESPONDING")],
)
def test_names_that_differ_between_releases_are_the_same_flag(short, long):
    assert node_state("n1", [short]).flags == node_state("n1", [long]).flags


@pytest.mark.parametrize(("reason", "action"), [("Action:Reboot", Action.REBOOT), ("Action:Replace", Action.REPLACE)])
def test_hyperpods_reasons_are_its_own_with_the_action_they_order(reason, action):
    mark = node_state("n1", ["IDLE", "FAIL"], reason, "root", 5.0).mark
    assert (mark.owner, mark.action, mark.since) == ("hyperpod", action, 5.0)
    assert may_clear(node_state("n1", ["IDLE", "FAIL"], reason))[0] is NO


SINFO = """\
n1|idle|work*|Unknown|Unknown|none|
n1|idle|gpu|Unknown|Unknown|none|
n2|mixed+drain|work*|root|1795228912|NHC: a | b [action: reboot]|
n3|idle+drain|work*|ops(1000)|1795228913|two
lines|
"""


def test_sinfos_fields_are_read_whatever_the_reason_holds():
    one, two, three = parse_sinfo(SINFO)
    assert (one.name, one.groups, one.available, one.mark) == ("n1", ("gpu", "work"), True, None)
    assert two.busy
    assert (two.mark.why, two.mark.action, two.mark.since, two.mark.ours) == (
        "a | b",
        Action.REBOOT,
        1795228912.0,
        True,
    )
    assert (three.mark.why, three.mark.owner) == ("two lines", "ops(1000)")


@pytest.mark.parametrize("text", ["n1|idle|work", "slurm_load_partitions: Unable to contact slurm controller"])
def test_a_line_that_is_not_sinfos_is_an_error_and_no_node(text):
    with pytest.raises(ValueError, match="sinfo printed"):
        parse_sinfo(text)


SHOW = """\
NodeName=n1 Arch=x86_64 CoresPerSocket=1
   CPUAlloc=0 CPUEfctv=2 CPUTot=2 CPULoad=2.13
   State=IDLE*+DRAIN ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A
   Partitions=work,gpu
   Reason=NHC: State=IDLE Partitions=none [x@y] [root@1795228912]
   Comment=State=DOWN

NodeName=n2 Arch=x86_64 CoresPerSocket=1
   State=MIXED ThreadsPerCore=1 TmpDisk=0 Weight=1
"""


def test_scontrols_text_is_read_and_no_reason_can_pose_as_a_field():
    one, two = parse_show(SHOW)
    assert one.flags == {"IDLE", "DRAIN"}
    assert one.groups == ("gpu", "work")
    assert (one.mark.why, one.mark.since) == ("State=IDLE Partitions=none [x@y]", 1795228912.0)
    assert (two.name, two.busy, two.mark, two.groups) == ("n2", True, None, ())


@pytest.mark.parametrize(
    "when", [1795228912, {"set": True, "infinite": False, "number": 1795228912}, "1795228912"], ids=str
)
@pytest.mark.parametrize("state", [{"state": "idle", "state_flags": ["DRAIN"]}, {"state": ["IDLE", "DRAIN"]}], ids=str)
def test_the_json_of_every_release_says_the_same(state, when):
    node = {"name": "n1", **state, "reason": "NHC: a", "reason_set_by_user": "root", "reason_changed_at": when}
    (found,) = parse_json_nodes({"nodes": [node]})
    assert found.flags == {"IDLE", "DRAIN"}
    assert found.mark == Mark("a", Action.NONE, 1795228912.0)


@pytest.mark.parametrize("value", [{}, {"nodes": {}}, {"nodes": [1]}, {"nodes": [{"name": "n1"}]}], ids=json.dumps)
def test_json_that_is_not_slurms_is_an_error_and_no_node(value):
    with pytest.raises(ValueError, match="JSON"):
        parse_json_nodes(value)


@pytest.mark.thorough
@given(st.text(st.characters(blacklist_categories=["Cs"]), max_size=80))
def test_a_reason_survives_sinfo_and_scontrol_alike(reason):
    shown = " ".join(reason.split())
    by_sinfo = parse_sinfo(f"n1|idle+drain|work|root|5|{shown}|\n")[0].mark
    show = f"NodeName=n1 Arch=x\n   State=IDLE+DRAIN Weight=1\n   Partitions=work\n   Reason={shown} [root@5]\n"
    by_show = parse_show(show)[0].mark
    assert by_sinfo == by_show


def test_slurm_says_which_machine_stands_behind_a_node():
    """InstanceId since 23.11 (slurmd -N --instance-id; scontrol show node, src/api/node_info.c)."""
    shown = (
        "NodeName=n1 Arch=x86_64 CoresPerSocket=1\n   NodeAddr=10.0.0.7 NodeHostName=n1 Version=23.11\n"
        "   State=IDLE+DRAIN\n   InstanceId=i-0123456789abcdef0 InstanceType=p5.48xlarge\n"
        "   Reason=NodeAddr=1.2.3.4 InstanceId=i-0bad [root@2026-11-22T08:00:00]\n\n"
        "NodeName=n2 Arch=x86_64\n   NodeAddr=n2 NodeHostName=n2\n   State=IDLE\n   Reason=first line\nInstanceId=i-1\n"
        "   Comment=InstanceId=i-2\n   Extra=NodeAddr=2\n"
    )
    wanted = {"n1": ("i-0123456789abcdef0", "10.0.0.7"), "n2": ("", "")}
    assert states.show_identities(shown) == wanted
    rows = [{"name": "n1", "instance_id": "i-0123456789abcdef0", "address": "10.0.0.7"},
            {"name": "n2", "instance_id": "", "address": "n2"}]  # fmt: skip
    assert states.json_identities({"nodes": rows}) == wanted


@pytest.mark.parametrize(
    ("state", "absent"),
    [("IDLE+POWERED_DOWN+CLOUD", True), ("FUTURE", True), ("IDLE+POWERING_UP+CLOUD", False), ("IDLE+CLOUD", False)],
)
def test_a_node_that_is_powered_down_or_of_the_future_is_not_there(state, absent):
    assert node_state("n1", state.split("+")).absent is absent


def test_a_node_that_is_merely_down_goes_back_by_itself():
    shown = ["DOWN", "DOWN+NOT_RESPONDING", "DOWN+DRAIN", "IDLE+DRAIN", "IDLE", "FAIL"]
    wanted = [True, True, False, False, False, False]
    assert [states.node_state("n1", state.split("+")).returns for state in shown] == wanted


@pytest.mark.parametrize(
    ("state", "more", "returns"),
    [
        ("DOWN+REBOOT_ISSUED", "   Reason=reboot requested : reboot issued [root@1]\n", True),
        ("DOWN+DRAIN+REBOOT_ISSUED", "   NextState=RESUME\n   Reason=Reboot ASAP : reboot issued [root@1]\n", True),
        ("DOWN+DRAIN+REBOOT_ISSUED", "   NextState=RESUME\n   Reason=new kernel : reboot issued [root@1]\n", True),
        ("DOWN+DRAIN+REBOOT_ISSUED", "   NextState=DOWN\n   Reason=new DIMM : reboot issued [root@1]\n", False),
        ("DOWN+REBOOT_ISSUED", "   NextState=DOWN\n   Reason=reboot requested : reboot issued [root@1]\n", False),
        ("DOWN+DRAIN+REBOOT_ISSUED", "   Reason=DIMM : reboot issued [root@1]\n", False),  # a drained one stays drained
        ("DOWN+DRAIN+REBOOT_ISSUED", "   Reason=new DIMM\n   NextState=RESUME [root@1]\n", False),  # a person's text
    ],
)
def test_what_slurm_makes_of_a_node_that_it_reboots(state, more, returns):
    """As `scontrol show node` of 22.05.8 prints it between the reboot's order and the registration."""
    (found,) = parse_show(f"NodeName=n1 Arch=x86_64\n   State={state} ThreadsPerCore=1\n   Partitions=work\n{more}\n")
    assert (found.rebooting, found.returns, found.available) == (True, returns, False)


@pytest.mark.parametrize("when", [10**400, float("inf"), float("nan"), {"number": 10**400}, {"number": []}, [], "x"])
def test_a_time_that_is_none_is_no_time(when):
    node = {"name": "n1", "state": ["IDLE"], "reason": "a", "reason_changed_at": when}
    [state] = parse_json_nodes({"nodes": [node]})
    assert state.name == "n1"


@pytest.mark.parametrize(
    "error", [KeyError("x"), TypeError("x"), AttributeError("x"), OverflowError("x"), IndexError("x")]
)
def test_an_answer_of_another_shape_is_the_adapters_error(error):
    def read(_answer):
        raise error

    with pytest.raises(AdapterError, match=type(error).__name__):
        understood("Slurm's", read, {})
