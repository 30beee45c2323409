# What runs on a node during a sweep: nhc.fleet.node_session sends this text to the node's Python over standard input,
# followed by a call of main(). It is older Python than the rest so that a Python below 3.9 can say that it is
# too old. It looks for nhc on the node, takes what is missing, checks digests, runs, and sees that it ends.
#
# Answers are lines "nhc-fleet NONCE WORD key=value ..." with values percent-encoded.
# ruff: noqa: F821 (the other part has them)

import _signal  # signal makes enumerations of it: 3 ms
import os
import select
import sys
import time

PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._/:,+@")
SBIN = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")


class Failed(Exception):
    pass


def write_all(fd, data):
    data = memoryview(data)
    while data:
        data = data[os.write(fd, data) :]


QUIET = 1.0  # seconds after which the node says that it has begun, where it has nothing else to say
held = []  # what is said with the next line, or after QUIET: each message wakes two threads of the client


def say(nonce, kind, more=b"", **values):
    write_all(1, b"".join(held) + line_of(nonce, kind, values) + more)
    del held[:]


def say_later(nonce, kind, **values):
    held.append(line_of(nonce, kind, values))


def line_of(nonce, kind, values):
    text = "nhc-fleet %s %s" % (nonce, kind)
    for key in sorted(values):
        raw = str(values[key]).encode("utf-8", "surrogateescape")
        quoted = "".join(chr(byte) if byte in PLAIN else "%%%02X" % byte for byte in raw)
        text += " %s=%s" % (key, quoted)
    return text.encode() + b"\n"


def digest_of(*pieces):
    """What names a bundle: its BLAKE2b of 256 bits. hashlib would load OpenSSL, which costs more than the digest."""
    for name in ("_blake2", "hashlib"):
        try:
            made = __import__(name).blake2b(digest_size=32)
        except (ImportError, AttributeError):
            continue
        for piece in pieces:
            made.update(piece)
        return made.hexdigest()
    raise Failed("NoDigest", "this Python has no BLAKE2")


# An nhc that the node has.


def installed(request):
    """The path of the node's own nhc where it is of the version asked for, else ""."""
    for directory in [*os.environ.get("PATH", "").split(":"), "/opt/nhc/bin"]:
        path = directory + "/nhc"
        if not directory.startswith("/") or not os.access(path, os.X_OK):
            continue
        try:
            real = os.path.realpath(path)
            check_trusted(real)
            check_trusted(os.path.realpath(directory))
        except (Failed, OSError):
            continue
        out = run([path, "--version"], 10, 4096)
        if out["status"] == 0 and out["stdout"].strip() == ("nhc " + request["version"]).encode():
            return path
    return ""


# Running, and seeing that it ends.


def run(argv, seconds, limit):
    """Run a command, or nhc's archive, in a session of its own. It ends, or is killed and left, within `seconds`."""
    pid, out, err = start(argv)
    deadline = time.monotonic() + seconds
    done = collect(out, err, deadline, limit)
    if done["why"]:
        end_session(pid)
    until = time.monotonic() + 1 if done["why"] else max(deadline, time.monotonic() + 1)
    while time.monotonic() < until:  # what cannot be killed is left to init
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            done["status"] = os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)
            break
        time.sleep(0.002)
    return done


def start(argv):
    """Start a command; its pid, and where its output and its complaints come.

    An archive (*.pyz) is run by this very interpreter: to start another would cost as much as many checks.
    """
    out_read, out_write = os.pipe()
    err_read, err_write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            os.dup2(os.open("/dev/null", os.O_RDWR), 0)
            os.dup2(out_write, 1)
            os.dup2(err_write, 2)
            for fd in (out_read, out_write, err_read, err_write):
                os.close(fd)
            _signal.alarm(0)
            if argv[0].endswith(".pyz"):
                enter(argv)
            os.execv(argv[0], argv)  # noqa: S606
        except OSError as error:
            os.write(2, ("%s: %s" % (argv[0], error.strerror)).encode())
        finally:
            os._exit(126)
    os.close(out_write)
    os.close(err_write)
    return pid, out_read, err_read


def enter(argv):
    """Be the archive's program, as `python -I -S ARCHIVE ...` would be. Never returns."""
    status = 1
    try:
        import zipimport

        loader = zipimport.zipimporter(argv[0])
        sys.argv = argv
        sys.path.insert(0, argv[0])
        sys.stdin = open(0, closefd=False)  # noqa: SIM115 (the one there holds what was sent to us)
        names = {"__name__": "__main__", "__loader__": loader, "__file__": argv[0] + "/__main__.py"}
        exec(loader.get_code("__main__"), names)  # noqa: S102 (its digest has been checked)
        status = 0
    except SystemExit as ended:
        status = ended.code
        if status is None:
            status = 0
        elif not isinstance(status, int):
            sys.stderr.write("%s\n" % (status,))
            status = 1
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def collect(out, err, deadline, limit):
    """Read what a command says until it says no more, or there is a reason (`why`) to end it."""
    done = {"stderr": b"", "status": -1, "why": ""}
    pieces = []
    size = 0
    poll = select.poll()
    waiting = [out, err]
    for fd in (0, out, err):  # at the end of standard input the client is gone
        poll.register(fd, select.POLLIN)
    while waiting and not done["why"]:
        left = deadline - time.monotonic()
        if left <= 0:
            done["why"] = "Timeout"
            break
        ready = poll.poll(min(left, QUIET if held else 60) * 1000 + 1)
        if not ready and held:
            write_all(1, held.pop(0))
        for fd, _event in ready:
            data = os.read(fd, 65536)
            if fd == 0:
                if not data:
                    done["why"] = "ClientGone"
            elif not data:
                poll.unregister(fd)
                os.close(fd)
                waiting.remove(fd)
            elif fd == err:
                done["stderr"] = (done["stderr"] + data)[-4096:]
            else:
                pieces.append(data)
                size += len(data)
                if size > limit:
                    done["why"] = "OutputTooLarge"
    done["stdout"] = b"".join(pieces)
    return done


def end_session(session):
    """Kill every process of a session: checks have process groups of their own, which outlive nhc's."""
    for _ in range(5):
        pids = []
        for name in os.listdir("/proc"):
            try:
                with open("/proc/" + name + "/stat", "rb") as file:
                    fields = file.read(4096).rpartition(b")")[2].split()
                if int(fields[3]) == session and fields[0] != b"Z":
                    pids.append(int(name))
            except (OSError, ValueError, IndexError):
                continue
        for pid in pids:
            try:
                os.kill(pid, _signal.SIGKILL)
            except OSError:
                pass
        if not pids:
            return
        time.sleep(0.05)


def others():
    """Newer Pythons on this node than the one running."""
    paths = []
    for directory in [*os.environ.get("PATH", "").split(":"), "/usr/bin", "/usr/local/bin"]:
        for minor in range(20, 8, -1):
            path = "%s/python3.%d" % (directory, minor)
            if os.access(path, os.X_OK) and path not in paths:
                paths.append(path)
    return paths


def main(request, stream):
    _signal.alarm(int(request["guard"]))  # ends this process if it hangs itself; children have their own deadline
    os.umask(0o77)
    nonce = request["nonce"]
    version = "%d.%d.%d" % tuple(sys.version_info[:3])
    say_later(nonce, "hello", python=version, hostname=os.uname()[1], uid=os.geteuid())
    if sys.version_info < (3, 9):
        say(nonce, "old", python=version, others=",".join(others()))
        return
    path = os.environ.get("PATH", "").split(":")
    os.environ["PATH"] = ":".join(path + [name for name in SBIN if name not in path])
    try:
        own = "" if request["use"] == "pushed" else installed(request)
        bundles = [] if own and not request["site"] else request["bundles"]
        if own and request["site"]:
            bundles = [request["site"]]
        have, need = find_bundles(dict(request, bundles=bundles))
        if request["use"] == "installed" and not own:
            raise Failed("NotInstalled", "this node has no nhc %s of its own" % request["version"])
        if need:
            say(nonce, "need", bundles=",".join(need))
            exec(request["store"], globals())  # noqa: S102 (node_store.py)
            have.update(store({digest: receive(stream, digest) for digest in need}, request))
        argv = [own] if own else [have[request["engine"]] + "/nhc.pyz"]
        site = have.get(request["site"], "")
        argv += [argument.replace("{site}", site) for argument in request["argv"]]
        done = run(argv, request["seconds"], request["limit"])
    except Failed as failed:
        say(nonce, "failed", reason=failed.args[0], message=failed.args[1])
        return
    except (OSError, MemoryError) as error:
        say(nonce, "failed", reason="NodeError", message=error)
        return
    say(
        nonce, "ran", size=len(done["stdout"]), status=done["status"], why=done["why"],
        stderr=done["stderr"].decode("utf-8", "replace"), how="installed" if own else "pushed", more=done["stdout"],
    )  # fmt: skip
