"""Records that a dying kernel left."""

import os

import pytest

from nhc.core.model import Verdict
from nhc.lab.testing.fake_host import FakeHost
from tests.support.judge import judge, judge_all

PANIC = (
    "Panic#1 Part1\n<4>[  405.480943] RSP: 0018:ffffb971801c7e90\n"
    "<0>[   12.345678] Kernel panic - not syncing: Fatal exception in interrupt\n"
)
OLDER = "Panic#1 Part2\n<6>[   11.000000] an older line\n"
OOPS = "Oops#1 Part1\n<1>[ 9.1] BUG: unable to handle page fault for address: ffff\n"
SHUTDOWN = "Shutdown#1 Part1\n<6>[ 9.1] reboot: Restarting system\n"
PSTORE = "/sys/fs/pstore"


def test_a_panic_is_one_finding_however_many_parts_it_has():
    host = FakeHost({f"{PSTORE}/dmesg-efi_pstore-172172172101001": PANIC,
                     f"{PSTORE}/dmesg-efi_pstore-172172172102001": OLDER})  # fmt: skip

    (found,) = judge_all(host, "check_pstore_panic")
    assert (found.verdict, found.reason) == (Verdict.WARN, "KernelDied")
    assert "Kernel panic - not syncing: Fatal exception in interrupt" in found.message
    assert judge(host, "check_pstore_panic -c").verdict is Verdict.CRIT


def test_a_record_is_news_for_a_day_and_until_it_is_removed_with_for_0():
    host = FakeHost({f"{PSTORE}/dmesg-ramoops-0": PANIC})
    assert judge(host, "check_pstore_panic").verdict is Verdict.WARN
    host.system.now += 86000
    assert judge(host, "check_pstore_panic").verdict is Verdict.WARN
    host.system.now += 1000
    assert judge(host, "check_pstore_panic").verdict is Verdict.OK
    assert judge(host, "check_pstore_panic -f 0").verdict is Verdict.WARN

    host.remove(f"{PSTORE}/dmesg-ramoops-0")
    assert judge(host, "check_pstore_panic -f 0").verdict is Verdict.OK


def test_a_record_that_systemd_moved_is_the_same_and_another_panic_is_not():
    host = FakeHost({f"{PSTORE}/dmesg-ramoops-0": PANIC})
    judge(host, "check_pstore_panic")
    host.system.now += 90000
    host.remove(f"{PSTORE}/dmesg-ramoops-0")
    host.write("/var/lib/systemd/pstore/1721721721/001/dmesg.txt", PANIC + OLDER)
    assert judge(host, "check_pstore_panic").verdict is Verdict.OK
    host.write(f"{PSTORE}/dmesg-ramoops-0", PANIC)  # in both places while systemd moves it
    assert len(judge_all(host, "check_pstore_panic -f 0")) == 1

    host.write("/var/lib/systemd/pstore/1721799999/dmesg.txt", PANIC.replace("12.345678", "99.1"))
    assert len(judge_all(host, "check_pstore_panic")) == 1
    assert judge(host, "check_pstore_panic").verdict is Verdict.WARN


@pytest.mark.parametrize(("text", "expected"), [(OOPS, Verdict.WARN), (SHUTDOWN, Verdict.OK), ("junk", Verdict.OK)])
def test_what_a_record_tells(text, expected):
    assert judge(FakeHost({f"{PSTORE}/dmesg-erst-1": text}), "check_pstore_panic").verdict is expected


@pytest.mark.parametrize("files", [
    {"/var/crash/127.0.0.1-2026-11-20/vmcore": "x", "/var/crash/127.0.0.1-2026-11-20/vmcore-dmesg.txt": PANIC},
    {"/var/crash/202611200102/dump.202611200102": "x", "/var/crash/202611200102/dmesg.202611200102": PANIC},
], ids=["rhel", "debian"])  # fmt: skip
def test_a_dump_of_kdump(files):
    host = FakeHost(files)
    found = judge(host, "check_pstore_panic -d")
    assert (found.verdict, found.reason) == (Verdict.WARN, "KernelDumped")
    assert "Fatal exception" in found.message
    assert judge(host, "check_pstore_panic").verdict is Verdict.OK


def test_no_place_for_records_and_one_that_may_not_be_read():
    assert judge(FakeHost(), "check_pstore_panic").verdict is Verdict.SKIP
    host = FakeHost({f"{PSTORE}/": ""})
    assert judge(host, "check_pstore_panic").verdict is Verdict.OK
    os.rmdir(host.path(PSTORE))
    host.write(PSTORE, "not a directory")
    host.write("/var/crash/", "")
    assert judge(host, "check_pstore_panic").verdict is Verdict.UNKNOWN
