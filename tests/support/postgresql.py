"""A PostgreSQL server of the tests' own, under a user who is nobody, on a loopback port."""

import atexit
import contextlib
import functools
import glob
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from tests.support.ports import free_port
from tests.support.require import missing

SETTINGS = """
listen_addresses = '127.0.0.1'
port = {port}
unix_socket_directories = '{base}'
fsync = {fsync}
max_connections = 60
shared_buffers = 64MB
log_min_messages = fatal
"""


def programs():
    """The directory of initdb and postgres: of the newest version that is installed, "" for none."""
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb"), key=lambda path: int(path.split("/")[4]))
    return os.path.dirname(found[-1] if found else shutil.which("initdb") or "")


def owner():
    """As whom it runs: it refuses root."""
    return pwd.getpwnam("nobody") if os.geteuid() == 0 else pwd.getpwuid(os.geteuid())


class Cluster:
    """One server and its files. `kill` ends it as a crash does; `start` starts it again on the same port."""

    def __init__(self, bin_directory, fsync=False):
        self.bin = bin_directory
        self.base = Path(tempfile.mkdtemp(prefix="nhc-pg-"))
        user = owner()
        self.user = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []} if os.geteuid() == 0 else {}
        os.chown(self.base, user.pw_uid, user.pw_gid)
        self.base.chmod(0o700)
        self.data = self.base / "data"
        self.port = free_port()
        self._run("initdb", "-D", self.data, "-U", "nhc", "-A", "trust", "-E", "UTF8", "--no-sync", "--locale=C.UTF-8")
        text = SETTINGS.format(port=self.port, base=self.base, fsync="on" if fsync else "off")
        with open(self.data / "postgresql.conf", "a") as file:
            file.write(text)
        self.number = 0
        self.process = None
        self.start()

    def _run(self, program, *words):
        done = subprocess.run(
            [f"{self.bin}/{program}", *map(str, words)], cwd=self.base, capture_output=True, text=True, timeout=120,
            env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8"}, **self.user,
        )  # fmt: skip
        assert done.returncode == 0, f"{program}: {done.returncode}: {done.stdout}{done.stderr}"
        return done.stdout

    def start(self):
        self.process = subprocess.Popen(
            [f"{self.bin}/postgres", "-D", str(self.data)], cwd=self.base, start_new_session=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8"}, **self.user,
        )  # fmt: skip
        until = time.monotonic() + 60
        while time.monotonic() < until:
            assert self.process.poll() is None, "postgres ended at once"
            if self._ready():
                return
            time.sleep(0.05)
        raise AssertionError("postgres does not answer")

    def _ready(self):
        words = [f"{self.bin}/pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        return subprocess.run(words, check=False, timeout=60).returncode == 0

    def kill(self):
        """The postmaster is killed, and its children end with it."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        until = time.monotonic() + 60
        while time.monotonic() < until and self._children():
            time.sleep(0.02)
        (self.data / "postmaster.pid").unlink(missing_ok=True)

    @contextlib.contextmanager
    def frozen(self):
        """Stopped as by SIGSTOP or a hung disk: connections stay, and nothing answers."""
        inside = lambda: [int(path.split("/")[2]) for path in glob.glob("/proc/[0-9]*/cwd") if self._inside(path)]  # noqa: E731
        for pid in (self.process.pid, *inside()):
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in inside():
                os.kill(pid, signal.SIGCONT)

    def _children(self):
        """Whether anything of its session is still there: a backend notices the postmaster's death."""
        try:
            os.killpg(self.process.pid, 0)
        except ProcessLookupError:
            pass
        ours = [path for path in glob.glob("/proc/[0-9]*/cwd") if self._inside(path)]
        return bool(ours)

    def _inside(self, path):
        try:
            return os.readlink(path) == str(self.data)
        except OSError:
            return False

    def stop(self):
        """A shutdown that disconnects everybody; what is committed is kept."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.kill()

    def remove(self):
        self.stop()
        shutil.rmtree(self.base, ignore_errors=True)

    def database(self):
        """The URL of a new, empty database."""
        if self.process.poll() is not None:
            self.start()
        self.number += 1
        name = f"nhc{self.number}"
        self.sql("postgres", f"CREATE DATABASE {name} TEMPLATE template0")
        return self.url(name)

    def url(self, name):
        return f"postgresql://nhc@127.0.0.1:{self.port}/{name}"

    def sql(self, database, statement):
        import psycopg

        with psycopg.connect(self.url(database), autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []


@functools.cache
def shared():
    """One server for the whole run, whichever folders' fixtures ask for it."""
    directory = programs() or missing("postgresql", "install Debian's postgresql")
    cluster = Cluster(directory)
    atexit.register(cluster.remove)
    return cluster


@pytest.fixture(scope="session")
def postgresql():
    """A server for all tests; each takes a database of its own."""
    return shared()
