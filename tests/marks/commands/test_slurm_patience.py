"""`nhc sync slurm --patience`: how long a controller that does not take a change is tried again."""

import json
import threading
import time

import pytest
from click.testing import CliRunner

from nhc.marks.commands.sync import slurm_command as sync_command
from tests.support.slurmrest import FakeSlurmRest


class Failing(FakeSlurmRest):
    """Reads go well, and each of the first `failures` changes ends in the middle of the connection."""

    def __init__(self, failures):
        super().__init__(["n1"], 40)
        self.failures, self.asked = failures, 0

    def change(self, names, states, reason, user="root"):
        self.asked += 1
        if self.asked <= self.failures:
            raise ConnectionResetError
        return super().change(names, states, reason, user)

    def handle_error(self, request, client_address):
        pass  # it was on purpose


@pytest.fixture
def sync(tmp_path):
    """Marks n1 on a controller that fails so often; returns the command's result and how often it was asked."""
    report = {"schema": 1, "host": "n1", "boot_id": "b", "started": time.time(), "elapsed": 0.1, "verdict": "CRIT",
              "results": [{"check": "check_x", "verdict": "CRIT", "reason": "Broken", "message": "broken",
                           "action": "none", "target": ""}]}  # fmt: skip
    (tmp_path / "report.json").write_text(json.dumps(report))
    (tmp_path / "token").write_text("SLURM_JWT=a.b.c\n")

    def run(failures, *words):
        server = Failing(failures)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        try:
            done = CliRunner().invoke(
                sync_command,
                ["-r", str(tmp_path / "report.json"), "--ledger", str(tmp_path / "ledger"), "--rest", server.address,
                 "--token-file", str(tmp_path / "token"), "--max-drained", "none", "--apply", *words],
            )  # fmt: skip
        finally:
            server.shutdown()
            server.server_close()
        return done, server

    return run


@pytest.mark.thorough
def test_a_change_that_fails_is_tried_again_while_patience_lasts(sync):
    done, server = sync(2, "--patience", "30s")
    assert (done.exit_code, server.asked) == (0, 3), done.output
    assert server.nodes["n1"]["flags"] == ["IDLE", "DRAIN"]


@pytest.mark.parametrize("none", ["0", "400ms"])
def test_without_patience_it_is_tried_once(sync, none):
    done, server = sync(1, "--patience", none)
    assert (done.exit_code, server.asked) == (1, 1), done.output


def test_what_is_no_duration_is_wrong_usage(sync):
    done, server = sync(0, "--patience", "soon")
    assert (done.exit_code, server.asked) == (2, 0)
    assert "--patience" in done.output
