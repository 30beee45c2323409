"""Checks that an installed package offers (entry point group nhc.node.checks): found, judged, kept, upgraded,
broken.
"""

import json
import shutil
import sys
import time

import pytest

from tests.support.run import ROOT, nhc

pytestmark = pytest.mark.thorough

MODULE = '''
import sys
from nhc.core.check import arg, check
from nhc.core.model import crit, ok

@check("check_site_lamp", arg("colour", str, "what it should be", "green"), timeout=3, tags=("lamp",))
def check_site_lamp(host, colour):
    """The rack's lamp has its colour. A second sentence."""
    path = host.read_or("/proc/sys/kernel/random/boot_id")
    assert path
    searched = "importlib.metadata" in sys.modules
    found = ok()._replace(message=f"VERSION searched={searched}")
    return found if colour == "green" else crit("LampWrong", f"not {colour}")

@check("check_gpu_count")
def taken(host):
    """A name of ours, which no package may take."""
    return crit("Stolen", "stolen")
'''


class Site:
    """A directory that packages are installed in, and nhc with it on Python's path."""

    def __init__(self, base):
        self.path, self.state = base / "site", base / "state"
        self.path.mkdir()
        self.config = base / "nhc.conf"

    def install(self, version="1.0", module=MODULE, entries="check_site_lamp = lamp_checks.lamp:check_site_lamp\n"):
        for old in self.path.glob("lamp*"):
            shutil.rmtree(old)
        package = self.path / "lamp_checks"
        package.mkdir()
        (package / "__init__.py").write_text("")
        (package / "lamp.py").write_text(module.replace("VERSION", version))
        info = self.path / f"lamp_checks-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: lamp-checks\nVersion: {version}\n")
        (info / "entry_points.txt").write_text(f"[nhc.checks]\n{entries}")

    def remove(self):
        for old in self.path.glob("lamp*"):
            shutil.rmtree(old)

    def nhc(self, *words, **more):
        env = {"PYTHONPATH": f"{ROOT}:{ROOT / 'adapters'}:{self.path}", "NHC_MUTES": "/no/such/file"}
        return nhc(*words, state=self.state, env=env, **more)

    def judge(self, *lines):
        if lines:
            self.config.write_text("".join(f"* || {line}\n" for line in lines))
        time.sleep(0.05)  # files this young are not kept: the clock of file times ticks every 10 ms
        done = self.nhc("check", "local", "-c", self.config, "--profile", "none", "--all", "-f", "json")
        assert "Traceback" not in done.stderr
        results = json.loads(done.stdout)["results"]
        return [(one["check"], one["verdict"].lower(), one["reason"], one["message"]) for one in results]


@pytest.fixture
def site(tmp_path):
    found = Site(tmp_path)
    found.install()
    return found


def test_a_packages_check_is_one_of_ours_and_later_runs_do_not_search(site):
    first = site.judge("check_site_lamp", "check_site_lamp red", "check_hw_mem_free 1k")
    assert [one[:3] for one in first] == [
        ("check_site_lamp", "ok", ""),
        ("check_site_lamp", "crit", "LampWrong"),
        ("check_hw_mem_free", "ok", ""),
    ]
    assert first[0][3] == "1.0 searched=True"
    assert site.judge()[0][3] == "1.0 searched=False"  # the plan was kept, and the worker imports the module


def test_an_upgrade_and_a_removal_are_seen(site):
    site.judge("check_site_lamp")
    site.install("1.1")
    assert site.judge()[0][3] == "1.1 searched=True"
    assert site.judge()[0][3] == "1.1 searched=False"
    site.remove()
    assert site.judge()[0][1:3] == ("unknown", "CommandMissing")
    site.install("1.2")  # a name that nothing had is looked for again
    assert site.judge()[0][3].startswith("1.2")


def test_a_package_takes_no_name_of_ours(site):
    stolen = "check_gpu_count = lamp_checks.lamp:taken\n"
    site.install(entries=f"check_site_lamp = lamp_checks.lamp:check_site_lamp\n{stolen}")
    found = site.judge("check_site_lamp", "check_gpu_count 0")
    assert found[0][1] == "ok"
    assert found[1][2] != "Stolen"
    assert "what it should be" in site.nhc("explain", "check_site_lamp").stdout
    assert "no package may take" not in site.nhc("explain", "check_gpu_count").stdout


@pytest.mark.parametrize(
    ("module", "entries", "says"),
    [
        ("import no_such_library\n", None, "lamp_checks.lamp cannot be imported: ModuleNotFoundError: No module named"),
        ("raise SystemExit(1)\n", None, "lamp_checks.lamp cannot be imported: SystemExit: 1"),
        ("def check_site_lamp(host): pass\n", None, "is not declared as check_site_lamp with nhc.core.check.check"),
        (MODULE, "check_site_lamp = lamp_checks.lamp:nothing\n", "AttributeError"),
    ],
)
def test_one_that_cannot_be_loaded_is_unknown_with_one_line(site, module, entries, says):
    site.install(module=module, **({"entries": entries} if entries else {}))
    found = site.judge("check_site_lamp red -x", "check_hw_mem_free 1k")
    assert found[0][1:3] == ("unknown", "CheckBroken")
    assert "offered by lamp-checks 1.0" in found[0][3]
    assert says in found[0][3]
    assert found[1][1] == "ok"
    checked = site.nhc("config", "check", site.config)
    assert checked.returncode == 2
    assert says in checked.stdout + checked.stderr
    site.install("1.1")
    assert site.judge("check_site_lamp")[0][1] == "ok"


def test_lists_explanations_and_completion_know_it(site):
    listed = site.nhc("list", "--tag", "lamp").stdout
    assert listed == "check_site_lamp  The rack's lamp has its colour. A second sentence. [lamp-checks 1.0]\n"
    described = {one["name"]: one for one in json.loads(site.nhc("list", "--format", "json").stdout)}
    assert described["check_site_lamp"]["distribution"] == "lamp-checks 1.0"
    assert described["check_hw_mem_free"]["distribution"] is None
    explained = site.nhc("explain", "check_site_lamp").stdout
    assert "colour" in explained
    assert "It comes with the installed package lamp-checks 1.0." in explained
    completing = {"_NHC_COMPLETE": "bash_complete", "COMP_WORDS": "nhc explain check_site_", "COMP_CWORD": "2"}
    env = {**completing, "PYTHONPATH": f"{ROOT}:{ROOT / 'adapters'}:{site.path}"}
    assert "check_site_lamp" in nhc("", env=env).stdout


def test_config_check_judges_its_arguments(site):
    site.config.write_text("* || check_site_lamp green blue\n* || if true; then check_site_lampe; fi\n")
    said = site.nhc("config", "check", site.config)
    assert said.returncode == 2
    text = said.stdout + said.stderr
    assert "unexpected argument 'blue'" in text
    assert "did you mean check_site_lamp?" in text


def test_a_shell_line_can_call_it(site):
    found = site.judge("if true; then check_site_lamp red; fi", "true && check_site_lamp")
    assert [one[1] for one in found] == ["crit", "ok"]
    assert found[0][2] == "LampWrong"


def test_genconf_tries_it(site):
    said = site.nhc("genconf", "-c", "-", timeout=180)
    assert "### From installed packages" in said.stdout
    assert " || check_site_lamp\n" in said.stdout


def test_a_process_that_stays_sees_an_upgrade(site, monkeypatch):
    """The agent reads its plan again when a package changes."""
    from nhc.core.check import REGISTRY, find
    from nhc.core.host import Host

    monkeypatch.syspath_prepend(str(site.path))
    try:
        one = find("check_site_lamp")
        assert one.distribution == "lamp-checks 1.0"
        assert find("check_site_lamp") is one
        time.sleep(0.05)
        site.install("1.1")
        two = find("check_site_lamp")
        assert two.distribution == "lamp-checks 1.1"
        assert two.run(Host(), "green").message.startswith("1.1")
        time.sleep(0.05)
        site.remove()
        assert find("check_site_lamp") is None
    finally:
        REGISTRY.pop("check_site_lamp", None)
        for name in [name for name in sys.modules if name.startswith("lamp_checks")]:
            del sys.modules[name]


RUNBOOKS = '''
RUNBOOKS = """
LampWrong=reset-device
means: The lamp has another colour.
causes: A fuse.
do: Change the fuse.
confirm: The lamp is green.
action: inspect
source: the lamp's manual

Xid79
means: Something else.
causes: Something else.
do: Something else.
confirm: Something else.
action: none
source: a package
"""
'''


def test_a_package_explains_its_own_reasons_and_none_of_ours(site):
    site.install(module=MODULE + RUNBOOKS)
    told = json.loads(site.nhc("explain", "LampWrong", "--format", "json").stdout)
    assert (told["do"], told["action"]) == ("Change the fuse.", "reset-device")
    assert site.nhc("explain", "lampwrong").stdout.startswith("LampWrong")
    assert "Something else" not in site.nhc("explain", "Xid79").stdout
    assert "did you mean LampWrong" in site.nhc("explain", "LampWron").stderr


@pytest.mark.parametrize("text", ["RUNBOOKS = 'LampWrong'\n", "RUNBOOKS = 7\n", "RUNBOOKS = 'A\\nmeans: x\\n'\n"])
def test_runbooks_that_cannot_be_read_name_their_module(site, text):
    site.install(module=MODULE + text)
    done = site.nhc("explain", "LampWrong")
    assert done.returncode == 2
    assert "RUNBOOKS of lamp_checks.lamp: " in done.stderr
    assert "Traceback" not in done.stderr
    assert site.nhc("explain", "GpuLost").returncode == 0


def test_runbooks_that_cannot_be_read_cost_no_other_package_its_own(site):
    both = "check_site_lamp = lamp_checks.lamp:check_site_lamp\ncheck_site_dark = lamp_checks.dark:check_site_dark\n"
    site.install(module=MODULE + RUNBOOKS, entries=both)
    dark = MODULE.replace("check_site_lamp", "check_site_dark").replace("check_gpu_count", "check_gpu_ecc")
    (site.path / "lamp_checks" / "dark.py").write_text(dark + "RUNBOOKS = 'DarkWrong'\n")
    assert site.nhc("explain", "LampWrong").stdout.startswith("LampWrong")
    told = site.nhc("explain", "DarkWrong")
    assert told.returncode == 2
    assert "RUNBOOKS of lamp_checks.dark: " in told.stderr


@pytest.mark.parametrize("entries", [b"[nhc.checks]\ncheck_x\n", b"[nhc.checks]\n\xff = \xff:f\n"])
def test_a_package_whose_entry_points_are_no_text_of_that_form_breaks_only_itself(site, entries):
    torn = site.path / "torn-1.0.dist-info"
    torn.mkdir()
    (torn / "entry_points.txt").write_bytes(entries)

    assert site.judge("check_site_lamp") == [("check_site_lamp", "ok", "", "1.0 searched=True")]

    site.config.write_text("* || check_torn\n")
    for words in (("config", "check", site.config), ("explain", "check_torn"), ("list",)):
        done = site.nhc(*words)
        [line] = [one for one in (done.stdout + done.stderr).splitlines() if "torn-1.0" in one]
        assert f"{torn}/entry_points.txt cannot be read: " in line
    assert "check_site_lamp" in done.stdout


def test_what_a_packages_module_prints_is_no_part_of_the_report(site):
    site.install(module="print('hello')\n" + MODULE)

    assert [result[1] for result in site.judge("check_site_lamp")] == ["ok"]


def test_a_package_without_a_name_is_told_by_its_directory(site):
    (site.path / "lamp_checks-1.0.dist-info" / "METADATA").unlink()

    assert "[lamp_checks-1.0.dist-info]" in site.nhc("list").stdout
