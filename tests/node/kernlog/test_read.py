"""Machines that die without a word: counted by boots that follow no shutdown."""

import sqlite3
import struct
from contextlib import closing

import pytest

from nhc.core.host import BOOT_ID
from nhc.core.model import Verdict
from nhc.core.state.store import State
from nhc.core.system.wtmp import DATABASE, WTMP, database_without_logins, parse_database, parse_records
from nhc.lab.testing.fake_host import FakeHost
from nhc.node.kernlog.lasting import agent_begins, agent_ends
from tests.support.judge import judge_all

DAY = 86400.0
BOOT, LOGIN, SHUTDOWN = (2, b"reboot"), (7, b"alice"), (1, b"shutdown")


def record(kind, at, size=384):
    number, user = kind
    form, place = ("=i", 340) if size == 384 else ("=q", 344)
    data = bytearray(size)
    struct.pack_into("=h", data, 0, number)
    data[44 : 44 + len(user)] = user
    struct.pack_into(form, data, place, int(at))
    return bytes(data)


class Node:
    """A node that is started again and again. What `wtmp` has, its init wrote; its state is on a disk."""

    def __init__(self, directory, commands=None, size=384):
        self.state, self.commands, self.size, self.boots = str(directory), commands or {}, size, 0
        self.wtmp, self.now, self.files = b"", 1_700_000_000.0, {}

    def boot(self, shutdown=None, after=DAY, agent=None):
        """The next boot. `shutdown`: the last one ended with its record; None for the first, of which nothing tells."""
        if shutdown:
            self.wtmp += record(SHUTDOWN, self.now, self.size)
        self.now += after
        self.boots += 1
        if shutdown is not None or not self.wtmp:
            self.wtmp += record(BOOT, self.now, self.size) + record(LOGIN, self.now + 5, self.size)
        host = FakeHost({BOOT_ID: f"boot-{self.boots}\n", "/proc/bus/pci/devices": "", **self.files}, self.commands)
        host.system.now, host.system.uptime = self.now + 60, 60.0
        host.write(WTMP, "")
        with open(host.path(WTMP), "wb") as file:
            file.write(self.wtmp)
        host.memory = State(f"{self.state}/run")
        if agent is not None:
            agent_begins(host.memory, f"boot-{self.boots}")
            if agent:
                agent_ends(host.memory, f"boot-{self.boots}")
        return self.judge(host)

    def judge(self, host):
        self.host = host
        return [(o.verdict, o.reason) for o in judge_all(host, "check_kmsg")[:-1]]


WARNED, OUT = [(Verdict.WARN, "BootUnclean")], [(Verdict.CRIT, "BootUnclean")]


@pytest.mark.parametrize("size", [384, 400])
def test_the_second_in_a_week_is_for_a_person_and_the_third_takes_the_node_out(tmp_path, size):
    node = Node(tmp_path, size=size)
    assert node.boot() == []
    assert node.boot(shutdown=False) == [], "one is anybody's mishap"
    assert node.boot(shutdown=False) == WARNED
    assert node.judge(node.host) == WARNED, "the same boot counts once"
    assert node.boot(shutdown=False) == OUT


def test_orderly_reboots_end_the_finding_and_count_for_nothing(tmp_path):
    node = Node(tmp_path)
    node.boot()
    for _ in range(6):
        assert node.boot(shutdown=True) == []
    node.boot(shutdown=False)
    assert node.boot(shutdown=False) == WARNED
    assert node.boot(shutdown=True) == []
    assert node.boot(shutdown=False) == OUT, "the others are not forgotten"


def test_after_a_week_without_one_the_count_begins_anew(tmp_path):
    node = Node(tmp_path)
    node.boot()
    for _ in range(4):
        assert node.boot(shutdown=False, after=8 * DAY) == []


@pytest.mark.parametrize(
    ("cause", "expected"),
    [
        ("chassis power control command", []), ("reset via pushbutton", []), ("power-up via pushbutton", []),
        ("watchdog expired", WARNED), ("power-up due to always-restore power policy", WARNED), ("unknown", WARNED),
    ],
)  # fmt: skip
def test_who_resets_a_machine_by_its_controller_meant_to(tmp_path, cause, expected):
    node = Node(tmp_path, {"ipmitool chassis restart_cause": f"System restart cause: {cause}\n"})
    node.files = {"/dev/ipmi0": ""}
    node.boot()
    node.boot(shutdown=False)
    assert node.boot(shutdown=False) == expected


def test_where_no_boots_are_recorded_the_agent_tells(tmp_path):
    node = Node(tmp_path)
    node.boot(agent=False)
    node.wtmp = b"\1"
    assert node.boot(agent=False) == []
    assert node.boot(agent=True) == WARNED, "two boots ended while an agent ran"
    assert node.boot(agent=False) == [], "this one was told to end"
    assert node.boot(agent=None) == OUT
    assert node.boot(agent=None) == [], "nobody saw that one"


def test_a_file_of_another_form_tells_nothing(tmp_path):
    assert parse_records(b"") == parse_records(b"x" * 384) == parse_records(b"\0" * 100) == []
    node = Node(tmp_path)
    node.boot()
    for _ in range(3):
        node.wtmp = b"\xff" * 768
        assert node.boot() == []


def database(boots):
    """wtmpdb's database (lib/sqlite.c add_entry): when each boot began, and ended or not, in seconds; and a login."""
    with closing(sqlite3.connect(":memory:")) as base:
        base.execute("CREATE TABLE wtmp(ID INTEGER PRIMARY KEY, Type INTEGER, User TEXT NOT NULL, Login INTEGER, "
                     "Logout INTEGER, TTY TEXT, RemoteHost TEXT, Service TEXT)")  # fmt: skip
        for began, ended in boots:
            logout = None if ended is None else int(ended * 1e6)
            base.execute("INSERT INTO wtmp (Type, User, Login, Logout, TTY) VALUES (1, 'reboot', ?, ?, '~')",
                         (int(began * 1e6), logout))  # fmt: skip
            base.execute("INSERT INTO wtmp (Type, User, Login, TTY, RemoteHost) VALUES (3, 'alice', ?, 'pts/0', 'h9')",
                         (int(began * 1e6) + 1,))  # fmt: skip
        base.commit()
        return base.serialize()


@pytest.mark.skipif(not hasattr(sqlite3.Connection, "serialize"), reason="Python 3.11 reads a database from memory")
def test_a_database_of_boots_tells_as_the_file_does(tmp_path):
    node, boots = Node(tmp_path), []
    node.wtmp = b"none"

    def boot(orderly):
        if boots and orderly:
            boots[-1] = (boots[-1][0], node.now + 600)
        boots.append((node.now + DAY, None))
        node.files = {DATABASE: database(boots)}
        return node.boot()

    assert [boot(False), boot(False), boot(False), boot(True), boot(False)] == [[], [], WARNED, [], OUT]


def test_no_recording_has_who_logged_in():
    data = database([(1000, 2000), (3000, None)])
    kept = database_without_logins(data)
    assert parse_database(kept) == parse_database(data) != []
    assert b"alice" in data
    assert b"alice" not in kept
    assert b"h9" not in kept
    assert database_without_logins(b"SQLite format 3\0" + b"x" * 90) == b"" == database_without_logins(b"")
