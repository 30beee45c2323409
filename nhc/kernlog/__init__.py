"""What is new in a kernel log since the last run, and the findings that follow, kept in the host's memory.

One memory a source: a cursor (so that nothing is read twice and nothing missed) and the findings. Reading and
remembering are one step under the memory's lock; asking devices how they are, which can hang, is not.
"""

from __future__ import annotations

from nhc.facts import kmsg
from nhc.host import Host, Memory
from nhc.kernlog import findings
from nhc.kernlog.findings import Finding, State
from nhc.kernlog.shape import ACKS, fit, stores
from nhc.light import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Sequence, Tuple

KMSG, JOURNAL, FILE, DMESG = "kmsg", "journal", "syslog", "dmesg"
OTHER = "other"
"""A log that is not the kernel's, named by a rule file: a program's in journald, or a file. Rules alone apply."""
SYSLOG_FILES = ("/var/log/syslog", "/var/log/messages", "/var/log/kern.log")
STORE = "kernel-log"
"""Name of the memory of /dev/kmsg; other sources' begin with it."""
SETTLED = 60.0
"""Seconds after an Xid before NVML's "nothing to repair" counts as a reset seen."""


class Source(NamedTuple):
    """Where a log is: kmsg, journal, or a file in syslog's or dmesg's form. `rules` are rule files to apply as well."""

    kind: str = ""
    path: str = ""
    rules: Tuple[str, ...] = ()

    @property
    def store(self) -> str:
        words = [word for word in (self.kind, self.path, *self.rules) if word]
        if words in ([], [KMSG]):
            return STORE
        return f"{STORE}-" + "".join(c if c.isalnum() else "-" for c in "-".join(words))[-120:]


class Log(NamedTuple):
    """A log as it stands: the state of its findings, what this run read, and what it could not.

    `lost` counts lines overwritten since the last run (-1: some, nothing tells how many), `unseen` those gone
    before the first run of this boot. `problem` says what else of the source was not read, "" for nothing.
    """

    state: State
    source: str
    lines: int
    lost: int
    unseen: int
    problem: str = ""


def default_log(host: Host) -> Log:
    """/dev/kmsg, or where it cannot be read, journald, or a syslog file. Raises OSError when there is none."""
    return read_log(host, Source())


def read_log(host: Host, source: Source, since_boot: bool = False) -> Log:
    """Read what is new and remember what follows. With `since_boot` read all of this boot and remember nothing.

    Raises OSError when the source cannot be read, BadRules for a bad rule file.
    """
    rules: List[Any] = []
    for path in source.rules:
        from nhc.kernlog.npd_rules import load

        rules += load(path)
    boot = kmsg.boot_id(host)
    # Devices are asked before the memory is locked: a driver that hangs must not hold other runs up.
    clean = {} if since_boot else _found_clean(host, fit(host.memory.load(source.store)), boot)
    seen: Dict[str, Any] = {}

    def change(state: State) -> None:
        findings.enter_boot(fit(state), boot, lambda finding: clean.get(_identity(finding)))
        seen.update(_advance(host, source, state, rules))

    if since_boot:
        state: State = {}
        change(state)
    else:
        state = host.memory.update(source.store, change)
        _register(host, source.store)
    return Log(state, seen["source"], seen["lines"], seen["lost"], seen["unseen"], seen["problem"])


def _advance(host: Host, source: Source, state: State, rules: Sequence[Any]) -> Dict[str, Any]:
    """Bring a state up to the end of its log."""
    first = state.get("cursor") is None
    batch, name = _read(host, source, state.get("cursor"))
    said = [(r.text, r.when) for r in batch.records]
    take_in(state, said, host.time(), rules, catalogue=source.kind != OTHER)
    state["cursor"] = batch.cursor
    return {
        "source": name,
        "lines": len(said),
        "lost": 0 if first else batch.lost,
        "unseen": batch.lost if first else 0,
        "problem": batch.problem,
    }


def take_in(
    state: State,
    said: Sequence[Tuple[str, Optional[float]]],
    now: float,
    rules: Sequence[Any] = (),
    catalogue: bool = True,
) -> None:
    """Judge messages and add what they mean to a state: to the rules and, for the kernel's own, to the catalogue."""
    if not said:
        return
    if rules:
        from nhc.kernlog.npd_rules import Rules

        reader = Rules(rules, state.get("tail", []))
        for text, when in said:
            for match in reader.read(text):
                findings.add(state, match, now if when is None else when, now)
        state["tail"] = reader.tail()
    if not catalogue:
        return
    from nhc.kernlog.catalogue import Matcher, lines_of

    matcher = Matcher(state.get("driver", ""))
    lines = [(line, when) for text, when in said for line in (lines_of(text) if "\n" in text else (text,))]
    texts = [line for line, _when in lines]
    starts: Dict[int, int] = {}
    at = 0
    for index, text in enumerate(texts):
        starts[at] = index
        at += len(text) + 1
    for start, _end, numbers in matcher.candidates("\n".join(texts)):
        index = starts[start]
        found = matcher.judge(texts[index], numbers)
        if found is not None:
            when = lines[index][1]
            findings.add(state, found, now if when is None else when, now)
    if matcher.driver:
        state["driver"] = matcher.driver


def _read(host: Host, source: Source, cursor: Any) -> Tuple[kmsg.Batch, str]:
    """The batch, and the name of where it came from."""
    if source.kind == OTHER and source.path.startswith("/"):
        return kmsg.read_file(host, source.path, cursor, keep_all=True), source.path
    if source.kind == OTHER:
        batch = _journal(host, cursor, source.path)
        return batch, f"journald's {source.path}"
    if source.kind == JOURNAL:
        return _journal(host, cursor), "journald"
    if source.kind in (FILE, DMESG):
        return kmsg.read_file(host, source.path, cursor, keep_all=source.kind == DMESG), source.path
    if isinstance(cursor, dict):  # an earlier run could not read /dev/kmsg: stay with what it used
        return _fallback(host, cursor)
    try:
        return kmsg.read_kmsg(host, cursor if isinstance(cursor, int) else None), "/dev/kmsg"
    except OSError:
        if source.kind == KMSG or cursor is not None:
            raise
    return _fallback(host, {})


def _journal(host: Host, cursor: Any, identifier: str = "") -> kmsg.Batch:
    from nhc.facts.journal import read_journal

    return read_journal(host, cursor if isinstance(cursor, str) else "", identifier)


def _fallback(host: Host, cursor: Dict[str, Any]) -> Tuple[kmsg.Batch, str]:
    path = cursor.get("path", "")
    if not path and (cursor or host.which("journalctl")):
        try:
            batch = _journal(host, cursor.get("at"))
        except OSError:
            if cursor:
                raise
        else:
            if cursor or batch.records:
                return batch._replace(cursor={"path": "", "at": batch.cursor}), "journald"
    for candidate in (path,) if path else SYSLOG_FILES:
        try:
            batch = kmsg.read_file(host, candidate, cursor.get("at"))
        except OSError:
            if path:
                raise
            continue
        return batch._replace(cursor={"path": candidate, "at": batch.cursor}), candidate
    raise OSError(2, "not readable, and neither journald nor a syslog file has the kernel's messages", "/dev/kmsg")


def _register(host: Host, store: str) -> None:
    """Keep the store's name, so that `nhc ack` finds it."""
    if store in stores(host.memory, ""):
        return

    def change(acks: Dict[str, Any]) -> None:
        names = acks.get("stores")
        acks["stores"] = [*(name for name in names if name != store), store] if isinstance(names, list) else [store]

    host.memory.update(ACKS, change)


def drop(memory: Memory, store: str, chosen: Sequence[Tuple[str, Finding]]) -> List[str]:
    """End findings of a store, those left out that came again since they were read. The keys of those that ended."""
    done: List[str] = []

    def change(held: State) -> None:
        done.extend(key for key, finding in chosen if findings.end(fit(held), key, finding))

    memory.update(store, change)
    return done


def _identity(finding: Finding) -> Tuple[str, str, str]:
    return finding["kind"], finding["code"], finding["device"]


def _found_clean(host: Host, state: State, boot: str) -> Dict[Tuple[str, str, str], Optional[bool]]:
    """Of each device that had a finding before the node restarted, whether it is well now."""
    if not state.get("boot") or not boot or state["boot"] == boot:
        return {}
    held = [f for f in state.get("findings", {}).values() if f["kind"] in findings.OF_A_DEVICE]
    return {_identity(finding): found_clean(host, finding) for finding in held}


def own_source(path: str) -> Source:
    """Where a rule file wants its rules applied: Source(rules=...) for the kernel log. Raises BadRules."""
    from nhc.kernlog.npd_rules import load_file

    file = load_file(path)
    if file.plugin == "journald" and file.identifier not in ("", "kernel"):
        return Source(OTHER, file.identifier, (path,))
    if file.plugin == "filelog" and file.log_path not in ("", *SYSLOG_FILES):
        return Source(OTHER, file.log_path, (path,))
    return Source(rules=(path,))


def found_clean(host: Host, finding: Finding) -> Optional[bool]:
    """Whether the device of a finding is well after a restart: there, and its vendor has nothing against it."""
    device = finding["device"]
    if device.count(":") != 2:
        return True if finding["kind"] not in ("neuron", "edac") else None
    if not host.exists(f"/sys/bus/pci/devices/{device}"):
        return False
    if finding["kind"] not in (*findings.NVIDIA, "amdgpu") or finding["kind"] == "sxid":
        return True
    return device_clean(host, device)


def device_clean(host: Host, address: str) -> Optional[bool]:
    """Whether the vendor's library says that a device is well, None where it says nothing of it."""
    from nhc.facts.accelerator import accelerators

    try:
        inventory = host.fact(accelerators)
    except OSError:
        return None
    for device in inventory.devices:
        if device.pci == address:
            remap = device.row_remap
            sick = device.fault or device.recovery or (remap and (remap.pending or remap.failed))
            return not sick
    return None


def in_context(
    host: Host, pairs: Sequence[Tuple[str, Finding]]
) -> Tuple[List[Tuple[str, Finding]], List[Tuple[str, Finding]]]:
    """Xid findings beside what NVML says of their GPUs: as they then stand, and those that it shows to be gone.

    NVML is asked only if there is an Xid whose meaning depends on it.
    """
    from nhc.kernlog import xid

    out: List[Tuple[str, Finding]] = []
    gone: List[Tuple[str, Finding]] = []
    for key, finding in pairs:
        if finding["kind"] != "xid" or finding.get("drill") or not xid.depends(finding["code"], finding["action"]):
            out.append((key, finding))
            continue
        device = _device(host, finding["device"])
        if device is None:
            out.append((key, finding))
            continue
        remap = device.row_remap
        rows = ""
        if remap is not None:
            if remap.failed:
                rows = "failed"
            elif remap.pending:
                rows = "pending"
            elif remap.pending is False and remap.failed is False:
                rows = "clean"
        mig = "" if device.modes.mig is None else "on" if device.modes.mig else "off"
        told = xid.in_context(finding["code"], xid.generation(device.name), mig, rows)
        settled = host.time() - finding["last"] > SETTLED and finding["action"] == "reset-device"
        if told is None and settled and xid.well(device.fault, device.recovery, rows):
            gone.append((key, finding))
        elif told is None:
            out.append((key, finding))
        elif told[0] == "gone":
            gone.append((key, finding))
        else:
            message = f"{finding['message']} ({told[2]})"
            out.append((key, {**finding, "severity": told[0], "action": told[1].value, "message": message}))
    return out, gone


def _device(host: Host, address: str) -> Any:
    from nhc.facts.accelerator import accelerators

    try:
        inventory = host.fact(accelerators)
    except OSError:
        return None
    return next((device for device in inventory.devices if device.pci == address), None)
