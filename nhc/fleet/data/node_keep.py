# The node's side of a sweep, second part: where what was sent is kept. nhc.fleet.node_session sends node.py, this, and
# a call of main() as one text; names of node.py are used here without an import.
# ruff: noqa: F821 (the other part has them)

import errno
import os
import stat

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
    directories = ["/var/tmp/nhc-%d" % uid, "/dev/shm/nhc-%d" % uid]  # noqa: S108 (used only where it is ours alone)
    if uid == 0:
        directories.insert(0, "/var/cache/nhc-fleet")
    home = os.environ.get("HOME", "")
    if home.startswith("/") and uid != 0:
        directories.append(home.rstrip("/") + "/.cache/nhc-fleet")  # last: homes are often on a network
    return directories


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
        pieces = [index]
        for name, _mode, size in entries(index):
            with open(directory + "/" + name, "rb") as file:
                data = file.read(size + 1)
            if len(data) != size:
                return False
            pieces.append(data)
        return digest_of(*pieces) == digest
    except (OSError, ValueError):
        return False


def entries(index):
    listed = []
    for entry in index.decode("ascii").split():
        quoted, mode, size = entry.split(":")
        pieces = quoted.split("%")
        name = pieces[0].encode("ascii")
        for piece in pieces[1:]:
            name += bytes(bytearray([int(piece[:2], 16)])) + piece[2:].encode("ascii")
        name = name.decode("utf-8", "surrogateescape")
        if name.startswith(("/", ".index")) or ".." in name.split("/"):
            raise ValueError(name)
        listed.append((name, int(mode, 8), int(size)))
    return listed


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
