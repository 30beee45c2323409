"""`nhc serve remedy` over a real Slurm: as a process, with the reports that it reads and what its store then has."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Iterator, List, Optional, Tuple

from nhc.core.model import Action, CheckResult, Outcome, Report, Verdict
from nhc.core.render.json import to_dict
from nhc.remedy import detail as details
from nhc.store import attempts, audit, episodes, evidence
from nhc.store.connect import open_store
from tests.support.new_store import new_store
from tests.support.slurm import Cluster

ROOT = Path(__file__).resolve().parents[2]
CODE = "import sys; from nhc.cli.main import main; sys.exit(main(sys.argv[1:]))"
SETTINGS = """
every = "1s"
[actions]
mark = "on"
reboot = "on"
{actions}
[sources]
adapter = "slurm"
settle = "0s"
reports = ["{reports}"]
[bounds.fleet]
out = "2"
repairing = "2"
[breaker]
blind = "100"
[verify]
healthy-for = "{healthy_for}"
grace = "0s"
{verify}
[evidence]
directory = "{place}/evidence"
[repairers.slurm]
boot-time = "60"
{slurm}
"""


class Service:
    """The loop as a user starts it. `actions`, `verify`, `slurm` and `more` are further lines of remedy.toml."""

    def __init__(self, place: Path, cluster: Cluster, node: str = "n1", *, actions: str = "", verify: str = "",
                 slurm: str = "", more: str = "", healthy_for: str = "2s") -> None:  # fmt: skip
        self.place, self.cluster, self.node = place, cluster, node
        self.child: Optional[subprocess.Popen[bytes]] = None
        self.evidence: List[str] = []
        new_store(str(place)).close()
        self.reports = place / "reports"
        self.reports.mkdir()
        text = SETTINGS.format(reports=self.reports, place=place, actions=actions, verify=verify, slurm=slurm,
                               healthy_for=healthy_for)  # fmt: skip
        (place / "remedy.toml").write_text(f'store = "sqlite:///{place}/store.db"\n{text}{more}')

    def report(self, boot: str, sick: bool, node: str = "", action: Action = Action.REBOOT) -> None:
        bad = Outcome(Verdict.CRIT, "Xid95", "gpu3: Xid 95", "gpu3", action=action)
        result = CheckResult("check_gpu_xid", bad if sick else Outcome(Verdict.OK))
        report = Report(node or self.node, boot, time.time(), 0.1, (result,))
        path = self.reports / f"{node or self.node}.json"
        path.with_suffix(".tmp").write_text(json.dumps(to_dict(report)))
        path.with_suffix(".tmp").replace(path)

    @property
    def env(self) -> dict[str, str]:
        return {**self.cluster.env, "PYTHONPATH": f"{ROOT}:{ROOT / 'adapters'}", "HOME": str(self.place)}

    def start(self) -> None:
        words = [sys.executable, "-c", CODE, "serve", "remedy", "-s", str(self.place / "remedy.toml")]
        with open(self.place / "log", "ab") as log:
            self.child = subprocess.Popen(words, env=self.env, stdout=log, stderr=log)

    def nhc(self, *words: str, user: str = "") -> subprocess.CompletedProcess[str]:
        """Another command of nhc over the same settings; as the person `user`, behind sudo."""
        argv = [sys.executable, "-c", CODE, *words, "-s", str(self.place / "remedy.toml")]
        env = {**self.env, **({"SUDO_USER": user} if user else {})}
        return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60, check=False)

    def log(self) -> str:
        """The end of what the loop wrote, and the state of its node."""
        return f"{(self.place / 'log').read_text()[-2000:]}\n{self.cluster.show(self.node)}"

    def kill(self) -> None:
        assert self.child is not None
        self.child.kill()
        self.child.wait(60)

    def states(self) -> Tuple[List[Any], List[Any], List[str]]:
        """The episodes, the attempts, and what the audit log has."""
        store = open_store(f"sqlite:///{self.place}/store.db", create=False)
        try:
            with store.read() as connection:
                rows = episodes.list_episodes(connection)
                tried = [one for row in rows for one in attempts.attempts_of(connection, row.id)]
                self.evidence = [one.name for row in rows for one in evidence.of_episode(connection, row.id)]
                whats = [one.what for one in audit.entries(connection, limit=1000)]
        finally:
            store.close()
        return rows, tried, whats

    def state(self) -> str:
        """The state of the first episode, "" while there is none."""
        rows = self.states()[0]
        return str(rows[0].state) if rows else ""

    def waiting(self) -> str:
        """What the first episode waits for, "" for nothing."""
        rows = self.states()[0]
        return details.read_or_empty(rows[0].detail).waiting if rows else ""


@contextlib.contextmanager
def served(service: Service) -> Iterator[Service]:
    """The service; afterwards it is ended, and a reboot of its node that is still pending as well."""
    cluster, node = service.cluster, service.node
    try:
        yield service
    finally:
        if service.child is not None and service.child.poll() is None:
            service.kill()
        cluster.scontrol("cancel_reboot", node, check=False)
        if "REBOOT" in cluster.show(node)["State"]:
            cluster.boot_node(node)
