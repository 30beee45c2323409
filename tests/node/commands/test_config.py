"""`nhc config show`: what a node is judged by, and where each line comes from."""

from __future__ import annotations

import json

import pytest

from tests.support.run import nhc

pytestmark = pytest.mark.thorough

CONF = """\
* || TIMEOUT=45
* || check_fs_mount_rw -f /
{gpu[1-4]} |every 5m, strikes 2| check_gpu_ecc
{login} || check_ps_zombies
include more.conf
"""
MORE = "\n* |context prolog| [[ -d / ]] && check_fs_free / 5%\n* || SITE=here\n"


@pytest.fixture
def conf(tmp_path):
    (tmp_path / "nhc.conf").write_text(CONF)
    (tmp_path / "more.conf").write_text(MORE)
    return tmp_path / "nhc.conf"


def show(conf, *words, **options):
    return nhc("config", "show", conf, "-n", "gpu2", *words, state=conf.parent / "state", **options)


def test_each_line_with_its_file_and_line(conf):
    done = show(conf)
    assert (done.returncode, done.stderr) == (0, "")
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert lines[0].startswith("gpu2: 3 checks, from ")
    assert "name it with --profile" in lines[0]
    assert lines[1:] == [
        f"{conf}:2 check_fs_mount_rw -f /",
        f"{conf}:3 check_gpu_ecc |every 5m, strikes 2|",
        f"{conf.parent}/more.conf:2 [[ -d / ]] && check_fs_free / 5% |context prolog|",
        f"{conf.parent}/more.conf:3 SITE=here",
        f"{conf}:1 TIMEOUT=45",
    ]


def test_a_profiles_lines_are_there_as_json_too(conf):
    told = json.loads(show(conf, "--profile", "dgx-h100", "--format", "json").stdout)
    assert told["profile"]["name"] == "dgx-h100"
    places = {one["check"]: one["file"] for one in told["checks"]}
    assert places["check_gpu_count"] == "profile dgx-h100"
    assert places["check_gpu_ecc"] == str(conf)  # the site's own line stands in the profile's place
    ecc = next(one for one in told["checks"] if one["check"] == "check_gpu_ecc")
    assert (ecc["line_number"], ecc["every"], ecc["strikes"]) == (3, 300.0, 2)
    assert {"name": "TIMEOUT", "value": "45", "file": str(conf), "line_number": 1} in told["variables"]


def test_a_profile_that_the_configuration_names_and_one_context(conf):
    conf.write_text(f"{CONF}* || NHC_PROFILE=dgx-h100\n")
    shown = show(conf).stdout
    assert "profile dgx-h100 (NHC_PROFILE=dgx-h100)" in shown
    assert "check_ib_errors" in shown
    in_a_prolog = show(conf, "--context", "prolog").stdout
    assert "check_ib_errors" not in in_a_prolog
    assert "check_gpu_count" in in_a_prolog


def test_what_cannot_be_used_is_said(conf):
    conf.write_text("include nowhere.conf\n")
    done = show(conf)
    assert (done.returncode, done.stdout) == (2, "")
    assert "nowhere.conf: No such file or directory" in done.stderr
    conf.write_text(CONF)
    assert "no profile 'dgx-h10' (did you mean dgx-h100?)" in show(conf, "--profile", "dgx-h10").stderr
