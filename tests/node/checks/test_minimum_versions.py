"""Versions against published security fixes: driver, toolkits, runtimes, adapters' firmware, kernel."""

import json

import pytest

from nhc.core.data.reader import read
from nhc.core.host import Completed
from nhc.core.model import Verdict
from nhc.lab.testing.fake_host import FakeHost
from nhc.node.checks import minimum_versions
from nhc.node.checks.minimum_versions import _PROGRAMS as PROGRAMS
from nhc.node.checks.minimum_versions import NVIDIA_NIC, SITE
from tests.support.judge import judge, judge_all

OSRELEASE = "/proc/sys/kernel/osrelease"
UBUNTU = {"/etc/os-release": 'NAME="Ubuntu"\nID=ubuntu\nVERSION_ID="24.04"\n'}
# As the projects' own releases and Ubuntu's, Debian's packages print them.
RUNC = "runc version {0}\ncommit: v{0}-0-g59923ef\nspec: 1.2.0\ngo: go1.22.12\nlibseccomp: 2.5.5\n"
RUNC_UBUNTU = "runc version 1.1.12-0ubuntu3.1\nspec: 1.0.2-dev\ngo: go1.22.2\nlibseccomp: 2.5.5\n"
RUNC_DEBIAN = "runc version 1.1.5+ds1\ncommit: 1.1.5+ds1-1+deb12u1\nspec: 1.0.2-dev\n"


def node(files=None, commands=None, day="2026-10-01"):
    from datetime import datetime, timezone

    host = FakeHost(files or {}, commands or {})
    host.system.now = datetime.fromisoformat(f"{day}T12:00:00").replace(tzinfo=timezone.utc).timestamp()
    return host


def driver(version):
    return {"/sys/module/nvidia/version": f"{version}\n"}, {}


def firmware(version, vendor="0x15b3"):
    base = "/sys/class/infiniband/mlx5_0"
    return {f"{base}/fw_ver": f"{version}\n", f"{base}/device/vendor": f"{vendor}\n"}, {}


def cuda(*versions):
    return {
        f"/usr/local/cuda-{v}/version.json": json.dumps({"cuda": {"name": "CUDA SDK", "version": v}}) for v in versions
    }, {}


def kernel(release, distribution=None):
    return {**(UBUNTU if distribution is None else distribution), OSRELEASE: f"{release}\n"}, {}


def says(command, text):
    return {}, {f"{command} --version": text}


@pytest.mark.parametrize(
    ("parts", "fix"),
    [
        (driver("580.178.04"), None),
        (driver("580.159.03"), "580.178.04"),
        (driver("550.54.15"), "580.178.04"),  # a branch that gets no fixes any more
        (driver("590.48.01"), "595.91.07"),
        (driver("620.10.01"), None),  # a branch newer than the bulletin
        (firmware("28.43.2026"), "28.43.8002"),
        (firmware("28.43.8002"), None),
        (firmware("28.40.1000"), "28.43.8002"),  # between two branches with fixes
        (firmware("28.47.1026"), None),
        (firmware("22.47.1000"), "22.47.1020"),
        (firmware("14.31.1014"), "14.32.1908"),
        (cuda("12.4.1", "13.1.0"), None),
        (cuda("12.4.1", "12.9.0"), "13.1"),
        (kernel("6.8.0-124-generic"), "6.8.0-137"),
        (kernel("6.8.0-140-generic"), None),
        (says("dcgmi", "\ndcgmi  version: 4.5.2\n"), "4.5.3"),
        (says("dcgmi", "\ndcgmi  version: 4.6.0\n"), None),
        (says("nvidia-ctk", "NVIDIA Container Toolkit CLI version 1.17.3\ncommit: 7c4a9d8\n"), "1.19.1"),
        (says("dockerd", "Docker version 28.0.1, build bbd0a17\n"), "29.7.0"),
        (says("runc", RUNC.format("1.2.8")), "1.3.6"),  # mended in 1.3 and newer alone
        (says("runc", RUNC.format("1.3.5")), "1.3.6"),
        (says("runc", RUNC.format("1.4.3")), None),
        (says("runc", RUNC.format("1.5.0-rc.2")), "1.5.0-rc.3"),
        (says("runc", RUNC.format("1.5.0")), None),
    ],
)  # fmt: skip
def test_what_lacks_a_published_fix_is_a_warning_with_its_bulletin(parts, fix):
    found = judge(node(*parts), "check_minimum_versions")

    if fix is None:
        assert found.verdict is Verdict.OK
    else:
        assert (found.verdict, found.reason) == (Verdict.WARN, "VersionVulnerable")
        assert f"older than {fix}: https://" in found.message


@pytest.mark.parametrize(
    "parts",
    [
        ({}, {}),
        firmware("28.39.1002", vendor="0x1fc9"),
        firmware("1.20.0"),  # a family that no bulletin names
        kernel("6.8.0-1030-aws"),  # a kernel with numbers of its own
        kernel("6.8.0-124-generic", {"/etc/os-release": 'ID=ubuntu\nVERSION_ID="22.04"\n'}),
        kernel("6.17.0-14-generic"),
        says("runc", RUNC_UBUNTU),
        says("runc", RUNC_DEBIAN),
        says("dockerd", "Docker version 24.0.7, build 24.0.7-0ubuntu2~22.04.1\n"),
    ],
)
def test_what_no_bulletin_speaks_of_is_not_judged(parts):
    assert judge(node(*parts), "check_minimum_versions").reason == "NothingToCompare"


@pytest.mark.parametrize(
    "parts",
    [
        says("runc", "no such thing\n"),
        says("dcgmi", Completed(124, "", "", True)),
        ({"/usr/local/cuda/version.json": '{"cuda": []}'}, {}),
        ({"/usr/local/cuda/version.json": "not json"}, {}),
    ],
)
def test_what_does_not_tell_its_version_is_unknown(parts):
    assert judge(node(*parts), "check_minimum_versions").reason == "ComponentUnread"


def test_a_table_that_nobody_has_compared_for_ninety_days_says_so():
    young = judge(node(*driver("580.178.04"), day="2026-12-28"), "check_minimum_versions")
    old = judge(node(*driver("580.178.04"), day="2026-12-31"), "check_minimum_versions")

    assert young.verdict is old.verdict is Verdict.OK
    assert ("last read" in young.message, "last read 92 days ago" in old.message) == (False, True)


def test_a_site_has_a_table_of_its_own():
    table = "# ours\nnvidia-driver  570  570.1  2026-01-01  2026-09-30  https://wiki.example/driver\n"
    files, commands = driver("570.99")

    for place, line in (("/srv/ours", "check_minimum_versions -f /srv/ours"), (SITE, "check_minimum_versions")):
        assert judge(node({**files, place: table}, commands), line).verdict is Verdict.OK
        bad = table + "nvidia-driver 580 580.1 2026-01-01 soon https://wiki.example\n"
        found = judge(node({**files, place: bad}, commands), line)
        assert (found.verdict, found.reason) == (Verdict.UNKNOWN, "MinimumVersionsUnusable")
        assert found.message.startswith(f"{place}:3: ")
    assert judge(node(files, commands), "check_minimum_versions -f /no/such").reason == "MinimumVersionsUnusable"


def test_the_table_that_comes_with_nhc():
    rows = minimum_versions.parse(read(minimum_versions.BUILT_IN), minimum_versions.BUILT_IN)

    named = {row.component for row in rows}
    families = {name for name in named if name.startswith(NVIDIA_NIC)}
    assert named - families == {*(p[0] for p in PROGRAMS), "nvidia-driver", "cuda-toolkit", "ubuntu-24.04-kernel"}
    assert all(row.bulletin.startswith("https://") for row in rows)
    for row in rows:  # a row that its own version does not fall under would never be compared
        assert row.is_of(row.version), row
        assert row.component not in families or row.version.split(".")[0] == row.component[len(NVIDIA_NIC) :]


def test_several_components_are_judged_apart():
    files = {**driver("580.100.01")[0], **cuda("13.1.0")[0]}
    found = judge_all(node(files, says("runc", RUNC.format("1.4.3"))[1]), "check_minimum_versions")

    assert [(o.verdict, o.target) for o in found] == [
        (Verdict.WARN, "nvidia-driver"), (Verdict.OK, "runc"), (Verdict.OK, "cuda-toolkit"),
    ]  # fmt: skip
