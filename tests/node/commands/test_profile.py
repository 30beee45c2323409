"""`nhc profile` and `nhc check local --profile` as a user runs them."""

import json

import pytest

from tests.support.run import nhc


@pytest.mark.thorough
def test_show_and_list():
    shown = nhc("show", "profile", "dgx-h100")
    listed = nhc("list", "profiles", "aws-p5*")

    assert "* || check_gpu_count 8" in shown.stdout
    assert [line.split()[0] for line in listed.stdout.splitlines()] == [
        "aws-p5.48xlarge", "aws-p5.4xlarge", "aws-p5e.48xlarge", "aws-p5en.48xlarge"]  # fmt: skip
    assert "Amazon EC2 p5.48xlarge" in listed.stdout


@pytest.mark.thorough
def test_wrong_names_are_told():
    wrong = nhc("show", "profile", "dgx-h10")
    none = nhc("list", "profiles", "ibm-*")

    assert wrong.returncode == none.returncode == 2
    assert "did you mean dgx-h100?" in wrong.stderr
    assert "no profile matches 'ibm-*'" in none.stderr


@pytest.mark.thorough
def test_detect_says_what_it_found(tmp_path):
    found = nhc("profile", "--format", "json", "--no-metadata", state=tmp_path)

    told = json.loads(found.stdout)
    assert found.returncode == (0 if told["profile"] else 3)
    assert set(told) == {"profile", "cloud", "type", "why", "problem", "candidates"}
    assert nhc("show", "profile", "auto", state=tmp_path).returncode == found.returncode


@pytest.mark.thorough
def test_check_local_judges_by_a_profile(tmp_path):
    site = tmp_path / "nhc.conf"
    site.write_text("* || check_hw_mem_free 1k\n* || check_gpu_count\n")
    own = tmp_path / "mine.conf"
    own.write_text("# mine\n* || check_fs_mount_rw -f /\n* || check_gpu_count 8\n")

    def names(*words):
        done = nhc("check", "local", "-a", "-c", site, *words, "--format", "json", state=tmp_path / "state")
        return [(result["check"], result["source"].rsplit("/", 1)[-1]) for result in json.loads(done.stdout)["results"]]

    without = [("check_hw_mem_free", "nhc.conf:1"), ("check_gpu_count", "nhc.conf:2")]
    assert names("--profile", "none") == without
    assert names("--profile", own) == [*without, ("check_fs_mount_rw", "mine.conf:2")]
    own.write_text("# mine\n\n* || check_fs_mount_rw -f /\n")
    assert names("--profile", own) == [*without, ("check_fs_mount_rw", "mine.conf:3")], "the kept plan was stale"
    assert names("--profile", "none") == without


def test_check_local_with_a_wrong_profile_is_a_usage_error(tmp_path):
    done = nhc("check", "local", "--profile", "dgx-h10", state=tmp_path)

    assert done.returncode == 2
    assert "did you mean dgx-h100?" in done.stderr


@pytest.mark.thorough
def test_the_example_configuration_is_valid():
    from tests.support.run import ROOT

    done = nhc("config", "check", ROOT / "conf/nhc.conf.example")

    assert done.returncode == 0, done.stderr
