"""node-problem-detector's system-stats-monitor: the metrics that its file asks for, under the names it gives them.

Read from /proc when /metrics is asked for, at most once in the file's `invokeInterval`. Names, labels and units are
pkg/systemstatsmonitor's, so that dashboards made for it go on working; a source that is not there costs its
metrics and not, as there, the whole program.
"""

from __future__ import annotations

import os
import re
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from nhc.agent.npd_config import read_json
from nhc.core.host import Host
from nhc.core.prometheus_family import Family
from nhc.core.settings.settings_file import SettingsError
from nhc.core.system.bounded_read import parse_json, read_text
from nhc.node.kernlog.npd_rules import compile_go, go_duration
from nhc.node.kernlog.source import BadRules

TICKS = 100.0
"""Clock ticks a second in /proc/stat (USER_HZ, the same on every Linux architecture of today)."""
SECTOR = 512
GROUPS = ("cpu", "disk", "host", "memory", "net", "osFeature")
_STAGES = ("user", "nice", "system", "idle", "iowait", "iRQ", "softIRQ", "steal", "guest", "guestNice")
_STATES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal", "guest", "guest_nice")
_NET = (
    "net/rx_bytes", "net/rx_packets", "net/rx_errors", "net/rx_dropped", "net/rx_fifo", "net/rx_frame",
    "net/rx_compressed", "net/rx_multicast", "net/tx_bytes", "net/tx_packets", "net/tx_errors", "net/tx_dropped",
    "net/tx_fifo", "net/tx_collisions", "net/tx_carrier", "net/tx_compressed",
)  # fmt: skip
GAUGE, COUNTER = "gauge", "counter"

Labels = Mapping[str, str]
Sample = Tuple[str, str, str, float, Labels]
"""Metric id, kind, about, value, labels."""


class Stats:
    """One file. Raises SettingsError."""

    def __init__(self, path: str) -> None:
        self.path = path
        raw = read_json(path)
        self.names: Dict[str, str] = {}
        try:
            self.every = go_duration(str(raw.get("invokeInterval") or "60s"))
            for group in GROUPS:
                for metric, options in ((raw.get(group) or {}).get("metricsConfigs") or {}).items():
                    name = str(options.get("displayName") or "")
                    if name:
                        self.names[metric] = re.sub(r"[^A-Za-z0-9_:]", "_", name)
            self.proc = str(raw.get("procPath") or "/proc").rstrip("/")
            net = raw.get("net") or {}
            pattern = str(net.get("excludeInterfaceRegexp") or "")
            self.exclude = compile_go(pattern, "excludeInterfaceRegexp") if pattern else None
        except (BadRules, ValueError, AttributeError, TypeError) as error:
            raise SettingsError(f"{path}: {' '.join(str(error).split())}") from None
        disk = raw.get("disk") or {}
        self.all_blocks, self.root_blocks = bool(disk.get("includeAllAttachedBlk")), bool(disk.get("includeRootBlk"))
        known = str((raw.get("osFeature") or {}).get("KnownModulesConfigPath") or
                    (raw.get("osFeature") or {}).get("knownModulesConfigPath") or "")  # fmt: skip
        self.known_modules = os.path.join(os.path.dirname(path), known) if known else ""
        self._families: List[Family] = []
        self._at: Optional[float] = None
        self._weighted: Dict[str, Tuple[float, float]] = {}

    def families(self, host: Host) -> List[Family]:
        """The metrics, as they are now or were a moment ago."""
        now = host.monotonic()
        if self._at is not None and now - self._at < self.every:
            return self._families
        self._at = now
        made: Dict[str, Family] = {}
        gather: Sequence[Callable[[Host], List[Sample]]] = (
            self._load, self._stat, self._memory, self._uptime, self._net, self._features, self._disks, self._space
        )  # fmt: skip
        for source in gather:
            try:
                samples = source(host)
            except (OSError, ValueError, IndexError, KeyError):
                continue  # what this kernel or this container does not show is left out
            for metric, kind, about, value, labels in samples:
                name = self.names.get(metric)
                if name:
                    made.setdefault(name, Family(name, kind, about)).add(value, **labels)
        self._families = list(made.values())
        return self._families

    def _wants(self, prefix: str) -> bool:
        return any(metric.startswith(prefix) for metric in self.names)

    def _load(self, host: Host) -> List[Sample]:
        last, five, fifteen = (float(value_text) for value_text in host.read(f"{self.proc}/loadavg").split()[:3])
        return [
            ("cpu/load_1m", GAUGE, "CPU average load (1m)", last, {}),
            ("cpu/load_5m", GAUGE, "CPU average load (5m)", five, {}),
            ("cpu/load_15m", GAUGE, "CPU average load (15m)", fifteen, {}),
            ("cpu/runnable_task_count", GAUGE, "Runnable tasks in the run queue, on average over a minute", last, {}),
        ]

    def _stat(self, host: Host) -> List[Sample]:
        samples: List[Sample] = []
        for line in host.lines(f"{self.proc}/stat"):
            key, *values = line.split()
            if key == "cpu":
                for state, value_text in zip(_STATES, values):
                    value = float(value_text)
                    samples.append(("cpu/usage_time", COUNTER, "CPU usage, in clock ticks", value, {"state": state}))
            elif key.startswith("cpu"):
                for stage, value_text in zip(_STAGES, values):
                    labels = {"cpu": key, "stage": stage}
                    samples.append(
                        ("system/cpu_stat", COUNTER, "Seconds each CPU spent", float(value_text) / TICKS, labels)
                    )
            elif key == "processes":
                samples.append(("system/processes_total", COUNTER, "Forks since boot", float(values[0]), {}))
            elif key == "procs_running":
                samples.append(("system/procs_running", GAUGE, "Processes that run", float(values[0]), {}))
            elif key == "procs_blocked":
                samples.append(("system/procs_blocked", GAUGE, "Processes that are blocked", float(values[0]), {}))
            elif key == "intr":
                samples.append(("system/interrupts_total", COUNTER, "Interrupts since boot", float(values[0]), {}))
        return samples

    def _memory(self, host: Host) -> List[Sample]:
        from nhc.node.facts.meminfo import parse_meminfo

        info = parse_meminfo(host.read(f"{self.proc}/meminfo"))
        samples: List[Sample] = []

        def add(metric: str, about: str, field: str, state: str) -> None:
            if field in info:
                samples.append((metric, GAUGE, about, float(info[field]) * 1024, {"state": state} if state else {}))

        used = "Memory, in bytes, by state"
        for state, field in (("free", "MemFree"), ("buffered", "Buffers"), ("cached", "Cached"), ("slab", "Slab")):
            add("memory/bytes_used", used, field, state)
        rest = info["MemTotal"] - sum(info[field] for field in ("MemFree", "Buffers", "Cached", "Slab"))
        samples.append(("memory/bytes_used", GAUGE, used, float(rest) * 1024, {"state": "used"}))
        share = rest * 100.0 / info["MemTotal"]
        samples.append(("memory/percent_used", GAUGE, "Memory used, in per cent", share, {"state": "used"}))
        dirty = "Memory that is to be or is being written back, in bytes"
        add("memory/dirty_used", dirty, "Dirty", "dirty")
        add("memory/dirty_used", dirty, "Writeback", "writeback")
        for state in ("active", "inactive"):
            title = state.capitalize()
            add("memory/anonymous_used", "Anonymous memory, in bytes", f"{title}(anon)", state)
            add("memory/page_cache_used", "Page cache, in bytes", f"{title}(file)", state)
        add("memory/unevictable_used", "Unevictable memory, in bytes", "Unevictable", "")
        return samples

    def _uptime(self, host: Host) -> List[Sample]:
        if not self._wants("host/"):
            return []
        up = float(host.read(f"{self.proc}/uptime").split()[0])
        labels = {"kernel_version": host.read_or("/proc/sys/kernel/osrelease"), "os_version": _os_version(host)}
        return [("host/uptime", GAUGE, "The uptime of the operating system, in seconds", float(int(up)), labels)]

    def _net(self, host: Host) -> List[Sample]:
        samples: List[Sample] = []
        for line in host.lines(f"{self.proc}/net/dev")[2:]:
            name, _, values = line.partition(":")
            name = name.strip()
            if self.exclude is not None and self.exclude.search(name):
                continue
            for metric, value_text in zip(_NET, values.split()):
                samples.append((metric, COUNTER, "See /proc/net/dev", float(value_text), {"interface_name": name}))
        return samples

    def _features(self, host: Host) -> List[Sample]:
        if not self._wants("system/os_feature"):
            return []
        parameters = dict(parameter.partition("=")[::2] for parameter in host.read(f"{self.proc}/cmdline").split())

        def number(key: str) -> float:
            text = parameters.get(key, "")
            return float(text) if text.isdigit() else 0.0

        signed = number("module.sig_enforce") == 1 and number("loadpin.enabled") == 1
        features: List[Tuple[str, float, Labels]] = [
            ("KTD", number("csm.enabled"), {}),
            ("UnifiedCgroupHierarchy", number("systemd.unified_cgroup_hierarchy"), {}),
            ("KernelModuleIntegrity", float(signed), {}),
        ]
        try:
            features += self._modules(host)
        except OSError:
            pass  # a kernel without modules has none to tell of
        about = "Features of the operating system: 1 where there"
        return [("system/os_feature", GAUGE, about, value, {"os_feature": name, **labels})
                for name, value, labels in features]  # fmt: skip

    def _modules(self, host: Host) -> List[Tuple[str, float, Labels]]:
        known = set()
        if self.known_modules:
            try:
                modules = parse_json(read_text(self.known_modules))
                known = {str(module.get("moduleName", "")) for module in modules}
            except (OSError, ValueError, AttributeError, TypeError):
                pass
        gpu, strange = 0.0, []
        for line in host.lines(f"{self.proc}/modules"):
            fields = line.split()
            name, flags = fields[0], fields[-1] if fields[-1].startswith("(") else ""
            if "nvidia" in name:
                gpu = 1.0
            elif ("O" in flags or "P" in flags) and name not in known:
                strange.append(name)
        value: Labels = {"value": ",".join(strange)} if strange else {}
        return [("UnknownModules", float(bool(strange)), value), ("GPUSupport", gpu, {})]

    def _disks(self, host: Host) -> List[Sample]:
        if not self._wants("disk/"):
            return []
        wanted = self._devices(host)
        now = host.monotonic()
        samples: List[Sample] = []
        for line in host.lines(f"{self.proc}/diskstats"):
            fields = line.split()
            name = fields[2]
            if name not in wanted:
                continue
            r_ops, r_merged, r_sectors, r_ms, w_ops, w_merged, w_sectors, w_ms, _now, io_ms, weighted = (
                float(field) for field in fields[3:14]
            )
            device = {"device_name": name}
            samples.append(("disk/io_time", COUNTER, "Time with I/O under way, in ms", io_ms, device))
            samples.append(("disk/weighted_io", COUNTER, "Weighted I/O time, in ms", weighted, device))
            before = self._weighted.get(name)
            if before is not None and now > before[0]:
                length = (weighted - before[1]) / ((now - before[0]) * 1000)
                samples.append(("disk/avg_queue_len", GAUGE, "The queue's average length", length, device))
            self._weighted[name] = (now, weighted)
            for way, ops, merged, sectors, ms in (
                ("read", r_ops, r_merged, r_sectors, r_ms), ("write", w_ops, w_merged, w_sectors, w_ms)
            ):  # fmt: skip
                labels = {"device_name": name, "direction": way}
                samples.append(("disk/operation_count", COUNTER, "Operations", ops, labels))
                samples.append(("disk/merged_operation_count", COUNTER, "Merged operations", merged, labels))
                samples.append(("disk/operation_bytes_count", COUNTER, "Bytes moved", sectors * SECTOR, labels))
                samples.append(("disk/operation_time", COUNTER, "Time of operations, in ms", ms, labels))
        return samples

    def _devices(self, host: Host) -> Dict[str, None]:
        """Whole disks (includeRootBlk) and what is mounted (includeAllAttachedBlk)."""
        names: Dict[str, None] = {}
        if self.root_blocks:
            names.update(dict.fromkeys(host.listdir("/sys/block")))
        if self.all_blocks:
            names.update(dict.fromkeys(_short(device) for device, *_rest in self._mounts(host)))
        return names

    def _mounts(self, host: Host) -> List[Tuple[str, str, str, str]]:
        """Device, place, type and options of each mounted block device, once."""
        mounts: Dict[str, Tuple[str, str, str, str]] = {}
        for line in host.lines(f"{self.proc}/mounts"):
            device, place, kind, options = line.split(" ")[:4]
            if device.startswith("/dev/"):
                mounts.setdefault(device, (device, place.replace("\\040", " "), kind, options))
        return list(mounts.values())

    def _space(self, host: Host) -> List[Sample]:
        if not (self._wants("disk/bytes_used") or self._wants("disk/percent_used")):
            return []
        samples: List[Sample] = []
        for device, place, kind, options in self._mounts(host):
            try:
                space = host.statvfs(place)
            except OSError:
                continue
            used = space.size - space.free
            labels = {"device_name": _short(device), "fs_type": kind, "mount_option": options}
            about = "Space, in bytes, by state"
            samples.append(("disk/bytes_used", GAUGE, about, float(space.free), {**labels, "state": "free"}))
            samples.append(("disk/bytes_used", GAUGE, about, float(used), {**labels, "state": "used"}))
            if used + space.available:
                share = used * 100.0 / (used + space.available)
                samples.append(
                    ("disk/percent_used", GAUGE, "Space used, in per cent", share, {**labels, "state": "used"})
                )
        return samples


def _short(device: str) -> str:
    return device.removeprefix("/dev/")


def _os_version(host: Host) -> str:
    """What /etc/os-release says, in node-problem-detector's form: `ubuntu 22.04.3 LTS (Jammy Jellyfish)`."""
    fields: Dict[str, Any] = {}
    for line in host.read_or("/etc/os-release").splitlines():
        key, _, value = line.partition("=")
        fields[key] = value.strip("\"'")
    return f"{fields.get('ID', 'unknown')} {fields.get('VERSION', fields.get('VERSION_ID', ''))}".strip()
