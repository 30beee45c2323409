# What stands on a node while a group of nodes is tested over SSH: nhc.deep.ssh_launch sends this text to the node's
# Python, with one argument of JSON. It takes the lock of deep checks, proves that the node is idle, runs the tool where
# it is told to, and ends every process of the test, on whatever way: its own end, a word, real work that comes, the
# connection lost, silence, a limit. It needs Python 3.6 and nothing else.
#
# Answers are lines of JSON. The processes of a test are known by NHC_DEEP_RUN=TOKEN in their environment.

import codecs
import fcntl
import fnmatch
import json
import os
import signal
import subprocess
import sys
import threading
import time

MARK = "NHC_DEEP_RUN"
NAME = "group-test"
OUTPUT_LIMIT = 32 << 20
KILLED = 5.0
writing = threading.Lock()


def say(**what):
    try:
        with writing:
            sys.stdout.write(json.dumps(what) + "\n")
            sys.stdout.flush()
    except (OSError, ValueError):
        pass  # nobody listens: what is to be done is done all the same


def read(path, limit=16 << 20):
    try:
        with open(path, "rb") as file:
            return file.read(limit)
    except OSError:
        return b""


def pids():
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]


def is_of(pid, token):
    return ("%s=%s" % (MARK, token)).encode() in read("/proc/%d/environ" % pid).split(b"\0")


def marked(token):
    return [pid for pid in pids() if is_of(pid, token)]  # a zombie has no environment any more


def end(token, grace):
    """SIGTERM, time, SIGKILL for the processes of a test. Those that are there still."""
    for number, timeout in ((signal.SIGTERM, grace), (signal.SIGKILL, KILLED)):
        for pid in marked(token):
            try:
                os.kill(pid, number)
            except OSError:
                pass
        until = time.monotonic() + timeout
        while time.monotonic() < until:
            reap()
            if not marked(token):
                return []
            time.sleep(0.05)
    return marked(token)


def reap():
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except OSError:
        pass


def in_the_way(given):
    """Who uses this node, "" for nobody."""
    unseen = 0
    for pid in pids():
        name = read("/proc/%d/comm" % pid, 64).decode("utf-8", "replace").strip()
        if is_of(pid, given["token"]) or not name:
            continue
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in given["work"]):
            return "process %d (%s) is work" % (pid, name)
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in given["allowed"]):
            continue
        try:
            held = {os.readlink("/proc/%d/fd/%s" % (pid, fd)) for fd in os.listdir("/proc/%d/fd" % pid)}
        except PermissionError:
            unseen += 1
            continue
        except OSError:
            continue
        for target in sorted(held):
            if target.startswith("/dev/") and any(fnmatch.fnmatchcase(target, pattern) for pattern in given["devices"]):
                return "process %d (%s) holds %s" % (pid, name, target)
    if unseen and os.geteuid():  # what the kernel keeps from root as well, such as a security agent, is nobody's work
        return "%d processes of others cannot be looked at: not root here" % unseen
    return ""


class Guard(object):
    def __init__(self, given):
        self.given = given
        self.ending = ""
        self.heard = time.monotonic()
        self.orders = []
        self.tool = None
        self.note = os.path.join(given["directory"], NAME)

    def locked(self):
        directory = self.given["directory"]
        os.makedirs(directory, mode=0o700, exist_ok=True)
        fd = os.open(os.path.join(directory, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        os.ftruncate(fd, 0)
        os.pwrite(fd, b"%d\n" % os.getpid(), 0)
        return True

    def tidy(self):
        """End what a test has left whose guard was killed."""
        token = read(self.note, 200).decode("ascii", "replace").strip()
        if token:
            end(token, self.given["grace"])
            os.unlink(self.note)

    def prove(self):
        if not self.locked():
            return "another deep check is under way"
        self.tidy()
        return in_the_way(self.given)

    def listen(self):
        for line in sys.stdin.buffer:
            self.heard = time.monotonic()
            try:
                order = json.loads(line.decode("utf-8", "replace"))
            except ValueError:
                continue
            if order.get("go"):
                self.orders.append(order["go"])
            if order.get("quit"):
                self.ending = self.ending or "it was told to end"
        self.ending = self.ending or "the connection is lost"

    def start(self, order):
        hosts = os.path.join(self.given["directory"], "hosts-" + self.given["token"])
        with open(hosts, "w") as file:
            file.write(order["hosts"])
        argv = [argument.replace("{hosts}", hosts) for argument in order["argv"]]
        env = dict(os.environ)
        env.update(order["env"])
        env[MARK] = self.given["token"]
        try:
            self.tool = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=env,
                start_new_session=True, cwd="/",
            )  # fmt: skip
        except OSError as error:
            say(out="%s: %s\n" % (argv[0], error.strerror))
            self.finished(127)
            return
        threading.Thread(target=self.copy, daemon=True).start()

    def copy(self):
        """What the tool prints, until the last process that has its output is gone; then how it ended."""
        decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        size = 0
        while True:
            data = os.read(self.tool.stdout.fileno(), 65536)
            size += len(data)
            if size <= OUTPUT_LIMIT:
                say(out=decode(data, not data))
            if not data:
                break
        status = self.tool.wait()
        self.finished(status if status >= 0 else 128 - status)

    def finished(self, status):
        # One that was ended from here has no result, whatever it printed.
        if not self.ending:
            say(end=status)
            self.ending = "done"

    def watch(self):
        """Until something ends the test."""
        began = looked = time.monotonic()
        while not self.ending:
            now = time.monotonic()
            if self.orders:
                self.start(self.orders.pop(0))
            if now - self.heard > self.given["silence"]:
                self.ending = "nothing was heard for %.0f s" % self.given["silence"]
            elif now - began > self.given["limit"]:
                self.ending = "the limit of %.0f s has passed" % self.given["limit"]
            elif now - looked >= 1.0:
                looked = now
                why = in_the_way(self.given)
                if why:
                    self.ending = why
                    say(taken=why)
            time.sleep(0.1)

    def signalled(self, number, _frame):
        self.ending = self.ending or "signal %d" % number

    def run(self):
        try:
            why = self.prove()
        except OSError as error:
            why = "%s: %s" % (error.filename or self.given["directory"], error.strerror)
        if why or self.given["probe"]:
            say(busy=why) if why else say(idle=True)
            return 0
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self.signalled)
        try:
            with open(self.note, "w") as file:
                file.write(self.given["token"])
        except OSError as error:
            say(busy="%s: %s" % (self.note, error.strerror))
            return 0
        threading.Thread(target=self.listen, daemon=True).start()
        say(ready=True)
        self.watch()
        left = end(self.given["token"], self.given["grace"])
        for path in (os.path.join(self.given["directory"], "hosts-" + self.given["token"]), self.note):
            try:
                if not left or path != self.note:
                    os.unlink(path)
            except OSError:
                pass
        say(left=left, why=self.ending)
        return 0


def main(text):
    status = Guard(json.loads(text)).run()
    sys.stdout.flush()
    os._exit(status)  # the thread that reads would wait for a line more
