"""Mounts: what is mounted where, its source and options. Repairs run only if an option asks for one.

Only /proc/mounts is read, so that a hung file system cannot delay the check. Two things are accessed: an automount
(-F), to make it mount, and a path whose mount is missing.
"""

from __future__ import annotations

from nhc.core.check import Param, check, flag, opt, rest
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.core.matching.nodeset import mcheck
from nhc.core.model import Outcome, Verdict, crit, ok, unknown, warn
from nhc.core.units import text
from nhc.node.facts.mounts import MOUNTS, Mount, at, escape, mounts, parse_mounts, unescape

if TYPE_CHECKING:
    from typing import Any, List, Optional, Sequence, Tuple

_RW = "/(^|,)rw($|,)/"
_RO = "/(^|,)ro($|,)/"
_OPTION = {_RW: "rw", _RO: "ro"}

_PARAMS: Tuple[Param, ...] = (
    opt("-f", "filesystems", text, "where a file system must be mounted (may repeat)", many=True),
    opt("-F", "automounts", text, "the same for an automounted one, which is made to mount first", many=True),
    opt("-s", "sources", text, "match string for what is mounted (device or server:/path; may repeat)", many=True),
    opt("-t", "types", text, "match string for the type (may repeat)", many=True),
    opt("-o", "options", text, "match string for the mount options as one text (may repeat)", many=True),
    flag("-0", "nonfatal", "a missing or wrong mount is WARN, not CRIT"),
    flag("-r", "remount", "mount what is missing, remount what is wrong, in the background", changes=True),
    opt("-O", "mount_options", text, "options for that mount command", ""),
    opt(
        "-e",
        "missing_action",
        text,
        "bash command to run in the background for each missing or wrong mount",
        "",
        changes=True,
    ),
    opt(
        "-E",
        "found_action",
        text,
        "bash command to run in the background for each mount that is right",
        "",
        changes=True,
    ),
    rest("words", text, "more mount points; or without any option: mountpoint [source [type [options]]]"),
)


class MountRequest(NamedTuple):
    """The arguments of one line; the names are those of the parameters above."""

    filesystems: Sequence[str] = ()
    automounts: Sequence[str] = ()
    sources: Sequence[str] = ()
    types: Sequence[str] = ()
    options: Sequence[str] = ()
    nonfatal: bool = False
    remount: bool = False
    mount_options: str = ""
    missing_action: str = ""
    found_action: str = ""
    words: Sequence[str] = ()

    def positional(self) -> MountRequest:
        """The request with its arguments assigned: in the old form, all but the first are match strings."""
        words = list(self.words)
        if any(self[:-1]) or not words or not words[0].startswith("/"):
            return self._replace(filesystems=[*self.filesystems, *filter(None, words)], words=())
        if len(words) > 4:
            raise ValueError(f"unexpected argument {words[4]!r} (takes mountpoint [source [type [options]]])")
        source, kind, options = ([word] if word else [] for word in [*words[1:], "", "", ""][:3])
        return MountRequest([words[0]], sources=source, types=kind, options=options)


class MountFault(NamedTuple):
    """What is wrong with a mount. `message` is LBNL NHC's."""

    reason: str
    message: str


@check("check_fs_mount", *_PARAMS, timeout=5, on_timeout="crit")
def check_fs_mount(host: Host, **given: Any) -> List[Outcome]:
    """File systems are mounted, from the right source, with the right type and options.

    Reads /proc/mounts; several match strings of a kind must all match. Of several mounts at one place the
    last one counts, as it covers the others. With -F a path below the mount point is looked up first, so
    that the automounter mounts it; its own `autofs` entry does not count as the mount.
    -r runs `$MOUNT_CMD` (mount) with the options of -O; with -r or -e a missing directory is made.

    Example: * || check_fs_mount -s bluearc1:/global/home -t nfs -o '*hard*' -f /home
    """
    return _judge(host, MountRequest(**given))


@check("check_fs_mount_rw", *_PARAMS, timeout=5, on_timeout="crit")
def check_fs_mount_rw(host: Host, **given: Any) -> List[Outcome]:
    """File systems are mounted read-write.

    As check_fs_mount, and the options must hold `rw`: a disk or server error that made the kernel
    remount a file system read-only shows here.

    Example: * || check_fs_mount_rw -t 'ext*' -f /
    """
    return _judge(host, MountRequest(**given), _RW)


@check("check_fs_mount_ro", *_PARAMS, timeout=5, on_timeout="crit")
def check_fs_mount_ro(host: Host, **given: Any) -> List[Outcome]:
    """File systems are mounted read-only.

    As check_fs_mount, and the options must hold `ro`.

    Example: * || check_fs_mount_ro -f /global/software
    """
    return _judge(host, MountRequest(**given), _RO)


def _judge(host: Host, request: MountRequest, option: str = "") -> List[Outcome]:
    try:
        request = request.positional()
    except ValueError as error:
        return [unknown("BadArguments", str(error))]
    if option:
        request = request._replace(options=[option, *request.options])
    request = request._replace(automounts=[unescape(point) for point in request.automounts])
    points = [*map(unescape, request.filesystems), *request.automounts]
    if not points:
        return [unknown("BadArguments", "names no mount point")]
    for point in request.automounts:
        try:
            host.stat(f"{point.rstrip('/')}/.")  # stat(2) of the point itself mounts nothing: AT_NO_AUTOMOUNT
        except OSError:
            pass  # /proc/mounts shows whether it worked
    mounted = parse_mounts(host.read(MOUNTS)) if request.automounts else host.fact(mounts)
    outcomes = [_judge_one(host, request, point, mounted) for point in points]
    bad = [outcome for outcome in outcomes if outcome.verdict is not Verdict.OK]
    return bad or [ok(f"{', '.join(points)} mounted")]


def _judge_one(host: Host, request: MountRequest, point: str, mounted: Sequence[Mount]) -> Outcome:
    if point in request.automounts:
        # The automounter's own entry stays there when the server is down: it is no mount.
        mounted = [mount for mount in mounted if mount.type != "autofs"]
    mount = at(mounted, point)
    fault = _mismatch(request, point, mount) if mount else MountFault("FilesystemNotMounted", f"{point} not mounted")
    if fault is None:
        if request.found_action:
            _start(host, ["bash", "-c", request.found_action])
        return ok(target=point)
    message = fault.message
    evidence = [" ".join(mount)] if mount else []
    if mount is None and not host.isdir(point):
        message += f"; directory {point} missing"
        if (request.remount or request.missing_action) and _make_directory(host, point):
            message += " (auto-fixed)"
    if request.remount:
        evidence.append(_start(host, _mount_command(host, request, point, again=mount is not None)))
    if request.missing_action:
        evidence.append(_start(host, ["bash", "-c", request.missing_action]))
    if request.nonfatal:
        return warn(fault.reason, f"{message} (non-fatal)", target=point, evidence=tuple(evidence))
    return crit(fault.reason, message, target=point, evidence=tuple(evidence))


def _mismatch(request: MountRequest, point: str, mount: Mount) -> Optional[MountFault]:
    for reason, patterns, value, message in (
        ("MountSourceMismatch", request.sources, mount.source, f"{point} mounted from {mount.source}"),
        ("MountTypeMismatch", request.types, mount.type, f"{point} has incorrect type {mount.type}"),
        ("MountOptionsMismatch", request.options, mount.options, f"{point} mount options incorrect"),
    ):
        for pattern in patterns:
            if _fits(value, pattern):
                continue
            should = f"NOT match {pattern[1:]}" if pattern.startswith("!") else f"match {pattern}"
            fell_back = pattern == _RW and mount.read_only
            return MountFault("FilesystemReadOnly" if fell_back else reason, f"{message} (should {should})")
    return None


def _fits(value: str, pattern: str) -> bool:
    """As `mcheck`; our own two patterns without `re`, which would cost more than the whole check."""
    option = _OPTION.get(pattern)
    if option is not None:
        return option in value.split(",")
    if "\\" not in pattern and escape(value) == value:
        return mcheck(value, pattern)
    # A blank is `\040` for who looks at /proc/mounts, as LBNL NHC does, and a blank for who looks at the name.
    negated = pattern.startswith("!")
    patterns = (pattern[negated:], unescape(pattern[negated:]))
    return any(mcheck(text, form) for text in (value, escape(value)) for form in patterns) != negated


def _make_directory(host: Host, point: str) -> bool:
    try:
        return host.act(["mkdir", "-p", "-m", "0755", point], timeout=2).status == 0
    except OSError:
        return False


def _mount_command(host: Host, request: MountRequest, point: str, again: bool) -> List[str]:
    options = ",".join(filter(None, ("remount" if again else "", request.mount_options)))
    command = (host.setting("MOUNT_CMD") or "mount").split()
    return [*command, *(["-o", options] if options else []), point]


def _start(host: Host, argv: Sequence[str]) -> str:
    """Start a command without waiting for it, and report that. The next run shows whether it worked, as in LBNL NHC."""
    command = " ".join(argv)
    if host.which(argv[0]) is None:
        return f"not started, there is no {argv[0]}: {command}"
    try:
        ended = host.start(argv, timeout=2)
    except OSError as error:
        return f"not started ({error.strerror}): {command}"
    return f"not started (sh returned {ended.status}): {command}" if ended.status else f"started: {command}"
