"""What an adapter that knows the work on a node says of it, for persons who look at the node."""

from __future__ import annotations

from typing import NamedTuple, Optional, Protocol, Tuple
from typing import runtime_checkable as port


class WorkItem(NamedTuple):
    """One piece of the work on a node: a job, or a pod.

    `id` is what the other side's own commands take (`17_3`, `team/llama-0`). `name` and `user` are its users' texts;
    for a pod they are its controller and its namespace. `state` is in the other side's words, `started` Unix time,
    None where nobody knows. `jobs` are the names under which nhc may watch it (`JobName.text` of
    `nhc.marks.ports.job_control`).
    """

    id: str
    name: str
    user: str
    state: str
    started: Optional[float]
    jobs: Tuple[str, ...] = ()


class WorkList(NamedTuple):
    """The work on a node; `note` says what may be missing from it, and why."""

    items: Tuple[WorkItem, ...]
    note: str = ""


@port
class ListsWork(Protocol):
    """Something that knows what works on a node now, whether or not nhc watches it."""

    def work_on(self, node: str) -> WorkList:
        """All that is on the node, as it is now; texts on one line each. For persons. Raises AdapterError."""
        ...
