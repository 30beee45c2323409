import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nhc.lab.testing.fake_host import FakeHost
from nhc.node.facts.cpuinfo import CpuCounts, parse_cpu_list, parse_cpuinfo, topology

X86_CPU = """processor\t: {cpu}
vendor_id\t: {vendor}
cpu family\t: 6
model name\t: {model}
cpu MHz\t\t: 2100.000
cache size\t: 30720 KB
physical id\t: {socket}
siblings\t: {siblings}
core id\t\t: {core}
cpu cores\t: {cores}
apicid\t\t: {cpu}
flags\t\t: fpu vme de pse tsc msr pae mce cx8 apic sep mtrr pge mca cmov pat pse36 clflush
address sizes\t: 46 bits physical, 48 bits virtual
power management:

"""

GRACE_CPU = """processor\t: {cpu}
BogoMIPS\t: 2000.00
Features\t: fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm
CPU implementer\t: 0x41
CPU architecture: 8
CPU variant\t: 0x0
CPU part\t: 0xd4f
CPU revision\t: 0

"""


def x86(sockets, cores, threads_per_core=2, model="Intel(R) Xeon(R) Gold 6130 CPU @ 2.10GHz", vendor="GenuineIntel"):
    """Linux numbers the second threads of all cores after the first ones."""
    return "".join(
        X86_CPU.format(
            cpu=(thread * sockets + socket) * cores + core,
            vendor=vendor,
            model=model,
            socket=socket,
            siblings=cores * threads_per_core,
            core=core,
            cores=cores,
        )
        for thread in range(threads_per_core)
        for socket in range(sockets)
        for core in range(cores)
    )


def sys_topology(sockets, cores, threads_per_core, smt=None):
    """/sys/devices/system/cpu of such a node."""
    total = sockets * cores * threads_per_core
    files = {"/sys/devices/system/cpu/online": f"0-{total - 1}\n"}
    if smt is not None:
        files["/sys/devices/system/cpu/smt/active"] = f"{smt}\n"
    for cpu in range(total):
        core = cpu % (sockets * cores)
        socket = core // cores
        base = f"/sys/devices/system/cpu/cpu{cpu}/topology"
        files[f"{base}/physical_package_id"] = f"{socket}\n"
        firsts = [
            f"{t * sockets * cores + socket * cores}-{t * sockets * cores + (socket + 1) * cores - 1}"
            for t in range(threads_per_core)
        ]
        files[f"{base}/package_cpus_list"] = ",".join(firsts) + "\n"
        siblings = [str(core + t * sockets * cores) for t in range(threads_per_core)]
        files[f"{base}/core_cpus_list"] = ",".join(siblings) + "\n"
    return files


def test_two_sockets_with_hyper_threading():
    assert parse_cpuinfo(x86(2, 16)) == CpuCounts(2, 32, 64)


def test_epyc_without_smt():
    text = x86(2, 64, 1, "AMD EPYC 7763 64-Core Processor", "AuthenticAMD")

    assert parse_cpuinfo(text) == CpuCounts(2, 128, 128)


def test_sockets_that_differ_are_summed():
    """A core that the firmware took out of one socket: LBNL NHC multiplies the last one it read."""
    first, second = x86(1, 16, 1), x86(1, 15, 1).replace("physical id\t: 0", "physical id\t: 1")

    assert parse_cpuinfo(first + second) == CpuCounts(2, 31, 31)


def test_arm_names_neither_sockets_nor_cores():
    assert parse_cpuinfo("".join(GRACE_CPU.format(cpu=cpu) for cpu in range(72))) == CpuCounts(None, None, 72)


def test_512_threads_are_parsed_in_milliseconds():
    text = x86(2, 128).replace("clflush", "clflush" + " avx512_vp2intersect" * 40)
    best = min(_timed(lambda: parse_cpuinfo(text)) for _ in range(5))

    assert parse_cpuinfo(text) == CpuCounts(2, 256, 512)
    assert best < 0.02  # 1 ms on an idle machine; line by line it would be 20


def _timed(call):
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def test_sys_answers_on_arm():
    files = sys_topology(2, 72, 1, smt=0)
    files["/proc/cpuinfo"] = GRACE_CPU.format(cpu=0)

    assert topology(FakeHost(files)) == CpuCounts(2, 144, 144)


def test_sys_counts_cores_by_their_threads():
    assert topology(FakeHost(sys_topology(2, 8, 2, smt=1))) == CpuCounts(2, 16, 32)


def test_sys_of_older_kernels_uses_other_names():
    old = {"package_cpus_list": "core_siblings_list", "core_cpus_list": "thread_siblings_list"}
    files = {
        f"{path.rpartition('/')[0]}/{old.get(path.rpartition('/')[2], path.rpartition('/')[2])}": content
        for path, content in sys_topology(2, 4, 2).items()
    }

    assert topology(FakeHost(files)) == CpuCounts(2, 8, 16)


def test_an_offline_cpu_is_not_counted():
    files = sys_topology(1, 4, 1, smt=0)
    files["/sys/devices/system/cpu/online"] = "0-1,3\n"

    assert topology(FakeHost(files)) == CpuCounts(1, 3, 3)


def test_firmware_that_does_not_tell_the_package_leaves_sockets_unknown():
    files = sys_topology(1, 4, 1, smt=0)
    files["/sys/devices/system/cpu/cpu0/topology/physical_package_id"] = "-1\n"

    assert topology(FakeHost(files)) == CpuCounts(None, 4, 4)


def test_cpuinfo_answers_without_sys():
    assert topology(FakeHost({"/proc/cpuinfo": x86(1, 2)})) == CpuCounts(1, 2, 4)


def test_nothing_readable_is_an_error():
    with pytest.raises(OSError, match="cpuinfo"):
        topology(FakeHost())


def test_cpu_lists():
    assert parse_cpu_list("0-3,8,10-11\n") == [0, 1, 2, 3, 8, 10, 11]
    assert parse_cpu_list("\n") == []


@pytest.mark.parametrize("text", ["a", "3-1", "0-", "-1", "0-99999999999", "1,2,x", "１"])
def test_what_is_no_cpu_list_is_refused(text):
    with pytest.raises(ValueError, match="CPU"):
        parse_cpu_list(text)


@given(st.text() | st.text(alphabet="0123456789,-\n "))
def test_junk_raises_nothing_but_value_error(text):
    for parse in (parse_cpu_list, parse_cpuinfo):
        try:
            parse(text)
        except ValueError:
            pass


@given(
    st.lists(
        st.sampled_from(["processor\t: 0\n", "physical id\t: ", "cpu cores\t: x\n", "cpu cores\t: 4\n", "7\n", "\n"])
    )
)
def test_broken_cpuinfo_raises_nothing_but_value_error(parts):
    try:
        parse_cpuinfo("".join(parts))
    except ValueError:
        pass
