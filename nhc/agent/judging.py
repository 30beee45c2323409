"""What a round of checks changes on the board of problems, and when its checks run again."""

from __future__ import annotations

from typing import List, Sequence

from nhc.agent import agent_plan
from nhc.agent.check_round import Finished, lost
from nhc.agent.node_view import NodeView
from nhc.agent.problems import ProblemChange, too_early
from nhc.core.model import CheckResult
from nhc.core.plan import Item


def judge_round(node: NodeView, finished: Finished) -> List[ProblemChange]:
    """Enter the results of a round that has ended. Returns the problems that began, changed or ended.

    After a round that came to nothing, a check's last result stands until the check is overdue.
    """
    now, wall = node.host.monotonic(), node.host.time()
    changes: List[ProblemChange] = []
    late = set(node.schedule.overdue(now)) if finished.problem else set()
    for key in finished.keys:
        item = node.items.get(key)
        if item is None:
            continue  # the configuration dropped it meanwhile
        if finished.problem and key in node.board.rows and key not in late:
            continue  # tried again in a moment
        results = finished.results.get(key, [])
        if finished.problem or not results:
            results = [lost(item, finished.problem or "no result of it came back")]
        if not finished.problem:
            node.schedule.end(key, now, max((result.elapsed for result in results), default=0.0))
        changes += _judge(node, key, item, results, wall, now - finished.elapsed)
        if node.board.recovering(key) and not item.of:  # the runs of N of M are those of its cadence
            node.schedule.hurry(key, now + node.settings.retry)
    return changes


def _judge(
    node: NodeView, key: str, item: Item, results: Sequence[CheckResult], wall: float, began: float
) -> List[ProblemChange]:
    if key == node.kernel.key:
        results = node.kernel.judged(item, results, began)
    uptime = node.host.monotonic()
    if agent_plan.waits_for_boot(item, node.settings, uptime):
        results = [too_early(result, uptime) for result in results]
        node.schedule.hurry(key, node.settings.boot_window)
    return node.board.judge(key, results, wall, 1 if agent_plan.is_kernel_log(item) else None)
