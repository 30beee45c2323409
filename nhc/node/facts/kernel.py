"""The running kernel: its release, command line, modules and taint."""

from __future__ import annotations

from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import FrozenSet, List, Tuple


class KernelTaint(NamedTuple):
    """One reason for which a kernel marks itself tainted."""

    bit: int
    letter: str
    meaning: str


TAINTS = (
    KernelTaint(0, "P", "proprietary module loaded"),
    KernelTaint(1, "F", "module force-loaded"),
    KernelTaint(2, "S", "running on hardware outside its specification"),
    KernelTaint(3, "R", "module force-unloaded"),
    KernelTaint(4, "M", "machine check exception occurred"),
    KernelTaint(5, "B", "bad page found"),
    KernelTaint(6, "U", "taint requested by user space"),
    KernelTaint(7, "D", "kernel has oopsed"),
    KernelTaint(8, "A", "ACPI table overridden"),
    KernelTaint(9, "W", "kernel has warned"),
    KernelTaint(10, "C", "staging driver loaded"),
    KernelTaint(11, "I", "firmware bug worked around"),
    KernelTaint(12, "O", "out-of-tree module loaded"),
    KernelTaint(13, "E", "unsigned module loaded"),
    KernelTaint(14, "L", "soft lockup occurred"),
    KernelTaint(15, "K", "kernel live-patched"),
    KernelTaint(16, "X", "auxiliary taint of the distribution"),
    KernelTaint(17, "T", "built with structure randomization"),
    KernelTaint(18, "N", "in-kernel test was run"),
    KernelTaint(19, "J", "userspace changed a device through fwctl"),
)
"""The kernel's Documentation/admin-guide/tainted-kernels.rst, table of flags."""


def decode_taint(value: int) -> Tuple[KernelTaint, ...]:
    """The flags set in a taint value; those this table does not know have the letter "?"."""
    known = tuple(taint for taint in TAINTS if value >> taint.bit & 1)
    rest = value >> len(TAINTS)
    unknown = tuple(
        KernelTaint(bit + len(TAINTS), "?", f"unknown flag {bit + len(TAINTS)}")
        for bit in range(rest.bit_length())
        if rest >> bit & 1
    )
    return known + unknown


def release(host: Host) -> str:
    """As `uname -r` prints it. Raises OSError."""
    return host.read("/proc/sys/kernel/osrelease").strip()


def uptime(host: Host) -> float:
    """Seconds since boot. Raises OSError, ValueError."""
    return float(host.read("/proc/uptime").split(" ", 1)[0])


def parse_cmdline(text: str) -> List[str]:
    """The words of a kernel command line; a value may hold blanks within double quotes (kernel-parameters.rst)."""
    words: List[str] = []
    word, quoted = "", False
    for letter in text.strip():
        if letter == '"':
            quoted = not quoted
        if letter.isspace() and not quoted:
            if word:
                words.append(word)
            word = ""
        else:
            word += letter
    return [*words, word] if word else words


def cmdline(host: Host) -> List[str]:
    """Raises OSError."""
    return parse_cmdline(host.read("/proc/cmdline"))


def normal_module(name: str) -> str:
    """Modules are written with - or _ and are the same (modprobe(8))."""
    return name.replace("-", "_")


def modules(host: Host) -> FrozenSet[str]:
    """The loaded modules. Raises OSError if /proc/modules cannot be read, as on a kernel without modules."""
    return frozenset(line.split(" ", 1)[0] for line in host.lines("/proc/modules") if line)


def built_in(host: Host, module: str) -> bool:
    """Whether a module is part of the kernel itself: listed as such, or shown in /sys/module without being loaded."""
    listed = host.read_or(f"/lib/modules/{host.read_or('/proc/sys/kernel/osrelease')}/modules.builtin")
    names = (normal_module(line.rsplit("/", 1)[-1].partition(".ko")[0]) for line in listed.splitlines())
    return module in names or host.exists(f"/sys/module/{module}")
