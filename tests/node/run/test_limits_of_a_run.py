"""A node with no process, thread, descriptor or memory to spare: UNKNOWN and 3, never unhealthy, never a traceback."""

import json
import os
import resource
import subprocess
import sys

import pytest

from nhc.core.model import Verdict
from nhc.core.plan import COMMAND, Item
from nhc.core.system.process import Completed
from nhc.lab.testing.fake_host import FakeHost
from nhc.node.run.engine import run_command
from tests.support.judge import judge
from tests.support.other_user import become
from tests.support.require import need
from tests.support.run import ROOT

USER = 61234
"""A user of no process of this machine: root has no limit of processes."""
CONF = """\
* || check_file_test -d /
* || check_fs_mount -f /
* || true; [ -d / ]
* || true
* || check_cmd_status -t 5 true
* || check_ps_loadavg 99999 99999 99999
* || check_ps_daemon no-such-daemon-of-any-kind
* || check_hw_mem_free 1k
"""
FAILS = "check_ps_daemon no-such-daemon-of-any-kind"


@pytest.fixture
def limited(tmp_path_factory):
    """Run nhc as USER under a limit; a report, or what it said."""
    need("root", os.geteuid() == 0, "a limit of processes holds for others than root alone")
    place = tmp_path_factory.mktemp("limited")
    for part in (place, *place.parents):
        temporary = part in (place, tmp_path_factory.getbasetemp()) or str(part).startswith(("/tmp/", "/dev/shm/"))
        if temporary and part.stat().st_uid == os.geteuid():
            part.chmod(0o755)
    (place / "nhc.conf").write_text(CONF)
    (place / "state").mkdir(mode=0o700)
    os.chown(place / "state", USER, USER)

    def run(limit, value, conf=place / "nhc.conf", module="nhc"):
        def restrict():
            become(USER)
            resource.setrlimit(limit, (value, value))

        argv = [sys.executable, "-S", str(ROOT / "nhc/core/launch/nhc"), "check", "local", "--profile", "none", "-a",
                "-t", "20", "-c", str(conf), "--format", "json"]  # fmt: skip
        env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "NHC_STATE_DIR": str(place / "state"),
               "PYTHONDONTWRITEBYTECODE": "1", "NHC_MUTES": "/no/such"}  # fmt: skip
        return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60, preexec_fn=restrict, cwd="/")

    return run


def verdicts(done):
    assert "Traceback" not in done.stderr
    return {result["line"]: result["verdict"] for result in json.loads(done.stdout)["results"]}


@pytest.mark.thorough
@pytest.mark.parametrize("processes", [1, 2, 3, 4])
def test_a_run_that_may_start_few_processes_or_none(limited, processes):
    done = limited(resource.RLIMIT_NPROC, processes)
    found = verdicts(done)
    assert len(found) == 8
    bad = {line for line, verdict in found.items() if verdict == "CRIT"}
    assert bad <= {FAILS}, found
    if processes == 1:
        assert set(found.values()) == {"UNKNOWN"}
        assert done.returncode == 3


@pytest.mark.thorough
@pytest.mark.parametrize("descriptors", [4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 16, 20, 40, 64])
def test_a_run_with_few_descriptors(limited, descriptors):
    """With three, Python cannot open the program."""
    done = limited(resource.RLIMIT_NOFILE, descriptors)
    if not done.stdout:  # nhc cannot even be loaded, or its configuration not be read
        assert done.returncode in (2, 3)
        assert "Traceback" not in done.stderr
        ours = [line for line in done.stderr.splitlines() if line and ".pth" not in line]  # site's own complaints
        assert len(ours) == 1
        return
    assert {line for line, verdict in verdicts(done).items() if verdict == "CRIT"} <= {FAILS}


@pytest.mark.thorough
@pytest.mark.parametrize("mebibytes", [16, 20, 24, 32, 40, 64])
def test_a_run_with_little_memory(limited, mebibytes):
    done = limited(resource.RLIMIT_AS, mebibytes << 20)
    if done.returncode < 0 or (not done.stdout and "nhc" not in done.stderr):
        return  # Python itself did not get as far as nhc
    if not done.stdout:
        assert done.returncode in (2, 3)
        assert "Traceback" not in done.stderr
        return
    assert {line for line, verdict in verdicts(done).items() if verdict == "CRIT"} <= {FAILS}


@pytest.mark.thorough
def test_a_detached_health_check_that_cannot_be_forked_says_so(tmp_path):
    need("root", os.geteuid() == 0, "a limit of processes holds for others than root alone")

    def restrict():
        become(USER)
        resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))

    argv = [sys.executable, "-S", str(ROOT / "nhc/core/launch/nhc-healthcheck"), "-c", "/no/such", "-l", "-",
            "DETACHED_MODE=1", "MARK_OFFLINE=0"]  # fmt: skip
    done = subprocess.run(argv, env={"PYTHONPATH": str(ROOT), "NHC_STATE_DIR": "/no/such", "PATH": os.environ["PATH"]},
                          capture_output=True, text=True, timeout=60, preexec_fn=restrict, cwd="/")  # fmt: skip
    assert done.returncode == 3
    assert done.stdout == "ERROR:  nhc:  no process can be started for the checks: Resource temporarily unavailable\n"
    assert done.stderr == ""


@pytest.mark.parametrize("said", ["x: fork: retry: Resource temporarily unavailable", "sh: 1: Cannot fork",
                                  "bash: line 1: fork: Cannot allocate memory"])  # fmt: skip
@pytest.mark.parametrize(
    "line", ["/site/look", "check_cmd_status /site/look", "check_cmd_output -m '*fine*' /site/look"]
)
def test_a_program_that_could_start_nothing_has_found_no_fault(line, said):
    host = FakeHost(commands={"/site/look": Completed(2, "", f"{said}\n")})
    item = Item(COMMAND, "look", line, argv=(line,))
    outcome = judge(host, line) if line.startswith("check") else run_command(item, host, 5.0)
    assert outcome.verdict is Verdict.UNKNOWN
    assert said in outcome.message
