# The node's side of a sweep, second part: where what was sent is kept. nhc.fleet.remote sends node.py, this, and a
# call of main() as one text; names of node.py are used here without an import.
# ruff: noqa: F821 (the other part has them)

import errno
import os
import stat
import time

# A place that only this user can write to.


def check_trusted(path, leaf_private=False):
    """Refuse a path that somebody else could replace or write: every directory above it counts."""
    mine = (0, os.geteuid())
    at = ""
    parts = [part for part in path.split("/") if part]
    for number, part in enumerate(parts):
        at += "/" + part
        info = os.lstat(at)
        last = number == len(parts) - 1
        if stat.S_ISLNK(info.st_mode):
            raise Failed("UnsafeDirectory", "%s is a symbolic link" % at)
        if info.st_uid not in mine or (last and leaf_private and info.st_uid != os.geteuid()):
            raise Failed("UnsafeDirectory", "%s belongs to user %d" % (at, info.st_uid))
        if last and leaf_private and info.st_mode & 0o77:
            raise Failed("UnsafeDirectory", "%s has mode %o, others have access" % (at, stat.S_IMODE(info.st_mode)))
        if info.st_mode & 0o22 and not (info.st_mode & stat.S_ISVTX and stat.S_ISDIR(info.st_mode)):
            raise Failed("UnsafeDirectory", "%s has mode %o, others can write" % (at, stat.S_IMODE(info.st_mode)))


def places(asked):
    """Directories to keep things in, the preferred one first."""
    if asked:
        return [asked]
    uid = os.geteuid()
    found = ["/var/tmp/nhc-%d" % uid, "/dev/shm/nhc-%d" % uid]  # noqa: S108 (used only where it is ours alone)
    if uid == 0:
        found.insert(0, "/var/cache/nhc-fleet")
    home = os.environ.get("HOME", "")
    if home.startswith("/") and uid != 0:
        found.append(home.rstrip("/") + "/.cache/nhc-fleet")  # last: homes are often on a network
    return found


def private(path):
    """Make the directory, or see that it is still this user's alone. The real path; raises Failed or OSError."""
    parent, _, name = path.rstrip("/").rpartition("/")
    parent = os.path.realpath(parent or "/")
    path = parent.rstrip("/") + "/" + name
    try:
        os.mkdir(path, 0o700)
    except OSError as error:
        if error.errno == errno.ENOENT and parent.endswith("/.cache"):
            os.mkdir(parent, 0o700)
            os.mkdir(path, 0o700)
        elif error.errno != errno.EEXIST:
            raise
    check_trusted(path, leaf_private=True)
    return path


# Bundles: directories named by the digest of what they hold.


def whole(directory, digest):
    """Whether the directory holds what its digest says, to the byte. Read again before every use."""
    try:
        with open(directory + "/.index", "rb") as file:
            index = file.read(1 << 20)
        made = sha256()
        made.update(index)
        for name, _mode, size in entries(index):
            with open(directory + "/" + name, "rb") as file:
                data = file.read(size + 1)
            if len(data) != size:
                return False
            made.update(data)
        return made.hexdigest() == digest
    except (OSError, ValueError):
        return False


def entries(index):
    found = []
    for word in index.decode("ascii").split():
        quoted, mode, size = word.split(":")
        pieces = quoted.split("%")
        name = pieces[0].encode("ascii")
        for piece in pieces[1:]:
            name += bytes(bytearray([int(piece[:2], 16)])) + piece[2:].encode("ascii")
        name = name.decode("utf-8", "surrogateescape")
        if name.startswith(("/", ".index")) or ".." in name.split("/"):
            raise ValueError(name)
        found.append((name, int(mode, 8), int(size)))
    return found


def unpack(blob, digest, place):
    """Write a bundle below `place`: whole under its name, or not at all."""
    temporary = "%s/.%s.%d" % (place, digest[:16], os.getpid())
    try:
        os.mkdir(temporary, 0o700)
        end = blob.index(b"\n") + 1
        put(temporary + "/.index", blob[:end], 0o600)
        at = end
        for name, mode, size in entries(blob[:end]):
            directory = temporary
            for part in name.split("/")[:-1]:
                directory += "/" + part
                if not os.path.isdir(directory):
                    os.mkdir(directory, 0o700)
            put(temporary + "/" + name, blob[at : at + size], mode)
            at += size
        try:
            os.rename(temporary, place + "/" + digest)
        except OSError:
            if not whole(place + "/" + digest, digest):  # a damaged one is in the way
                remove(place + "/" + digest)
                os.rename(temporary, place + "/" + digest)
    finally:
        remove(temporary)


def put(path, data, mode):
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    try:
        write_all(fd, data)
    finally:
        os.close(fd)


def remove(path):
    for directory, names, files in os.walk(path, topdown=False):
        for name in files:
            try:
                os.unlink(directory + "/" + name)
            except OSError:
                pass
        for name in names:
            try:
                os.rmdir(directory + "/" + name)
            except OSError:
                pass
    try:
        os.rmdir(path)
    except OSError:
        pass


def prune(place, keep):
    """Keep the bundles used last; remove older ones and what broken runs left."""
    found = []
    for name in os.listdir(place):
        path = place + "/" + name
        try:
            found.append((os.lstat(path).st_mtime, name, path))
        except OSError:
            continue
    bundles = sorted(entry for entry in found if not entry[1].startswith("."))
    for _when, name, path in bundles[:-8]:
        if name not in keep:
            remove(path)
    for when, name, path in found:
        if name.startswith(".") and time.time() - when > 3600:
            remove(path)


def find_bundles(request):
    """Where each bundle is, and the digests of those that are nowhere."""
    have = {}
    for path in places(request["directory"]):
        try:
            if not os.path.isdir(path):
                continue
            place = private(path)
        except (Failed, OSError):
            continue
        for digest in request["bundles"]:
            if digest not in have and whole(place + "/" + digest, digest):
                have[digest] = place + "/" + digest
                try:
                    os.utime(have[digest])
                except OSError:
                    pass
    return have, [digest for digest in request["bundles"] if digest not in have]


def receive(stream, digest):
    line = stream.readline()
    if not line.startswith(digest.encode()):
        raise Failed("BadTransfer", "something else than bundle %s came" % digest[:12])
    size = int(line.split()[1])
    blob = stream.read(size)
    made = sha256()
    made.update(blob)
    if len(blob) != size or made.hexdigest() != digest:
        raise Failed("BadTransfer", "bundle %s came damaged" % digest[:12])
    return blob


def store(blobs, request):
    """Keep the bundles in the first place that takes them."""
    problems = []
    for path in places(request["directory"]):
        try:
            place = private(path)
            for digest in blobs:
                unpack(blobs[digest], digest, place)
                if not whole(place + "/" + digest, digest):
                    raise OSError(errno.EIO, "what was written reads back differently")
            prune(place, request["bundles"])
            return {digest: place + "/" + digest for digest in blobs}
        except Failed as failed:
            problems.append(failed.args)
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            problems.append(("DiskFull" if full else "NoDirectory", "%s: %s" % (path, error.strerror)))
    reasons = [reason for reason, _message in problems]
    reason = "DiskFull" if "DiskFull" in reasons else reasons[0]
    raise Failed(reason, "nowhere to keep nhc: " + "; ".join(message for _reason, message in problems))
