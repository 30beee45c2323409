"""An outage that passes leaves no node out of service, with the loop and without it: real slurmctld, slurmd, hooks."""

import contextlib

import pytest

from tests.support.slurm_outage import Agents, Outage, episodes_of, loop_over, play
from tests.support.slurm_remedy import served


@pytest.mark.slow
@pytest.mark.parametrize(
    ("looped", "first"),
    [(False, ()), (True, ()), (True, ("n2",))],
    ids=["hooks alone", "beside the loop", "one node seconds earlier"],
)
def test_an_outage_that_passes_ends_with_every_node_back_by_itself(site, tmp_path, looped, first):
    cluster, hooks = site
    outage = Outage(cluster, hooks, drained=2)
    with contextlib.ExitStack() as stack:
        service = stack.enter_context(served(loop_over(tmp_path, cluster, faults="1", out=2))) if looped else None
        agents = [Agents(service, outage)] if service is not None else []
        for one in agents:
            stack.callback(one.close)
            one.start()
            one.service.start()
        play(outage, drained=2, seconds=5.0, agents=agents, within=90.0, first=first)
        lines = hooks.said("healthcheck").splitlines() if not agents else []
        assert sum("look for a common cause" in line for line in lines) == len(lines[:1]), lines
        assert sum("not marked:" in line for line in lines) <= 1, lines  # and no node says each time that it stays
        for one in agents:
            assert one.breaker() == "open", "a person closes it, and no node waits for that"
            assert {row.state for row in episodes_of(one.service)} <= {"detected", "withdrawn", "returned", "escalated"}
