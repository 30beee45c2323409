"""The first minutes of a boot: what is on its way is UNKNOWN, what is down counts at the second look."""

import pytest

from nhc.core.language.loader import load_text
from nhc.core.model import Verdict
from nhc.core.state.store import State
from nhc.lab.testing.fake_host import FakeHost
from nhc.node.run.engine import run

PORT = {
    "/sys/class/infiniband/mlx5_0/ports/1/state": "4: ACTIVE\n",
    "/sys/class/infiniband/mlx5_0/ports/1/phys_state": "5: LinkUp\n",
    "/sys/class/infiniband/mlx5_0/ports/1/link_layer": "InfiniBand\n",
    "/sys/class/infiniband/mlx5_0/ports/1/rate": "400 Gb/sec (4X NDR)\n",
}
STATE = "/sys/class/infiniband/mlx5_0/ports/1/state"
PHYS = "/sys/class/infiniband/mlx5_0/ports/1/phys_state"
TRAINS = {**PORT, STATE: "2: INIT\n"}
DOWN = {**PORT, STATE: "1: DOWN\n", PHYS: "3: Disabled\n"}
CARRIER = {"/sys/class/net/eth0/carrier": "0\n", "/sys/class/net/eth0/flags": "0x1003\n",
           "/sys/class/net/eth0/type": "1\n", "/sys/class/net/eth0/device/": ""}  # fmt: skip
FSTAB = {"/etc/fstab": "srv:/home /home nfs defaults 0 0\n", "/proc/mounts": "", "/proc/swaps": ""}


def looks(files, line, state, uptime, times=1):
    found = []
    for _look in range(times):
        host = FakeHost(files)
        host.system.uptime = uptime
        plan = load_text(f"* || {line}\n", "nhc.conf", "n1")
        found.append([(one.verdict, one.outcome.reason) for one in run(plan, host, state=state).results])
    return [pairs[0] for pairs in found]


@pytest.fixture
def state(tmp_path):
    return State(str(tmp_path))


@pytest.mark.parametrize("line", ["check_ib_state mlx5_0", "check_ib_ports 1"])
def test_a_port_that_waits_for_its_subnet_manager_cannot_be_told_in_the_first_minutes(state, line):
    assert looks(TRAINS, line, state, 41.0, 3) == [(Verdict.UNKNOWN, "BootWindow")] * 3
    assert looks(TRAINS, line, state, 301.0) == [(Verdict.CRIT, "IbNotActive")]


@pytest.mark.parametrize(
    ("files", "line", "reason"),
    [
        (DOWN, "check_ib_state mlx5_0", "IbPortDown"),
        (DOWN, "check_ib_ports 1", "IbPortDown"),
        (PORT, "check_ib_ports 2", "IbPortMissing"),
        (CARRIER, "check_eth_carrier eth0", "NoCarrier"),
        (CARRIER, "check_eth_carrier eth1", "NoSuchInterface"),
        ({}, "check_gpu_count 8", "GpuCountMismatch"),
        (FSTAB, "check_mount_fstab", "NotMounted"),
        ({}, "check_runtime_ready /run/crio/crio.sock", "RuntimeDown"),
    ],
)
def test_what_is_down_counts_at_the_second_look(state, files, line, reason):
    assert looks(files, line, state, 41.0, 2) == [(Verdict.UNKNOWN, "BootWindow"), (Verdict.CRIT, reason)]
    other = State(f"{state.directory}/other")
    assert looks(files, line, other, 301.0) == [(Verdict.CRIT, reason)]


def test_a_port_that_came_up_in_between_begins_anew(state):
    assert looks(DOWN, "check_ib_state mlx5_0", state, 41.0) == [(Verdict.UNKNOWN, "BootWindow")]
    assert looks(PORT, "check_ib_state mlx5_0", state, 60.0) == [(Verdict.OK, "")]
    assert looks(DOWN, "check_ib_state mlx5_0", state, 80.0) == [(Verdict.UNKNOWN, "BootWindow")]


def test_the_window_is_a_setting_and_other_faults_count_at_once(state):
    plan = "export NHC_BOOT_WINDOW=10s\n* || check_ib_state mlx5_0"
    assert looks(DOWN, plan, state, 41.0)[-1] == (Verdict.CRIT, "IbPortDown")
    assert looks({}, "check_file_test -d /nonexistent", state, 5.0) == [(Verdict.CRIT, "FileTestFailed")]
