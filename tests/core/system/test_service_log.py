"""The log of services: levels, text and JSON, one pair of options for all of them."""

import contextlib
import json
import logging
import os
import signal
import subprocess
import sys

import pytest

from nhc.core.system.service_log import Lines, ServiceLog, configure, note, problem
from tests.support.run import ROOT


@pytest.fixture(autouse=True)
def quiet_again():
    """The loggers as they were: other tests log, too."""
    loggers = [logging.getLogger("nhc"), logging.getLogger()]
    before = [(logger, list(logger.handlers), logger.level, logger.propagate) for logger in loggers]
    yield
    for logger, handlers, level, propagate in before:
        logger.handlers, logger.propagate = handlers, propagate
        logger.setLevel(level)


def logged(capsys):
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def test_text_is_the_command_and_the_line(capsys):
    ServiceLog("serve job")("two jobs")
    ServiceLog("serve kubernetes", dated=True)("starting")
    one, two = capsys.readouterr().err.splitlines()
    assert one == "nhc serve job: two jobs"
    when, _blank, rest = two.partition(" ")
    assert (when[-1], rest) == ("Z", "nhc serve kubernetes: starting")


def test_json_has_time_level_service_and_message(capsys):
    configure(form="json")
    log = ServiceLog("agent", logging.WARNING)
    log("a sink\nis away \x1b[31m")
    log(note("reloaded"))
    log.error("cannot start")
    first, second, third = logged(capsys)
    assert set(first) == {"time", "level", "service", "message"}
    assert (first["level"], first["service"]) == ("warning", "nhc agent")
    assert "\n" not in first["message"]
    assert "\x1b" not in first["message"]
    assert (second["level"], third["level"]) == ("info", "error")
    assert first["time"].endswith("Z")


@pytest.mark.parametrize(
    ("level", "kept"),
    [
        ("debug", ["debug", "info", "warning", "error"]),
        ("", ["info", "warning", "error"]),
        ("warning", ["warning", "error"]),
        ("error", ["error"]),
    ],
)
def test_a_level_leaves_out_what_is_below_it(capsys, level, kept):
    configure(level, "json")
    log = ServiceLog("server")
    log.debug("a")
    log("b")
    log(problem("c"))
    log.error("d")
    assert [line["level"] for line in logged(capsys)] == kept


def test_what_a_library_logs_is_json_too(capsys):
    configure(form="json")
    try:
        raise ValueError("no\nsuch thing")
    except ValueError:
        logging.getLogger("some.library").warning("it failed", exc_info=True)
    (line,) = logged(capsys)
    assert (line["service"], line["level"]) == ("some.library", "warning")
    assert line["message"].startswith("it failed: ValueError: no")


def test_options_given_twice_leave_one_handler(capsys):
    configure("debug")
    configure(form="json")
    ServiceLog("server").debug("once")
    assert len(logged(capsys)) == 1
    assert len([one for one in logging.getLogger("nhc").handlers if isinstance(one, Lines)]) == 1


def test_a_line_that_cannot_be_written_is_lost_and_nothing_else(monkeypatch):
    full = open("/dev/full", "w")  # noqa: SIM115 (what is left in its buffer cannot be written at its end either)
    monkeypatch.setattr(sys, "stderr", full)
    ServiceLog("server")("lost")
    with contextlib.suppress(OSError):
        full.close()
    ServiceLog("server")("lost, too")
    monkeypatch.undo()


def started(*words, **environment):
    env = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    return subprocess.Popen([sys.executable, "-m", "nhc", *words], stderr=subprocess.PIPE, text=True, env=env, cwd=ROOT)


def lines_until_ended(process):
    """The first line tells that it runs; then it is told to end."""
    first = process.stderr.readline()
    process.send_signal(signal.SIGTERM)
    rest = process.communicate(timeout=120)[1]
    return [first, *rest.splitlines()]


@pytest.mark.slow
def test_the_servers_own_process_logs_json(tmp_path):
    words = ["serve", "server", "--listen", "127.0.0.1:0", "--store", f"sqlite:///{tmp_path}/store.db"]
    process = started(*words, NHC_LOG_FORMAT="json", NHC_LOG_LEVEL="debug")
    lines = [json.loads(line) for line in lines_until_ended(process)]
    assert process.returncode == 0
    assert {line["service"] for line in lines} == {"nhc server"}
    assert any(line["message"].startswith("listening on http://127.0.0.1:") for line in lines)


def test_the_agents_own_process_says_what_is_wrong_with_its_settings_as_json(tmp_path):
    settings = tmp_path / "agent.toml"
    settings.write_text("[agent]\nnonsense = 1\n")
    process = started(
        "serve", "agent", "-s", str(settings), NHC_LOG_FORMAT="json", NHC_STATE_DIR=str(tmp_path / "state")
    )
    said = process.communicate(timeout=120)[1]
    assert process.returncode == 2
    (line,) = [json.loads(line) for line in said.splitlines()]
    assert (line["level"], line["service"]) == ("error", "nhc agent")
    assert "agent.toml:2: agent.nonsense" in line["message"]


def test_a_wrong_choice_is_a_wrong_use():
    process = started("serve", "server", NHC_LOG_FORMAT="xml")
    said = process.communicate(timeout=120)[1]
    assert process.returncode == 2
    assert "$NHC_LOG_FORMAT: 'xml' is not one of text, json" in said
