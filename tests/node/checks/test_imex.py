"""IMEX, on the nodes of a multi-node NVLink domain."""

import pytest

from nhc.core.model import Verdict
from nhc.lab.testing.fake_host import Completed, FakeHost
from tests.support.judge import judge

CONFIGURED = {"/etc/nvidia-imex/nodes_config.cfg": "10.0.0.1\n10.0.0.2\n"}


def node(active="active", enabled="enabled", answer="READY\n", files=CONFIGURED):
    return FakeHost(files, {"systemctl is-enabled nvidia-imex": enabled,
                            "systemctl is-active nvidia-imex": Completed(active != "active", f"{active}\n"),
                            "nvidia-imex-ctl -q": answer})  # fmt: skip


@pytest.mark.parametrize(
    ("host", "verdict", "reason"),
    [
        (node(), Verdict.OK, ""),
        (node(active="failed"), Verdict.CRIT, "ImexDown"),
        (node(active="inactive"), Verdict.CRIT, "ImexDown"),
        (
            node(active="", enabled=""),
            Verdict.UNKNOWN,
            "ImexUnreadable",
        ),  # no bus: nobody can tell
        (node(active="inactive", enabled=Completed(0, "", "", True)), Verdict.UNKNOWN, "ImexUnreadable"),
        (node(active="activating"), Verdict.CRIT, "ImexStarts"),
        (node(answer="INITIALIZING\n"), Verdict.CRIT, "ImexNotReady"),
        (node(answer="NOT_READY\n"), Verdict.CRIT, "ImexNotReady"),
        (node(answer=Completed(0, "", "", True)), Verdict.CRIT, "ImexDown"),
        (node(answer=Completed(1, "", "cannot connect")), Verdict.UNKNOWN, "ImexUnreadable"),
        (node(active="inactive", enabled="disabled"), Verdict.SKIP, "NoImex"),
        (node(active="inactive", enabled="masked"), Verdict.SKIP, "NoImex"),
        (node(files={}), Verdict.SKIP, "NoImex"),
    ],
)
def test_the_daemon_of_an_nvlink_domain(host, verdict, reason):
    found = judge(host, "check_imex_ready")
    assert (found.verdict, found.reason) == (verdict, reason)
