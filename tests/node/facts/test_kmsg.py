"""The kernel log's sources: every form of time stamp, the cursor, rotation, and the real /dev/kmsg."""

import json
import os
import time
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nhc.core.host import BOOT_ID, Host
from nhc.core.system import kernel_ring
from nhc.lab.testing.fake_host import FakeHost
from nhc.node.facts import kmsg
from nhc.node.facts.kernel_lines import bsd_time, message, parse_journal, parse_line, parse_record
from tests.support.require import need

NOW = 1_795_228_200.0  # 2026-11-21T02:30:00Z
TEXT = "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
BOOT = "aa37e4b2-6ced-4938-9514-952abd03b69b"


@pytest.fixture(autouse=True)
def utc(monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


FORMS = [
    (f"kernel: [   17.980000] {TEXT}", None, 17.98),
    (f"kernel:[12345.678901] {TEXT}", None, 12345.678901),
    (f" kernel:[12345.678901] {TEXT}", None, 12345.678901),  # syslogd's broadcast to terminals
    (f"Sat Nov 21 02:28:15 2026 kern.err kernel: {TEXT}", NOW - 105, None),
    (f"Sat Nov 21 02:28:15 2026 kern.warn kernel: [   17.980000] {TEXT}", NOW - 105, 17.98),
    (f"2026 Nov 21 02:28:15.500000 sonic ERR kernel: [ 1713.6] {TEXT}", NOW - 105, 1713.6),
    (f"2025 Nov  1 02:28:15.500000 sonic WARNING kernel: {TEXT}", NOW - 105 - 385 * 86400, None),
    (TEXT, None, None),
    (f"[ 1713.685134] {TEXT}", None, 1713.685134),
    (f"[12345.678901] {TEXT}", None, 12345.678901),
    (f"<4>[    1.5] {TEXT}", None, 1.5),
    (f"<4>{TEXT}", None, None),
    (f"[    1.393436][   T70] {TEXT}", None, 1.393436),
    (f"[    1.393436] [ T1234] {TEXT}", None, 1.393436),
    (f"[Sat Nov 21 02:28:15 2026] {TEXT}", NOW - 105, None),
    (f"kern  :warn  : [ 1713.685134] {TEXT}", None, 1713.685134),
    (f"kern  :err   : 2026-11-21T02:28:15,123456+00:00 {TEXT}", NOW - 105 + 0.123456, None),
    (f"2026-11-21T02:28:15,123456+00:00 {TEXT}", NOW - 105 + 0.123456, None),
    (f"[  +0.000012] {TEXT}", None, None),
    (f"[Nov21 02:28] {TEXT}", None, None),
    (f"Nov 21 02:28:15 node001 kernel: [ 1713.685134] {TEXT}", NOW - 105, 1713.685134),
    (f"Nov 21 02:28:15 node001 kernel: {TEXT}", NOW - 105, None),
    (f"Nov  1 02:28:15 node001 kernel: {TEXT}", NOW - 105 - 20 * 86400, None),
    (f"2026-11-21T02:28:15.123456+00:00 node001 kernel: [ 1713.6] {TEXT}", NOW - 105 + 0.123456, 1713.6),
    (f"2026-11-21T03:28:15.5+01:00 node001 kernel: {TEXT}", NOW - 105 + 0.5, None),
    (f"2026-11-20T21:28:15-0500 node001 kernel: {TEXT}", NOW - 105, None),
    (f"2026-11-21T02:28:15Z node001 kernel: {TEXT}", NOW - 105, None),
    (f"2026-11-21 02:28:15 node001 kernel: {TEXT}", NOW - 105, None),
    (f"<4>1 2026-11-21T02:28:15.123456Z node001 kernel - - - {TEXT}", NOW - 105 + 0.123456, None),
    (f'<4>1 2026-11-21T02:28:15Z node001 kernel - - [meta sequenceId="1" x="a\\]b"] {TEXT}', NOW - 105, None),
    (f"4,1234,1713685134,-;{TEXT}", None, 1713.685134),
    (f"Sat 2026-11-21 02:28:15 UTC node001 kernel: {TEXT}", NOW - 105, None),  # journalctl -o short-full
    (f"Sat 2026-11-21 02:28:15 UTC kernel: {TEXT}", NOW - 105, None),  # with --no-hostname, and so on
    (f"1795228095.500000 node001 kernel: {TEXT}", NOW - 104.5, None),  # -o short-unix
    (f"1795228095.500000 kernel: {TEXT}", NOW - 104.5, None),
    (f"Nov 21 02:28:15 kernel: {TEXT}", NOW - 105, None),
    (f"2026-11-21T02:28:15+0000 kernel: {TEXT}", NOW - 105, None),
    (f"[ 1713.685134] node001 kernel: {TEXT}", None, 1713.685134),  # -o short-monotonic
    (f"[ 1713.685134] kernel: {TEXT}", None, 1713.685134),
    (f"kern  :emerg : [Sat Nov 21 02:28:15 2026] {TEXT}", NOW - 105, None),  # dmesg -x -T
    (f"local0:notice: [ 1713.685134] {TEXT}", None, 1713.685134),
    (f"2026-11-21T02:28:15Z Nov 21 02:28:14 node001 kernel: [ 1713.6] {TEXT}", NOW - 105, 1713.6),
    (f"2026-11-21T02:28:15Z node001 kernel: <4>[ 1713.6][  T70] {TEXT}", NOW - 105, 1713.6),
    (f"Nov 21 02:28:15 [ 1713.6] {TEXT}", NOW - 105, 1713.6),  # ts(1) before dmesg
    (f"[2026-11-21 02:28:15] [ 1713.6] {TEXT}", NOW - 105, 1713.6),  # a serial console's log
    # through a web page, which keeps one of two blanks
    (f"Nov 1 02:28:15 node001 kernel: {TEXT}", NOW - 105 - 20 * 86400, None),
    (f"Nov 1 02:28:15 node001 kernel: [ 1713.6] {TEXT}", NOW - 105 - 20 * 86400, 1713.6),
    (f"Nov 1 02:28:15 kernel: {TEXT}", NOW - 105 - 20 * 86400, None),
    (f"[Sun Nov 1 02:28:15 2026] {TEXT}", NOW - 105 - 20 * 86400, None),
    (f"kern :emerg : [Sun Nov 1 02:28:15 2026] {TEXT}", NOW - 105 - 20 * 86400, None),
    (f"Sun Nov 1 02:28:15 2026 kern.err kernel: {TEXT}", NOW - 105 - 20 * 86400, None),
    (f"2026 Nov 1 02:28:15.500000 sonic ERR kernel: [ 1713.6] {TEXT}", NOW - 105 - 20 * 86400, 1713.6),
    (f"2026-11-21T02:28:15Z Nov 1 02:28:14 node001 kernel: {TEXT}", NOW - 105, None),
    (f"Nov 21 2026 02:28:15 node001 kernel: {TEXT}", NOW - 105, None),
    (f"Nov 21 02:28:15 2025 node001 kernel: {TEXT}", NOW - 105 - 365 * 86400, None),
    # what collectors keep and wrap: a container's log, Loki's `logcli`, Docker's json-file, Fluent Bit, CloudWatch
    (f"2026-11-21T02:28:15.123456789Z stderr F {TEXT}", NOW - 105 + 0.123457, None),
    (f'2026-11-21T02:28:15Z {{host="n1", job="kern"}} {TEXT}', NOW - 105, None),
    (json.dumps({"log": f"{TEXT}\n", "stream": "stderr", "time": "2026-11-21T02:28:15Z"}), NOW - 105, None),
    (json.dumps({"labels": {}, "line": f"[ 1713.6] {TEXT}", "timestamp": "2026-11-21T02:28:15Z"}), NOW - 105, 1713.6),
    (json.dumps({"date": NOW - 105, "log": f"Nov 21 02:28:14 node001 kernel: {TEXT}"}), NOW - 106, None),
    (json.dumps({"timestamp": int(NOW - 105) * 1000, "message": TEXT}), NOW - 105, None),
    (json.dumps({"log": json.dumps({"log": TEXT, "time": "2026-11-21T02:28:15Z"}), "date": NOW}), NOW - 105, None),
    # rsyslog's word for what came again
    (f"Nov 21 02:28:15 node001 kernel: message repeated 3 times: [ {TEXT}]", NOW - 105, None),
    (f"Nov 21 02:28:15 node001 kernel: message repeated 3 times: [{TEXT}]", NOW - 105, None),
    (
        f"Nov 1 02:28:15 node001 kernel: message repeated 12 times: [ [ 1713.685134] {TEXT}]",
        NOW - 105 - 20 * 86400,
        None,
    ),
    (f"2026-11-21T02:28:15Z node001 kernel: message repeated 2 times: [ [ 1713.6][  T70] {TEXT}]", NOW - 105, None),
]


@pytest.mark.parametrize(("line", "when", "since_boot"), FORMS, ids=[form[0][:40] for form in FORMS])
def test_every_form_of_stamp_is_read(line, when, since_boot):
    record = parse_line(line, NOW)
    assert record.text == TEXT
    assert record.kernel
    assert record.since_boot == since_boot
    assert record.when == (None if when is None else pytest.approx(when, abs=1e-3))
    assert message(line) == TEXT


@pytest.mark.parametrize(
    "line",
    [f"Nov 21 02:28:15 node001 myapp[12]: {TEXT}", f"2026-11-21T02:28:15Z node001 sshd: {TEXT}",
     f"<13>1 2026-11-21T02:28:15Z node001 logger 123 - - {TEXT}",
     f"Sat 2026-11-21 02:28:15 UTC node001 sshd[7]: {TEXT}", f"1795228095.500000 node001 logger: {TEXT}",
     f"Nov 21 02:28:15 sshd[7]: {TEXT}", f"Sat 2026-11-21 02:28:15 UTC sshd[7]: {TEXT}",
     f"2026-11-21T02:28:15Z Nov 21 02:28:14 node001 sshd[7]: {TEXT}", f"Nov 1 02:28:15 node001 sshd[7]: {TEXT}",
     f"Nov 21 02:28:15 node001 sshd[7]: message repeated 3 times: [ {TEXT}]",
     json.dumps({"MESSAGE": TEXT, "_TRANSPORT": "syslog"})],
)  # fmt: skip
def test_what_another_program_wrote_is_not_the_kernels(line):
    assert not parse_line(line, NOW).kernel
    assert message(line) is None


def test_a_stamp_without_a_year_is_of_the_year_before_where_it_must_be():
    new_year = 1_767_225_600.0  # 2026-01-01T00:00:00Z
    assert bsd_time("Dec 31 23:59:59", new_year + 5) == new_year - 1
    assert bsd_time("Jan  1 00:00:01", new_year - 5) == new_year + 1
    assert bsd_time("Feb 30 00:00:00", NOW) is not None  # mktime carries over; what matters is that it does not raise
    assert bsd_time("Xyz 99 99:99:99", NOW) is None


def test_more_digits_than_python_reads_are_no_record():
    for head in ("{0},1,2,-", "6,{0},2,-", "6,1,{0},-"):
        assert parse_record(f"{head.format('9' * 5000)};x") is None


@given(st.text())
def test_no_line_upsets_the_parser(line):
    parse_line(line, NOW)
    message(line)
    parse_record(line)
    parse_journal(line)


@given(st.text(alphabet=st.characters(blacklist_categories=("Cc", "Cs"), blacklist_characters="\\")))
def test_kmsgs_escapes_are_read_back(text):
    written = "".join(c if c.isascii() else "".join(f"\\x{byte:02x}" for byte in c.encode()) for c in text)
    assert parse_record(f"6,1,2,-;{written}\n SUBSYSTEM=pci\n").text == text


# /dev/kmsg


def kmsg_host(*records):
    host = FakeHost({BOOT_ID: BOOT + "\n"})
    host.system.kernel = [f"4,{number},{number * 1000000},-;{text}" for number, text in records]
    return host


def test_the_cursor_gives_each_record_once():
    host = kmsg_host((0, "a"), (1, "b"))
    first = kmsg.read_kmsg(host, None)
    assert ([r.text for r in first.records], first.cursor, first.lost) == (["a", "b"], 1, 0)
    assert kmsg.read_kmsg(host, first.cursor).records == []
    host.system.kernel.append("4,2,9,-;c")
    assert [r.text for r in kmsg.read_kmsg(host, first.cursor).records] == ["c"]


def test_overwritten_records_are_counted():
    assert kmsg.read_kmsg(kmsg_host((10, "a"), (11, "b")), 4).lost == 5
    assert kmsg.read_kmsg(kmsg_host((5, "a"), (9, "b")), 4).lost == 3
    assert kmsg.read_kmsg(kmsg_host((7, "a")), None).lost == 7


def test_times_are_on_the_wall():
    host = kmsg_host((3, "a"))
    record = kmsg.read_kmsg(host, None).records[0]
    assert record.when == host.time() - host.monotonic() + 3


@pytest.mark.thorough
def test_the_real_kernel_log_gives_a_line_once():
    need("/dev/kmsg", os.geteuid() == 0 and os.access("/dev/kmsg", os.R_OK | os.W_OK), "it needs root")
    host = Host()
    before = kmsg.read_kmsg(host, None)
    mark = f"nhc-test {uuid.uuid4()}"
    kernel_ring.write(f"{mark}\nforged second line", 6)
    after = kmsg.read_kmsg(host, before.cursor)
    mine = [record for record in after.records if mark in record.text]
    assert [record.text for record in mine] == [f"{mark} forged second line"], "one line, whatever it holds"
    assert abs(mine[0].when - time.time()) < 60
    assert mark not in str(kmsg.read_kmsg(host, after.cursor).records)


def test_reading_the_real_ring_never_waits():
    need("/dev/kmsg", os.access("/dev/kmsg", os.R_OK), "no permission to read it")
    last = kernel_ring.read(kernel_ring.KMSG, -1)[-1].split(",")[1]
    begin = time.monotonic()
    kernel_ring.read(kernel_ring.KMSG, int(last) + 1_000_000)
    assert time.monotonic() - begin < 30


# Files


LOG = "/var/log/messages"


def syslog(host, *lines):
    with open(host.path(LOG), "a", encoding="utf-8") as file:
        file.write("".join(f"{line}\n" for line in lines))


@pytest.fixture
def host():
    made = FakeHost({LOG: ""})
    made.system.now, made.system.uptime = NOW, 3600.0
    return made


def texts(batch):
    return [record.text for record in batch.records]


def test_a_file_is_read_from_this_boot_on_and_then_only_what_is_new(host):
    syslog(
        host,
        "Nov 21 01:00:00 n kernel: old",
        "Nov 21 02:00:00 n kernel: new",
        "Nov 21 02:00:01 n app: not the kernel's",
    )
    batch = kmsg.read_file(host, LOG, None)
    assert texts(batch) == ["new"]
    syslog(host, "2026-11-21T02:10:00+00:00 n kernel: newer")
    batch = kmsg.read_file(host, LOG, batch.cursor)
    assert (texts(batch), batch.lost) == (["newer"], 0)


def test_half_a_line_is_left_for_the_next_run(host):
    with open(host.path(LOG), "a", encoding="utf-8") as file:
        file.write("Nov 21 02:00:00 n kernel: who")
    batch = kmsg.read_file(host, LOG, None)
    assert texts(batch) == []
    syslog(host, "le")
    assert texts(kmsg.read_file(host, LOG, batch.cursor)) == ["whole"]


def test_a_rotation_loses_nothing(host):
    syslog(host, "Nov 21 02:00:00 n kernel: one")
    cursor = kmsg.read_file(host, LOG, None).cursor
    syslog(host, "Nov 21 02:00:01 n kernel: two")
    os.rename(host.path(LOG), host.path(LOG + ".1"))
    syslog(host, "Nov 21 02:00:02 n kernel: three")
    batch = kmsg.read_file(host, LOG, cursor)
    assert (texts(batch), batch.lost) == (["two", "three"], 0)
    assert texts(kmsg.read_file(host, LOG, batch.cursor)) == []


def test_a_rotation_that_took_the_file_away_is_told(host):
    syslog(host, "Nov 21 02:00:00 n kernel: one")
    cursor = kmsg.read_file(host, LOG, None).cursor
    os.rename(host.path(LOG), host.path("/var/gone"))
    syslog(host, "Nov 21 02:00:02 n kernel: three")
    batch = kmsg.read_file(host, LOG, cursor)
    assert (texts(batch), batch.lost) == (["three"], -1)


def test_truncation_in_place_is_told(host):
    syslog(host, "Nov 21 02:00:00 n kernel: one and a little more")
    cursor = kmsg.read_file(host, LOG, None).cursor
    host.write(LOG, "Nov 21 02:00:01 n kernel: two\n")
    batch = kmsg.read_file(host, LOG, cursor)
    assert (texts(batch), batch.lost) == (["two"], -1)


def test_a_long_file_is_entered_where_this_boot_begins(host, monkeypatch):
    monkeypatch.setattr(kmsg, "TAIL", 100_000)
    monkeypatch.setattr(kmsg, "_PROBE", 2000)
    syslog(
        host,
        *[
            f"Nov 20 {index // 3600 % 24:02d}:{index // 60 % 60:02d}:{index % 60:02d} n kernel: old {index}"
            for index in range(9000)
        ],
    )
    syslog(host, *[f"Nov 21 02:{index // 60:02d}:{index % 60:02d} n kernel: new {index}" for index in range(600)])
    assert texts(kmsg.read_file(host, LOG, None)) == [f"new {index}" for index in range(600)]


def test_a_saved_dmesg_is_read_whole(host):
    host.write(LOG, "[    1.5] a\n[Sat Nov 21 01:00:00 2026] b\n")
    assert texts(kmsg.read_file(host, LOG, None, keep_all=True)) == ["a", "b"]


@pytest.mark.parametrize("hours", [-12, -8, -3.5, 0, 5.75, 9, 14])
def test_lines_that_a_daemon_stamped_in_another_zone_are_of_this_boot_where_the_kernels_stamp_says_so(hours):
    host = FakeHost({BOOT_ID: BOOT})
    host.system.now, host.system.uptime = NOW, 7200.0
    began = NOW - 7200.0

    def line(began, since, zone):
        stamp = time.strftime("%b %e %H:%M:%S", time.gmtime(began + since + zone * 3600))
        return f"{stamp} node001 kernel: [{since:12.6f}] {TEXT}\n"

    before = "".join(line(began - 90_500, since, hours) for since in (5.0, 400.0, 80_000.0))
    ours = "".join(line(began, since, hours) for since in (3.0, 700.0, 7000.0))
    host.write("/var/log/messages", before + ours)
    found = kmsg.read_file(host, "/var/log/messages", None).records
    assert [record.since_boot for record in found] == [3.0, 700.0, 7000.0]
    if hours < 0:
        assert [round(record.when - began) for record in found] == [3, 700, 7000]
    host.write("/var/log/messages", before)
    assert kmsg.read_file(host, "/var/log/messages", None).records == [], "the boot before"
