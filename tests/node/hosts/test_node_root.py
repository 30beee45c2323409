"""A node judged from a container: what is the node's is seen as the node sees it, whatever the container has."""

from __future__ import annotations

import itertools
import json
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Iterator, Mapping

import pytest

from nhc.core.host import BadRoot
from nhc.node.hosts import container
from nhc.node.hosts.container import NodeHost, NodeSystem
from tests.support import pod
from tests.support.pod import Node, possible
from tests.support.run import nhc
from tests.support.waiting import until

HOST = {"path": "/", "mountPath": "/host", "readOnly": True, "propagation": "rslave"}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with pod.node(tmp_path_factory.mktemp("node-root"), "simnode") as made:
        made.sh(f"mkdir {made.scratch}/early && mount -t tmpfs -o size=1m early {made.scratch}/early")
        yield made


class Judged:
    """A report of `nhc check local` in a container of the node."""

    def __init__(self, report: Mapping[str, Any], took: float) -> None:
        self.host = report["host"]
        self.results = report["results"]
        self.took = took

    def verdict(self, check: str) -> str:
        return str(self.of(check)["verdict"])

    def of(self, check: str) -> Mapping[str, Any]:
        (found,) = [result for result in self.results if result["check"] == check]
        return dict(found)


@pytest.fixture
def judge(node: Node, tmp_path: Path) -> Any:
    def run(checks: str, *options: str, files: Mapping[str, str] | None = None, root: str = "/host",
            mounts: Any = (HOST,)) -> Judged:  # fmt: skip
        words = ["nhc", "check", "local", "--root", root, "--all", "--format", "json", "--profile", "none", *options]
        began = time.monotonic()
        made = {"/etc/nhc/nhc.conf": checks, **(files or {})}
        with pod.container(node, tmp_path / "pod", words, env={"NHC_STATE_DIR": "/tmp/state"}, files=made,
                           host_paths=mounts, wait=True) as container:  # fmt: skip
            said = container.said()
        assert "{" in said, said
        return Judged(json.loads(said[said.index("{") :]), time.monotonic() - began)

    return run


@pytest.mark.slow
def test_mounts_are_the_node_s_also_those_made_later(node: Node, judge: Any) -> None:
    late = node.scratch / "late"
    node.sh(f"mkdir {late} && mount -t tmpfs -o size=1m late {late} && head -c 900k /dev/zero > {late}/full")

    found = judge(f"* || check_fs_mount_rw -t tmpfs {node.scratch}/early\n* || check_fs_free {late} 50%\n"
                  "* || check_fs_mount_rw /\n")  # fmt: skip

    assert found.verdict("check_fs_free") == "CRIT"
    assert [result["verdict"] for result in found.results if result["check"] == "check_fs_mount_rw"] == ["OK", "OK"]


@pytest.mark.thorough
def test_a_file_system_that_only_the_container_has_is_no_file_system_of_the_node(judge: Any) -> None:
    found = judge("* || check_fs_mount /host\n* || check_file_test -e /etc/only-in-the-container\n")
    assert found.verdict("check_fs_mount") == "CRIT"
    assert found.verdict("check_file_test") == "CRIT"


@pytest.mark.thorough
def test_a_mount_made_after_the_container_needs_no_propagation(node: Node, tmp_path: Path) -> None:
    new = node.scratch / "new"
    checks = f"* || check_file_test -e {new}/there\n* || check_fs_mount {new}\n"
    private = {**HOST, "propagation": "rprivate"}
    with pod.container(node, tmp_path / "pod", ["sh", "-c", "echo up; exec sleep 60"], env={"NHC_ROOT": "/host"},
                       files={"/etc/nhc/nhc.conf": checks}, host_paths=[private]) as container:  # fmt: skip
        until(lambda: "up" in container.said())
        node.sh(f"mkdir {new} && mount -t tmpfs new {new} && touch {new}/there")
        done = container.exec("nhc", "check", "local", "--all", "--profile", "none")
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.thorough
def test_a_mount_that_the_node_made_read_only_is(node: Node, judge: Any) -> None:
    node.sh(f"mkdir {node.scratch}/ro && mount -t tmpfs ro {node.scratch}/ro && mount -o remount,ro {node.scratch}/ro")
    assert judge(f"* || check_fs_mount_rw {node.scratch}/ro\n").verdict("check_fs_mount_rw") == "CRIT"


@pytest.mark.thorough
def test_names_are_the_node_s(node: Node, judge: Any) -> None:
    node.sh(f"touch {node.scratch}/owned && chown 4711 {node.scratch}/owned")

    found = judge(f"simnode || check_file_stat -u 4711 -U simuser {node.scratch}/owned\n")

    assert found.host == "simnode"
    assert found.verdict("check_file_stat") == "OK"


@pytest.mark.thorough
def test_processes_are_the_node_s(judge: Any) -> None:
    found = judge("* || check_ps_service -f 'sleep 3600' sleep\n* || check_ps_daemon no-such-daemon\n")
    assert found.verdict("check_ps_daemon") == "CRIT"


@pytest.mark.thorough
def test_links_are_followed_as_the_node_means_them(node: Node, judge: Any) -> None:
    """An absolute link read from the container would lead to a file of the container's."""
    node.sh(f"echo of-the-node > {node.scratch}/target; ln -s {node.scratch}/target {node.scratch}/link; "
            f"ln -s /etc/only-in-the-container {node.scratch}/astray")  # fmt: skip

    found = judge(f"* || check_file_contents {node.scratch}/link of-the-node\n"
                  f"* || check_file_test -e {node.scratch}/astray\n")  # fmt: skip

    assert found.verdict("check_file_contents") == "OK"
    assert found.verdict("check_file_test") == "CRIT"


@pytest.mark.thorough
def test_lines_of_shell_and_programs_run_on_the_node(node: Node, judge: Any) -> None:
    node.sh(f"echo node > {node.scratch}/marker; printf '#!/bin/sh\\nfindmnt -no OPTIONS / | grep -q rw\\n' > "
            f"{node.scratch}/program; chmod +x {node.scratch}/program")  # fmt: skip

    found = judge(f'* || [[ "$(<{node.scratch}/marker)" == node && "$HOSTNAME" == simnode ]]\n'
                  f"* || {node.scratch}/program\n* || /image/nhc --version\n")  # fmt: skip

    assert found.verdict("shell") == "OK"
    assert found.verdict("program") == "OK", found.results
    assert found.of("nhc")["reason"] == "CommandMissing"


@pytest.mark.thorough
def test_a_site_s_script_that_lies_in_the_container_alone_runs_on_the_node(node: Node, judge: Any) -> None:
    node.sh(f"echo scripted > {node.scratch}/seen")
    script = f'check_site() {{ [[ "$(<{node.scratch}/seen)" == "$1" ]] || {{ die 1 "not seen"; return 1; }}; }}\n'
    other = "check_other() { check_fs_mount /; }\n"

    found = judge("* || check_site scripted\n* || check_site other\n* || check_other\n", "--scripts", "/etc/site",
                  files={"/etc/site/a.nhc": script, "/etc/site/b.nhc": other})  # fmt: skip

    assert [result["verdict"] for result in found.results] == ["OK", "CRIT", "OK"]


@pytest.mark.slow
def test_a_hung_command_on_the_node_is_ended_with_all_that_it_started(node: Node, judge: Any) -> None:
    found = judge("* |timeout 1s| sh -c 'sleep 4242 & sleep 4242'\n* |timeout 1s| { sleep 4243 | cat; }\n"
                  "* || check_fs_mount /\n")  # fmt: skip

    assert [result["reason"] for result in found.results] == ["CheckTimeout", "CheckTimeout", ""]
    assert found.took < 60
    until(lambda: node.run("pgrep", "-f", "sleep 424[23]", check=False).stdout == "")


@pytest.mark.thorough
def test_a_command_that_cannot_be_executed_is_unknown(node: Node, judge: Any) -> None:
    node.sh(f"echo '#!/no/such/interpreter' > {node.scratch}/broken; chmod +x {node.scratch}/broken")
    found = judge(f"* || {node.scratch}/broken\n")
    assert found.of("broken")["reason"] == "CommandUnusable"


@pytest.mark.thorough
def test_the_container_s_libraries_stay_out_of_the_node_s_programs(node: Node, tmp_path: Path) -> None:
    checks = f'* || [[ -z "$LD_LIBRARY_PATH$PYTHONPATH" ]]\n* || sh -c \'[ -z "$LD_LIBRARY_PATH" ]\' {node.name}\n'
    with pod.container(node, tmp_path / "pod", ["nhc", "check", "local", "--all", "--profile", "none"],
                       env={"NHC_ROOT": "/host", "NHC_STATE_DIR": "/tmp/state", "LD_LIBRARY_PATH": "/image/lib"},
                       files={"/etc/nhc/nhc.conf": checks}, host_paths=[HOST], wait=True) as container:  # fmt: skip
        assert container.process.returncode == 0, container.said()
        assert "simnode: OK: 2 " in container.said()


def test_where_the_node_s_namespace_cannot_be_entered_commands_run_below_its_root(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for an agent without CAP_SYS_PTRACE: by chroot, with the files of the directory."""
    monkeypatch.setattr("nhc.node.hosts.container._same", lambda one, other: False)
    host = NodeHost("/proc/self/root")
    assert host.root == "/proc/self/root"
    done = host.run(["sh", "-c", "echo $0 $(id -u)"])
    assert done.stdout.split()[1] == str(os.getuid())
    assert host.system._enter[0].endswith("chroot")


@pytest.mark.thorough
def test_a_path_leads_where_it_would_with_that_root(tmp_path: Path) -> None:
    """Every path of four names, against the answer of a process that has this root."""
    possible()
    (tmp_path / "a/a").mkdir(parents=True)
    (tmp_path / "file").write_text("")
    for link, target in (("abs", "/a"), ("up", "../a/.."), ("far", "/a/../../../a/abs"), ("a/abs", "/up/file"),
                         ("a/up", "..")):  # fmt: skip
        (tmp_path / link).symlink_to(target)
    names = ("a", "file", "abs", "up", "far", "..", "none")
    paths = ["/" + "/".join(parts) for size in range(5) for parts in itertools.product(names, repeat=size)]
    script = "import os,sys; os.chroot(sys.argv[1]); os.chdir('/')\nfor line in sys.stdin.read().split(): "
    script += "print(os.path.realpath(line))"
    said = subprocess.run([sys.executable, "-c", script, str(tmp_path)], input="\n".join(paths), check=True,
                          capture_output=True, text=True).stdout  # fmt: skip

    assert [container.resolve(str(tmp_path), path) for path in paths] == said.split()


def test_links_that_go_round_end_and_lead_nowhere_else(tmp_path: Path) -> None:
    (tmp_path / "one").symlink_to("/two")
    (tmp_path / "two").symlink_to("/one")
    assert container.resolve(str(tmp_path), "/one/etc/passwd") == "/one/etc/passwd"
    assert container.resolve(str(tmp_path), "/one", follow=False) == "/one"


@pytest.mark.thorough
def test_a_directory_that_is_no_node_s_root_is_refused(tmp_path: Path) -> None:
    for root in (tmp_path, tmp_path / "missing"):
        with pytest.raises(BadRoot, match=str(root)):
            NodeSystem(str(root))
        done = nhc("check", "local", "--root", root, state=tmp_path / "state")
        assert (done.returncode, done.stdout) == (2, "")
        assert f"root {root}: " in done.stderr
    done = nhc("check", "local", state=tmp_path / "state", env={"NHC_ROOT": str(tmp_path)})
    assert done.returncode == 2
    assert "NHC_ROOT" in done.stderr


@pytest.mark.thorough
def test_a_report_of_another_root_is_no_fresh_answer(tmp_path: Path) -> None:
    """`--max-age` must not answer for the node what was found of the container."""
    config = tmp_path / "nhc.conf"
    config.write_text("* || check_fs_mount /\n")
    words = ("check", "local", "-c", config, "--profile", "none", "--max-age", "1h")
    assert "old" not in nhc(*words, state=tmp_path / "state").stdout
    assert "s old" in nhc(*words, state=tmp_path / "state").stdout
    assert "s old" not in nhc(*words, "--root", "/proc/self/root", state=tmp_path / "state").stdout


CHECKS = """
* || check_fs_mount_rw /
* || check_fs_mount -t proc /proc
* || check_fs_size / 1k
* || check_fs_free / 1%
* || check_fs_ifree / 1k
* || check_mount_readonly
* || check_file_test -e -r /etc/passwd
* || check_file_stat -U simuser {owned}
* || check_hw_physmem 1k 1PB
* || check_hw_mem_free 1k
* || check_hw_swap 0
* || check_hw_eth lo
* || check_ps_loadavg 9999 9999 9999
* || check_ps_service -u root sleep
* || check_ps_daemon nothing-of-that-name
* || check_ps_zombies
* || check_ps_dstate
* || check_net_ping 127.0.0.1
* || check_net_socket -p tcp -l 127.0.0.1:1
* || check_eth_carrier lo
* || check_kernel_modules no_such_module
* || check_kernel_version 1.0
* || check_kernel_cmdline no-such-word
* || check_systemd_failed
* || check_systemd_units sshd.service
* || check_packages_installed bash
* || check_clock_sync
* || check_cmd_output -m simnode hostname
* || check_cmd_status -r 0 getent passwd simuser
* || check_dmi_data_match "BIOS Information: Vendor: x"
* || check_dns_resolve localhost
* || check_limits_inodes
* || check_reboot_pending
"""


@pytest.mark.thorough
def test_a_container_judges_as_the_node_itself_does(node: Node, judge: Any, tmp_path: Path) -> None:
    node.sh(f"touch {node.scratch}/mine && chown 4711 {node.scratch}/mine")
    checks = CHECKS.format(owned=f"{node.scratch}/mine")
    config = node.scratch / "nhc.conf"
    config.write_text(checks)
    python = [sys.executable, "-m", "nhc", "check", "local", "-c", str(config), "--all", "-f", "json"]
    paths = f"PYTHONPATH={pod.REPOSITORY}:{pod.REPOSITORY / 'adapters'}"
    there = node.run("env", paths, "NHC_STATE_DIR=/run/there", *python, "--profile", "none", check=False)

    seen = judge(checks).results

    def told(results: Any) -> list[tuple[str, ...]]:
        """Without what differs from one moment to the next."""
        number = re.compile(r"[0-9.]+([kMGT]?B\b)?")
        return [(r["line"], r["verdict"], r["reason"], r["target"], number.sub("N", r["message"])) for r in results]

    expected = told(json.loads(there.stdout)["results"])
    assert told(seen) == expected
    assert len(expected) >= 25
    assert {verdict for _line, verdict, *_rest in expected} >= {"OK", "CRIT"}


@pytest.mark.thorough
def test_a_container_that_shares_little_with_its_node_still_judges_the_node(node: Node, tmp_path: Path) -> None:
    """Host name, sockets and processes are the node's without hostNetwork, too."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        checks = f"simnode || check_net_socket -p tcp -l 127.0.0.1:{listener.getsockname()[1]}\n* || check_hw_eth lo\n"
        apart = ["unshare", "--uts", "--net", "--ipc", "sh", "-c", "hostname pod-1; exec nhc check local --all"]
        with pod.container(node, tmp_path / "pod", apart, env={"NHC_ROOT": "/host", "NHC_STATE_DIR": "/tmp/state"},
                           files={"/etc/nhc/nhc.conf": checks}, host_paths=[HOST], wait=True) as container:  # fmt: skip
            assert container.process.returncode == 0, container.said()
            assert "simnode: OK: 2 " in container.said()


@pytest.mark.thorough
def test_without_the_right_to_enter_the_node_commands_run_below_its_root(node: Node, tmp_path: Path) -> None:
    node.sh(f"echo seen > {node.scratch}/below; mkdir {node.scratch}/small; "
            f"mount -t tmpfs -o size=1m small {node.scratch}/small")  # fmt: skip
    checks = (
        f"simnode || [[ $(<{node.scratch}/below) == seen && ! -e /image ]]\n"
        f"* || sh -c 'test -e {node.scratch}/below && ! test -e /etc/only-in-the-container'\n"
        f"* || check_fs_mount_rw {node.scratch}/small\n* || check_fs_mount_rw /\n"
    )
    less = ["setpriv", "--bounding-set", "-sys_ptrace", "nhc", "check", "local", "--all"]
    with pod.container(node, tmp_path / "pod", less, env={"NHC_ROOT": "/host", "NHC_STATE_DIR": "/tmp/state"},
                       files={"/etc/nhc/nhc.conf": checks}, host_paths=[HOST], wait=True) as container:  # fmt: skip
        assert container.process.returncode == 0, container.said()
        assert "simnode: OK: 4 " in container.said()


@pytest.mark.thorough
def test_without_that_right_and_without_the_node_s_network_its_name_is_its_file_s(node: Node, tmp_path: Path) -> None:
    script = "hostname pod-1; exec setpriv --bounding-set -sys_ptrace nhc check local --all"
    apart = ["unshare", "--uts", "--net", "sh", "-c", script]
    checks = "* || check_fs_mount /\n"
    with pod.container(node, tmp_path / "pod", apart, env={"NHC_ROOT": "/host", "NHC_STATE_DIR": "/tmp/state"},
                       files={"/etc/nhc/nhc.conf": checks}, host_paths=[HOST], wait=True) as container:  # fmt: skip
        assert "simnode.by-file: OK: 1 " in container.said()
