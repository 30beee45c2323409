import errno
import os
import stat

import pytest

from nhc.core.check import BadArguments, find
from nhc.core.host import Stat
from nhc.core.model import Verdict
from nhc.lab.testing.fake_host import FakeHost, Symlink
from tests.support.judge import judge, judge_all

CONFIG = "# a comment\n  $pbsserver master  \n\n$usecp *:/home /home\nlast line without newline"


def node():
    host = FakeHost({"/etc/x.conf": CONFIG, "/empty": "", "/dir/": "", "/link": Symlink("etc/x.conf")})
    now = host.system.now
    host.system.stats = {
        "/dev/null": Stat(stat.S_IFCHR | 0o666, 0, 0, 0, now, now, now, 5, 4, 1, os.makedev(1, 3)),
        "/f": Stat(stat.S_IFREG | 0o4755, 500, 500, 7, now - 50, now - 100, now - 200, 0xFD00, 4, 1, 0),
        "/old": Stat(stat.S_IFREG | 0o644, 0, 0, 7, now, now - 90000, now - 90000, 0xFD00, 4, 1, 0),
        "/fifo": Stat(stat.S_IFIFO | 0o600, 0, 7, 0, now, now, now, 5, 4, 1, 0),
        "/sock": Stat(stat.S_IFSOCK | 0o2600, 0, 0, 0, now, now, now, 5, 4, 1, 0),
        "/blk": Stat(stat.S_IFBLK | 0o1600, 0, 0, 0, now, now, now, 5, 4, 1, os.makedev(8, 1)),
    }
    host.system.users["alice"] = 500
    host.system.groups["staff"] = 500
    return host


def refusing(number, *calls):
    host = node()

    def refuse(path, *_rest):
        raise OSError(number, os.strerror(number), path)

    for call in calls:
        setattr(host.system, call, refuse)
    return host


# check_file_contents


@pytest.mark.parametrize(
    "patterns",
    [
        "'# a *'",
        "'/^\\$pbsserver master$/'",
        "'last line without newline'",
        "'*newline' '/usecp/' '#*'",
        "'!/nothing like this/'",
        "'/usecp/' '!*forbidden*'",
    ],
)
def test_a_file_that_holds_what_it_should_passes(patterns):
    assert judge(node(), f"check_file_contents /etc/x.conf {patterns}").verdict is Verdict.OK


@pytest.mark.parametrize(
    ("patterns", "message"),
    [
        ("nothing", 'File "/etc/x.conf" failed to match "nothing".'),
        ("'#*' nope 'nor this'", 'File "/etc/x.conf" matched 1/3 patterns.  First failed match:  "nope".'),
        ("'!/absent/' nope", 'File "/etc/x.conf" matched 1/2 patterns.  First failed match:  "nope".'),
        ("'!*usecp*'", 'File "/etc/x.conf" line 4 matches "*usecp*".'),
        ("'#*' '!/last/'", 'File "/etc/x.conf" line 5 matches "/last/".'),
    ],
)
def test_a_file_that_does_not_fails(patterns, message):
    outcome = judge(node(), f"check_file_contents /etc/x.conf {patterns}")

    assert (outcome.verdict, outcome.message) == (Verdict.CRIT, message)


def test_what_follows_the_last_newline_is_no_line():
    host = node()
    host.write("/etc/y", "one\ntwo\n")

    assert judge(host, "check_file_contents /etc/y '/^$/'").verdict is Verdict.CRIT
    assert judge(host, "check_file_contents /etc/y '!/^$/'").verdict is Verdict.OK
    assert judge(host, "check_file_contents /empty '*'").verdict is Verdict.CRIT


def test_a_missing_file_fails_where_it_should_hold_something():
    outcome = judge(node(), "check_file_contents /nope a")

    assert (outcome.verdict, outcome.reason) == (Verdict.CRIT, "FileMissing")
    assert outcome.message == 'File "/nope" failed to match "a": it does not exist.'


def test_a_missing_file_is_unknown_where_only_its_lines_are_forbidden():
    """LBNL NHC passes."""
    assert judge(node(), "check_file_contents /nope '!error'").verdict is Verdict.UNKNOWN


def test_a_file_that_cannot_be_read_is_unknown():
    assert judge(node(), "check_file_contents /dir a").reason == "Unreadable"


def test_a_file_too_large_to_search_is_not_ok(monkeypatch):
    import nhc.node.checks.file

    monkeypatch.setattr(nhc.node.checks.file, "CONTENT_LIMIT", 8000)
    host = node()
    host.write("/large", "first\n" + "x\n" * 4000 + "last\n")
    host.write("/just", "x\n" * 4000)

    assert judge(host, "check_file_contents /large '!last'").reason == "FileTooLarge"
    assert judge(host, "check_file_contents /large last").reason == "FileTooLarge"
    assert judge(host, "check_file_contents /large '!first'").reason == "FileContentForbidden"
    assert judge(host, "check_file_contents /large first").verdict is Verdict.OK
    assert judge(host, "check_file_contents /just '!last'").verdict is Verdict.OK


# check_file_stat


@pytest.mark.parametrize(
    "line",
    [
        "-u 0 -g 0 -U root -G root -t 1 -T 3 /dev/null",
        "-t 0x1 -T 03 -m 0666 -M 0444 /dev/null",
        "-m 666 -M 6 /dev/null",
        "-m 04755 -M 04000 -u 500 -U alice -G staff -g 500 -D 0xfd00 /f",
        "-d 64768 /f /old",
        "-n 101 -o 99 -N 201 -O 199 /f",
        "-n 100 -N 200 /f",
        "-n 2m -O 1m -o 0 /f",
        "-o 1d /old",
        "/dev/null /f",
        "-u 0 /dev/null /old",
    ],
)
def test_files_with_the_attributes_wanted_pass(line):
    assert judge(node(), f"check_file_stat {line}").verdict is Verdict.OK


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("-u 5 /f", 'File "/f" UID is "500"; should be "5"'),
        ("-g 5 /f", 'File "/f" GID is "500"; should be "5"'),
        ("-U root /f", 'File "/f" username is "alice"; should be "root"'),
        ("-G root /f", 'File "/f" groupname is "staff"; should be "root"'),
        ("-D 7 /f", 'File "/f" device number is 0xfd00; should be 7'),
        ("-m 0755 /f", 'File "/f" has permissions 04755; should be 0755'),
        ("-M 0002 /f", 'File "/f" has permissions 04755; should be at least 0002'),
        ("-t 2 /dev/null", 'File "/dev/null" has device major number 0x1; should be 2'),
        ("-T 0x9 /dev/null", 'File "/dev/null" has device minor number 0x3; should be 0x9'),
        ("-t 1 /f", 'File "/f" has device major number 0x0; should be 1'),
        ("-n 99 /f", 'File "/f" mtime is not newer than 99s'),
        ("-o 100 /f", 'File "/f" mtime is not older than 100s'),
        ("-N 199 /f", 'File "/f" ctime is not newer than 199s'),
        ("-O 1000000000 /f", 'File "/f" ctime is not older than 1000000000s'),
        ("/nope", "stat(/nope) returned 1:  No such file or directory"),
    ],
)
def test_files_without_them_fail(line, message):
    outcome = judge(node(), f"check_file_stat {line}")

    assert (outcome.verdict, outcome.message) == (Verdict.CRIT, message)


def test_each_bad_file_is_an_outcome_of_its_own():
    assert [outcome.target for outcome in judge_all(node(), "check_file_stat -u 0 /f /old /nope")] == ["/f", "/nope"]


def test_a_link_is_judged_itself():
    assert judge(node(), "check_file_stat -m 0777 /link").verdict is Verdict.OK


def test_a_file_that_may_not_be_seen_is_unknown_and_a_stale_one_fails():
    assert judge(refusing(errno.EACCES, "stat"), "check_file_stat /f").verdict is Verdict.UNKNOWN
    stale = judge(refusing(errno.ESTALE, "stat"), "check_file_stat /f")
    assert (stale.verdict, stale.reason) == (Verdict.CRIT, "FileUnreadable")


@pytest.mark.parametrize("line", ["-m 9 /f", "-t x /f", "-u root /f", "-n soon /f", "-u 0"])
def test_bad_arguments_of_stat_are_refused(line):
    with pytest.raises(BadArguments):
        judge(node(), f"check_file_stat {line}")


# check_file_test


@pytest.mark.parametrize(
    "line",
    [
        "-a -e -f -s -r -w /etc/x.conf",
        "-d -x /dir",
        "-f /link",
        "-h -L /link",
        "-c -O -G /dev/null",
        "-Oc /dev/null",
        "/dev/null -c",
        "-u -f /f",
        "-p /fifo",
        "-S -g /sock",
        "-b -k /blk",
        "-e /dev/null /f /dir",
        "-! -f /dir",
        "-! -f -d /dir",
        "/dir -! -f",
        "-! -e /nope /dir",
    ],
)
def test_tests_that_hold_pass(line):
    assert judge(node(), f"check_file_test {line}").verdict is Verdict.OK


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("-f /dir", "-f /dir returned 1."),
        ("-e /nope", "-e /nope returned 1."),
        ("-r /nope", "-r /nope returned 1."),
        ("-s /empty", "-s /empty returned 1."),
        ("-x /etc/x.conf", "-x /etc/x.conf returned 1."),
        ("-h /etc/x.conf", "-h /etc/x.conf returned 1."),
        ("-O /f", "-O /f returned 1."),
        ("-G /fifo", "-G /fifo returned 1."),
        ("-N /f", "-N /f returned 1."),
        ("-N /dev/null", "-N /dev/null returned 1."),
        ("-b /dev/null", "-b /dev/null returned 1."),
        ("-k /f", "-k /f returned 1."),
        ("-t 99", "-t 99 returned 1."),
        ("-t x", "-t x returned 1."),
        ("-! -d /dir", "-d /dir returned 0."),
        ("-! -e /dir /f", "-e /f returned 0."),
    ],
)
def test_tests_that_do_not_hold_fail(line, message):
    outcome = judge(node(), f"check_file_test {line}")

    assert (outcome.verdict, outcome.message) == (Verdict.CRIT, message)


def test_every_file_that_fails_is_told():
    failed = judge_all(node(), "check_file_test -f /dir /etc/x.conf /nope")

    assert [outcome.target for outcome in failed] == ["/dir", "/nope"]


def test_a_file_changed_since_it_was_read():
    host = node()
    old = host.system.stats["/old"]
    host.system.stats["/log"] = old._replace(mtime=old.atime + 1)

    assert judge(host, "check_file_test -N /log").verdict is Verdict.OK


def test_what_may_not_be_seen_is_unknown_and_what_is_gone_fails():
    assert judge(refusing(errno.EACCES, "stat"), "check_file_test -d /f").verdict is Verdict.UNKNOWN
    assert judge(refusing(errno.EACCES, "stat"), "check_file_test -! -d /f").verdict is Verdict.UNKNOWN
    assert judge(refusing(errno.ESTALE, "stat"), "check_file_test -d /f").verdict is Verdict.CRIT


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("/etc/x.conf -q", 'Syntax error:  Invalid/unsupported operator "-q".'),
        ("/etc/x.conf", "Syntax error:  Missing parameters."),
        ("-e -- -d", "Syntax error:  Missing parameters."),
    ],
)
def test_a_line_that_asks_nothing_is_unknown(line, message):
    outcome = judge(node(), f"check_file_test {line}")

    assert (outcome.verdict, outcome.message) == (Verdict.UNKNOWN, message)


def test_a_hung_file_system_is_the_fault():
    assert find("check_file_test").on_timeout == find("check_file_stat").on_timeout == "crit"
