"""A recorded machine (`nhc.node.hosts.recording`) that answers again: what was asked then, and nothing else."""

from __future__ import annotations

import json
import os
import stat
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, cast

from nhc.core.host import Completed, Filesystem, Host, Stat, System
from nhc.core.model import unknown
from nhc.core.plan import SHELL, SHELL_LINE, Plan
from nhc.core.render.plain import decode, encode
from nhc.core.system.bounded_read import parse_json, read_text
from nhc.core.system.process import Look, Watcher
from nhc.node.hosts.recording import FORMAT, OF_HOST, OF_SYSTEM

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
        """A plan with each line that a shell ran when the machine was recorded as such a line again."""
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
        """Of all records that were recorded those above `after`: where a replay's memory stands is another matter."""
        asked = [question for question in self.replay.answers if question.startswith('["kernel_log", ')]
        answers = [self.replay.ask(json.loads(question)) for question in asked or [json.dumps(["kernel_log", after])]]
        from nhc.core.system.kernel_ring import number_of

        records = {number_of(str(record)): str(record) for answer in answers for record in answer}
        return [records[number] for number in sorted(records) if number > max(after, -1)]

    def log_tail(self, path: str, offset: int, limit: int) -> List[Any]:
        """What was recorded from `offset` on; nothing further where that was not asked."""
        return list(self.replay.ask(["log_tail", path, offset, limit], lambda: ["", offset, 0]))


class ReplayHost(Host):
    """Files come from the recorded tree, names in directories from the recorded answers first."""

    def __init__(self, replay: Replay) -> None:
        self.replay = replay
        settings = {str(k): str(v) for k, v in replay.machine.get("settings", {}).items()}
        super().__init__(f"{replay.directory}/root", ReplaySystem(replay), settings, environ={})

    def path(self, path: str) -> str:
        """Below the recorded tree, whatever `..` a line of the recording's holds."""
        return self.root + os.path.normpath(f"/{path.lstrip('/')}")

    def read_bytes(self, path: str, limit: int = 64 << 20) -> bytes:
        self.replay.ask(["read", path], lambda: None)  # an error that was recorded is raised again
        return super().read_bytes(path, limit)


def _replayed(name: str, otherwise: Optional[Callable[..., Any]]) -> Callable[..., Any]:
    """A method that gives the recorded answer, or asks the recorded tree where `otherwise` can."""

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
