"""`nhc genconf`: what it writes holds on the node that wrote it, and gives nothing away."""

import json
import re

import pytest

from nhc.core.data.reader import read
from nhc.core.host import Filesystem
from nhc.core.language import loader
from nhc.core.language.shell_words import quote
from nhc.core.model import Verdict, crit, ok
from nhc.lab.testing.fake_host import FakeHost, Symlink
from nhc.node.commands.genconf import render
from nhc.node.planning import generate
from tests.support.judge import judge
from tests.support.nvml.fake import pci_tree
from tests.support.rdma import device, eight
from tests.support.run import nhc

CPU = "processor\t: 0\nphysical id\t: 0\ncore id\t\t: 0\n\nprocessor\t: 1\nphysical id\t: 0\ncore id\t\t: 1\n"
MEMORY = (
    "MemTotal: 16000000 kB\nMemFree: 8000000 kB\nBuffers: 1000 kB\nCached: 1000 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n"
)
BASE = {"/proc/cpuinfo": CPU, "/proc/meminfo": MEMORY, "/proc/uptime": "100000.00 1.00\n"}
DMIDECODE = """\
# dmidecode 3.3
Handle 0x0000, DMI type 0, 24 bytes
BIOS Information
\tVendor: American Megatrends
\tVersion: 1.4a

Handle 0x0001, DMI type 1, 27 bytes
System Information
\tProduct Name: SYS-821GE-TNHR
\tVersion: 0123456789
\tSerial Number: S1234567

Handle 0x0004, DMI type 4, 48 bytes
Processor Information
\tMax Speed: 4000 MHz
"""
# What varies from one minute to the next on a machine that runs tests.
VARYING = {"check_ps_loadavg", "check_kmsg", "check_oom_kills"}


def lines_of(host, title, **kind):
    return next((group.lines for group in generate.groups(host, **kind) if group.title == title), ())


@pytest.mark.thorough
def test_every_line_holds_on_the_node_that_wrote_it(tmp_path):
    conf = tmp_path / "nhc.conf"
    wrote = nhc("genconf", "-c", conf, "-H", "*", state=tmp_path / "state")
    assert (wrote.returncode, wrote.stdout) == (0, ""), wrote.stderr
    valid = nhc("config", "check", conf)
    assert valid.returncode == 0, valid.stderr

    ran = nhc("check", "local", "-a", "-c", conf, "--profile", "none", "--format", "json", state=tmp_path / "state")
    results = [result for result in json.loads(ran.stdout)["results"] if result["check"] not in VARYING]

    assert len(results) > 10
    assert [result for result in results if result["verdict"] != "OK"] == []
    assert {"check_hw_cpuinfo", "check_hw_physmem", "check_fs_mount_rw"} <= {result["check"] for result in results}


@pytest.mark.thorough
def test_it_writes_where_lbnl_nhc_does_and_says_so(tmp_path):
    done = nhc("genconf", "-D", tmp_path, "-n", "nhc-cron", "-H", "{gpu[01-04]}", state=tmp_path / "state")

    assert done.returncode == 0
    assert "checks" in done.stderr
    text = (tmp_path / "nhc-cron.conf.auto").read_text()
    assert "\n{gpu[01-04]} || check_hw_cpuinfo " in text


@pytest.mark.thorough
@pytest.mark.parametrize(("words", "said"), [
    (("-H", "/gpu(/"), "-H: "), (("-H", "a || b"), "-H: "), (("-b", "("), "-b: "),
    (("-c", "/no/such/dir/x"), "/no/such/dir/x: "),
])  # fmt: skip
def test_bad_options_are_told_in_one_line(words, said, tmp_path):
    done = nhc("genconf", *words, state=tmp_path)

    assert done.returncode == 2
    assert said in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_a_fabric_node():
    clean = {f"/sys/class/infiniband/mlx5_{n}/ports/1/counters/symbol_error": "0\n" for n in (*range(8), 9)}
    roce = device("mlx5_9", rate=100, layer="Ethernet", netdev="ens1np0", gids=2)
    host = FakeHost({**BASE, **clean, **eight(), **roce,
                     "/sys/class/net/ens1np0/mtu": "9000\n", "/sys/class/net/ens1np0/carrier": "1\n"})  # fmt: skip

    lines = lines_of(host, "Fabric")

    assert "check_ib_ports -l ib 8 400" in lines
    assert "check_ib_ports -l roce 1 100" in lines
    assert "check_hw_ib 400 mlx5_3:1" in lines
    assert "check_roce_ports -m 9000 mlx5_9:1" in lines
    for line in lines:
        host.forget()
        assert judge(host, line).verdict in (Verdict.OK, Verdict.SKIP), line


def test_mounts():
    table = """\
/dev/sda1 / ext4 rw,relatime 0 0
/dev/sda2 /boot xfs ro,relatime 0 0
server:/export/my\\040data /data nfs4 rw,vers=4.2 0 0
s3fs://user:SECRET@host /s3 fuse.s3fs rw 0 0
/etc/auto /home autofs rw 0 0
server:/home/bob /home/bob nfs4 rw 0 0
overlay /var/lib/docker/overlay2/x/merged overlay rw 0 0
/dev/loop3 /snap/core/1 squashfs ro 0 0
tmpfs /run tmpfs rw 0 0
/dev/sdb1 /odd*name ext4 rw 0 0
cvmfs2 /cvmfs/atlas.cern.ch fuse ro,user_id=0,allow_other 0 0
pool /new hyperfs2031 rw 0 0
me@there: /me fuse.sshfs rw,user_id=1001 0 0
"""
    places = ("/boot", "/data", "/s3", "/odd*name", "/home/bob", "/cvmfs/atlas.cern.ch", "/new", "/me")
    host = FakeHost({**BASE, "/proc/mounts": table, **{f"{p}/": "" for p in places}})
    for path in ("/", "/boot", "/odd*name"):
        host.system.filesystems[path] = Filesystem(100 << 30, 50 << 30, 50 << 30, 1000, 900, 900, False)

    lines = lines_of(host, "File systems")

    assert "check_fs_mount_rw -t ext4 -s /dev/sda1 -f /" in lines
    assert "check_fs_mount_ro -t xfs -s /dev/sda2 -f /boot" in lines
    assert "check_fs_mount_rw -t nfs4 -s 'server:/export/my data' -f /data" in lines
    assert {f"check_mount_responds {at}" for at in ("/data", "/cvmfs/atlas.cern.ch", "/new")} <= set(lines)
    assert not [line for line in lines if line.endswith(" /me")]
    assert "check_fs_used / 95%" in lines
    assert not [line for line in lines if "SECRET" in line or "/home" in line or "docker" in line or "/snap" in line]
    assert not [line for line in lines if line.startswith("check_fs_used /data")]
    for line in lines:
        if line.startswith("check_fs_mount"):
            assert judge(host, line).verdict is Verdict.OK, line


def test_a_file_system_that_is_nearly_full_gets_a_higher_limit():
    host = FakeHost({**BASE, "/proc/mounts": "/dev/sda1 / ext4 rw 0 0\n"})
    host.system.filesystems["/"] = Filesystem(100 << 30, 6 << 30, 6 << 30, 0, 0, 0, False)

    assert "check_fs_used / 98%" in lines_of(host, "File systems")
    assert judge(host, "check_fs_used / 98%").verdict is Verdict.OK


def test_firmware_without_what_names_this_machine():
    host = FakeHost(BASE, {"dmidecode": DMIDECODE})

    lines = lines_of(host, "Firmware")

    assert "check_dmi_data_match -t 0 'BIOS Information: Version: 1.4a'" in lines
    assert "check_dmi_data_match -t 4 'Processor Information: Max Speed: 4000 MHz'" in lines
    assert "Serial" not in " ".join(lines)
    assert all(judge(host, line).verdict is Verdict.OK for line in lines)
    assert lines_of(host, "Firmware", dmi_match="Serial") == ()


def test_daemons_with_their_users():
    host = FakeHost(BASE)
    for pid, line in (
        (10, "/usr/sbin/sshd\0-D\0"),
        (11, "sshd: bob [priv]\0"),
        (12, "/usr/sbin/munged\0"),
        (13, "/opt/x --password=SECRET\0"),
    ):
        host.write(f"/proc/{pid}/cmdline", line)

    lines = lines_of(host, "Daemons and processes")

    assert [line for line in lines if line.startswith("check_ps_service")] == [
        "check_ps_service -u root sshd", "check_ps_service -u root munged"]  # fmt: skip
    assert "SECRET" not in " ".join(lines)


def test_a_link_of_an_ethernet_port():
    base = "/sys/class/net/eno1"
    host = FakeHost({**BASE, f"{base}/type": "1\n", f"{base}/flags": "0x1003\n", f"{base}/carrier": "1\n",
                     f"{base}/speed": "25000\n", f"{base}/device/driver": Symlink("../mlx5_core")})  # fmt: skip

    assert {"check_eth_carrier eno1", "check_eth_speed -m 25000 eno1"} <= set(lines_of(host, "Ethernet"))


@pytest.mark.parametrize("node", [{}, BASE, {**BASE, **pci_tree()}])
def test_what_the_built_in_configuration_asks_is_asked_by_what_takes_its_place(node):
    """Also on a node that can hardly be read."""
    asked = [line.split()[0] for group in generate.groups(FakeHost(node)) for line in group.lines]
    default = re.findall(r"^\* \|\| (\w+)", read("default.conf"), re.MULTILINE)
    assert len(default) > 50
    assert set(default) <= set(asked)


def test_dcgm_is_asked_where_it_is_installed():
    def asked(**kind):
        host = FakeHost({**BASE, **pci_tree()}, **kind)
        host.system.answers["nvml"] = {"devices": []}
        return lines_of(host, "Accelerators")

    assert "check_dcgm_health" in asked(commands={"dcgmi health -g 0 -c -j": "{}"})
    assert "check_gpu_lost" in asked()
    assert "check_dcgm_health" not in asked()


def test_what_does_not_hold_is_a_comment_with_its_reason():
    group = generate.LineGroup(
        "Memory", ("About it.",), ("check_hw_swap 0 0", "check_hw_mem_free 1k", "check_edac_errors")
    )
    held = {"check_hw_swap 0 0": ok(), "check_hw_mem_free 1k": crit("X", "only 3\nkB")}

    text = render([group], held, "*", FakeHost())

    assert (
        "\n### Memory\n# About it.\n* || check_hw_swap 0 0\n# Not now: * || check_hw_mem_free 1k\n#   only 3 kB\n"
        in text
    )
    assert "check_edac_errors" not in text
    assert [item.argv for item in loader.load_text(text, "x", "n", strict=True).items] == [("check_hw_swap", "0", "0")]


@pytest.mark.parametrize("word", ["plain", "two words", "it's", "$HOME", "a;b", "`x`", "*", "#x", ""])
def test_words_are_read_back_as_they_were(word):
    plan = loader.load_text(f"* || check_cmd_status echo {quote([word])}\n", "x", "n", strict=True)

    assert plan.items[0].argv[-1] == word


@pytest.mark.thorough
def test_a_file_that_is_there_is_never_overwritten(tmp_path):
    conf = tmp_path / "nhc.conf"
    conf.write_text("# months of work\n")
    done = nhc("genconf", "-c", conf, state=tmp_path / "state")
    assert (done.returncode, done.stdout) == (2, "")
    assert conf.read_text() == "# months of work\n"
    assert f"{conf} is there already and was left as it is" in done.stderr
    assert "--force" in done.stderr
    auto = tmp_path / "nhc.conf.auto"
    auto.write_text("# also\n")
    assert nhc("genconf", "-D", tmp_path, state=tmp_path / "state").returncode == 2
    assert auto.read_text() == "# also\n"
    assert nhc("genconf", "-c", conf, "--force", state=tmp_path / "state").returncode == 0
    assert "Written by nhc genconf" in conf.read_text()


@pytest.mark.thorough
def test_it_makes_the_default_folder_and_not_one_that_somebody_named(tmp_path):
    done = nhc("genconf", "-D", tmp_path / "etc" / "nhc", state=tmp_path / "state")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "etc" / "nhc" / "nhc.conf.auto").is_file()

    done = nhc("genconf", "-c", tmp_path / "typo" / "nhc.conf", state=tmp_path / "state")
    assert done.returncode == 2
    assert not (tmp_path / "typo").exists()
