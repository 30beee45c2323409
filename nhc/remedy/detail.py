"""The rest of an episode besides its columns: JSON in the store's `episodes.detail`, read and written only here."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any, Mapping, NamedTuple, Sequence, Tuple

from nhc.core.json_values import parse_object
from nhc.core.model import Action, DeviceId, printable
from nhc.marks.ports.repair import Rung
from nhc.remedy.ladder import NodeFault, Skipped

FAULTS = 20
"""The largest number of faults that an episode stores for its node."""

KEPT = 1 << 14
"""Details that are cached: each round reads those of all open episodes several times."""


class Detail(NamedTuple):
    """Times are Unix seconds, 0.0 for not yet.

    `entered` is when the state was entered, `marked` when our mark was set, `repaired` when the last repair's effect
    was seen, `healthy` the time of the first report in a row that says healthy, `proved_boot` the boot of these
    reports. `waiting` says what holds the episode,
    since `waiting_since`; `alarmed` is when a wait was last called stalled. `device` and `repairer` belong to the rung
    of the row. `ask_after` is when to ask again for a rung for which no repairer can be asked now, `not_now` since when
    it waits for that. `again` are the numbers of attempts that the machine itself prevented, `unsent` of those that
    were never begun: we did not send them, or the other side accepted none. `denied` is the missing permission.
    `stopped`: the loop stopped before it knew whether it had sent the last attempt. `boot` is the boot id before the
    repair, `successor` the node that replaced this one. `replacement` is the provider's name of the machine that
    replaced this one's, until it is known which node that is. `heard` is when a silent node first reported again: an
    earlier report proves nothing. `forced` says that the repair goes on although work runs. `because` says why the
    episode ended. `asked` is when approval was asked for. `followed` counts the further calls of a repair that takes
    several; `follow_id` and `follow_message` are the answer to the last of them, or to a first call that is ambiguous.
    `relapses` is how often the node recovered and failed again, `disproved` when its deep suite last failed. `uid`
    names the registration of the node that was marked. `kept_out` is when our mark was set again, or seen, on a node
    that was replaced. `ended_by` is the event that ended the episode. `evidence` is when evidence was collected before
    the mark. `moved` is when its work was allowed to start elsewhere. `cancelled` is when the loop saw that a person
    had cancelled the last repair, `failed` the repairer's message when it failed. `reclaimed` is the boot id of the
    machine that the cloud takes away, "?" if unknown, until a report takes that back. Of maintenance: `why` says what
    it is for, `hold` is the number of the hold that keeps repairs off the node, `put_back` is why the node is put back
    with nothing done to it. Of one accelerator: `about` names it while the episode is about it alone; `widened` is the
    one whose mark the node's mark replaces, until the node's mark is set and the accelerator's is removed.
    """

    faults: Tuple[NodeFault, ...] = ()
    entered: float = 0.0
    marked: float = 0.0
    repaired: float = 0.0
    healthy: float = 0.0
    proved_boot: str = ""
    waiting: str = ""
    waiting_since: float = 0.0
    alarmed: float = 0.0
    device: str = ""
    repairer: str = ""
    skipped: Tuple[Skipped, ...] = ()
    ask_after: float = 0.0
    not_now: float = 0.0
    denied: str = ""
    stopped: bool = False
    again: Tuple[int, ...] = ()
    unsent: Tuple[int, ...] = ()
    boot: str = ""
    successor: str = ""
    replacement: str = ""
    forced: bool = False
    because: str = ""
    asked: float = 0.0
    followed: int = 0
    follow_id: str = ""
    follow_message: str = ""
    relapses: int = 0
    disproved: float = 0.0
    heard: float = 0.0
    uid: str = ""
    kept_out: float = 0.0
    evidence: float = 0.0
    ended_by: str = ""
    moved: float = 0.0
    cancelled: float = 0.0
    failed: str = ""
    reclaimed: str = ""
    why: str = ""
    hold: int = 0
    put_back: str = ""
    about: DeviceId = DeviceId()
    widened: DeviceId = DeviceId()

    def text(self) -> str:
        """As JSON, without default values."""
        default = Detail()
        value: dict[str, object] = {
            name: item for name, item in self._asdict().items()
            if name not in ("faults", "skipped") and item != getattr(default, name)
        }  # fmt: skip
        if self.faults:
            value["faults"] = [_written(fault) for fault in self.faults]
        if self.skipped:
            value["skipped"] = [[skip.rung.value, skip.device, skip.why] for skip in self.skipped]
        return json.dumps(value, sort_keys=True, separators=(",", ":"))

    @property
    def node_marked(self) -> float:
        """When the node itself was marked: an episode about one accelerator leaves its node at work."""
        return 0.0 if self.about.known or self.widened.known else self.marked

    def marked_another(self, uid: str) -> bool:
        """Whether the marked registration differs from this one, if both are known."""
        return bool(self.uid and uid) and self.uid != uid

    def joined(self, faults: Tuple[NodeFault, ...]) -> Detail:
        """With new faults added; a known fault is updated."""
        by_cause = {fault.cause: fault for fault in self.faults}
        for fault in faults:
            if fault.cause in by_cause or len(by_cause) < FAULTS:
                by_cause[fault.cause] = fault
        return self._replace(faults=tuple(by_cause.values()))


class BadDetail(ValueError):
    """The detail cannot be read: nothing may be done with its episode."""


@lru_cache(maxsize=KEPT)
def read(text: str) -> Detail:
    """The detail in a row. Raises BadDetail: a state that makes no sense stops the episode; it does not begin again."""
    try:
        value = parse_object(text)
        faults = tuple(_fault(item) for item in value.pop("faults", ()))
        skipped = tuple(Skipped(Rung(rung), str(device), str(why)) for rung, device, why in value.pop("skipped", ()))
        again, unsent = (tuple(map(int, value.pop(name, ()))) for name in ("again", "unsent"))
        about, widened = (_device(value.pop(name, ())) for name in ("about", "widened"))
        plain = {name: _kept(name, kept) for name, kept in value.items()}
        return Detail(**plain)._replace(
            faults=faults, skipped=skipped, again=again, unsent=unsent, about=about, widened=widened
        )
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise BadDetail(f"its detail cannot be read: {printable(str(error), 200)}") from None


def read_or_empty(text: str) -> Detail:
    """The same for callers that only show a row: an empty detail if it cannot be read."""
    try:
        return read(text)
    except BadDetail:
        return Detail()


def _kept(name: str, value: object) -> Any:
    wanted = type(getattr(Detail(), name))
    if wanted is float and isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    if type(value) is not wanted:
        raise ValueError(f"{name} is no {wanted.__name__}")
    return value


def _written(fault: NodeFault) -> Mapping[str, object]:
    value = {**fault._asdict(), "action": fault.action.value}
    return value if fault.device.known else {name: field for name, field in value.items() if name != "device"}


def _fault(value: Mapping[str, Any]) -> NodeFault:
    return NodeFault(**{**value, "action": Action(value["action"]), "device": _device(value.get("device", ()))})


def _device(names: Sequence[Any]) -> DeviceId:
    return DeviceId(*(str(name) for name in names))
