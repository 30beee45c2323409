"""check_net_socket and check_net_ping."""

import os
import shutil
import socket

import pytest

from nhc.core.check import BadArguments, find
from nhc.core.host import Host
from nhc.core.model import Verdict
from nhc.lab.testing.fake_host import Completed, FakeHost, Symlink
from tests.support.judge import judge
from tests.support.processes import INIT, SSHD, Process, node
from tests.support.require import need

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"


def row(local, remote, state, uid, inode):
    return f"   0: {local} {remote} {state} 00000000:00000000 00:00000000 00000000  {uid}  0 {inode} 1 0 100 0 0 10 0\n"


TCP = HEAD + "".join(
    [
        row("00000000:0016", "00000000:0000", "0A", 0, 22),
        row("00000000:0CEA", "00000000:0000", "0A", 38, 33),
        row("0403020A:ACFB", "0303020A:0016", "01", 12345, 44),
    ]
)
TCP6 = HEAD + row("0" * 32 + ":0050", "0" * 32 + ":0000", "0A", 0, 80)
UNIX = (
    "Num       RefCount Protocol Flags    Type St Inode Path\n"
    "0000000000000001: 00000002 00000000 00010000 0001 01 13 /tmp/.X11-unix/X0\n"
    "0000000000000002: 00000003 00000000 00000000 0001 03 18\n"
)
HTTPD = Process(8108, "/usr/sbin/httpd -k start")
MYSQLD = Process(5903, "/usr/libexec/mysqld", uid=38)
SSH = Process(409, "ssh n3", uid=12345)
XORG = Process(6340, "/usr/bin/Xorg :0", name="Xorg")


def cluster():
    files = {"/proc/net/tcp": TCP, "/proc/net/tcp6": TCP6, "/proc/net/unix": UNIX}
    for pid, inodes in ((1351, [22]), (8108, [80, 81]), (5903, [33]), (409, [44]), (6340, [13])):
        for number, inode in enumerate(inodes):
            files[f"/proc/{pid}/fd/{number + 3}"] = Symlink(f"socket:[{inode}]")
        files[f"/proc/{pid}/fd/0"] = Symlink("/dev/null")
    return node(INIT, SSHD, HTTPD, MYSQLD, SSH, XORG, files=files)


@pytest.mark.parametrize(
    "options",
    [
        "-l '*'",
        "-s 'LISTEN*'",
        "-s '/^(ESTABLISHED|CONNECTED)$/'",
        "-r '*:22'",
        "-d ssh",
        "-p tcp -s LISTEN -l '*:80' -d httpd",
        "-p tcp6 -l ':::80' -r ':::*'",
        r"-p tcp -l '/^\[::\]:80$/'",
        "-p tcp -s LISTEN -l '0.0.0.0:22' -r '0.0.0.0:*' -u root -d sshd",
        "-u 12345 -r '*:22'",
        "-p unix -t STREAM -l '*/tmp/.X11-unix/X0' -d Xorg -s LISTENING",
        "-p unix -d unknown",
        "-p unix -u root",
        "-! -p tcp -d Eterm",
        "-! -p icmp",
        "-! -p tcp -r '/:(6666|6667)$/' -d '!/epic/'",
        "-! -p tcp -d httpd -l '!/:(80|443)$/'",
        "-a -l '/0.0.0.0/'",
        "-p '!tcp'",
    ],
)
def test_sockets_as_they_should_be_pass(options):
    assert judge(cluster(), f"check_net_socket {options}").verdict is Verdict.OK


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("-p icmp", 'No matching sockets found ((protocol =~ "icmp"))'),
        (
            "-n 'HTTP daemon' -p tcp -l '0.0.0.0:80' -d httpd",
            'No HTTP daemon sockets found ((protocol =~ "tcp") && (localaddr =~ "0.0.0.0:80") && (daemon =~ "httpd"))',
        ),
        ("-p tcp -d Eterm", 'No matching sockets found ((protocol =~ "tcp") && (daemon =~ "Eterm"))'),
        ("-p tcp -u stranger", 'No matching sockets found ((protocol =~ "tcp") && (user =~ "stranger"))'),
        (
            "-! -n public -s LISTEN -l '*:3306'",
            '1 public socket(s) found ((localaddr =~ "*:3306") && (state =~ "LISTEN") (NEGATED))',
        ),
        ("-a -! -l '/0.0.0.0/'", '2 matching socket(s) found ((localaddr =~ "/0.0.0.0/") (all) (NEGATED))'),
        (
            "-! -s LISTEN -d '!sshd'",
            '1 matching socket(s) found ((state =~ "LISTEN") && (daemon =~ "!sshd") (NEGATED))',
        ),
    ],
)
def test_sockets_as_they_should_not_be_fail_in_lbnl_words(options, message):
    outcome = judge(cluster(), f"check_net_socket {options}")

    assert (outcome.verdict, outcome.message) == (Verdict.CRIT, message)


def test_non_fatal_only_warns():
    outcome = judge(cluster(), "check_net_socket -0 -p icmp")

    assert outcome.verdict is Verdict.WARN
    assert outcome.message == 'No matching sockets found ((protocol =~ "icmp") (non-fatal)) (non-fatal)'


@pytest.mark.parametrize(
    ("options", "started"),
    [
        ("-p icmp -e fix -E other", "fix"),
        ("-! -l '*:3306' -e other -E fix", "fix"),
        ("-l '*:3306' -e other", None),
    ],
)
def test_actions_are_run_as_found_or_not(options, started):
    host = cluster()

    judge(host, f"check_net_socket {options}")

    assert [argv[-1] for argv in host.system.ran] == ([started] if started else [])


def test_descriptors_are_only_looked_at_where_the_program_is_asked_for():
    host = cluster()
    looked = []
    original = host.listdir
    host.listdir = lambda path: looked.append(path) or original(path)

    judge(host, "check_net_socket -p tcp -l '*:22' -u root")
    assert looked == []
    judge(host, "check_net_socket -p tcp -l '*:22' -d sshd")
    assert looked == ["/proc", "/proc/1351/fd"]


def test_what_may_not_be_looked_at_is_unknown():
    host = cluster()

    def refuse(path):
        if path.endswith("/fd"):
            raise PermissionError(13, "Permission denied", path)
        return os.listdir(host.path(path))

    host.listdir = refuse

    assert judge(host, "check_net_socket -d sshd").reason == "NotPermitted"
    assert judge(host, "check_net_socket -! -d sshd").reason == "NotPermitted"


def test_no_tables_and_no_criteria_are_unknown():
    assert judge(FakeHost(), "check_net_socket -p tcp").reason == "SocketsUnreadable"
    assert judge(FakeHost({"/proc/net/tcp": HEAD + "1 2 3 x 5 6 7 8 9 10\n"}), "check_net_socket -p tcp").verdict is (
        Verdict.UNKNOWN
    )
    outcome = judge(cluster(), "check_net_socket -a")
    assert (outcome.verdict, outcome.message) == (Verdict.UNKNOWN, "No match criteria supplied.")


@pytest.mark.thorough
def test_a_real_listener_is_found_with_its_program():
    with open("/proc/self/comm", encoding="ascii") as file:
        me = file.read().strip()
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        line = f"check_net_socket -p tcp -s LISTEN -l '127.0.0.1:{port}' -u {os.geteuid()} -d '{me}'"
        assert judge(Host(), line).verdict is Verdict.OK
    assert judge(Host(), line).verdict is not Verdict.OK


@pytest.mark.parametrize(
    ("options", "argv"),
    [
        ("a", "-t 2 -c 1 -w 1"),
        ("-I eth0 -W 3 -c 5 -i 0.2 -s 1400 -t 9 -w 8 a", "-I eth0 -i 0.2 -s 1400 -t 9 -c 5 -w 8 -W 3"),
    ],
)
def test_ping_is_run_as_asked(options, argv):
    host = FakeHost({}, {"ping": ""})

    assert judge(host, f"check_net_ping {options}").verdict is Verdict.OK
    assert host.system.ran == [("ping", "-q", "-n", *argv.split(), "--", "a")]


def test_the_first_host_that_does_not_answer_is_named():
    silent = Completed(1, "1 packets transmitted, 0 received, 100% packet loss\n")
    host = FakeHost({}, {"ping": lambda argv, _stdin: silent if argv[-1] == "b" else Completed(0)})

    outcome = judge(host, "check_net_ping a b c")

    assert (outcome.verdict, outcome.message) == (Verdict.CRIT, "No response received from b")
    assert outcome.evidence == ("1 packets transmitted, 0 received, 100% packet loss",)
    assert len(host.system.ran) == 2


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        (Completed(2, "", "ping: connect: Network is unreachable\n"), Verdict.CRIT),
        (Completed(2, "", "ping: nohost: Name or service not known\n"), Verdict.CRIT),
        (Completed(143, "", "", True), Verdict.CRIT),
        (Completed(2, "", "ping: socket: Operation not permitted\n"), Verdict.UNKNOWN),
        (Completed(2, "", "ping: invalid argument: 'x'\n"), Verdict.UNKNOWN),
    ],
)
def test_a_ping_that_cannot_be_tried_is_unknown(answer, verdict):
    assert judge(FakeHost({}, {"ping": answer}), "check_net_ping a").verdict is verdict


def test_ping_needs_its_command_and_a_target():
    assert judge(FakeHost(), "check_net_ping a").reason == "CommandMissing"
    with pytest.raises(BadArguments, match="needs targets"):
        find("check_net_ping").parse([])


IPUTILS = (
    "--- a ping statistics ---\n5 packets transmitted, {got} received, {loss}% packet loss, time 804ms\n"
    "rtt min/avg/max/mdev = 0.041/0.800/3.100/0.003 ms\n"
)
BUSYBOX = "5 packets transmitted, 5 packets received, 0% packet loss\nround-trip min/avg/max = 0.041/0.800/3.100 ms\n"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("-a 1ms", None),
        ("-a 500ms -m 1s -l 0", None),
        ("-a 0.7ms", (Verdict.CRIT, "LatencyHigh")),
        ("-m 3ms", (Verdict.CRIT, "LatencyHigh")),
        ("-0 -m 3ms", (Verdict.WARN, "LatencyHigh")),
    ],
)
@pytest.mark.parametrize("said", [IPUTILS.format(got=5, loss=0), BUSYBOX], ids=["iputils", "busybox"])
def test_ping_that_takes_too_long(options, expected, said):
    found = judge(FakeHost({}, {"ping": said}), f"check_net_ping -c 5 -w 3 {options} a")
    assert (found.verdict, found.reason) == (expected or (Verdict.OK, ""))


@pytest.mark.parametrize(
    ("options", "expected"),
    [("", "NoResponse"), ("-l 30", ""), ("-l 20", ""), ("-l 10", "PacketLoss"), ("-l 20 -a 0.1ms", "LatencyHigh")],
)
def test_ping_that_loses_packets(options, expected):
    """Status 1: with -c and -w ping wants every packet back."""
    answer = Completed(1, IPUTILS.format(got=4, loss=20))
    assert judge(FakeHost({}, {"ping": answer}), f"check_net_ping -c 5 -w 3 {options} a").reason == expected


def test_ping_that_gets_nothing_back_or_cannot_be_read():
    nothing = Completed(1, "5 packets transmitted, 0 received, 100% packet loss, time 4000ms\n")
    assert judge(FakeHost({}, {"ping": nothing}), "check_net_ping -l 50 a").reason == "NoResponse"
    assert judge(FakeHost({}, {"ping": "?"}), "check_net_ping -a 1 a").verdict is Verdict.UNKNOWN


@pytest.mark.thorough
def test_a_real_ping_is_understood():
    need("ping", shutil.which("ping"), "package iputils-ping")
    found = judge(Host(), "check_net_ping -c 3 -i 0.2 -w 10 -a 5s -m 5s -l 0 127.0.0.1")
    assert found.verdict is Verdict.OK, found
    assert {metric.name for metric in found.metrics} == {"packet_loss", "round_trip_average", "round_trip_max"}


@pytest.mark.parametrize("word", ["99999", "22", "TCP", "tpc", "!*", "/^tcp$x/"])
def test_a_protocol_that_there_is_not_is_a_mistake_and_no_missing_socket(word):
    """A port there would never be found, and with -! never be missed."""
    for negation in ("", "-! "):
        with pytest.raises(BadArguments, match=r"-p: .* matches none of tcp, tcp6, udp.* \(a port is `-l '\*:22'`\)"):
            judge(cluster(), f"check_net_socket {negation}-p '{word}'")


@pytest.mark.parametrize(
    "word", ["tcp", "'!tcp'", "'tcp*'", "'/^(tcp|udp)6?$/'", "udplite", "icmp", "raw6", "unix", "''", "'{tcp,udp}'"]
)
def test_a_protocol_is_a_match_string_of_those_there_are(word):
    assert judge(cluster(), f"check_net_socket -0 -p {word} -l '*'").verdict in (Verdict.OK, Verdict.WARN)
