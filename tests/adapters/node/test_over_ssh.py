"""The node's repairer over a real sshd: what was logged in to, what was not, and what a lost connection proves."""

import socket

import pytest

from nhc.marks.ports.repair import Answer, Machine, Order, Rung, Stage
from nhc_adapters.node.hand.journal import ENDED, RepairJournal
from nhc_adapters.node.repairer import NodeHand
from tests.support.gpu_node import UUID, GpuNode, remove
from tests.support.ports import free_port
from tests.support.ssh import sshd
from tests.support.waiting import until

KEY = "6b1f0a52-5f3c-4b57-9a3f-1f0e2d3c4b5a"
MACHINE = Machine("n1", address="127.0.0.1", uuid=UUID)
ORDER = Order(KEY, "17", 1, MACHINE, Rung.RESET_DEVICE, "Xid 95; $(touch /nope) 'x'", "gpu0")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with sshd(tmp_path_factory.mktemp("sshd")) as running:
        running.trust(["127.0.0.1"])
        yield running


@pytest.fixture
def node(tmp_path):
    node = GpuNode(tmp_path / "node")
    node.gpus(2)
    return node


def hand(node, server, **settings):
    given = {"config": str(server.config), "sudo": "no", "root": str(node.root), "path": str(node.path), **settings}
    return NodeHand(given, {}, 60.0)


def test_a_gpu_is_reset_over_ssh(node, server):
    repairer = hand(node, server)
    before = repairer.look(MACHINE)
    node.note("gate", "")
    sent = repairer.send(ORDER)
    assert sent.answer is Answer.ACCEPTED, sent
    # The connection has ended, and the repair goes on.
    assert repairer.progress(ORDER, sent, before).stage is Stage.WORKING
    remove(node.state / "gate")
    journal = RepairJournal(str(node.root))
    until(lambda: getattr(journal.load(KEY), "phase", "") == ENDED, within=60, what="end of the repair")
    assert repairer.progress(ORDER, sent, before).stage is Stage.DONE
    assert len([line for line in node.calls() if "--gpu-reset" in line]) == 1


def test_a_host_key_that_is_not_known_is_refused_for_good(node, server, tmp_path):
    config = tmp_path / "config"
    config.write_text(server.config.read_text().replace(str(server.known_hosts), str(tmp_path / "none")))
    sent = hand(node, server, config=str(config)).send(ORDER)
    assert (sent.answer, sent.retry_after) == (Answer.REFUSED, 0), sent
    assert "Host key verification failed" in sent.message
    assert node.calls() == []


def test_nobody_there_may_be_asked_later(node, server, tmp_path):
    config = tmp_path / "config"
    config.write_text(server.config.read_text().replace(str(server.port), str(free_port())))
    sent = hand(node, server, config=str(config)).send(ORDER)
    assert sent.answer is Answer.REFUSED
    assert sent.retry_after > 0
    assert "Connection refused" in sent.message


def test_a_server_that_says_nothing_was_not_logged_in_to(node, server, tmp_path):
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        config = tmp_path / "config"
        config.write_text(server.config.read_text().replace(str(server.port), str(silent.getsockname()[1])))
        repairer = NodeHand({"config": str(config), "root": str(node.root)}, {}, 3.0)
        sent = repairer.send(ORDER)
    assert sent.answer is Answer.REFUSED, sent
    assert sent.retry_after > 0


def test_a_node_without_python_is_refused_for_good(node, server):
    sent = hand(node, server, python="/no/python3").send(ORDER)
    assert (sent.answer, sent.retry_after) == (Answer.REFUSED, 0), sent
    assert "/no/python3" in sent.message
