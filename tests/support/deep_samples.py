# ruff: noqa: E501, PERF401, ISC004, FLY002 (lines as tools print them)
"""What tools of deep checks print, healthy and failing, by version. Rows and messages are as published (source in each
comment); headers and footers of nccl-tests are composed to the format strings of its source."""

from __future__ import annotations

import json

HCA = [f"  Rank {n:2d} Group  0 Pid  {14840 + n} on  node-a    device  {n} [0000:{n:02x}:00] NVIDIA H100 80GB HBM3"
       for n in range(8)]  # fmt: skip

# One node of 8: 8 GiB of 8 H100 at NVLS speed (stas00, Azure NHC); busbw/algbw = 2*7/8.
NCCL = "\n".join([
    "# nccl-tests version 2.19.6 nccl-headers=22807 nccl-library=22807",
    "# Collective test starting: all_reduce_perf",
    "# nThread 1 nGpus 8 minBytes 8589934592 maxBytes 8589934592 step: 2(factor) warmup iters: 1 iters: 20 agg iters: 1 "
    "validation: 1 graph: 0 unalign: 0",
    "#", "# Using devices",
    *[f"#{line}" for line in HCA],
    "node-a:14840:14900 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM",
    "node-a:14840:14900 [0] NCCL INFO Connected NVLS tree",
    "#",
    "#                                                              out-of-place                       in-place",
    "#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong",
    "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)",
    "  8589934592    2147483648     float     sum      -1    31315  274.31  480.04       0    31300  274.44  480.27       0",
    "# Out of bounds values : 0 OK",
    "# Avg bus bandwidth    : 480.155",
    "#",
    "# Collective test concluded: all_reduce_perf",
    "",
])  # fmt: skip

# Two nodes of p5.48xlarge, 16 ranks (awsome-distributed-training), under srun -l.
NCCL_SRUN = "\n".join([
    "0: # nThread 1 nGpus 1 minBytes 8589934592 maxBytes 17179869184 step: 2(factor) warmup iters: 5 iters: 20",
    "0: #  Rank  0 Group  0 Pid  14840 on  node-a    device  0 [0x1b] NVIDIA H100 80GB HBM3",
    "0: #       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong",
    "0:   8589934592    2147483648     float     sum      -1    33605  255.62  479.28      0    33628  255.44  478.95      0",
    "0:  17179869184    4294967296     float     sum      -1    66132  259.78  487.09      0    66109  259.87  487.26      0",
    "0: # Out of bounds values : 0 OK",
    "0: # Avg bus bandwidth    : 483.145",
])  # fmt: skip

# 2.9: no root column, check off (superbench sample).
NCCL_29 = "\n".join([
    "# nThread 1 nGpus 8 minBytes 1 maxBytes 8589934592 step: 2(factor) warmup iters: 5 iters: 20 validation: 0",
    "#   Rank  0 Pid  14840 on  node-a device  0 [0x1b] A100-SXM4-40GB",
    "#       size         count    type   redop     time   algbw   busbw  error     time   algbw   busbw  error",
    "  8589934592    2147483648   float     sum    63896  134.44  235.26    N/A    63959  134.30  235.03    N/A",
    "# Out of bounds values : 0 OK",
    "# Avg bus bandwidth    : 68.4",
])  # fmt: skip

# A wrong value in %g form (nccl-tests issue).
NCCL_WRONG = NCCL.replace("480.04       0", "480.04  2.68435e+08").replace("values : 0 OK", "values : 108 FAILED")


def output_of_nodes(nodes, speed="380.00", wrong="0", network="IB", rail="mlx5_0"):
    """What nccl-tests prints on several nodes of one GPU, in the form of its source."""
    half = "time  algbw  busbw #wrong"
    ratio = 2 * (len(nodes) - 1) / len(nodes)
    algbw = f"{float(speed) / ratio:.2f}"
    ranks = [f"#  Rank  {n} Group  0 Pid  14{n} on  {node}    device  0 [0000:1b:00] NVIDIA H100 80GB HBM3"
             for n, node in enumerate(nodes)]  # fmt: skip
    row = f"{8589934592 / 1000 / float(algbw):.0f}  {algbw}  {speed}  {wrong}"
    return "\n".join([
        "# nThread 1 nGpus 1 minBytes 8589934592 maxBytes 8589934592 step: 2(factor) warmup iters: 1 iters: 20",
        *ranks,
        f"x:1:2 [0] NCCL INFO NET/{network} : Using [0]{rail}:1/IB [RO]; OOB eth0:10.0.0.1<0>",
        f"x:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/{network}/0",
        f"#  size  count  type  redop  root  {half}  {half}",
        f"  8589934592    2147483648     float     sum      -1    {row}    {row}",
        "# Out of bounds values : 0 OK", f"# Avg bus bandwidth    : {speed}", "",
    ])  # fmt: skip


def nvbandwidth(gpus: int = 8, h2d: float = 55.4, d2d: float = 390.0, **status: str) -> str:
    """nvbandwidth -j (0.8): cells are strings, N/A on the diagonal."""

    def case(name, matrix):
        return {"name": name, "status": status.get(name, "Passed"), "bandwidth_description": "memcpy CE",
                "bandwidth_matrix": matrix, "sum": 1.0}  # fmt: skip

    ring = [["N/A" if row == column else f"{d2d:.2f}" for column in range(gpus)] for row in range(gpus)]
    cases = [case("host_to_device_memcpy_ce", [[f"{h2d:.2f}"] * gpus]),
             case("device_to_host_memcpy_ce", [[f"{h2d:.2f}"] * gpus]),
             case("device_to_device_memcpy_read_ce", ring), case("device_local_copy", [["1400.00"] * gpus])]  # fmt: skip
    return json.dumps({"nvbandwidth": {"CUDA Runtime Version": 12040, "Driver Version": "550.54.15",
                                       "GPU Device list": [f"{n}: NVIDIA H100" for n in range(gpus)], "version": "v0.8",
                                       "testcases": cases}})  # fmt: skip


# The README's and superbench's text (0.6), before N/A on the diagonal.
NVBANDWIDTH_TEXT = """\
nvbandwidth Version: v0.6
CUDA Runtime Version: 12040
Driver Version: 550.54.15

Device 0: NVIDIA GH200 480GB (00000009:01:00)
Device 1: NVIDIA GH200 480GB (00000019:01:00)

Running host_to_device_memcpy_ce.
memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)
           0         1
 0    369.36    269.33

SUM host_to_device_memcpy_ce 638.69

Running device_to_device_memcpy_write_ce.
memcpy CE GPU(row) <- GPU(column) bandwidth (GB/s)
          0         1
0      0.00    276.07
1    276.19      0.00

SUM device_to_device_memcpy_write_ce 552.26
"""


def dcgm4(tests=("software", "memory", "pcie"), gpus=8, failing=(), version="4.6.0", **root) -> str:
    """DCGM 4 (testing/python3/dcgm_diag_schema.json). `failing` has (test, gpu, error id, severity, text)."""

    def result(test, gpu):
        bad = [{"error_category": 8, "error_id": e[2], "error_severity": e[3], "warning": e[4]}
               for e in failing if e[0] == test and e[1] == gpu]  # fmt: skip
        return {"entity_group": "GPU", "entity_group_id": 1, "entity_id": gpu, "status": "Fail" if bad else "Pass",
                **({"warnings": bad} if bad else {})}  # fmt: skip

    listed = [{"name": test, "results": [result(test, gpu) for gpu in range(gpus)],
               "test_summary": {"status": "Fail" if any(e[0] == test for e in failing) else "Pass"}}
              for test in tests]  # fmt: skip
    return json.dumps({"DCGM Diagnostic": {
        "test_categories": [{"category": "Deployment", "tests": listed[:1]}, {"category": "Hardware", "tests": listed[1:]}],
        "entity_groups": [{"entity_group": "GPU", "entity_group_id": 1, "entities": [
            {"device_id": "2330", "entity_id": n, "serial_num": "165"} for n in range(gpus)]}],
        "metadata": {"version": version, "Driver Version Detected": "580.95.05"}, **root}})  # fmt: skip


# DCGM 3.3: numbers as strings, several GPUs in one, a test a line of level 1.
DCGM3 = json.dumps({"DCGM GPU Diagnostic": {
    "test_categories": [
        {"category": "Deployment", "tests": [
            {"name": "Denylist", "results": [{"gpu_ids": "0,1,2,3,4,5,6,7", "status": "Pass"}]},
            {"name": "Persistence Mode", "results": [{"gpu_id": "1", "status": "Warn", "warnings": [
                {"error_id": 29, "warning": "Persistence mode for GPU 1 is disabled."}]}]}]},
        {"category": "Integration", "tests": [
            {"name": "PCIe", "results": [{"gpu_id": str(n), "status": "PASS", "info": "x"} for n in range(8)]}]},
        {"category": "Hardware", "tests": [
            {"name": "GPU Memory", "results": [{"gpu_id": str(n), "status": "Pass"} for n in range(8)]}]}],
    "version": "3.3.7", "Driver Version Detected": "535.183.01", "GPU Device IDs": ["2237"]}})  # fmt: skip

# Before 3.1 there are no error ids (gcm's test).
DCGM2 = ('{"DCGM GPU Diagnostic": {"test_categories": [{"category": "Deployment", "tests": [{"name": "Blacklist", '
         '"results": [{"status": "Fail", "warnings": "GPU 0 is on the list"}]}]}], "version": "2.4.6"}}')  # fmt: skip

GPU_BURN = (
    "Initialized device 0 with 81251 MB of memory (80493 MB available, using 72443 MB of it), using Tensor Cores\n"
    "50.0%  proc'd: 2261 (7150 Gflop/s) - 2261 (7148 Gflop/s)   errors: 0 - 0   temps: 38 C - 36 C \r"
    "100.0%  proc'd: 9044 (7150 Gflop/s) - 9044 (7148 Gflop/s)   errors: 0 - {errors}  (WARNING!)  temps: 58 C - 61 C \n"
    "done\n\nTested 2 GPUs:\n\tGPU 0: OK\n\tGPU 1: {verdict}\n"
)

FRYER = "\n".join(f"GPU #{n}:  51494 Gflops/s (min: 50577.53, max: 51677.05, dev: 51493.79)" for n in range(8)) + "\n"

RVS = (
    "[RESULT] [302014.199261] [gst-1215Tflops-4K4K8K-rand-fp8] [GPU:: 42583] GFLOPS 1063560 Target GFLOPS: 0 met: TRUE\n"
    "[RESULT] [302014.299261] [gst-1215Tflops-4K4K8K-rand-fp8] [GPU:: 42584] GFLOPS 863560 Target GFLOPS: 1000000 met: FALSE\n"
)

NCCOM = """\
 size(B)   count(elems)    type    time(us)    algbw(GB/s)    busbw(GB/s)
33554432       33554432   uint8         768          40.69          40.69
Avg bus bandwidth:      40.6901GB/s
"""

PERFTEST = """\
---------------------------------------------------------------------------------------
                    RDMA_Write BW Test
 Dual-port       : OFF		Device         : {device}
 Number of qps   : 1		Transport type : IB
 Connection type : RC		Using SRQ      : OFF
 Mtu             : 4096[B]
 Link type       : IB
 local address: LID 0xd06 QPN 0x095f PSN 0x3c9e82 RKey 0x080359 VAddr 0x007f9fc479c000
---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 65536      5000             {rate}             {rate}             0.7446
---------------------------------------------------------------------------------------
"""

PERFTEST_MIB = """\
                    RDMA_Write BW Test
 Dual-port       : OFF		Device         : ib0
 #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 8388608    20000            24056.74            24056.72		   0.003007
"""

PERFTEST_LAT = """\
                    RDMA_Write Latency Test
 Dual-port       : OFF		Device         : mlx5_0
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec]
Conflicting CPU frequency values detected: 1500.000000 != 3199.999000. CPU Frequency is not max.
 2       1000          1.90           4.10         2.01     	       2.03        	0.05   		2.20    		4.10
"""

# perftest 4.5 on a machine without an adapter, status 1
PERFTEST_NONE = (
    " Did not detect devices \n If device exists, check if driver is up\n Unable to find the Infiniband/RoCE device\n"
)

EFA_BW = (
    """\
                    RDMA_Write BW Test
 Dual-port       : OFF		Device         : rdmap0s29
 Number of qps   : 1		Transport type : EFA
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
"""
    + "\n".join(f" {2**n}  5000  {n * 3.5:.2f}  {n * 3.4:.2f}  0.5" for n in range(1, 18))
    + "\n"
)

EFA_LAT = (
    """\
                    RDMA_Write Latency Test
 Dual-port       : OFF		Device         : rdmap0s29
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec]
"""
    + "\n".join(f" {2**n}  1000  20.0  40.0  {20 + n}.08  21.6  0.1  30.0  40.0" for n in range(1, 11))
    + "\n"
)

# fi_pingpong of libfabric 1.17 over TCP on one machine
PINGPONG = """\
bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec
64      20      =20      2.5k        0.28s      0.01    7047.33       0.00
256     20      =20      10k         0.28s      0.04    6979.92       0.00
1k      20      =20      40k         0.00s    183.68       5.57       0.18
4k      20      =20      160k        0.11s      1.47    2778.35       0.00
64k     20      =20      2.5m        0.17s     15.33    4274.10       0.00
1m      20      =20      40m         0.73s     57.64   18193.22       0.00
"""


def gemm(gpus=8, tflops=700.0, end=True, **bad) -> str:
    """gemm_burn.py. `bad` has g3={"wrong": 1} for a device that differs."""
    lines = [{"kind": "begin", "engine": "torch", "version": "2.5.1", "size": 8192, "dtype": "bf16", "seconds": 60}]
    for n in range(gpus):
        lines.append({"kind": "device", "device": n, "name": "NVIDIA H100 80GB HBM3", "rounds": 800, "seconds": 60.1,
                      "tflops": tflops, "slowest": tflops - 20, "hash": "aa", "changed": 0, "wrong": 0, "nan": 0,
                      **bad.get(f"g{n}", {})})  # fmt: skip
    if end:
        lines.append({"kind": "end", "devices": gpus})
    return "".join(json.dumps(line) + "\n" for line in lines)
