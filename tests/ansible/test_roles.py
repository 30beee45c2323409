"""The role that installs nhc, and its rollback, seen on the machine by pytest-testinfra over SSH."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Callable

import pytest

from nhc import __version__
from tests.ansible.conftest import ROOT, Ansible, Run
from tests.support.machines import Fleet
from tests.support.require import need

Install = Callable[..., Run]

CONF = "* || check_hw_mem_free 1MB\n"


@pytest.fixture(scope="module")
def node(machines: Fleet) -> Any:
    need("pytest-testinfra", find_spec("testinfra"))
    import testinfra

    return testinfra.get_host("ssh://gpu001", ssh_config=str(machines.ssh_config))


@pytest.fixture(scope="module")
def install(ansible: Ansible, tmp_path_factory: pytest.TempPathFactory) -> Install:
    """Install on gpu001, with changes to the variables of a usual site."""
    site = tmp_path_factory.mktemp("site")
    (site / "nhc.conf").write_text(CONF)

    def run(*arguments: str, playbook: str = "install", **variables: Any) -> Run:
        # Machines share this system's ports, on addresses of their own.
        usual = {
            "nhc_agent_arguments": ["--listen", "127.93.0.1:20258"],
            "nhc_conf_src": os.path.relpath(site / "nhc.conf", ROOT),  # where the command is given
            "nhc_hooks": "slurm",
            "nhc_settings": {"TOKEN": "hush-hush"},
        }
        return ansible(playbook, "--limit", "gpu001", *arguments, **{**usual, **variables})

    return run


def paths(node: Any) -> list[bool]:
    return [node.file(path).exists for path in ("/usr/bin/nhc", "/opt/nhc/current", "/etc/nhc/nhc.conf")]


def test_check_mode_of_a_first_installation_changes_nothing(install: Install, node: Any) -> None:
    run = install("--check")
    assert run.status == 0, run.text
    assert paths(node) == [False, False, False]
    assert not node.file("/opt/nhc").exists


def test_an_installed_node_checks_itself(install: Install, node: Any) -> None:
    run = install("-vvv")
    assert run.status == 0, run.text
    assert "hush-hush" not in run.text, "settings are secret"
    for command in ("nhc", "nhc-healthcheck", "nhc-prolog", "nhc-epilog"):
        file = node.file(f"/usr/bin/{command}")
        assert (file.user, file.mode) == ("root", 0o755)
    assert node.file("/etc/nhc/nhc.conf").content_string == CONF
    assert node.file("/etc/default/nhc").content_string.endswith("TOKEN=hush-hush\n")
    assert node.file("/etc/default/nhc").mode == 0o640
    checked = node.run("nhc check local")
    assert (checked.rc, checked.stdout.splitlines()[-1].split(":")[1]) == (0, " OK"), checked
    timer = node.service("nhc-check.timer")
    assert timer.is_enabled
    assert timer.is_running
    assert node.run("systemctl start nhc-check.service").rc == 0
    assert '"verdict": "OK"' in node.file("/run/nhc/report.json").content_string
    hook = node.run("env -i /usr/libexec/nhc/slurm-prolog")
    assert hook.rc == 0
    assert "broken" not in hook.stderr


def test_watch_only_is_a_setting_of_the_role(install: Install, node: Any, tmp_path: Path) -> None:
    sick = tmp_path / "sick.conf"
    sick.write_text("* || check_file_test -f /etc/nonesuch\n")
    for settings, status in (({"NHC_WATCH_ONLY": "1", "NHC_RM": "none"}, 0), ({"NHC_RM": "none"}, 1)):
        run = install("--tags", "configuration", nhc_conf_src=str(sick), nhc_settings=settings)
        assert run.status == 0, run.text
        checked = node.run("nhc-healthcheck -l /tmp/watch.log")
        assert checked.rc == status, checked
        assert ("ERROR" in checked.stdout) is bool(status)
        assert "check_file_test" in node.file("/tmp/watch.log").content_string
    assert install("--tags", "configuration").status == 0


def test_a_second_run_changes_nothing(install: Install) -> None:
    run = install()
    assert run.status == 0, run.text
    assert run.recap("gpu001")["changed"] == 0, run.text


def test_a_configuration_that_cannot_be_used_is_named_once_before_anybody_is_asked(
    install: Install, node: Any, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.conf"
    broken.write_text("* || check_hw_mem_fre 1MB\n")
    run = install("--limit", "all", nhc_conf_src=str(broken))  # gpu004 among them, which nobody reaches
    assert run.status == 2
    assert run.text.count("fatal: [") == 1, run.text
    assert "no such check: check_hw_mem_fre (did you mean check_hw_mem_free?)" in run.text
    assert "UNREACHABLE" not in run.text
    assert node.file("/etc/nhc/nhc.conf").content_string == CONF


def test_a_template_is_judged_by_the_node_that_it_is_rendered_for(install: Install, node: Any, tmp_path: Path) -> None:
    broken = tmp_path / "broken.conf"
    broken.write_text("* || check_hw_mem_fre {{ 1 }}MB\n")
    run = install("--tags", "configuration", nhc_conf_src=str(broken))
    assert run.status == 2
    assert "failed to validate" in run.text
    assert node.file("/etc/nhc/nhc.conf").content_string == CONF


def test_a_sick_node_is_no_failed_unit(install: Install, node: Any, tmp_path: Path) -> None:
    sick = tmp_path / "sick.conf"
    sick.write_text("* || check_file_test -f /etc/nonesuch\n")
    assert install("--tags", "configuration", nhc_conf_src=str(sick)).status == 0
    assert node.run("systemctl start nhc-check.service").rc == 0
    assert '"verdict": "CRIT"' in node.file("/run/nhc/report.json").content_string


def test_rollback_takes_the_last_change_back_and_again(install: Install, node: Any) -> None:
    assert "nonesuch" in node.file("/etc/nhc/nhc.conf").content_string
    run = install(playbook="rollback")
    assert run.status == 0, run.text
    assert node.file("/etc/nhc/nhc.conf").content_string == CONF
    assert install(playbook="rollback").status == 0
    assert "nonesuch" in node.file("/etc/nhc/nhc.conf").content_string
    assert node.service("nhc-check.timer").is_running


def test_the_agent_takes_the_timers_place(install: Install, node: Any) -> None:
    run = install(nhc_service="agent")
    assert run.status == 0, run.text
    assert node.service("nhc-agent.service").is_running
    assert not node.service("nhc-check.timer").is_running
    assert not node.service("nhc-check.timer").is_enabled
    assert install("--tags", "service", nhc_service="agent").recap("gpu001")["changed"] == 0


def test_rollback_starts_what_ran_before_and_nothing_else(install: Install, node: Any) -> None:
    assert install(nhc_service="timer").status == 0
    assert not node.service("nhc-agent.service").is_running
    run = install(playbook="rollback")
    assert run.status == 0, run.text
    assert node.service("nhc-agent.service").is_running
    assert not node.service("nhc-check.timer").is_running, "its unit is there, and was not enabled"
    assert not node.service("nhc-check.timer").is_enabled


def test_rollback_where_no_systemd_runs_puts_the_files_back_and_touches_no_unit(install: Install, node: Any) -> None:
    """As in a container, or an image that is built: systemctl refuses there (sd_booted(3))."""
    agent = node.file("/opt/nhc/current").linked_to, node.service("nhc-check.timer").is_running
    assert node.run("mv /run/systemd/system /run/systemd/hidden").rc == 0
    try:
        assert node.run("systemctl daemon-reload").rc != 0
        run = install(playbook="rollback")
        assert run.status == 0, run.text
        assert run.recap("gpu001")["changed"] > 0
        assert node.file("/etc/systemd/system/timers.target.wants/nhc-check.timer").exists
        assert install(playbook="rollback").status == 0
        assert not node.file("/etc/systemd/system/timers.target.wants/nhc-check.timer").exists
    finally:
        node.run("mv /run/systemd/hidden /run/systemd/system; systemctl daemon-reload")
    assert agent == (node.file("/opt/nhc/current").linked_to, node.service("nhc-check.timer").is_running)
    assert node.service("nhc-agent.service").is_running


def test_the_commands_start_whatever_engine_is_current(install: Install, node: Any) -> None:
    """A hook may start while one kind of engine is exchanged for the other."""
    assert node.run("nhc --version").rc == 0
    node.run("mkdir -p /opt/nhc/engines/other/bin && ln -s /bin/echo /opt/nhc/engines/other/bin/python")
    before = node.file("/opt/nhc/current").linked_to
    node.run("ln -sfn engines/other /opt/nhc/current")
    try:
        assert node.run("nhc --version").stdout == "-I /opt/nhc/current/bin/nhc --version\n"
    finally:
        node.run(f"ln -sfn engines/{Path(before).name} /opt/nhc/current; rm -r /opt/nhc/engines/other")


def put(machines: Fleet, wheel: Path) -> str:
    """A wheel on gpu001, and what to tell the role to install it from there, without any index."""
    machine = next(machine for machine in machines.machines if machine.name == "gpu001")
    machine.run(f"cat >/root/{wheel.name}", stdin=wheel.read_bytes())
    return f"/root/{wheel.name}"


OFFLINE = {"nhc_install_method": "pip", "nhc_pip_arguments": "--no-index --no-deps"}


@pytest.mark.parametrize("package", ["nhc", "nhc==1.0", "/root/nhc-1.0-py3-none-any.whl", "Nodehealth2"])
def test_another_projects_distribution_is_refused_before_pip_runs(install: Install, node: Any, package: str) -> None:
    before = node.file("/opt/nhc/current").linked_to
    run = install("--tags", "engine", nhc_package=package, nhc_version="1.0", **OFFLINE)
    assert run.status == 2
    assert "is another project" in " ".join(run.text.split())
    assert node.file("/opt/nhc/current").linked_to == before
    assert not node.file("/opt/nhc/engines/1.0-pip").exists


def test_a_wheel_that_only_bears_the_name_never_becomes_current(
    install: Install, node: Any, machines: Fleet, tmp_path: Path
) -> None:
    before = node.file("/opt/nhc/current").linked_to
    wheel = tmp_path / "nodehealth-9.9-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as made:
        made.writestr("nhc.pth", "import os; os.system('touch /root/it-ran')\n")
        made.writestr("nodehealth-9.9.dist-info/METADATA", "Metadata-Version: 2.1\nName: nodehealth\nVersion: 9.9\n")
        made.writestr(
            "nodehealth-9.9.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        made.writestr("nodehealth-9.9.dist-info/RECORD", "nhc.pth,,\n")
    run = install("--tags", "engine", nhc_package=put(machines, wheel), nhc_version="9.9", **OFFLINE)
    assert run.status == 2
    assert "nodehealth 9.9 was installed, which is not nhc 9.9" in " ".join(run.text.split())
    assert node.file("/opt/nhc/current").linked_to == before
    assert not node.file("/opt/nhc/engines/9.9-pip").exists
    assert not node.file("/root/it-ran").exists


def test_the_wheel_is_installed_by_pip(install: Install, node: Any, machines: Fleet, tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT, check=True, capture_output=True,
    )  # fmt: skip
    (wheel,) = tmp_path.glob("nodehealth-*.whl")
    wanted = {"nhc_package": put(machines, wheel), "nhc_version": __version__, **OFFLINE}
    run = install("--tags", "engine", **wanted)
    assert run.status == 0, run.text
    assert node.file("/opt/nhc/current").linked_to == f"/opt/nhc/engines/{__version__}-pip"
    assert node.run("nhc check local").rc == 0
    assert install("--tags", "engine", **wanted).recap("gpu001")["changed"] == 0


def test_removal_leaves_the_node_as_it_was(install: Install, node: Any) -> None:
    run = install(playbook="rollback", nhc_rollback_to="nothing")
    assert run.status == 0, run.text
    assert paths(node) == [False, False, False]
    assert not node.service("nhc-agent.service").is_running
    assert node.run("systemctl list-units --failed --no-legend").stdout == ""
