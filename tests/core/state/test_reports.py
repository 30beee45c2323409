"""When a kept report may stand for a new run: one rule for --max-age, the hooks and the agent's report."""

import pytest

from nhc.core.model import CheckResult, Report, ok
from nhc.core.render.json import to_dict
from nhc.core.state.reports import fresh

KEPT = to_dict(Report("n1", "boot", 1000.0, 0.1, (CheckResult("check_x", ok("fine")),)))


@pytest.mark.parametrize("now", [1000.0, 1030.0, 1060.0])
def test_a_report_of_this_boot_is_fresh_for_its_time(now):
    report = fresh(KEPT, 60.0, now, "boot")
    assert report is not None
    assert (report.host, report.started) == ("n1", 1000.0)


@pytest.mark.parametrize("now", [999.0, 1060.5, 1e9])
def test_one_from_the_future_or_the_past_is_not(now):
    assert fresh(KEPT, 60.0, now, "boot") is None


def test_one_of_another_boot_is_not():
    assert fresh(KEPT, 60.0, 1030.0, "another") is None


@pytest.mark.parametrize("started", ["1000", None, True, 10**400, float("nan"), float("inf")])
def test_a_damaged_time_is_no_time(started):
    assert fresh({**KEPT, "started": started}, 60.0, 1030.0, "boot") is None
    assert fresh({**KEPT, "started": started}, 10.0, 5.0, "boot") is None


def test_what_is_no_report_is_none():
    assert fresh({}, 60.0, 1030.0, "boot") is None
    assert fresh({**KEPT, "results": 7}, 60.0, 1030.0, "boot") is None
