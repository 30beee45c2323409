"""The kernel: the expected release, command line and modules, and no taint."""

from __future__ import annotations

from fnmatch import fnmatchcase

from nhc.core.check import check, opt, rest
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Action, Metric, Outcome, crit, ok, unknown, warn
from nhc.core.units import text
from nhc.node.facts import kernel
from nhc.node.facts.packages import Requirement, read_requirement

if TYPE_CHECKING:
    from typing import Sequence


@check(
    "check_kernel_version",
    rest("wanted", read_requirement, "comparisons (>=5.14, <6), all must hold; patterns, one must", required=True),
)  # fmt: skip
def check_kernel_version(host: Host, wanted: Sequence[Requirement]) -> Outcome:
    """The running kernel is of an expected version.

    Reads the release from /proc/sys/kernel/osrelease. Versions are compared as package managers do it, so
    5.14.0-70 is older than 5.14.0-427; a comparison without a release part ignores the kernel's.

    Example: * || check_kernel_version '5.14.0-427.*' '5.14.0-503.*'
    """
    running = kernel.release(host)
    if not running:
        return unknown("BadData", "/proc/sys/kernel/osrelease is empty")
    patterns = [each for each in wanted if each.operator == "glob"]
    failed = [str(each) for each in wanted if each.operator != "glob" and not each.holds(running)]
    if patterns and not any(each.holds(running) for each in patterns):
        failed.append(" or ".join(str(each) for each in patterns))
    if failed:
        return crit("KernelVersion", f"kernel {running} is not {', '.join(failed)}", action=Action.REBOOT)
    return ok(f"kernel {running}")


@check(
    "check_kernel_cmdline",
    rest("words", text, "words that must be there, or with ! must not; shell patterns", required=True),
)
def check_kernel_cmdline(host: Host, words: Sequence[str]) -> Outcome:
    """The kernel was started with the expected command line.

    Reads /proc/cmdline. A word is a whole parameter (`iommu=pt`) or a shell pattern (`isolcpus=*`); one
    that begins with ! must not be there.

    Example: gpu* || check_kernel_cmdline iommu=pt '!pci=noaer'
    """
    given = kernel.cmdline(host)
    absent = [word for word in words if not word.startswith("!") and not _present(word, given)]
    unwanted = [word[1:] for word in words if word.startswith("!") and _present(word[1:], given)]
    if not absent and not unwanted:
        return ok(f"{len(words)} kernel parameters as expected")
    faults = [f"lacks {', '.join(absent)}"] if absent else []
    faults += [f"has {', '.join(unwanted)}"] if unwanted else []
    return crit(
        "KernelCmdline",
        f"the kernel command line {' and '.join(faults)}",
        action=Action.REBOOT,
        evidence=(" ".join(given),),
    )


def _present(pattern: str, parameters: Sequence[str]) -> bool:
    return any(parameter == pattern or fnmatchcase(parameter, pattern) for parameter in parameters)


@check("check_kernel_modules", rest("modules", text, "modules that must be loaded, or with ! must not", required=True))
def check_kernel_modules(host: Host, modules: Sequence[str]) -> Outcome:
    """The expected kernel modules are loaded, and no unwanted one.

    Reads /proc/modules; a module that is built into the kernel counts as loaded. `-` and `_` in names are
    the same. A name that begins with ! must not be loaded.

    Example: gpu* || check_kernel_modules nvidia nvidia-uvm nvidia_peermem '!nouveau'
    """
    try:
        loaded = kernel.modules(host)
    except FileNotFoundError:
        loaded = frozenset()  # a kernel without modules: what it has, it has built in
    names = [(kernel.normal_module(name.lstrip("!")), name.startswith("!")) for name in modules]
    missing = [
        name for name, unwanted in names if not unwanted and name not in loaded and not kernel.built_in(host, name)
    ]
    present = [name for name, unwanted in names if unwanted and (name in loaded or kernel.built_in(host, name))]
    if missing:
        return crit("ModuleMissing", f"kernel module not loaded: {', '.join(missing)}", action=Action.RELOAD_DRIVER)
    if present:
        return crit("ModuleUnwanted", f"unwanted kernel module loaded: {', '.join(present)}", action=Action.REBOOT)
    return ok(f"{len(names)} kernel modules as expected")


def letters(value: str) -> str:
    """Taint letters, as in `DBML`; "none" is none. Raises ValueError for one that no kernel uses."""
    if value == "none":
        return ""
    known = {taint.letter for taint in kernel.TAINTS}
    bad = [letter for letter in value if letter not in known]
    if bad or not value:
        raise ValueError(f"{value!r} is not a set of taint letters ({''.join(sorted(known))}, or none)")
    return value


@check(
    "check_kernel_taint",
    opt("-c --crit", "critical", letters, "letters of the flags that are CRIT (none: none)", "BDLM"),
    opt("-w --warn", "warning", letters, "letters of the flags that are WARN (none: none)", "FRSW"),
)
def check_kernel_taint(host: Host, critical: str = "BDLM", warning: str = "FRSW") -> Outcome:
    """The kernel has not marked itself as damaged.

    Reads /proc/sys/kernel/tainted and names its flags (tainted-kernels.rst). CRIT for those that say that
    something broke: B bad page, D oops, L soft lockup, M machine check. WARN for F and R (modules forced),
    S (hardware out of specification) and W (a kernel warning). The others, as P and O that every GPU driver
    sets, are shown and pass.

    Example: * || check_kernel_taint -c BDLMW -w none
    """
    mask = host.read("/proc/sys/kernel/tainted").strip()
    if not (mask.isascii() and mask.isdigit()):
        return unknown("BadData", "/proc/sys/kernel/tainted is not a number", evidence=(mask,))
    flags = kernel.decode_taint(int(mask))
    metrics = (Metric("tainted", int(mask)),)
    bad = [flag for flag in flags if flag.letter in critical]
    doubtful = [flag for flag in flags if flag.letter in warning]
    if bad or doubtful:
        say = crit if bad else warn
        named = ", ".join(f"{flag.meaning} ({flag.letter})" for flag in (bad or doubtful))
        evidence = tuple(f"{flag.letter} {flag.meaning}" for flag in flags)
        return say(
            "KernelTainted", f"kernel tainted: {named}", metrics=metrics, action=Action.REBOOT, evidence=evidence
        )
    set_letters = "".join(flag.letter for flag in flags)
    return ok(f"kernel taint {set_letters}: nothing broken" if flags else "kernel not tainted", metrics=metrics)
