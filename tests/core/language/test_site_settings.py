"""/etc/default/nhc: every door judges by the same variables, matchers and configuration.

Each command runs in a mount namespace of its own, whose /etc/default is the test's.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from nhc.core.language import site_settings
from tests.support.require import need
from tests.support.run import ROOT
from tests.support.startup import SUPERVISOR_BANNED, settle
from tests.support.waiting import until

NODE = os.uname().nodename
FILE = """\
# what this site sets on every node
CONFDIR={directory}/etc
SITE_FILE="{directory}/there"
API_TOKEN=hush-hush
MARK_OFFLINE=0
NHC_MCHECK_DELIM=( '%%' )
NHC_MCHECK_COMMAND=( '[ rack1 = %m ]' )
"""
CONFIG = """\
* || check_file_test -f $SITE_FILE
%rack1% || check_file_test -d /
%rack2% || check_file_test -f /none
* || [ -n "$SITE_FILE" ] && true
"""


class Node:
    """A machine with /etc/default/nhc."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.file = directory / "default" / "nhc"
        for name in ("default", "etc", "state"):
            (directory / name).mkdir()
        self.file.write_text(FILE.format(directory=directory))
        (directory / "etc" / "nhc.conf").write_text(CONFIG)
        (directory / "there").touch()
        self.env = {
            "PATH": os.environ["PATH"], "PYTHONPATH": f"{ROOT}:{ROOT / 'adapters'}", "HOME": str(directory),
            "NHC_STATE_DIR": str(directory / "state"), "NHC_LEDGER_DIR": str(directory / "ledger"),
            "NHC_FLEET_HISTORY": str(directory / "history.sqlite"), "NHC_MUTES": str(directory / "mutes.json"),
        }  # fmt: skip

    def words(self, *argv: object) -> list[str]:
        script = f'mount --bind {self.directory}/default /etc/default && exec "$@"'
        return ["unshare", "--mount", "sh", "-c", script, "sh", *map(str, argv)]

    def python(self, *argv: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.words(sys.executable, *argv), check=False, env=self.env, capture_output=True, text=True, timeout=60,
            stdin=subprocess.DEVNULL, cwd="/",
        )  # fmt: skip

    def nhc(self, *words: object) -> subprocess.CompletedProcess[str]:
        return self.python("-m", "nhc", *words)

    def hook(self, name: str, *words: object) -> subprocess.CompletedProcess[str]:
        return self.python("-c", f"import sys; from nhc.hooks.commands.{name} import main; sys.exit(main())", *words)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Node:
    need("root", os.geteuid() == 0, "to give a command an /etc/default of its own")
    need("unshare", shutil.which("unshare"))
    return Node(tmp_path_factory.mktemp("node"))


def results(done: subprocess.CompletedProcess[str]) -> list[tuple[str, str]]:
    return [(one["source"].rpartition("/")[2], one["verdict"]) for one in json.loads(done.stdout)["results"]]


JUDGED = [("nhc.conf:1", "OK"), ("nhc.conf:2", "OK"), ("nhc.conf:4", "OK")]


@pytest.mark.thorough
def test_check_local_in_every_format(node):
    done = node.nhc("check", "local", "--all", "--format", "json")
    assert (results(done), done.returncode, json.loads(done.stdout)["notes"]) == (JUDGED, 0, [])
    assert "hush-hush" not in done.stdout
    for form in ("nagios", "npd", "prometheus", "text"):
        assert node.nhc("check", "local", "--format", form).returncode == 0, form


@pytest.mark.thorough
def test_a_configuration_that_is_named_has_the_variables_too(node):
    other = node.directory / "other.conf"
    other.write_text(CONFIG)
    done = node.nhc("check", "local", "--all", "-c", other, "--format", "json")
    assert [verdict for _source, verdict in results(done)] == ["OK"] * 3


@pytest.mark.thorough
def test_config_match_check_and_show(node):
    assert [node.nhc("config", "match", NODE, f"%rack{rack}%").returncode for rack in (1, 2)] == [0, 1]
    checked = node.nhc("config", "check")
    assert (checked.returncode, checked.stderr) == (0, "")
    shown = json.loads(node.nhc("config", "show", "--format", "json").stdout)
    assert [check["line_number"] for check in shown["checks"]] == [1, 2, 4]
    variables = {one["name"]: (one["value"], one["file"]) for one in shown["variables"]}
    assert variables["SITE_FILE"] == (f"{node.directory}/there", "/etc/default/nhc")
    assert variables["API_TOKEN"][0] == "(not shown)"


@pytest.mark.thorough
def test_the_hooks(node):
    """They print only what is wrong, and so fail where a variable or a matcher is not what it is elsewhere."""
    for name, words in (("prolog", ()), ("epilog", ()), ("healthcheck", ("LOGFILE=-",))):
        done = node.hook(name, *words)
        assert (done.returncode, done.stdout + done.stderr) == (0, ""), name
    (node.directory / "there").unlink()
    assert node.hook("healthcheck", "LOGFILE=-").returncode == 1
    (node.directory / "there").touch()


@pytest.mark.slow
def test_a_fleets_worker_on_the_node(node):
    config = node.directory / "fleet.conf"
    config.write_text(CONFIG)
    inventory = node.directory / "hosts"
    inventory.write_text(f"{NODE} ansible_connection=local\n")
    report = node.directory / "report.json"
    done = node.nhc("fleet", "check", "-i", inventory, "-c", config, "--set", f"node-dir={node.directory / 'worker'}",
                    "--set", f"json={report}")  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    (one,) = json.loads(report.read_text())["reports"]
    assert [result["verdict"] for result in one["results"]] == ["OK"] * 3


@pytest.mark.thorough
def test_the_agent_and_what_changes_while_it_runs(node):
    settings = node.directory / "agent.toml"
    settings.write_text('[agent]\nlisten = []\nkernel-log = false\n[events]\npath = ""\n')
    agent = subprocess.Popen(
        node.words(sys.executable, "-m", "nhc", "serve", "agent", "-s", settings),
        env=node.env,
        stdin=subprocess.DEVNULL,
    )

    def checks():
        done = node.nhc("status", "agent", "--format", "json", "--socket", node.directory / "state" / "agent.sock")
        return {one["line"]: one["verdict"] for one in json.loads(done.stdout)["checks"]} if done.stdout else {}

    before = node.file.read_text()
    try:
        until(lambda: list(checks().values()) == ["OK"] * 3)
        node.file.write_text(before.replace("rack1 =", "rack2 ="))
        agent.send_signal(1)
        until(lambda: checks().get("check_file_test -f /none") == "CRIT")
    finally:
        node.file.write_text(before)
        agent.terminate()
        assert agent.wait(60) == 0


@pytest.mark.thorough
def test_a_recording_has_no_secret_of_the_file(node):
    done = node.nhc("record", node.directory / "recording")
    assert done.returncode == 0, done.stderr
    files = [path for path in (node.directory / "recording").rglob("*") if path.is_file()]
    kept = "".join(path.read_text(errors="replace") for path in files)
    assert "SITE_FILE" in kept
    assert "hush-hush" not in kept
    replayed = node.nhc("replay", node.directory / "recording", "--format", "json")
    assert [verdict for _source, verdict in results(replayed)][:2] == ["OK", "OK"]


@pytest.mark.thorough
def test_a_file_that_is_wrong_is_said_by_every_door(node):
    before = node.file.read_text()
    try:
        node.file.write_text("if\n")
        done = node.nhc("check", "local", "--format", "json")
        (note,) = [note for note in json.loads(done.stdout)["notes"] if "/etc/default/nhc" in note]
        assert "is left out" in note
        assert "is left out" in node.nhc("config", "match", "a", "a").stderr
        assert node.nhc("config", "check", node.directory / "etc" / "nhc.conf").returncode == 2
    finally:
        node.file.write_text(before)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("NHC_WATCH_ONLY=1\n[[ -d /no/such ]] && OTHER=1\n", ""),
        ("NHC_WATCH_ONLY=1\nOTHER =1\n", "/etc/default/nhc: line 2: OTHER: command not found"),
        (
            "NHC_WATCH_ONLY=1\nNHC_RMM=1\nNHC_MAX_DRAIND=3\n",
            "/etc/default/nhc: no such setting: NHC_MAX_DRAIND (did you",
        ),
        ("NHC_WATCH_ONLY=1\nexit 0\n", "/etc/default/nhc is left out: /etc/default/nhc: bash cannot read it: it ends"),
        (
            "NHC_WATCH_ONLY=1\nset -e\nfalse\n",
            "/etc/default/nhc is left out: /etc/default/nhc: bash cannot read it: it ends",
        ),
    ],
)
def test_a_command_that_fails_in_the_file_costs_no_variable(node, text, said):
    """A site that watches only must not drain because the last command of its settings had nothing to do."""
    before = node.file.read_text()
    config = node.directory / "sick.conf"
    config.write_text("* || check_file_test -e /no/such/file\n")
    try:
        node.file.write_text(text)
        done = node.hook("healthcheck", "-c", config, "-l", "-", "NHC_RM=none")
        assert done.returncode == ("left out" in said), done.stdout
        assert said in done.stdout + done.stderr or "no such setting" in said
        checked = node.nhc("config", "check", config)
        assert checked.returncode == (2 if said else 0)
        assert said in checked.stderr
    finally:
        node.file.write_text(before)


@pytest.mark.thorough
def test_a_file_of_literals_costs_no_module_that_reads_a_shell(node):
    """The path before every job: see tests/support/startup.py."""
    config = node.directory / "quick.conf"
    config.write_text("* || check_fs_mount /\n")
    settle(config)
    before = node.file.read_text()
    try:
        node.file.write_text('# a comment\nexport SITE_FILE="/a b"\nTIMEOUT=20\n')
        run = textwrap.dedent(f"""
            import sys
            from nhc.cli.main import main
            main(['check', 'local', '-c', {str(config)!r}])
            print(chr(10).join(sys.modules), file=sys.stderr)
        """)
        for banned in (set(), SUPERVISOR_BANNED):
            done = node.python("-S", "-c", run)
            assert "1 result " in done.stdout, done.stderr
            assert not banned & set(done.stderr.split())
    finally:
        node.file.write_text(before)


@pytest.mark.parametrize(
    "text",
    ["", "A=1\n", "export A=1\nB='x y'\nC=\"$\"\n", "A='x'y\n", "A=x # y\n", "A=$B\n", "A=`id`\n", "A='\n", "A=(1 2)\n",
     "A=1; B=2\n", "A=~/x\n", "A=\"\\\\\"\n", "  A=1\n\n#x\nB=\n", "A='it''s'\n", "a.b=1\n", "A=1\r\n", "echo hi\n"],
)  # fmt: skip
def test_literals_are_read_as_bash_reads_them(text, tmp_path):
    path = tmp_path / "nhc"
    path.write_text(text)
    found = site_settings._literals(text)
    if found is not None:
        assert found == site_settings._read_with_bash(str(path), {})


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("line", "target"),
    [("HOSTNAME=node7", "node7"), ('HOSTNAME="node7.${HOSTNAME%%.*}"', f"node7.{NODE.partition('.')[0]}")],
)
def test_every_door_obeys_the_name_that_the_site_gives_the_host(tmp_path, line, target):
    need("root", os.geteuid() == 0, "to give a command an /etc/default of its own")
    node = Node(tmp_path)
    node.file.write_text(f"CONFDIR={tmp_path}/etc\nMARK_OFFLINE=0\n{line}\n")
    (tmp_path / "etc" / "nhc.conf").write_text(
        f"{target} || check_file_test -f /nonexistent/for-node7\n* || [ $HOSTNAME = {target} ] && true\n"
    )
    done = node.nhc("check", "local", "--all", "--profile", "none", "--format", "json")
    assert (json.loads(done.stdout)["host"], results(done)) == (target, [("nhc.conf:1", "CRIT"), ("nhc.conf:2", "OK")])
    shown = json.loads(node.nhc("config", "show", "--profile", "none", "--format", "json").stdout)
    assert (shown["node"], [check["line_number"] for check in shown["checks"]]) == (target, [1, 2])
    assert node.nhc("config", "check").stderr == ""
    assert "2 results recorded, CRIT" in node.nhc("record", tmp_path / "recorded").stdout
    assert node.hook("healthcheck", "LOGFILE=-").returncode == 1
    assert "node7 is unhealthy: check_file_test" in node.hook("prolog").stderr
    asked = node.nhc("check", "local", "--all", "--profile", "none", "-n", "other", "--format", "json")
    assert json.loads(asked.stdout)["host"] == "other"


@pytest.mark.thorough
@pytest.mark.parametrize("hook", ["prolog", "healthcheck"])
def test_hooks_of_two_slurmd_judge_each_by_its_own_name(tmp_path, hook):
    """HOSTNAME in the settings is the host's, which none of the two is called."""
    need("root", os.geteuid() == 0, "to give a command an /etc/default of its own")
    node = Node(tmp_path)
    node.file.write_text(f"CONFDIR={tmp_path}/etc\nMARK_OFFLINE=0\nHOSTNAME={NODE}\n")
    (tmp_path / "etc" / "nhc.conf").write_text("n1 || check_file_test -f /nonexistent/n1\n* || true\n")
    words = ("LOGFILE=-",) if hook == "healthcheck" else ()
    for name, sick in (("n1", True), ("n2", False)):
        node.env["SLURMD_NODENAME"] = name
        done = node.hook(hook, *words)
        assert ("/nonexistent/n1" in done.stdout + done.stderr) is sick, name


@pytest.mark.thorough
def test_a_settings_file_that_bash_cannot_read_is_a_mistake_of_the_site_and_no_error_of_ours(tmp_path):
    need("root", os.geteuid() == 0, "to give a command an /etc/default of its own")
    node = Node(tmp_path)
    node.file.write_text(f"CONFDIR={tmp_path}/etc\nMARK_OFFLINE=0\nexit 0\n")
    for hook in ("prolog", "epilog"):
        done = node.hook(hook)
        assert done.returncode == 0
        assert "configuration cannot be used, nothing is checked: /etc/default/nhc" in done.stderr
        assert "internal error" not in done.stderr
