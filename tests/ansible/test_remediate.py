"""playbooks/remediate.yml: real machines that really reboot, drained and resumed in a real Slurm."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any, Callable, Iterator

import pytest

from tests.ansible.conftest import NAMES, Ansible, Run
from tests.support.machines import Fleet, Machine
from tests.support.nvml import fake as nvml
from tests.support.nvml.fake import Nvml, pci_tree
from tests.support.require import need
from tests.support.slurm import Cluster, missing
from tests.support.waiting import until

HERE = Path(nvml.__file__).parent
Remediate = Callable[..., Run]
PENDING = "/run/reboot-required"  # on a file system that a reboot clears


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    need("slurmctld", not missing(), f"{', '.join(missing())} not found")
    made = Cluster(tmp_path_factory.mktemp("slurm"), NAMES)
    try:
        made.start()
        yield made
    finally:
        made.stop()


@pytest.fixture
def remediate(ansible: Ansible, machines: Fleet, cluster: Cluster, tmp_path: Path) -> Iterator[Remediate]:
    (tmp_path / "nhc.conf").write_text(
        "* || check_reboot_pending --critical\ngpu* || check_file_test -f /etc/hostname\n"
    )
    (tmp_path / "policy.toml").write_text("")

    def run(*arguments: str, **variables: Any) -> Run:
        usual = {
            "nhc_config_src": str(tmp_path / "nhc.conf"), "nhc_mark": "slurm",
            "nhc_profile": "none",  # one for GPUs would read the kernel log, where other tests write Xids
            "nhc_mark_ledger": str(tmp_path / "ledger"), "nhc_mark_policy": str(tmp_path / "policy.toml"),
            "nhc_reboot_command": "systemctl reboot",  # shutdown(8) asks logind, which these machines do without
            "nhc_reboot_delay": 1, "nhc_drain_interval": 1, "nhc_verify_retries": 1, "nhc_verify_delay": 1,
        }  # fmt: skip
        env = {"SLURM_CONF": str(cluster.conf)}
        return ansible("remediate", "--limit", "gpu", *arguments, env=env, **{**usual, **variables})

    for machine in machines.machines:
        machine.run(f"mv /etc/hostname.gone /etc/hostname 2>/dev/null; rm -f {PENDING}", check=False)
    cluster.reset()
    yield run
    for machine in machines.machines:
        machine.run(f"mv /etc/hostname.gone /etc/hostname 2>/dev/null; rm -f {PENDING}", check=False)


def state(cluster: Cluster, name: str) -> str:
    """The node's state; that its slurmd has not answered for a moment is not the matter here."""
    return cluster.state(name).rstrip("*")


def boot_id(machines: Fleet, name: str) -> str:
    return machines[name].run("cat /proc/sys/kernel/random/boot_id")


def test_without_confirmation_the_plan_is_shown_and_nothing_done(
    remediate: Remediate, machines: Fleet, cluster: Cluster
) -> None:
    machines["gpu002"].run(f"touch {PENDING}")
    before = boot_id(machines, "gpu002")
    for arguments, confirm in (((), False), (("--check",), True)):
        run = remediate(*arguments, nhc_confirm=confirm)
        assert run.status == 0, run.text
        assert "drain, reboot, verify, resume: CRIT check_reboot_pending" in run.text, run.text
        at = run.folded.index("plan: 1 node: gpu002: drain, reboot, verify, resume")
        assert run.folded[at + 1] == "dry run: nothing was changed; -e nhc_confirm=true carries the plan out"
    assert boot_id(machines, "gpu002") == before
    until(lambda: state(cluster, "gpu002") == "idle", what="gpu002 to be idle")


def test_a_sick_node_is_drained_rebooted_and_put_back(remediate: Remediate, machines: Fleet, cluster: Cluster) -> None:
    machines["gpu002"].run(f"touch {PENDING}")
    before = {name: boot_id(machines, name) for name in NAMES}
    job = cluster.submit("sleep 4", "--nodelist=gpu002")
    run = remediate(nhc_confirm=True)
    assert run.status == 0, run.text
    assert run.folded[-1] == "plan: 1 node: gpu002: drain, reboot, verify, resume"
    assert boot_id(machines, "gpu002") != before["gpu002"]
    assert {boot_id(machines, name) == before[name] for name in ("gpu001", "gpu003")} == {True}, (
        "the others are as they were"
    )
    assert cluster.job(job)["JobState"] == "COMPLETED", "its job had ended first"
    until(lambda: state(cluster, "gpu002") == "idle", what="gpu002 to be idle")
    assert "well again" in run.text


def test_a_node_that_got_well_while_it_was_drained_is_not_rebooted(
    remediate: Remediate, machines: Fleet, cluster: Cluster
) -> None:
    """As where two people repair the same nodes: whoever comes second would reboot a node that has work again."""
    machines["gpu002"].run(f"touch {PENDING}")
    before = boot_id(machines, "gpu002")
    cluster.submit(
        f"export SLURM_CONF={cluster.conf}; until scontrol show node gpu002 | grep -q DRAIN; do sleep 0.2; done;"
        f"ssh -F {machines.ssh_config} gpu002 rm {PENDING}",
        "--nodelist=gpu002",
    )
    run = remediate(nhc_confirm=True)
    assert run.status == 0, run.text
    assert run.folded[-1] == "plan: 1 node: gpu002: drain, reboot, verify, resume"
    assert boot_id(machines, "gpu002") == before
    until(lambda: state(cluster, "gpu002") == "idle", what="gpu002 to be idle")
    assert "well again" in run.text


NVIDIA_SMI = """#!/bin/sh
echo "$@" >>/srv/gpu/asked
[ "$1 $2 $3" = "--gpu-reset -i 2" ] && [ ! -e /srv/gpu/worn ] && echo "include h100.txt" >/srv/gpu/scenario.txt
"""


@pytest.fixture
def gpu(machines: Fleet, archive: Path, tmp_path: Path) -> Iterator[Machine]:
    """gpu002 with eight GPUs on its PCI bus, of which one asks for a reset, as NVML says."""
    machine = machines["gpu002"]
    library = Nvml(tmp_path)
    library.close()
    there = tmp_path / "srv"
    for path, content in pci_tree().items():
        file = there / "pci" / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    (there / "gpu").mkdir()
    for file in (library.library, HERE / "scenarios" / "h100.txt", archive):
        shutil.copy(file, there / "gpu")
    (there / "gpu" / "scenario.txt").write_text("include h100.txt\n2.field.230 u32 1\n")
    (there / "gpu" / "nvidia-smi").write_text(NVIDIA_SMI)
    (there / "gpu" / "nhc").write_text(
        "#!/bin/sh\nexport LD_LIBRARY_PATH=/srv/gpu NHC_FAKE_NVML=/srv/gpu/scenario.txt\n"
        'exec /usr/bin/python3 -I -S /srv/gpu/nhc.pyz "$@"\n'
    )
    tar = subprocess.run(["tar", "-c", "-C", str(there), "."], capture_output=True, check=True).stdout
    machine.run("mkdir -p /srv; tar -x -C /srv --no-same-owner", stdin=tar)
    machine.run(
        "install /srv/gpu/nhc /srv/gpu/nvidia-smi /usr/local/bin/;"
        "mount --bind /srv/pci/sys/bus/pci/devices /sys/bus/pci/devices;"
        "mount --bind /srv/pci/proc/bus/pci/devices /proc/bus/pci/devices"
    )
    yield machine
    machine.run(
        "umount /sys/bus/pci/devices /proc/bus/pci/devices; rm -rf /srv/* /usr/local/bin/nhc /usr/local/bin/nvidia-smi",
        check=False,
    )


def test_a_gpu_is_reset_and_only_if_that_does_not_help_is_the_node_rebooted(
    remediate: Remediate, machines: Fleet, cluster: Cluster, gpu: Machine, tmp_path: Path
) -> None:
    (tmp_path / "nhc.conf").write_text("gpu002 || check_gpu_lost\n* || check_fs_mount_rw -f /\n")
    before = boot_id(machines, "gpu002")
    run = remediate(nhc_confirm=True, nhc_engine="installed", nhc_hosts="gpu002")
    assert run.status == 0, run.text
    assert gpu.run("cat /srv/gpu/asked") == "--gpu-reset -i 2\n"
    assert boot_id(machines, "gpu002") == before, run.text
    until(lambda: state(cluster, "gpu002") == "idle", what="gpu002 to be idle")
    gpu.run("echo '2.field.230 u32 1' >>/srv/gpu/scenario.txt; touch /srv/gpu/worn")
    run = remediate(nhc_confirm=True, nhc_engine="installed", nhc_hosts="gpu002")
    assert boot_id(machines, "gpu002") != before
    assert gpu.run("cat /srv/gpu/asked") == "--gpu-reset -i 2\n" * 2
    # The GPUs in front of the machine's own bus went with the reboot, and their fault with them.
    assert run.status == 0, run.text
    until(lambda: state(cluster, "gpu002") == "idle", what="gpu002 to be idle")


def test_a_node_that_stays_sick_stays_drained_and_ends_the_run(
    remediate: Remediate, machines: Fleet, cluster: Cluster, tmp_path: Path
) -> None:
    # A reboot clears the mark on /run, but not this.
    for name in ("gpu001", "gpu003"):
        machines[name].run(f"touch {PENDING}; mv /etc/hostname /etc/hostname.gone")
    (tmp_path / "policy.toml").write_text('[bounds.fleet]\nout = "none"\n')
    before = boot_id(machines, "gpu003")
    run = remediate(nhc_confirm=True)
    assert run.status == 2, run.text
    assert "still CRIT after the repair, and stays drained" in run.text
    assert state(cluster, "gpu001").startswith("drain")
    assert cluster.reason("gpu001").startswith("NHC: ")
    assert boot_id(machines, "gpu003") == before, "the next batch was not begun"
    until(lambda: state(cluster, "gpu003") == "idle", what="gpu003 to be idle")


def test_a_node_that_an_operator_drained_is_left_alone(remediate: Remediate, machines: Fleet, cluster: Cluster) -> None:
    machines["gpu002"].run(f"touch {PENDING}")
    cluster.update("gpu002", State="DRAIN", Reason="memory on order")
    before = boot_id(machines, "gpu002")
    run = remediate(nhc_confirm=True)
    assert run.status == 0, run.text
    assert "left alone" in run.text
    assert boot_id(machines, "gpu002") == before
    assert cluster.reason("gpu002") == "memory on order"


def test_too_many_sick_nodes_are_not_repaired(remediate: Remediate, machines: Fleet, cluster: Cluster) -> None:
    for name in NAMES:
        machines[name].run(f"touch {PENDING}")
    run = remediate(nhc_confirm=True, nhc_max_repairs=2)
    assert run.status == 2, run.text
    assert "3 nodes are sick, and nhc_max_repairs is 2" in run.text
    assert {state(cluster, name) for name in NAMES} == {"idle"}


def test_the_fleet_check_marks_by_the_policy(
    ansible: Ansible, remediate: Remediate, machines: Fleet, cluster: Cluster, tmp_path: Path
) -> None:
    machines["gpu003"].run(f"touch {PENDING}")

    def check(*arguments: str, **variables: Any) -> Run:
        return ansible(
            "fleet-check", *arguments, env={"SLURM_CONF": str(cluster.conf)}, nhc_mark="slurm",
            nhc_config_src=str(tmp_path / "nhc.conf"), nhc_report_dir=str(tmp_path / "report"),
            nhc_mark_ledger=str(tmp_path / "ledger"), nhc_mark_policy=str(tmp_path / "policy.toml"), **variables,
        )  # fmt: skip

    run = check()
    assert run.status == 0, run.text
    assert "slurm: would mark  gpu003" in run.text
    until(lambda: state(cluster, "gpu003") == "idle", what="gpu003 to be idle")
    assert check("--check", nhc_mark_apply=True).status == 0
    until(lambda: state(cluster, "gpu003") == "idle", what="gpu003 to be idle")
    assert check(nhc_mark_apply=True).status == 0
    assert cluster.reason("gpu003").startswith("NHC: [node] check_reboot_pending")
    machines["gpu003"].run(f"rm {PENDING}")
    assert check(nhc_mark_apply=True).status == 0
    until(lambda: state(cluster, "gpu003") == "idle", what="gpu003 to be idle")
