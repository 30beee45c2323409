"""`nhc-prolog` as slurmd runs it: what of the job reaches the checks, and what a mistake does not do."""

import pytest

from tests.support.run import nhc


@pytest.fixture
def prolog(tmp_path):
    (tmp_path / "etc").mkdir()

    def run(text, **environ):
        if text is not None:
            (tmp_path / "etc" / "nhc.conf").write_text(text)
        return nhc("-D", tmp_path / "etc", state=tmp_path / "state", module="nhc.cli.prolog", env=environ)

    return run


def test_the_checks_are_told_which_gpus_are_the_jobs(prolog, tmp_path):
    seen = tmp_path / "seen"
    text = f"* || sh -c 'echo \"$NHC_DEVICES\" > {seen}'\n"
    assert prolog(text, SLURM_JOB_GPUS="0,2-3", SLURM_JOB_ID="7").returncode == 0
    assert seen.read_text() == "0,2,3\n"
    assert prolog(text, SLURM_JOB_ID="8").returncode == 0
    assert seen.read_text() == "\n"


def test_lines_of_other_contexts_do_not_run(prolog, tmp_path):
    seen = tmp_path / "seen"
    assert prolog(f"* |context epilog| touch {seen}\n").returncode == 0
    assert not seen.exists()


@pytest.mark.parametrize("text", [None, "* || check_hw_mem_free much\n", "* || no_such_check\n"])
def test_a_mistake_of_the_administrators_lets_the_job_start(prolog, text):
    assert prolog(text).returncode == 0
