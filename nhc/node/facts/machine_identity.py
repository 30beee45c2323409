"""Which machine this is, as labels of the node's report: a repair compares them before it acts.

    machine/uuid         DMI's product_uuid, in lower case; only root may read it
    machine/provider-id  the cloud's instance, in the form of Kubernetes' spec.providerID
    machine/address      the address by which the cloud knows it
    zone                 the cloud's zone, the blast radius of that name
    machine/bmc          the address of its management controller, by ipmitool; where there is no cloud, for root
    machine/model        DMI's product_name: the instance type on EC2
    machine/firmware     the firmware: DMI's bios_version, and fw_ver of the RDMA adapters
    machine/kernel       the kernel's release
    machine/driver       the loaded driver of its accelerators, with its version

The last four describe the machine: failure rates are counted by them (nhc.store.fleet_rates).

Sources: SMBIOS 3.7, 7.2.1 (System UUID); the cloud providers of Kubernetes (the forms of provider ids); the metadata
services' own documents (the paths). EC2's Nitro instances have their id as the board's asset tag.
"""

from __future__ import annotations

from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any, Dict, Tuple

DMI = "/sys/class/dmi/id"
RDMA = "/sys/class/infiniband"
AZURE_TAG = "7783-7084-3265-9085-8269-3286-77"
"""Chassis asset tag of every Azure virtual machine (what cloud-init goes by)."""

UUID, PROVIDER_ID, ADDRESS, ZONE = "machine/uuid", "machine/provider-id", "machine/address", "zone"
BMC = "machine/bmc"
MODEL, FIRMWARE, KERNEL, DRIVER = "machine/model", "machine/firmware", "machine/kernel", "machine/driver"
DRIVERS = ("nvidia", "amdgpu", "neuron", "habanalabs", "xe")
"""The accelerators' modules with a version of their own: modules of the kernel's tree have the kernel's version."""

STORE = "machine-identity"
ASK_AGAIN = 3600.0
"""Seconds after which a metadata service or controller that did not answer is asked again."""
BMC_LIMIT = 1.0
"""Seconds that the board's controller may take."""

_AZURE_IP = "network/interface/0/ipv4/ipAddress/0/privateIpAddress"
_PATHS: Dict[str, Tuple[Tuple[str, str], ...]] = {
    "aws": (
        ("id", "/latest/meta-data/instance-id"),
        ("zone", "/latest/meta-data/placement/availability-zone"),
        ("address", "/latest/meta-data/local-ipv4"),
    ),
    "gcp": (
        ("project", "/computeMetadata/v1/project/project-id"),
        ("zone", "/computeMetadata/v1/instance/zone"),
        ("name", "/computeMetadata/v1/instance/name"),
        ("address", "/computeMetadata/v1/instance/network-interfaces/0/ip"),
    ),
    "azure": (
        ("id", "/metadata/instance/compute/resourceId?api-version=2021-02-01&format=text"),
        ("zone", "/metadata/instance/compute/zone?api-version=2021-02-01&format=text"),
        ("address", f"/metadata/instance/{_AZURE_IP}?api-version=2021-02-01&format=text"),
    ),
    "oci": (
        ("id", "/opc/v2/instance/id"),
        ("zone", "/opc/v2/instance/availabilityDomain"),
        ("address", "/opc/v2/vnics/0/privateIp"),
    ),
}


def cloud_of(host: Host) -> str:
    """The cloud by the firmware's tables (aws, gcp, azure, oci), "" on bare metal and elsewhere."""
    vendor = host.read_or(f"{DMI}/sys_vendor")
    if vendor.startswith("Amazon EC2") or host.read_or(f"{DMI}/bios_vendor").startswith("Amazon EC2"):
        return "aws"
    if host.read_or(f"{DMI}/product_name").startswith("Google"):
        return "gcp"
    tag = host.read_or(f"{DMI}/chassis_asset_tag")
    if tag == AZURE_TAG:
        return "azure"
    return "oci" if tag.startswith("OracleCloud") else ""


def labels(host: Host, may_ask: bool = True) -> Dict[str, str]:
    """What is known of this machine. Its cloud's metadata service, or its controller, is asked once a boot, for at most
    a second.
    """
    values = {UUID: host.read_or(f"{DMI}/product_uuid").strip().lower(), **made_of(host)}
    cloud = cloud_of(host)
    if cloud:
        values.update(_in_cloud(cloud, _answers(host, cloud, may_ask), host.read_or(f"{DMI}/board_asset_tag").strip()))
    elif values[UUID]:  # only root reads it, and only root may ask the controller
        values.update(_answers(host, "", may_ask))
    return {name: value for name, value in values.items() if value}


def made_of(host: Host) -> Dict[str, str]:
    """The machine's model, firmware, kernel and driver, as files of the kernel say them; "" for what none says."""
    versions = ((name, host.read_or(f"/sys/module/{name}/version").strip()) for name in DRIVERS)
    adapters = {
        " ".join(host.read_or(f"{RDMA}/{name}/{leaf}").strip() for leaf in ("hca_type", "fw_ver")).strip()
        for name in host.names(RDMA)
    }
    firmware = [host.read_or(f"{DMI}/bios_version").strip(), *sorted(adapters)]
    return {
        MODEL: host.read_or(f"{DMI}/product_name").strip(),
        FIRMWARE: ", ".join(filter(None, firmware)),
        KERNEL: host.read_or("/proc/sys/kernel/osrelease").strip(),
        DRIVER: ", ".join(f"{name} {version}" for name, version in versions if version),
    }


def _in_cloud(cloud: str, answers: Dict[str, str], asset: str) -> Dict[str, str]:
    zone = answers.get("zone", "").rpartition("/")[2]  # Google's is projects/NUMBER/zones/ZONE
    provider, instance = "", answers.get("id", "")
    if cloud == "aws":
        instance = instance or (asset if asset.startswith("i-") else "")
        provider = f"aws:///{zone}/{instance}" if instance and zone else instance
    elif cloud == "gcp" and zone and answers.get("project") and answers.get("name"):
        provider = f"gce://{answers['project']}/{zone}/{answers['name']}"
    elif cloud == "azure" and instance:
        provider = f"azure://{instance}"
    elif cloud == "oci":
        provider = instance
    return {PROVIDER_ID: provider, ADDRESS: answers.get("address", ""), ZONE: zone}


def _answers(host: Host, cloud: str, may_ask: bool) -> Dict[str, str]:
    """What the metadata service said in this boot, or on bare metal the controller; {} if it does not answer."""
    boot, now = host.boot_id(), host.time()
    kept = host.memory.load(STORE)
    earlier = kept.get("said")
    if kept.get("boot") == boot and isinstance(earlier, dict):
        at = kept.get("at")
        if earlier or (isinstance(at, (int, float)) and 0 <= now - at < ASK_AGAIN):
            return {str(name): str(value) for name, value in earlier.items()}
    if not may_ask:
        return {}
    answer: object = {}
    try:
        if cloud:
            answer = host.system.ask("machine-identity", lambda: ask(cloud, host.environ.get("NHC_METADATA_URL", "")))
        else:
            answer = _controller(host)
    except OSError:
        pass
    answers = {str(name): str(value) for name, value in answer.items()} if isinstance(answer, dict) else {}

    def change(stored: Dict[str, Any]) -> None:
        stored.clear()
        stored.update(boot=boot, at=now, said=answers)

    host.memory.update(STORE, change)
    return answers


def _controller(host: Host) -> Dict[str, str]:
    """The address of the board's management controller. Raises OSError if there is no ipmitool."""
    from nhc.node.facts import bmc

    if bmc.device(host) is None:
        return {}
    try:
        address = bmc.parse_lan(bmc.run(host, "lan", "print", timeout=BMC_LIMIT))
    except bmc.BmcError:
        return {}
    return {BMC: address} if address else {}


def ask(cloud: str, base: str = "") -> Dict[str, str]:
    """The answers of the metadata service by name; what it does not answer is left out."""
    from nhc.node.facts import cloud_metadata

    told = cloud_metadata.answers(cloud, _PATHS[cloud], base, cloud_metadata.DEADLINE)
    answers = {name: body.strip() for name, (status, body) in told.items() if status == 200}
    return {name: answer for name, answer in answers.items() if answer.isprintable() and len(answer) <= 500}
