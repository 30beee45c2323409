"""`nhc fleet check` against clush, pdsh and `ansible -m raw`: ratios in one run, over a real sshd on loopback.

    python bench/fleet.py [--hosts 1000] [--memory-hosts 10000] [--rounds 2] [--only cpu,bad,memory,real,full,loaded]

Every address of 127.0.0.0/8 answers, so one sshd stands for all hosts. It answers every command at once with a
report of twelve results, the same for every tool: what is measured is the client. All tools use one ssh_config,
and so one key exchange, curve25519. Limits: client CPU per host at most a quarter of clush's and of pdsh's and a
tenth of `ansible -m raw`'s; with 20 hosts that drop packets, 5 without a banner and 5 that hang among 1,000, wall
time at most 1.1 of the best peer that finishes; less than 150 MB for 10,000 hosts. `full` is nhc itself on every
host: what that adds to a sweep that only connects is at most 1.2 of the CPU of the same `nhc check local`, run here
by itself. `loaded` is 300 hosts that are judged for real while four processes a core never wait: all of them answer
within ten seconds to connect, and clush's count with the same stands beside it. Needs root (for the hosts that drop
packets); clush, pdsh and ansible on PATH.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "bench")]
from common import adopt_orphans, once, reap_orphans, tree_pss, verdict  # noqa: E402

from tests.support import ssh  # noqa: E402
from tests.support.waiting import until  # noqa: E402

CONNECT, COMMAND = 5, 10
"""Seconds that every tool gives a host to connect, and a command to run."""
KEX = "  KexAlgorithms curve25519-sha256,curve25519-sha256@libssh.org\n  LogLevel ERROR\n"
"""One key exchange for all clients: it is most of what a connection costs."""
FULL = 1.2
"""What a check on every host may cost, of the same check by itself: its start, its guard and its transport besides."""

_RESULT = (
    '{"check":"check_fs_mount_rw","verdict":"OK","reason":"","message":"/scratch%d is mounted read-write",'
    '"target":"/scratch%d","action":"none","metrics":[{"name":"free","value":123456789.0,"unit":"B"}],"evidence":[],'
    '"elapsed":0.000123,"source":"/etc/nhc/nhc.conf:%d","line":"* || check_fs_mount_rw -f /scratch%d","tags":["fs"],'
    '"strike":0,"strikes":0}'
)


def answer(path: Path) -> Path:
    """The shell script that stands for a node: it says what nhc's side says, without a fork."""
    results = ",".join(_RESULT % (n, n, n, n) for n in range(12))
    report = ('{"schema":1,"version":"0.1.0","host":"@HOST@","boot_id":"x","started":@NOW@.5,"started_at":"",'
              '"elapsed":0.1,"verdict":"OK","notes":[],'
              '"not_run":0,"labels":{"profile":"gpu"},"results":[' + results + "]}")  # fmt: skip
    quoted = (
        report.replace("\\", "\\\\").replace('"', '\\"').replace("@HOST@", "$3").replace("@NOW@", str(int(time.time())))
    )
    path.write_text(
        "#!/bin/sh\n"
        "set -- $SSH_CONNECTION\n"
        'n="${SSH_ORIGINAL_COMMAND##*nhc-fleet }"; n="${n%% *}"\n'
        'case "$3" in 127.9.*) exec sleep 60;; esac\n'
        f'r="{quoted}"\n'
        'echo "nhc-fleet $n hello python=3.11.2 hostname=x uid=0"\n'
        'echo "nhc-fleet $n ran size=${#r} status=0 why= stderr= how=pushed"\n'
        "printf %s \"$r\"; echo; echo ' ok'\n"
    )
    path.chmod(0o755)
    return path


class Sample(NamedTuple):
    wall: float
    cpu: float
    good: int
    peak: int = 0


def measure(argv: Sequence[str], good: bytes, env: Dict[str, str], memory: bool = False) -> Sample:
    """Run a client to its end: wall time, CPU with that of its children, and how many hosts answered."""
    with tempfile.TemporaryFile() as output:
        begin = time.perf_counter()
        child = subprocess.Popen(argv, env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
        peak = 0
        while memory and child.poll() is None:
            peak = max(peak, tree_pss(child.pid))
            time.sleep(0.3)
        if memory:
            return Sample(time.perf_counter() - begin, 0.0, _count(output, good), peak)
        _pid, _status, used = os.wait4(child.pid, 0)
        child.returncode = 0
        wall = time.perf_counter() - begin
        return Sample(wall, used.ru_utime + used.ru_stime, _count(output, good))


def _count(output: object, good: bytes) -> int:
    output.seek(0)  # type: ignore[attr-defined]
    text: bytes = output.read()  # type: ignore[attr-defined]
    return text.count(good)


class Lines(List[str]):
    """Printed as they come: the whole takes minutes."""

    def __iadd__(self, more: Iterable[str]) -> Lines:  # type: ignore[misc,override]  # noqa: PYI034
        for line in more:
            print(line, flush=True)
            self.append(line)
        return self


class Bench:
    def __init__(self, server: ssh.Server, scratch: Path, nhc: List[str]) -> None:
        self.server, self.scratch, self.nhc = server, scratch, nhc
        self.env = {"PATH": os.environ["PATH"], "HOME": str(scratch), "LC_ALL": "C.UTF-8",
                    "PYTHONPATH": f"{ROOT}:{ROOT / 'adapters'}", "XDG_CACHE_HOME": str(scratch / "cache")}  # fmt: skip

    def ours(self, hosts: Path, *more: str) -> List[str]:
        return [*self.nhc, "fleet", "check", "--set", f"ssh-config={self.server.config}", "-w", f"^{hosts}",
                "--set", "accept-new=true", "--set", f"history={self.scratch / 'history.sqlite'}",
                "--set", f"connect-timeout={CONNECT}s", "-f", "jsonl",
                *more]  # fmt: skip

    def peers(self, hosts: Path, names: Sequence[str], bounded: bool) -> Dict[str, List[str]]:
        options = f"-F {self.server.config} -o ConnectTimeout={CONNECT}"
        self.env["PDSH_SSH_ARGS_APPEND"] = options
        inventory = self.scratch / "hosts.ini"
        inventory.write_text(hosts.read_text())
        limits = ["-t", str(CONNECT), "-u", str(COMMAND)] if bounded else []
        every = {
            "clush": ["clush", "-f", "64", "-o", options, *limits,
                      "--hostfile", str(hosts), "echo ok"],
            "pdsh": ["pdsh", "-R", "ssh", "-f", "64", *limits,
                     "-w", f"^{hosts}", "echo ok"],
            "ansible -m raw": ["ansible", "-i", str(inventory), "all", "-f", "50", "-m", "raw", "-a", "echo ok",
                               "--ssh-common-args", options],
        }  # fmt: skip
        return {name: every[name] for name in names if shutil.which(every[name][0])}

    def hosts(self, name: str, addresses: Sequence[str]) -> Path:
        path = self.scratch / name
        path.write_text("".join(f"{address}\n" for address in addresses))
        self.server.trust(addresses)
        return path


def cpu(bench: Bench, count: int, rounds: int) -> List[str]:
    """Client CPU per host."""
    hosts = bench.hosts("cpu", ssh.addresses(count))
    few = bench.hosts("few", ssh.addresses(max(count // 8, 16)))
    samples: Dict[str, List[float]] = {}
    lines = []
    for _ in range(rounds):
        runs = [("ours", bench.ours(hosts), b'"verdict":"OK","notes"', count)]
        runs += [(name, argv, b" ok\n", count) for name, argv in bench.peers(hosts, ["clush", "pdsh"], False).items()]
        small = int(few.read_text().count("\n"))
        runs += [(name, argv, b" ok\n", small) for name, argv in bench.peers(few, ["ansible -m raw"], False).items()]
        for name, argv, good, expected in runs:
            taken = measure(argv, good, bench.env)
            if taken.good < expected:
                raise SystemExit(f"{name}: {taken.good} of {expected} hosts answered: {' '.join(argv)}")
            samples.setdefault(name, []).append(1e3 * taken.cpu / expected)
            lines.append(
                f"{name}: {expected} hosts, {1e3 * taken.cpu / expected:.2f} ms CPU a host, {taken.wall:.1f} s"
            )
    ours = statistics.median(samples["ours"])
    for name, limit in (("clush", 0.25), ("pdsh", 0.25), ("ansible -m raw", 0.1)):
        if name in samples:
            lines.append(verdict(f"client CPU a host, of {name}'s", ours / statistics.median(samples[name]), limit))
    return lines


def real(nhc: List[str], scratch: Path, count: int, rounds: int) -> List[str]:
    """Client CPU per host where each host really judges itself, beside clush having each run `true`.

    Start-up is in it. The nodes are this machine, a few at a time: their load is not the client's, but it costs caches.
    """
    python = next(path for path in ("/usr/bin/python3", sys.executable) if os.access(path, os.X_OK))
    config = scratch / "real.conf"
    config.write_text((ROOT / "conf" / "nhc.conf.example").read_text())
    samples: Dict[str, List[float]] = {}
    lines: List[str] = []
    with ssh.sshd(scratch / "real") as server:
        server.config.write_text(server.config.read_text() + KEX)
        bench = Bench(server, scratch, nhc)
        hosts = bench.hosts("real-hosts", ssh.addresses(count))
        ours = bench.ours(hosts, "-c", str(config), "--set", f"node-dir={scratch / 'real-node'}",
                          "--set", f"python={python}",
                          "--set", "fanout=16", "--profile", "none")  # fmt: skip
        measure(ours, b"", bench.env)  # sends nhc
        runs = [("ours", ours, b'"nhc":"pushed"')]
        if shutil.which("clush"):
            words = ["clush", "-f", "16", "-o", f"-F {server.config}", "--hostfile", str(hosts), "true && echo ok"]
            runs.append(("clush", words, b" ok\n"))
        for _ in range(rounds):
            for name, argv, good in runs:
                taken = measure(argv, good, bench.env)
                if taken.good < count:
                    raise SystemExit(f"{name}: {taken.good} of {count} hosts answered: {' '.join(argv)}")
                samples.setdefault(name, []).append(1e3 * taken.cpu / count)
                lines.append(f"{name}, real nodes: {1e3 * taken.cpu / count:.2f} ms CPU a host, {taken.wall:.1f} s")
    own = statistics.median(samples["ours"])
    lines.append(verdict("client CPU a host with real nodes, of 3 ms", own / 3, 1.0))
    if "clush" in samples:
        ratio = own / statistics.median(samples["clush"])
        lines.append(verdict("client CPU a host with real nodes, of clush's for `true`", ratio, 0.25))
    return lines


@contextlib.contextmanager
def dropping(count: int) -> Iterator[List[str]]:
    """Addresses behind a veth pair that takes packets and answers none."""
    tag = f"b{os.getpid() % 100000}"
    try:
        for words in (
            ["netns", "add", tag], ["link", "add", f"{tag}a", "type", "veth", "peer", "name", f"{tag}b"],
            ["link", "set", f"{tag}b", "netns", tag], ["addr", "add", "10.99.9.1/24", "dev", f"{tag}a"],
            ["link", "set", f"{tag}a", "up"], ["-n", tag, "link", "set", f"{tag}b", "up"],
        ):  # fmt: skip
            subprocess.run(["ip", *words], check=True)
        found = [f"10.99.9.{last}" for last in range(2, 2 + count)]
        for address in found:
            subprocess.run(
                ["ip", "neigh", "replace", address, "lladdr", "02:00:00:00:00:02", "dev", f"{tag}a"], check=True
            )
        yield found
    finally:
        subprocess.run(["ip", "link", "del", f"{tag}a"], check=False)
        subprocess.run(["ip", "netns", "del", tag], check=False)


def bad(bench: Bench, count: int) -> List[str]:
    """Wall time with bad hosts among good ones, spread evenly."""
    with dropping(20) as lost, ssh.listener(ssh.silent) as (_host, silent_port):
        silent = [f"127.8.0.{number}" for number in range(1, 6)]
        hung = [f"127.9.0.{number}" for number in range(1, 6)]
        config = bench.server.config
        text = config.read_text()
        config.write_text(f"Host 127.8.*\n  Port {silent_port}\n" + text)
        good = ssh.addresses(count - 30)
        mixed: List[str] = []
        wrong = [*lost, *silent, *hung]
        for number, address in enumerate(good):
            mixed.append(address)
            if number % (len(good) // len(wrong)) == 0 and wrong:
                mixed.append(wrong.pop())
        hosts = bench.hosts("bad", [*mixed, *wrong])
        lines, walls = [], {}
        try:
            runs = {
                "ours": bench.ours(hosts, "-t", "1s", "--set", "retries=0"),
                **bench.peers(hosts, ["clush", "pdsh"], True),
            }
            for name, argv in runs.items():
                taken = measure(argv, b'"verdict":"OK","notes"' if name == "ours" else b" ok\n", bench.env)
                lines.append(f"{name}: {taken.good} of {len(good)} good hosts in {taken.wall:.1f} s")
                if taken.good == len(good):
                    walls[name] = taken.wall
        finally:
            config.write_text(text)
    if "ours" not in walls or len(walls) < 2:
        return [*lines, "not comparable  MISSED"]
    best = min(wall for name, wall in walls.items() if name != "ours")
    return [*lines, verdict("wall time with 30 bad hosts, of the best peer's", walls["ours"] / best, 1.1)]


def memory(bench: Bench, count: int) -> List[str]:
    hosts = bench.hosts("memory", ssh.addresses(count))
    taken = measure(bench.ours(hosts), b'"verdict":"OK","notes"', bench.env, memory=True)
    return [f"ours: {taken.good} of {count} hosts in {taken.wall:.1f} s, {taken.peak / 1e6:.0f} MB at most",
            verdict(f"memory at {count} hosts, as a share of 150 MB", taken.peak / 150e6, 1.0)]  # fmt: skip


def full(nhc: List[str], scratch: Path, count: int, rounds: int) -> List[str]:
    """A check of every host, against the same sweep of hosts that only answer and the same check run here by itself.

    All CPU counts: the client's, sshd's, and what runs on the "nodes". Two hosts at a time, since here, unlike in a
    cluster, they share two cores' caches.
    """
    adopt_orphans()
    python = next(path for path in ("/usr/bin/python3", sys.executable) if os.access(path, os.X_OK))
    config = scratch / "nhc.conf"
    config.write_text((ROOT / "conf" / "nhc.conf.example").read_text())
    samples: Dict[str, List[float]] = {}
    lines: List[str] = []
    with contextlib.ExitStack() as stack:
        benches = {}
        for name, more in (("ssh only", f"ForceCommand {answer(scratch / 'answer')}"), ("full", "")):
            server = stack.enter_context(ssh.sshd(scratch / name.replace(" ", "-"), more=more))
            benches[name] = Bench(server, scratch, nhc)
        sweeps = {
            name: bench.ours(bench.hosts(f"{name}-hosts", ssh.addresses(count)), "-c", str(config),
                             "--set", f"node-dir={scratch / 'node'}", "--set", f"python={python}",
                             "--set", "fanout=2")
            for name, bench in benches.items()
        }  # fmt: skip
        for name, argv in sweeps.items():  # the first one sends nhc
            measure(argv, b"", benches[name].env)
        (pyz,) = (scratch / "node").glob("*/nhc.pyz")
        alone = [python, "-I", "-S", str(pyz), "check", "local", "--all", "--format", "json", "--timeout", "60s",
                 "--node", "node", "--config", str(config)]  # fmt: skip
        said = subprocess.run(alone, env=benches["full"].env, check=False, capture_output=True, text=True).stdout
        if '"results":' not in said:
            raise SystemExit(f"no report: {' '.join(alone)}")
        reap_orphans()  # what the first sweeps left behind is not the check's
        for _ in range(rounds):
            taken = [once(alone, benches["full"].env, expect=None).cpu for _ in range(count)]
            samples.setdefault("alone", []).append(sum(taken))
            for name, argv in sweeps.items():
                samples.setdefault(name, []).append(_all_cpu(benches[name], argv, count))
            lines.append(", ".join(f"{name}: {1e3 * found[-1] / count:.1f} ms CPU a host"
                                   for name, found in samples.items()))  # fmt: skip
    ratios = [(whole - bare) / own for whole, bare, own in zip(samples["full"], samples["ssh only"], samples["alone"])]
    return [*lines, verdict("a check on each host less ssh, of the check alone", statistics.median(ratios), FULL)]


@contextlib.contextmanager
def crowded() -> Iterator[None]:
    """Four processes a core that never wait, until the end of the `with`."""
    endless = [sys.executable, "-S", "-c", "while True: pass"]
    children = [subprocess.Popen(endless) for _ in range(4 * len(os.sched_getaffinity(0)))]
    try:
        yield
    finally:
        for child in children:
            child.kill()
            child.wait()


def loaded(nhc: List[str], scratch: Path, count: int) -> List[str]:
    """Hosts that answer a sweep on a busy machine, which are its nodes as well."""
    python = next(path for path in ("/usr/bin/python3", sys.executable) if os.access(path, os.X_OK))
    config = scratch / "loaded.conf"
    config.write_text((ROOT / "conf" / "nhc.conf.example").read_text())
    with ssh.sshd(scratch / "loaded") as server:
        server.config.write_text(server.config.read_text() + KEX)
        bench = Bench(server, scratch, nhc)
        hosts = bench.hosts("loaded-hosts", ssh.addresses(count))
        ours = bench.ours(hosts, "-c", str(config), "--set", f"node-dir={scratch / 'loaded-node'}",
                          "--set", f"python={python}", "--profile", "none", "--set", "connect-timeout=10s")  # fmt: skip
        runs = [("ours", ours, b'"nhc":"pushed"')]
        if shutil.which("clush"):
            words = [
                "clush",
                "-o",
                f"-F {server.config} -o ConnectTimeout=10",
                "--hostfile",
                str(hosts),
                "true && echo ok",
            ]
            runs.append(("clush", words, b" ok\n"))
        lines, lost = [], 0
        with crowded():
            for name, argv, good in runs:
                taken = measure(argv, good, bench.env)
                lost = count - taken.good if name == "ours" else lost
                load = os.getloadavg()[0]
                lines.append(f"{name}: {taken.good} of {count} hosts answered in {taken.wall:.1f} s, load {load:.0f}")
    return [*lines, verdict("hosts without an answer on a loaded machine, of all", lost / count, 0.0)]


def _all_cpu(bench: Bench, argv: Sequence[str], count: int) -> float:
    """CPU seconds of a sweep: the client, the server with all it started, and what they left behind."""
    server = bench.server.process.pid
    before = _used(server) + _children()
    taken = measure(argv, b'"nhc":"pushed"', bench.env)
    if taken.good != count:
        raise SystemExit(f"{taken.good} of {count} hosts answered: {' '.join(argv)}")
    until(lambda: not _has_children(server), what="the end of the sessions")
    reap_orphans()
    return _used(server) + _children() - before


def _used(pid: int) -> float:
    """CPU seconds of a process and of all descendants that it has waited for: proc(5), stat, fields 14 to 17."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _has_children(pid: int) -> bool:
    return bool(Path(f"/proc/{pid}/task/{pid}/children").read_text().split())


def main(arguments: Optional[Sequence[str]] = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=1000)
    parser.add_argument("--memory-hosts", type=int, default=10000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--only", default="cpu,real,bad,memory,full,loaded")
    options = parser.parse_args(arguments)
    wanted = options.only.split(",")
    nhc = [sys.executable, "-m", "nhc"]
    lines = Lines()
    with tempfile.TemporaryDirectory() as directory:
        scratch = Path(directory)
        script = answer(scratch / "answer")
        with ssh.sshd(scratch / "sshd", more=f"ForceCommand {script}") as server:
            server.config.write_text(server.config.read_text() + KEX)
            bench = Bench(server, scratch, nhc)
            # Once uncounted: it builds nhc.pyz.
            measure(bench.ours(bench.hosts("warm", ssh.addresses(8))), b"", bench.env)
            if "cpu" in wanted:
                lines += cpu(bench, options.hosts, options.rounds)
            if "bad" in wanted:
                lines += bad(bench, options.hosts)
            if "memory" in wanted:
                lines += memory(bench, options.memory_hosts)
        if "real" in wanted:
            lines += real(nhc, scratch, options.hosts, options.rounds)
        if "loaded" in wanted:
            lines += loaded(nhc, scratch, 300)
        if "full" in wanted:
            lines += full(nhc, scratch, max(options.hosts // 20, 8), options.rounds)
    return 1 if any("MISSED" in line for line in lines) else 0


if __name__ == "__main__":
    sys.exit(main())
