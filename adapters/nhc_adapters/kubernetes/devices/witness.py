"""Compares a DRA driver's taints on its own devices with nhc's findings on them.

NVIDIA's driver taints a device on an NVML event and leaves the taint until its plugin restarts. So its taints are
findings of a second source. If both report a fault, they agree. If one calls fatal what the other calls an
application's error, neither alone decides. A taint without a finding of nhc is shown. Source:
kubernetes-sigs/dra-driver-nvidia-gpu, cmd/gpu-kubelet-plugin (device_health.go).
"""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Optional, Sequence

from nhc.core.model import CheckResult, DeviceId, Scope, warn
from nhc.marks.policy.devices import DeviceFault
from nhc.node.kernlog.match import FATAL
from nhc.node.kernlog.xid import find_xid
from nhc_adapters.kubernetes.devices.slices import DriverTaint, PhysicalDevice, agree

XID, LOST, UNMONITORED = "gpu.nvidia.com/xid", "gpu.nvidia.com/gpu-lost", "gpu.nvidia.com/unmonitored"
STOPS_WORK = ("NoSchedule", "NoExecute")
CHECK = "kubernetes_device_taint"
"""The check of what a driver says of its devices."""


class Testimony(NamedTuple):
    """What a driver's taints mean for one device. `against` says how they contradict nhc's own finding, or, where nhc
    has none, nhc's catalogue; "" if they do not.
    """

    device: DeviceId
    text: str
    against: str = ""
    agreed: bool = False

    def result(self) -> CheckResult:
        """As a result of the node's report: worth a person's attention, and never what takes it out."""
        reason = "DriverTaintContradicted" if self.against else "DriverTaint"
        if self.agreed:
            text = f"{self.device}: its driver agrees: {self.text}"
        else:
            text = f"{self.device}: its driver says {self.text}; {self.against or 'nhc has found nothing on it'}"
        return CheckResult(CHECK, warn(reason, text)._replace(scope=Scope.DEVICE, device=self.device))


def hear(devices: Sequence[PhysicalDevice], faults: Sequence[DeviceFault]) -> List[Testimony]:
    """What the drivers of a node say of its devices, one a device with taints of theirs."""
    testimonies = []
    for physical in devices:
        known = taints_of(physical)
        if not known:
            continue
        ours = next((fault for fault in faults if agree(fault.device, physical.device)), None)
        testimonies.append(_weigh(physical.device, known, ours))
    return testimonies


def taints_of(device: PhysicalDevice) -> List[DriverTaint]:
    """The taints of a device that are a witness's."""
    taints = dict.fromkeys(taint for name in device.names for taint in name.taints)
    return [taint for taint in taints if taint.key in (XID, LOST, UNMONITORED)]


def taint_texts(taints: Sequence[DriverTaint]) -> str:
    """Taints for a person."""
    return ", ".join(f"{taint.key}{f'={taint.value}' if taint.value else ''} ({taint.effect})" for taint in taints)


def _weigh(device: DeviceId, taints: Sequence[DriverTaint], ours: Optional[DeviceFault]) -> Testimony:
    text = taint_texts(taints)
    fatal = [taint for taint in taints if taint.effect in STOPS_WORK]
    if ours is not None:
        return Testimony(device, text, "" if fatal else _milder(taints, ours), agreed=bool(fatal))
    return Testimony(device, text, _harsher(fatal))


def _milder(taints: Sequence[DriverTaint], ours: DeviceFault) -> str:
    """How a driver that calls an Xid the application's error contradicts a fault of ours based on this Xid alone."""
    against, reasons = disputed(taints), {result.outcome.reason for result in ours.results}
    return against[min(reasons)] if reasons and reasons <= against.keys() else ""


def disputed(taints: Sequence[DriverTaint]) -> Dict[str, str]:
    """The reasons of faults that a driver says are an application's, each with what nhc says."""
    if any(taint.effect in STOPS_WORK for taint in taints):
        return {}
    return {f"Xid{taint.value}": f"nhc says that Xid {taint.value} is fatal" for taint in taints if taint.key == XID}


def _harsher(fatal: Sequence[DriverTaint]) -> str:
    """How a driver that calls an Xid fatal contradicts nhc's catalogue."""
    if not fatal or any(taint.key != XID for taint in fatal):
        return ""
    rows = [(taint.value, find_xid(int(taint.value))) for taint in fatal if taint.value.isdecimal()]
    milder = [code for code, row in rows if row is not None and row.severity != FATAL]
    return f"nhc says that Xid {milder[0]} is no fault of the device" if len(milder) == len(fatal) else ""


def contradicted(testimonies: Sequence[Testimony], device: DeviceId) -> str:
    """Why nothing is done about a fault of ours on a device: its driver says otherwise; "" if it does not."""
    for testimony in testimonies:
        if testimony.against and agree(testimony.device, device):
            return f"its driver says {testimony.text}; {testimony.against}"
    return ""
