"""What an InfiniBand port says it could do: PortInfo, as smpquery(8) of infiniband-diags prints it.

sysfs tells the rate a port runs at, not the one it is capable of.
"""

from __future__ import annotations

import re

from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING
from nhc.node.facts.infiniband import Port

if TYPE_CHECKING:
    from typing import Dict, Optional

# Data rate of one lane in Gb/s by the signalling rate that smpquery prints (IBA volume 1, PortInfo): from FDR
# on 64b/66b coding, which the field's names for rates leave out (a 4X EDR link is "100 Gb/sec").
LANE = {"2.5": 2.5, "5.0": 5.0, "10.0": 10.0, "14.0625": 14.0, "25.78125": 25.0, "53.125": 50.0, "106.25": 100.0,
        "212.5": 200.0}  # fmt: skip

_LINE = re.compile(r"(\w+):\.+(.*)")
_WIDTH = re.compile(r"(\d+)X")
_SPEED = re.compile(r"(\d+(?:\.\d+)?) Gbps")


def parse_portinfo(text: str) -> Optional[float]:
    """The best data rate in Gb/s that a port supports; None where the text does not tell."""
    fields: Dict[str, str] = {}
    for line in text.splitlines():
        match = _LINE.match(line.strip())
        if match:
            fields[match[1]] = match[2]
    widths = [int(value) for value in _WIDTH.findall(fields.get("LinkWidthSupported", ""))]
    speeds = [
        LANE[value]
        for name in ("LinkSpeedSupported", "LinkSpeedExtSupported", "LinkSpeedExtSupported2")
        for value in _SPEED.findall(fields.get(name, ""))
        if value in LANE
    ]
    if not widths or not speeds:
        return None
    # Adapters list the widths that they can be split into: 4X is the most that one port of a node uses.
    return min(max(widths), 4) * max(speeds)


def best_rate(host: Host, port: Port) -> Optional[float]:
    """The best rate that an InfiniBand port supports, None where nothing tells."""
    if port.link_layer != "InfiniBand" or not host.which("smpquery"):
        return None
    try:
        ended = host.run(["smpquery", "-C", port.device, "-P", str(port.port), "-D", "portinfo", "0"], timeout=3)
    except OSError:
        return None
    return parse_portinfo(ended.stdout) if ended.status == 0 else None
