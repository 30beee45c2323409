"""`nhc serve server` as a process, over a store of the test's own, and what pushes to it."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time

import urllib3

from nhc.core.model import Action, CheckResult, Outcome, Report, Verdict
from nhc.marks import push
from nhc.store.connect import open_store
from nhc.store.server import access
from tests.support.new_store import new_store

OK = CheckResult("check_mem", Outcome(Verdict.OK))
XID = CheckResult("check_gpu_xid", Outcome(Verdict.CRIT, "Xid79", "it fell off the bus", "gpu3", action=Action.REBOOT))


def report(node="n1", at=None, results=(OK,), boot="b1"):
    return Report(node, boot, time.time() if at is None else at, 1.0, tuple(results))


def packed(*reports, node="n1", lost=0):
    return push.pack(node, [push.to_text(push.Pushed(one, True, one.started)) for one in reports], lost)


class Server:
    """One server process. `url` is where it listens; `said()` what it has said so far.

    `nodes` have their tokens before it starts: it looks for new ones every two seconds.
    """

    def __init__(self, directory, store_url, settings="", port=0, host="127.0.0.1", name="server", nodes=("n1",)):
        self.directory, self.store_url = directory, store_url
        self.settings = directory / f"{name}.toml"
        self.settings.write_text(settings)
        self.log = directory / f"{name}.log"
        self.url, self.process = "", None
        self.listen = f"{host}:{port}"
        path = store_url.partition("sqlite:///")[2]
        if path and not os.path.exists(path):
            new_store(os.path.dirname(path), f"{directory}/anchor").close()
        with self.store() as store, store.write() as connection:
            self.tokens = {node: access.make_token(connection, node, by="test", now=time.time()) for node in nodes}
        self.start()

    def start(self):
        before = self.log.stat().st_size if self.log.exists() else 0
        words = ["serve", "server", "-s", str(self.settings), "--listen", self.listen]
        (self.directory / "store.toml").write_text(
            f'url = "{self.store_url}"\naudit-anchor = "{self.directory}/anchor"\n'
        )
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "nhc", *words], stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                start_new_session=True,
                env={**os.environ, "NHC_STORE": "", "NHC_STORE_SETTINGS": str(self.directory / "store.toml")},
            )  # fmt: skip
        until = time.monotonic() + 60
        while time.monotonic() < until and self.process.poll() is None:
            found = re.search(r"listening on (https?://\S+),", self.said()[before:])
            if found:
                self.url = found[1]
                self.listen = self.url.rpartition("/")[2]
                return
            time.sleep(0.02)
        raise AssertionError(f"the server does not listen: {self.said()}")

    def said(self):
        return self.log.read_text()

    def stop(self, number=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(60)

    @contextlib.contextmanager
    def store(self):
        store = open_store(self.store_url, anchor=str(self.directory / "anchor"))
        try:
            yield store
        finally:
            store.close()

    def token(self, node="n1"):
        if node in self.tokens:
            return self.tokens[node]
        with self.store() as store, store.write() as connection:
            made = access.make_token(connection, node, by="test", now=time.time())
        until = time.monotonic() + 60  # a server that runs already sees it within seconds
        while self.push(b"", made)[0] == 401 and time.monotonic() < until:
            time.sleep(0.05)
        return made

    def push(self, body, token="", **more):
        """The status and the JSON of one push."""
        headers = {"Content-Encoding": "gzip", **({"Authorization": f"Bearer {token}"} if token else {})}
        with urllib3.PoolManager(1, retries=False, timeout=60, **more) as pool:
            answer = pool.request("POST", self.url + push.PATH, body=body, headers=headers)
            return answer.status, answer.json(), answer.headers.get("Retry-After")

    def get(self, path):
        with urllib3.PoolManager(1, retries=False, timeout=60) as pool:
            answer = pool.request("GET", self.url + path)
            return answer.status, answer.data.decode()
