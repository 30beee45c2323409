"""Every door under every fault: the status in the cell, no traceback, and of nhc's own failure one line.

A new command or executable without a row fails here. Faults are real: the system's limits, full and read-only file
systems, signals, peers that die (under.py, cells.py, peers.py). Root is needed, to mount and to become nobody.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from nhc.store import episodes, holds, trains
from nhc.store.connect import open_store
from tests.faults.cells import COLUMNS, PAIRS, PEERS, ROOT, SPACE, Forks, carry_out, environment, forks
from tests.faults.doors import CONFIG, DOORS, KEPT, LOG, SUITE, Place, every_door
from tests.faults.peers import Peer
from tests.support.require import need
from tests.support.slurmrest import FakeSlurmRest
from tests.support.waiting import until

ENDED = {-15, -2, -1, 143, 130, 129}
"""How a program ends that signals end: by one of them, or with a shell's status for that."""

LOOP = {"remedy", "episode", "episodes", "drill", "job", "train", "spares"}
"""Words of the doors whose store has what the loop knows."""
TABLE = Path(__file__).with_name("expected.txt").read_text().splitlines()


def rows():
    head, *lines = [line for line in TABLE if line and line[0] != "#"]
    names = head[23:].split()
    assert len(names) == len(COLUMNS) + len(PEERS)
    for line in lines:
        door, _gap, row = line.partition("  ")  # the name may be longer than its column
        cells = dict(zip((*COLUMNS, *PEERS), row.split()))
        assert len(cells) == len(names), line
        yield door, cells


EXPECTED = dict(rows())


def statuses(cell, usual):
    if cell == "end":
        return ENDED | {int(usual)}
    return {int(status) for status in cell.split("/")}


def test_every_door_has_a_row():
    """A command in the command table or an executable that nobody has tried under the faults is not finished."""
    assert every_door() == set(DOORS) == set(EXPECTED)


@pytest.fixture(scope="module")
def world():
    """The files, services and broken file systems that the cells share."""
    need("root", os.geteuid() == 0, "to mount file systems and to become nobody")
    base = Path(tempfile.mkdtemp(prefix="nhc-faults-"))  # pytest's own are closed to nobody
    base.chmod(0o755)
    (base / "nhc.conf").write_text(CONFIG)
    (base / "messages").write_text(LOG)
    (base / "suite.conf").write_text(SUITE)
    (base / "train.log").write_text("step 1 loss 2.0\nstep 2 loss 1.9\n")
    shutil.copytree(KEPT, base / "kept")  # a checkout may be closed to others
    report = {**json.loads((KEPT / "report.json").read_text()), "host": "n1", "started": time.time()}
    (base / "report.json").write_text(json.dumps(report))
    settings = f'[agent]\nnode = "n1"\nconfig = ["{base}/nhc.conf"]\nkernel-log = false\nlisten = []\n'
    (base / "own.toml").write_text(settings)
    (base / "agent.toml").write_text(f'{settings}state = "{base}/agent"\nsocket = "{base}/agent.sock"\n')
    place = Place(base, base)

    def nhc(*words, module="nhc"):
        argv = [sys.executable, "-m", module, *map(str, words)]
        subprocess.run(argv, env=environment(place), check=True, capture_output=True, timeout=300, cwd=ROOT)

    nhc(base / "nhc.pyz", module="nhc.core.archive.build")
    for _twice in range(2):
        nhc(
            *[
                word if word != f"node-dir={base}/node" else f"node-dir={base}/sent"
                for word in DOORS["fleet check"].words(place)
            ]
        )
    nhc("mute", "check_fs_mount", "--until", "3d", "--why", "a drill")
    nhc("store", "import", base / "report.json", "--store", base / "store.db")
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, base, ignore_errors=True)
        for name in SPACE:
            (base / name).mkdir()
            subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,mode=755", "none", base / name], check=True)
            stack.callback(subprocess.run, ["umount", "-l", base / name], check=True)
        for door in DOORS:
            for column in (*COLUMNS, *PEERS):
                state = state_of(base, door, column)
                state.mkdir(parents=True, mode=0o700)
                state.parent.chmod(0o755)
                if door == "unmute":
                    shutil.copy(base / "mutes.json", state)
                if LOOP & {*door.split()} and column not in SPACE:
                    shutil.copy(remedy_store(base), state / "store.db")
        with contextlib.suppress(OSError), open(base / "full" / "filler", "wb", 0) as file:
            while True:
                file.write(b"x" * 4096)
        subprocess.run(["mount", "-o", "remount,ro", base / "read-only"], check=True)
        rest = FakeSlurmRest(["n1", "n2"], 40)
        threading.Thread(target=rest.serve_forever, daemon=True).start()
        stack.callback(rest.server_close)
        stack.callback(rest.shutdown)
        peers = {step: Peer(step) for step in ("well", *Peer.STEPS)}
        for peer in peers.values():
            stack.callback(peer.close)
        forked = Forks(place)
        stack.callback(forked.close)
        yield base, rest, peers, forked


@pytest.fixture
def agent(world, name):
    """A new agent for each command that speaks to one: none finds it paused by the command before."""
    if "agent" not in name.split() or name == "serve agent":
        yield
        return
    base = world[0]
    run = [sys.executable, "-m", "nhc", "serve", "agent", "-s", base / "agent.toml"]
    ask = [sys.executable, "-m", "nhc", "status", "agent", "--socket", base / "agent.sock"]
    quiet = {"env": environment(Place(base, base)), "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    child = subprocess.Popen(run, **quiet)
    until(lambda: subprocess.run(ask, **quiet, check=False).returncode == 0, 60, what="the agent's first round")
    yield
    child.terminate()
    child.wait(60)
    shutil.rmtree(base / "agent")


def remedy_store(base):
    """A store with an episode that waits for a person, a train that was stopped, and a hold."""
    path = base / "remedy.db"
    if not path.exists():
        store = open_store(f"sqlite:///{path}", anchor=str(base / "remedy.anchor"))
        with store.write() as connection:
            episodes.open_episode(connection, "n1", "check_x|Bad|", action="reboot", rung="reboot",
                                  state="awaiting-approval", now=time.time(), by="drill")  # fmt: skip
            trains.create(connection, "drill", [["n1"]], plan="", digest="", state="stopped", node_state="planned",
                          by="drill", why="a drill", now=time.time())  # fmt: skip
            holds.hold(connection, "node", "n1", by="ann", why="a drill", now=time.time())
        store.close()
    return path


def state_of(base: Path, door: str, column: str) -> Path:
    name = door.replace(" ", "-")
    return base / column / name if column in SPACE else base / "cells" / column.replace(" ", "-") / name


def place_of(world, name, column):
    base, rest, peers, _forked = world
    step = column[5:] if column in PEERS else "well"
    peer = (
        rest.address
        if name in ("sync adapter", "sync slurm", "serve remedy", "doctor remedy", "train plan", "train run")
        and step == "well"
        else peers[step].address
    )
    return Place(base, state_of(base, name, column), peer)


def judged(name, column, ended):
    """What is wrong with one cell, "" for nothing."""
    cells = EXPECTED[name]
    if column.startswith("memory=") and (
        any(words in ended.err for words in ("lost sys.stderr", "SystemError: error return without exception set"))
        or ended.status in (-signal.SIGSEGV, -signal.SIGXCPU)
    ):
        # The interpreter's own last words, for want of memory to write ours (status 120) or for the exception that ends
        # it (1); or its stack could not grow, which Linux answers with SIGSEGV whatever the program (getrlimit(2),
        # RLIMIT_AS); or it spins (SPINNING).
        return ""
    wrong = []
    if ended.status not in statuses(cells[column], cells["none"]):
        wrong.append(f"status {ended.status}, expected {cells[column]}")
    if "Traceback" in ended.out + ended.err:
        wrong.append("a traceback")
    if DOORS[name].launcher == "nhc" and "internal error" in ended.err and len(ended.err.splitlines()) > 1:
        wrong.append("more than one line")
    return f"{column}: {', '.join(wrong)}: {ended.err[-300:]!r}" if wrong else ""


@pytest.mark.slow
@pytest.mark.parametrize("name", DOORS)
def test_a_door_under_every_fault(world, agent, name):
    pair = list(PAIRS)[list(DOORS).index(name) % len(PAIRS)]  # one of them a door: what they end is the same in all
    tried = [
        column for column, cell in EXPECTED[name].items() if cell != "-" and (column not in PAIRS or column == pair)
    ]
    places = {column: place_of(world, name, column) for column in tried}
    together = [column for column in tried if forks(name, DOORS[name], column)]
    alone = [column for column in tried if column not in together]
    with ThreadPoolExecutor(3) as pool:
        forked = pool.submit(world[3].carry_out, DOORS[name], [(places[column], column) for column in together])
        endings = dict(zip(alone, pool.map(lambda column: carry_out(DOORS[name], places[column], column), alone)))
        endings.update(zip(together, forked.result()))
    assert list(filter(None, (judged(name, column, ended) for column, ended in endings.items()))) == []
