"""Every host-side check on the machine that runs the tests: whatever it is, a verdict and no bug."""

import pytest

from nhc.core.host import Host
from nhc.core.model import Verdict
from tests.support.judge import judge_all

LINES = [
    "check_clock_offset", "check_clock_sync", "check_cpu_clocksource", "check_cpu_frequency",
    "check_cpu_frequency -m 1", "check_cpu_governor", "check_dns_resolve localhost", "check_edac_errors",
    "check_eth_carrier", "check_eth_errors", "check_eth_speed", "check_hugepages", "check_hugepages -t 0 -f 0",
    "check_kernel_cmdline '!no-such-word'",
    "check_kernel_modules '!no_such_module'", "check_kernel_taint", "check_kernel_version '>=2.6'", "check_limits_fds",
    "check_limits_inodes", "check_limits_pids", "check_mce_events", "check_mount_readonly", "check_mount_responds /",
    "check_nvme_health", "check_oom_kills", "check_packages_installed no-such-package", "check_pcie_aer",
    "check_pcie_link", "check_ps_dstate", "check_ps_zombies", "check_reboot_pending", "check_smart_health",
    "check_systemd_failed", "check_systemd_units no-such-unit", "check_uptime",
]  # fmt: skip


@pytest.mark.parametrize("line", LINES)
def test_every_check_has_a_verdict_on_a_real_node(line):
    host = Host()
    for _ in range(2):  # the second run has a memory of the first
        for outcome in judge_all(host, line):
            assert outcome.reason != "CheckBroken", outcome.evidence
            assert outcome.verdict is Verdict.OK or outcome.reason
            assert outcome.message


@pytest.mark.parametrize("line", ["check_kernel_version '>=2.6'", "check_uptime -x 0", "check_mount_responds /"])
def test_what_holds_on_every_node(line):
    assert [outcome.verdict for outcome in judge_all(Host(), line)] == [Verdict.OK]
