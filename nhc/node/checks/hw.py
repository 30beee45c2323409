"""Processors, RDMA and Ethernet devices, machine checks: check_hw_* other than memory (`hw_mem`)."""

from __future__ import annotations

from nhc.core.check import arg, check, opt
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING
from nhc.core.matching.nodeset import mcheck
from nhc.core.model import Action, Metric, Outcome, crit, known, ok, skip, unknown
from nhc.core.units import number, text, whole
from nhc.node.facts.cpuinfo import cpu_list, node_memory, numa_nodes, offline, topology
from nhc.node.facts.netdev import interfaces

if TYPE_CHECKING:
    from typing import List, Optional

    from nhc.node.facts.hardware_errors import McelogErrors
    from nhc.node.facts.infiniband import Port


@check(
    "check_hw_cpuinfo",
    arg("sockets", whole, "processor packages that must be there"),
    arg("cores", whole, "physical cores, all sockets together"),
    arg("threads", whole, "hardware threads (what the kernel calls CPUs), all sockets together"),
    timeout=5,
)
def check_hw_cpuinfo(
    host: Host, sockets: Optional[int] = None, cores: Optional[int] = None, threads: Optional[int] = None
) -> Outcome:
    """The node runs on exactly the sockets, cores and threads it was bought with.

    Counts what is online, from /sys/devices/system/cpu, else from /proc/cpuinfo. An argument left empty
    is not judged. A core that the firmware took out, hyper-threading switched on or off, and a processor
    that did not start all show here. Without arguments every CPU that the node has (`present`) must be online, threads
    apart that were switched off with smt/control. Where the kernel does not know sockets or cores (some ARM and virtual
    machines) and they are asked for, the result is UNKNOWN.

    Example: * || check_hw_cpuinfo 2 64 128
    """
    try:
        counts = host.fact(topology)
    except ValueError as error:
        return unknown("CpuTopologyUnreadable", f"the CPU topology cannot be read: {error}")
    metrics = known(cpu_sockets=counts.sockets, cpu_cores=counts.cores, cpu_threads=counts.threads)
    for name, actual, expected in (
        ("socket", counts.sockets, sockets),
        ("core", counts.cores, cores),
        ("thread", counts.threads, threads),
    ):
        if expected is None:
            continue
        if actual is None:
            return unknown("CpuTopologyUnknown", f"this kernel does not tell the number of CPU {name}s")
        if actual != expected:
            message = f"Actual CPU {name} count ({actual}) does not match expected ({expected})."
            return crit("CpuCountMismatch", message, metrics=metrics)
    try:
        missing = offline(host) if sockets is None and cores is None and threads is None else ()
    except OSError as error:
        message = f"whether CPUs are offline cannot be told: {error.strerror}"
        return unknown("CpuTopologyUnknown", message, metrics=metrics)
    if missing:
        there = counts.threads + len(missing)
        message = f"{len(missing)} of {there} CPUs are offline ({cpu_list(missing)})"
        return crit("CpuOffline", message, metrics=metrics, action=Action.INSPECT)
    return ok(f"{counts.sockets} sockets, {counts.cores} cores, {counts.threads} threads", metrics=metrics)


@check(
    "check_hw_numa",
    opt("-a --all", "every", whole, "how many NUMA nodes there must be, those without CPUs counted too"),
    arg("nodes", whole, "how many NUMA nodes with CPUs there must be"),
    timeout=5,
)
def check_hw_numa(host: Host, nodes: Optional[int] = None, every: Optional[int] = None) -> Outcome:
    """The node has as many NUMA nodes as it was bought with.

    Counts those that are online in /sys/devices/system/node. How a processor is divided (NPS, SNC) is a setting of the
    firmware that a BIOS update can take back: a job that binds by node then gets an eighth of the memory that it
    counts on. NODES are those with CPUs. Memory of GPUs (32 nodes on a GB200 beside the 2 of its processors) and of CXL
    has nodes without CPUs: -a counts all, 34 there. Without either every NUMA node with CPUs must have memory.
    SKIP where the kernel knows no NUMA nodes.

    Example: gb200* || check_hw_numa -a 34 2
    """
    try:
        found = numa_nodes(host)
    except FileNotFoundError:
        return skip("NoNuma", "this kernel knows no NUMA nodes")
    except ValueError as error:
        return unknown("NumaUnreadable", f"the NUMA nodes cannot be read: {error}")
    metrics = (Metric("numa_nodes", len(found.all)), Metric("numa_nodes_with_cpus", len(found.with_cpus)))
    for what, actual, expected in (("NUMA nodes with CPUs", found.with_cpus, nodes), ("NUMA nodes", found.all, every)):
        if expected is not None and len(actual) != expected:
            message = f"{len(actual)} {what}, {expected} expected"
            return crit("NumaCountMismatch", message, metrics=metrics, action=Action.INSPECT)
    empty = [number for number in found.with_cpus if node_memory(host, number) == 0]
    if nodes is None and every is None and empty:
        message = f"NUMA node {cpu_list(empty)} has CPUs and no memory"
        return crit("NumaNoMemory", message, metrics=metrics, action=Action.INSPECT)
    return ok(f"{len(found.with_cpus)} NUMA nodes with CPUs, {len(found.all)} altogether", metrics=metrics)


@check(
    "check_hw_ib",
    arg("rate", number, "data rate in Gb/s that the link must have, as in 400; any rate where left empty"),
    arg("device", text, "the device, or device and port, as in mlx5_0:1; any where left empty", ""),
    timeout=5,
)
def check_hw_ib(host: Host, rate: Optional[float] = None, device: str = "") -> Outcome:
    """One RDMA port at least is ACTIVE and LinkUp at the given rate.

    Reads state, phys_state and rate of every port below /sys/class/infiniband. Without a device one good
    port suffices, whatever the others are: name each port in a line of its own on a node with several.

    Example: gpu* || check_hw_ib 400 mlx5_0:1
    """
    from nhc.node.facts.infiniband import ports, without_verbs  # here: most nodes ask for processors alone

    all_ports = host.fact(ports)
    wanted = [port for port in all_ports if not device or device in (port.name, port.device)]
    good = [port for port in wanted if port.up and (rate is None or port.rate_gbps == rate)]
    usable = [port for port in good if port.device not in host.fact(without_verbs)]
    if good and not usable:
        name, missing = good[0].device, host.fact(without_verbs)[good[0].device]
        message = f"{name} is no device that a program can open: {missing}"
        return crit("IbVerbsMissing", message, target=device or name, action=Action.RELOAD_DRIVER)
    if good:
        return ok(", ".join(_port_text(port) for port in usable), target=device)
    speed = "" if rate is None else f" {rate:g} Gb/sec"
    faults = ", ".join(port.fault(rate) for port in wanted) or ("" if all_ports else "no adapter")
    message = f"No IB port{' ' if device else ''}{device} is ACTIVE (LinkUp{speed}){f': {faults}' if faults else ''}."
    if not wanted:
        reason = "IbPortMissing"
    elif not any(port.up for port in wanted):
        reason = "IbPortDown"
    elif all(port.rate_gbps is None for port in wanted if port.up):
        return unknown(
            "IbRateUnknown", f"IB port {wanted[0].name} is up, but its driver does not tell the rate", target=device
        )
    else:
        reason = "IbRateMismatch"
    evidence = tuple(_port_text(port) for port in wanted or all_ports)
    return crit(reason, message, target=device, evidence=evidence)


def _port_text(port: Port) -> str:
    speed = "rate unknown" if port.rate_gbps is None else f"{port.rate_gbps:g} Gb/sec"
    return f"{port.name} {port.state or '?'} ({port.phys_state or '?'} {speed} {port.link_layer})".replace(" )", ")")


@check("check_hw_eth", arg("device", text, "interface name or match string, as in eth0", required=True), timeout=5)
def check_hw_eth(host: Host, device: str) -> Outcome:
    """A network interface exists.

    Looks for the name in /proc/net/dev. Whether there is a carrier or an address is not judged.

    Example: * || check_hw_eth eth0
    """
    if any(mcheck(name, device) for name in host.fact(interfaces)):
        return ok(target=device)
    return crit("InterfaceMissing", f"Ethernet device {device} not detected.", target=device)


@check("check_hw_gm", arg("device", text, "interface name or match string, as in myri0", required=True), timeout=5)
def check_hw_gm(host: Host, device: str) -> Outcome:
    """A Myrinet interface exists and its driver, gm, is loaded.

    Looks for the name in /proc/net/dev and for the module in /proc/modules.

    Example: * || check_hw_gm myri0
    """
    # A kernel without loadable modules has no /proc/modules, and no gm, which was never part of the kernel.
    loaded = any(line.split(" ", 1)[0] == "gm" for line in host.read_or("/proc/modules").splitlines())
    if loaded and any(mcheck(name, device) for name in host.fact(interfaces)):
        return ok(target=device)
    message = f"GM device {device} not active, either driver is not loaded, or interface not created."
    return crit("GmDeviceMissing", message, target=device)


@check("check_hw_mcelog", timeout=10, every=300)
def check_hw_mcelog(host: Host) -> List[Outcome]:
    """No memory module has more errors in 24 hours than it may.

    Asks the mcelog daemon (`$MCELOG $MCELOG_ARGS`, by default `mcelog --client`). The limits are
    $MCELOG_MAX_CORRECTED_RATE (9) and $MCELOG_MAX_UNCORRECTED_RATE (0) a day, LBNL NHC's; with either set
    to nothing, any report at all fails. No daemon is UNKNOWN; a processor that mcelog does not support
    (AMD, ARM) is SKIP, and check_hw_edac judges it instead.

    Example: * || check_hw_mcelog
    """
    argv = [*(host.setting("MCELOG") or "mcelog").split(), *(host.setting("MCELOG_ARGS", "--client")).split()]
    ended = host.run(argv)
    output, evidence = ended.output.strip(), ended.tail(20)
    if ended.timed_out:
        return [unknown("McelogTimeout", f"{' '.join(argv)} timed out", evidence=evidence)]
    if "does not support this processor" in output or "CPU is unsupported" in output:
        return [skip("McelogUnsupported", "mcelog does not support this processor")]
    # connect(2)'s errors for a socket without a listener, and for a socket that does not exist.
    if "Connection refused" in output or "client connect" in output:
        return [unknown("McelogDaemonDown", "No mcelog daemon running", evidence=evidence)]
    from nhc.node.facts.hardware_errors import parse_mcelog

    counts = parse_mcelog(ended.stdout)
    if not counts and ended.status:
        last = evidence[-1] if evidence else "it said nothing"
        return [unknown("McelogFailed", f"{argv[0]} returned {ended.status}: {last}", evidence=evidence)]
    limits = {
        True: host.setting("MCELOG_MAX_CORRECTED_RATE", "9"),
        False: host.setting("MCELOG_MAX_UNCORRECTED_RATE", "0"),
    }
    if not output:
        return [ok("no errors")]
    if not all(limits.values()):
        return [crit("MachineChecks", "MCEs detected in log.", evidence=evidence)]
    if not all(limit.isascii() and limit.isdigit() for limit in limits.values()):
        return [
            unknown("BadSetting", f"MCELOG_MAX_..._RATE must be whole numbers, not {limits[True]!r}, {limits[False]!r}")
        ]
    if not counts and output != "Memory errors":
        return [unknown("McelogUnreadable", f"the answer of {argv[0]} cannot be read", evidence=evidence)]
    bad = [errors for errors in counts if errors.recent > int(limits[errors.corrected])]
    # A module's errors are counted again in its channel's and its socket's sums.
    bad = [errors for errors in bad if errors.exact] or bad
    return [_machine_check(errors, limits[errors.corrected]) for errors in bad] or [ok("errors within limits")]


def _machine_check(errors: McelogErrors, limit: str) -> Outcome:
    kind = "corrected" if errors.corrected else "UNcorrected"
    return crit(
        "CorrectedMemoryErrors" if errors.corrected else "UncorrectedMemoryErrors",
        f"MCEs detected - {errors.recent} {kind} memory errors detected (limit of {limit}/day).",
        target=errors.place,
        metrics=(Metric(f"{kind.lower()}_memory_errors_recent", errors.recent), Metric("total", errors.total)),
        action=Action.INSPECT if errors.corrected else Action.REPLACE,
    )
