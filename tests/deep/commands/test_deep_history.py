"""`nhc deep history`: what was found of a node, of a board wherever it was, and how its rates went."""

import json
import zlib

import pytest

from nhc.cli.main import main
from nhc.core.exit_status import EXIT_HEALTHY, EXIT_USAGE
from nhc.core.model import CheckResult, DeviceId, Metric, Report, Scope, ok, unknown
from nhc.core.render.json import to_dict
from nhc.fleet.commands.fleet_check import store_results
from nhc.fleet.history import SweepHistory
from nhc.fleet.node_result import REACH
from nhc.store import deep
from nhc.store.deep import DeepResult
from tests.support.new_store import new_store


@pytest.fixture
def kept(tmp_path):
    """The store's address, with one GPU that was moved to another node."""
    store = new_store(str(tmp_path))
    rows = [("gpu001", 700.0, 1e9), ("gpu001", 710.0, 1e9 + 60), ("gpu002", 600.0, 1e9 + 120)]
    with store.write() as connection:
        for node, rate, at in rows:
            test = "check_gpu_proof:proof_bf16"
            deep.add(
                connection, [DeepResult(node, "prejob", test, "gpu0", rate, "TFLOPS", "OK", "", at, serial="1650")]
            )
    store.close()
    return f"sqlite:///{tmp_path}/store.db"


def asked(capsys, *words):
    status = main(["deep", "history", *words])
    return status, capsys.readouterr().out


def test_a_board_is_followed_from_node_to_node(kept, capsys):
    status, out = asked(capsys, "--serial", "1650", "--store", kept)

    assert status == EXIT_HEALTHY
    assert [line.split()[1] for line in out.splitlines()[1:]] == ["gpu002", "gpu001", "gpu001"]
    assert all("1650" in line for line in out.splitlines()[1:])
    assert len(asked(capsys, "gpu001", "--serial", "1650", "--store", kept)[1].splitlines()) == 3


def test_the_rates_of_a_board_are_one_row(kept, capsys):
    _status, out = asked(capsys, "--serial", "1650", "--rates", "--store", kept)
    [row] = out.splitlines()[1:]
    assert "600 TFLOPS" in row
    assert "-14.3 %" in row

    [board] = json.loads(asked(capsys, "--serial", "1650", "--rates", "--format", "json", "--store", kept)[1])
    assert (board["serial"], board["median"], board["last"]) == ("1650", 700.0, 600.0)


def test_what_a_sweep_measured_of_a_board_is_in_its_history(kept, capsys):
    board = DeviceId("0000:0f:00.0", "GPU-1", "", "1650")
    proved = ok("all right", target="gpu3", metrics=(Metric("proof_bf16", 650.0, "TFLOPS"),))._replace(
        scope=Scope.DEVICE, device=board
    )
    silent = CheckResult(REACH, unknown("ConnectTimeout", "no answer"))
    sweep = SweepHistory("")
    number = sweep.begin("nhc fleet check", "1", 1e9 + 180, 2)
    for node, result in (("gpu003", CheckResult("check_gpu_proof", proved)), ("gpu004", silent)):
        line = json.dumps(to_dict(Report(node, "b", 1e9 + 180, 1.0, (result,))))
        sweep.add(number, node, int(result.verdict), 1.0, zlib.compress(line.encode()))
    sweep.end(number)

    assert store_results(sweep, number, "prejob", kept) == ""
    [row] = json.loads(asked(capsys, "--serial", "1650", "--rates", "--format", "json", "--store", kept)[1])
    assert (row["node"], row["last"]) == ("gpu003", 650.0)
    assert asked(capsys, "gpu004", "--store", kept)[1] == "no deep check of gpu004 is known\n"


def test_a_history_is_of_a_node_or_of_a_board(kept, capsys):
    assert main(["deep", "history", "--store", kept]) == EXIT_USAGE
    assert "--serial" in capsys.readouterr().err
