"""A real Slurm cluster on this machine: munged, one slurmctld, several slurmd, all in one directory.

Ports are free ones and every daemon is a child that `stop` ends by its pid, so clusters of parallel test runs
do not meet. Nodes are called as slurmd is told (`-N`), which is what SLURMD_NODENAME is for.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from tests.support.ports import free_ports
from tests.support.waiting import until

NEEDED = ("slurmctld", "slurmd", "scontrol", "sinfo", "sbatch", "munged")
ROOT_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
PATIENT = "MessageTimeout=10\n"


def missing() -> List[str]:
    return [command for command in NEEDED if shutil.which(command, path=ROOT_PATH) is None]


class Cluster:
    """`nodes` run a slurmd each; `extra` lines go to slurm.conf, among them nodes that nobody runs.

    Each node has a host and an address of its own, as on a real site, but for those of `one_machine`.
    """

    def __init__(self, directory: Path, nodes: Sequence[str], extra: str = "", one_machine: Sequence[str] = ()) -> None:
        self.directory = directory
        self.nodes = list(nodes)
        self.extra, self.one_machine = extra, one_machine
        self.daemons: Dict[str, subprocess.Popen[bytes]] = {}
        self.conf = directory / "slurm.conf"
        ports = free_ports(len(self.nodes) + 1)
        self.control_port, self.node_ports = ports[0], dict(zip(self.nodes, ports[1:]))
        for name in ("state", "log", "etc"):
            (directory / name).mkdir()
        (directory / "munge.key").write_bytes(os.urandom(128))
        (directory / "munge.key").chmod(0o600)
        (directory / "jwt.key").write_bytes(os.urandom(32))
        (directory / "jwt.key").chmod(0o600)
        directory.chmod(0o755)

    @property
    def env(self) -> Dict[str, str]:
        """What a Slurm command needs to speak to this cluster."""
        return {"SLURM_CONF": str(self.conf), "PATH": ROOT_PATH, "LC_ALL": "C"}

    def write_conf(self) -> None:
        d = self.directory
        lines = f"""
            ClusterName=nhctest
            SlurmctldHost={socket.gethostname().partition(".")[0]}(127.0.0.1)
            SlurmUser=root
            SlurmdUser=root
            SlurmctldPort={self.control_port}
            AuthType=auth/munge
            AuthInfo=socket={d}/munge.socket
            AuthAltTypes=auth/jwt
            AuthAltParameters=jwt_key={d}/jwt.key
            CredType=cred/munge
            StateSaveLocation={d}/state
            SlurmdSpoolDir={d}/spool.%n
            SlurmctldPidFile={d}/slurmctld.pid
            SlurmdPidFile={d}/slurmd.%n.pid
            SlurmctldLogFile={d}/log/slurmctld.log
            SlurmdLogFile={d}/log/slurmd.%n.log
            ProctrackType=proctrack/linuxproc
            TaskPlugin=task/none
            JobAcctGatherType=jobacct_gather/none
            AccountingStorageType=accounting_storage/none
            SelectType=select/cons_tres
            SelectTypeParameters=CR_Core
            MpiDefault=none
            ReturnToService=2
            SlurmctldParameters=enable_configless
            SlurmctldTimeout=120
            SlurmdTimeout=300
            {PATIENT.strip()}
            BatchStartTimeout=10
            KillWait=2
            UnkillableStepTimeout=30
            SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,requeue_delay=1,sched_interval=1,bf_interval=2,nohold_on_prolog_fail
            PrologFlags=Alloc
        """
        text = "\n".join(line.strip() for line in lines.strip().splitlines()) + "\n"
        cpus = os.cpu_count() or 1
        for name in self.nodes:
            host = "localhost" if name in self.one_machine else f"host-{name}"
            text += (
                f"NodeName={name} NodeHostname={host} NodeAddr={self.address(name)} Port={self.node_ports[name]} "
                f"CPUs={cpus} RealMemory=100 State=UNKNOWN\n"
            )
        text += f"PartitionName=work Nodes={','.join(self.nodes)} Default=YES MaxTime=INFINITE State=UP\n"
        self.conf.write_text(text + self.extra)

    def address(self, node: str) -> str:
        """Its NodeAddr, "" for a node that nobody runs."""
        own = "" if node not in self.nodes else f"127.0.1.{self.nodes.index(node) + 1}"
        return "127.0.0.1" if node in self.one_machine else own

    # Daemons.

    def _start(self, name: str, argv: Sequence[str], user: Optional[str] = None, **env: str) -> None:
        log = open(self.directory / "log" / f"{name}.out", "ab")  # noqa: SIM115 (the daemon's from here on)
        self.daemons[name] = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**self.env, **env}, user=user,
            group="nogroup" if user else None, extra_groups=[] if user else None, start_new_session=True,
        )  # fmt: skip
        log.close()

    def start(self) -> None:
        self.write_conf()
        d = self.directory
        self._start("munged", ["munged", "--foreground", "--force", f"--key-file={d}/munge.key",
                               f"--socket={d}/munge.socket", f"--pid-file={d}/munged.pid",
                               f"--log-file={d}/log/munged.log", f"--seed-file={d}/munged.seed"])  # fmt: skip
        self._wait("munged", (d / "munge.socket").exists)
        self.start_controller()
        for name in self.nodes:
            self.start_node(name)
        self._wait("slurmd", lambda: not self._not_idle())

    def _wait(self, daemon: str, ready: Callable[[], Any], seconds: float = 60.0) -> None:
        """Wait for a daemon; one that does not come is named with the end of its log."""
        try:
            until(ready, seconds, what=daemon)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.logged(daemon)}") from None

    def logged(self, daemon: str, lines: int = 20) -> str:
        """The last lines of what a daemon (or, for slurmd, each of them) wrote."""
        found = [path for path in sorted((self.directory / "log").glob(f"{daemon}*")) if path.stat().st_size]
        said = [f"{path.name}:\n" + "\n".join(path.read_text(errors="replace").splitlines()[-lines:]) for path in found]
        return "\n".join(said) or f"{daemon} wrote nothing"

    def start_controller(self) -> None:
        self.conf.write_text(self.conf.read_text().replace("MessageTimeout=1\n", PATIENT))
        self._start("slurmctld", ["slurmctld", "-D", "-f", str(self.conf)])
        self._wait("slurmctld", self.answers)

    def answers(self) -> bool:
        return self.scontrol("ping", check=False).returncode == 0

    def start_node(self, name: str) -> None:
        self._start(f"slurmd.{name}", ["slurmd", "-D", "-N", name, "-f", str(self.conf)])

    def boot_node(self, name: str) -> None:
        """Restart a node's slurmd as if its host had just booted (`slurmd -b`): a reboot or a power-up by Slurm ends.

        Such a slurmd says that it came up a second ago. A slurmctld that asked for the boot within that second takes it
        for the boot before, and goes on waiting (22.05.8): then the node boots once more.
        """

        def booted() -> bool:
            return not {"REBOOT_REQUESTED", "REBOOT_ISSUED", "POWERING_UP"} & set(self.show(name)["State"].split("+"))

        def boot() -> bool:
            self.kill(f"slurmd.{name}", signal.SIGTERM)
            self._start(f"slurmd.{name}", ["slurmd", "-D", "-b", "-N", name, "-f", str(self.conf)])
            with contextlib.suppress(AssertionError):
                return until(booted, 3)
            return False

        self._wait(f"slurmd.{name}", boot, 60)

    def start_rest(self, user: str = "nobody") -> str:
        """Start slurmrestd on a socket and return its path; it asks for a token (`token`)."""
        self.openapi = self._newest_openapi(user)
        path = self.directory / "rest"
        path.mkdir(exist_ok=True)
        shutil.chown(path, user)
        self._start("slurmrestd", ["slurmrestd", "-a", "rest_auth/jwt", "-s", self.openapi, "-f", str(self.conf),
                                   f"unix:{path}/socket"], user=user, SLURM_JWT="daemon")  # fmt: skip
        self._wait("slurmrestd", (path / "socket").exists)
        return str(path / "socket")

    def _newest_openapi(self, user: str) -> str:
        """This slurmrestd's newest plug-in of the API: from 24.05 on one for all versions, before that one for each."""
        done = subprocess.run(
            ["slurmrestd", "-f", str(self.conf), "-s", "list"], capture_output=True, text=True, timeout=60, check=False,
            user=user, group="nogroup", extra_groups=[], env={**self.env, "SLURM_JWT": "daemon"},
        )  # fmt: skip
        said = done.stdout + done.stderr
        versions = sorted(set(re.findall(r"openapi/v0\.0\.\d+", said)), key=lambda name: int(name.rpartition(".")[2]))
        found = ["openapi/slurmctld"] if "openapi/slurmctld" in said else versions
        assert found, f"slurmrestd names no plug-in: {said}"
        return found[-1]

    def kill(self, name: str, number: int = signal.SIGKILL) -> None:
        daemon = self.daemons.pop(name)
        daemon.send_signal(number)
        daemon.wait(60)

    def lose_controller(self) -> None:
        """Kill slurmctld until `start_controller`: until then a command asks for it a second long, not ten."""
        self.kill("slurmctld")
        self.conf.write_text(self.conf.read_text().replace(PATIENT, "MessageTimeout=1\n"))

    def stop(self) -> None:
        """End every daemon, the nodes first. A job's own processes go with its slurmd's session's step daemons."""
        if self.daemons.get("slurmctld"):
            with contextlib.suppress(subprocess.TimeoutExpired):  # a controller that hangs is ended below all the same
                self.run("scancel", "--full", "--user=root", check=False)
        for names in (set(self.daemons) - {"slurmctld", "munged"}, {"slurmctld"}, {"munged"}):
            ending = [self.daemons.pop(name) for name in names & set(self.daemons)]
            for daemon in ending:
                daemon.terminate()
            for daemon in ending:
                try:
                    daemon.wait(20)
                except subprocess.TimeoutExpired:
                    daemon.kill()
                    daemon.wait(60)

    # Commands.

    def run(self, *argv: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(argv, env=self.env, capture_output=True, text=True, timeout=60, check=False)
        if check and done.returncode:
            raise AssertionError(f"{argv}: {done.returncode}: {done.stdout}{done.stderr}")
        return done

    def scontrol(self, *argv: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return self.run("scontrol", *argv, check=check)

    def update(self, node: str, **values: str) -> None:
        self.scontrol("update", f"NodeName={node}", *(f"{key}={value}" for key, value in values.items()))

    def show(self, node: str) -> Dict[str, str]:
        """The lines of one node that hold one field each (Reason, Comment, Partitions), and its State."""
        text = self.scontrol("-a", "show", "node", node).stdout
        found = {key: value.strip() for key, _, value in (line.strip().partition("=") for line in text.splitlines())}
        return {**found, "State": found["State"].split()[0]}

    def state(self, node: str) -> str:
        """The node's compact state, as sinfo shows it.

        By a list of all: whether processors are in use is counted anew only where all nodes are asked for, and a node
        asked for by itself stays `drng` or `mix` after its job (_slurm_rpc_dump_node_single, src/slurmctld/proc_req.c).
        """
        return self._states().get(node, "")

    def _states(self) -> Dict[str, str]:
        lines = self.run("sinfo", "-h", "-N", "-p", "work", "-o", "%N %t").stdout.splitlines()
        return dict(line.split() for line in lines)

    def _not_idle(self) -> List[str]:
        states = self._states()
        return [name for name in self.nodes if states.get(name) != "idle"]

    def reason(self, node: str) -> str:
        """Its reason without who set it and when."""
        return self.show(node).get("Reason", "").rpartition(" [")[0]

    def unmarked(self, node: str) -> bool:
        """Whether a resumed node has no reason any more; one that 23.11 to 25.11 keep, without accounting, is none."""
        return self.reason(node) == "" or (self.state(node).rstrip("*") == "idle" and self.version >= (23, 11))

    @property
    def version(self) -> Tuple[int, ...]:
        """The release of the daemons."""
        return tuple(int(part) for part in self.run("slurmctld", "-V").stdout.split()[1].split(".")[:2])

    def reset(self) -> None:
        """Bring back every daemon that was killed, end every job, put every node back, take comments away."""
        if "slurmctld" not in self.daemons:
            self.start_controller()
        for name in self.nodes:
            if f"slurmd.{name}" not in self.daemons:
                self.start_node(name)
        if self.jobs():
            until(self._end_jobs, 60, what="jobs to end")

        def idle() -> bool:
            away = self._not_idle()
            for name in away:
                self._bring_back(name)
            return not away

        until(
            idle, 120, what="all nodes to be idle", said=lambda: {name: self.show(name)["State"] for name in self.nodes}
        )
        self.scontrol("update", f"NodeName={','.join(self.nodes)}", "Comment=")

    def _bring_back(self, name: str) -> None:
        """One step towards idle. A test that failed may have left the node powered down."""
        flags = set(self.show(name)["State"].split("+"))
        if "POWERING_UP" in flags:
            self.boot_node(name)
        elif "POWERED_DOWN" in flags and "POWER_UP" not in flags:
            self.scontrol("update", f"NodeName={name}", "State=POWER_UP", check=False)
        elif not flags & {"POWER_DOWN", "POWERING_DOWN", "COMPLETING"} and not self.state(name).startswith("idle"):
            self.scontrol("update", f"NodeName={name}", "State=RESUME", check=False)

    def _end_jobs(self) -> bool:
        """Cancel what there is, each time anew: a job that is just being requeued comes back after the first time."""
        jobs = self.jobs()
        if jobs:
            self.run("scancel", "--full", "--user=root", check=False)
            self.run("scancel", *jobs, check=False)
        return not jobs

    def jobs(self) -> List[str]:
        return self.run("squeue", "-h", "-o", "%A", check=False).stdout.split()

    def token(self, user: str = "root") -> str:
        return self.scontrol("token", f"username={user}", "lifespan=3600").stdout.strip().partition("=")[2]

    def submit(self, script: str, *options: str, env: Optional[Mapping[str, str]] = None) -> str:
        done = subprocess.run(
            ["sbatch", "--parsable", f"--output={self.directory}/log/job.%j.out", *options],
            input=f"#!/bin/sh\n{script}\n", env={**self.env, **(env or {})}, cwd=self.directory,
            capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip
        return done.stdout.strip()

    def end_its_time(self, number: str) -> None:
        """Have slurmctld find a running job at its time limit, of a minute at least, within its next look: 30 s."""
        self.scontrol("update", f"JobId={number}", "EndTime=now+1")

    def job(self, number: str) -> Dict[str, str]:
        """A job as `scontrol show job` has it."""
        text = self.scontrol("show", "job", number).stdout
        words = [word for line in text.splitlines() for word in line.split()]
        found = {key: value for key, _, value in (word.partition("=") for word in words)}
        lines = {key: value.strip() for key, _, value in (line.strip().partition("=") for line in text.splitlines())}
        return {**found, **{key: lines[key] for key in ("AdminComment", "Comment") if key in lines}}
