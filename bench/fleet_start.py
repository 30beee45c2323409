"""What a sweep over SSH costs until its transport is ready, CPU and memory of a process, and then for a connection.

    python bench/fleet_start.py [--rounds 20]

A private key in a file and no agent, so that libssh reaches the nodes; beside it the same with paramiko imported, which
every sweep did before. Whole processes in turn; what counts is each side's best CPU time. Then connections with one
command over one sshd, twice as many of each in turn: the median of the client's CPU. Limits: 0.75 each.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Dict, List

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from bench.common import verdict  # noqa: E402

READY = """
import resource, sys
import nhc.fleet.commands.fleet_check
from nhc.fleet.ssh.config import SshConfig
from nhc.fleet.ssh.known_hosts import HostKeys
from nhc.fleet.ssh.transport_ssh import Ssh
from nhc.fleet.transport import Node
transport = Ssh(SshConfig(sys.argv[1]), HostKeys())
if sys.argv[2] == "paramiko":
    transport.paramiko()
transport.warm([transport.config.lookup(Node("n1"))])
used = resource.getrusage(resource.RUSAGE_SELF)
print(used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, "cryptography" in sys.modules)
"""


def ready(config: str, kind: str) -> List[float]:
    """CPU seconds and most resident MB of one process."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "SSH_AUTH_SOCK": ""}
    done = subprocess.run(
        [sys.executable, "-c", READY, config, kind], env=env, check=True, capture_output=True, text=True
    )
    cpu, memory, loaded = done.stdout.split()
    if (loaded == "True") is not (kind == "paramiko"):
        raise SystemExit(f"{kind}: cryptography was {'' if loaded == 'True' else 'not '}imported")
    return [float(cpu), float(memory)]


def connections(rounds: int, place: Path) -> Dict[str, float]:
    """Milliseconds of this process's CPU for a connection and one command, the median of each library."""
    # Not before: a child's largest size counts its parent's.
    from nhc.fleet.ssh.config import SshConfig
    from nhc.fleet.ssh.known_hosts import HostKeys
    from nhc.fleet.ssh.transport_paramiko import Paramiko
    from nhc.fleet.transport import Node
    from tests.support import ssh

    with ssh.sshd(place) as server:
        server.trust(["127.0.0.1"])
        transports = {
            "libssh": ssh.by_libssh(server.config),
            "paramiko": Paramiko(SshConfig(str(server.config)), HostKeys()),
        }
        found: Dict[str, List[float]] = {kind: [] for kind in transports}
        for _round in range(2 * rounds + 1):
            for kind, transport in transports.items():
                begin, end = time.process_time(), time.monotonic() + 60
                session = transport.connect(Node("127.0.0.1"), end)
                stream = session.start("echo ok", end)
                while stream.receive(end):
                    pass
                stream.close()
                session.close()
                found[kind].append(1000 * (time.process_time() - begin))
    return {kind: statistics.median(taken[1:]) for kind, taken in found.items()}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        key, config = f"{place}/key", f"{place}/config"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
        Path(config).write_text(f"Host *\n  IdentityFile {key}\n  IdentitiesOnly yes\n")
        found: Dict[str, List[List[float]]] = {"libssh": [], "paramiko": []}
        for _round in range(options.rounds):
            for kind, taken in found.items():
                taken.append(ready(config, kind))
        medians = connections(options.rounds, Path(place) / "sshd")
    best = {kind: [min(column) for column in zip(*taken)] for kind, taken in found.items()}
    for kind, (cpu, memory) in best.items():
        print(f"{kind:10} {cpu * 1000:6.0f} ms of CPU, {memory:5.1f} MB")
    for kind, milliseconds in medians.items():
        print(f"{kind:10} {milliseconds:6.1f} ms of CPU for a connection and a command")
    ratios = [one / other for one, other in zip(best["libssh"], best["paramiko"])]
    print(verdict("CPU until the transport is ready, of that with paramiko", ratios[0], 0.75))
    print(verdict("memory, of that with paramiko", ratios[1], 0.75))
    ratios.append(medians["libssh"] / medians["paramiko"])
    print(verdict("CPU for a connection and a command, of paramiko's", ratios[2], 0.75))
    return int(max(ratios) > 0.75)


if __name__ == "__main__":
    sys.exit(main())
