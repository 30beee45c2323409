"""What the user's ssh_config says of a host: paramiko reads and matches it, `Include` is ours.

Files are read as OpenSSH reads them: ~/.ssh/config, then /etc/ssh/ssh_config, the first value of each option
counts; a file named by the user is the only one.
"""

from __future__ import annotations

import getpass
import glob
import os
import re
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from nhc.core.system.bounded_read import read_text
from nhc.fleet.ssh.paramiko_import import paramiko_config
from nhc.fleet.transport import Node, Trouble

USER_FILE = "~/.ssh/config"
SYSTEM_FILE = "/etc/ssh/ssh_config"
DEFAULT_IDENTITIES = ("id_rsa", "id_ecdsa", "id_ed25519")
DEEPEST = 16
"""Includes within includes, as in OpenSSH."""


class Route(NamedTuple):
    """How to reach one host."""

    host: str
    port: int
    user: str
    known_as: str
    """The name in known_hosts."""
    identities: Tuple[str, ...] = ()
    identities_only: bool = False
    agent: str = ""
    """The agent's socket, "" for $SSH_AUTH_SOCK, "none" for no agent."""
    user_known_hosts: Tuple[str, ...] = ()
    global_known_hosts: Tuple[str, ...] = ()
    accept_new: bool = False
    jumps: Tuple[str, ...] = ()
    proxy_command: str = ""
    kex: str = ""
    ciphers: str = ""


_paramiko = paramiko_config()


class _Config(_paramiko.SSHConfig):  # type: ignore[name-defined,misc,unused-ignore]
    """Expands what has something to expand: paramiko asks the resolver for our own name at every value."""

    def _tokenize(self, config: Any, target_hostname: str, key: str, value: str) -> Any:
        if "%" not in value and "~" not in value:
            return value
        return super()._tokenize(config, target_hostname, key, value)


class SshConfig:
    """The configuration, read once; `lookup` may be called from any thread."""

    def __init__(self, path: Optional[str] = None) -> None:
        files = [path] if path else [os.path.expanduser(USER_FILE), SYSTEM_FILE]
        lines: List[str] = []
        for file in files:
            if path or os.path.isfile(file):
                lines += ["Host *", *_lines(file, os.path.dirname(os.path.expanduser(file)) or ".")]
        try:
            self.config: Any = _Config.from_text("\n".join(lines) + "\n")
        except (_paramiko.ConfigParseError, ValueError) as error:
            raise ValueError(f"{' and '.join(files)}: {error}") from None
        try:
            self.user = getpass.getuser()
        except (KeyError, OSError, ImportError):  # a number without a name, as in containers
            self.user = ""
            os.environ.setdefault("LOGNAME", str(os.getuid()))  # paramiko asks again, where it knows no user

    def lookup(self, node: Node) -> Route:
        """The route to a node: what its source says first, then the configuration. Raises Trouble."""
        return self._route(node.target, node.user, node.port, [node.identity] if node.identity else [])

    def hop(self, text: str) -> Route:
        """The route to a jump host as ProxyJump names it: [user@]host[:port] or ssh://..."""
        rest = text.strip().partition("ssh://")[2] or text.strip()
        user, _, place = rest.rpartition("@")
        bracketed = re.fullmatch(r"\[([^\]]+)\](?::(\d+))?|([^:]+)(?::(\d+))?", place.rstrip("/"))
        if bracketed is None:
            raise Trouble("BadSshConfig", f"ProxyJump {text!r} is not [user@]host[:port]")
        host, port = bracketed[1] or bracketed[3], bracketed[2] or bracketed[4]
        return self._route(host, user, int(port or 0), [])

    def _route(self, host: str, user: str, port: int, identities: Sequence[str]) -> Route:
        try:
            options: Dict[str, Any] = self.config.lookup(host)
            login = user or options.get("user") or self.user
            if not login:
                raise Trouble(
                    "BadSshConfig", f"{host}: user {os.getuid()} has no name here: say whom to log in as (-u)"
                )
            return _route(host, login, port, identities, options)
        except Trouble:
            raise
        except Exception as error:  # whatever a Match line or a token makes paramiko raise
            raise Trouble("BadSshConfig", f"ssh_config for {host}: {error}") from None


def _route(host: str, user: str, port: int, identities: Sequence[str], options: Dict[str, Any]) -> Route:
    name = options.get("hostname") or host
    port = port or int(options.get("port") or 22)
    alias = options.get("hostkeyalias")
    jump = options.get("proxyjump") or ""
    # Tokens that paramiko leaves as they are.
    tokens = {"%n": host, "%p": str(port), "%k": str(alias or name), "%%": "%"}
    given = [_expand(str(path), tokens) for path in options.get("identityfile", [])]
    own = [os.path.expanduser(path) for path in (*identities, *given)]
    if not own:
        own = [os.path.expanduser(f"~/.ssh/{file}") for file in DEFAULT_IDENTITIES]
    return Route(
        host=name,
        port=port,
        user=user,
        known_as=alias or (name if port == 22 else f"[{name}]:{port}"),
        identities=tuple(dict.fromkeys(own)),
        identities_only=options.get("identitiesonly", "no").lower() == "yes",
        agent=_agent(options.get("identityagent", "")),
        user_known_hosts=_files(options.get("userknownhostsfile", "~/.ssh/known_hosts ~/.ssh/known_hosts2")),
        global_known_hosts=_files(
            options.get("globalknownhostsfile", "/etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2")
        ),
        accept_new=options.get("stricthostkeychecking", "ask").lower() in ("accept-new", "no", "off"),
        jumps=() if jump.lower() in ("", "none") else tuple(hop for hop in jump.split(",") if _is_other(hop, name)),
        proxy_command="" if (options.get("proxycommand") or "none").lower() == "none" else options["proxycommand"],
        kex=options.get("kexalgorithms", ""),
        ciphers=options.get("ciphers", ""),
    )


def _expand(text: str, tokens: Dict[str, str]) -> str:
    return re.sub("%.", lambda token: tokens.get(token[0], token[0]), text)


def _is_other(hop: str, host: str) -> bool:
    """Whether a hop is another host: `Host *` with a ProxyJump is about the jump host as well."""
    return hop.rpartition("@")[2].partition(":")[0] != host


def _agent(text: str) -> str:
    if text == "SSH_AUTH_SOCK":
        return ""
    if text.startswith("$"):
        return os.environ.get(text[1:], "none")
    return os.path.expanduser(text)


def _files(text: str) -> Tuple[str, ...]:
    return tuple(os.path.expanduser(path) for path in text.split() if path.lower() != "none")


def _lines(path: str, base: str, within: str = "", depth: int = 0) -> List[str]:
    """A file's lines with its includes in place.

    What an Include inside a block brings counts only where that block does: `within` holds the block's criteria, as a
    Match line has them, and every block below is held to them as well. The block itself goes on after the Include.
    """
    if depth > DEEPEST:
        raise ValueError(f"{path}: included too deep")
    try:
        text = read_text(path, errors="surrogateescape").splitlines()
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from None
    lines: List[str] = []
    criteria = within
    for line in text:
        statement = re.match(r"\s*(host|match|include)[\s=]+(.*\S)", line, re.IGNORECASE)
        if statement is None:
            lines.append(line)
        elif statement[1].lower() != "include":
            criteria = f"{within} {_criteria(statement[1], statement[2])}".strip()
            lines.append(f"Match {criteria}" if within and criteria else line)
        else:
            for pattern in statement[2].split():
                named = os.path.join(base, os.path.expanduser(pattern.strip('"')))
                for name in sorted(glob.glob(named)):
                    lines += [*_lines(name, base, criteria, depth + 1), f"Match {criteria or 'all'}"]
    return lines


def _criteria(keyword: str, rest: str) -> str:
    """What a Host or Match line asks for, as a Match line says it: "" for everything."""
    if keyword.lower() == "match":
        return "" if rest.lower() == "all" else rest
    names = rest.partition(" #")[0].split()
    return "" if names == ["*"] else f"originalhost {','.join(names)}"
