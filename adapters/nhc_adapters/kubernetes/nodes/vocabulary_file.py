"""Reads vocabularies: JSON files beside the adapters, or a site's own.

A mistake is one line that names its place.
"""

from __future__ import annotations

import os
from typing import Any, Dict, List, Mapping, Optional, Tuple

from nhc.core.model import Action
from nhc.core.system.bounded_read import parse_json, read_text
from nhc.core.units import seconds
from nhc_adapters.kubernetes.nodes.conditions import FALSE, KUBELET, TRUE
from nhc_adapters.kubernetes.nodes.vocabulary import (
    EFFECTS,
    KEY,
    PLACE,
    ConditionRule,
    Fault,
    Foreign,
    StateFields,
    Vocabulary,
    read_taint,
)

DIRECTORY = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(__file__))), "data", "kubernetes")

PARTS = {"name", "summary", "source", "conditions", "verdict", "faults", "states", "foreign", "triggers"}

PLACES = frozenset({"why", "reason", "reasons", "types", "action", "trigger", "since", "compact", "details"})
"""What a value of a label or annotation may name in braces."""


class BadVocabulary(ValueError):
    """A vocabulary's file is not valid: one line with the file and the place."""


def known() -> List[str]:
    """The vocabularies that come with nhc."""
    return sorted(name[:-5] for name in os.listdir(DIRECTORY) if name.endswith(".json"))


def load(name: str) -> Vocabulary:
    """A vocabulary by name, or from a file where the name is a path. Raises BadVocabulary."""
    path = name if "/" in name or name.endswith(".json") else os.path.join(DIRECTORY, f"{name}.json")
    try:
        raw = parse_json(read_text(path))
    except FileNotFoundError:
        raise BadVocabulary(f"no vocabulary {name!r} (there are: {', '.join(known())})") from None
    except (OSError, ValueError) as error:
        raise BadVocabulary(f"{path}: {' '.join(str(error).split())}") from None
    if not isinstance(raw, dict):
        raise BadVocabulary(f"{path}: expected an object")
    return _VocabularyReader(path).vocabulary(raw)


class _VocabularyReader:
    """Reads a vocabulary's JSON, so that an error names its place."""

    def __init__(self, path: str) -> None:
        self.path = path

    def fail(self, place: str, expected: str, value: object) -> BadVocabulary:
        return BadVocabulary(f"{self.path}: {place}: {value!r} is not {expected}")

    def text(self, raw: Mapping[str, object], key: str, place: str, default: Optional[str] = None) -> str:
        value = raw.get(key, default)
        if not isinstance(value, str):
            raise self.fail(f"{place}.{key}", "text", value)
        return value

    def texts(self, raw: Mapping[str, object], key: str, place: str) -> Tuple[str, ...]:
        value = raw.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.fail(f"{place}.{key}", "a list of texts", value)
        return tuple(value)

    def objects(self, raw: Mapping[str, Any], key: str, place: str) -> List[Mapping[str, Any]]:
        value = raw.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise self.fail(f"{place}.{key}".lstrip("."), "a list of objects", value)
        return value

    def vocabulary(self, raw: Mapping[str, Any]) -> Vocabulary:
        extra = min(raw.keys() - PARTS, default=None)
        if extra is not None:
            raise self.fail(extra, "a part of a vocabulary", raw[extra])
        states = raw.get("states", {})
        if not isinstance(states, dict):
            raise self.fail("states", "an object", states)
        return Vocabulary(
            self.text(raw, "name", ""),
            self.text(raw, "summary", "", ""),
            tuple(self.condition(row, f"conditions[{n}]") for n, row in enumerate(self.objects(raw, "conditions", ""))),
            tuple(self.fault(row, f"faults[{n}]") for n, row in enumerate(self.objects(raw, "faults", ""))),
            {name: self.state(fields, f"states.{name}") for name, fields in states.items()},
            tuple(self.foreign(row, f"foreign[{n}]") for n, row in enumerate(self.objects(raw, "foreign", ""))),
            {str(key): str(value) for key, value in (raw.get("triggers") or {}).items()},
            self.text(raw, "verdict", "", ""),
        )

    def condition(self, raw: Mapping[str, Any], place: str) -> ConditionRule:
        bad = self.text(raw, "bad", place, TRUE)
        if bad not in (TRUE, FALSE):
            raise self.fail(f"{place}.bad", "True or False", bad)
        good, kind = raw.get("good") or {}, self.text(raw, "type", place)
        if kind in KUBELET:
            raise self.fail(f"{place}.type", "a type of its own: Kubernetes writes this one", kind)
        return ConditionRule(
            kind,
            bad,
            self.texts(raw, "checks", place),
            self.texts(raw, "reasons", place),
            self.texts(raw, "except", place),
            self.texts(raw, "actions", place),
            self.text(good, "reason", f"{place}.good"),
            self.text(good, "message", f"{place}.good", ""),
            self.text(raw, "bad_reason", place, ""),
            self.texts(raw, "lines", place),
        )

    def foreign(self, raw: Mapping[str, object], place: str) -> Foreign:
        taint, label, annotation = (self.text(raw, key, place, "") for key in ("taint", "label", "annotation"))
        return Foreign(self.text(raw, "owner", place), taint, label, annotation, self.texts(raw, "values", place))

    def fault(self, raw: Mapping[str, object], place: str) -> Fault:
        action = self.text(raw, "action", place, Action.INSPECT.value)
        known = [action.value for action in Action]
        if action not in known:
            raise self.fail(f"{place}.action", f"one of {', '.join(known)}", action)
        written = raw.get("for", 0)
        try:
            lasting = seconds(str(written))
        except ValueError:
            raise self.fail(f"{place}.for", "a duration, as in 10m", written) from None
        return Fault(self.text(raw, "type", place), self.text(raw, "status", place, TRUE), lasting, Action(action))

    def state(self, raw: object, place: str) -> StateFields:
        if not isinstance(raw, dict):
            raise self.fail(place, "an object", raw)
        taints = []
        for number, row in enumerate(self.objects(raw, "taints", place)):
            taint = read_taint(row)
            if taint.effect not in EFFECTS or not KEY.fullmatch(taint.key):
                raise self.fail(f"{place}.taints[{number}]", "a taint with key, value and effect", row)
            taints.append(taint)
        maps: Dict[str, Dict[str, str]] = {}
        for kind in ("labels", "annotations"):
            pairs = raw.get(kind, {})
            if not isinstance(pairs, dict):
                raise self.fail(f"{place}.{kind}", "an object", pairs)
            for key, value in pairs.items():
                strange = set(PLACE.findall(str(value))) - PLACES
                if not KEY.fullmatch(key) or not isinstance(value, str) or strange:
                    raise self.fail(
                        f"{place}.{kind}.{key}", f"text with places among {', '.join(sorted(PLACES))}", value
                    )
            maps[kind] = pairs
        return StateFields(tuple(taints), maps["labels"], maps["annotations"])
