"""What operators ask for in HyperPod's words on Slurm, where nhc is the one who carries it out: a real slurmctld."""

import pytest

from nhc.core.model import Action
from nhc.marks.ports.adapter import AdapterError, Mark
from nhc.marks.ports.marks import mark_text
from nhc.marks.ports.repair import NodeRequests, Request, Rung
from nhc.remedy.node_requests import fault_of
from nhc.remedy.remedy_file import parse
from nhc.remedy.remedy_site import open_site
from nhc.store import attempts, episodes
from nhc.store.rounds.leader import Leader
from nhc_adapters.slurm.adapter import Slurm
from nhc_adapters.slurm.requests import SlurmHyperpod, read
from nhc_adapters.slurm.states import node_state
from tests.support.new_store import new_store
from tests.support.waiting import until

NODE = "n3"
SETTINGS = """
store = "sqlite:///{place}/store.db"
[actions]
mark = "on"
reboot = "on"
[sources]
adapter = "slurm-hyperpod"
settle = "0s"
[limits]
first-run = "100%"
[evidence]
directory = "{place}/evidence"
[repairers.slurm]
boot-time = "60"
"""


@pytest.fixture
def asked(cluster):
    cluster.update(NODE, State="FAIL", Reason="Action:Reboot")
    yield cluster
    cluster.scontrol("cancel_reboot", NODE, check=False)
    if "REBOOT" in cluster.show(NODE)["State"]:
        cluster.boot_node(NODE)


def test_who_does_not_say_so_leaves_it_to_hyperpods_agent(asked):
    theirs = Slurm({}, asked.env)
    assert not isinstance(theirs, NodeRequests)
    [state] = theirs.nodes([NODE])
    assert (state.mark.owner, state.mark.ours) == ("hyperpod", False)


def test_a_request_is_read_marked_answered_and_read_no_more(asked):
    adapter = SlurmHyperpod({}, asked.env)
    assert isinstance(adapter, NodeRequests)
    [state] = adapter.nodes([NODE])
    request = adapter.requests()[0][NODE]
    assert (request.rung, state.mark.ours, state.mark.action) == (Rung.REBOOT, True, Action.NONE)
    assert [one.effect.value for one in adapter.clear([NODE])] == ["refused"], "a person waits for it"
    fault = fault_of(NODE, request, 1.0)
    mark = Mark(f"request: {fault.message}", Action.REBOOT, 1.0, cause=fault.cause)
    assert [one.effect.value for one in adapter.mark({NODE: mark})] == ["changed"]
    adapter.nodes()
    assert adapter.requests()[0] == {NODE: request}, "it stands in the text of our mark"
    other = request._replace(key="another")
    assert adapter.answer(NODE, other, "reboot: given up", False) == ""
    assert adapter.answer(NODE, request, "reboot: given up", False) == ""
    assert asked.reason(NODE) == "NHC: answered: reboot: given up"
    adapter.nodes()
    assert adapter.requests()[0] == {}
    assert [one.effect.value for one in adapter.clear([NODE])] == ["changed"]
    until(lambda: asked.state(NODE) == "idle", what="the node to be in service", said=lambda: asked.show(NODE))


def test_the_loop_reboots_the_node_that_was_asked_for(asked, tmp_path, monkeypatch):
    for name, value in asked.env.items():
        monkeypatch.setenv(name, value)
    new_store(str(tmp_path)).close()
    site = open_site(parse(SETTINGS.format(place=tmp_path)))
    leader = Leader(site.store)
    try:
        assert leader.attempt()
        controller = site.controller(leader.fence, lambda _one: None)

        def rounds():
            found = controller.round()
            return "REBOOT" in asked.show(NODE)["State"] or (found.problems and found)

        until(rounds, 60, what="the reboot to be ordered", said=lambda: (asked.show(NODE), controller.round()))
        controller.round()
        with site.store.read() as connection:
            [row] = episodes.list_episodes(connection)
            [one] = attempts.attempts_of(connection, row.id)
        assert (row.node, row.state, one.rung, one.repairer) == (NODE, "watching", "reboot", "slurm")
        assert "reboot was asked for on the node (Action:Reboot, " in asked.reason(NODE)
    finally:
        leader.release()
        site.close()


# Pure.


def test_only_these_words_on_a_node_that_is_out_are_a_request():
    def of(words, reason):
        return read(node_state("n", words, reason, "root", 1_700_000_000.0)).request

    reboot = Request(Rung.REBOOT, "Action:Reboot, 2023-11-14T22:13:20Z", "Action:Reboot, 2023-11-14T22:13:20Z")
    assert of(["IDLE", "FAIL"], "action:reboot") == reboot
    assert of(["IDLE", "FAIL"], "Action:Replace").rung is Rung.REPLACE
    mark = mark_text(Mark(f"request: {fault_of('n', reboot, 1.0).message}", Action.REBOOT))
    assert of(["IDLE", "DRAIN"], mark) == reboot
    for words, reason in (
        ("FAIL", "Action:Rebooted"), ("", "Action:Reboot"), ("DRAIN", "mine"),
        ("DRAIN", "see (Action:Reboot, 2023-11-14T22:13:20Z)"),
    ):  # fmt: skip
        assert of(["IDLE", words], reason) is None, reason


def test_who_writes_hyperpods_words_does_not_read_them_as_well():
    with pytest.raises(AdapterError, match="our own orders would be read as requests"):
        SlurmHyperpod({"NHC_HYPERPOD": "1"}, {})
