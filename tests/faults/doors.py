"""Every door of nhc: each executable and each command of the command table, and how it is knocked at here."""

import contextlib
import json
import threading
from pathlib import Path
from typing import Callable, NamedTuple

from nhc.cli.command_table import COMMANDS
from tests.faults.under import LAUNCHERS

KEPT = Path(__file__).resolve().parents[1] / "nodes" / "h100-xid79"
CONFIG = "* || check_file_test -e /etc/passwd\n* || [[ -d / ]]\n* || true\n"
SUITE = "* |context deep| check_file_test -e /etc/passwd\n"
LOG = "Nov 21 02:28:15 n1 kernel: NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.\n"


def put(file: Path, text: str) -> Path:
    """Write a file as a whole: cells that run side by side read it. Where it cannot be, the door complains."""
    new = file.with_name(f"{file.name}.{threading.get_ident()}")
    with contextlib.suppress(OSError):
        new.write_text(text)
        new.replace(file)
    return file


class Place:
    """The files of one cell: `config`, `log`, `report` are there; `state` and `out` are where a fault may lie."""

    def __init__(self, base: Path, state: Path, peer: str = "") -> None:
        self.base, self.state, self.peer = base, state, peer
        self.out = state
        self.config, self.log, self.report = base / "nhc.conf", base / "messages", base / "report.json"
        self.suite = base / "suite.conf"
        self.kubeconfig = base / f"kubeconfig-{peer.rpartition(':')[2]}"
        if not self.kubeconfig.exists():
            put(self.kubeconfig, json.dumps({
                "apiVersion": "v1", "kind": "Config", "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
                "clusters": [{"name": "k", "cluster": {"server": peer or "http://127.0.0.1:9"}}],
                "users": [{"name": "u", "user": {"token": "t"}}],
            }))  # fmt: skip


class Door(NamedTuple):
    """How it is called. `waits` says that it runs until it is told to end; `peer` that it talks to an HTTP server."""

    words: Callable[[Place], list]
    launcher: str = "nhc"
    waits: bool = False
    peer: bool = False


def a_checkout(base):
    """What `nhc new check` takes for a checkout; one that cannot be made is the door's to complain of."""
    for part in ("nhc/core", "nhc/node/checks", "tests/node/checks", "adapters/nhc_adapters", "tests/adapters"):
        with contextlib.suppress(OSError):
            (base / "checkout" / part).mkdir(parents=True, exist_ok=True)
    for file in ("pyproject.toml", "nhc/core/check.py"):
        with contextlib.suppress(OSError):
            (base / "checkout" / file).touch()
    return base / "checkout"


def _kube(*words):
    return lambda p: [*words, "--kubeconfig", p.kubeconfig]


def _notices(*words, peer=False):
    """A command of `nhc notices` with a store and a channel that a fault may be in."""

    def made(p):
        file = p.base / f"notices-{p.state.parent.name}-{p.state.name}-{p.peer.rpartition(':')[2]}.toml"
        url = p.peer if peer else "http://127.0.0.1:9"
        put(file, f'store = "sqlite:///{p.state}/notices.db"\n[channels.hook]\nkind = "alertmanager"\nurl = "{url}"\n')
        return [*words, "-s", file]

    return made


def _remedy(*words, peer=False):
    """A command of `nhc serve remedy` with settings whose store lies where a fault may lie."""

    def made(p):
        file = p.base / f"{p.state.parent.name}-{p.state.name}-{p.peer.rpartition(':')[2]}.toml"
        put(
            file,
            f'store = "sqlite:///{p.state}/store.db"\n[actions]\nmark = "on"\n[sources]\nadapter = "slurm-rest"\n'
            f'reports = ["{p.report}"]\nmax-age = "52w"\nsettle = "0s"\n'
            f'[sources.settings]\nNHC_SLURMREST = "{p.peer if peer else "http://127.0.0.1:9"}"\n'
            f'[evidence]\ndirectory = "{p.state}/evidence"\n',
        )
        return [*words, "-s", file]

    return made


def no_slurm(p):
    """The settings of a Slurm that is not there."""
    return put(p.base / "slurm.conf", "ClusterName=x\nSlurmctldHost=localhost(127.0.0.1)\nSlurmctldPort=9\n")


def _job(*words):
    """A command of `nhc job` with settings whose store lies where a fault may lie, and a Slurm that is not there."""

    def made(p):
        file = p.base / f"jobs-{p.state.parent.name}-{p.state.name}.toml"
        put(
            file,
            f'store = "sqlite:///{p.state}/store.db"\n[actions]\nrestart = "on"\n'
            f'[controllers.slurm]\nconf = "{no_slurm(p)}"\ntimeout = "2s"\n',
        )
        return [*words, "-s", file]

    return made


def _serve(p):
    """`nhc serve` with the loop, notices and the server, all over one store that a fault may lie in."""
    name = f"{p.state.parent.name}-{p.state.name}-{p.peer.rpartition(':')[2]}"
    server = put(p.base / f"server-{name}.toml", 'listen = "127.0.0.1:0"\n')
    store = put(p.base / f"store-{name}.toml", f'url = "sqlite:///{p.state}/store.db"\n')
    file = put(
        p.base / f"serve-{name}.toml",
        f'listen = ""\n[remedy]\nsettings = "{_remedy()(p)[-1]}"\n[notices]\nsettings = "{_notices()(p)[-1]}"\n'
        f'[server]\nsettings = "{server}"\nstore = "{store}"\n',
    )
    return ["serve", "-s", file]


def _gate(*words, scheduler="none", peer=False):
    """A command of `nhc gate` with settings, a suite and a record that a fault may lie in."""

    def made(p):
        file = p.base / f"gate-{p.state.parent.name}-{p.state.name}-{p.peer.rpartition(':')[2]}.toml"
        adapter = f'[adapter]\nkubeconfig = "{p.kubeconfig}"\n' if peer else ""
        put(file, f'scheduler = "{scheduler}"\n{adapter}[groups.all]\nnodes = "*"\nsuite = "{p.suite}"\n')
        return [*words, "-s", file]

    return made


def a_train(p):
    """The file of a train."""
    text = 'name = "another"\nwhy = "a drill"\nnodes = "n1"\n[[work]]\nrung = "reboot"\n'
    return put(p.base / "train.toml", text)


def _train(*words):
    """A command of `nhc train`, with the settings of `nhc serve remedy`."""

    def made(p):
        given = [word(p) if callable(word) else word for word in words]
        return [*given, *_remedy(peer=a_train in words)(p)[-2:]]

    return made


def _spares(*words):
    """A command of `nhc spares`, with the settings of `nhc serve remedy`, and a Slurm that is not there."""

    def made(p):
        file = p.base / "spares.toml"
        put(
            file,
            f'[pools.gpu]\ntype = "slurm"\nreservation = "spare"\nfor = "n*"\ntimeout = "2s"\nconf = "{no_slurm(p)}"\n',
        )
        return [*words, "--pools", file, *_remedy()(p)[-2:]]

    return made


DOORS = {
    "nhc-healthcheck": Door(lambda p: ["-l", "-", "-a", "-c", p.config, "NHC_RM=none"], "nhc-healthcheck"),
    "nhc-prolog": Door(lambda p: ["-c", p.config, "NHC_RM=none"], "nhc-prolog"),
    "nhc-epilog": Door(lambda p: ["-c", p.config, "NHC_RM=none"], "nhc-epilog"),
    "nhc": Door(lambda p: ["--version"]),
    "check local": Door(lambda p: ["check", "local", "-c", p.config, "--profile", "none", "--all"]),
    "list checks": Door(lambda p: ["list"]),
    "explain": Door(lambda p: ["explain", "check_fs_mount"]),
    "log catalogue": Door(lambda p: ["log", "catalogue", "79"]),
    "genconf": Door(lambda p: ["genconf", "-c", "-"]),
    "config check": Door(lambda p: ["config", "check", p.config]),
    "config show": Door(lambda p: ["config", "show", p.config]),
    "config match": Door(lambda p: ["config", "match", "n1", "{n[1-3]}"]),
    "profile": Door(lambda p: ["profile"]),
    "list profiles": Door(lambda p: ["list", "profiles"]),
    "show profile": Door(lambda p: ["show", "profile", "dgx-h100"]),
    "deep run": Door(lambda p: ["deep", "run", p.suite, "--adapter", "none", "--force"]),
    "list suites": Door(lambda p: ["list", "suites", p.suite]),
    "deep calibrate": Door(lambda p: ["deep", "calibrate", p.report]),
    "deep restore": Door(lambda p: ["deep", "restore"]),
    "deep sweep": Door(lambda p: ["deep", "sweep", "--dry-run", "-w", "n[1-4]"]),
    "status overview": Door(lambda p: ["status"]),
    "status deep": Door(lambda p: ["status", "deep", "--store", p.base / "store.db"]),
    "show sweep": Door(lambda p: ["show", "sweep", "1", "--store", p.base / "store.db"]),
    "deep history": Door(lambda p: ["deep", "history", "n1", "--store", p.base / "store.db"]),
    "abort sweep": Door(lambda p: ["abort", "sweep", "1", "--store", p.base / "store.db"]),
    "deep due": Door(lambda p: ["deep", "due", "-w", "n[1-2]", "--store", p.base / "store.db"]),
    "simulate deep": Door(lambda p: ["simulate", "deep", "--size", "64", "--bad", "2"]),
    "gate run": Door(_gate("gate", "run", "--apply")),
    "gate boot": Door(_gate("gate", "boot", "--apply")),
    "gate adopt": Door(_gate("gate", "adopt", "--why", "a drill", "--apply")),
    "status gate": Door(_gate("status", "gate")),
    "gate open": Door(_gate("gate", "open", "n1", "--why", "a drill", "--apply", scheduler="kubernetes", peer=True),
                      peer=True),
    "gate close": Door(_gate("gate", "close", "n1", "--why", "a drill", "--apply", scheduler="kubernetes", peer=True),
                       peer=True),
    "sync gate": Door(_gate("sync", "gate", "--apply", scheduler="kubernetes", peer=True), peer=True),
    "doctor gate": Door(_gate("doctor", "gate")),
    "log classify": Door(lambda p: ["log", "classify", p.log]),
    "inject": Door(lambda p: ["inject", "--list"]),
    "ack log": Door(lambda p: ["ack"]),
    "mute": Door(lambda p: ["mute", "check_fs_mount", "--until", "3d", "--why", "a drill"]),
    "unmute": Door(lambda p: ["unmute", "check_fs_mount"]),
    "serve agent": Door(lambda p: ["serve", "agent", "-s", p.base / "own.toml"], waits=True),
    "status agent": Door(lambda p: ["status", "agent", "--socket", p.base / "agent.sock"]),
    "hold agent": Door(lambda p: ["hold", "agent", "1h", "--socket", p.base / "agent.sock"]),
    "release agent": Door(lambda p: ["release", "agent", "--socket", p.base / "agent.sock"]),
    "agent check": Door(lambda p: ["agent", "check", "--socket", p.base / "agent.sock"]),
    "ack agent": Door(lambda p: ["ack", "agent", "x", "--socket", p.base / "agent.sock"]),
    "agent reload": Door(lambda p: ["agent", "reload", "--socket", p.base / "agent.sock"]),
    "fleet check": Door(lambda p: ["fleet", "check", "-w", "n[1-2]", "--set", "transport=local",
                                   "--set", "shards=1", "--set", f"pyz={p.base}/nhc.pyz",
                                   "--set", f"node-dir={p.out}/node", "-c", p.config,
                                   "--set", f"history={p.out}/history"]),
    "fleet diff": Door(lambda p: ["fleet", "diff", "--history", p.base / "history"]),
    "fleet report": Door(lambda p: ["fleet", "report", "--history", p.base / "history"]),
    "sync adapter": Door(lambda p: ["sync", "--adapter", "slurm-rest", "--set", f"NHC_SLURMREST={p.peer}", "-r",
                                     p.report,
                            "--ledger", p.out / "ledger", "--patience", "0s", "--apply"], peer=True),
    "sync slurm": Door(lambda p: ["sync", "slurm", "-r", p.report, "--rest", p.peer, "--ledger", p.out / "ledger",
                                  "--patience", "0s", "--apply"], peer=True),
    "sync kubernetes": Door(_kube("sync", "kubernetes"), peer=True),
    "serve kubernetes": Door(_kube("serve", "kubernetes"), waits=True, peer=True),
    "serve preflight": Door(
        _kube("serve", "preflight", "--set", "preflight.image=nhc", "--listen", "127.0.0.1:0"), waits=True, peer=True
    ),
    "kubernetes preflight": Door(
        lambda p: ["kubernetes", "preflight", "-n", "n1", "--message", p.out / "termination-message"]
    ),
    "status kubernetes": Door(_kube("status", "kubernetes"), peer=True),
    "doctor kubernetes": Door(_kube("doctor", "kubernetes"), peer=True),
    "kubernetes drain": Door(lambda p: [*_kube("kubernetes", "drain")(p), "n1"], peer=True),
    "kubernetes uncordon": Door(lambda p: [*_kube("kubernetes", "uncordon")(p), "n1"], peer=True),
    "kubernetes release-device": Door(lambda p: [*_kube("kubernetes", "release-device")(p), "n1", "gpu-3"], peer=True),
    "kubernetes publish": Door(lambda p: [*_kube("kubernetes", "publish")(p), "-r", p.report], peer=True),
    "kubernetes state": Door(lambda p: [*_kube("kubernetes", "state")(p), "healthy", "n1"], peer=True),
    "ack kubernetes": Door(lambda p: [*_kube("ack", "kubernetes")(p), "n1"], peer=True),
    "serve notices": Door(_notices("serve", "notices", "--once")),
    "notices test": Door(_notices("notices", "test", "hook", peer=True), peer=True),
    "status notices": Door(_notices("status", "notices")),
    "serve console": Door(lambda p: ["serve", "console", "--check-settings"]),
    "top": Door(lambda p: ["top", "--once", "-r", p.report]),
    "token person": Door(lambda p: ["token", "person", "anna"]),
    "store migrate": Door(lambda p: ["store", "migrate", "--store", p.out / "store.db"]),
    "doctor store": Door(lambda p: ["doctor", "store", "--store", p.base / "store.db"]),
    "store verify": Door(lambda p: ["store", "verify", "--store", p.base / "store.db"]),
    "store import": Door(lambda p: ["store", "import", p.report, "--store", p.out / "store.db"]),
    "store prune": Door(lambda p: ["store", "prune", "--apply", "--store", p.base / "store.db"]),
    "status fleet": Door(lambda p: ["status", "fleet", "--store", p.base / "store.db"]),
    "status store": Door(lambda p: ["status", "store", "--store", p.base / "store.db"]),
    "serve all": Door(_serve, waits=True),
    "serve server": Door(
        lambda p: ["serve", "server", "--listen", "127.0.0.1:0", "--store", p.out / "store.db"], waits=True
    ),
    "token node": Door(lambda p: ["token", "node", "n1", "--store", p.out / "store.db"]),
    "token revoke": Door(lambda p: ["token", "revoke", "n1", "--store", p.base / "store.db"]),
    "list tokens": Door(lambda p: ["list", "tokens", "--store", p.base / "store.db"]),
    "serve job": Door(_job("serve", "job", "--once")),
    "status job": Door(_job("status", "job")),
    "job watch": Door(lambda p: ["job", "watch", p.base / "train.log"]),
    "job why": Door(lambda p: ["job", "why", p.base / "train.log"]),
    "job nodes": Door(lambda p: ["job", "nodes", "--count", "1", "--store", f"sqlite:///{p.state}/store.db"]),
    "job submit": Door(lambda p: ["job", "submit", "--file", p.base / "no.yaml"]),
    "job step": Door(lambda p: ["job", "step", "--", "true"]),
    "job forget": Door(_job("job", "forget", "17")),
    "serve remedy": Door(_remedy("serve", "remedy", "--once", peer=True), peer=True),
    "status remedy": Door(_remedy("status", "remedy")),
    "list episodes": Door(_remedy("list", "episodes")),
    "show episode": Door(_remedy("show", "episode", "1")),
    "approve episode": Door(_remedy("approve", "episode", "1")),
    "hold remedy": Door(_remedy("hold", "remedy", "n1", "--why", "a drill")),
    "release remedy": Door(_remedy("release", "remedy", "n1")),
    "abort episode": Door(_remedy("abort", "episode", "1", "--why", "a drill")),
    "simulate remedy": Door(lambda p: [*_remedy("simulate", "remedy", "-r", p.report)(p), "--policy",
                                       _remedy()(p)[-1]]),
    "drill": Door(_remedy("drill", "fault", "--node", "n1")),
    "doctor remedy": Door(_remedy("doctor", "remedy", peer=True), peer=True),
    "status spares": Door(_spares("status", "spares")),
    "spares verify": Door(_spares("spares", "verify")),
    "spares swap": Door(_spares("spares", "swap", "--apply")),
    "train plan": Door(_train("train", "plan", a_train), peer=True),
    "train run": Door(_train("train", "run", a_train, "--apply", "--once"), peer=True),
    "status train": Door(_train("status", "train")),
    "approve train": Door(_train("approve", "train", "drill")),
    "hold train": Door(_train("hold", "train", "drill", "--why", "a drill")),
    "release train": Door(_train("release", "train", "drill", "--why", "a drill")),
    "abort train": Door(_train("abort", "train", "drill", "--why", "a drill")),
    "demo": Door(lambda p: ["demo", "--listen", "nowhere"]),
    "record": Door(lambda p: ["record", p.out / "recorded", "-c", p.config, "--profile", "none"]),
    "replay": Door(lambda p: ["replay", p.base / "kept"]),
    "new check": Door(lambda p: ["new", "check", "check_drill_of_faults", "--checkout", a_checkout(p.out)]),
    **{f"new {kind}": Door(lambda p, kind=kind: ["new", kind, f"drill_{kind}", "--checkout", a_checkout(p.out)])
       for kind in ("adapter", "repairer", "sink")},
    "completion": Door(lambda p: ["completion", "bash"]),
}  # fmt: skip


def commands(table=COMMANDS, before=()):
    """The names of all commands in the command table."""
    for name, (_first, second, *_example) in table.items():
        if isinstance(second, dict):
            yield from commands(second, (*before, name))
        else:
            yield " ".join((*before, name))


def every_door():
    """What has to have a row: every command, and every executable that is installed."""
    return {*commands(), *(path.name for path in Path(LAUNCHERS).iterdir() if path.is_file())}
