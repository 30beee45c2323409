"""Recorded machines: everything that checks saw of a node, kept in a directory, judged again anywhere.

`nhc record DIR` runs the checks through a RecordingHost, which writes each file it reads below DIR and each
other answer (a command's output, statvfs, a directory's names) into DIR/answers.json. `nhc.node.hosts.replay` gives
the same answers. So the fault of an unhealthy node becomes a test that runs on a laptop.

A directory holds `machine.json` (name, clock), `answers.json`, `nhc.conf` (the checks that were run, one
a line), `report.json` (the golden report) and the files read, at their own paths below `root/`.
"""

from __future__ import annotations

import json
import os
from typing import Any, Callable, Dict, FrozenSet, List, Mapping, Optional, Sequence, Tuple, TypeVar

from nhc import __version__
from nhc.core.host import Completed, Host, System
from nhc.core.plan import SHELL_LINE, UNDECIDED, Plan
from nhc.core.system import written_files, wtmp
from nhc.core.system.process import Look
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
        """Ask, and keep the answer or the OSError."""
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
        if self._pid != os.getpid():  # a worker keeps none of the descriptors that its parent had open
            self._open()
        os.write(self._fd, (json.dumps([list(question), answer]) + "\n").encode())

    def redacted(self, text: str) -> str:
        """A text without its secrets, which are never written down; `finish` rewrites what names somebody."""
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
        """One answer a name: two workers list the processes at different moments."""
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
        """Itself: a recording keeps all parts of a source, for checks that are not of this run."""
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
# Questions about names in the file system: the recorded tree answers what was not asked then.
OF_HOST = ("exists", "isdir", "listdir", "peek", "glob", "readlink", "realpath")
for _name in OF_SYSTEM:
    setattr(RecordingSystem, _name, _recorded(_name))
for _name in OF_HOST:
    setattr(RecordingHost, _name, _recorded(_name))
