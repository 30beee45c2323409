"""playbooks/fleet-check.yml as its users run it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import jsonschema
import pytest

from tests.ansible.conftest import ROOT, Ansible
from tests.support.machines import Fleet

CACHE = "/var/cache/nhc-ansible"


def load(path: Path) -> dict[str, dict[str, object]]:
    return {report["host"]: report for report in json.loads(path.read_text())["reports"]}


def test_the_example_inventory_works_from_a_checkout(controller: Ansible, tmp_path: Path) -> None:
    run = controller(
        "fleet-check", "-i", "inventories/example", nhc_report_dir=str(tmp_path), nhc_checks=["check_hw_mem_free"]
    )
    assert run.status == 0, run.text
    assert run.folded == ["OK 1 node localhost", "1 node: 1 OK"]
    assert load(tmp_path / "reports.json")["localhost"]["verdict"] == "OK"


@pytest.mark.service
def test_sick_and_unreachable_nodes_are_results(ansible: Ansible, conf: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run = ansible("fleet-check", nhc_config_src=str(conf), nhc_report_dir=str(out), nhc_group_by="rack",
                  nhc_history=str(tmp_path / "history"))  # fmt: skip
    assert run.status == 0, run.text
    assert [": ".join(line.split(": ")[:2]) for line in run.folded] == [
        "CRIT 1 node gpu002: FileTestFailed check_file_test /etc/nonesuch",
        "UNKNOWN 1 node gpu004: Unreachable",
        "OK 2 nodes gpu[001,003]",
        "4 nodes: 1 CRIT, 1 UNKNOWN, 2 OK",
    ]
    assert run.recap("gpu002")["failed"] == run.recap("gpu002")["changed"] == 0
    reports = load(out / "reports.json")
    schema = json.loads((ROOT / "docs/report.schema.json").read_text())
    for report in reports.values():
        jsonschema.validate(report, schema)
    assert {host: report["verdict"] for host, report in reports.items()} == {
        "gpu001": "OK", "gpu002": "CRIT", "gpu003": "OK", "gpu004": "UNKNOWN",
    }  # fmt: skip
    assert reports["gpu001"]["fleet"]["groups"] == ["gpu"]  # type: ignore[index]
    page = (out / "report.html").read_text()
    assert "/etc/nonesuch" in page
    assert '"group":"r1"' in page
    assert (out / "summary.txt").read_text().startswith("CRIT 1 node gpu002")
    assert (out / "report.html").stat().st_mode & 0o007 == 0, "evidence is not for everybody"
    listed = ansible.command(str(ansible.bin / "python"), "-m", "nhc", "fleet", "report", "--list", "--history",
                             str(tmp_path / "history"), env={"PYTHONPATH": f"{ROOT}:{ROOT}/adapters"})  # fmt: skip
    assert "4 nodes: 1 CRIT, 1 UNKNOWN, 2 OK" in listed.text


def test_the_play_fails_where_asked_after_the_report(ansible: Ansible, conf: Path, tmp_path: Path) -> None:
    def run(limit: str) -> int:
        return ansible("fleet-check", "--limit", "gpu", nhc_config_src=str(conf), nhc_report_dir=str(tmp_path),
                       nhc_fail_on="crit", nhc_max_unhealthy=limit).status  # fmt: skip

    assert run("0") == 2
    assert load(tmp_path / "reports.json").keys() == {"gpu001", "gpu002", "gpu003"}
    assert run("34%") == 0


def test_limit_tags_and_serial_are_ansibles(ansible: Ansible, conf: Path, tmp_path: Path) -> None:
    run = ansible("fleet-check", "--limit", "gpu001,gpu002", "--tags", "check", nhc_config_src=str(conf), nhc_serial=1,
                  nhc_report_dir=str(tmp_path / "none"))  # fmt: skip
    assert run.status == 0, run.text
    assert run.hosts() == ["gpu001", "gpu002"]
    assert run.text.count("PLAY [Check the fleet]") == 2, "one batch each"
    assert not (tmp_path / "none").exists()


def test_check_mode_judges_and_changes_nothing(ansible: Ansible, machines: Fleet, conf: Path, tmp_path: Path) -> None:
    machine = machines["gpu003"]
    machine.run(f"rm -rf {CACHE} /run/nhc")
    run = ansible(
        "fleet-check", "--check", "--limit", "gpu003", nhc_config_src=str(conf), nhc_report_dir=str(tmp_path / "none")
    )
    assert run.status == 0, run.text
    assert run.folded[0] == "OK 1 node gpu003"
    assert machine.run(f"ls -d {CACHE} /run/nhc /root/.ansible/tmp/* /tmp/nhc* 2>/dev/null; true") == ""
    assert not (tmp_path / "none").exists()


def test_the_archive_is_copied_once_and_verified_each_time(
    ansible: Ansible, machines: Fleet, conf: Path, tmp_path: Path
) -> None:
    machine = machines["gpu001"]

    def run() -> list[str]:
        return ansible(
            "fleet-check", "--limit", "gpu001", "--tags", "check", nhc_config_src=str(conf), nhc_engine="archive"
        ).folded

    machine.run(f"rm -rf {CACHE}")
    assert run()[0] == "OK 1 node gpu001"
    kept = machine.run(f"cd {CACHE}; stat -c '%n %a %u %i' . *; sha256sum *")
    assert ". 700 0 " in kept
    lines = [line.split() for line in kept.splitlines()]
    assert {line[1] for line in lines if len(line) == 2} == {line[0] for line in lines if len(line) == 2}, (
        "named by digest"
    )
    assert run()[0] == "OK 1 node gpu001"
    assert machine.run(f"cd {CACHE}; stat -c '%n %a %u %i' . *; sha256sum *") == kept, "nothing was copied again"
    machine.run(f"cd {CACHE}; for file in *; do echo damaged >>$file; done")
    assert run()[0] == "OK 1 node gpu001"
    assert [line.split() for line in machine.run(f"cd {CACHE}; sha256sum *").splitlines()] == [
        line for line in lines if len(line) == 2
    ]


def test_an_archive_is_not_run_from_where_others_can_write(ansible: Ansible, machines: Fleet, conf: Path) -> None:
    machines["gpu001"].run("rm -rf /srv/open; mkdir -m 777 /srv/open")
    for directory in ("/srv/open", "/srv/open/nhc"):
        run = ansible("fleet-check", "--limit", "gpu001", "--tags", "check", nhc_cache_directory=directory)
        assert run.folded[0].startswith("UNKNOWN 1 node gpu001: UnsafeDirectory"), run.text


def test_what_keeps_nhc_from_judging_is_the_nodes_verdict(ansible: Ansible, tmp_path: Path) -> None:
    broken = tmp_path / "broken.conf"
    broken.write_text("nobody || check_hw_mem_free 1MB\n")
    run = ansible("fleet-check", "--limit", "gpu001", "--tags", "check", nhc_config_src=str(broken))
    assert run.status == 0, run.text
    assert run.folded[0].startswith("UNKNOWN 1 node gpu001: BadConfiguration"), run.folded
    assert "the configuration has no check for gpu001" in run.folded[0]
    run = ansible("fleet-check", "--limit", "gpu001", "--tags", "check", nhc_engine="installed")
    assert run.folded[0].startswith("UNKNOWN 1 node gpu001: NotInstalled"), run.folded
    # On a terminal, what could not run the module has said why; that ssh has closed the connection says nothing.
    odd = {"ansible_python_interpreter": "/bin/dd", "ansible_pipelining": "false"}
    run = ansible("fleet-check", "--limit", "gpu001", "--tags", "check", **odd)
    assert run.folded[0].startswith("UNKNOWN 1 node gpu001: ModuleFailed"), run.folded
    assert "dd: unrecognized operand" in run.folded[0]


def test_a_play_that_is_wrong_fails(ansible: Ansible, tmp_path: Path) -> None:
    run = ansible("fleet-check", "--limit", "gpu001", nhc_config_src="/nonesuch.conf", nhc_report_dir=str(tmp_path))
    assert run.status == 2
    assert "/nonesuch.conf: No such file or directory" in run.text


def test_what_is_wrong_on_this_side_is_said_once_before_any_connection(controller: Ansible, tmp_path: Path) -> None:
    """The hosts are not there: nobody tried to reach them."""
    broken = tmp_path / "broken.conf"
    broken.write_text("* check_hw_mem_free 1MB\n* || check_hw_mem_fre 1MB\n")
    hosts = "gpu001,gpu002,gpu003,"
    for playbook, variables, said in (
        ("fleet-check", {"nhc_config_src": str(broken)}, f"{broken}:1:1: no `||`"),
        (
            "fleet-check",
            {"nhc_config_src": os.path.relpath(broken, ROOT)},
            "/broken.conf:1:1: no `||`",
        ),
        ("fleet-check", {"nhc_config_src": "site/none.conf"}, "site/none.conf: no such file or directory in files/ of"),
        ("remediate", {"nhc_config_src": str(broken)}, "(did you mean check_hw_mem_free?)"),
        ("fleet-check", {"nhc_checks": ["TYPO"]}, "nhc_checks: TYPO: no check has this name"),
        ("fleet-check", {"nhc_checks": ["TYPO"]}, "send those with nhc_scripts_src"),
        ("fleet-check", {"nhc_archive": "/no/such.pyz"}, "/no/such.pyz: no such archive"),
    ):
        run = controller(playbook, "-i", hosts, nhc_report_dir=str(tmp_path / "none"), **variables)
        assert run.status == 2, run.text
        assert said in run.text
        assert run.text.count(said) <= 2, run.text  # ansible-core 2.19 shows an error and its task
        assert "UNREACHABLE" not in run.text
        assert "UNKNOWN" not in run.text
    assert not (tmp_path / "none").exists()


def test_a_configuration_that_every_node_refuses_fails_the_play(ansible: Ansible, tmp_path: Path) -> None:
    """It lies on the nodes, so only they can say."""
    run = ansible("fleet-check", "--limit", "gpu", nhc_config="/no/such/nhc.conf", nhc_report_dir=str(tmp_path))
    assert run.status == 2, run.text
    assert "every node refuses its configuration" in run.text
    assert "/no/such/nhc.conf" in run.folded[0]


def test_site_scripts_travel_and_unprivileged_users_can_check(
    ansible: Ansible, machines: Fleet, tmp_path: Path
) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "own.nhc").write_text('check_whoami() { [ "$(id -un)" = "$1" ] || die 1 "not $1"; }\n')
    (tmp_path / "own.conf").write_text("* || check_whoami daemon\n")
    run = ansible("fleet-check", "--limit", "gpu001", "--tags", "check", "-b", "--become-user", "daemon",
                  "--become-method", "su", nhc_config_src=str(tmp_path / "own.conf"),
                  nhc_scripts_src=[str(tmp_path / "site")], ansible_become_flags="-s /bin/sh",
                  ansible_shell_allow_world_readable_temp=True)  # fmt: skip
    assert run.folded[0] == "OK 1 node gpu001", run.text
    assert machines["gpu001"].run("stat -c '%a %U' /var/tmp/nhc-ansible-1") == "700 daemon\n"


def test_a_node_whose_disk_is_full_is_unknown(ansible: Ansible, machines: Fleet, tmp_path: Path) -> None:
    """Not even the module can be sent there."""
    full = machines["gpu003"]
    full.run("mkdir -p /opt/full && mount -t tmpfs -o size=8k full /opt/full")
    try:
        run = ansible(
            "fleet-check", "--limit", "gpu", ansible_remote_tmp="/opt/full/tmp", nhc_report_dir=str(tmp_path),
            env={"ANSIBLE_PIPELINING": "0"},
        )  # fmt: skip
    finally:
        full.run("umount /opt/full")
    assert run.status == 0, run.text
    assert any(line.startswith("UNKNOWN 1 node gpu003: DiskFull") for line in run.folded), run.folded
