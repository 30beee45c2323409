"""What takes the place of node-problem-detector's log-counter."""

import pytest

from nhc.core.host import Completed
from nhc.core.model import Verdict
from nhc.lab.testing.fake_host import FakeHost
from tests.support.judge import judge

STUCK = "unregister_netdevice: waiting for eth0 to become free. Usage count = 1"
LOG = f"{STUCK}\nusb 1-1: new device\n{STUCK}\nunregister_netdevice: done\n"
PATTERN = r"--pattern='.*waiting for \w+ to become free.*'"


def node(said=LOG, uptime=10000):
    return FakeHost({"/proc/uptime": f"{uptime}.00 1.0\n"}, {"journalctl": said})


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("--count=2", Verdict.CRIT),
        ("--count=3", Verdict.OK),
        ("--count=2 -0", Verdict.WARN),
        ("--count=2 --revert-pattern='.*netdevice: done'", Verdict.OK),
        ("--count=1 --revert-pattern='.*netdevice: done'", Verdict.CRIT),
    ],
)
def test_matches_are_counted(options, expected):
    assert judge(node(), f"check_npd_log_counter {PATTERN} {options}").verdict is expected


def test_a_pattern_must_match_to_the_end_of_a_message():
    assert judge(node(), "check_npd_log_counter --pattern='waiting for eth0'").verdict is Verdict.OK
    assert judge(node(), "check_npd_log_counter --pattern='Usage count = [0-9]'").verdict is Verdict.CRIT


@pytest.mark.parametrize(
    ("options", "what", "since"),
    [
        ("", ["-k"], 10000),
        ("--lookback=20m", ["-k"], 1200),
        ("--lookback=10h", ["-k"], 10000),
        ("--delay=5m", ["-k"], 9700),
        (
            "--journald-source=kubelet --log-path=/var/log/journal",
            ["-t", "kubelet", "--directory=/var/log/journal"],
            10000,
        ),
    ],
)
def test_what_is_read(options, what, since):
    host = node()
    judge(host, f"check_npd_log_counter {PATTERN} {options}")
    (argv,) = host.system.ran
    assert set(what) <= set(argv)
    assert f"--since=@{int(host.system.now) - since}" in argv


def test_nothing_counts_while_the_node_has_just_started():
    host = node(uptime=100)
    assert judge(host, f"check_npd_log_counter {PATTERN} --delay=5m").verdict is Verdict.OK
    assert host.system.ran == []


def test_the_kernels_messages_without_a_journal():
    host = FakeHost({"/proc/uptime": "10000.00 1.0\n"})
    host.system.uptime = 10000.0
    host.system.kernel = [f"4,{number},{at}000000,-;{STUCK}" for number, at in enumerate((100, 9000, 9900))]
    assert judge(host, f"check_npd_log_counter {PATTERN} --count=3").verdict is Verdict.CRIT
    assert judge(host, f"check_npd_log_counter {PATTERN} --count=2 --lookback=20m").verdict is Verdict.CRIT
    assert judge(host, f"check_npd_log_counter {PATTERN} --count=3 --lookback=20m").verdict is Verdict.OK
    assert judge(host, f"check_npd_log_counter -s kubelet {PATTERN}").verdict is Verdict.UNKNOWN


def test_what_cannot_be_told_is_unknown():
    assert (
        judge(node(Completed(1, "", "No journal files")), f"check_npd_log_counter {PATTERN}").verdict is Verdict.UNKNOWN
    )
    assert judge(node(), "check_npd_log_counter").verdict is Verdict.UNKNOWN
    assert judge(FakeHost({}, {"journalctl": LOG}), f"check_npd_log_counter {PATTERN}").reason == "BadData"


# The command lines of node-problem-detector's config/health-checker-*.json and *-monitor-counter.json.
STOCK = [
    "health-checker --component=kubelet --enable-repair=true --cooldown-time=1m --loopback-time=0",
    "health-checker --component=kube-proxy --enable-repair=false --cooldown-time 1m30s --v=2 --logtostderr",
    "health-checker --component=kubelet --log-pattern=5:refused,7:denied --systemd-service=kubelet",
    r"log-counter --journald-source=kernel --log-path=/var/log/journal --lookback=20m --count=3 --pattern='free.*\d+'",
    "log-counter --journald-source=systemd --lookback=20m --delay=5m --count=5 "  # noqa: ISC004
    "'--pattern=Started (Kubernetes kubelet|kubelet.service).' '--revert-pattern=Stopping (Kubernetes kubelet)...'",
]


def npd_node(status, log):
    host = FakeHost(
        {"/proc/uptime": "10000.00 1.0\n"},
        {
            "journalctl": log,
            ("systemctl", "show"): "InactiveExitTimestampMonotonic=5000000000\n",
            ("systemctl", "kill"): "",
        },
    )
    for url in ("http://127.0.0.1:10248/healthz", "http://127.0.0.1:10256/livez"):
        host.system.answers[f"http {url}"] = {"status": status, "said": "ok"}
    return host


@pytest.mark.parametrize("line", STOCK, ids=range(len(STOCK)))
def test_stock_monitors_work_without_node_problem_detectors_programs(line):
    words = f"check_npd_plugin --reason Bad --max-output 200 -- /home/kubernetes/bin/{line}"
    assert judge(npd_node(200, ""), words).verdict is Verdict.OK
    bad = npd_node(500, f"{STUCK}\n" * 3 + "Started kubelet.service.\n" * 5)
    found = judge(bad, words)
    assert (found.verdict, found.reason) == (Verdict.CRIT, "Bad"), found
    assert judge(bad, words.replace("--reason", "--temporary --reason")).verdict is Verdict.WARN
    killed = [argv for argv in bad.system.ran if argv[:2] == ("systemctl", "kill")]
    assert bool(killed) == ("--enable-repair=true" in line)


@pytest.mark.parametrize(
    "line",
    [
        "health-checker --component=x",
        "health-checker stray",
        "log-counter --nothing=1",
        "log-counter --lookback=soon",
        "other-program --component=kubelet",
    ],
)
def test_a_command_line_that_is_not_understood_is_unknown(line):
    found = judge(npd_node(200, ""), f"check_npd_plugin --reason Bad -- /home/kubernetes/bin/{line}")
    assert (found.verdict, found.reason) == (Verdict.UNKNOWN, "PluginUnusable"), found
