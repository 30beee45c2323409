"""Kubernetes as a Marker: lists, marks and clears nodes under the same contract as Slurm's adapter."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Callable, Dict, FrozenSet, Iterable, List, Mapping, Optional, Sequence, Tuple, TypeVar

from nhc.marks.ports.adapter import OWNER, REMEDY_OWNER, AdapterError, Applied, Effect, Mark, NodeState, Operation
from nhc.marks.ports.job_control import WorkList
from nhc.marks.ports.marks import in_place_of, left_alone, may_clear, may_mark
from nhc_adapters.kubernetes.api.client import Client, node_path
from nhc_adapters.kubernetes.api.errors import ApiError, Unreachable
from nhc_adapters.kubernetes.nodes.conditions import (
    CLUSTER_SIDE,
    FALSE,
    Condition,
    read_conditions,
    write_conditions,
)
from nhc_adapters.kubernetes.nodes.evidence import ASKED_FOR, REPORT, SOURCE, read_sources, source_types
from nhc_adapters.kubernetes.nodes.manual import read_manual
from nhc_adapters.kubernetes.nodes.marks import (
    Facts,
    Op,
    Plan,
    Treatment,
    apply,
    clear_patch,
    plan_annotations,
    plan_clear,
    plan_mark,
    plan_move_work,
    plan_work_back,
)
from nhc_adapters.kubernetes.nodes.overruled import OVERRULED, Bad, overrule
from nhc_adapters.kubernetes.nodes.own_marks import PUT_BACK, annotations_of, in_repair, read_own_mark, released
from nhc_adapters.kubernetes.nodes.pods import list_work, pods_on, unfinished_pods, workload
from nhc_adapters.kubernetes.nodes.view import PLACES, TOPOLOGIES, node_state, unheard
from nhc_adapters.kubernetes.nodes.vocabulary import Foreign, Vocabulary
from nhc_adapters.kubernetes.nodes.vocabulary_file import load

T = TypeVar("T")
R = TypeVar("R")

IN_FLIGHT = 32
"""Nodes changed at a time. One connection does 700 a second, 32 about twice that; more gain nothing."""

ALL_FOREIGN = ("konduktor", "hyperpod", "nvsentinel", "aks")
"""Vocabularies whose marks are always recognised, whichever are spoken."""


def foreign_marks(spoken: Sequence[Vocabulary] = ()) -> Tuple[Foreign, ...]:
    """How others' marks look, those of the spoken vocabularies first."""
    vocabularies = (*spoken, *map(load, ALL_FOREIGN))
    return tuple(dict.fromkeys(mark for vocabulary in vocabularies for mark in vocabulary.foreign))


class _Declined(Exception):
    """Raised by a plan that must change nothing on its node: the effect, and why."""

    def __init__(self, effect: Effect, why: str) -> None:
        super().__init__(why)
        self.effect, self.why = effect, why


class Kubernetes:
    """A cluster's nodes. Safe to use from one thread at a time; it uses several itself."""

    def __init__(
        self,
        client: Client,
        treatment: Optional[Treatment] = None,
        *,
        topologies: Sequence[str] = TOPOLOGIES,
        places: Mapping[str, str] = PLACES,
        selector: str = "",
        owner: str = OWNER,
        own_pod: str = "",
        is_foreign: Callable[[Mapping[str, Any], Foreign], bool] = lambda node, mark: True,
    ) -> None:
        """`places`: labels that say where a node is, and the kind of blast radius of each. `owner`: for which part of
        nhc it marks (nhc.marks.ports.adapter). `own_pod`: the uid of the pod that we are, which is no work of others.
        `is_foreign`: whether a mark of the spoken vocabularies is somebody else's on this node.
        """
        self.client = client
        self.treatment = treatment if treatment is not None else Treatment((load("nhc"),))
        self.topologies, self.places, self.selector = tuple(topologies), places, selector
        self.owner, self.own_pod = owner, own_pod
        self._foreign, self._is_foreign = foreign_marks(self.treatment.vocabularies), is_foreign
        self.changed: Dict[str, Dict[str, Any]] = {}
        """Node objects as the last operation left them, by name: newer than any watch for a moment."""
        self._pool: Optional[ThreadPoolExecutor] = None
        self._unreachable: List[Unreachable] = []

    # Reading.

    def nodes(self, names: Optional[Sequence[str]] = None) -> List[NodeState]:
        """The states of these nodes, of all where None. Raises AdapterError.

        Pods are read node by node, so that a round's cost depends on the faulty nodes. If all nodes are asked for, only
        the pods of those out of service are read; the others, which are marked before anything acts on them, count as
        busy.
        """
        objects = self.objects(names)
        return self.with_work([self.state(node) for node in objects], unheard(objects), all_of_them=names is None)

    def with_work(self, states: Sequence[NodeState], dead: FrozenSet[str], *, all_of_them: bool) -> List[NodeState]:
        """These states with whether work runs there, as `nodes` gives them. The kubelets of `dead` do not report."""
        asked = {state.name for state in states if not all_of_them or not state.available or state.mark is not None}
        working = self._busy(sorted(asked), dead)
        return [state._replace(busy=state.name in working or state.name not in asked) for state in states]

    def state(self, node: Mapping[str, object], busy: bool = False) -> NodeState:
        """A node object as a NodeState."""
        foreign = [mark for mark in self._foreign if self._is_foreign(node, mark)]
        return node_state(node, foreign, self.topologies, busy, self.places)

    def objects(self, names: Optional[Sequence[str]] = None) -> List[Dict[str, Any]]:
        """The node objects themselves, by name."""
        if names is None:
            query = {"labelSelector": self.selector} if self.selector else {}
            nodes = list(self.client.items("/api/v1/nodes", **query))
        else:
            answers = self.each(sorted(set(names)), lambda name: self.client.find(node_path(name)))
            nodes = [node for node in answers if node is not None]
        return sorted(nodes, key=lambda node: str(node["metadata"]["name"]))

    def _busy(self, names: Sequence[str], dead: FrozenSet[str]) -> FrozenSet[str]:
        pods_of_each = self.each(names, partial(unfinished_pods, self.client))
        pods = [pod for pods in pods_of_each for pod in pods]
        others = [pod for pod in workload(pods, dead) if not self.own_pod or pod["metadata"].get("uid") != self.own_pod]
        return frozenset(str(pod.get("spec", {}).get("nodeName") or "") for pod in others)

    def work_on(self, node: str) -> WorkList:
        """The pods on a node; as `nhc.marks.ports.job_control.ListsWork`. Needs the right to list pods."""
        return list_work(pods_on(self.client, node))

    # Acting.

    def mark(
        self,
        marks: Mapping[str, Mark],
        seen: Optional[Iterable[NodeState]] = None,
        *,
        objects: Optional[Mapping[str, Mapping[str, Any]]] = None,
        facts: Optional[Mapping[str, Facts]] = None,
    ) -> List[Applied]:
        """Take nodes out of service; as `nhc.marks.ports.adapter.Marker`.

        `objects` are node objects as they were judged, which save a read each. A node that shows something else by now
        than was judged is not marked. `facts` are the evidence for each mark: by
        default a report. A mark that the controller had set gets the report as further evidence. From then on the
        controller does not clear it when its condition is good: the component that marks by reports does. A mark that
        the remedy loop has set or taken over is its own: the controller neither clears it nor drains for it. The loop
        asks again for a mark that it has only where that must be whole: what was undone of it is set again.
        """
        evidence = facts or {}

        def plan(name: str, node: Mapping[str, Any]) -> List[Op]:
            _compare((objects or {}).get(name), node)
            state, wanted = self.state(node), marks[name]._replace(owner=self.owner)
            again = bool(state.undone) and (self.owner == REMEDY_OWNER or in_repair(node))
            wanted = in_place_of(state, wanted)
            effect, why = may_mark(state, wanted)
            if effect is Effect.UNCHANGED and again:
                effect = Effect.CHANGED
            if read_own_mark(node) is not None and released(node):
                effect, why = Effect.REFUSED, "somebody put it back by hand; the mark's remains are to be taken off"
            sources = read_sources(node)
            reported = Facts(sources=tuple(dict.fromkeys((*sources, REPORT))))
            if effect is Effect.UNCHANGED and name not in evidence and reported.sources != sources:
                return plan_annotations(node, {SOURCE: " ".join(reported.sources)})
            if effect is not Effect.CHANGED:
                raise _Declined(effect, why)
            return plan_mark(node, wanted, self.treatment, evidence.get(name) or reported)

        return self._apply_all({name: partial(plan, name) for name in marks}, objects)

    def clear(
        self,
        names: Sequence[str],
        seen: Optional[Iterable[NodeState]] = None,
        *,
        judged: Optional[Mapping[str, Mapping[str, Any]]] = None,
    ) -> List[Applied]:
        """Put nodes back that carry our mark; as `nhc.marks.ports.adapter.Marker`. Each is read again first.

        A report asks for this, unless node objects were `judged` by their conditions: a report does not contain what
        the controller found itself, in pod logs or Loki. A node that has changed since is not put back.
        """

        def plan(node: Mapping[str, Any]) -> List[Op]:
            _compare((judged or {}).get(str(node["metadata"]["name"])), node)
            effect, why = may_clear(self.state(node), self.owner)
            conditions = read_conditions(node)
            ended = {kind for kind in CLUSTER_SIDE if kind in conditions and conditions[kind].status == FALSE}
            theirs = sorted(source_types(read_sources(node)) & set(CLUSTER_SIDE) - ended)
            if theirs and judged is None and effect is Effect.CHANGED:
                effect, why = Effect.REFUSED, f"marked for {theirs[0]}, of which no report speaks"
            if effect is not Effect.CHANGED:
                raise _Declined(effect, why)
            return plan_clear(node, self.treatment)

        return self._apply_all(dict.fromkeys(names, plan))

    def repairs(self) -> FrozenSet[Operation]:
        """The operations that one of the spoken vocabularies can ask a platform for."""
        triggers = {trigger for vocabulary in self.treatment.vocabularies for trigger in vocabulary.triggers}
        return frozenset(
            operation for operation in (Operation.REBOOT, Operation.REPLACE) if operation.value in triggers
        )

    def repair(self, operation: Operation, names: Sequence[str], because: str) -> List[Applied]:
        """Ask the platform to reboot or replace nodes that carry our mark. Raises AdapterError."""
        if operation not in self.repairs():
            raise AdapterError(f"none of the vocabularies in use can ask for a {operation.value}")

        def plan(node: Mapping[str, object]) -> List[Op]:
            state = self.state(node)
            if state.hold or state.available or state.mark is None or not state.mark.ours:
                raise _Declined(Effect.REFUSED, state.hold or "our mark does not keep it out")
            mark = state.mark if state.mark.action.value == operation.value else state.mark._replace(why=because)
            return plan_mark(node, mark, self.treatment, repair=operation.value)

        return self._apply_all(dict.fromkeys(names, plan))

    def release(self, names: Sequence[str], bad: Bad, now: float, by: str = "") -> List[Applied]:
        """Put back in service by a person's decision: our marks are removed, and present faults are overruled until
        they have ended once.

        A person who uncordoned a node (`kubectl uncordon`) has decided so; then this takes off what is left, unless the
        node has been marked again since it was seen. `by` names a person who asks for it without having uncordoned it.
        """

        def plan(node: Mapping[str, object]) -> List[Op]:
            state = self.state(node)
            if read_own_mark(node) is None:
                raise _Declined(*may_clear(state))
            if not by and not released(node):
                raise _Declined(Effect.REFUSED, "nobody has put it back: the mark is a new one")
            if state.hold and read_manual(node) is None:
                raise _Declined(Effect.REFUSED, left_alone(state))
            patch = clear_patch(node, self.treatment)
            left = overrule(node, bad | set(map(_pair, read_sources(node))), now, by)
            patch.annotations[OVERRULED] = left.text() if left is not None else None
            asked = [source for source in read_sources(node) if source in ASKED_FOR]
            if asked:
                patch.annotations[PUT_BACK] = " ".join(asked)
            return patch.ops()

        return self._apply_all(dict.fromkeys(names, plan))

    def say(
        self, conditions: Mapping[str, Sequence[Condition]], objects: Mapping[str, Mapping[str, Any]]
    ) -> List[Applied]:
        """Write conditions; by node. A node that is not any more as in `objects`, from which they were judged, is
        refused: its agent may have written what it is about.
        """

        def write(name: str) -> Applied:
            try:
                write_conditions(self.client, name, conditions[name], str(objects[name]["metadata"]["resourceVersion"]))
            except AdapterError as error:
                if isinstance(error, ApiError) and error.status == 409:
                    return Applied(name, Effect.REFUSED, "it has changed since it was judged")
                return Applied(name, Effect.FAILED, str(error))
            return Applied(name, Effect.CHANGED)

        return self.each(list(conditions), write)

    def move_work(self, names: Sequence[str]) -> List[Applied]:
        """Let the work of dead nodes start elsewhere; as `nhc.marks.ports.adapter.MovesWork`."""
        return self._apply_all(dict.fromkeys(names, plan_move_work))

    def work_back(self, names: Sequence[str]) -> List[Applied]:
        """Let work run again on nodes whose kubelet reports again."""
        return self._apply_all(dict.fromkeys(names, plan_work_back))

    def annotate(self, texts: Mapping[str, Mapping[str, Optional[str]]]) -> List[Applied]:
        """Set or remove (None) annotations of ours; by node."""
        return self._apply_all({name: partial(plan_annotations, texts=own) for name, own in texts.items()})

    def apply(self, name: str, plan: Plan, seen: Optional[Mapping[str, Any]] = None) -> Applied:
        try:
            after = apply(self.client, name, plan, seen)
        except _Declined as declined:
            return Applied(name, declined.effect, declined.why)
        except ApiError as error:
            if error.status == 404:
                return Applied(name, Effect.FAILED, "not a node that the cluster knows")
            return Applied(name, Effect.FAILED, str(error))
        except Unreachable as error:
            self._unreachable.append(error)
            return Applied(name, Effect.FAILED, str(error))
        if after is None:
            return Applied(name, Effect.UNCHANGED, "already so")
        self.changed[name] = after
        return Applied(name, Effect.CHANGED)

    def _apply_all(
        self, plans: Mapping[str, Plan], seen: Optional[Mapping[str, Mapping[str, Any]]] = None
    ) -> List[Applied]:
        """The plans of nodes, several at a time. Raises Unreachable when the server answered for none of them."""
        self._unreachable.clear()
        applied = self.each(list(plans), lambda name: self.apply(name, plans[name], (seen or {}).get(name)))
        if self._unreachable and all(result.effect is Effect.FAILED for result in applied):
            raise self._unreachable[0]
        return applied

    def each(self, items: Sequence[T], work: Callable[[T], R]) -> List[R]:
        """What comes of the work on each, several at a time, in their order."""
        if len(items) < 2:
            return [work(item) for item in items]
        if self._pool is None:  # threads are made as they are needed, up to the limit, and stay
            self._pool = ThreadPoolExecutor(IN_FLIGHT, thread_name_prefix="nhc-kubernetes")
        return list(self._pool.map(work, items))

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None
        self.client.close()


def _compare(judged: Optional[Mapping[str, Any]], node: Mapping[str, Any]) -> None:
    """Raises _Declined where a node is another, or its conditions or what a person overruled differ from what was
    judged: we may have been stopped in between, and another has led since.
    """
    if judged is None or judged is node:
        return
    was, now = read_conditions(judged), read_conditions(node)
    if (
        judged["metadata"].get("uid") != node["metadata"].get("uid")
        or annotations_of(judged).get(OVERRULED) != annotations_of(node).get(OVERRULED)
        or any(kind not in now or now[kind].status != condition.status for kind, condition in was.items())
    ):
        raise _Declined(Effect.FAILED, "it has changed since it was judged")


def _pair(source: str) -> Tuple[str, str]:
    kind, _, status = source.partition("=")
    return kind, status
