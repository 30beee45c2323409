"""Recorded machines: all that checks read of a node, stored in a directory, to be judged again anywhere.

`nhc record DIR` runs the checks through a RecordingHost, which writes each file it reads below DIR and each
other answer (a command's output, statvfs, a directory's names) into DIR/answers.json. `Replay` gives the same
answers. So the fault of an unhealthy node becomes a test that runs on a laptop.

A directory holds `machine.json` (name, clock), `answers.json`, `nhc.conf` (the checks that were run, one
a line), `report.json` (the golden report) and the files read, at their own paths below `root/`.
"""

from __future__ import annotations

import json
import os
import stat
from typing import Any, Callable, Dict, FrozenSet, List, Mapping, Optional, Sequence, Tuple, TypeVar, cast

from nhc import __version__
from nhc.core.host import Completed, Filesystem, Host, Stat, System
from nhc.core.model import unknown
from nhc.core.plan import SHELL, SHELL_LINE, UNDECIDED, Plan
from nhc.core.render.plain import decode, encode
from nhc.core.system import written_files, wtmp
from nhc.core.system.bounded_read import parse_json, read_text
from nhc.core.system.process import Look, Watcher
from nhc.node.hosts.redaction import redact_recording, secrets

T = TypeVar("T")
FORMAT = 1


class AnswerRecorder:
    """Appends answers to DIR/answers.jsonl; lines are written whole, so that several worker processes can share it."""

    def __init__(self, directory: str, live_root: str = "/", raw: bool = False) -> None:
        self.directory = directory
        self.raw = raw
        self.live_root = live_root
        self.root = f"{directory}/root"
        self._open()

    def _open(self) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._fd = os.open(f"{self.directory}/answers.jsonl", flags, 0o600)
        self._pid = os.getpid()

    def answer(
        self, question: Sequence[Any], ask: Callable[[], T], plain: Callable[[T], Any] = lambda value: value
    ) -> T:
        """Ask, and store the answer or the OSError."""
        try:
            value = ask()
        except OSError as error:
            named = error.filename
            if isinstance(named, str) and self.live_root != "/" and named.startswith(self.live_root):
                named = named[len(self.live_root) :]
            self._write(question, {"errno": error.errno, "strerror": error.strerror, "filename": named})
            raise
        self._write(question, {"value": plain(value)})
        return value

    def _write(self, question: Sequence[object], answer: Mapping[str, object]) -> None:
        if self._pid != os.getpid():  # a worker has none of its parent's open descriptors
            self._open()
        os.write(self._fd, (json.dumps([list(question), answer]) + "\n").encode())

    def redacted(self, text: str) -> str:
        """A text without its secrets, which are never stored; `finish` rewrites what identifies somebody."""
        if self.raw or not text:
            return text
        if "\0" in text:  # a command line
            return secrets(text.replace("\0", " ")).replace(" ", "\0")
        return secrets(text)

    def keep_file(self, path: str, content: bytes) -> None:
        """Keep a file's content below root/."""
        if path.startswith("/proc/") and path.endswith("/cmdline"):
            content = self.redacted(content.decode(errors="replace")).encode()
        elif path in wtmp.FILES and not self.raw:
            content = wtmp.without_logins(content)
        elif path == wtmp.DATABASE and not self.raw:
            content = wtmp.database_without_logins(content)
        real = self.root + path
        os.makedirs(os.path.dirname(real), exist_ok=True)
        written_files.write_whole(real, content)


class RecordingSystem(System):
    """The live machine, every answer kept."""

    def __init__(self, recorder: AnswerRecorder, live: System) -> None:
        super().__init__(live.root)
        self.recorder = recorder
        self.live = live
        self.time, self.monotonic, self.hostname = live.time, live.monotonic, live.hostname  # type: ignore[method-assign]

    def run(
        self, argv: Sequence[str], timeout: float, stdin: str, env: Mapping[str, str], during: Optional[Look] = None
    ) -> Completed:
        def plain(ended: Completed) -> Any:
            redact = self.recorder.redacted
            kept = [ended.status, redact(ended.stdout), redact(ended.stderr), ended.timed_out]
            return [*kept, ended.signal] if ended.signal else kept

        self.live.report_commands(self.watch)
        return self.recorder.answer(["run", *argv], lambda: self.live.run(argv, timeout, stdin, env, during), plain)

    def ask(self, question: str, answer: Callable[[], Any]) -> Any:
        plain = self._redacted if question.startswith(SHELL_LINE) else lambda value: value
        return self.recorder.answer(["ask", question], lambda: self.live.ask(question, answer), plain)

    def _redacted(self, value: object) -> Any:
        """Outcomes of a shell line, which hold what it printed, without the secrets in them."""
        if isinstance(value, str):
            return self.recorder.redacted(value)
        return [self._redacted(item) for item in value] if isinstance(value, (list, tuple)) else value

    def read_each(self, directory: str, names: Sequence[str], leaf: str) -> Dict[str, Optional[str]]:
        """One answer for each name: two workers list the processes at different times."""
        texts = self.live.read_each(directory, names, leaf)
        for name, text in texts.items():
            kept = self.recorder.redacted(text) if text else text
            self.recorder.answer(["read_each", directory, name, leaf], lambda kept=kept: kept)  # type: ignore[misc]
        return texts


class RecordingHost(Host):
    """A live Host whose answers are kept in a directory. Tests hand it a `root` and `live` system of their own."""

    def __init__(self, directory: str, root: str = "/", live: Optional[System] = None, raw: bool = False) -> None:
        self.recorder = AnswerRecorder(directory, root, raw)
        super().__init__(root, RecordingSystem(self.recorder, live or System(root)))

    def reading(self, parts: Optional[FrozenSet[str]]) -> Host:
        """Itself: a recording keeps all parts of a source, also for checks that do not run now."""
        return self

    def read_bytes(self, path: str, limit: int = 64 << 20) -> bytes:
        content = self.recorder.answer(["read", path], lambda: Host.read_bytes(self, path, limit), lambda _value: None)
        self.recorder.keep_file(path, content)
        return content


def _recorded(name: str) -> Callable[..., Any]:
    """A method that asks the live host or system and keeps its answer."""

    def method(self: Any, *arguments: Any) -> Any:
        live = (
            getattr(self.live, name) if isinstance(self, RecordingSystem) else getattr(super(RecordingHost, self), name)
        )
        return self.recorder.answer([name, *arguments], lambda: live(*arguments))

    return method


def finish(directory: str, plan: Plan, host: Host, name: str, started: Tuple[float, float], raw: bool = False) -> None:
    """Turn the recorder's lines into answers.json and write machine.json and nhc.conf, all redacted unless `raw`."""
    answers: Dict[str, Any] = {}
    with open(f"{directory}/answers.jsonl", encoding="utf-8") as file:
        for line in file:
            question, answer = json.loads(line)
            answers.setdefault(json.dumps(question), answer)  # the first answer is the one the check saw first
    pairs = [[json.loads(question), answers[question]] for question in sorted(answers)]
    machine = {"format": FORMAT, "name": name, "hostname": host.system.hostname(), "time": started[0],
               "monotonic": started[1], "settings": dict(plan.settings), "version": __version__}  # fmt: skip
    lines = configuration(plan)
    if not raw:
        pairs = redact_recording(directory, pairs, machine, lines)
    with open(f"{directory}/answers.json", "w", encoding="utf-8") as file:
        file.write("[\n" + ",\n".join(json.dumps(pair, ensure_ascii=False) for pair in pairs) + "\n]\n")
    os.unlink(f"{directory}/answers.jsonl")
    with open(f"{directory}/machine.json", "w", encoding="utf-8") as file:
        file.write(json.dumps(machine, indent=1, ensure_ascii=False) + "\n")
    with open(f"{directory}/nhc.conf", "w", encoding="utf-8") as file:
        file.write("".join(f"{line}\n" for line in lines))


def configuration(plan: Plan) -> List[str]:
    """A plan as lines of configuration that apply to every node, a line of unknown target as a comment."""
    lines: List[str] = []
    settings: Mapping[str, str] = {}
    for item in plan.items:
        for name, value in item.settings.items():
            if settings.get(name) != value:
                lines.append(f"* || {name}='{value}'")
        settings = item.settings
        options = item.counting()
        options += [f"timeout {item.timeout:g}s"] if item.timeout is not None else []
        options += [f"on-timeout {item.on_timeout}"] if item.on_timeout is not None else []
        options += [f"tags {' '.join(item.tags)}"] if item.tags else []
        bars = f"|{', '.join(options)}|" if options else "||"
        open_target = item.kind == UNDECIDED
        lines.append(f"# not replayed, it could not be read: {item.line}" if open_target else f"* {bars} {item.line}")
    return lines


# Methods whose arguments and answers are JSON's own types (a tuple comes back as a list).
OF_SYSTEM = (
    "which", "stat", "statvfs", "access", "user_name", "user_id", "group_name", "resolve", "connect", "effective_uid",
    "effective_gid", "sysconf", "in_network", "kernel_log", "log_tail",
)  # fmt: skip
# Questions about names in the file system: the recorded tree answers those that were not recorded.
OF_HOST = ("exists", "isdir", "listdir", "peek", "glob", "readlink", "realpath")
for _name in OF_SYSTEM:
    setattr(RecordingSystem, _name, _recorded(_name))
for _name in OF_HOST:
    setattr(RecordingHost, _name, _recorded(_name))


LARGEST = 512 << 20
"""Bytes of a recorded machine's answers."""


class Replay:
    """A recorded machine, read from its directory. Raises OSError or ValueError saying which file is wrong."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.machine = _read_json(f"{directory}/machine.json", dict)
        if self.machine.get("format") != FORMAT:
            raise ValueError(f"{directory}/machine.json: format {self.machine.get('format')!r}, expected {FORMAT}")
        self.machine.setdefault("settings", {})  # one made by hand may have none
        self.machine.setdefault("version", "")  # of nhc; the first ones had it in report.json alone
        for key, kind in _MACHINE.items():
            if not isinstance(self.machine.get(key), kind) or isinstance(self.machine.get(key), bool):
                raise ValueError(f"{directory}/machine.json: {key}: {self.machine.get(key)!r} is not what it has to be")
        _only_files(f"{directory}/root")
        answers = _read_json(f"{directory}/answers.json", list)
        try:
            self.answers = {json.dumps(question): answer for question, answer in answers}
        except (TypeError, ValueError):
            raise ValueError(f"{directory}/answers.json: not a list of [question, answer] pairs") from None
        for question, answer in self.answers.items():
            if not _is_answer(answer):
                raise ValueError(f"{directory}/answers.json: the answer to {question[:80]} is none")

    def plan(self, plan: Plan) -> Plan:
        """A plan in which each line that a shell ran during the recording is a shell line again."""
        items = (
            item._replace(kind=SHELL) if json.dumps(["ask", SHELL_LINE + item.line]) in self.answers else item
            for item in plan.items
        )
        return plan._replace(items=tuple(items))

    def recorded(self, kind: str) -> List[Tuple[str, Dict[str, Any]]]:
        """The objects that were recorded under this kind of question, each with its name."""
        objects: List[Tuple[str, Dict[str, Any]]] = []
        for text, answer in self.answers.items():
            question, value = json.loads(text), answer.get("value")
            plain = isinstance(question, list) and len(question) == 2 and isinstance(question[1], str)
            if plain and question[0] == kind and "/" not in question[1] and isinstance(value, dict):
                objects.append((question[1], value))
        return objects

    def host(self) -> Host:
        """A Host that answers as the recorded machine did."""
        return ReplayHost(self)

    def ask(self, question: Sequence[Any], otherwise: Optional[Callable[[], Any]] = None) -> Any:
        """The recorded answer; an unrecorded question is put to `otherwise`, or is an OSError."""
        answer = self.answers.get(json.dumps(list(question)))
        if answer is None:
            if otherwise is not None:
                return otherwise()
            raise FileNotFoundError(2, "not in the recording", str(question[1] if len(question) > 1 else question[0]))
        if "errno" in answer:
            raise OSError(answer["errno"], answer["strerror"], answer["filename"])
        return answer["value"]


class ReplaySystem(System):
    def __init__(self, replay: Replay) -> None:
        super().__init__(f"{replay.directory}/root")
        self.replay = replay

    def run(
        self, argv: Sequence[str], timeout: float, stdin: str, env: Mapping[str, str], during: Optional[Look] = None
    ) -> Completed:
        if during:
            during()
        try:
            return Completed(*self.replay.ask(["run", *argv]))
        except FileNotFoundError:
            raise FileNotFoundError(2, "no such command", argv[0]) from None

    def report_commands(self, watch: Optional[Watcher]) -> None:
        """Nothing: a replay runs no command."""

    def which(self, command: str) -> Optional[str]:
        return cast(Optional[str], self.replay.ask(["which", command], lambda: None))

    def started(self, program: str, argv: Sequence[str]) -> Tuple[str, List[str]]:
        raise PermissionError(1, "a replay starts nothing", program)

    def ask(self, question: str, answer: Callable[[], Any]) -> Any:
        if question.startswith(SHELL_LINE):
            return self._shell_line(question)
        return self.replay.ask(["ask", question])

    def _shell_line(self, question: str) -> List[Any]:
        """The recorded outcomes of a shell line. It is never run: the sender of the recording may have written it."""
        try:
            return [encode(decode(outcome)) for outcome in self.replay.ask(["ask", question])]
        except (OSError, TypeError, ValueError):
            message = "a replay runs no shell line, and the recording has no outcome of this one"
            return [encode(unknown("NotReplayed", message))]

    def read_each(self, directory: str, names: Sequence[str], leaf: str) -> Dict[str, Optional[str]]:
        texts = {}
        for name in names:
            try:
                texts[name] = cast(Optional[str], self.replay.ask(["read_each", directory, name, leaf]))
            except OSError:  # it was gone then, or was not asked about
                continue
        return texts

    def kill(self, pid: int, started: int, number: int) -> None:
        """Nothing: the process was another machine's."""

    def renice(self, pid: int, nice: int) -> None:
        """Nothing, as for kill."""

    def syslog(self, text: str) -> None:
        """Nothing: it is about another machine."""

    def time(self) -> float:
        return float(self.replay.machine["time"])

    def monotonic(self) -> float:
        return float(self.replay.machine["monotonic"])

    def stat(self, path: str, follow: bool) -> Stat:
        return Stat(*self.replay.ask(["stat", path, follow]))

    def statvfs(self, path: str) -> Filesystem:
        return Filesystem(*self.replay.ask(["statvfs", path]))

    def hostname(self) -> str:
        return str(self.replay.machine["hostname"])

    def in_network(self) -> bool:
        return bool(self.replay.ask(["in_network"], lambda: True))

    def kernel_log(self, after: int) -> List[str]:
        """The recorded records above `after`, which comes from the replay's own memory."""
        asked = [question for question in self.replay.answers if question.startswith('["kernel_log", ')]
        answers = [self.replay.ask(json.loads(question)) for question in asked or [json.dumps(["kernel_log", after])]]
        from nhc.core.system.kernel_ring import number_of

        records = {number_of(str(record)): str(record) for answer in answers for record in answer}
        return [records[number] for number in sorted(records) if number > max(after, -1)]

    def log_tail(self, path: str, offset: int, limit: int) -> List[Any]:
        """The recorded lines from `offset` on; none if that was not recorded."""
        return list(self.replay.ask(["log_tail", path, offset, limit], lambda: ["", offset, 0]))


class ReplayHost(Host):
    """Files come from the recorded tree, names in directories from the recorded answers first."""

    def __init__(self, replay: Replay) -> None:
        self.replay = replay
        settings = {str(k): str(v) for k, v in replay.machine.get("settings", {}).items()}
        super().__init__(f"{replay.directory}/root", ReplaySystem(replay), settings, environ={})

    def path(self, path: str) -> str:
        """Always below the recorded tree, even if a line of the recording holds `..`."""
        return self.root + os.path.normpath(f"/{path.lstrip('/')}")

    def read_bytes(self, path: str, limit: int = 64 << 20) -> bytes:
        self.replay.ask(["read", path], lambda: None)  # an error that was recorded is raised again
        return super().read_bytes(path, limit)


def _replayed(name: str, otherwise: Optional[Callable[..., Any]]) -> Callable[..., Any]:
    """A method that gives the recorded answer, or asks the recorded tree if `otherwise` can."""

    def method(self: Any, *arguments: Any) -> Any:
        fallback = None if otherwise is None else lambda: otherwise(self, *arguments)
        return self.replay.ask([name, *arguments], fallback)

    return method


for _name in OF_SYSTEM:
    if _name not in ReplaySystem.__dict__:
        setattr(ReplaySystem, _name, _replayed(_name, None))
for _name in OF_HOST:
    setattr(ReplayHost, _name, _replayed(_name, getattr(Host, _name)))


_MACHINE: Mapping[str, Any] = {
    "name": str, "hostname": str, "time": (int, float), "monotonic": (int, float), "settings": dict,
    "version": str,
}  # fmt: skip


def _is_answer(answer: Any) -> bool:
    if not isinstance(answer, dict):
        return False
    if "errno" not in answer:
        return "value" in answer
    named = answer.get("filename")
    return isinstance(answer["errno"], int) and isinstance(answer.get("strerror"), str) and (
        named is None or isinstance(named, str)
    )  # fmt: skip


def _only_files(root: str) -> None:
    """A recorded tree holds files and directories; a link could lead out of it, a pipe would never end."""
    for directory, names, files in os.walk(root):
        for name in (*names, *files):
            mode = os.lstat(f"{directory}/{name}").st_mode
            if not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):
                raise ValueError(f"{directory}/{name}: neither a file nor a directory: a recording has nothing else")


def _read_json(path: str, kind: type) -> Any:
    try:
        value = parse_json(read_text(path, LARGEST))
    except ValueError as error:
        raise ValueError(f"{path}: not JSON: {error}") from None
    if not isinstance(value, kind):
        raise ValueError(f"{path}: expected a JSON {'object' if kind is dict else 'array'}")
    return value
