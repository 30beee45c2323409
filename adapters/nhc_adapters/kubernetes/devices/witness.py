"""What a DRA driver says of its own devices, in the taints that it publishes, beside what nhc says of them.

NVIDIA's driver taints a device on an NVML event and leaves the taint until its plugin restarts. So its taints are
another witness's findings: where both speak of a fault they agree, where one calls fatal what the other calls an
application's error neither alone decides, and a taint of which nhc knows nothing is shown.
Source: kubernetes-sigs/dra-driver-nvidia-gpu, cmd/gpu-kubelet-plugin (device_health.go).
"""

from __future__ import annotations

import re
from typing import List, NamedTuple, Optional, Sequence

from nhc.kernlog.match import FATAL
from nhc.kernlog.xid import find_xid
from nhc.model import CheckResult, DeviceId, Scope, warn
from nhc.policy.devices import DeviceFault
from nhc_adapters.kubernetes.devices.slices import DriverTaint, PhysicalDevice, agree

XID, LOST, UNMONITORED = "gpu.nvidia.com/xid", "gpu.nvidia.com/gpu-lost", "gpu.nvidia.com/unmonitored"
STOPS_WORK = ("NoSchedule", "NoExecute")
_XID = re.compile(r"Xid(\d+)")

CHECK = "kubernetes_device_taint"
"""The check of what a driver says of its devices."""


class Testimony(NamedTuple):
    """What a driver's taints come to for one device. `against` says how they contradict nhc's own finding, or, where
    nhc has none, nhc's catalogue; "" where they do not.
    """

    device: DeviceId
    said: str
    fatal: bool
    against: str = ""
    agreed: bool = False

    def result(self) -> CheckResult:
        """As a result of the node's report: worth a person's attention, and never what takes it out."""
        reason = "DriverTaintContradicted" if self.against else "DriverTaint"
        if self.agreed:
            text = f"{self.device}: its driver agrees: {self.said}"
        else:
            text = f"{self.device}: its driver says {self.said}; {self.against or 'nhc has found nothing on it'}"
        return CheckResult(CHECK, warn(reason, text)._replace(scope=Scope.DEVICE, device=self.device))


def hear(devices: Sequence[PhysicalDevice], faults: Sequence[DeviceFault]) -> List[Testimony]:
    """What the drivers of a node say of its devices, one a device with taints of theirs."""
    found = []
    for one in devices:
        taints = list(dict.fromkeys(taint for name in one.names for taint in name.taints))
        known = [taint for taint in taints if taint.key in (XID, LOST, UNMONITORED)]
        if not known:
            continue
        ours = next((fault for fault in faults if agree(fault.device, one.device)), None)
        found.append(_weigh(one.device, known, ours))
    return found


def _weigh(device: DeviceId, taints: Sequence[DriverTaint], ours: Optional[DeviceFault]) -> Testimony:
    said = ", ".join(f"{one.key}{f'={one.value}' if one.value else ''} ({one.effect})" for one in taints)
    fatal = [one for one in taints if one.effect in STOPS_WORK]
    if ours is not None:
        against = "" if fatal else _milder(taints, ours)
        return Testimony(device, said, bool(fatal), against, agreed=bool(fatal))
    return Testimony(device, said, bool(fatal), _harsher(fatal))


def _milder(taints: Sequence[DriverTaint], ours: DeviceFault) -> str:
    """How a driver that calls an Xid the application's contradicts a fault of ours that stands on this Xid alone."""
    codes = {code[1] for one in ours.results for code in [_XID.fullmatch(one.outcome.reason)] if code}
    if len(codes) != len({one.outcome.reason for one in ours.results}):
        return ""  # it stands on something else besides
    milder = codes & {one.value for one in taints if one.key == XID}
    return f"nhc says that Xid {min(milder)} is fatal" if codes and codes == milder else ""


def _harsher(fatal: Sequence[DriverTaint]) -> str:
    """How a driver that calls an Xid fatal contradicts nhc's catalogue."""
    if not fatal or any(one.key != XID for one in fatal):
        return ""
    rows = [(one.value, find_xid(int(one.value))) for one in fatal if one.value.isdecimal()]
    milder = [code for code, row in rows if row is not None and row.severity != FATAL]
    return f"nhc says that Xid {milder[0]} is no fault of the device" if len(milder) == len(fatal) else ""


def contradicted(testimonies: Sequence[Testimony], device: DeviceId) -> str:
    """Why nothing is done about a fault of ours on a device: its driver says otherwise; "" where it does not."""
    for one in testimonies:
        if one.against and agree(one.device, device):
            return f"its driver says {one.said}; {one.against}"
    return ""
