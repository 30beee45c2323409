"""`nhc-prolog` as slurmd runs it: what of the job reaches the checks, and what a mistake does not do."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nhc.core.language import loader
from nhc.hooks.job_environment import for_context
from nhc.lab.testing.fake_host import FakeHost
from nhc.node.planning import profiles
from tests.support.nvml import fake
from tests.support.nvml.fake import Nvml, pci_tree
from tests.support.require import need
from tests.support.run import nhc


@pytest.fixture
def prolog(tmp_path):
    (tmp_path / "etc").mkdir()

    def run(text, **environ):
        if text is not None:
            (tmp_path / "etc" / "nhc.conf").write_text(text)
        return nhc("-D", tmp_path / "etc", state=tmp_path / "state", module="nhc.hooks.commands.prolog", env=environ)

    return run


@pytest.mark.thorough
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


@pytest.mark.parametrize(
    "text", [None, "* || check_hw_mem_free much\n", "* || no_such_check\n", "* false\n", "{n[1- || false\n"]
)
def test_a_mistake_of_the_administrators_lets_the_job_start(prolog, text):
    assert prolog(text).returncode == 0


@pytest.fixture
def profile(tmp_path):
    """A node type of the site's own, whose lines leave a trace."""

    def trace(kind):
        return tmp_path / f"ran-{kind}"

    lines = [f"* |context {kind}| touch {trace(kind)}" for kind in ("prolog", "epilog", "healthcheck")]
    path = tmp_path / "type.conf"
    path.write_text("# A type\n" + "\n".join(lines) + f"\n* || touch {trace('watched')}\n")
    return path


def traces(tmp_path):
    return {path.name[4:] for path in tmp_path.glob("ran-*")}


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("module", "ran"),
    [("prolog", {"prolog"}), ("epilog", {"epilog"}), ("healthcheck", {"healthcheck", "watched"})],
)
def test_each_hook_runs_the_lines_of_the_nodes_type_that_are_for_it(tmp_path, profile, module, ran):
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/nhc.conf").write_text(f"* || NHC_PROFILE={profile}\n* || check_file_test -d /\n")
    for _again in range(2):  # the second run has its plan kept
        nhc("-D", tmp_path / "etc", *(["-l", "-"] if module == "healthcheck" else []), "MARK_OFFLINE=0",
            state=tmp_path / "state", module=f"nhc.hooks.commands.{module}", env={})  # fmt: skip
        assert traces(tmp_path) == ran
        for path in tmp_path.glob("ran-*"):
            path.unlink()


@pytest.mark.thorough
@pytest.mark.parametrize("module", ["prolog", "healthcheck"])
def test_only_where_it_is_named_is_a_profile_run_by_a_hook(tmp_path, module):
    """On a node with GPUs. An nhc.conf that came from LBNL NHC drains nobody by lines that nobody wrote."""
    need("root", os.geteuid() == 0, "to mount a PCI bus with GPUs")
    library = Nvml(tmp_path)
    library.close()
    scenario = tmp_path / "scenario.txt"
    scenario.write_text("include h100.txt\n2.row_remap 1 0 0 1\n")
    (tmp_path / "h100.txt").write_bytes((Path(fake.__file__).parent / "scenarios/h100.txt").read_bytes())
    for path, content in pci_tree().items():
        file = tmp_path / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    places = ("/sys/bus/pci/devices", "/proc/bus/pci/devices")
    mounts = "".join(f"mount --bind {tmp_path}{place} {place} && " for place in places)
    (tmp_path / "etc").mkdir()
    code = f"import sys; from nhc.hooks.commands.{module} import main; sys.exit(main())"
    environ = {**os.environ, "NHC_STATE_DIR": str(tmp_path / "state"), "NHC_FAKE_NVML": str(scenario),
               "LD_LIBRARY_PATH": str(library.library.parent)}  # fmt: skip
    for more in ("", "* || NHC_PROFILE=auto\n"):
        (tmp_path / "etc/nhc.conf").write_text(f"* || check_file_test -d /\n{more}")
        done = subprocess.run(
            ["unshare", "-m", "sh", "-c", f'{mounts} exec "$@"', "hook", sys.executable, "-c", code,
             *(["-l", "-", "-a"] if module == "healthcheck" else []), "-D", str(tmp_path / "etc"), "NHC_RM=none"],
            capture_output=True, text=True, env=environ,
        )  # fmt: skip
        assert ("remapping a row of its memory failed" in done.stdout + done.stderr) is bool(more)


@pytest.mark.thorough
def test_a_file_of_the_hooks_own_is_all_it_runs_unless_it_names_a_profile(prolog, tmp_path, profile):
    own = tmp_path / "etc/nhc-prolog.conf"
    own.write_text("* || check_file_test -d /\n")
    assert prolog(f"* || NHC_PROFILE={profile}\n").returncode == 0
    assert traces(tmp_path) == set()
    own.write_text(f"* || NHC_PROFILE={profile}\n")
    assert prolog("").returncode == 0
    assert traces(tmp_path) == {"prolog"}


@pytest.mark.thorough
def test_a_profile_that_there_is_not_lets_the_job_start_and_is_told(prolog):
    done = prolog("* || NHC_PROFILE=dgx-h10\n* || check_file_test -d /nowhere\n")
    assert done.returncode == 0
    assert "no profile 'dgx-h10' (did you mean dgx-h100?)" in done.stderr


def test_a_word_that_is_no_option_lets_the_job_start_and_is_one_line(tmp_path):
    done = nhc("-l", "-", state=tmp_path / "state", module="nhc.hooks.commands.prolog")
    assert done.returncode == 0
    first = done.stderr.splitlines()[0]
    assert (
        first == "nhc: the prolog's arguments cannot be used, nothing is checked: '-l' is not an option of nhc-prolog"
    )
    assert "raise" not in done.stderr


def test_what_a_prolog_takes_of_a_shipped_profile():
    """Whether the parts are there and sound; what is watched over time is the health check's."""
    plan = loader.load_text("* || check_ps_zombies\n", "nhc.conf", "n1")
    plan = profiles.add(plan, profiles.Profile("dgx-h100"), FakeHost(), lambda text, source: loader.load_text(
        text, source, "n1"))  # fmt: skip
    names = [item.name for item in for_context(plan, "prolog", frozenset()).items]
    assert names == [
        "check_ps_zombies", "check_hw_cpuinfo", "check_hw_physmem", "check_gpu_count", "check_gpu_lost",
        "check_gpu_ecc", "check_gpu_row_remap", "check_nvlink_status", "check_gpu_fabric", "check_gpu_xid",
        "check_ib_ports",
    ]  # fmt: skip
    more = {item.name for item in for_context(plan, "healthcheck", frozenset()).items} - set(names)
    assert more == {
        "check_fabric_manager", "check_gpu_clock_throttling", "check_ib_errors",
        "check_ib_link_flapping", "check_nvlink_errors",
    }  # fmt: skip
