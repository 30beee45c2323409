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
    for part in ("nhc/node/checks", "tests/node/checks", "adapters/nhc_adapters", "tests/adapters"):
        with contextlib.suppress(OSError):
            (base / "checkout" / part).mkdir(parents=True, exist_ok=True)
    for file in ("pyproject.toml", "nhc/core/check.py"):
        with contextlib.suppress(OSError):
            (base / "checkout" / file).touch()
    return base / "checkout"


def _kube(*words):
    return lambda p: ["kubernetes", *words, "--kubeconfig", p.kubeconfig]


def _notices(*words, peer=False):
    """A command of `nhc notices` with a store and a channel that a fault may be in."""

    def made(p):
        file = p.base / f"notices-{p.state.parent.name}-{p.state.name}-{p.peer.rpartition(':')[2]}.toml"
        url = p.peer if peer else "http://127.0.0.1:9"
        put(file, f'store = "sqlite:///{p.state}/notices.db"\n[channels.hook]\nkind = "alertmanager"\nurl = "{url}"\n')
        return ["notices", *words, "-s", file]

    return made


def _remedy(*words, peer=False):
    """A command of `nhc remedy` with settings whose store lies where a fault may lie."""

    def made(p):
        file = p.base / f"{p.state.parent.name}-{p.state.name}-{p.peer.rpartition(':')[2]}.toml"
        put(
            file,
            f'store = "sqlite:///{p.state}/store.db"\n[actions]\nmark = "on"\n[sources]\nadapter = "slurm-rest"\n'
            f'reports = ["{p.report}"]\nmax-age = "52w"\nsettle = "0s"\n'
            f'[sources.settings]\nNHC_SLURMREST = "{p.peer if peer else "http://127.0.0.1:9"}"\n'
            f'[evidence]\ndirectory = "{p.state}/evidence"\n',
        )
        return ["remedy", *words, "-s", file]

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
        return ["job", *words, "-s", file]

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
        return ["gate", *words, "-s", file]

    return made


def a_train(p):
    """The file of a train."""
    text = 'name = "another"\nwhy = "a drill"\nnodes = "n1"\n[[work]]\nrung = "reboot"\n'
    return put(p.base / "train.toml", text)


def _train(*words):
    """A command of `nhc train`, with the settings of `nhc remedy`."""

    def made(p):
        given = [word(p) if callable(word) else word for word in words]
        return ["train", *given, *_remedy(peer=a_train in words)(p)[-2:]]

    return made


def _spares(*words):
    """A command of `nhc spares`, with the settings of `nhc remedy`, and a Slurm that is not there."""

    def made(p):
        file = p.base / "spares.toml"
        put(
            file,
            f'[pools.gpu]\ntype = "slurm"\nreservation = "spare"\nfor = "n*"\ntimeout = "2s"\nconf = "{no_slurm(p)}"\n',
        )
        return ["spares", *words, "--pools", file, *_remedy()(p)[-2:]]

    return made


DOORS = {
    "nhc-healthcheck": Door(lambda p: ["-l", "-", "-a", "-c", p.config, "NHC_RM=none"], "nhc-healthcheck"),
    "nhc-prolog": Door(lambda p: ["-c", p.config, "NHC_RM=none"], "nhc-prolog"),
    "nhc-epilog": Door(lambda p: ["-c", p.config, "NHC_RM=none"], "nhc-epilog"),
    "nhc": Door(lambda p: ["--version"]),
    "check local": Door(lambda p: ["check", "local", "-c", p.config, "--profile", "none", "--all"]),
    "list": Door(lambda p: ["list"]),
    "explain": Door(lambda p: ["explain", "check_fs_mount"]),
    "log catalogue": Door(lambda p: ["log", "catalogue", "79"]),
    "genconf": Door(lambda p: ["genconf", "-c", "-"]),
    "config check": Door(lambda p: ["config", "check", p.config]),
    "config show": Door(lambda p: ["config", "show", p.config]),
    "config match": Door(lambda p: ["config", "match", "n1", "{n[1-3]}"]),
    "profile detect": Door(lambda p: ["profile", "detect"]),
    "profile list": Door(lambda p: ["profile", "list"]),
    "profile show": Door(lambda p: ["profile", "show", "dgx-h100"]),
    "deep run": Door(lambda p: ["deep", "run", p.suite, "--adapter", "none", "--force"]),
    "deep list": Door(lambda p: ["deep", "list", p.suite]),
    "deep calibrate": Door(lambda p: ["deep", "calibrate", p.report]),
    "deep restore": Door(lambda p: ["deep", "restore"]),
    "deep sweep": Door(lambda p: ["deep", "sweep", "--dry-run", "-n", "n[1-4]"]),
    "deep status": Door(lambda p: ["deep", "status", "--store", p.base / "store.db"]),
    "deep show": Door(lambda p: ["deep", "show", "1", "--store", p.base / "store.db"]),
    "deep history": Door(lambda p: ["deep", "history", "n1", "--store", p.base / "store.db"]),
    "deep stop": Door(lambda p: ["deep", "stop", "1", "--store", p.base / "store.db"]),
    "deep due": Door(lambda p: ["deep", "due", "-n", "n[1-2]", "--store", p.base / "store.db"]),
    "deep simulate": Door(lambda p: ["deep", "simulate", "--nodes", "64", "--bad", "2"]),
    "gate run": Door(_gate("run", "--apply")),
    "gate boot": Door(_gate("boot", "--apply")),
    "gate adopt": Door(_gate("adopt", "--why", "a drill", "--apply")),
    "gate status": Door(_gate("status")),
    "gate open": Door(_gate("open", "n1", "--why", "a drill", "--apply", scheduler="kubernetes", peer=True), peer=True),
    "gate close": Door(_gate("close", "n1", "--why", "a drill", "--apply", scheduler="kubernetes", peer=True),
                       peer=True),
    "gate sync": Door(_gate("sync", "--apply", scheduler="kubernetes", peer=True), peer=True),
    "gate doctor": Door(_gate("doctor")),
    "log classify": Door(lambda p: ["log", "classify", p.log]),
    "inject": Door(lambda p: ["inject", "--list"]),
    "ack": Door(lambda p: ["ack"]),
    "mute": Door(lambda p: ["mute", "check_fs_mount", "--until", "3d", "--why", "a drill"]),
    "unmute": Door(lambda p: ["unmute", "check_fs_mount"]),
    "agent run": Door(lambda p: ["agent", "run", "-s", p.base / "own.toml"], waits=True),
    "agent status": Door(lambda p: ["agent", "status", "--socket", p.base / "agent.sock"]),
    "agent pause": Door(lambda p: ["agent", "pause", "1h", "--socket", p.base / "agent.sock"]),
    "agent resume": Door(lambda p: ["agent", "resume", "--socket", p.base / "agent.sock"]),
    "agent check": Door(lambda p: ["agent", "check", "--socket", p.base / "agent.sock"]),
    "agent ack": Door(lambda p: ["agent", "ack", "x", "--socket", p.base / "agent.sock"]),
    "agent reload": Door(lambda p: ["agent", "reload", "--socket", p.base / "agent.sock"]),
    "fleet check": Door(lambda p: ["fleet", "check", "-w", "n[1-2]", "--transport", "local", "--shards", "1",
                                   "--pyz", p.base / "nhc.pyz", "--node-dir", p.out / "node", "-c", p.config,
                                   "--history", p.out / "history"]),
    "fleet diff": Door(lambda p: ["fleet", "diff", "--history", p.base / "history"]),
    "fleet report": Door(lambda p: ["fleet", "report", "--history", p.base / "history"]),
    "sync": Door(lambda p: ["sync", "--adapter", "slurm-rest", "--set", f"NHC_SLURMREST={p.peer}", "-r", p.report,
                            "--ledger", p.out / "ledger", "--patience", "0s", "--apply"], peer=True),
    "slurm sync": Door(lambda p: ["slurm", "sync", "-r", p.report, "--rest", p.peer, "--ledger", p.out / "ledger",
                                  "--patience", "0s", "--apply"], peer=True),
    "kubernetes sync": Door(_kube("sync"), peer=True),
    "kubernetes controller": Door(_kube("controller"), waits=True, peer=True),
    "kubernetes status": Door(_kube("status"), peer=True),
    "kubernetes doctor": Door(_kube("doctor"), peer=True),
    "kubernetes drain": Door(lambda p: [*_kube("drain")(p), "n1"], peer=True),
    "kubernetes uncordon": Door(lambda p: [*_kube("uncordon")(p), "n1"], peer=True),
    "kubernetes release-device": Door(lambda p: [*_kube("release-device")(p), "n1", "gpu-3"], peer=True),
    "kubernetes publish": Door(lambda p: [*_kube("publish")(p), "-r", p.report], peer=True),
    "kubernetes state": Door(lambda p: [*_kube("state")(p), "healthy", "n1"], peer=True),
    "kubernetes ack": Door(lambda p: [*_kube("ack")(p), "n1"], peer=True),
    "notices run": Door(_notices("run", "--once")),
    "notices test": Door(_notices("test", "hook", peer=True), peer=True),
    "notices status": Door(_notices("status")),
    "console run": Door(lambda p: ["console", "run", "--check-settings"]),
    "top": Door(lambda p: ["top", "--once", "-r", p.report]),
    "console token": Door(lambda p: ["console", "token", "anna"]),
    "store migrate": Door(lambda p: ["store", "migrate", "--store", p.out / "store.db"]),
    "store check": Door(lambda p: ["store", "check", "--store", p.base / "store.db"]),
    "store verify": Door(lambda p: ["store", "verify", "--store", p.base / "store.db"]),
    "store import": Door(lambda p: ["store", "import", p.report, "--store", p.out / "store.db"]),
    "store prune": Door(lambda p: ["store", "prune", "--apply", "--store", p.base / "store.db"]),
    "store status": Door(lambda p: ["store", "status", "--store", p.base / "store.db"]),
    "serve": Door(_serve, waits=True),
    "server run": Door(
        lambda p: ["server", "run", "--listen", "127.0.0.1:0", "--store", p.out / "store.db"], waits=True
    ),
    "server token": Door(lambda p: ["server", "token", "n1", "--store", p.out / "store.db"]),
    "server revoke": Door(lambda p: ["server", "revoke", "n1", "--store", p.base / "store.db"]),
    "server tokens": Door(lambda p: ["server", "tokens", "--store", p.base / "store.db"]),
    "job run": Door(_job("run", "--once")),
    "job status": Door(_job("status")),
    "job watch": Door(lambda p: ["job", "watch", p.base / "train.log"]),
    "job why": Door(lambda p: ["job", "why", p.base / "train.log"]),
    "job nodes": Door(lambda p: ["job", "nodes", "-n", "1", "--store", f"sqlite:///{p.state}/store.db"]),
    "job submit": Door(lambda p: ["job", "submit", "-f", p.base / "no.yaml"]),
    "job step": Door(lambda p: ["job", "step", "--", "true"]),
    "job forget": Door(_job("forget", "17")),
    "remedy run": Door(_remedy("run", "--once", peer=True), peer=True),
    "remedy status": Door(_remedy("status")),
    "remedy episodes": Door(_remedy("episodes")),
    "remedy show": Door(_remedy("show", "1")),
    "remedy approve": Door(_remedy("approve", "1")),
    "remedy hold": Door(_remedy("hold", "n1", "--why", "a drill")),
    "remedy release": Door(_remedy("release", "n1")),
    "remedy abort": Door(_remedy("abort", "1", "--why", "a drill")),
    "remedy simulate": Door(lambda p: [*_remedy("simulate", "-r", p.report)(p), "--policy", _remedy()(p)[-1]]),
    "remedy drill": Door(_remedy("drill", "fault", "--node", "n1")),
    "remedy doctor": Door(_remedy("doctor", peer=True), peer=True),
    "spares status": Door(_spares("status")),
    "spares verify": Door(_spares("verify")),
    "spares swap": Door(_spares("swap", "--apply")),
    "train plan": Door(_train("plan", a_train), peer=True),
    "train run": Door(_train("run", a_train, "--apply", "--once"), peer=True),
    "train status": Door(_train("status")),
    "train approve": Door(_train("approve", "drill")),
    "train hold": Door(_train("hold", "drill", "--why", "a drill")),
    "train resume": Door(_train("resume", "drill", "--why", "a drill")),
    "train abort": Door(_train("abort", "drill", "--why", "a drill")),
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
    for name, (_first, second) in table.items():
        if isinstance(second, dict):
            yield from commands(second, (*before, name))
        else:
            yield " ".join((*before, name))


def every_door():
    """What has to have a row: every command, and every executable that is installed."""
    return {*commands(), *(path.name for path in Path(LAUNCHERS).iterdir() if path.is_file())}
