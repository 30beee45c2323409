"""Drills that put a fault on the node itself: a line in the real kernel log and a full disk, over a real sshd."""

import os
import time
import uuid

import pytest

from nhc.core.model import Action
from nhc.core.settings.settings_file import SettingsError
from nhc.lab.commands.inject import FAULTS, line_of
from nhc.lab.drills.real import (
    FULL_DISK,
    KERNEL_LINE,
    DrillRefused,
    InjectedFault,
    Injection,
    Limits,
    RealDrill,
    ReportedFault,
    Undoing,
    action_of,
    left_over,
    read_injection,
    would_send,
)
from nhc.marks.ports.adapter import AdapterError, Mark
from nhc.node.kernlog.catalogue import rows
from nhc.remedy.remedy_file import parse
from nhc.remedy.remedy_site import RemedySite
from nhc.remedy.repairers import open_repairers
from nhc.store import audit, drills
from nhc.store.problems import StoredProblem
from tests.support.drilled_node import drilled_node
from tests.support.new_store import new_store
from tests.support.remedy_world import FakeMarker, World
from tests.support.require import need
from tests.support.waiting import until

NODE = "n1"
DEVICE = f"md{uuid.uuid4().hex[:8]}"
SETTINGS = """
[actions]
mark = "on"
[sources]
adapter = "fake"
reports = ["{reports}"]
settle = "0s"
[limits]
first-run = "100%"
leave-alone = "0s"
[evidence]
directory = "{place}/evidence"
"""


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    need("/dev/kmsg", os.geteuid() == 0 and os.access("/dev/kmsg", os.R_OK | os.W_OK), "it needs root")
    place = tmp_path_factory.mktemp("drilled")
    # Other tests, and other machines on this kernel, write lines of their own.
    kinds = sorted(({row.kind for row in rows()} | {"xid", "sxid", "neuron"}) - {"md", "drill"})
    ignored = " ".join(f"-i {kind}" for kind in kinds)
    with drilled_node(place, NODE, f"* || check_kmsg {ignored}\n* || check_fs_used {{disk}} 90%\n") as made:
        yield made


class Site:
    """The loop's parts over a scheduler that obeys nhc's rules of marking, and the node's own repairer."""

    def __init__(self, node, place, more=""):
        self.world = World(new_store(str(place)), 2)
        text = SETTINGS.format(reports=node.reports, place=place) + node.settings(f'device = "{DEVICE}"') + more
        self.settings = parse(text, "remedy.toml")
        self.site = RemedySite(self.settings, self.world.plain, FakeMarker(self.world), open_repairers(self.settings))
        self.site.reports(True)
        self.told = []

    def drill(self, fault, longest=60.0):
        limits = Limits(longest, 0.2)
        return RealDrill(self.site, NODE, "ann", fault=fault, limits=limits, publish=self.told.append)

    def fault(self, scenario):
        drill = self.settings.drill
        kernel = Injection(KERNEL_LINE, drill.kernel, drill.device)
        disk = Injection(FULL_DISK, FULL_DISK, drill.file_system, drill.fill_to)
        return InjectedFault(self.site, kernel if scenario == KERNEL_LINE else disk)

    def whats(self):
        with self.site.store.read() as connection:
            return [one.what for one in audit.entries(connection, node=NODE, limit=100) if "drill" in one.what]


@pytest.fixture
def site(node, tmp_path):
    made = Site(node, tmp_path)
    until(lambda: not problems(made), 60, what="the node to be healthy", said=lambda: problems(made))
    yield made
    made.site.close()


def problems(made):
    from nhc.lab.drills.real import problems_of

    made.site.reports(True)
    return problems_of(made.site.store, NODE)


@pytest.mark.slow
@pytest.mark.usefixtures("kernel_log_alone")
def test_the_node_finds_the_line_itself_the_loop_marks_it_and_all_is_undone(site):
    drill = site.drill(site.fault(KERNEL_LINE))
    drill.may()
    done = drill.run()
    assert done.kept, (done.promises, site.told)
    assert [one.state for one in site.told] == ["injected", "escalated", "undone"]
    assert (site.world.marked, site.world.cleared, site.world.sent) == ([NODE], [NODE], [])
    assert site.whats() == ["drill.began", "drill.undone"]
    assert left_over(site.site.store) == []


@pytest.mark.slow
def test_what_a_killed_drill_left_on_the_node_is_taken_off_by_the_next(node, site):
    fault = site.fault(FULL_DISK)
    drill = drills.OpenDrill(NODE, FULL_DISK, fault.injection.text(), "ann", 1.0)
    with site.site.store.write() as connection:
        drills.begin(connection, drill)
    fault.begin(NODE, 1.0)
    assert [path.name for path in node.disk.iterdir()] == [".nhc-drill-fill"]
    until(lambda: problems(site), 60, what="the node to report it")
    [left] = left_over(site.site.store)
    assert "the fault was taken off the node" in Undoing(site.site, left, "ann", pause=0.2).undo()
    assert (list(node.disk.iterdir()), left_over(site.site.store), problems(site)) == ([], [], [])


@pytest.mark.slow
def test_a_true_problem_that_came_meanwhile_keeps_the_node_as_it_is(site):
    site.world.nodes[NODE].mark, site.world.nodes[NODE].available = Mark("a true one", since=9e9), False
    drill = drills.OpenDrill(NODE, "fault", ReportedFault.injection.text(), "ann", 1.0)
    with site.site.store.write() as connection:
        drills.begin(connection, drill)
    site.world.now = time.time()
    site.world.fall_sick(NODE)
    done = Undoing(site.site, drill, "ann", pause=0.2).undo()
    assert "it has a problem of its own now" in done[-1]
    assert (site.world.cleared, left_over(site.site.store)) == ([], [])


@pytest.mark.slow
def test_a_node_without_a_way_in_is_refused_and_nothing_is_left(site):
    site.site.actuators.repairers.entries.clear()
    with pytest.raises(DrillRefused, match=r"no repairer runs commands on n1: set up \[repairers.node\]"):
        site.drill(site.fault(FULL_DISK)).run()
    assert (left_over(site.site.store), site.whats()) == ([], ["drill.began", "drill.undone"])


@pytest.mark.slow
def test_a_mark_that_cannot_be_cleared_stays_to_be_undone(site):
    drill = drills.OpenDrill(NODE, "fault", ReportedFault.injection.text(), "ann", 1.0)
    with site.site.store.write() as connection:
        drills.begin(connection, drill)
    site.world.down = True
    with pytest.raises(AdapterError):
        Undoing(site.site, drill, "ann").undo()
    assert left_over(site.site.store) == [drill]


# Pure.


@pytest.mark.parametrize(("fault", "action"), [("md-failed", Action.INSPECT), ("xid-79", Action.REBOOT),
                                               ("oom", Action.NONE), ("edac-ue", Action.REPLACE)])  # fmt: skip
def test_the_action_of_a_line_is_what_the_node_would_report(fault, action):
    assert action_of(line_of(fault)) is action


def test_a_fault_whose_repair_is_enabled_is_seen():
    policy = parse('[actions]\nmark = "on"\nreboot = "on"\nreplace = "on"\n')
    assert would_send(policy, Action.RESET_DEVICE) == ["reboot", "replace"]
    assert would_send(policy, Action.INSPECT) == []
    assert would_send(parse('[actions]\nmark = "on"\n'), Action.REBOOT) == []


def test_an_injection_is_read_as_it_was_written_and_runs_one_command():
    one = Injection(FULL_DISK, FULL_DISK, "/scratch", 0.97)
    assert read_injection(one.text()) == one
    assert one.begin("/usr/bin/nhc") == ("/usr/bin/nhc", "inject", "full-disk", "--device", "/scratch", "--to", "97%",
                                         "--apply")  # fmt: skip
    assert all(Injection(KERNEL_LINE, name, "").begin("/n")[2] == name for name in FAULTS)
    for text in ("{}", "[]", "nothing"):
        with pytest.raises(ValueError, match=r"injection|Expecting value"):
            read_injection(text)


def test_a_true_problem_is_not_the_drills():
    said = "a RAID array failed"
    true = StoredProblem(1, "n", "check_kmsg", "MdArrayFailed", "md0", "CRIT", "inspect", said, "", 1, 1, None)
    assert not Injection(KERNEL_LINE, "md-failed", "md0").caused(true)
    assert Injection(KERNEL_LINE, "md-failed", "md0").caused(true._replace(message="drill: a RAID array failed"))
    full = true._replace(reason="FilesystemFull", target="/scratch")
    assert Injection(FULL_DISK, FULL_DISK, "/scratch").caused(full)
    assert not Injection(FULL_DISK, FULL_DISK, "/scratch2").caused(full)


@pytest.mark.parametrize(
    ("line", "said"),
    [('nhc = "nhc"', "drill.nhc"), ('file-system = "scratch"', "a whole path"), ('fill-to = "100%"', "drill.fill-to"),
     ('kernal = "x"', "drill.kernal")],
)  # fmt: skip
def test_a_wrong_setting_is_named(line, said):
    with pytest.raises(SettingsError, match=rf"remedy.toml:2: .*{said}|remedy.toml:2: {said}"):
        parse(f"[drill]\n{line}\n")
