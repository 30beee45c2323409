"""Whether a user can enter, list and write in directories of the node."""

from __future__ import annotations

from nhc.core.check import Judged, check, flag, opt, rest
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Outcome, crit, ok, unknown
from nhc.core.units import text
from nhc.node.facts.users import Account, NoAccount, NoGroups, account, obstacle

if TYPE_CHECKING:
    from typing import List, Optional, Sequence

_TESTS = {"-r": "read", "-w": "write in", "-x": "enter"}


@check(
    "check_user_paths",
    opt("-u --user", "name", text, "the user, by name or number"),
    flag("-r --read", "read", "the user must be able to list them too"),
    flag("-w --write", "write", "the user must be able to write in them too"),
    rest("paths", text, "directories; '~', in quotes, is the user's home", required=True),
    timeout=40,
    every=300,
)
def check_user_paths(
    host: Host, paths: Sequence[str], name: Optional[str] = None, read: bool = False, write: bool = False
) -> Judged:
    """A user can enter the directories that jobs need.

    Asks the kernel as that user, with the user's groups (setpriv(1) and test(1)), so that access control lists, a
    server's own rules and root_squash count: root may be let in nowhere on NFS where the user is, and the
    reverse. CRIT where the user is kept out, with the directory whose mode is in the way where one shows; CRIT
    where a path does not exist or does not answer, where the name service does not know the user. Name a user
    that stands for all, as nobody or a test account. UNKNOWN without root or setpriv, and where the
    user's groups are not told.

    Example: * || check_user_paths -u testuser -w '~' /scratch /apps
    """
    if not name:
        return unknown("BadArguments", "needs -u USER")
    try:
        user = account(host, name)
    except NoAccount as error:
        return crit("NoSuchUser", str(error), target=name)
    except NoGroups as error:
        return unknown("PathUntold", f"the groups of {name} cannot be told: {error}", target=name)
    except OSError as error:
        return unknown("CommandMissing", f"{error.filename}: {error.strerror}")
    mine = host.system.effective_uid()
    if mine != 0 and mine != user.uid:
        return unknown("NotPermitted", f"only root can tell what {user.name} may enter")
    if mine == 0 and not host.which("setpriv"):
        return unknown("CommandMissing", "setpriv (of util-linux) is not installed")
    wanted = ["-x", *(["-r"] if read else []), *(["-w"] if write else [])]
    home = user.home.rstrip("/")
    places = [home + each[1:] if each == "~" or each.startswith("~/") else each for each in paths]
    outcomes = [outcome for outcome in (_judge(host, user, place, wanted, mine == 0) for place in places) if outcome]
    return outcomes or ok(f"{user.name} can enter {', '.join(places)}")


def _judge(host: Host, user: Account, path: str, wanted: Sequence[str], switch: bool) -> Optional[Outcome]:
    become = ["setpriv", f"--reuid={user.uid}", f"--regid={user.gid}", *_groups(user), "--"] if switch else []
    for question in ("-d", *wanted):
        try:
            ended = host.run([*become, "test", question, path], timeout=8)
        except OSError as error:
            return unknown("CommandMissing", f"{error.filename}: {error.strerror}", target=path)
        if ended.timed_out:
            return crit("PathHangs", f"{path} does not answer {user.name} within 8 s", target=path)
        if ended.status > 1:
            message = f"{path} cannot be tried as {user.name}: {ended.complaint}"
            return unknown("PathUntold", message, target=path)
        if ended.status:
            return _kept_out(host, user, path, question)
    return None


def _groups(user: Account) -> List[str]:
    return ["--groups=" + ",".join(map(str, sorted(user.groups)))] if user.groups else ["--clear-groups"]


def _kept_out(host: Host, user: Account, path: str, question: str) -> Outcome:
    """CRIT, with what is in the way as far as it shows."""
    try:
        where = obstacle(host, user, path)
    except FileNotFoundError:
        return crit("PathMissing", f"{path} does not exist", target=path)
    except NotADirectoryError:
        return crit("PathMissing", f"{path} is no directory", target=path)
    except OSError:
        where = None  # root may not look: the server maps it to nobody
    verb = _TESTS.get(question, "reach")
    return crit("PathClosed", f"{user.name} cannot {verb} {path}" + (f": {where}" if where else ""), target=path)
