"""How long one line may take."""

import pytest

from nhc.agent.check_round import allowance
from nhc.core import plan as plans
from nhc.core.declare import declare
from nhc.core.plan import BUILT_IN, COMMAND, SHELL, Item, Plan


def line(*argv, kind=BUILT_IN, timeout=None):
    return Item(kind, argv[0], " ".join(argv), argv=argv, timeout=timeout)


def limit(item, run=30.0):
    return plans.seconds_of_line(item, run, declare(item.argv) if item.kind == BUILT_IN else None)


@pytest.mark.parametrize(
    ("item", "seconds"),
    [
        (line("check_hw_mem_free", "1k"), 5.0),
        (line("check_cmd_output", "-t", "60", "true"), 60.0),
        (line("check_cmd_output", "-t", "1", "true"), 5.0),  # the check's own is the least
        (line("check_runtime_ready", "-t", "60", "/run/x.sock"), 60.0),
        (line("check_kubelet_healthz", "-t", "60"), 60.0),
        (line("check_scheduler_ping", "-t", "60", "-r", "slurm"), 60.0),
        (line("check_deep_gemm", "-t", "600"), 600.0 + 120.0 + 180.0),
        (line("check_cmd_output", "-t", "60", "true", timeout=3.0), 3.0),  # the line says more than its arguments
        (line("true", kind=COMMAND), 30.0),
        (line("true", kind=SHELL, timeout=5.0), 5.0),
    ],
    ids=lambda one: one.line if isinstance(one, Item) else "",
)
def test_a_lines_seconds_are_the_same_for_the_engine_and_the_agent(item, seconds):
    assert limit(item) == seconds
    assert allowance(item, Plan((item,), {}, (), ())) == seconds


def test_what_keeps_a_deadline_itself_is_ended_from_outside_a_little_later():
    own, other = line("check_kubelet_healthz", "-t", "60"), line("check_fs_mount", "/")
    assert plans.seconds_of_watchdog(own, 30.0, declare(own.argv)) == 60.0 + plans.OWN_DEADLINE_MARGIN
    assert plans.seconds_of_watchdog(other, 30.0, declare(other.argv)) == limit(other)

    command = line("true", kind=COMMAND)
    watchdog = plans.seconds_of_watchdog(command, 30.0)
    assert (watchdog, plans.seconds_of_command(watchdog)) == (30.0 + plans.OWN_DEADLINE_MARGIN, 30.0)


@pytest.mark.parametrize(("value", "seconds"), [("5", 5.0), ("0", 0.0), ("", 30.0), ("-1", 0.0), ("soon", 30.0)])
def test_a_runs_seconds_are_timeout_s(value, seconds):
    assert plans.seconds_of_run(Plan((), {"TIMEOUT": value}, (), ())) == seconds


def test_no_limit_for_a_run_is_a_day_for_a_line_and_a_limit_in_the_agent():
    item = line("true", kind=SHELL)
    assert limit(item, 0.0) == plans.UNLIMITED
    assert allowance(item, Plan((item,), {"TIMEOUT": "0"}, (), ())) == plans.RUN_SECONDS
