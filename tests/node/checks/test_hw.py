import pytest

from nhc.core.check import BadArguments
from nhc.core.host import Completed
from nhc.core.model import Action, Verdict
from nhc.lab.testing.fake_host import FakeHost
from tests.support.judge import judge, judge_all

CPUINFO = "".join(
    f"processor\t: {cpu}\nphysical id\t: {cpu % 2}\nsiblings\t: 8\ncore id\t\t: {cpu // 2 % 4}\ncpu cores\t: 4\n\n"
    for cpu in range(16)
)
NET_DEV = (
    "Inter-|   Receive |  Transmit\n face |bytes packets |bytes packets\n"
    "    lo: 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0\n ens1f0: 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0\n"
)


def node(**more):
    return FakeHost({"/proc/cpuinfo": CPUINFO, "/proc/net/dev": NET_DEV}, **more)


# check_hw_cpuinfo


@pytest.mark.parametrize("arguments", ["2 8 16", "2", "'' 8", "'' '' 16", ""])
def test_the_cpus_that_are_there_pass(arguments):
    assert judge(node(), f"check_hw_cpuinfo {arguments}").verdict is Verdict.OK


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("1 8 16", "Actual CPU socket count (2) does not match expected (1)."),
        ("2 4 16", "Actual CPU core count (8) does not match expected (4)."),
        ("2 8 8", "Actual CPU thread count (16) does not match expected (8)."),
        ("'' '' 08", "Actual CPU thread count (16) does not match expected (8)."),
    ],
)
def test_a_count_that_differs_fails(arguments, message):
    outcome = judge(node(), f"check_hw_cpuinfo {arguments}")

    assert (outcome.verdict, outcome.reason, outcome.message) == (Verdict.CRIT, "CpuCountMismatch", message)
    assert {metric.name: metric.value for metric in outcome.metrics}["cpu_threads"] == 16


def test_sockets_that_the_kernel_does_not_know_are_unknown():
    arm = FakeHost({"/proc/cpuinfo": "processor\t: 0\nBogoMIPS\t: 50.00\n\nprocessor\t: 1\nBogoMIPS\t: 50.00\n"})

    assert judge(arm, "check_hw_cpuinfo 1").reason == "CpuTopologyUnknown"
    assert judge(arm, "check_hw_cpuinfo '' '' 2").verdict is Verdict.OK


def test_a_cpuinfo_of_junk_is_unknown():
    assert judge(FakeHost({"/proc/cpuinfo": "hello"}), "check_hw_cpuinfo 1").reason == "CpuTopologyUnreadable"
    assert judge(FakeHost(), "check_hw_cpuinfo 1").verdict is Verdict.UNKNOWN


def test_a_count_must_be_a_number():
    with pytest.raises(BadArguments, match="sockets: 'two' is not a whole number"):
        judge(node(), "check_hw_cpuinfo two")


CPU = "/sys/devices/system/cpu"


def cpus(online, present, control="on"):
    return FakeHost({"/proc/cpuinfo": CPUINFO, f"{CPU}/online": f"{online}\n", f"{CPU}/present": f"{present}\n",
                     f"{CPU}/smt/control": f"{control}\n"})  # fmt: skip


@pytest.mark.parametrize(
    ("online", "present", "control", "offline"),
    [
        ("0-63", "0-63", "on", ""),
        ("0-1,4-63", "0-63", "on", "2 of 18 CPUs are offline (2-3)"),
        ("0-62", "0-63", "notsupported", "1 of 17 CPUs are offline (63)"),
        ("0-63", "0-127", "off", ""),  # threads that are switched off on purpose
        ("0-63", "0-127", "forceoff", ""),
        ("0-62", "0-127", "off", "65 of 81 CPUs are offline (63-127)"),  # and a core that is not there beside them
        ("0-63", "junk", "on", ""),
    ],
)
def test_without_arguments_every_cpu_that_is_there_must_be_online(online, present, control, offline):
    found = judge(cpus(online, present, control), "check_hw_cpuinfo")
    assert (found.verdict, found.reason) == ((Verdict.CRIT, "CpuOffline") if offline else (Verdict.OK, ""))
    assert not offline or found.message == offline


@pytest.mark.parametrize("leaf", ["online", "present"])
def test_whether_cpus_are_offline_is_unknown_where_the_kernel_does_not_tell(leaf):
    host = FakeHost({"/proc/cpuinfo": "processor\t: 0\n", f"/sys/devices/system/cpu/{leaf}/x": "",
                     f"/sys/devices/system/cpu/{'present' if leaf == 'online' else 'online'}": "0-63\n"})  # fmt: skip
    found = judge(host, "check_hw_cpuinfo")
    assert (found.verdict, found.reason) == (Verdict.UNKNOWN, "CpuTopologyUnknown")


def test_with_arguments_these_alone_are_judged():
    assert judge(cpus("0-13", "0-15"), "check_hw_cpuinfo 2 8 16").verdict is Verdict.OK  # /proc/cpuinfo has 16


NODE = "/sys/devices/system/node"


def numa(nodes, with_cpus, **files):
    tree = {f"{NODE}/online": f"0-{nodes - 1}\n"}
    for number in range(nodes):
        tree[f"{NODE}/node{number}/cpulist"] = f"{number * 8}-{number * 8 + 7}\n" if number < with_cpus else "\n"
        tree[f"{NODE}/node{number}/meminfo"] = f"Node {number} MemTotal:       131072 kB\n"
    return FakeHost({**tree, **files})


def test_numa_nodes_are_counted():
    assert judge(numa(2, 2), "check_hw_numa 2").verdict is Verdict.OK
    found = judge(numa(8, 8), "check_hw_numa 2")
    assert (found.verdict, found.reason) == (Verdict.CRIT, "NumaCountMismatch")
    assert judge(numa(34, 2), "check_hw_numa -a 34 2").verdict is Verdict.OK
    assert judge(numa(34, 2), "check_hw_numa 2").verdict is Verdict.OK
    assert judge(numa(33, 2), "check_hw_numa -a 34 2").reason == "NumaCountMismatch"
    assert judge(FakeHost(), "check_hw_numa 2").verdict is Verdict.SKIP
    assert judge(FakeHost({f"{NODE}/online": "junk"}), "check_hw_numa 2").verdict is Verdict.UNKNOWN


def test_a_numa_node_with_cpus_and_without_memory():
    bare = {f"{NODE}/node1/meminfo": "Node 1 MemTotal:       0 kB\n"}
    assert judge(numa(2, 2), "check_hw_numa").verdict is Verdict.OK
    assert judge(numa(2, 2, **bare), "check_hw_numa").reason == "NumaNoMemory"


# check_hw_eth and check_hw_gm


@pytest.mark.parametrize("device", ["ens1f0", "ens*", "/^ens[0-9]/"])
def test_an_interface_that_exists_passes(device):
    assert judge(node(), f"check_hw_eth '{device}'").verdict is Verdict.OK


def test_an_interface_that_is_missing_fails():
    outcome = judge(node(), "check_hw_eth eth0")

    assert (outcome.verdict, outcome.message) == (Verdict.CRIT, "Ethernet device eth0 not detected.")
    assert judge(FakeHost(), "check_hw_eth eth0").verdict is Verdict.UNKNOWN


def test_myrinet_needs_interface_and_driver():
    host = node()
    says = "GM device ens1f0 not active, either driver is not loaded, or interface not created."

    assert judge(host, "check_hw_gm ens1f0").message == says
    host.write("/proc/modules", "gmac 1 0 - Live 0x0\n")
    assert judge(host, "check_hw_gm ens1f0").message == says
    host.write("/proc/modules", "gm 1 0 - Live 0x0\n")
    assert judge(host, "check_hw_gm ens1f0").verdict is Verdict.OK
    assert judge(host, "check_hw_gm myri0").verdict is Verdict.CRIT


# check_hw_ib


def ib(**ports):
    files = {}
    for name, (state, phys, rate) in ports.items():
        base = f"/sys/class/infiniband/{name}/ports/1"
        files[f"{base}/state"] = state + "\n"
        files[f"{base}/phys_state"] = phys + "\n"
        files[f"{base}/rate"] = rate + "\n"
        files[f"{base}/link_layer"] = "InfiniBand\n"
    return FakeHost(files)


UP = ("4: ACTIVE", "5: LinkUp", "400 Gb/sec (4X NDR)")
SLOW = ("4: ACTIVE", "5: LinkUp", "200 Gb/sec (4X HDR)")
DOWN = ("1: DOWN", "3: Disabled", "10 Gb/sec (4X SDR)")


@pytest.mark.parametrize("arguments", ["", "400", "400 mlx5_0:1", "400 mlx5_0", "'' mlx5_0:1", "200 mlx5_2:1"])
def test_a_port_that_is_up_at_its_rate_passes(arguments):
    assert judge(ib(mlx5_0=UP, mlx5_1=DOWN, mlx5_2=SLOW), f"check_hw_ib {arguments}").verdict is Verdict.OK


@pytest.mark.parametrize(
    ("arguments", "reason", "message"),
    [
        (
            "100",
            "IbRateMismatch",
            (
                "No IB port is ACTIVE (LinkUp 100 Gb/sec): mlx5_0:1 400 of 100 Gb/s, mlx5_1:1 DOWN, "
                "mlx5_2:1 200 of 100 Gb/s."
            ),
        ),
        ("400 mlx5_1:1", "IbPortDown", "No IB port mlx5_1:1 is ACTIVE (LinkUp 400 Gb/sec): mlx5_1:1 DOWN."),
        (
            "400 mlx5_2:1",
            "IbRateMismatch",
            "No IB port mlx5_2:1 is ACTIVE (LinkUp 400 Gb/sec): mlx5_2:1 200 of 400 Gb/s.",
        ),
        ("400 mlx5_9:1", "IbPortMissing", "No IB port mlx5_9:1 is ACTIVE (LinkUp 400 Gb/sec)."),
        ("'' mlx5_1:1", "IbPortDown", "No IB port mlx5_1:1 is ACTIVE (LinkUp): mlx5_1:1 DOWN."),
    ],
)
def test_a_port_that_is_not_fails(arguments, reason, message):
    outcome = judge(ib(mlx5_0=UP, mlx5_1=DOWN, mlx5_2=SLOW), f"check_hw_ib {arguments}")

    assert (outcome.verdict, outcome.reason, outcome.message) == (Verdict.CRIT, reason, message)


def test_a_node_without_any_port_fails_where_one_is_asked_for():
    assert judge(FakeHost(), "check_hw_ib 400").message == "No IB port is ACTIVE (LinkUp 400 Gb/sec): no adapter."


def test_a_port_needs_its_logical_and_its_physical_link():
    assert judge(ib(mlx5_0=("2: INIT", "5: LinkUp", "400 Gb/sec (4X NDR)")), "check_hw_ib 400").reason == "IbPortDown"
    assert judge(ib(mlx5_0=("4: ACTIVE", "2: Polling", "400 Gb/sec (4X NDR)")), "check_hw_ib").reason == "IbPortDown"


def test_what_other_ports_do_is_told_when_the_one_named_is_missing():
    assert judge(ib(mlx5_0=UP), "check_hw_ib 400 mlx5_9:1").evidence == (
        "mlx5_0:1 ACTIVE (LinkUp 400 Gb/sec InfiniBand)",
    )


@pytest.mark.parametrize(
    "line", ["check_hw_eth", "check_hw_gm", "check_hw_gm ''", "check_hw_mcelog now", "check_hw_ib fast"]
)
def test_bad_arguments_are_refused(line):
    with pytest.raises(BadArguments):
        judge(node(), line)


def test_a_rate_that_the_driver_does_not_tell_is_unknown():
    host = ib(mlx5_0=("4: ACTIVE", "5: LinkUp", ""))

    assert judge(host, "check_hw_ib 400").reason == "IbRateUnknown"
    assert judge(host, "check_hw_ib").verdict is Verdict.OK


def test_the_state_of_each_port_is_the_evidence():
    evidence = judge(ib(mlx5_0=SLOW, mlx5_1=DOWN), "check_hw_ib 400").evidence

    assert evidence == (
        "mlx5_0:1 ACTIVE (LinkUp 200 Gb/sec InfiniBand)",
        "mlx5_1:1 DOWN (Disabled 10 Gb/sec InfiniBand)",
    )


# check_hw_mcelog


def answer(*counts):
    """An answer of mcelog with (corrected, uncorrected) in 24 hours for each module of socket 0."""
    parts = ["Memory errors"]
    places = [("CHANNEL any DIMM any", sum(c for c, _ in counts), sum(u for _, u in counts))]
    places += [(f"CHANNEL {number} DIMM 0", c, u) for number, (c, u) in enumerate(counts)]
    for place, corrected, uncorrected in places:
        parts.append(f"SOCKET 0 {place}")
        parts.append(f"corrected memory errors:\n\t{corrected + 100} total\n\t{corrected} in 24h")
        parts.append(f"uncorrected memory errors:\n\t{uncorrected} total\n\t{uncorrected} in 24h\n")
    return "\n".join(parts)


def mce(said, **settings):
    return FakeHost({}, {"mcelog --client": said}, settings)


def test_errors_within_the_limits_pass():
    assert judge(mce(answer((9, 0), (0, 0))), "check_hw_mcelog").verdict is Verdict.OK
    assert judge(mce(""), "check_hw_mcelog").verdict is Verdict.OK


def test_too_many_corrected_errors_name_the_module():
    (outcome,) = judge_all(mce(answer((0, 0), (10, 0))), "check_hw_mcelog")

    assert outcome.message == "MCEs detected - 10 corrected memory errors detected (limit of 9/day)."
    assert (outcome.verdict, outcome.target) == (Verdict.CRIT, "SOCKET 0 CHANNEL 1 DIMM 0")


def test_errors_spread_over_modules_are_reported_for_the_socket():
    (outcome,) = judge_all(mce(answer((6, 0), (6, 0))), "check_hw_mcelog")

    assert outcome.target == "SOCKET 0 CHANNEL any DIMM any"


def test_one_uncorrected_error_asks_for_a_new_module():
    (outcome,) = judge_all(mce(answer((0, 1))), "check_hw_mcelog")

    assert outcome.message == "MCEs detected - 1 UNcorrected memory errors detected (limit of 0/day)."
    assert outcome.action is Action.REPLACE


def test_limits_are_settings():
    assert judge(mce(answer((10, 0)), MCELOG_MAX_CORRECTED_RATE="10"), "check_hw_mcelog").verdict is Verdict.OK
    assert judge(mce(answer((0, 1)), MCELOG_MAX_UNCORRECTED_RATE="1"), "check_hw_mcelog").verdict is Verdict.OK
    assert judge(mce(answer((0, 1)), MCELOG_MAX_CORRECTED_RATE="many"), "check_hw_mcelog").reason == "BadSetting"


def test_without_a_limit_any_report_fails():
    outcome = judge(mce(answer((0, 0)), MCELOG_MAX_CORRECTED_RATE=""), "check_hw_mcelog")

    assert (outcome.verdict, outcome.message) == (Verdict.CRIT, "MCEs detected in log.")


def test_the_command_is_a_setting():
    host = FakeHost({}, {"/opt/mcelog --ask now": ""}, {"MCELOG": "/opt/mcelog", "MCELOG_ARGS": "--ask now"})

    assert judge(host, "check_hw_mcelog").verdict is Verdict.OK


@pytest.mark.parametrize(
    ("ended", "verdict", "reason"),
    [
        (Completed(1, "", "client connect: Connection refused\n"), Verdict.UNKNOWN, "McelogDaemonDown"),
        (Completed(1, "", "mcelog: client connect: No such file or directory\n"), Verdict.UNKNOWN, "McelogDaemonDown"),
        (Completed(1, "", "mcelog: exploded\n"), Verdict.UNKNOWN, "McelogFailed"),
        (Completed(0, "what?\n"), Verdict.UNKNOWN, "McelogUnreadable"),
        (Completed(143, "", "", timed_out=True), Verdict.UNKNOWN, "McelogTimeout"),
        (
            Completed(1, "", "mcelog: ERROR: AMD Processor family 25: mcelog does not support this processor.\n"),
            Verdict.SKIP,
            "McelogUnsupported",
        ),
    ],
)
def test_an_mcelog_that_cannot_answer_is_not_ok(ended, verdict, reason):
    outcome = judge(mce(ended), "check_hw_mcelog")

    assert (outcome.verdict, outcome.reason) == (verdict, reason)


def test_no_mcelog_is_unknown():
    assert judge(FakeHost(), "check_hw_mcelog").reason == "CommandMissing"
