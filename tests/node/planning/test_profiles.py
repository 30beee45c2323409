"""Node types and their profiles: what is detected, what is asked, what a profile adds to a configuration."""

import threading
import time
from pathlib import Path

import pytest

from nhc.core.host import Host
from nhc.core.language import loader
from nhc.core.model import Verdict
from nhc.lab.testing.fake_host import FakeHost
from nhc.node.facts import cloud_metadata, machine_identity
from nhc.node.planning import node_type, profiles
from nhc.node.planning.profiles import NoProfile, Profile, resolve
from tests.support.http_server import Handler, serving
from tests.support.judge import judge
from tests.support.rdma import device

ROOT = Path(__file__).resolve().parents[3]
DMI = "/sys/class/dmi/id"
AZURE = {f"{DMI}/chassis_asset_tag": f"{machine_identity.AZURE_TAG}\n", f"{DMI}/sys_vendor": "Microsoft Corporation\n"}
GCP = {f"{DMI}/product_name": "Google Compute Engine\n"}
OCI = {f"{DMI}/chassis_asset_tag": "OracleCloud.com\n"}
EC2 = {f"{DMI}/sys_vendor": "Amazon EC2\n", f"{DMI}/product_name": "p5.48xlarge\n"}


def gpus(count, device="2330", vendor="10de", switches=0, pci_class="0x030200"):
    """Accelerators on the PCI bus, and NVSwitches."""
    files = {}
    index = []
    for number in range(count + switches):
        switch = number >= count
        base = f"/sys/bus/pci/devices/0000:{number + 16:02x}:00.0"
        kind = "22a3" if switch else device
        files[f"{base}/vendor"] = f"0x{vendor}\n"
        files[f"{base}/device"] = f"0x{kind}\n"
        files[f"{base}/class"] = "0x068000\n" if switch else f"{pci_class}\n"
        index.append(f"{number + 16:02x}00\t{vendor}{kind}\t10\n")
    return {**files, "/proc/bus/pci/devices": "".join(index)}


NOTHING = {"/proc/bus/pci/devices": "0000\t80861237\t0\n"}


def answering(files, kind):
    host = FakeHost(files)
    host.system.answers["instance-type"] = {"type": kind} if kind else {"problem": "169.254.169.254: timed out"}
    return host


@pytest.mark.parametrize(("cloud", "kind", "name"), [
    (AZURE, "Standard_ND96isr_H100_v5", "azure-nd96isr_h100_v5"),
    (AZURE, "Standard_HB176rs_v4", "azure-hb176rs_v4"),
    (GCP, "a3-ultragpu-8g", "gcp-a3-ultragpu-8g"),
    (OCI, "BM.GPU.H100.8", "oci-bm.gpu.h100.8"),
])  # fmt: skip
def test_a_clouds_machine_type_is_asked_for(cloud, kind, name):
    profile = resolve("auto", answering({**cloud, **device("mlx5_0"), **NOTHING}, kind), ask=True)

    assert profile is not None
    assert (profile.name, profile.note) == (name, "")
    assert "metadata service" in profile.why


def test_ec2_writes_the_type_into_its_firmware():
    host = FakeHost({**EC2, **gpus(8)})  # it would raise if it were asked

    assert resolve("auto", host, ask=True).name == "aws-p5.48xlarge"


@pytest.mark.parametrize(("product", "name"), [
    ("DGXA100 920-23687-2530-000", "dgx-a100"), ("DGXH100", "dgx-h100"), ("NVIDIA DGX H200", "dgx-h200"),
    ("DGXB200", "dgx-b200"),
])  # fmt: skip
def test_a_makers_system_is_named_by_its_firmware(product, name):
    host = FakeHost({f"{DMI}/product_name": product + "\n", **gpus(8)})

    assert resolve("auto", host, ask=True).name == name


@pytest.mark.parametrize(("bus", "name"), [
    (gpus(8, "20b2", switches=6), "hgx-a100-8"),
    (gpus(8), "hgx-h100-8"),
    (gpus(7), "hgx-h100-8"),
    (gpus(3, switches=4), "hgx-h100-8"),
    (gpus(8, "2335"), "hgx-h200-8"),
    (gpus(8, "2901"), "hgx-b200-8"),
    (gpus(8, "74a1", "1002", pci_class="0x120000"), "oam-mi300x-8"),
])  # fmt: skip
def test_bare_metal_is_known_by_its_accelerators(bus, name):
    assert resolve("auto", FakeHost({f"{DMI}/product_name": "SYS-821GE-TNHR\n", **bus}), ask=True).name == name


@pytest.mark.parametrize("bus", [gpus(4), gpus(1), gpus(8, "1eb8"), {**gpus(8), **gpus(9)}])
def test_what_no_profile_describes_says_so_once_and_is_judged_without(bus):
    host = FakeHost({f"{DMI}/product_name": "PowerEdge XE\n", **bus})

    first, second = resolve("auto", host, ask=True), resolve("auto", host, ask=True)

    assert first.name == ""
    assert "no profile for PowerEdge XE" in first.note
    assert (second.name, second.note) == ("", "")
    plan = loader.load_text("* || check_ib_state\n", "x", "n")
    assert profiles.add(plan, first, host, load) == plan


def test_an_unknown_cloud_type_falls_back_on_the_board():
    profile = resolve("auto", answering({**AZURE, **gpus(8)}, "Standard_ND512_X9000_v9"), ask=True)

    assert profile.name == "hgx-h100-8"
    assert "no profile for azure Standard_ND512_X9000_v9; hgx-h100-8 holds" in profile.note


def test_a_node_without_accelerators_is_not_looked_at():
    host = FakeHost({**AZURE, **NOTHING})  # asking would raise

    assert resolve("auto", host, ask=True) is None
    assert host.memory.load(node_type.STORE) == {}


def test_before_a_job_nothing_is_asked_and_what_is_known_serves():
    host = answering({**AZURE, **gpus(8)}, "Standard_ND96isr_H100_v5")

    assert resolve("auto", host, ask=False).name == "hgx-h100-8"
    assert resolve("auto", host, ask=True).name == "azure-nd96isr_h100_v5"
    host.system.answers.clear()
    assert resolve("auto", host, ask=False).name == "azure-nd96isr_h100_v5"
    assert resolve("auto", host, ask=True).name == "azure-nd96isr_h100_v5"

    host.write("/proc/sys/kernel/random/boot_id", "another\n")
    assert resolve("auto", host, ask=False).name == "hgx-h100-8"


def test_a_service_that_does_not_answer_is_not_asked_again_in_this_boot():
    host = answering({**AZURE, **gpus(8)}, "")
    asked = []
    host.system.ask = lambda *words: asked.append(words) or {"problem": "timed out"}

    for _ in range(3):
        assert resolve("auto", host, ask=True).name == "hgx-h100-8"
    assert len(asked) == 1


def test_a_damaged_memory_is_not_trusted():
    host = FakeHost({**EC2, **gpus(8)})
    host.memory.update(node_type.STORE, lambda stored: stored.update(boot="", names=["../../etc/passwd", 7]))

    assert resolve("auto", host).name == "aws-p5.48xlarge"


def test_names_files_and_none():
    host = FakeHost({"/etc/nhc/profiles/mine.conf": "* || check_ib_state\n", "/srv/x.conf": "# mine\n",
                     "/etc/nhc/profiles/dgx-a100.conf": "# ours\n"})  # fmt: skip

    assert resolve("none", host) is None
    assert resolve("/srv/x.conf", host) == Profile("x", "/srv/x.conf", "asked for")
    assert resolve("DGX-H100", host).path == ""
    assert profiles.text_of(resolve("mine", host), host) == "* || check_ib_state\n"
    assert profiles.text_of(resolve("dgx-a100", host), host) == "# ours\n"
    assert "mine" in profiles.names(host)
    with pytest.raises(NoProfile, match="did you mean dgx-h100"):
        resolve("dgx-h10", host)
    with pytest.raises(NoProfile, match="no such file"):
        resolve("/srv/y.conf", host)


def load(text, source):
    return loader.load_text(text, source, "n1")


def added(site, text, **kind):
    plan = loader.load_text(site, "nhc.conf", "n1")
    host = FakeHost({"/p.conf": text})
    return profiles.add(plan, Profile("p", "/p.conf"), host, load, **kind)


def test_a_sites_line_wins_over_the_profiles():
    plan = added(
        "* || check_efa_devices 16\nlogin || check_gpu_count 1\n", "* || check_efa_devices 32\n* || check_gpu_count 8\n"
    )

    assert [(item.argv, item.source) for item in plan.items] == [
        (("check_efa_devices", "16"), "nhc.conf:1"), (("check_gpu_count", "8"), "/p.conf:2")]  # fmt: skip


def test_a_prolog_runs_what_of_a_profile_looks_at_the_parts_themselves():
    """CUDA does not start on a GPU that has not joined its fabric: a job must not be the one that finds out."""
    plan = added("* || true\n", "* || check_gpu_fabric\n* || check_gpu_count 4\n* || check_nvlink_errors\n")
    assert [item.name for item in plan.items if not item.contexts] == ["true", "check_gpu_fabric", "check_gpu_count"]


def test_a_profile_wins_over_the_built_in_default():
    plan = added("* || check_gpu_ecc\n* || check_ps_zombies\n", "* || check_gpu_ecc 20 10\n", over=True)

    assert [item.argv for item in plan.items] == [("check_ps_zombies",), ("check_gpu_ecc", "20", "10")]


def test_a_profiles_variables_reach_every_check_and_the_sites_win():
    plan = added(
        "* || NHC_FLOOR_IB_WRITE=300\n* || check_ib_state\n",
        "* || NHC_FLOOR_IB_WRITE=380\n* || NHC_FLOOR_GPU_COPY=48\n* || check_ib_errors\n",
    )

    wanted = {"NHC_FLOOR_IB_WRITE": "300", "NHC_FLOOR_GPU_COPY": "48"}
    assert [dict(item.settings) for item in plan.items] == [wanted, wanted]
    assert plan.settings == wanted


def test_the_package_holds_every_profile_as_it_stands_in_conf():
    fragments = {path.stem: path.read_text() for path in (ROOT / "conf/profiles").glob("*.conf")}

    assert profiles.join(fragments) == (ROOT / "nhc/core/data/profiles.conf").read_text(), (
        "conf/profiles has changed: run python -m nhc.node.commands.profile")  # fmt: skip
    host = FakeHost()
    for name, text in fragments.items():
        assert profiles.text_of(Profile(name), host) == text


@pytest.mark.parametrize("path", sorted((ROOT / "conf/profiles").glob("*.conf")), ids=lambda path: path.stem)
def test_every_profile_is_valid_and_names_its_source(path):
    text = path.read_text()
    plan = loader.load_text(text, path.name, "n1", strict=True)
    names = [item.name for item in plan.items if item.name != "check_ib_ports"]

    assert "\n# Source: " in text
    assert plan.items, "no checks"
    assert all(item.kind == "built-in" for item in plan.items)
    assert len(names) == len(set(names)), "a check twice"
    assert path.stem == path.stem.lower()


FABRIC = sorted({
    line
    for path in (ROOT / "conf/profiles").glob("*.conf")
    for line in path.read_text().splitlines()
    if line.startswith(("* || check_ib_ports", "* || check_efa_devices -o"))
})  # fmt: skip


def fabric(line, missing=0):
    """A node with the ports that a profile's line asks for, but for some; and a management port beside them."""
    words = line.split()[2:]
    count, rate = int(words[-2 if words[-2].isdigit() else -1]), int(words[-1])
    layer = "Unknown" if words[0] == "check_efa_devices" else "InfiniBand" if "ib" in words else "Ethernet"
    ports = [("eth_mgmt", 25, "Ethernet"), *((f"mlx5_an{n}", rate, layer) for n in range(count - missing))]
    files = dict(NOTHING)
    for name, speed, kind in ports:
        base = f"/sys/class/infiniband/{name}/ports/1"
        files[f"{base}/state"], files[f"{base}/phys_state"] = "4: ACTIVE\n", "5: LinkUp\n"
        files[f"{base}/rate"], files[f"{base}/link_layer"] = f"{speed} Gb/sec\n", f"{kind}\n"
    return FakeHost(files)


@pytest.mark.parametrize("line", FABRIC)
def test_a_profiles_fabric_line_passes_a_whole_node_and_fails_one_with_a_port_missing(line):
    words = line.partition("|| ")[2]

    assert judge(fabric(line), words).verdict is Verdict.OK
    partial = judge(fabric(line, missing=1), words)
    none_left = " -o" in words and partial.verdict is Verdict.SKIP  # it had one, and may be made without
    assert partial.verdict is Verdict.CRIT or none_left


class Metadata(Handler):
    """The four services, as strict as the real ones about their headers."""

    def put(self):
        fits = self.path == "/latest/api/token" and "X-aws-ec2-metadata-token-ttl-seconds" in self.headers
        self.answer(200 if fits else 400, "secret-token" if fits else "")

    def get(self):
        wanted = {
            "/latest/meta-data/instance-type": ("X-aws-ec2-metadata-token", "secret-token", "trn2.48xlarge"),
            "/computeMetadata/v1/instance/machine-type":
                ("Metadata-Flavor", "Google", "projects/12/machineTypes/a4-highgpu-8g"),
            "/metadata/instance/compute/vmSize?api-version=2021-02-01&format=text":
                ("Metadata", "true", "Standard_ND96asr_v4"),
            "/opc/v2/instance/shape": ("Authorization", "Bearer Oracle", "BM.GPU4.8"),
        }.get(self.path)  # fmt: skip
        if wanted is None or self.headers.get(wanted[0]) != wanted[1]:
            self.answer(403)
        else:
            self.answer(200, wanted[2])


@pytest.fixture(scope="module")
def service():
    with serving(Metadata) as server:
        yield f"http://127.0.0.1:{server.server_port}"


@pytest.mark.parametrize(("cloud", "kind"), [
    ("aws", "trn2.48xlarge"), ("gcp", "a4-highgpu-8g"), ("azure", "Standard_ND96asr_v4"), ("oci", "BM.GPU4.8"),
])  # fmt: skip
def test_each_clouds_service_is_asked_as_it_wants(service, cloud, kind):
    assert cloud_metadata.instance_type(cloud, service) == kind


def test_the_type_from_a_service_to_a_profile(service, tmp_path):
    for path, content in {**AZURE, **gpus(8, "20b0")}.items():
        real = tmp_path / path.lstrip("/")
        real.parent.mkdir(parents=True, exist_ok=True)
        real.write_text(content)
    host = Host(str(tmp_path), environ={"NHC_METADATA_URL": service})

    assert resolve("auto", host, ask=True).name == "azure-nd96asr_v4"


@pytest.mark.thorough
def test_a_service_that_hangs_is_given_up_within_its_deadline():
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        begin = time.monotonic()
        with pytest.raises(cloud_metadata.NoHttpResponse):
            cloud_metadata.instance_type("aws", f"http://127.0.0.1:{silent.getsockname()[1]}", deadline=0.1)
        assert time.monotonic() - begin < 30, "it is silent for ever"


@pytest.mark.thorough
def test_a_service_that_trickles_is_given_up_within_its_deadline():
    import socket

    def trickle(listener):
        connection, _ = listener.accept()
        with connection:
            for _ in range(1500):  # half a minute
                try:
                    connection.sendall(b"x")
                except OSError:
                    return
                time.sleep(0.02)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=trickle, args=(listener,))
        thread.start()
        begin = time.monotonic()
        with pytest.raises(cloud_metadata.NoHttpResponse):
            cloud_metadata.instance_type("gcp", f"http://127.0.0.1:{listener.getsockname()[1]}", deadline=0.1)
        assert time.monotonic() - begin < 15
        thread.join()


@pytest.mark.parametrize(("base", "why"), [
    ("http://127.0.0.1:1", "refused"), ("ftp://x", "not an http"), ("http://127.0.0.1:x/", "not an http")])  # fmt: skip
def test_no_service(base, why):
    with pytest.raises(cloud_metadata.NoHttpResponse, match=why):
        cloud_metadata.instance_type("gcp", base)


def test_an_answer_that_is_no_type_is_not_believed(service):
    with pytest.raises(cloud_metadata.NoHttpResponse, match="403"):
        cloud_metadata.request("GET", f"{service}/opc/v2/instance/shape", {}, time.monotonic() + 1)
    assert "problem" in cloud_metadata.ask("azure", "http://127.0.0.1:1")
