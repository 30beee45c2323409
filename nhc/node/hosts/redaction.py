"""Replaces what a recording must not show, everywhere in the same way, so that it can be attached to a bug report.

Secrets are removed. What identifies a machine or a person (hosts, users, addresses, serial numbers, UUIDs) gets another
name, the same one in every file, answer and line of configuration: a replay finds what it looks for, and gives the same
verdicts. docs/extending.md lists what is replaced, and by what.
"""

from __future__ import annotations

import os
import re
from typing import Any, Callable, Dict, Iterator, List, Match, Sequence, Tuple

CUT = "[redacted]"

_SECRET = re.compile(r"(?i)((?:pass(?:word|wd|phrase)?|secret|token|api[-_]?key|credential)s?\s*[=: ]\s*)(\S+)")
_TOKEN = re.compile(
    r"(?<=://)[^/\s:@]+:[^/\s@]+(?=@)|(?<=[Bb]earer )[^\s\"']+|\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|\bgh[pousr]_\w{20,}"
    r"|\beyJ[\w-]{8,}\.[\w-]+\.[\w-]+|\bglpat-[\w-]{20,}|\bxox[abp]-[\w-]{10,}|\bhf_\w{20,}"
)

_MAC = re.compile(r"(?<![\w:.-])[0-9A-Fa-f]{2}(?:([:-])[0-9A-Fa-f]{2})(?:\1[0-9A-Fa-f]{2}){4,18}(?![\w:-])")
_GUID = re.compile(r"(?<![\w:])[0-9a-f]{4}(?::[0-9a-f]{4}){3}(?![\w:])")
_GUID_NUMBER = re.compile(r"\b0x[0-9a-f]{16}\b")
_V4 = re.compile(r"(?<![\w.-])(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})(?![\w-]|\.\w)")
_V6 = re.compile(r"(?<![\w:.])(?=[0-9A-Fa-f:]*:[0-9A-Fa-f:]*:)[0-9A-Fa-f:]{4,39}(?![\w:.])")
_UUID = re.compile(r"(?i)(?<![0-9a-f])[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}(?![0-9a-f])|\b[0-9a-f]{32}\b")
_KERNEL_V4 = re.compile(r"\b[0-9A-F]{8}(?=:[0-9A-F]{4}\b)")
_KERNEL_V6 = re.compile(r"\b[0-9A-F]{32}(?=:[0-9A-F]{4}\b)")
_SERIAL = re.compile(r"(?i)\"?(?:serial[ _]?(?:number|no\.?)?|asset[ _]tag|wwid|wwn)\"?[ \t]*[:=][ \t]*\"?([\w./-]+)")
_SERIAL_FILE = re.compile(r"(?:serial|asset_tag|wwid|wwn)$")
_MOUNTED_FROM = re.compile(r"(?m)^([A-Za-z][\w.-]*):/")

_PUBLIC = frozenset(["7783-7084-3265-9085-8269-3286-77"])
"""The asset tag by which every Azure machine is known."""
_WORDS = frozenset([
    "compute", "debian", "default", "kernel", "localhost", "master", "munge", "python", "root", "scratch", "server",
    "slurm", "storage", "system", "ubuntu",
])  # fmt: skip
"""Names of hosts and users that are common words and identify nobody."""


def secrets(text: str) -> str:
    """`text` without the values of what looks like secrets: command lines hold them surprisingly often."""
    return _TOKEN.sub(CUT, _SECRET.sub(rf"\1{CUT}", text))


class Redactor:
    """First `learn` every text of the recording, then get each one's `text`."""

    def __init__(self) -> None:
        self._names: Dict[str, str] = {}  # words: hosts, users, serial numbers
        self._counts: Dict[str, int] = {}
        self._seen: Dict[Tuple[str, Any], int] = {}
        self._pattern = re.compile(r"(?!)")
        self._guids: Dict[int, int] = {}

    def learn_host(self, name: str) -> None:
        """A machine's name; a full one also tells the site's domain."""
        short, _, domain = name.partition(".")
        self._name(short, "node")
        self._name(domain, "site")

    def learn_user(self, name: str, uid: int) -> None:
        if 1000 <= uid < 65534 and not name.isdigit():
            self._name(name, "user")

    def learn(self, path: str, text: str) -> None:
        """Collect the serial numbers and the servers' names in a file (`path`), or in any other text."""
        serials = _SERIAL.findall(text)
        if _SERIAL_FILE.search(path):
            serials.append(text.strip())
        for serial in serials:
            if len(serial) >= 5 and len(set(serial)) > 2 and any(map(str.isdigit, serial)) and serial not in _PUBLIC:
                number = self._number("serial", serial)
                mask = "9" if serial.isdigit() else "S"
                self._names.setdefault(serial, mask + str(number).zfill(len(serial) - 1)[-len(serial) + 1 :])
        for server in _MOUNTED_FROM.findall(text) if path.endswith(("mounts", "mountinfo", "fstab")) else ():
            self.learn_host(server)
        for guid in _GUID.findall(text):
            self._guid(int(guid.replace(":", ""), 16))

    def learned(self) -> None:
        """All has been learned: from here on texts are rewritten."""
        longest = sorted(self._names, key=len, reverse=True)
        alternatives = "|".join(map(re.escape, longest))
        self._pattern = re.compile(
            rf"(?<![A-Za-z0-9_-])(?:{alternatives})(?![A-Za-z0-9_-])" if alternatives else r"(?!)"
        )

    def text(self, text: str, path: str = "") -> str:
        """`text` as it may be shown; `path` is the file that it is the content of."""
        if path.endswith("/environ"):
            return "\0".join(f"{entry.partition('=')[0]}={CUT}" if entry else "" for entry in text.split("\0"))
        if re.fullmatch(r"/proc/(?:\d+/|self/)?net/\w+", path):
            text = _KERNEL_V6.sub(lambda m: self._swapped(m[0], self._v6_bytes), text)
            text = _KERNEL_V4.sub(lambda m: self._swapped(m[0], self._v4_bytes), text)
        if any(ord(char) < 9 and char != "\0" for char in text[:4096]):  # no text: only what keeps its length
            return self._pattern.sub(lambda m: self._names[m[0]] if len(self._names[m[0]]) == len(m[0]) else m[0], text)
        text = secrets(text)
        text = self._pattern.sub(lambda m: self._names[m[0]], text)
        text = _UUID.sub(self._uuid, text)
        text = _V6.sub(self._v6, text)
        text = _MAC.sub(self._mac, text)
        text = _GUID.sub(lambda m: _colons(self._guid(int(m[0].replace(":", ""), 16))), text)
        text = _GUID_NUMBER.sub(self._guid_number, text)
        return _V4.sub(self._v4, text)

    def value(self, value: object) -> Any:
        """Plain JSON with every text in it rewritten."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self.value(item) for item in value]
        if isinstance(value, dict):
            return {self.text(key): self.value(item) for key, item in value.items()}
        return value

    def _name(self, name: str, kind: str) -> None:
        plain = name.isalpha() and name.isascii() and kind != "user"
        if len(name) < (6 if plain else 3) or name.lower() in _WORDS or name in self._names:
            return
        self._names[name] = f"{kind}{self._number(kind, name)}" + (".example" if kind == "site" else "")

    def _number(self, kind: str, value: object) -> int:
        """1 for the first value of a kind, 2 for the next; the same value has the same number again."""
        if (kind, value) not in self._seen:
            self._counts[kind] = self._seen[kind, value] = self._counts.get(kind, 0) + 1
        return self._seen[kind, value]

    def _uuid(self, match: Match[str]) -> str:
        plain = match[0].replace("-", "").lower()
        if len(set(plain)) < 4:
            return match[0]
        made = f"{'0' * 12}4{'0' * 3}8{self._number('uuid', plain):015d}"
        if "-" not in match[0]:
            return made
        return "-".join((made[:8], made[8:12], made[12:16], made[16:20], made[20:]))

    def _mac(self, match: Match[str]) -> str:
        plain = match[0].lower().replace("-", ":")
        if plain.strip("0:") == "" or plain.strip("f:") == "":
            return match[0]
        size = len(plain.split(":"))
        made = bytes([2]) + self._number("mac", plain).to_bytes(size - 1, "big")
        return (match[1] or ":").join(f"{byte:02x}" for byte in made)

    def _guid(self, value: int) -> int:
        """An InfiniBand GUID, which is also the lower half of a GID."""
        if value in (0, 1) or value >> 8 == 0:
            return value
        return self._guids.setdefault(value, (2 << 56) + self._number("guid", value))

    def _guid_number(self, match: Match[str]) -> str:
        value = int(match[0], 16)
        return f"0x{self._guids[value]:016x}" if value in self._guids else match[0]

    def _v4_bytes(self, packed: bytes) -> bytes:
        """Another network of 10.0.0.0/8 for each /24; the last byte stays, so that neighbours are neighbours."""
        if packed[0] in (0, 127, 255) or packed[0] >= 224 or packed[:2] == b"\xa9\xfe":
            return packed
        return bytes([10]) + self._number("net", packed[:3]).to_bytes(2, "big") + packed[3:]

    def _v4(self, match: Match[str]) -> str:
        parts = list(map(int, match.groups()))
        return ".".join(map(str, self._v4_bytes(bytes(parts)))) if max(parts) < 256 else match[0]

    def _v6_bytes(self, packed: bytes) -> bytes:
        if packed[:12] == bytes(10) + b"\xff\xff":
            return packed[:12] + self._v4_bytes(packed[12:])
        if packed[:15] == bytes(15) or packed[0] == 0xFF:
            return packed
        prefix = packed[:8] if packed[0] == 0xFE or packed[:8] == bytes(8) else b"\x20\x01\x0d\xb8" + bytes(4)
        return prefix + self._guid(int.from_bytes(packed[8:], "big")).to_bytes(8, "big")

    def _v6(self, match: Match[str]) -> str:
        import ipaddress

        try:
            address = ipaddress.IPv6Address(match[0])
        except ValueError:
            return match[0]
        made = ipaddress.IPv6Address(self._v6_bytes(address.packed))
        return made.exploded if match[0] == address.exploded else made.compressed

    @staticmethod
    def _swapped(digits: str, change: Callable[[bytes], bytes]) -> str:
        """An address as /proc/net writes it: words of four bytes in the machine's own order."""
        words = [bytes.fromhex(digits[at : at + 8])[::-1] for at in range(0, len(digits), 8)]
        made = change(b"".join(words))
        return b"".join(made[at : at + 4][::-1] for at in range(0, len(made), 4)).hex().upper()


def _colons(value: int) -> str:
    digits = f"{value:016x}"
    return ":".join(digits[at : at + 4] for at in range(0, 16, 4))


def texts_in(value: object) -> Iterator[str]:
    """Every text in plain JSON, `key: value` for those of an object."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from texts_in(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from (f"{key}: {text}" for text in texts_in(str(item) if isinstance(item, int) else item))


def redact_recording(directory: str, pairs: List[Any], machine: Dict[str, Any], lines: List[str]) -> List[Any]:
    """Rewrite the files below `directory`/root, `machine` and `lines` in place; the answers as they may be kept."""
    redactor = Redactor()
    for name in (machine["hostname"], machine["name"]):
        redactor.learn_host(name)
    files = dict(_files(f"{directory}/root"))
    for path, content in files.items():
        redactor.learn(path, content)
    for question, answer in pairs:
        for text in texts_in(answer.get("value")):
            redactor.learn(str(question[1]) if len(question) > 1 else "", text)
        if question[0] == "user_name" and isinstance(answer.get("value"), str):
            redactor.learn_user(answer["value"], question[1])
        if question[0] == "user_id" and isinstance(answer.get("value"), int):
            redactor.learn_user(question[1], answer["value"])
        if question[0] == "resolve":
            redactor.learn_host(question[1])
    redactor.learned()
    for path, content in files.items():
        made = redactor.text(content, path)
        if made != content:
            with open(f"{directory}/root{path}", "wb") as file:
                file.write(made.encode("latin-1", "replace"))
    machine.update(redactor.value(machine))
    lines[:] = map(redactor.text, lines)
    return [[_question(redactor, question), redactor.value(answer)] for question, answer in pairs]


def _question(redactor: Redactor, question: Sequence[object]) -> List[Any]:
    """The question. The kernel's own paths are not names of persons or machines."""
    kernels = ("/proc/", "/sys/", "/dev/")
    parts = [part if isinstance(part, str) and part.startswith(kernels) else redactor.value(part) for part in question]
    # The word after --password; getent's `passwd` is a table's name.
    for place in range(2, len(parts)) if parts[0] == "run" and parts[1:2] != ["getent"] else ():
        if secrets(f"{parts[place - 1]} {parts[place]}") == f"{parts[place - 1]} {CUT}":
            parts[place] = CUT
    return parts


def _files(root: str) -> Iterator[Tuple[str, str]]:
    """The recorded files by their paths on the machine; each byte is one character, so that any content comes back."""
    for directory, _names, names in os.walk(root):
        for name in names:
            with open(f"{directory}/{name}", "rb") as file:
                yield f"{directory}/{name}"[len(root) :], file.read().decode("latin-1")
