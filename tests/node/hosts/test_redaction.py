"""A recording that can be attached to a bug report: nobody and nothing is known by it, and it replays as it was."""

import json
import re
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nhc.core.render import json as wire
from nhc.node.commands.record import differences, judge
from nhc.node.hosts.redaction import Redactor, redact_recording, secrets

NODES = sorted(path.parent for path in (Path(__file__).parents[2] / "nodes").glob("*/machine.json"))


def redactor(*texts, host="gpu017.hpc.example.edu", users=(), path=""):
    made = Redactor()
    made.learn_host(host)
    for number, user in enumerate(users):
        made.learn_user(user, 1000 + number)
    for text in texts:
        made.learn(path, text)
    made.learned()
    return made


@pytest.mark.thorough
@pytest.mark.parametrize("node", NODES, ids=lambda path: path.name)
def test_a_redacted_machine_gives_the_same_verdicts(node, tmp_path):
    kept = shutil.copytree(node, tmp_path / "kept")
    pairs, machine = json.loads((kept / "answers.json").read_text()), json.loads((kept / "machine.json").read_text())
    name = machine["name"]
    lines = (kept / "nhc.conf").read_text().splitlines()
    pairs = redact_recording(str(kept), pairs, machine, lines)
    (kept / "answers.json").write_text(json.dumps(pairs))
    (kept / "machine.json").write_text(json.dumps(machine))
    (kept / "nhc.conf").write_text("\n".join(lines) + "\n")
    assert differences(wire.parse((node / "report.json").read_text()), judge(str(kept))) == []
    if any(char.isdigit() for char in name):
        assert not [path for path in kept.rglob("*") if path.is_file() and path.name != "report.json"
                    and re.search(rf"\b{name}\b", path.read_text(errors="replace"))]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("eth0: link/ether 3c:ec:ef:12:34:56 brd ff:ff:ff:ff:ff:ff",
         "eth0: link/ether 02:00:00:00:00:01 brd ff:ff:ff:ff:ff:ff"),
        ("from 172.16.5.9 and 172.16.5.10 to 127.0.0.1", "from 10.0.1.9 and 10.0.1.10 to 127.0.0.1"),
        ("driver 550.54.15, vbios 96.00.74.00.01, 0000:5b:00.0, at 12:34:56", None),
        ("addr fe80::3eec:efff:fe12:3456 and ::1", "addr fe80::200:0:0:1 and ::1"),
        ("GPU-8ab4d1a5-54cf-9ad5-8d42-5d4e8a3f1c22", "GPU-00000000-0000-4000-8000-000000000001"),
        ("gpu017 in gpu017.hpc.example.edu, not gpu0171", "node1 in node1.site1.example, not gpu0171"),
        ("usb 1-1: SerialNumber: 4C530001", "usb 1-1: SerialNumber: S0000001"),
        ("Serial Number: Not Specified", None),
        ("0002:c903:0012:3456 0x0002c90300123456 0xdeadbeefdeadbeef",
         "0200:0000:0000:0001 0x0200000000000001 0xdeadbeefdeadbeef"),
    ],
)  # fmt: skip
def test_what_names_a_machine_gets_another_name(text, shown):
    assert redactor(text).text(text) == (text if shown is None else shown)


@pytest.mark.parametrize(
    "text",
    ["curl -H 'Authorization: Bearer abcdefHUSH'", "git clone https://me:HUSH@host/x", "--password HUSH", "TOKEN=HUSH",
     "key AKIAHUSHHUSHHUSHHUSH", "jwt eyJHUSHHUSHHUSH.HUSH.HUSH"],
)  # fmt: skip
def test_secrets_are_cut_out(text):
    assert "HUSH" in text
    assert "HUSH" not in secrets(text)


def test_a_user_is_somebody_else_everywhere_and_a_service_is_not():
    made = redactor(users=["alice"])
    made.learn_user("munge", 1500)
    made.learn_user("postfix", 101)
    made.learned()
    assert (
        made.text("alice: /home/alice/run.py malice postfix munge") == "user1: /home/user1/run.py malice postfix munge"
    )


def test_an_environment_keeps_its_names_alone():
    assert redactor().text("HOME=/home/x\0KEY=y\0", "/proc/7/environ") == "HOME=[redacted]\0KEY=[redacted]\0"


def test_the_kernels_own_addresses_agree_with_the_written_ones():
    made = redactor()
    tcp = "  0: 090510AC:1F90 00000000:0000 0A\n"  # 172.16.5.9:8080
    assert made.text("172.16.5.9") == "10.0.1.9"
    assert made.text(tcp, "/proc/net/tcp") == tcp.replace("090510AC", "0901000A")
    assert made.text(tcp, "/proc/interrupts") == tcp


def test_bytes_that_are_no_text_keep_their_length():
    made = redactor("SN123456", path="/sys/class/dmi/id/board_serial")
    assert made.text("\x01\x02SN123456\0172.16.5.9") == "\x01\x02S0000001\0172.16.5.9"


@given(st.text(max_size=60))
def test_any_text_comes_back_and_what_was_redacted_stays(text):
    made = redactor(text)
    assert made.text(text) == made.text(text)


def test_a_server_is_renamed_where_it_is_mounted_from_and_where_it_is_asked_for():
    made = redactor("nfs-a7:/export /home nfs4 rw 0 0\n", path="/proc/mounts")
    assert made.text("* || check_net_ping nfs-a7") == "* || check_net_ping node2"
