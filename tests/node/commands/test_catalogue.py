"""`nhc list`, `nhc explain`, help and completion; and that every check is declared as its function takes it."""

import inspect
import json
import re

import pytest

from nhc.cli.click_app import application
from nhc.cli.command_table import COMMANDS
from nhc.cli.main import main
from nhc.core.check import find, find_all
from nhc.node.commands.catalogue import _help
from tests.support.run import nhc

CHECKS = find_all()

# The checks of LBNL NHC 1.4.3 that its documentation and scripts define.
LBNL = """
check_cmd_output check_cmd_status check_cmd_dmesg check_dmi_data_match check_dmi_raw_data_match
check_file_contents check_file_stat check_file_test check_fs_mount check_fs_mount_rw
check_fs_mount_ro check_fs_size check_fs_free check_fs_used check_fs_inodes check_fs_ifree
check_fs_iused check_hw_cpuinfo check_hw_physmem check_hw_swap check_hw_mem check_hw_physmem_free
check_hw_swap_free check_hw_mem_free check_hw_ib check_hw_gm check_hw_eth check_hw_mcelog
check_moab_sched check_moab_rm check_moab_torque check_net_ping check_net_socket check_nv_healthmon
check_nvsmi_healthmon check_ps_daemon check_ps_blacklist check_ps_service check_ps_cpu check_ps_mem
check_ps_physmem check_ps_time check_ps_unauth_users check_ps_userproc_lineage check_ps_kswapd
check_ps_loadavg
""".split()  # noqa: SIM905 (as it is written in a line)


def test_every_check_of_lbnl_nhc_is_here():
    assert len(LBNL) == 46
    assert not [name for name in LBNL if find(name) is None]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_a_check_takes_what_it_declares_and_is_found_by_name(check):
    assert find(check.name) is check
    parameters = inspect.signature(check.run).parameters
    names = [param.name for param in check.params]
    assert len(names) == len(set(names))
    accepted = set(parameters) - {next(iter(parameters))}
    if not any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()):
        assert set(names) <= accepted
        required = {name for name in accepted if parameters[name].default is inspect.Parameter.empty}
        assert required <= set(names)
    flags = [flag for param in check.params for flag in param.flags]
    assert len(flags) == len(set(flags))
    assert check.timeout > 0
    assert check.on_timeout in ("crit", "unknown")


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_a_check_explains_itself(check):
    assert check.summary.endswith(".")
    assert "Example:" in check.doc, f"{check.name} shows no line to copy"
    assert check.name in check.doc
    assert all(param.help for param in check.params)


@pytest.mark.thorough
def test_list_and_explain(tmp_path):
    listed = nhc("list")
    assert listed.returncode == 0
    assert len(listed.stdout.splitlines()) == len(CHECKS) >= 100
    assert "check_fs_free" in nhc("list", "--tag", "fs").stdout
    assert nhc("list", "--tag", "nothing").returncode == 2
    assert {entry["name"] for entry in json.loads(nhc("list", "--format", "json").stdout)} == {c.name for c in CHECKS}
    explained = nhc("explain", "check_fs_free").stdout
    assert "Deadline" in explained
    assert "Example:" in explained
    assert nhc("explain", "fs_free").stdout == explained
    wrong = nhc("explain", "check_fs_fre")
    assert wrong.returncode == 2
    assert "did you mean check_fs_free" in wrong.stderr


def leaves(table, prefix=()):
    for name, (first, second, *_example) in table.items():
        if isinstance(second, dict):
            yield from leaves(second, (*prefix, name))
        else:
            yield (*prefix, name), first


@pytest.mark.parametrize(
    ("words", "_where"), list(leaves(COMMANDS)), ids=lambda value: " ".join(value) if isinstance(value, tuple) else ""
)
def test_every_command_has_help(words, _where, capsys):
    """In this process: an interpreter each would take longer than everything else here. tests/faults start each."""
    status = main([*words, "--help"])
    said = capsys.readouterr()
    assert (status, said.err) == (0, "")
    assert "Usage: nhc " + " ".join(words) in said.out
    options = re.findall(r"^  (?:-\w, )?--", said.out, re.MULTILINE)
    headings = re.findall(r"^[A-Z][\w ,]+:$", said.out, re.MULTILINE)
    assert len(options) < 12 or len(headings) > 2, "too many options for one list"


@pytest.mark.thorough
def test_help_and_mistakes():
    assert "check" in nhc("--help").stdout
    done = nhc("chekc")
    assert done.returncode == 2
    assert "Did you mean 'check'?" in done.stderr
    assert nhc("--version").stdout.startswith("nhc ")


@pytest.mark.thorough
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell):
    done = nhc("completion", shell)
    assert done.returncode == 0
    assert "_NHC_COMPLETE" in done.stdout


@pytest.mark.thorough
def test_completion_completes_commands_options_and_checks():
    def complete(words, last):
        env = {
            "_NHC_COMPLETE": "bash_complete",
            "COMP_WORDS": " ".join(["nhc", *words, last]),
            "COMP_CWORD": str(len(words) + 1),
        }
        return nhc(env=env).stdout

    assert "plain,check" in complete([], "ch")
    assert "plain,--format" in complete(["check", "local"], "--for")
    assert "plain,check_fs_free" in complete(["explain"], "check_fs_f")


def test_the_application_lists_what_it_has():
    assert list(application.list_commands(None)) == list(COMMANDS)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("nhc check local --check check_fs_mount_", {"check_fs_mount_ro", "check_fs_mount_rw"}),
        ("nhc check local --tag gp", {"gpu"}),
    ],
)
def test_completion_completes_values(words, offered):
    env = {"_NHC_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
    done = nhc(env=env)
    assert offered <= {line.partition(",")[2] for line in done.stdout.splitlines()}


@pytest.mark.thorough
@pytest.mark.parametrize(("option", "kind"), [("-c", "file"), ("-o", "file"), ("--scripts", "dir")])
def test_completion_leaves_files_to_the_shell(option, kind):
    words = f"nhc check local {option} /etc/ho"
    done = nhc(env={"_NHC_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": "4"})
    assert done.stdout.startswith(f"{kind},")


def test_a_default_is_told_once_and_an_option_with_its_value():
    said = nhc("explain", "check_net_ping").stdout
    assert "[-t TTL]" in said
    assert "(default 2)\n" in said
    for check in CHECKS:
        for param in check.params:
            assert _help(param).count("(default ") <= 1
