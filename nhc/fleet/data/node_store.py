# The node's side of a sweep, third part: taking in what the node does not have. It travels as text within the
# request, and is read only then: to compile it would cost every node of every sweep.
# ruff: noqa: F821 (the other parts have them)

import errno
import os
import time


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
    kept = []
    for name in os.listdir(place):
        path = place + "/" + name
        try:
            kept.append((os.lstat(path).st_mtime, name, path))
        except OSError:
            continue
    bundles = sorted(entry for entry in kept if not entry[1].startswith("."))
    for _when, name, path in bundles[:-8]:
        if name not in keep:
            remove(path)
    for when, name, path in kept:
        if name.startswith(".") and time.time() - when > 3600:
            remove(path)


def receive(stream, digest):
    line = stream.readline()
    if not line.startswith(digest.encode()):
        raise Failed("BadTransfer", "something else than bundle %s came" % digest[:12])
    size = int(line.split()[1])
    blob = stream.read(size)
    if len(blob) != size or digest_of(blob) != digest:
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
