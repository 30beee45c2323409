"""The commands that documents show are run, and the configurations that they show are read by what reads them.

Every block of a document is a block of commands, a configuration, or neither; NEITHER says why. A command that is not
run here says why (NOT_RUN), and its words are judged by nhc's command table and options all the same. So are the calls
of nhc within sentences.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Callable, Iterator, NamedTuple

import pytest
import yaml

from nhc.agent import settings as agent_settings
from nhc.agent.npd_monitors import load_plugin_monitor
from nhc.agent.server_push import read_push_settings
from nhc.core.archive import build
from nhc.core.language import loader, site_scripts
from nhc.core.language.site_settings import read as read_settings
from nhc.core.settings import toml_text
from nhc.marks import plugins
from nhc.marks.policy import policy_file
from nhc.marks.policy.devices import DeviceSettings
from nhc.node.checks.hw_topology import parse_description
from nhc.remedy import remedy_file as remedy
from nhc.remedy.spares import settings as spares
from nhc_adapters.kubernetes.controller import settings as kubernetes_settings
from nhc_adapters.kubernetes.devices.settings import DeviceRuleSettings
from tests.support.documents import PAGES, ROOT, Block, blocks, of_nhc, spans, wrong_usage
from tests.support.slurmrest import FakeSlurmRest

BLOCKS = [block for page in PAGES for block in blocks(page)]
COMMANDS = [(block, command) for block in BLOCKS for command in block.commands()]

#: What is run, by how it begins (the longest beginning counts): the statuses that it may have, and what is added here.
JUDGES = {0, 1, 3}  # as this machine is


class Run(NamedTuple):
    statuses: frozenset[int] | set[int] = frozenset([0])
    more: str = ""
    times: int = 1


RUN = {
    "nhc check local": Run(JUDGES),
    "NHC_WATCH_ONLY=1 nhc check local": Run(JUDGES),
    "nhc check local --all --format nagios": Run({0, 1, 2, 3}),  # 2 is CRITICAL there
    "nhc config check": Run(),
    "nhc genconf": Run(),
    "nhc explain": Run(),
    "nhc mute": Run(),
    "nhc unmute": Run(),
    "nhc ack": Run(),
    "dmesg | nhc log classify": Run(),
    "nhc simulate deep": Run(),
    "nhc deep sweep --dry-run": Run(more="--topology ''"),
    "nhc log": Run(),
    "nhc store": Run(),
    "nhc token node": Run(),
    "nhc inject --list": Run(),
    "nhc list suites": Run(),
    "nhc profile": Run({0, 3}),  # 3: this machine is of no known type
    "nhc profile clustermax": Run({0, 1, 3}),  # 1: this machine does not meet all of it
    "nhc show profile": Run({0, 3}),
    "nhc list profiles": Run(),
    "nhc record": Run(JUDGES),
    "nhc replay": Run(JUDGES),
    "nhc replay --compare": Run(),
    "nhc fleet check -w": Run(
        JUDGES, "--set transport=local --set shards=1 --set pyz=$PYZ --set node-dir=$PLACE/node", times=2
    ),
    "nhc fleet diff": Run({0, 1}),
    "nhc sync slurm": Run({0, 1}, "--rest $REST --ledger $PLACE/ledger --patience 0s"),
    "echo 'NHC_WATCH_ONLY=1'": Run(),
}

#: What is not run, by how it begins, and why.
NOT_RUN = {
    "nhc serve": "runs until it is ended: tests/store/server, tests/console, tests/remedy, tests/jobs, tests/adapters",
    "nhc demo": "runs until it is ended: tests/lab/demo",
    "nhc top": "runs until it is ended: tests/console/top",
    "make ": "makes the environment that this runs in; `make -n` says that the target is there",
    ".venv/bin/python -m pytest": "runs this; its files and markers are looked up",
    "ansible-playbook": "needs machines: tests/ansible runs these playbooks; their files are looked up",
    "pip install": "tests/test_example_plugin.py installs it",
    "pip download": "needs a package index",
    "nhc explain check_pressure": "belongs to the example plug-in: tests/test_example_plugin.py",
    "nhc check local -c nhc.conf --format tsv": "belongs to the example plug-in: tests/test_example_plugin.py",
    "nhc sync --adapter outfiles": "belongs to the example plug-in: tests/test_example_plugin.py",
    "nhc fleet check -i": "needs a site's inventory: tests/fleet",
    "nhc fleet check --from": "needs a scheduler's nodes: tests/fleet/test_slurm.py",
    "nhc ack xid/": "needs that finding on this node: tests/node/commands/test_log.py",
    "nhc inject": "writes into this machine's kernel log: tests/node/commands/test_log.py",
    "apt install": "installs: tests/packaging does so in a root of its own",
    "dnf install": "installs: tests/packaging/test_rpm.py does so in a root of its own",
    "skopeo": "needs a registry",
    "ansible-galaxy": "installs: a build tries it, packaging/nhc_release/collection.py",
    "ssh-keygen -Y verify": "needs a release: tests/packaging/test_signing.py runs these words",
    "sha256sum": "needs a release: tests/packaging/test_signing.py",
    "nhc deep sweep -w": "needs a Slurm cluster: tests/adapters/test_slurm_sweep.py",
    "nhc deep sweep --job": "needs a Slurm cluster: tests/adapters/test_slurm_sweep.py",
    "nhc deep sweep --continuous": "runs for ever: tests/deep/test_continuous.py",
    "nhc deep sweep --window": "needs a Slurm cluster: tests/adapters/test_slurm_sweep.py",
    "nhc deep due": "needs a store: tests/adapters/test_slurm_sweep.py, tests/store/server/test_deep_results.py",
    "nhc status deep": "needs a store with a sweep: tests/adapters/test_slurm_sweep.py, tests/faults",
    "nhc show sweep": "needs a store with a sweep: tests/faults",
    "nhc deep history": "needs a store with a sweep: tests/adapters/test_slurm_sweep.py",
    "nhc kubernetes": "needs a cluster: tests/adapters/kubernetes",
    "nhc deep run": "loads the machine for minutes: tests/deep",
    "nhc deep restore": "may put something back on this machine: tests/deep",
    "nhc deep calibrate": "needs the reports of a fleet: tests/deep",
    "nhc job": "acts on jobs by its own settings and store: tests/jobs, tests/adapters, tests/cli",
    "nhc approve": "needs an episode that waits: tests/remedy",
    "nhc doctor": "needs what it looks at: tests/remedy, tests/adapters",
    "nhc drill": "plays for minutes, or on a real node: tests/lab, tests/adapters/test_slurm_drill.py",
    "nhc hold": "acts on nodes by its own settings and store: tests/remedy",
    "nhc list episodes": "needs a store with episodes: tests/remedy",
    "nhc show episode": "needs a store with an episode: tests/remedy",
    "nhc simulate remedy": "needs a store with a history: tests/remedy/commands/test_remedy.py",
    "nhc status": "needs what it shows: tests/remedy, tests/jobs, tests/adapters",
    "nhc sync kubernetes": "needs a cluster: tests/adapters/kubernetes",
    "nhc job watch": "needs the log of a job: tests/jobs/test_watch.py",
    "nhc gate": "takes nodes out of service: tests/remedy/gates, tests/adapters/test_slurm_gate.py",
    "nhc spares": "acts on nodes by its own settings and store: tests/remedy/spares, tests/adapters",
    "nhc train": "acts on nodes by its own settings and store: tests/remedy/trains, tests/adapters",
    "kubectl": "needs a cluster; nhc's part is judged",
    "for ": "a loop over nodes: tests/adapters/kubernetes/test_taken_off.py",
    "done": "its end",
    "helm": "needs a cluster: tests/adapters/kubernetes/test_manifests.py renders the chart",
    "podman": "builds an image",
    "export ": "the tutorial's terminals: tests/adapters/kubernetes/test_tutorial.py",
    "alias ": "the tutorial's terminals: tests/adapters/kubernetes/test_tutorial.py",
    "ln -sfn $TUTORIAL": "tests/adapters/test_slurm_tutorial.py runs it",
    "sinfo -h -n": "tests/adapters/test_slurm_tutorial.py runs it",
    "touch $TUTORIAL": "tests/adapters/test_slurm_tutorial.py runs it",
    "mkdir -p build/tutorial": "tests/adapters/kubernetes/test_tutorial.py runs it",
    "nhc replay tests/nodes": "tests/adapters/kubernetes/test_tutorial.py runs it",
    "mkdir deployed": "makes the directory for the file that is read below",
    "cat >": "its YAML is read",
    "journalctl": "reads this machine's journal",
}

#: Blocks that are no commands and no configuration, by their page and how they begin.
NEITHER = {
    ("docs/jobs.md", "your program (established)"): "what nhc job why prints",
    ("README.md", "OK       check_fs_mount_rw"): "what a run prints",
    ("docs/architecture.md", "facts (parse)"): "a drawing",
    ("docs/configuration.md", "TARGET || CHECK"): "the form of a line",
    ("docs/fleet.md", "CRIT 2 nodes"): "what a sweep prints",
    ("docs/kubernetes.md", "node        agent"): "a drawing",
    ("docs/migration.md", "n17 is unhealthy"): "what a hook logs",
    ("docs/store.md", "agents "): "a drawing",
    (
        "docs/deep-checks.md",
        "install -D -m 755 adapters/slurm",
    ): "for Slurm and a shell's settings: tests/adapters/test_slurm_sweep.py has it run by slurmctld",
    ("docs/slurm.md", "# qconf -mc"): "what Grid Engine prints",
    ("docs/store.md", "cp /var/lib/nhc-server/"): "for sqlite3 and PostgreSQL: tests/store/test_backup.py runs them",
    ("docs/store.md", "rm -f /var/lib/nhc-server/"): "for sqlite3 and PostgreSQL: tests/store/test_backup.py runs them",
    ("docs/store.md", "pg_restore"): "for sqlite3 and PostgreSQL: tests/store/test_backup.py runs them",
    ("docs/monitoring.md", "nagios ALL"): "for sudo",
    ("docs/monitoring.md", "command[check_nhc]"): "for NRPE; its call of nhc is the block before",
    ("docs/monitoring.md", "object CheckCommand"): "for Icinga",
    ("docs/monitoring.md", "MAILTO"): "for cron",
    ("docs/monitoring.md", "*/5"): "for cron",
}

SLURM_LINES = {
    line for line in (ROOT / "adapters/slurm/slurm.conf.example").read_text().splitlines() if line and line[0] != "#"
}


def nhc_conf(block: Block, place: Path) -> None:
    """`nhc config check` finds nothing wrong, what it includes being there."""
    text = block.text.replace("/etc/nhc", str(place))
    for path in re.findall(r"^include (\S+)$", text, re.MULTILINE):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path.replace("*", "x")).write_text("")
    config = place / "nhc.conf"
    config.write_text(text + "\n")
    found = loader.validate([str(config)])
    assert [str(problem) for problem in found.problems] == []
    plan = loader.load([str(config)], "gpu001")
    lines = re.findall(r"^[^#\n]*?\|[^|\n]*\| ", text, re.MULTILINE)
    assert len(plan.items) + len(plan.settings) == len(lines)


def policy(block: Block, place: Path) -> None:
    found = policy_file.parse(block.text, "policy.toml").policy
    assert found.ceiling == policy_file.parse('[bounds.fleet]\nout = "10%"\n').policy.ceiling
    assert len(found.bounds.named) == 2
    assert found.rates


def scripts(block: Block, place: Path) -> None:
    """A site's shell functions: bash reads them, and nhc finds the checks in them."""
    (place / "site.nhc").write_text(block.text)
    assert subprocess.run(["bash", "-n", place / "site.nhc"], check=False).returncode == 0
    assert "check_site_licence" in site_scripts.scan([str(place)]).functions


def sysconfig(block: Block, place: Path) -> None:
    (place / "nhc").write_text(block.text)
    said: list[str] = []
    found = read_settings(str(place / "nhc"), {}, said)
    assert said == []
    assert len(found) == len(block.text.splitlines())


def topology(block: Block, place: Path) -> None:
    found = parse_description(block.text)
    assert found.numa
    assert found.near


def detector(block: Block, place: Path) -> None:
    """node-problem-detector's custom plug-in, as nhc's agent reads such files; the options are nhc's."""
    (place / "nhc.json").write_text(block.text)
    (rule,) = load_plugin_monitor(str(place / "nhc.json")).rules
    assert wrong_usage(list(json.loads(block.text)["rules"][0]["args"])) == ""
    assert rule.path.endswith("/nhc")


def slurm_conf(block: Block, place: Path) -> None:
    """Lines of the example, which a test's slurmctld takes."""
    lines = [line.strip() for line in block.text.splitlines() if line.strip() and line[0] != "#"]
    assert lines
    assert set(lines) <= SLURM_LINES


def slurm_wrapper(block: Block, place: Path) -> None:
    """Installs a wrapper under the name that slurm.conf has."""
    *words, source, target = block.text.split()
    assert words == ["install", "-D", "-m", "755"]
    assert os.access(ROOT / source, os.X_OK)
    assert any(line.endswith(f"={target}") for line in SLURM_LINES)


def kustomization(block: Block, place: Path) -> None:
    assert overlays(block.text)


def suite_runner(block: Block, place: Path) -> None:
    verify = remedy.parse(block.text).verify
    assert verify.suite
    plugins.runner(verify.runner)(verify.runner_settings)


def repairers(block: Block, place: Path) -> None:
    """Tables of remedy.toml, and what they name takes its settings."""
    for one in remedy.parse(block.text).repairers:
        assert plugins.repairer(one.type)(one.settings)


def remedy_settings(block: Block, place: Path) -> None:
    """Part of remedy.toml."""
    assert remedy.parse(block.text) != remedy.parse("")


def sinks(block: Block, place: Path) -> None:
    """Tables of agent.toml, and the sinks that they name take their settings."""
    for name, settings in toml_text.parse(block.text)["sinks"].items():
        assert plugins.sink(name)(settings, "n1", print).standing() == []


#: Configurations, by their page and how they begin, and what reads them.
def server_sink(block: Block, place: Path) -> None:
    """A table of agent.toml that the sink takes."""
    read_push_settings(agent_settings.parse(block.text, "agent.toml").sinks["server"])


def agent_toml(block: Block, place: Path) -> None:
    """Part of agent.toml; the sinks that it names take their settings, and nothing in it is the default unsaid."""
    found = agent_settings.parse(block.text, "agent.toml")
    assert found != agent_settings.parse("", "agent.toml")
    for name in found.sinks:
        plugins.sink(name)


def kubernetes_toml(block: Block, place: Path) -> None:
    """Part of kubernetes.toml, as the controller reads it; each condition that it names takes a node out."""
    (place / "kubernetes.toml").write_text(block.text)
    found = kubernetes_settings.read(str(place / "kubernetes.toml"))
    assert found.apply == ("apply = true" in block.text)
    (faults,) = re.findall(r"^faults = \[(.*)\]$", block.text, re.MULTILINE)
    assert [fault.type for fault in found.faults] == re.findall(r'"(\w+)[="]', faults)


def kubernetes_preflight(block: Block, place: Path) -> None:
    """`[preflight]` of kubernetes.toml, which switches it on."""
    (place / "kubernetes.toml").write_text(block.text)
    assert kubernetes_settings.read(str(place / "kubernetes.toml")).preflight.on


def kubernetes_gang(block: Block, place: Path) -> None:
    """`[preflight.gang]` of kubernetes.toml: the collective of a gang."""
    (place / "kubernetes.toml").write_text(block.text)
    assert kubernetes_settings.read(str(place / "kubernetes.toml")).preflight.gang.command


def kubernetes_devices(block: Block, place: Path) -> None:
    """`[devices]` of kubernetes.toml, with its defaults but for the switch."""
    (place / "kubernetes.toml").write_text(block.text)
    found = kubernetes_settings.read(str(place / "kubernetes.toml")).devices
    assert found == DeviceRuleSettings(DeviceSettings("device"))


def spare_pools(block: Block, place: Path) -> None:
    """Pools of spares.toml: whoever keeps them takes their settings. None is reached."""
    config = place / "kubeconfig"
    config.write_text(json.dumps({
        "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": "https://127.0.0.1:9"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }))  # fmt: skip
    for pool in spares.FILE.parse(block.text).pools:
        plugins.spare_pool(pool.type)(pool.settings, {"NHC_KUBECONFIG": str(config)})


READ: dict[tuple[str, str], Callable[[Block, Path], None]] = {
    ("README.md", "# /etc/nhc/nhc.conf"): nhc_conf,
    ("docs/agent.md", '{"plugin": "custom"'): detector,
    ("docs/repairers.md", "[repairers."): repairers,
    ("docs/remedy.md", "[drill]"): remedy_settings,
    ("docs/remedy.md", "[reasons."): remedy_settings,
    ("docs/repairers.md", "[verify]"): suite_runner,
    ("docs/repairers.md", "[leader]"): remedy_settings,
    ("docs/checks.md", "# numa NODE"): topology,
    ("docs/agent.md", "[serve.nvhcd]"): agent_toml,
    ("docs/repairers.md", "# /etc/nhc/agent.toml"): sinks,
    ("docs/configuration.md", "# every node"): nhc_conf,
    ("docs/configuration.md", "NHC_MCHECK_DELIM"): sysconfig,
    ("docs/configuration.md", "function check_site_licence"): scripts,
    ("docs/kubernetes.md", "resources: [github.com"): kustomization,
    ("docs/kubernetes.md", "[bounds.fleet]"): policy,
    ("docs/kubernetes.md", "[devices]"): kubernetes_devices,
    ("docs/kubernetes.md", "[preflight]"): kubernetes_preflight,
    ("docs/kubernetes.md", "[preflight.gang]"): kubernetes_gang,
    ("docs/deep-checks.md", "# context deep"): nhc_conf,
    ("docs/deep-checks.md", "* |context prolog|"): nhc_conf,
    ("docs/deep-checks.md", "* |context agent, every 15m|"): nhc_conf,
    ("docs/migration.md", "HealthCheckProgram="): slurm_conf,
    ("docs/migration.md", "install -D -m 755"): slurm_wrapper,
    ("docs/migration-others.md", "# every node"): nhc_conf,
    ("docs/migration-others.md", "[agent]"): agent_toml,
    ("docs/migration-others.md", "[sinks.kubernetes]"): agent_toml,
    ("docs/migration-others.md", "apply = false"): kubernetes_toml,
    ("docs/migration-others.md", "apply = "): kubernetes_toml,
    ("docs/slurm.md", "# slurm.conf"): slurm_conf,
    ("docs/repairers.md", "[evidence]"): remedy_settings,
    ("docs/remedy.md", "[reasons.NodeSilent]"): remedy_settings,
    ("docs/slurm.md", "[sources]"): remedy_settings,
    ("docs/maintenance.md", "[pools."): spare_pools,
    ("docs/store.md", "[sinks.server]"): server_sink,
}


def overlays(text: str) -> list[str]:
    """The overlays of ours that a kustomization names, each there; the manifest is YAML of known keys."""
    found = yaml.safe_load(text)
    assert set(found) <= {"resources", "images", "configMapGenerator", "components", "patches"}
    named = [one.partition("adapters/")[2] for one in found["resources"]]
    assert all((ROOT / "adapters" / one / "kustomization.yaml").is_file() for one in named)
    for each in re.findall(r"or ([a-z, ]+)\n", text):
        assert all(
            (ROOT / "adapters/kubernetes/overlays" / one.strip()).is_dir()
            for one in each.split(",")
            if one.strip() != "a path"
        )
    return named


def entry(table: dict, block: Block) -> list:
    return [key for key in table if key[0] == block.page and block.first.startswith(key[1])]


def rule(command: str) -> str:
    """How the command begins, in the longest words that RUN or NOT_RUN has; "" for none."""
    return max((one for one in (*RUN, *NOT_RUN) if command.startswith(one)), key=len, default="")


def name(value: object) -> str:
    return f"{value.page}:{value.line}" if isinstance(value, Block) else str(value)[:60]


@pytest.mark.parametrize("block", BLOCKS, ids=name)
def test_every_block_is_commands_a_configuration_or_says_why_it_is_neither(block):
    kinds = [bool(block.commands()), bool(entry(READ, block)), bool(entry(NEITHER, block))]
    assert sum(kinds) == 1, f"{name(block)} begins with {block.first!r}"
    assert all(rule(command) for command in block.commands()), "name it in RUN or NOT_RUN"


def test_every_row_is_used():
    for table in (READ, NEITHER):
        assert {key for block in BLOCKS for key in entry(table, block)} == set(table)
    assert {rule(command) for _block, command in COMMANDS} == {*RUN, *NOT_RUN}


@pytest.mark.parametrize("block", [block for block in BLOCKS if entry(READ, block)], ids=name)
def test_a_configuration_is_read_by_what_reads_it(block, tmp_path):
    READ[entry(READ, block)[0]](block, tmp_path)


class Place(NamedTuple):
    """Where commands run: a directory in which /etc/nhc, /var/log and so on are this test's own."""

    base: Path
    env: dict[str, str]

    def here(self, command: str) -> str:
        """The command with this place's paths, its two nodes, and dates that lie ahead."""
        command = re.sub(r"(?<![\w.~])/(?=(?:etc|var)/)", f"{self.base}/", command)
        command = re.sub(r"gpu\[001-\d+\]", "gpu[001-002]", command)
        ahead = time.strftime("%Y-%m-%d", time.localtime(time.time() + 10 * 86400))
        command = re.sub(r"\b20\d\d-\d\d-\d\d\b", ahead, command)
        return re.sub(r"\bDIR\b", f"{self.base}/recorded", command)

    def bash(self, command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["bash", "-o", "pipefail", "-c", self.here(command)], cwd=self.base, env=self.env,
                              capture_output=True, text=True, timeout=120, check=False)  # fmt: skip


KERNEL_LOG = "Nov 21 02:28:15 n1 kernel: NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.\n"


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Iterator[Place]:
    base = tmp_path_factory.mktemp("documents")
    for each in ("bin", "etc/nhc", "etc/default", "var/log", "var/lib/nhc/reports"):
        (base / each).mkdir(parents=True)
    (base / "bin/nhc").write_text(f'#!/bin/sh\nexec {sys.executable} -m nhc "$@"\n')
    (base / "bin/dmesg").write_text(f"#!/bin/sh\nprintf '%s' '{KERNEL_LOG.partition('kernel: ')[2]}'\n")
    for program in (base / "bin").iterdir():
        program.chmod(0o755)
    for config in ("etc/nhc/nhc.conf", "nhc.conf", "my.conf.given"):
        (base / config).write_text("* || check_fs_mount /\n* || check_ps_zombies\n")
    (base / "etc/nhc/policy.toml").write_text('[bounds.fleet]\nout = "50%"\n')
    (base / "var/log/messages").write_text(KERNEL_LOG)
    build.build(str(base / "nhc.pyz"), interpreters=())
    rest = FakeSlurmRest(["n1", "n2"], 40)
    threading.Thread(target=rest.serve_forever, daemon=True).start()
    env = {
        "PATH": f"{base}/bin:{os.environ['PATH']}", "PYTHONPATH": f"{ROOT}:{ROOT}/adapters", "HOME": str(base),
        "PYTHONDONTWRITEBYTECODE": "1", "NHC_STATE_DIR": str(base / "state"), "NHC_MUTES": str(base / "mutes.json"),
        "XDG_STATE_HOME": str(base / "xdg"), "PLACE": str(base), "PYZ": str(base / "nhc.pyz"), "REST": rest.address,
        "SLURM_JWT": rest.token, "LANG": "C.UTF-8", "NHC_STORE": str(base / "store.db"),
    }  # fmt: skip
    found = Place(base, env)
    report = json.loads(found.bash("nhc check local -c nhc.conf --profile none --all --format json").stdout)
    for path in ("reports.json", "var/lib/nhc/reports/n1.json"):
        (base / path).write_text(json.dumps({**report, "host": "n1", "started": time.time()}))
    yield found
    rest.shutdown()
    rest.server_close()


def prepare(place: Place, command: str) -> None:
    """A document's commands stand for themselves, each in a place where what it reads is there."""
    for name in re.findall(r"\b(?:my|node)\.conf\b", command):
        (place.base / name).unlink(missing_ok=True)
        if "genconf" not in command:
            (place.base / name).write_text((place.base / "my.conf.given").read_text())


@pytest.mark.thorough
@pytest.mark.parametrize(("block", "command"), [each for each in COMMANDS if rule(each[1]) in RUN], ids=name)
def test_a_command_runs(place, block, command):
    how = RUN[rule(command)]
    prepare(place, command)
    line, _, _comment = command.partition("  #")
    for _ in range(how.times):
        done = place.bash(f"{line} {how.more}")
        assert done.returncode in how.statuses, done.stdout + done.stderr
        assert "Traceback" not in done.stdout + done.stderr
        assert "Usage:" not in done.stderr


@pytest.mark.parametrize(
    ("block", "words"), [(block, words) for block, command in COMMANDS for words in of_nhc(command)], ids=name
)
def test_a_command_of_a_block_is_one_of_ours_with_options_of_ours(block, words):
    assert wrong_usage(words) == ""


#: What sentences say of LBNL NHC's command, which is called nhc too.
LBNLS = re.compile(r"nhc (-[a-zA-Z]\b.*|VAR=value|-> .*)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_command_within_a_sentence_is_one_of_ours_with_options_of_ours(page):
    wrong = []
    for span in spans(page):
        if re.match(r"(\S*/)?nhc ", span) and not LBNLS.fullmatch(span):
            words = re.sub(r"[\[\]]|\.\.\.|…", "", span).split()[1:]
            said = wrong_usage(words[:-1] if takes_a_value(words) else words)
            wrong += [f"{span}: {said}"] if said else []
    assert wrong == []


def takes_a_value(words: list[str]) -> bool:
    """Whether the last word is an option named without its value: `nhc check local -c`."""
    return bool(words) and words[-1].startswith("-") and "requires an argument" in wrong_usage(words)


def targets() -> set[str]:
    return {
        word for block, command in COMMANDS if command.startswith("make ") for word in command.split("#")[0].split()[1:]
    }


@pytest.mark.thorough
@pytest.mark.parametrize("target", sorted(targets()))
def test_a_target_of_make_is_there(target):
    assert subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, check=False).returncode == 0


def test_files_that_commands_name_are_there():
    named = set()
    for _block, command in COMMANDS:
        named |= set(re.findall(r"(?<![\w./])((?:playbooks|inventories/example|tests|adapters)(?:/[\w.-]+)*)", command))
    assert {"playbooks/fleet-check.yml", "adapters/kubernetes/chart", "inventories/example"} <= named
    assert [each for each in sorted(named) if not (ROOT / each).exists()] == []


def test_markers_that_commands_name_are_there():
    markers = re.findall(r'^  "(\w+):', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    named = [found for _block, command in COMMANDS for found in re.findall(r'pytest -m "?(?:not )?(\w+)', command)]
    assert named
    assert set(named) <= set(markers)


def test_a_here_document_for_kustomize_is_read():
    (text,) = [command for _block, command in COMMANDS if command.startswith("cat >")]
    assert overlays(text.split("\n", 1)[1].rpartition("\n")[0]) == ["kubernetes/overlays/nvidia"]


def test_the_judgement_is_not_blind():
    said = wrong_usage(["check", "local", "--al"])
    assert said.startswith("No such option")
    assert "--al" in said  # its punctuation is click's
    assert "no command 'remdy'" in wrong_usage(["remdy"])
    assert wrong_usage(["check", "local", "--format", "yml"])
    assert wrong_usage(["check", "local", "a"])
    assert of_nhc("echo x | nhc list && kubectl exec -- nhc status agent; nhc-prolog") == [
        ["list"],
        ["status", "agent"],
    ]
    assert not Block("p", 1, "some output\nof a run").commands()
    with tempfile.TemporaryDirectory() as directory, pytest.raises(AssertionError):
        nhc_conf(Block("p", 1, "* || check_fs_mout /"), Path(directory))


UNQUOTED = re.compile(r"""(?<=[\s=])[\w./,-]*\w\[[\d,-]+\][\w,\[\]-]*""")
"""A node set that the shell sees bare. It takes it for a pattern of file names: zsh refuses, bash expands what fits."""


def bare_sets(command: str) -> list[str]:
    """The node sets of a command that no quotes are around."""
    outside = re.sub(r"""'[^']*'|"[^"]*\"""", "", command.split("\n", 1)[0])
    return UNQUOTED.findall(outside)


def test_a_bare_set_is_seen():
    assert bare_sets("nhc fleet check -w gpu[001-128]") == ["gpu[001-128]"]
    assert bare_sets("nhc deep sweep -w 'gpu[001-064]' --rails \"mlx5_[0-7]\"") == []


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_node_sets_in_commands_are_quoted(page):
    """In blocks, and in calls of nhc within sentences and tables."""
    shown = [command for block in blocks(page) for command in block.commands()]
    shown += re.findall(r"`((?:nhc|pdsh|clush|kubectl) [^`]+)`", page.read_text(encoding="utf-8"))
    assert [command for command in shown if bare_sets(command)] == []
