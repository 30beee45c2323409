"""RDMA devices as files below /sys, for FakeHost."""

from __future__ import annotations

from types import MappingProxyType
from typing import Dict, Mapping, Union

from nhc.lab.testing.fake_host import Symlink

Files = Dict[str, Union[str, bytes, Symlink]]

RATES = {10: "10 Gb/sec (4X SDR)", 100: "100 Gb/sec (4X EDR)", 200: "200 Gb/sec (4X HDR)", 400: "400 Gb/sec (4X NDR)"}
NONE: Mapping[str, int] = MappingProxyType({})
GUID = "5c25:7303:00f3:{:04x}"


def device(
    name: str, rate: int = 400, state: str = "4: ACTIVE", phys: str = "5: LinkUp", layer: str = "InfiniBand",
    gids: int = 1, netdev: str = "", board: str = "MT_0000000838", firmware: str = "28.39.1002", guid: str = "",
    driver: str = "mlx5_core", counters: Mapping[str, int] = NONE, hw_counters: Mapping[str, int] = NONE,
) -> Files:  # fmt: skip
    """One device with one port."""
    base = f"/sys/class/infiniband/{name}"
    number = sum(ord(char) * (index + 1) for index, char in enumerate(name))
    port = f"{base}/ports/1"
    files: Files = {
        f"{base}/fw_ver": f"{firmware}\n",
        f"{base}/board_id": f"{board}\n",
        f"{base}/hca_type": "MT4129\n",
        f"{base}/node_guid": f"{guid or GUID.format(number)}\n",
        f"{base}/device/driver": Symlink(f"../../../bus/pci/drivers/{driver}"),
        f"{port}/state": f"{state}\n",
        f"{port}/phys_state": f"{phys}\n",
        f"{port}/rate": f"{RATES.get(rate, f'{rate} Gb/sec')}\n" if rate else "",
        f"{port}/link_layer": f"{layer}\n",
    }
    for index in range(4):
        there = index < gids
        files[f"{port}/gids/{index}"] = (
            f"fe80:0000:0000:0000:{GUID.format(number)}" if there else ":".join(["0000"] * 8)
        ) + "\n"
        if layer == "Ethernet" and there:
            files[f"{port}/gid_attrs/types/{index}"] = "RoCE v2\n" if index % 2 else "IB/RoCE v1\n"
    if netdev:
        files[f"{port}/gid_attrs/ndevs/0"] = f"{netdev}\n"
    for key, value in counters.items():
        files[f"{port}/counters/{key}"] = f"{value}\n"
    for key, value in hw_counters.items():
        files[f"{port}/hw_counters/{key}"] = f"{value}\n"
    return files


def eight(rate: int = 400, **changes: str) -> Files:
    """The InfiniBand side of an eight-GPU node."""
    files: Files = {}
    for index in range(8):
        files.update(device(f"mlx5_{index}", rate=rate, netdev=f"ib{index}"))
    return files
