"""Packages, uptime, pending reboots, names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nhc.core.check import BadArguments
from nhc.core.host import Completed
from nhc.core.model import Verdict
from nhc.lab.testing.fake_host import FakeHost
from nhc.node.facts.packages import flavour, newer_kernel, parse_dpkg, parse_rpm
from tests.support.judge import judge, judge_all

DPKG = "munge\t0.5.15-1\tinstalled\nslurmd\t23.11.4-1.2ubuntu5\tinstalled\nold\t1.0\tconfig-files\n"
RPM = (
    "munge\t0.5.15-1.el9\npackage nosuch is not installed\n"
    "kernel\t5.14.0-70.el9\nkernel\t5.14.0-427.el9\nshadow\t2:4.9-8.el9\n"
)


def debian(answer=DPKG):
    return FakeHost({"/var/lib/dpkg/status": ""}, {"dpkg-query -W": answer})


def redhat(answer=RPM):
    return FakeHost({"/var/lib/rpm/": ""}, {"rpm -q": answer})


def test_installed():
    assert judge(debian(), "check_packages_installed munge 'slurmd>=23.11'").message == "2 packages installed"
    assert judge(redhat(), "check_packages_installed munge 'kernel>=5.14.0-100' 'shadow>=2:4.9'").verdict is Verdict.OK


def test_missing_and_too_old():
    found = judge_all(debian(), "check_packages_installed nosuch old 'slurmd>=24.05' munge")

    assert [(o.reason, o.target) for o in found] == [
        ("PackageMissing", "nosuch"),
        ("PackageMissing", "old"),
        ("PackageVersion", "slurmd"),
    ]
    assert judge(redhat(), "check_packages_installed nosuch").verdict is Verdict.CRIT
    assert judge(redhat(), "check_packages_installed 'kernel=5.15.*'").verdict is Verdict.CRIT


def test_packages_that_nobody_can_tell():
    assert judge(FakeHost(), "check_packages_installed x").verdict is Verdict.UNKNOWN
    broken = Completed(1, "", "error: rpmdb: BDB0113 Thread/process failed\n")
    assert judge(redhat(broken), "check_packages_installed x").verdict is Verdict.UNKNOWN
    assert judge(debian(Completed(124, "", "", True)), "check_packages_installed x").verdict is Verdict.UNKNOWN
    absent = Completed(1, "", "dpkg-query: no packages found matching x\n")
    assert judge(debian(absent), "check_packages_installed x").verdict is Verdict.CRIT


def test_bad_requirements_are_refused_by_name():
    with pytest.raises(BadArguments, match="not a package requirement"):
        judge(debian(), "check_packages_installed '=1'")


@given(st.text())
def test_parsers_never_fail(text):
    parse_dpkg(text)
    parse_rpm(text)


def test_uptime():
    host = FakeHost({"/proc/uptime": "600.25 1200.00\n"})

    assert judge(host, "check_uptime").verdict is Verdict.OK
    assert judge(host, "check_uptime -m 15m").reason == "UptimeShort"
    assert judge(host, "check_uptime -x 5m").reason == "UptimeLong"
    assert judge(FakeHost({"/proc/uptime": "40000000.1 1\n"}), "check_uptime").verdict is Verdict.WARN
    assert judge(FakeHost({"/proc/uptime": "junk\n"}), "check_uptime").verdict is Verdict.UNKNOWN
    assert judge(FakeHost(), "check_uptime").verdict is Verdict.UNKNOWN


RELEASE = {"/proc/sys/kernel/osrelease": "6.1.0-18-amd64\n"}


def test_reboot_mark_of_debian():
    host = FakeHost({**RELEASE, "/run/reboot-required": "", "/run/reboot-required.pkgs": "libc6\nlinux-base\nlibc6\n"})

    assert judge(host, "check_reboot_pending").message == "a reboot was asked for by libc6, linux-base"
    assert judge(host, "check_reboot_pending -c").verdict is Verdict.CRIT


def test_newer_kernel_in_boot():
    boot = {"/boot/vmlinuz-6.1.0-18-amd64": "", "/boot/vmlinuz-6.1.0-9-amd64": "", "/boot/vmlinuz-6.5.0-1-rt-amd64": ""}

    assert judge(FakeHost({**RELEASE, **boot}), "check_reboot_pending").verdict is Verdict.OK
    newer = FakeHost({**RELEASE, **boot, "/boot/vmlinuz-6.1.0-21-amd64": ""})
    assert judge(newer, "check_reboot_pending").message == "kernel 6.1.0-21-amd64 is installed, 6.1.0-18-amd64 runs"


def test_dnf_is_asked():
    said = (
        "Core libraries or services have been updated since boot-up:\n  * glibc\n  * systemd\n\nReboot is required.\n"
    )

    found = judge(FakeHost(RELEASE, {"needs-restarting -r": Completed(1, said)}), "check_reboot_pending")
    assert found.message == "updated since boot: glibc, systemd"
    nothing = FakeHost(RELEASE, {"needs-restarting -r": "No core libraries or services have been updated.\n"})
    assert judge(nothing, "check_reboot_pending").verdict is Verdict.OK
    crash = FakeHost(RELEASE, {"needs-restarting -r": Completed(1, "", "Traceback (most recent call last):\n")})
    assert judge(crash, "check_reboot_pending").verdict is Verdict.UNKNOWN


def test_nothing_to_tell_a_pending_reboot():
    assert judge(FakeHost(RELEASE), "check_reboot_pending").verdict is Verdict.SKIP
    assert judge(FakeHost(), "check_reboot_pending").verdict is Verdict.UNKNOWN


def test_flavours_of_kernels():
    assert flavour("5.14.0-427.13.1.el9_4.x86_64") == flavour("5.14.0-503.el9_5.x86_64")
    assert flavour("5.14.0-427.el9.x86_64+debug") != flavour("5.14.0-427.el9.x86_64")
    assert flavour("6.8.0-1015-aws") != flavour("6.8.0-45-generic")
    names = ["vmlinuz-5.14.0-70.el9.x86_64", "vmlinuz-0-rescue-ab12", "vmlinuz-5.14.0-427.el9.x86_64+debug", "config-9"]
    assert newer_kernel("5.14.0-70.el9.x86_64", names) is None
    assert newer_kernel("4.0", names) is None  # booted from elsewhere


def test_names_resolve():
    host = FakeHost()
    host.system.names = {"node001": ["10.0.0.1"], "ctl": ["10.0.0.9", "10.0.0.10"]}

    assert judge(host, "check_dns_resolve").message == "node001 resolved"
    assert judge(host, "check_dns_resolve -a 10.0.0.10 ctl").verdict is Verdict.OK
    assert judge(host, "check_dns_resolve -a 10.0.0.1 ctl").reason == "NameWrongAddress"
    found = judge_all(host, "check_dns_resolve ctl nosuch")
    assert [(o.verdict, o.reason, o.target) for o in found] == [(Verdict.CRIT, "NameUnresolved", "nosuch")]


def test_slow_names_and_names_that_are_none():
    host = FakeHost()
    host.system.names = {"ctl": ["10.0.0.9"]}
    times = iter([1.0, 6.1])
    host.system.monotonic = lambda: next(times)
    assert judge(host, "check_dns_resolve ctl").reason == "NameSlow"

    def refuse(name):
        raise UnicodeError("label empty or too long")

    strange = FakeHost()
    strange.system.resolve = refuse
    assert judge(strange, "check_dns_resolve ..").reason == "NameUnresolved"
