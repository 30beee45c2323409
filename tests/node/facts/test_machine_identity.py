"""Which machine a node is: what repairers compare, from the firmware and the cloud's own metadata service."""

import pytest

from nhc.core.memory import RunMemory
from nhc.lab.testing.fake_host import FakeHost
from nhc.node.facts import machine_identity as identity
from nhc.node.facts.bmc import parse_lan
from tests.support.http_server import Reply, answering, serving

DMI = identity.DMI
BOOT = {"/proc/sys/kernel/random/boot_id": "b1\n"}
UUID = "EC2E1916-9099-7CAF-FD21-012345ABCDEF"
AZURE_ID = "/subscriptions/s1/resourceGroups/rg/providers/Microsoft.Compute/virtualMachines/gpu-1"

CLOUDS = {
    "aws": (
        {"sys_vendor": "Amazon EC2\n", "board_asset_tag": "i-0123456789abcdef0\n"},
        {
            "/latest/api/token": "token",
            "/latest/meta-data/instance-id": "i-0123456789abcdef0",
            "/latest/meta-data/placement/availability-zone": "us-east-1a",
            "/latest/meta-data/local-ipv4": "10.0.0.7",
        },
        {"machine/provider-id": "aws:///us-east-1a/i-0123456789abcdef0", "machine/address": "10.0.0.7",
         "zone": "us-east-1a"},
    ),
    "gcp": (
        {"product_name": "Google Compute Engine\n"},
        {
            "/computeMetadata/v1/project/project-id": "team",
            "/computeMetadata/v1/instance/zone": "projects/123/zones/us-central1-a",
            "/computeMetadata/v1/instance/name": "gpu-1",
            "/computeMetadata/v1/instance/network-interfaces/0/ip": "10.1.0.7",
        },
        {"machine/provider-id": "gce://team/us-central1-a/gpu-1", "machine/address": "10.1.0.7",
         "zone": "us-central1-a"},
    ),
    "azure": (
        {"chassis_asset_tag": identity.AZURE_TAG},
        {
            "/metadata/instance/compute/resourceId": AZURE_ID,
            "/metadata/instance/compute/zone": "2",
            "/metadata/instance/network/interface/0/ipv4/ipAddress/0/privateIpAddress": "10.2.0.7",
        },
        {"machine/provider-id": f"azure://{AZURE_ID}", "machine/address": "10.2.0.7", "zone": "2"},
    ),
    "oci": (
        {"chassis_asset_tag": "OracleCloud.com\n"},
        {
            "/opc/v2/instance/id": "ocid1.instance.oc1.phx.abc",
            "/opc/v2/instance/availabilityDomain": "Uocm:PHX-AD-1",
            "/opc/v2/vnics/0/privateIp": "10.3.0.7",
        },
        {"machine/provider-id": "ocid1.instance.oc1.phx.abc", "machine/address": "10.3.0.7", "zone": "Uocm:PHX-AD-1"},
    ),
}  # fmt: skip


def node(files):
    shown = {f"{DMI}/{name}": text for name, text in files.items()}
    host = FakeHost({**BOOT, f"{DMI}/product_uuid": f"{UUID}\n", **shown})
    host.remember_in(RunMemory())
    return host


def known(host, **options):
    """The labels that say which machine it is, without what it is made of."""
    made_of = (identity.MODEL, identity.FIRMWARE, identity.KERNEL, identity.DRIVER)
    return {name: value for name, value in identity.labels(host, **options).items() if name not in made_of}


def test_labels_say_what_the_machine_is_made_of():
    host = node({"product_name": "DGXH100\n", "bios_version": "1.06.07\n"})
    assert identity.labels(host) == {
        "machine/uuid": UUID.lower(),
        identity.MODEL: "DGXH100",
        identity.FIRMWARE: "1.06.07",
    }
    for path, text in {
        "/sys/module/nvidia/version": "580.82.07\n", "/proc/sys/kernel/osrelease": "6.8.0-79-generic\n",
        f"{identity.RDMA}/mlx5_0/fw_ver": "28.43.2026\n", f"{identity.RDMA}/mlx5_0/hca_type": "MT4129\n",
        f"{identity.RDMA}/mlx5_1/fw_ver": "28.43.2026\n", f"{identity.RDMA}/mlx5_1/hca_type": "MT4129\n",
        f"{identity.RDMA}/mlx5_2/fw_ver": "24.40.1000\n",
    }.items():  # fmt: skip
        host.write(path, text)
    labels = identity.labels(host)
    assert labels[identity.FIRMWARE] == "1.06.07, 24.40.1000, MT4129 28.43.2026"
    assert (labels[identity.KERNEL], labels[identity.DRIVER]) == ("6.8.0-79-generic", "nvidia 580.82.07")


def test_bare_metal_is_known_by_its_uuid_alone():
    assert known(node({"sys_vendor": "Supermicro\n"})) == {"machine/uuid": UUID.lower()}
    assert identity.labels(FakeHost(BOOT)) == {}  # product_uuid is root's to read


@pytest.mark.parametrize("cloud", list(CLOUDS))
def test_a_clouds_metadata_service_says_which_instance_this_is(cloud):
    files, answers, wanted = CLOUDS[cloud]

    def reply(request):
        found = answers.get(request.path.partition("?")[0])
        return Reply(200, found.encode()) if found else Reply(404)

    with serving(answering(reply)) as server:
        said = identity.ask(cloud, f"http://127.0.0.1:{server.server_port}")
    host = node(files)
    host.system.answers["machine-identity"] = said
    assert known(host) == {"machine/uuid": UUID.lower(), **wanted}


def test_it_is_asked_once_a_boot_and_again_after_an_hour_without_an_answer():
    files, _answers, wanted = CLOUDS["gcp"]
    host = node(files)
    host.system.answers["machine-identity"] = {}
    assert known(host) == {"machine/uuid": UUID.lower()}
    host.system.answers["machine-identity"] = {"project": "team", "zone": "x/us-central1-a", "name": "gpu-1"}
    assert "zone" not in identity.labels(host)
    host.system.now += 3601
    assert identity.labels(host)["machine/provider-id"] == wanted["machine/provider-id"]
    del host.system.answers["machine-identity"]
    assert identity.labels(host)["zone"] == "us-central1-a"
    host.write("/proc/sys/kernel/random/boot_id", "b2\n")
    assert "zone" not in identity.labels(host, may_ask=False)


def test_nitro_shows_the_instance_without_the_service():
    host = node(CLOUDS["aws"][0])
    host.system.answers["machine-identity"] = {}
    assert identity.labels(host)["machine/provider-id"] == "i-0123456789abcdef0"


LAN = """\
Set in Progress         : Set Complete
IP Address Source       : DHCP Address
IP Address              : 10.9.0.7
Subnet Mask             : 255.255.0.0
Default Gateway IP      : 10.9.0.1
"""


def test_bare_metal_says_where_its_controller_is_and_asks_it_once_a_boot():
    host = node({"sys_vendor": "Supermicro\n"})
    host.write("/dev/ipmi0", "")
    host.system.commands["ipmitool", "lan", "print"] = LAN
    assert identity.labels(host, may_ask=False) == {"machine/uuid": UUID.lower()}
    assert identity.labels(host) == {"machine/uuid": UUID.lower(), "machine/bmc": "10.9.0.7"}
    del host.system.commands["ipmitool", "lan", "print"]
    assert identity.labels(host)["machine/bmc"] == "10.9.0.7"
    host.write("/proc/sys/kernel/random/boot_id", "b2\n")
    assert identity.labels(host) == {"machine/uuid": UUID.lower()}  # no ipmitool


@pytest.mark.parametrize("said", ["IP Address              : 0.0.0.0\n", "IP Address Source       : Static\n", ""])
def test_a_controller_without_an_address_has_none(said):
    assert parse_lan(said) == ""
