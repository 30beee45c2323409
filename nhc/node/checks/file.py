"""Files: their content, the answers of stat(2) and of test(1)."""

from __future__ import annotations

import os
import stat

from nhc.core.check import arg, check, flag, opt, rest
from nhc.core.host import Host, Stat
from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.core.matching.nodeset import mcheck
from nhc.core.model import Outcome, Verdict, crit, ok, unknown
from nhc.core.units import seconds, text, whole

if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterator, List, Sequence

    from typing_extensions import TypeAlias

CONTENT_LIMIT = 64 << 20
"""Bytes of a file that are searched. More is UNKNOWN if it matters: no health check should read it all."""


@check(
    "check_file_contents",
    arg("file", text, "the file to read", required=True),
    rest("match", text, "match string that some line must fit; with a leading ! none may", required=True),
    timeout=10,
)
def check_file_contents(host: Host, file: str, match: Sequence[str]) -> Outcome:
    r"""A text file holds the lines that it should, and none that it should not.

    Each match string must fit one line, in any order; one with a leading `!` must fit none. Blanks
    around a line are left out. A file that does not exist is CRIT where it should hold something, and
    UNKNOWN where all that is said is what it should not.

    Example: * || check_file_contents /etc/security/limits.conf '/^\* soft memlock unlimited$/' '!*nofile*'
    """
    missing = [pattern for pattern in match if not pattern.startswith("!")]
    forbidden = [pattern[1:] for pattern in match if pattern.startswith("!")]
    try:
        content = host.read_bytes(file, CONTENT_LIMIT + 1)
    except FileNotFoundError:
        if not missing:
            return unknown("FileMissing", f'File "{file}" does not exist', target=file)
        return crit("FileMissing", f"{_failed(file, match, missing)[:-1]}: it does not exist.", target=file)
    lines = content.decode(errors="replace").split("\n")
    if not lines[-1]:
        lines.pop()  # what follows the last newline is no line
    for number, raw in enumerate(lines, 1):
        line = raw.strip(" \t\r")
        for pattern in forbidden:
            if mcheck(line, pattern):
                message = f'File "{file}" line {number} matches "{pattern}".'
                return crit("FileContentForbidden", message, target=file, evidence=(line,))
        missing = [pattern for pattern in missing if not mcheck(line, pattern)]
        if not missing and not forbidden:
            return ok(target=file)
    if len(content) > CONTENT_LIMIT:
        return unknown("FileTooLarge", f'File "{file}" is larger than {CONTENT_LIMIT >> 20} MiB', target=file)
    if missing:
        return crit("FileContentMissing", _failed(file, match, missing), target=file)
    return ok(target=file)


def _failed(file: str, match: Sequence[str], missing: Sequence[str]) -> str:
    if len(match) == 1:
        return f'File "{file}" failed to match "{match[0]}".'
    done = len(match) - len(missing)
    return f'File "{file}" matched {done}/{len(match)} patterns.  First failed match:  "{missing[0]}".'


class Number(NamedTuple):
    """A number, and how it was written."""

    written: str
    value: int


def c_number(value: str) -> Number:
    """Decimal, 0x hexadecimal, or octal with a leading 0, as the shell reads numbers."""
    try:
        octal = len(value) > 1 and value[0] == "0" and value.isdigit()
        return Number(value, int(value, 8 if octal else 0))
    except ValueError:
        raise ValueError(f"{value!r} is not a number") from None


def mode(value: str) -> Number:
    """Permission bits in octal, as chmod takes them; the leading 0 may be left out."""
    try:
        return Number(value, int(value, 16 if value[:2] in ("0x", "0X") else 8))
    except ValueError:
        raise ValueError(f"{value!r} is not a mode (octal, as in 0644)") from None


@check(
    "check_file_stat",
    opt("-D -d", "device", c_number, "number of the device that the file lies on (decimal or 0x...)"),
    opt("-G", "group", text, "name of the owning group"),
    opt("-g", "gid", whole, "number of the owning group"),
    opt("-U", "user", text, "name of the owner"),
    opt("-u", "uid", whole, "number of the owner"),
    opt("-M", "mode_includes", mode, "permission bits that must be set at least (octal)"),
    opt("-m", "mode_is", mode, "permission bits that must be set, and no other (octal)"),
    opt("-N", "ctime_newer", seconds, "status changed at most this long ago (seconds, or 5m, 2h, 1d)"),
    opt("-O", "ctime_older", seconds, "status changed longer ago than this"),
    opt("-n", "mtime_newer", seconds, "content changed at most this long ago"),
    opt("-o", "mtime_older", seconds, "content changed longer ago than this"),
    opt("-t", "major", c_number, "major number of a device file"),
    opt("-T", "minor", c_number, "minor number of a device file"),
    rest("files", text, "the files to look at", required=True),
    timeout=10,
    on_timeout="crit",
)
def check_file_stat(host: Host, files: Sequence[str], **wanted: Any) -> List[Outcome]:
    """Files have the owner, mode, age or device number that they should.

    Asks lstat(2): a symbolic link is judged itself. Every option must hold for every file; a file that
    does not exist is CRIT. A hung file system is CRIT as well.

    Example: * || check_file_stat -u 0 -g 0 -U root -G root -t 1 -T 3 /dev/null
    """
    given = {name: value for name, value in wanted.items() if value is not None}
    return [outcome for outcome in (_judge_stat(host, file, given) for file in files) if outcome.message] or [ok()]


def _judge_stat(host: Host, file: str, wanted: Dict[str, Any]) -> Outcome:
    try:
        info = host.stat(file, follow=False)
    except PermissionError as error:
        return unknown("FileUnreadable", f"stat({file}) is not permitted: {error.strerror}", target=file)
    except OSError as error:
        reason = "FileMissing" if isinstance(error, (FileNotFoundError, NotADirectoryError)) else "FileUnreadable"
        return crit(reason, f"stat({file}) returned 1:  {error.strerror}", target=file)
    fault = next((f'File "{file}" {fault}' for fault in _stat_faults(host, info, wanted)), "")
    return crit("FileAttributeMismatch", fault, target=file) if fault else ok(target=file)


def _stat_faults(host: Host, info: Stat, wanted: Dict[str, Any]) -> Iterator[str]:
    """What does not hold, in the order in which LBNL NHC looks."""
    now = int(host.time())
    for name, value in (("ctime", info.ctime), ("mtime", info.mtime)):
        newer, older = wanted.get(f"{name}_newer"), wanted.get(f"{name}_older")
        if newer is not None and int(value) < now - newer:
            yield f"{name} is not newer than {newer:.15g}s"
        if older is not None and int(value) >= now - older:
            yield f"{name} is not older than {older:.15g}s"
    # For device files alone is the device number that of the file itself, as in stat(1)'s %t and %T.
    rdev = info.rdev if stat.S_ISCHR(info.mode) or stat.S_ISBLK(info.mode) else 0
    bits = stat.S_IMODE(info.mode)
    if "device" in wanted and info.dev != wanted["device"].value:
        yield f"device number is {info.dev:#x}; should be {wanted['device'].written}"
    if "gid" in wanted and info.gid != wanted["gid"]:
        yield f'GID is "{info.gid}"; should be "{wanted["gid"]}"'
    if "uid" in wanted and info.uid != wanted["uid"]:
        yield f'UID is "{info.uid}"; should be "{wanted["uid"]}"'
    if "group" in wanted and host.system.group_name(info.gid) != wanted["group"]:
        yield f'groupname is "{host.system.group_name(info.gid)}"; should be "{wanted["group"]}"'
    if "major" in wanted and os.major(rdev) != wanted["major"].value:
        yield f"has device major number {os.major(rdev):#x}; should be {wanted['major'].written}"
    if "minor" in wanted and os.minor(rdev) != wanted["minor"].value:
        yield f"has device minor number {os.minor(rdev):#x}; should be {wanted['minor'].written}"
    if "mode_is" in wanted and bits != wanted["mode_is"].value:
        yield f"has permissions 0{bits:o}; should be {wanted['mode_is'].written}"
    if "mode_includes" in wanted and bits & wanted["mode_includes"].value != wanted["mode_includes"].value:
        yield f"has permissions 0{bits:o}; should be at least {wanted['mode_includes'].written}"
    if "user" in wanted and host.system.user_name(info.uid) != wanted["user"]:
        yield f'username is "{host.system.user_name(info.uid)}"; should be "{wanted["user"]}"'


_Test: TypeAlias = "Callable[[Host, Stat], bool]"


def _kind(predicate: Callable[[int], bool]) -> _Test:
    return lambda _host, info: predicate(info.mode)


def _bit(bit: int) -> _Test:
    return lambda _host, info: bool(info.mode & bit)


_TESTS: Dict[str, _Test] = {
    "a": lambda _host, _info: True,
    "b": _kind(stat.S_ISBLK),
    "c": _kind(stat.S_ISCHR),
    "d": _kind(stat.S_ISDIR),
    "e": lambda _host, _info: True,
    "f": _kind(stat.S_ISREG),
    "g": _bit(stat.S_ISGID),
    "h": _kind(stat.S_ISLNK),
    "k": _bit(stat.S_ISVTX),
    "p": _kind(stat.S_ISFIFO),
    "s": lambda _host, info: info.size > 0,
    "u": _bit(stat.S_ISUID),
    "O": lambda host, info: info.uid == host.system.effective_uid(),
    "G": lambda host, info: info.gid == host.system.effective_gid(),
    "L": _kind(stat.S_ISLNK),
    "S": _kind(stat.S_ISSOCK),
    "N": lambda _host, info: info.mtime > info.atime,
}
_ACCESS = {"r": os.R_OK, "w": os.W_OK, "x": os.X_OK}
_HELP = {
    "a": "exists", "b": "is a block device", "c": "is a character device", "d": "is a directory", "e": "exists",
    "f": "is a regular file", "g": "is set-group-id", "h": "is a symbolic link", "k": "has its sticky bit set",
    "p": "is a named pipe", "r": "is readable", "s": "is not empty", "t": "is the number of an open terminal",
    "u": "is set-user-id", "w": "is writable", "x": "is executable", "O": "is owned by this user",
    "G": "is owned by this group", "L": "is a symbolic link", "S": "is a socket",
    "N": "was changed since it was last read",
}  # fmt: skip


@check(
    "check_file_test",
    *(flag(f"-{letter}", letter, meaning) for letter, meaning in _HELP.items()),
    flag("-!", "negate", "at least one of the tests must be false"),
    rest("files", text, "the files to test", required=True),
    timeout=10,
    on_timeout="crit",
)
def check_file_test(host: Host, files: Sequence[str], negate: bool = False, **given: bool) -> List[Outcome]:
    """Files exist and are what they should be: test(1)'s questions, all of them of every file.

    Options may also follow the files. A file of which nothing can be told for want of permission is
    UNKNOWN; one on a hung file system is CRIT.

    Example: * || check_file_test -O -G -c -r -w /dev/null
    """
    letters = [letter for letter, on in given.items() if on]
    names: List[str] = []
    for argument in files:
        if argument == "-!":
            negate = True
        elif len(argument) > 1 and argument[0] == "-":
            if not all(letter in _HELP for letter in argument[1:]):
                message = f'Syntax error:  Invalid/unsupported operator "{argument}".'
                return [unknown("BadArguments", message)]
            letters.extend(argument[1:])
        else:
            names.append(argument)
    if not letters or not names:
        return [unknown("BadArguments", "Syntax error:  Missing parameters.")]
    outcomes = [_test(host, letter, name) for letter in letters for name in names]
    unsure = [outcome for outcome in outcomes if outcome.verdict is Verdict.UNKNOWN]
    failed = [outcome for outcome in outcomes if outcome.verdict is Verdict.CRIT]
    if not negate:
        return failed or unsure or [ok()]
    if failed or unsure:
        return [ok()] if failed else unsure
    message = f"-{letters[-1]} {names[-1]} returned 0."
    return [crit("FileTestPassed", message, target=names[-1])]


def _test(host: Host, letter: str, file: str) -> Outcome:
    try:
        if letter == "t":
            true = file.isascii() and file.isdigit() and len(file) < 6 and os.isatty(int(file))
        elif letter in _ACCESS:
            true = host.access(file, _ACCESS[letter])
        else:
            true = _TESTS[letter](host, host.stat(file, follow=letter not in "hL"))
    except PermissionError as error:
        return unknown("FileUnreadable", f"-{letter} {file} cannot be told: {error.strerror}", target=file)
    except OSError:  # it does not exist, or its server or disk is gone: test(1) says no to both
        true = False
    return ok(target=file) if true else crit("FileTestFailed", f"-{letter} {file} returned 1.", target=file)
