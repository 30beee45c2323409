from hypothesis import given
from hypothesis import strategies as st

from nhc.lab.testing.fake_host import FakeHost
from nhc.node.facts.infiniband import parse_rate, parse_state, ports

PORT = "/sys/class/infiniband/{}/ports/{}/"


def port_files(device, port, state="4: ACTIVE", phys="5: LinkUp", rate="400 Gb/sec (4X NDR)", layer="InfiniBand"):
    base = PORT.format(device, port)
    return {
        base + "state": state + "\n",
        base + "phys_state": phys + "\n",
        base + "rate": rate + "\n",
        base + "link_layer": layer + "\n",
    }


def test_a_node_without_rdma_has_no_ports():
    assert ports(FakeHost({"/sys/class/net/": ""})) == ()


def test_ports_come_in_natural_order_with_their_state():
    host = FakeHost({**port_files("mlx5_10", 1), **port_files("mlx5_2", 1, state="1: DOWN", phys="3: Disabled")})

    down, up = ports(host)

    assert (down.name, down.state, down.phys_state, down.up) == ("mlx5_2:1", "DOWN", "Disabled", False)
    assert (up.name, up.rate_gbps, up.link_layer, up.up) == ("mlx5_10:1", 400.0, "InfiniBand", True)
    assert up.counters == "/sys/class/infiniband/mlx5_10/ports/1/counters"


def test_a_roce_port_names_its_interface_in_the_gid_table():
    files = port_files("mlx5_0", 1, layer="Ethernet")
    files[PORT.format("mlx5_0", 1) + "gid_attrs/ndevs/0"] = "ens1f0np0\n"

    assert ports(FakeHost(files))[0].netdev == "ens1f0np0"


def test_an_ipoib_interface_is_found_by_its_port_on_the_same_device():
    files = {**port_files("mlx4_0", 1), **port_files("mlx4_0", 2)}
    for name, dev_port in (("ib0", "0"), ("ib1", "1")):
        files[f"/sys/class/infiniband/mlx4_0/device/net/{name}/dev_port"] = dev_port + "\n"

    assert [port.netdev for port in ports(FakeHost(files))] == ["ib0", "ib1"]


def test_a_port_whose_rate_cannot_be_read_is_still_listed():
    files = port_files("mlx5_0", 1)
    del files[PORT.format("mlx5_0", 1) + "rate"]

    assert ports(FakeHost(files))[0].rate_gbps is None


def test_rates_of_every_generation():
    assert parse_rate("2.5 Gb/sec (1X SDR)\n") == 2.5
    assert parse_rate("56 Gb/sec (4X FDR)") == 56
    assert parse_rate("800 Gb/sec (4X XDR)") == 800
    assert parse_rate("unknown") is None


@given(st.text())
def test_junk_never_raises(text):
    assert isinstance(parse_state(text), str)
    assert parse_rate(text) is None or parse_rate(text) >= 0
