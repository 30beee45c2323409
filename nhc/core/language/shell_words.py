"""A configuration line's words, split as bash would split them, or the finding that only bash can tell.

Most lines of a real nhc.conf are a check's name and plain arguments. Splitting those here is what
keeps bash from being started for them. The rule is one-sided: `split` returns words only where they are
surely bash's own, and None wherever a character might mean something else.
"""

from __future__ import annotations

import re

from nhc.core.light import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import Callable, FrozenSet, List, Optional, Sequence, Tuple

    from typing_extensions import TypeAlias

SETTINGS = (
    "DFI_CMD", "DFI_FLAGS", "DF_CMD", "DF_FLAGS", "HOSTNAME", "HOSTNAME_S", "JOBFILE_PATH", "LOGIN_DEFS_SRC",
    "MAX_SYS_UID", "MCELOG", "MCELOG_ARGS", "MCELOG_MAX_CORRECTED_RATE", "MCELOG_MAX_UNCORRECTED_RATE",
    "MDIAG_CMD", "MOUNT_CMD", "NCCL_TOPO_FILE", "NETSTAT_ARGS", "NETSTAT_CMD", "NHC_AUTH_USERS",
    "NHC_DEEP_EXPECTED", "NHC_DEVICES", "NHC_RM", "NHC_WATCH_ONLY",
    "NVIDIA_HEALTHMON", "NVIDIA_HEALTHMON_ARGS", "NVIDIA_SMI_HEALTHMON", "NVIDIA_SMI_HEALTHMON_ARGS",
    "PASSWD_DATA_SRC", "PATH", "PBS_SERVER_HOME", "RM_DAEMON_MATCH", "SLURMD_NODENAME", "SLURM_SCONTROL", "SLURM_SINFO",
    "SQUEUE_CMD", "SQUEUE_FMT_ARGS", "SQUEUE_NODE", "SS_ARGS", "SS_CMD", "STAT_CMD", "STAT_FMT_ARGS", "TIMEOUT",
)  # fmt: skip
"""The variables that built-in checks read. A check called from a shell line sees the shell's values of these."""

HELPERS = frozenset([
    "array_join", "array_pop", "array_push", "array_shift", "array_split", "array_unshift", "bash_stack_trace",
    "dbg", "die", "eecho", "kill_watchdog", "log", "mcheck", "mcheck_external", "mcheck_glob", "mcheck_range",
    "mcheck_regexp", "nhc_cmd_with_timeout", "nhc_common_get_max_sys_uid", "nhc_common_get_uid",
    "nhc_common_get_unix_time", "nhc_common_get_userid", "nhc_common_load_passwd", "nhc_common_parse_count",
    "nhc_common_parse_passwd_entry", "nhc_common_parse_size", "nhc_common_unparse_count",
    "nhc_common_unparse_size", "nhc_fs_df_gather_data", "nhc_fs_dfi_gather_data",
    "nhc_fs_mounts_gather_data", "nhc_hw_gather_data", "nhc_loadavg_gather_data", "nhc_ps_gather_data",
    "nhc_ps_pid_lineage", "oecho", "syslog", "syslog_flush", "vecho", "vlog",
])  # fmt: skip
"""The functions that our shell defines for site scripts (data/shell.bash)."""


class Scripts(NamedTuple):
    """The site's scripts (`site_scripts.scan`). `text` is all of them; `assignments` are those at the left margin."""

    paths: Tuple[str, ...] = ()
    functions: FrozenSet[str] = frozenset()
    text: str = ""
    assignments: Tuple[str, ...] = ()
    notes: Tuple[str, ...] = ()
    directories: Tuple[str, ...] = ()


NO_SCRIPTS = Scripts()


Lookup: TypeAlias = "Callable[[str], Optional[str]]"
"""The value of a variable, None where it is not known before the run."""

RESERVED = frozenset([
    "!", "{", "}", "[[", "]]", "if", "then", "else", "elif", "fi", "case", "esac", "for", "select", "while",
    "until", "do", "done", "in", "function", "time", "coproc",
])  # fmt: skip

BUILTINS = frozenset([
    ".", ":", "[", "alias", "bg", "bind", "break", "builtin", "caller", "cd", "command", "compgen", "complete",
    "compopt", "continue", "declare", "dirs", "disown", "echo", "enable", "eval", "exec", "exit", "export", "fc",
    "fg", "getopts", "hash", "help", "history", "jobs", "kill", "let", "local", "logout", "mapfile", "popd",
    "printf", "pushd", "pwd", "read", "readarray", "readonly", "return", "set", "shift", "shopt", "source",
    "suspend", "test", "times", "trap", "type", "typeset", "ulimit", "umask", "unalias", "unset", "wait",
])  # fmt: skip
"""bash's own commands. `true` and `false` are left out: the programs of those names do the same."""

# Compiled where they are used, for most configurations need few: compiling costs more than matching.
_RUN = re.compile(r"[^\s'\"\\$`|&;()<>{~\0]+")
_VARIABLE = r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)(?::-([^}$`\"'\\]*))?\})"
_EXPANDS = r"\$[\w{(@*#?$!'\"\[-]"
_IN_DOUBLE = r"[^\"\\$`]+"
_NAME = re.compile(r"[A-Za-z_]\w*=", re.ASCII)
_PLAIN = re.compile(r"[\w@%+=:,./^-]+", re.ASCII)
_BRACE = r"\{[^\s]*(?:,|\.\.)"
_ASSIGNS = r"[A-Za-z_]\w*(?:\[[^]]*\])?\+?="
_DECLARES = r"(?:export|declare|typeset|readonly)(?:\s+-[A-Za-z]+)*\s+(?=[A-Za-z_])"


class Word(NamedTuple):
    """One word. `offset` is where it starts; `literal` counts its first characters that stood outside quotes.

    `glob` says that an unquoted character of it would match file names, were pathname expansion on.
    """

    text: str
    offset: int
    literal: int
    glob: bool = False


class _NeedsShell(Exception):
    """Only bash can say what this means."""


def split(text: str, lookup: Optional[Lookup] = None) -> Optional[List[Word]]:
    """The words of a simple command, a trailing comment dropped; None where it takes a shell to tell.

    Variables are replaced where `lookup` knows them. The list is empty for a blank line or a comment.
    """
    words: List[Word] = []
    at, end = 0, len(text)
    try:
        while at < end:
            if text[at] in " \t":
                at += 1
            elif text[at] == "#":
                if "\n" in text[at:]:
                    return None
                break
            else:
                word, at = _word(text, at, lookup)
                words.append(word)
    except _NeedsShell:
        return None
    if words and words[0].literal == len(words[0].text) and words[0].text in RESERVED:
        return None
    return words


def _word(text: str, at: int, lookup: Optional[Lookup]) -> Tuple[Word, int]:
    begin, end = at, len(text)
    parts: List[str] = []
    length = 0
    literal = -1  # set when the first quote, escape or variable is met
    glob = False
    while at < end:
        char = text[at]
        if char in " \t":
            break
        if char not in "'\"\\$":
            piece, at = _bare(text, at, begin)
            glob = glob or any(c in piece for c in "*?[")
        else:
            if literal < 0:
                literal = length
            if char == "'":
                close = text.find("'", at + 1)
                if close < 0:
                    raise _NeedsShell
                piece, at = text[at + 1 : close], close + 1
            elif char == '"':
                piece, at = _double_quoted(text, at + 1, lookup)
            elif char == "\\":
                if at + 1 >= end or text[at + 1] == "\n":
                    raise _NeedsShell
                piece, at = text[at + 1], at + 2
            else:
                piece, at = _variable(text, at, lookup)
                if piece != "$" and not _PLAIN.fullmatch(piece):
                    raise _NeedsShell  # it would be split into words, or vanish
        parts.append(piece)
        length += len(piece)
    return Word("".join(parts), begin, length if literal < 0 else literal, glob), at


def _bare(text: str, at: int, begin: int) -> Tuple[str, int]:
    """A run of characters outside quotes that mean themselves."""
    char = text[at]
    if char == "{":
        if re.match(_BRACE, text[at:]):
            raise _NeedsShell  # brace expansion
        return char, at + 1
    if char == "~":
        if at == begin or text[at - 1] in "=:":
            raise _NeedsShell  # a home directory
        return char, at + 1
    run = _RUN.match(text, at)
    if run is None:
        raise _NeedsShell  # an operator, a substitution, a line's end
    return run[0], run.end()


def _double_quoted(text: str, at: int, lookup: Optional[Lookup]) -> Tuple[str, int]:
    parts: List[str] = []
    end = len(text)
    while at < end:
        char = text[at]
        if char == '"':
            return "".join(parts), at + 1
        if char == "\\":
            following = text[at + 1 : at + 2]
            if following in ("", "\n"):
                break
            parts.append(following if following in '$`"\\' else char + following)
            at += 2
        elif char == "$":
            piece, at = _variable(text, at, lookup)
            parts.append(piece)
        elif char == "`":
            break
        else:
            run = re.compile(_IN_DOUBLE).match(text, at)
            assert run is not None
            parts.append(run[0])
            at = run.end()
    raise _NeedsShell


def _variable(text: str, at: int, lookup: Optional[Lookup]) -> Tuple[str, int]:
    """The value of the variable at `at`, or a dollar sign that begins none."""
    if not re.compile(_EXPANDS).match(text, at):
        return "$", at + 1
    match = re.compile(_VARIABLE, re.ASCII).match(text, at)
    value = lookup(match[1] or match[2]) if match and lookup else None
    if match is None or value is None:
        raise _NeedsShell
    return value or match[3] or "", match.end()


def assignment(word: Word) -> Optional[Tuple[str, str]]:
    """Name and value where the word is an assignment to a plain variable."""
    match = _NAME.match(word.text)
    if match is None or match.end() > word.literal:
        return None
    return word.text[: match.end() - 1], word.text[match.end() :]


def assigns_only(text: str) -> bool:
    """Whether a shell line does nothing but set variables or define a function, so that it can be run again.

    Its values may run commands (`NODES=$(wc -l < /etc/nodes)`); nothing may follow them.
    """
    text = text.strip()
    if re.match(r"(?:function\s+[\w:.-]+|[\w:.-]+\s*\(\s*\))", text) and text.endswith("}"):
        return True
    declares = re.match(_DECLARES, text)
    assigns = re.compile(_ASSIGNS, re.ASCII)
    at = declares.end() if declares else 0
    seen = False
    while at < len(text):
        if text[at] in " \t;":
            at += 1
            continue
        if text[at] == "#":
            break
        name = assigns.match(text, at)
        if name is None and not (declares and re.compile(r"[A-Za-z_]\w*(?=[\s;]|$)").match(text, at)):
            return False
        stop = _value_end(text, name.end() if name else at)
        if stop < 0:
            return False
        at, seen = stop, True
    return seen


def _value_end(text: str, at: int) -> int:
    """Where the value of an assignment ends: quotes and every kind of bracket are skipped whole. -1 if never."""
    closers: List[str] = []
    pairs = {"(": ")", "{": "}", "[": "]"}
    end = len(text)
    while at < end:
        char = text[at]
        if char == "\\":
            at += 2
            continue
        if char in "'\"`":
            close = at + 1
            while close < end and text[close] != char:
                close += 2 if text[close] == "\\" and char != "'" else 1
            if close >= end:
                return -1
            at = close + 1
            continue
        if closers and char == closers[-1]:
            closers.pop()
        elif char in pairs and (closers or char == "(" or text[at - 1] == "$"):
            closers.append(pairs[char])
        elif not closers:
            if char in " \t;":
                return at
            if char in "|&<>)":
                return -1
        at += 1
    return -1 if closers else end


def quote(argv: Sequence[str]) -> str:
    """Words as one shell line that `split`, and bash, take apart into the same words.

    No backslash is used, so that the line also survives a reader that drops them.
    """
    return " ".join(_quote(word) for word in argv)


def _quote(word: str) -> str:
    if _PLAIN.fullmatch(word):
        return word
    return "''" if not word else '"\'"'.join(f"'{part}'" if part else "" for part in word.split("'"))
