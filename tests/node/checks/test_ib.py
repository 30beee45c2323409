"""RDMA ports: state, number, rate, link layer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nhc.core.check import BadArguments
from nhc.core.model import Action, Verdict
from nhc.lab.testing.fake_host import FakeHost, Symlink
from nhc.node.facts.infiniband import Port, parse_portinfo
from tests.support.judge import judge, judge_all
from tests.support.rdma import device, eight

DOWN = {"state": "1: DOWN", "phys": "3: Disabled"}
PORTINFO = """\
# Port info: DR path slid 65535; dlid 65535; 0 port 0
LinkWidthEnabled:................1X or 2X or 4X
LinkWidthSupported:..............1X or 2X or 4X
LinkWidthActive:.................4X
LinkSpeedSupported:..............2.5 Gbps or 5.0 Gbps or 10.0 Gbps
LinkSpeedExtSupported:...........14.0625 Gbps or 25.78125 Gbps or 53.125 Gbps or 106.25 Gbps
LinkSpeedExtActive:..............53.125 Gbps
"""


@pytest.mark.parametrize("line", ["check_ib_state", "check_ib_rate", "check_ib_layer ib", "check_ib_errors",
                                  "check_ib_firmware", "check_ib_guid", "check_ib_link_flapping"])  # fmt: skip
def test_a_node_without_rdma_is_skipped(line):
    assert judge(FakeHost(), line).verdict is Verdict.SKIP


def test_ports_that_are_up():
    host = FakeHost(eight())

    assert judge(host, "check_ib_state").message == "8 RDMA ports up"
    assert judge(host, "check_ib_state mlx5_0 mlx5_3:1").verdict is Verdict.OK
    assert judge(host, "check_ib_ports 8 400").verdict is Verdict.OK


def test_a_second_port_that_nobody_uses_is_no_fault_unless_it_is_named():
    host = FakeHost({**device("mlx5_0"), **device("mlx5_1", **DOWN)})

    assert judge(host, "check_ib_state").message == "1 RDMA ports up, 1 never used"
    assert judge(host, "check_ib_state mlx5_1").reason == "IbPortDown"


VERBS = "/sys/class/infiniband_verbs"


def verbs(*names, files=None):
    """Devices as programs open them; `files` are those of /dev that are there."""
    tree = {}
    for number, name in enumerate(names):
        tree[f"{VERBS}/uverbs{number}/ibdev"] = f"{name}\n"
    for number in range(len(names)) if files is None else files:
        tree[f"/dev/infiniband/uverbs{number}"] = ""
    return tree


PAIR = {**device("mlx5_0"), **device("mlx5_1")}


@pytest.mark.parametrize("line", ["check_ib_state", "check_ib_ports 2 400", "check_hw_ib 400 mlx5_1"])
def test_a_device_that_no_program_can_open_passes_no_check(line):
    assert judge(FakeHost({**PAIR, **verbs("mlx5_0", "mlx5_1")}), line).verdict is Verdict.OK
    for broken in (verbs("mlx5_0", "mlx5_1", files=[0]), verbs("mlx5_0"), verbs("mlx5_0", "mlx5_1", files=[])):
        found = judge_all(FakeHost({**PAIR, **broken}), line)[-1]
        assert (found.verdict, found.reason, found.target) == (Verdict.CRIT, "IbVerbsMissing", "mlx5_1")


def test_a_node_without_the_module_that_opens_devices():
    found = judge_all(FakeHost({**PAIR, "/dev/infiniband/rdma_cm": ""}), "check_ib_state")
    assert {(o.reason, o.target) for o in found} == {("IbVerbsMissing", "mlx5_0"), ("IbVerbsMissing", "mlx5_1")}
    below = {f"/sys/class/infiniband/mlx5_{n}/device/infiniband_verbs/uverbs{n}/dev": "" for n in (0, 1)}
    found = judge(FakeHost({**PAIR, **below, "/dev/infiniband/uverbs0": ""}), "check_ib_state")
    assert (found.reason, found.target) == ("IbVerbsMissing", "mlx5_1")


def test_any_usable_port_will_do_where_none_is_named():
    host = FakeHost({**PAIR, **verbs("mlx5_0", "mlx5_1", files=[1])})
    assert judge(host, "check_hw_ib 400").verdict is Verdict.OK


def test_an_elastic_fabric_adapter_is_opened_in_the_same_way():
    adapter = device("rdmap16s27", rate=100, layer="Unknown", driver="efa")
    assert judge(FakeHost({**adapter, **verbs("rdmap16s27", files=[])}), "check_efa_devices").reason == "IbVerbsMissing"


def test_in_a_container_the_files_of_other_programs_are_not_looked_for():
    mounts = "tmpfs /dev tmpfs rw 0 0\n"
    host = FakeHost({**PAIR, **verbs("mlx5_0", "mlx5_1", files=[0]), "/proc/mounts": mounts})
    assert judge(host, "check_ib_state").verdict is Verdict.OK


BROKEN = Symlink("/proc/self/mem")
"""A file whose read gives EIO."""


@pytest.mark.parametrize("leaf", ["state", "phys_state"])
@pytest.mark.parametrize("line", ["check_ib_state", "check_ib_rate -r 400", "check_ib_ports 2 400"])
def test_a_port_whose_state_cannot_be_read_is_neither_well_nor_down(line, leaf):
    host = FakeHost({**device("mlx5_0"), **device("mlx5_1"),
                     f"/sys/class/infiniband/mlx5_1/ports/1/{leaf}": BROKEN})  # fmt: skip
    found = judge(host, line)
    assert (found.verdict, found.reason) == (Verdict.UNKNOWN, "IbStateUnknown")
    assert "mlx5_1:1" in found.message
    assert "EIO" in found.message


def test_the_only_port_of_a_node_whose_state_cannot_be_read():
    host = FakeHost({**device("mlx5_0"), "/sys/class/infiniband/mlx5_0/ports/1/state": BROKEN})
    assert judge(host, "check_ib_rate").reason == "IbStateUnknown"


@pytest.mark.parametrize(("leaf", "line"), [("rate", "check_ib_rate"), ("link_layer", "check_ib_layer ib")])
def test_what_else_a_port_does_not_tell_is_said_with_the_reason(leaf, line):
    host = FakeHost({**device("mlx5_0"), f"/sys/class/infiniband/mlx5_0/ports/1/{leaf}": BROKEN})
    found = judge(host, line)
    assert found.verdict is Verdict.UNKNOWN
    assert "EIO" in found.message


def test_no_port_up_is_critical():
    assert judge(FakeHost(device("mlx5_0", **DOWN)), "check_ib_state").verdict is Verdict.CRIT


def test_a_port_that_was_up_since_boot_must_still_be():
    host = FakeHost({**device("mlx5_0"), **device("mlx5_1")})
    assert judge(host, "check_ib_state").verdict is Verdict.OK

    host.write("/sys/class/infiniband/mlx5_1/ports/1/state", "1: DOWN\n")
    host.write("/sys/class/infiniband/mlx5_1/ports/1/phys_state", "2: Polling\n")
    host.forget()

    assert [(o.reason, o.target) for o in judge_all(host, "check_ib_state")] == [("IbPortDown", "mlx5_1:1")]


def test_a_port_that_has_counted_a_loss_is_in_use():
    host = FakeHost({**device("mlx5_0"), **device("mlx5_1", **DOWN, counters={"link_downed": 1})})

    assert judge(host, "check_ib_state").target == "mlx5_1:1"


def test_a_link_without_a_subnet_manager():
    found = judge(FakeHost({**device("mlx5_0"), **device("mlx5_1", state="2: INIT")}), "check_ib_state")

    assert (found.reason, found.target) == ("IbNotActive", "mlx5_1:1")
    assert "no subnet manager" in found.message


def test_a_port_that_does_not_tell_its_state_is_unknown():
    host = FakeHost({**device("mlx5_0"), **device("mlx5_1", state="", phys="")})

    assert judge(host, "check_ib_state").verdict is Verdict.UNKNOWN


def test_a_missing_adapter_by_name_and_by_number():
    host = FakeHost({path: text for path, text in eight().items() if "/mlx5_7/" not in path})

    named = judge(host, "check_ib_state mlx5_7")
    counted = judge(host, "check_ib_ports 8 400")

    assert (named.reason, named.action) == ("IbPortMissing", Action.REBOOT)
    assert (counted.reason, counted.message) == (
        "IbPortMissing", "7 of 8 RDMA ports are up with at least 400 Gb/s (7 there)")  # fmt: skip


def test_one_slow_and_one_dead_port_of_eight():
    slow = FakeHost({**eight(), **device("mlx5_3", rate=200)})
    dead = FakeHost({**eight(), **device("mlx5_3", **DOWN)})

    assert judge(slow, "check_ib_ports 8 400").reason == "IbRateMismatch"
    assert judge(slow, "check_ib_ports 8").verdict is Verdict.OK
    assert judge(dead, "check_ib_ports 8 400").reason == "IbPortDown"
    assert "mlx5_3:1" in judge(dead, "check_ib_ports 8 400").message


def test_only_ports_of_a_layer_or_name_count():
    host = FakeHost({**eight(), **device("mlx5_an0", rate=100, layer="Ethernet")})

    assert judge(host, "check_ib_ports -l ib 8 400").verdict is Verdict.OK
    assert judge(host, "check_ib_ports -l roce 1 100").verdict is Verdict.OK
    assert judge(host, "check_ib_ports -l ib 9").verdict is Verdict.CRIT
    assert judge(host, "check_ib_ports -d mlx5_an* 1 100").verdict is Verdict.OK
    with pytest.raises(BadArguments, match="link layer"):
        judge(host, "check_ib_ports -l token-ring 1")


def test_a_node_made_without_adapters():
    assert judge(FakeHost(), "check_ib_ports 8").verdict is Verdict.CRIT
    assert judge(FakeHost(), "check_ib_ports -o 8").verdict is Verdict.SKIP
    assert judge(FakeHost(device("mlx5_0")), "check_ib_ports -o 8").verdict is Verdict.CRIT


def test_ports_whose_driver_tells_no_rate():
    host = FakeHost({**device("mlx5_0", rate=0), **device("mlx5_1")})

    assert judge(host, "check_ib_ports 2 400").reason == "IbRateUnknown"
    assert judge(host, "check_ib_rate -r 400 mlx5_0").verdict is Verdict.UNKNOWN


def test_the_wrong_link_layer():
    host = FakeHost({**device("mlx5_0"), **device("mlx5_1", layer="Ethernet")})

    assert [(o.reason, o.target) for o in judge_all(host, "check_ib_layer ib")] == [("IbLayerMismatch", "mlx5_1:1")]
    assert judge(host, "check_ib_layer roce mlx5_1").verdict is Verdict.OK


def test_a_link_slower_than_its_equals():
    host = FakeHost({**eight(), **device("mlx5_5", rate=200)})

    found = judge_all(host, "check_ib_rate")

    assert [(o.reason, o.target) for o in found] == [("IbRateDegraded", "mlx5_5:1")]
    assert "200 of 400 Gb/s: 400 on mlx5_0:1 of the same model" in found[0].message


def test_adapters_of_different_models_are_not_compared():
    host = FakeHost({**device("mlx5_0"), **device("mlx5_1", rate=100, board="MT_0000000359")})

    assert {o.reason for o in judge_all(host, "check_ib_rate")} == {"NoExpectation"}
    assert judge(host, "check_ib_rate -r 100").verdict is Verdict.OK


def test_adapters_that_do_not_tell_their_model_are_not_compared_either():
    host = FakeHost({**device("mlx4_0", rate=10, board=""), **device("mlx5_1", rate=100, board="")})

    assert {o.reason for o in judge_all(host, "check_ib_rate")} == {"NoExpectation"}


def test_a_link_slower_than_it_was():
    host = FakeHost(device("mlx5_0"))
    judge(host, "check_ib_rate -r 400")

    host.write("/sys/class/infiniband/mlx5_0/ports/1/rate", "100 Gb/sec (4X EDR)\n")
    host.forget()

    assert "400 since boot" in judge(host, "check_ib_rate").message


def test_a_link_slower_than_it_could_be():
    command = ("smpquery", "-C", "mlx5_0", "-P", "1", "-D", "portinfo", "0")

    assert (
        "400 is what it supports"
        in judge(FakeHost(device("mlx5_0", rate=200), {command: PORTINFO}), "check_ib_rate").message
    )
    assert judge(FakeHost(device("mlx5_0"), {command: PORTINFO}), "check_ib_rate").verdict is Verdict.OK


def test_portinfo():
    assert parse_portinfo(PORTINFO) == 400
    assert parse_portinfo(PORTINFO.replace(" or 106.25 Gbps", "")) == 200
    assert (
        parse_portinfo("LinkWidthSupported:..............1X or 4X\nLinkSpeedSupported:....2.5 Gbps or 5.0 Gbps\n") == 20
    )
    assert parse_portinfo("ibwarn: [1] mad_rpc: _do_madrpc failed\n") is None


@given(st.text())
def test_portinfo_takes_any_text(text):
    assert parse_portinfo(text) is None or parse_portinfo(text) > 0


def test_a_port_that_is_not_as_it_should_be_is_named_with_its_state_or_its_rates():
    good = Port("mlx5_0", 1, "ACTIVE", "LinkUp", 100.0, "InfiniBand", "", "")
    assert good.fault(200.0) == "mlx5_0:1 100 of 200 Gb/s"
    assert good._replace(state="INIT").fault(200.0) == "mlx5_0:1 INIT"
    assert good._replace(rate_gbps=None).fault(200.0) == "mlx5_0:1 rate unknown"
    assert good._replace(state="").fault() == "mlx5_0:1 state unknown"
