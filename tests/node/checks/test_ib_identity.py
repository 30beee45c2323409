"""Firmware and addresses of RDMA adapters, RoCE ports."""

from nhc.core.model import Verdict
from nhc.lab.testing.fake_host import FakeHost, Symlink
from tests.support.judge import judge, judge_all
from tests.support.rdma import device, eight

ZERO = "0000:0000:0000:0000"


def roce(name="mlx5_0", netdev="ens1np0", mtu=9000, carrier="1", gids=4, **kind):
    return {
        **device(name, layer="Ethernet", netdev=netdev, gids=gids, **kind),
        f"/sys/class/net/{netdev}/mtu": f"{mtu}\n",
        f"/sys/class/net/{netdev}/carrier": f"{carrier}\n",
    }


def test_equal_firmware():
    assert judge(FakeHost(eight()), "check_ib_firmware").message == "8 RDMA adapters with firmware 28.39.1002"
    assert judge(FakeHost(eight()), "check_ib_firmware -b MT_0000000838 28.39.1002").verdict is Verdict.OK


def test_one_adapter_with_other_firmware():
    host = FakeHost({**eight(), **device("mlx5_4", firmware="28.36.1010")})

    found = judge(host, "check_ib_firmware")
    assert (found.verdict, found.reason) == (Verdict.WARN, "IbFirmwareMixed")
    assert "28.36.1010 on mlx5_4" in found.message
    assert [o.target for o in judge_all(host, "check_ib_firmware 28.39.1002")] == ["mlx5_4"]


def test_models_may_differ_in_firmware():
    host = FakeHost({**device("mlx5_0"), **device("mlx5_1", board="MT_0000000359", firmware="22.36.1010")})

    assert judge(host, "check_ib_firmware").verdict is Verdict.OK
    assert judge(host, "check_ib_firmware -b MT_0000000838").reason == "IbBoardMismatch"


def test_an_adapter_that_tells_no_firmware():
    assert judge(FakeHost(device("mlx5_0", firmware="")), "check_ib_firmware").verdict is Verdict.UNKNOWN


def test_addresses():
    assert judge(FakeHost(eight()), "check_ib_guid").verdict is Verdict.OK
    assert judge(FakeHost(device("mlx5_0", guid=ZERO)), "check_ib_guid").reason == "IbGuidMissing"
    assert judge(FakeHost(device("mlx5_0", gids=0)), "check_ib_guid").reason == "IbGidMissing"


def test_two_adapters_with_one_guid():
    twins = {**device("mlx5_0", guid="1:2:3:4"), **device("mlx5_1", guid="1:2:3:4")}
    host = FakeHost(twins)
    assert judge(host, "check_ib_guid").reason == "IbGuidDuplicate"

    functions = {k: v for k, v in twins.items() if "/device/" not in k}
    for name, function in (("mlx5_0", 0), ("mlx5_1", 1)):
        functions[f"/sys/class/infiniband/{name}/device"] = Symlink(f"../../../0000:5e:00.{function}")
    assert judge(FakeHost(functions), "check_ib_guid").verdict is Verdict.OK


def test_roce_ports():
    host = FakeHost(roce())

    assert judge(host, "check_roce_ports").verdict is Verdict.OK
    assert judge(host, "check_roce_ports -m 4200 -g 2").verdict is Verdict.OK
    assert judge(FakeHost(eight()), "check_roce_ports").verdict is Verdict.SKIP


def test_roce_ports_that_cannot_be_reached():
    assert judge(FakeHost(roce(mtu=1500)), "check_roce_ports -m 4200").reason == "RoceMtuMismatch"
    assert judge(FakeHost(roce(mtu=1500)), "check_roce_ports").verdict is Verdict.OK
    assert judge(FakeHost(roce(gids=2)), "check_roce_ports -g 2").reason == "RoceGidMissing"
    assert judge(FakeHost(roce(gids=0)), "check_roce_ports").reason == "RoceGidMissing"
    assert judge(FakeHost(roce(carrier="0")), "check_roce_ports").reason == "RoceNoCarrier"
    assert judge(FakeHost(roce(state="1: DOWN")), "check_roce_ports").verdict is Verdict.SKIP
    assert judge(FakeHost(roce(state="1: DOWN", carrier="")), "check_roce_ports mlx5_0").reason == "RoceNoCarrier"
    assert judge(FakeHost(device("mlx5_0", layer="Ethernet")), "check_roce_ports").reason == "RoceNoInterface"
    elsewhere = {path: text for path, text in roce().items() if not path.startswith("/sys/class/net/")}
    assert judge(FakeHost(elsewhere), "check_roce_ports").verdict is Verdict.UNKNOWN
    assert judge(FakeHost(roce()), "check_roce_ports mlx5_9").reason == "IbPortMissing"


def partitions(keys, **devices):
    """Eight adapters with these partition keys; a table has empty places."""
    files = eight()
    for index in range(8):
        for place, key in enumerate([*devices.get(f"mlx5_{index}", keys), "0x0000", "0x0000"]):
            files[f"/sys/class/infiniband/mlx5_{index}/ports/1/pkeys/{place}"] = f"{key}\n"
    return FakeHost(files)


def test_ports_of_one_model_are_in_the_same_partitions():
    assert judge(partitions(["0xffff", "0x8001"]), "check_ib_pkeys").verdict is Verdict.OK
    found = judge(partitions(["0xffff", "0x8001"], mlx5_3=["0xffff"]), "check_ib_pkeys")
    assert (found.verdict, found.reason) == (Verdict.WARN, "IbPkeysMixed")
    assert "mlx5_3:1" in found.message
    host = partitions(["0xffff", "0x8001"], mlx5_3=["0x7fff"])  # of another fabric
    host.write("/sys/class/infiniband/mlx5_3/board_id", "MT_0000000001\n")
    assert judge(host, "check_ib_pkeys").verdict is Verdict.OK


def test_partitions_that_the_site_names():
    line = "check_ib_pkeys 0xffff 0x8001"
    assert judge(partitions(["0x8001", "0xffff"]), line).verdict is Verdict.OK
    found = judge_all(partitions(["0x8001", "0xffff"], mlx5_3=["0xffff", "0x0001"]), line)
    assert [(o.verdict, o.reason, o.target) for o in found] == [(Verdict.CRIT, "IbPkeyMismatch", "mlx5_3:1")]
    assert found[0].message == "mlx5_3:1 lacks 0x8001 and has 0x0001 besides"  # a limited member is no full one
    assert judge(partitions(["0x8001"], mlx5_3=[]), "check_ib_pkeys").reason == "IbPkeysUnknown"
    assert judge(FakeHost(roce()), line).reason == "NoRdmaPort"
    assert [o.target for o in judge_all(partitions(["0xffff"]), "check_ib_pkeys -p mlx5_1 0x8001")] == ["mlx5_1:1"]
