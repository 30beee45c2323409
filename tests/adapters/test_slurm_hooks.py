"""nhc as Prolog, Epilog and HealthCheckProgram of a real Slurm: what a job and an administrator see."""

from __future__ import annotations

import json
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.require import need
from tests.support.run import ROOT
from tests.support.waiting import until


@pytest.fixture
def cluster(site):
    return site[0]


@pytest.fixture
def hooks(site):
    return site[1]


def in_service(cluster, node):
    """Neither drained nor down; a job that has just ended may still be completing."""
    return cluster.state(node) in ("idle", "mix", "alloc", "comp")


def requeued(job):
    return int(job["Restarts"]) >= 1 and job["JobState"] == "PENDING"


def quiet_health_check(hooks):
    """Keep the periodic check out of a test of the prolog, the one that runs now included."""
    hooks.program("healthcheck", "exit 0\n")
    until(lambda: not running(f"{hooks.directory}/nhc/nhc.conf"), what="health checks to end")


def running(word):
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found.append(path.read_bytes())
    return [line for line in found if word.encode() in line]


def ended(cluster, job):
    return until(lambda: cluster.job(job)["JobState"] == "COMPLETED" and cluster.job(job), what=f"job {job} to end")


def test_a_job_that_lands_on_a_sick_node_is_requeued_and_runs_elsewhere(cluster, hooks):
    quiet_health_check(hooks)
    hooks.sick("n1")
    job = cluster.submit("hostname", "--nodelist=n1")
    until(lambda: cluster.state("n1") in ("drain", "drng"), what="n1 to be drained")
    assert cluster.reason("n1").startswith("NHC: [node] check_file_test: ")
    # Slurm holds a requeued batch job back for two minutes, the life of its credential; no update sticks before.
    until(lambda: requeued(cluster.job(job)), what="the job to be requeued")
    cluster.scontrol("update", f"JobId={job}", "ReqNodeList=", "StartTime=now")
    done = ended(cluster, job)
    assert done["NodeList"] in ("n2", "n3")
    assert int(done["Restarts"]) >= 1
    assert done["AdminComment"].startswith("NHC: node n1 is unhealthy, the job is requeued: check_file_test: ")
    assert cluster.state("n1") == "drain"


def test_a_healthy_node_starts_its_job_and_asks_the_controller_nothing(cluster, hooks):
    job = cluster.submit("true", "--nodelist=n2")
    ended(cluster, job)
    assert in_service(cluster, "n2")
    assert hooks.said("prolog") == ""


def test_an_unknown_verdict_lets_the_job_start(cluster, hooks):
    quiet_health_check(hooks)
    hooks.configure("* || check_no_such_thing")
    job = cluster.submit("true", "--nodelist=n2")
    ended(cluster, job)
    assert in_service(cluster, "n2")
    assert "could not tell whether n2 is healthy; the job starts" in hooks.said("prolog")


def test_the_health_check_drains_within_its_interval_and_resumes_after_repair(cluster, hooks):
    hooks.sick("n3")
    until(lambda: cluster.state("n3") == "drain", 60, what="n3 to be drained")
    assert cluster.reason("n3").startswith("NHC: [node] check_file_test: ")
    assert cluster.state("n1") == "idle"
    hooks.well("n3")
    until(lambda: cluster.state("n3") == "idle", 60, what="n3 to be back")
    until(lambda: cluster.unmarked("n3"), what="the reason to go")  # it stays until its slurmd has answered


def test_a_watch_only_week_drains_nothing_starts_the_job_and_says_what_it_would_do(cluster, hooks):
    hooks.configure(NHC_WATCH_ONLY="1")
    hooks.sick("n1")
    job = cluster.submit("true", "--nodelist=n1")
    done = ended(cluster, job)
    assert (done["Restarts"], done["NodeList"]) == ("0", "n1")
    assert "AdminComment" not in done
    assert f"the job {job} starts, otherwise it would be requeued" in hooks.said("prolog")
    until(lambda: "not marked: watch only" in hooks.said("healthcheck"), what="the health check to say so")
    assert in_service(cluster, "n1")
    assert cluster.reason("n1") == ""
    hooks.configure()  # the week is over
    until(lambda: cluster.state("n1") == "drain", what="n1 to be drained")
    hooks.configure(NHC_WATCH_ONLY="1")
    hooks.well("n1")
    until(
        lambda: "n1 is healthy; stays out: watch only" in hooks.said("healthcheck"), what="the health check to say so"
    )
    assert cluster.state("n1") == "drain"
    hooks.configure()
    until(lambda: cluster.state("n1") == "idle", what="n1 to be back")


def test_an_unknown_verdict_neither_drains_nor_resumes(cluster, hooks):
    hooks.sick("n3")
    until(lambda: cluster.state("n3") == "drain", what="n3 to be drained")
    hooks.configure("* || check_no_such_thing")
    runs = checked(hooks)  # the one under way may have read the old file: it is not to find the node well
    until(lambda: checked(hooks) >= runs + 2, what="a run of the new file")
    hooks.well("n3")
    runs = checked(hooks)
    until(lambda: checked(hooks) >= runs + 2, what="two more runs")
    assert cluster.state("n3") == "drain"
    assert cluster.state("n1") == "idle"


def checked(hooks):
    """How often the health check has run to its end on n3, as its state directory tells."""
    path = hooks.directory / "run" / "count"
    if not path.exists():
        path.write_text("")
        # Count runs of the wrapper's program without changing what it does.
        program = (hooks.directory / "bin" / "nhc-healthcheck").read_text()
        first, rest = program.split("\n", 1)
        hooks.write("bin/nhc-healthcheck", f'{first}\n[ "$SLURMD_NODENAME" = n3 ] && echo >>{path}\n{rest}')
    return path.read_text().count("\n")


def test_of_nodes_that_fail_together_the_first_stay_out_and_the_fleet_does_not_flap(cluster, hooks):
    def out():
        return {node for node in cluster.nodes if not in_service(cluster, node)}

    shared = hooks.directory / "the-shared-file-system-is-gone"
    hooks.configure(f"* || check_file_test -! -e {shared}", NHC_MAX_DRAINED="1")
    before = len(ledger(hooks))
    shared.touch()
    try:
        until(lambda: len(ledger(hooks)) > before and len(out()) == 1, what="one node to be out")
        runs = checked(hooks)
        until(lambda: checked(hooks) >= runs + 1, what="the round in which they met to end")
        stays, acts, runs = out(), len(ledger(hooks)), checked(hooks)
        until(lambda: checked(hooks) >= runs + 4, what="four more rounds")
        assert (len(stays), out()) == (1, stays)
        assert len(ledger(hooks)) == acts, "nothing is marked, and nothing taken back, round after round"
    finally:
        shared.unlink()
    until(lambda: not out(), what="all nodes to be back")


def ledger(hooks):
    """What the hooks have done to nodes."""
    return [line for path in (hooks.directory / "ledger").glob("*") for line in path.read_text().splitlines()]


REBOOTS = [("reboot", "n2"), ("reboot", "ASAP", "n2"), ("reboot", "ASAP", "reason=new kernel", "n2")]
POWER_UP = ("update", "NodeName=n2", "State=POWER_UP")


@pytest.mark.parametrize("how", [*REBOOTS, POWER_UP])
def test_a_node_that_is_sick_after_its_boot_takes_no_job(cluster, hooks, how):
    """Its health check runs once before it registers, and then after its interval: 300 s at most sites."""
    first = hooks.directory / f"first-{os.urandom(4).hex()}"
    program = (hooks.directory / "bin" / "nhc-healthcheck").read_text().split("\n", 1)[1]
    hooks.write("bin/nhc-healthcheck", f"#!/bin/sh\n[ $SLURMD_NODENAME = n2 ] && mkdir {first} || exit 0\n{program}")
    hooks.program("prolog", "exit 0\n")  # a site without one
    first.mkdir(exist_ok=True)
    until(lambda: not running(f"{hooks.directory}/nhc/nhc.conf"), what="health checks to end")
    if how == POWER_UP:
        cluster.update("n2", State="POWER_DOWN_FORCE")
        until(lambda: cluster.show("n2")["State"].endswith("POWERED_DOWN"), 60, what="n2 to be powered down")
    cluster.scontrol(*how)
    waits = "POWERING_UP" if how == POWER_UP else "REBOOT_ISSUED"
    until(lambda: waits in cluster.show("n2")["State"], 30, what="slurmctld to wait for the boot")
    hooks.sick("n2")
    job = "" if how == POWER_UP else cluster.submit("sleep 600", "--nodelist=n2")  # it would be given the node at once
    first.rmdir()
    cluster.boot_node("n2")
    until(lambda: cluster.reason("n2").startswith("NHC: [node] check_file_test: "), 20, what="our mark")
    until(lambda: cluster.state("n2") in ("drain", "drng"), 20, what="n2 to be drained")
    if how == REBOOTS[0]:
        assert cluster.job(job)["JobState"] == "PENDING"
    cluster.run("scancel", *[job] * bool(job), check=False)


def test_an_operators_drain_is_neither_renamed_nor_resumed(cluster, hooks):
    cluster.update("n3", State="DRAIN", Reason="new DIMM on Tuesday")
    runs = checked(hooks)
    until(lambda: checked(hooks) >= runs + 2, what="two healthy runs")
    assert (cluster.state("n3"), cluster.reason("n3")) == ("drain", "new DIMM on Tuesday")
    hooks.sick("n3")
    runs = checked(hooks)
    until(lambda: checked(hooks) >= runs + 2, what="two unhealthy runs")
    assert (cluster.state("n3"), cluster.reason("n3")) == ("drain", "new DIMM on Tuesday")


@pytest.mark.parametrize(
    ("what", "body"),
    [
        ("is not installed", None),
        ("ended with status 1", "exit 1\n"),  # a Python that cannot start
        ("ended with status 139", "kill -SEGV $$\n"),
    ],
)
def test_a_damaged_installation_drains_nothing_and_is_seen(cluster, hooks, what, body):
    quiet_health_check(hooks)
    if body is None:
        (hooks.directory / "bin" / "nhc-prolog").unlink()
    else:
        hooks.program("prolog", body)
    job = cluster.submit("true", "--nodelist=n2")
    ended(cluster, job)
    assert in_service(cluster, "n2")
    assert cluster.show("n2")["Comment"] == f"NHC: nhc-prolog {what}"
    hooks.program("prolog")
    ended(cluster, cluster.submit("true", "--nodelist=n2"))
    assert not cluster.show("n2").get("Comment"), "it works again"


def test_a_configuration_that_cannot_be_read_drains_nothing_and_is_seen_until_it_can(cluster, hooks):
    conf = hooks.directory / "nhc" / "nhc.conf"
    good = conf.read_text()
    conf.unlink()
    job = cluster.submit("true", "--nodelist=n2")
    ended(cluster, job)
    said = until(lambda: cluster.show("n2").get("Comment"), what="a comment on n2")
    assert said.startswith("NHC: the ")
    assert "configuration cannot be used" in said
    conf.write_text(good)
    until(lambda: not cluster.show("n2").get("Comment"), what="the comment to go")
    until(lambda: cluster.state("n2") == "idle", what="n2 to be idle")


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("* || check_fs_fre /", "there is no check"),
        ("* || check_file_test --no-such-option /", "check_file_test"),
        ("* || if true", "bash cannot parse the line"),
        ("* || [[ -d / ]] && chekc_home", "chekc_home"),
        ("{n[1-} || check_file_test -d /", "whether the target"),
        ("* || /etc/passwd", "passwd: there is no"),
    ],
)
def test_a_line_that_cannot_be_run_is_seen_on_the_node_until_it_can(cluster, hooks, line, what):
    """All verdicts are UNKNOWN then: nothing is marked, and no marked node comes back."""
    hooks.sick("n3")
    until(lambda: cluster.state("n3") == "drain", what="n3 to be drained")
    hooks.configure(line)
    conf = hooks.directory / "nhc" / "nhc.conf"
    number = conf.read_text().splitlines().index(line) + 1
    hooks.well("n3")
    said = until(lambda: cluster.show("n3").get("Comment"), 25, what="a comment on n3")
    assert said.startswith("NHC: the configuration has a line that cannot be run")
    assert f"nhc.conf:{number}" in said
    assert what in said
    assert cluster.state("n3") == "drain"
    assert any(f"nhc.conf:{number}" in one for one in hooks.said("healthcheck").splitlines())
    ended(cluster, cluster.submit("true", "--nodelist=n2"))
    (told,) = [one for one in hooks.said("prolog").splitlines() if "could not tell" in one]
    assert what in told
    hooks.configure()
    until(lambda: not cluster.show("n3").get("Comment"), what="the comment to go")
    until(lambda: cluster.state("n3") == "idle", what="n3 to be back")


def test_a_node_that_no_line_is_for_is_seen_until_there_is_one(cluster, hooks):
    conf = hooks.directory / "nhc" / "nhc.conf"
    good = conf.read_text()
    conf.write_text("n1 || check_file_test -d /\n")
    job = cluster.submit("true", "--nodelist=n2")
    ended(cluster, job)
    said = until(lambda: cluster.show("n2").get("Comment"), what="a comment on n2")
    assert said.endswith(f"nothing is checked: {conf}: no line is for n2, so it is never checked")
    assert not cluster.show("n1").get("Comment")
    assert in_service(cluster, "n2")
    conf.write_text(good)
    until(lambda: not cluster.show("n2").get("Comment"), what="the comment to go")


def test_the_bound_on_drained_nodes_holds_at_the_nodes_themselves(cluster, hooks):
    hooks.configure(NHC_MAX_DRAINED="1")
    hooks.sick("n1")
    until(lambda: cluster.state("n1") == "drain", what="n1 to be drained")
    hooks.sick("n2")
    until(lambda: "n2 is unhealthy" in hooks.said("healthcheck"), what="n2 to be refused")
    assert "not marked: 1 of 3 nodes are marked already" in hooks.said("healthcheck")
    job = cluster.submit("true", "--nodelist=n2")
    ended(cluster, job)
    assert in_service(cluster, "n2")
    assert cluster.show("n2")["Comment"].startswith("NHC: not marked, there is no room: check_file_test: ")
    hooks.sick("n3")
    until(lambda: "n3 is unhealthy" in hooks.said("healthcheck"), what="n3 to be refused")
    (line,) = [line for line in hooks.said("healthcheck").splitlines() if "n3 is unhealthy" in line]
    assert "logged it for all" in line, "n2 has said it of all"
    hooks.well("n2")
    until(lambda: not cluster.show("n2").get("Comment"), what="the comment to go")
    assert cluster.show("n3")["Comment"]


def test_a_users_comment_skips_no_check_unless_the_administrator_allows_it(cluster, hooks):
    quiet_health_check(hooks)
    hooks.sick("n1")
    hooks.configure(NHC_USER_SKIP="check_file_test")
    job = cluster.submit("true", "--nodelist=n1", "--comment=nhc-skip=check_file_test")
    ended(cluster, job)
    assert in_service(cluster, "n1")
    hooks.configure()
    job = cluster.submit("true", "--nodelist=n1", "--comment=nhc-skip=check_file_test")
    until(lambda: cluster.state("n1") in ("drain", "drng"), what="n1 to be drained")


def test_leftover_processes_of_the_job_are_ended_and_another_users_are_not(cluster, hooks):
    quiet_health_check(hooks)
    user = pwd.getpwnam("games").pw_uid  # no other test's: everything that runs as this user is ended
    hooks.configure(NHC_EPILOG_CLEAN="processes", NHC_EPILOG_FIND="processes", MAX_SYS_UID=str(user - 1))
    users = hooks.directory / "users"
    users.mkdir()
    users.chmod(0o777)
    pid_file = users / "leftover.pid"
    # A daemon that leaves the job's session and process tree at once: Slurm does not find it to end it.
    job = cluster.submit(
        f"(setsid sh -c 'echo $$ > {pid_file}; exec sleep 300' </dev/null >/dev/null 2>&1 &)\n"
        # It is there when it is the program that it is to be: until then the epilog would find a shell.
        f'until [ "$(cat /proc/$(cat {pid_file})/comm)" = sleep ]; do sleep 0.05; done',
        "--nodelist=n2",
        f"--uid={user}",
        "--output=/dev/null",
    )
    ended(cluster, job)
    pid = int(pid_file.read_text())
    until(lambda: not alive(pid), what="the leftover to be ended")
    # Whatever else of this user was there, of another cluster on this machine for one, stands in the same line.
    until(
        lambda: any("cleaned up after the job: " in line and f"process {pid} (sleep)" in line
                    for line in hooks.said("epilog").splitlines()),
        what="the epilog to say so", said=lambda: f"{pid}: {hooks.said('epilog')}",
    )  # fmt: skip
    until(lambda: cluster.state("n2") == "idle", what="n2 to be idle")


@pytest.fixture
def games(hooks):
    """A user that no other test's jobs are of, and a directory of theirs that is cleaned as /tmp."""
    user = pwd.getpwnam("games").pw_uid
    place = hooks.directory / f"shared-tmp-{os.urandom(4).hex()}"
    place.mkdir()
    place.chmod(0o777)
    quiet_health_check(hooks)
    hooks.configure(NHC_EPILOG_CLEAN="processes shm tmp", NHC_EPILOG_TMP=str(place), MAX_SYS_UID=str(user - 1))
    return user, place


def as_user(user, *argv):
    nothing = subprocess.DEVNULL
    return subprocess.Popen(
        argv, user=user, group="nogroup", extra_groups=[], cwd="/", env={"PATH": "/usr/bin:/bin"}, stdin=nothing,
        stdout=nothing, stderr=nothing,
    )  # fmt: skip


def test_what_may_be_the_users_job_on_another_slurmd_of_this_host_stays(cluster, hooks, games):
    """Several slurmd share the host: the user's job runs as n2, the epilog cleans after the one on n3."""
    user, place = games
    running = cluster.submit(
        f"touch {place}/of-the-job-on-n2\nenv -i PATH=/usr/bin:/bin sh -c 'echo $$ > {place}/pid; exec sleep 300'",
        "--nodelist=n2", f"--uid={user}", "--output=/dev/null",
    )  # fmt: skip
    until(lambda: (place / "pid").exists() and (place / "pid").read_text().strip(), what="the job on n2 to run")
    pid = int((place / "pid").read_text())
    try:
        ended(cluster, cluster.submit("true", "--nodelist=n3", f"--uid={user}", "--output=/dev/null"))
        until(lambda: cluster.state("n3") == "idle", what="the epilog on n3 to end")
        assert (alive(pid), (place / "of-the-job-on-n2").exists()) == (True, True)
        assert cluster.job(running)["JobState"] == "RUNNING"
    finally:
        cluster.run("scancel", running)
    until(lambda: not alive(pid), what="the job on n2 to end")
    ended(cluster, cluster.submit("true", "--nodelist=n3", f"--uid={user}", "--output=/dev/null"))
    until(lambda: not (place / "of-the-job-on-n2").exists(), what="its file to be cleaned once nobody has a job here")


def login_of(user, place):
    """A login as sshd makes one: the user's sshd-session, its shell, an editor in it. None has a job."""
    for name, program in (("sshd-session", "bash"), ("vim", "sleep")):
        shutil.copy(shutil.which(program), place / name)
    shell = f"bash -c '{place}/vim 300 & echo $! > {place}/pid; wait; :'"
    login = as_user(user, str(place / "sshd-session"), "-c", f"{shell} & wait; :")
    until(lambda: (place / "pid").exists() and (place / "pid").read_text().strip(), what="the login's editor")
    return login, int((place / "pid").read_text())


@pytest.mark.parametrize("all_counts", [False, True])
def test_a_login_beside_the_job_keeps_its_shell_its_editor_and_its_files(cluster, hooks, games, tmp_path, all_counts):
    user, place = games
    if all_counts:
        hooks.configure(NHC_EPILOG_CLEAN="processes shm tmp", NHC_EPILOG_TMP=str(place), MAX_SYS_UID=str(user - 1),
                        NHC_EPILOG_LOGINS="1")  # fmt: skip
    programs = hooks.directory / f"programs-{os.urandom(4).hex()}"
    programs.mkdir()
    programs.chmod(0o777)
    login, editor = login_of(user, programs)
    as_user(user, "touch", str(place / "draft")).wait(10)
    try:
        ended(cluster, cluster.submit("true", "--nodelist=n1", f"--uid={user}", "--output=/dev/null"))
        until(lambda: cluster.state("n1") == "idle", what="the epilog to end")
        assert (alive(editor), (place / "draft").exists()) == (not all_counts, not all_counts)
    finally:
        for pid in (editor, login.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        login.wait(10)


def readable_to(user):
    """Whether this user's processes can import this checkout, as the job's own do to say why it ended."""
    argv = ["setpriv", f"--reuid={user}", "--clear-groups", sys.executable, "-c", "import nhc"]
    return subprocess.run(argv, capture_output=True, check=False, cwd="/").returncode == 0


def test_a_failed_jobs_output_says_why_it_ended_and_a_good_ones_does_not(cluster, hooks):
    need("setpriv", shutil.which("setpriv"))
    quiet_health_check(hooks)
    user = pwd.getpwnam("games").pw_uid
    hooks.configure(NHC_EPILOG_WHY="1", NHC_EPILOG_FIND="", MAX_SYS_UID=str(user - 1))
    place = hooks.directory / "outputs"
    place.mkdir()
    place.chmod(0o777)
    for name, script in (("bad", "python3 -c 'raise KeyError(\"lr\")'"), ("good", "echo done")):
        job = cluster.submit(script, "--nodelist=n2", f"--uid={user}", f"--output={place}/{name}.%j")
        until(lambda job=job: cluster.job(job)["JobState"] in ("COMPLETED", "FAILED"), what=f"job {job} to end")
        until(lambda: cluster.state("n2") == "idle", what="the epilog to end")
        output = place / f"{name}.{job}"
        if name == "good":
            assert output.read_text() == "done\n"
            continue
        said = [line for line in output.read_text().splitlines() if line.startswith("nhc: ")]
        if not readable_to(user):  # as below root's home
            assert said == []
            assert f"job {job}: why it ended could not be told" in hooks.said("epilog")
            continue
        assert len(said) == 3, hooks.said("epilog")
        # Other tests write faults into this machine's kernel log.
        why = r"(your program \(supported\): KeyError: 'lr', n2|not known: KeyError: 'lr', and at the same time n2: )"
        assert re.match(rf"nhc: job {job}: {why}", said[0]), said
        readable = subprocess.run(["dmesg"], capture_output=True, check=False).returncode == 0
        assert ("kernel log" in said[1].partition("not read: ")[2]) is not readable, said


def alive(pid):
    with suppress(OSError):
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    return False


def test_the_controllers_prolog_requeues_and_drains_nothing(cluster, hooks):
    quiet_health_check(hooks)
    marker = hooks.directory / "licence-server-is-down"
    marker.touch()
    hooks.configure(f"# context prolog-slurmctld\n* || check_file_test -! -e {marker}")
    job = cluster.submit("true", "--nodelist=n2")
    until(lambda: requeued(cluster.job(job)), what="the job to be requeued")
    assert in_service(cluster, "n2")
    marker.unlink()
    cluster.scontrol("update", f"JobId={job}", "StartTime=now")
    ended(cluster, job)


def test_a_closed_gate_and_a_suite_before_the_job_keep_a_job_off_a_node(cluster, hooks, tmp_path):
    """What a node of the cloud needs, which has its job before anything could drain it."""
    from nhc.core.state.gate_record import GateRecord, GateState, write

    quiet_health_check(hooks)
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    where = tmp_path / "gate.json"
    kept = GateRecord(GateState.TESTING, "quick", "gpu", 1.0, boot, {}, "quick begins")
    write(str(where), kept)
    (tmp_path / "suite.conf").write_text(f"# context deep\n* || check_file_test -! -e {tmp_path}/broken\n")
    suite = {"NHC_PROLOG_SUITE": str(tmp_path / "suite.conf"), "NHC_PROLOG_SUITE_TIME": "30s"}
    hooks.configure(f"n1 |context prolog| check_gate -c -f {where}", **suite)
    job = cluster.submit("true", "--nodelist=n1")
    until(lambda: cluster.state("n1") in ("drain", "drng"), what="n1 to be drained")
    assert cluster.reason("n1").startswith("NHC: [node] check_gate: ")
    until(lambda: requeued(cluster.job(job)), what="the job to be requeued")
    write(str(where), kept._replace(state=GateState.PASSED))
    cluster.run("scancel", job)
    cluster.update("n1", State="RESUME")
    until(lambda: in_service(cluster, "n1"), what="n1 to be in service")
    ended(cluster, cluster.submit("true", "--nodelist=n1"))
    (tmp_path / "broken").touch()
    again = cluster.submit("true", "--nodelist=n1")
    until(lambda: cluster.state("n1") in ("drain", "drng"), what="n1 to be drained by its suite")
    until(lambda: requeued(cluster.job(again)), what="the job to be requeued")


def test_a_gate_that_is_killed_before_its_drain_lets_no_job_in(cluster, hooks, tmp_path):
    """Its record is written first: the prolog reads it while the node still looks free to Slurm."""
    quiet_health_check(hooks)
    where, fatal = tmp_path / "gate.json", tmp_path / "bin" / "scontrol"
    fatal.parent.mkdir()
    real = shutil.which("scontrol", path=cluster.env["PATH"])
    fatal.write_text(f'#!/bin/sh\ncase "$*" in *update*) kill -9 $PPID; exit 1;; esac\nexec {real} "$@"\n')
    fatal.chmod(0o755)
    (tmp_path / "suite.conf").write_text("# context deep\n* || check_file_test -e /etc/passwd\n")
    (tmp_path / "gate.toml").write_text(
        f'scheduler = "slurm"\n[adapter]\nconf = "{cluster.conf}"\npath = "{fatal.parent}"\n'
        f'[groups.all]\nnodes = "n1"\nsuite = "{tmp_path}/suite.conf"\n'
    )
    env = {**os.environ, **cluster.env, "NHC_GATE_FILE": str(where), "NHC_STATE_DIR": str(tmp_path / "state"),
           "NHC_STORE": "", "PYTHONPATH": f"{ROOT}:{ROOT}/adapters"}  # fmt: skip
    argv = [sys.executable, "-m", "nhc", "gate", "run", "--apply", "-n", "n1", "-s", str(tmp_path / "gate.toml")]
    killed = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert json.loads(where.read_text())["state"] == "held"
    assert in_service(cluster, "n1")
    hooks.configure(f"n1 |context prolog| check_gate -c -f {where}")
    job = cluster.submit("true", "--nodelist=n1")
    until(lambda: cluster.state("n1") in ("drain", "drng"), what="n1 to be drained")
    until(lambda: requeued(cluster.job(job)), what="the job to be requeued")
    cluster.run("scancel", job)


def test_a_verdict_that_is_old_keeps_a_node_out_of_large_jobs_alone(cluster, hooks, tmp_path):
    from nhc.core.state.gate_record import GateRecord, GateState, write

    quiet_health_check(hooks)
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    where = tmp_path / "gate.json"
    write(str(where), GateRecord(GateState.PASSED, "quick", "gpu", 1.0, boot, {}, "passed long ago"))
    hooks.configure(f"n1 |context prolog| check_gate -c -f {where} -a 7d -m 1")
    ended(cluster, cluster.submit("true", "--nodelist=n1"))
    cluster.submit("true", "--nodes=2", "--nodelist=n1,n2")
    until(lambda: cluster.state("n1") in ("drain", "drng"), what="n1 to be drained")
    assert "asks for at most 7d" in cluster.reason("n1")
