"""Machines to manage: systemd as process 1 on a copy-on-write view of this system, reached over real sshd.

Each machine has its own mounts, processes, host name and files; what is installed on it, this system never
sees. The network is shared: a machine is an address of 127.0.0.0/8. It can be rebooted, and has then another
boot id, as a real one has. Needs root, systemd, overlayfs and cgroup v2; `need` says which is missing.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Callable, Iterator, List, Sequence

from tests.support.ports import free_port
from tests.support.require import need
from tests.support.ssh import SSHD, answers, keygen

_BOOT = r"""
set -e
root=$DIR/root rw=$RW
mkdir -p "$root" "$rw/work"
mount -t overlay -o "lowerdir=/,upperdir=$rw/upper,workdir=$rw/work" node "$root"
mount -t proc proc "$root/proc"
mount -t sysfs -o ro sys "$root/sys"
mount -t tmpfs -o mode=755 cgroup "$root/sys/fs/cgroup"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mount --rbind /dev "$root/dev"
mount -t tmpfs -o mode=755 run "$root/run"
mount -t tmpfs -o mode=1777 tmp "$root/tmp"
# The machine does not see what Ansible on this system keeps for a moment in the home of the same user.
mkdir -p "$root/root/.ansible"
mount -t tmpfs -o mode=700 ansible "$root/root/.ansible"
cat /proc/sys/kernel/random/uuid >"$root/run/boot_id"
mount --bind "$root/run/boot_id" "$root/proc/sys/kernel/random/boot_id"
mkdir -p "$root/run/sshd"
exec chroot "$root" env -i container=nhc-test PATH=/usr/sbin:/usr/bin:/sbin:/bin \
    /lib/systemd/systemd --system --unit=machine.target --log-target=console --log-level=notice --show-status=no
"""

_UNITS = {
    "machine.target": "[Unit]\nDefaultDependencies=no\nWants=machine-sshd.service timers.target multi-user.target\n",
    "machine-sshd.service": (
        f"[Unit]\nDefaultDependencies=no\n[Service]\nExecStart={SSHD} -D -e -f /etc/nodekeys/sshd_config\n"
    ),
}

_SSHD_CONFIG = """\
Port {port}
ListenAddress {address}
HostKey /etc/nodekeys/host_key
PidFile none
AuthorizedKeysFile /etc/nodekeys/authorized_keys
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
UseDNS no
StrictModes no
MaxStartups 100
PrintMotd no
LogLevel ERROR
Subsystem sftp internal-sftp
"""


class Machine:
    """One machine. `run` runs a command on it; `upper` is where the files it wrote lie."""

    def __init__(self, name: str, address: str, fleet: Fleet) -> None:
        self.name, self.address, self.fleet = name, address, fleet
        self.directory = fleet.directory / name
        self.rw = fleet.memory / name
        self.supervisor: subprocess.Popen[bytes]

    @property
    def upper(self) -> Path:
        return self.rw / "upper"

    def run(self, command: str, check: bool = True, stdin: bytes = b"") -> str:
        """What a shell command says on it, as root."""
        argv = ["ssh", "-F", str(self.fleet.ssh_config), self.name, command]
        ended = subprocess.run(argv, capture_output=True, timeout=60, input=stdin)
        if check and ended.returncode:
            raise AssertionError(f"{self.name}: {command}: {ended.returncode}: {ended.stdout!r}{ended.stderr!r}")
        return ended.stdout.decode()

    def write(self, path: str, text: str, mode: int = 0o644) -> None:
        """Put a file on it. Only before it starts: after that, `run` and what is being tested do."""
        file = self.upper / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(mode)

    def furnish(self, services: Sequence[str] = ()) -> None:
        """The files that make it a machine of its own, with no more services than sshd and those named."""
        for kind in ("host_key", "authorized_keys"):
            self.write(f"/etc/nodekeys/{kind}", (self.fleet.directory / kind).read_text(), 0o600)
        names = "".join(f"{each.address} {each.name}\n" for each in self.fleet.machines)
        self.write("/etc/hosts", f"127.0.0.1 localhost\n{names}")
        self.write("/etc/hostname", f"{self.name}\n")
        config = _SSHD_CONFIG.format(port=self.fleet.port, address=self.address)
        self.write("/etc/nodekeys/sshd_config", config)
        self.write("/root/.bashrc", "")
        (self.upper / "root").chmod(0o700)
        for unit, text in _UNITS.items():
            self.write(f"/etc/systemd/system/{unit}", text)
        system = self.upper / "etc/systemd/system"
        wanted = {path.name for base in ("/lib", "/etc") for path in Path(f"{base}/systemd/system").glob("*.wants/*")}
        wanted |= {f"{path.name}.service" for path in Path("/etc/init.d").glob("*")}  # systemd makes units of them
        for name in sorted(wanted - set(services)):
            if not (system / name).is_symlink():
                (system / name).symlink_to("/dev/null")

    def start(self) -> None:
        """Power on; after a reboot it comes back by itself, until `stop`."""
        self.directory.mkdir(parents=True, exist_ok=True)
        boot = self.directory / "boot.sh"
        boot.write_text(_BOOT)
        variables = {"DIR": self.directory, "RW": self.rw}
        shown = " ".join(f"{key}={shlex.quote(str(value))}" for key, value in variables.items())
        group = f"/sys/fs/cgroup{self.fleet.cgroup}/{self.fleet.tag}-{self.name}"
        loop = (
            f"mkdir -p {group}; echo $$ >{group}/cgroup.procs; "
            f"while :; do env {shown} setpriv --pdeathsig KILL unshare -m -p -u -i -C --propagation private "
            f"--fork --kill-child=KILL bash {shlex.quote(str(boot))}; sleep 0.2; done"
        )
        with (self.directory / "console").open("ab") as console:
            self.supervisor = subprocess.Popen(
                # Whatever ends the tests ends the machines.
                ["setpriv", "--pdeathsig", "KILL", "bash", "-c", loop], stdin=subprocess.DEVNULL, stdout=console,
                stderr=console, start_new_session=True,
            )  # fmt: skip

    def wait(self, seconds: float = 30) -> None:
        deadline = time.monotonic() + seconds
        while not answers(self.address, self.fleet.port):
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self.name} does not answer: {(self.directory / 'console').read_text()[-2000:]}")
            time.sleep(0.05)

    def stop(self) -> None:
        """Power off at once."""
        group = f"/sys/fs/cgroup{self.fleet.cgroup}/{self.fleet.tag}-{self.name}"
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.supervisor.pid, signal.SIGKILL)
        self.supervisor.wait(60)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                for directory, _names, _files in os.walk(group, topdown=False):
                    os.rmdir(directory)
                return
            except OSError:
                time.sleep(0.05)


class Fleet:
    """Machines of one user's keys, and the client's configuration to reach them with."""

    def __init__(self, directory: Path, memory: Path, names: Sequence[str], first: str) -> None:
        self.directory, self.memory, self.port = directory, memory, free_port()
        self.tag = memory.name
        self.cgroup = "/unified" if os.path.isdir("/sys/fs/cgroup/unified") else ""
        self.identity = keygen(directory / "identity")
        keygen(directory / "host_key")
        shutil.copy(directory / "identity.pub", directory / "authorized_keys")
        self.machines = [Machine(name, f"{first}{number}", self) for number, name in enumerate(names, 1)]
        self.known_hosts = directory / "known_hosts"
        key = " ".join((directory / "host_key.pub").read_text().split()[:2])
        self.known_hosts.write_text("".join(f"[{each.address}]:{self.port} {key}\n" for each in self.machines))
        self.ssh_config = directory / "ssh_config"
        self.ssh_config.write_text(
            "".join(f"Host {each.name}\n  HostName {each.address}\n" for each in self.machines)
            + f"Host *\n  User root\n  Port {self.port}\n  IdentityFile {self.identity}\n  IdentitiesOnly yes\n"
            f"  UserKnownHostsFile {self.known_hosts}\n  GlobalKnownHostsFile /dev/null\n  LogLevel ERROR\n"
            "  KexAlgorithms curve25519-sha256\n  ControlMaster auto\n  ControlPersist 60s\n"
            f"  ControlPath {self.memory}/cm-%C\n"
        )

    def __getitem__(self, name: str) -> Machine:
        return next(machine for machine in self.machines if machine.name == name)


@contextlib.contextmanager
def fleet(
    directory: Path,
    names: Sequence[str],
    first: str = "127.93.0.",
    services: Sequence[str] = (),
    more: Callable[[Machine], None] = lambda machine: None,
) -> Iterator[Fleet]:
    """Running machines of these names; powered off and forgotten at the end.

    `services` are units left as they are, `more` puts more files on each before it starts.
    """
    for what, found in requirements():
        need(what, found)
    memory = Path(tempfile.mkdtemp(prefix="nhc-machines-", dir="/dev/shm"))  # the upper may not lie in the lower layer
    made = Fleet(directory, memory, names, first)
    try:
        for machine in made.machines:
            machine.furnish(services)
            more(machine)
            machine.start()
        for machine in made.machines:
            machine.wait()
        yield made
    finally:
        for machine in made.machines:
            if hasattr(machine, "supervisor"):
                machine.stop()
            subprocess.run(["ssh", "-F", str(made.ssh_config), "-O", "exit", machine.name], capture_output=True)
        shutil.rmtree(memory, ignore_errors=True)


def requirements() -> List[tuple[str, bool]]:
    """What machines need, and whether it is there."""
    filesystems = Path("/proc/filesystems").read_text().split()
    return [
        ("root", os.geteuid() == 0),
        ("sshd", SSHD is not None),
        ("systemd", os.path.exists("/lib/systemd/systemd")),
        ("overlayfs", "overlay" in filesystems or shutil.which("modprobe") is not None),
        ("cgroup2", os.path.isdir("/sys/fs/cgroup/unified") or os.path.exists("/sys/fs/cgroup/cgroup.controllers")),
    ]
