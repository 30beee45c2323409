"""What the cluster's side finds itself, written as conditions of its nodes: device errors in pod logs, kernel lines.

A finding that stands is written once, however often it is read; one that was acknowledged is not written.
"""

from __future__ import annotations

import re
import threading
from dataclasses import replace
from typing import Any, Callable, Dict, Iterable, List, Mapping

from nhc.core.system.service_log import problem
from nhc.marks.ports.adapter import AdapterError
from nhc_adapters.kubernetes.api.client import Client
from nhc_adapters.kubernetes.controller.acknowledged import FINDINGS, acknowledge, acknowledged, read_findings, record
from nhc_adapters.kubernetes.controller.podlogs import Reader
from nhc_adapters.kubernetes.controller.preflights import PreflightReader
from nhc_adapters.kubernetes.controller.settings import ControllerSettings
from nhc_adapters.kubernetes.nodes.boots import boot_id
from nhc_adapters.kubernetes.nodes.conditions import (
    FALSE,
    JOB_ERROR,
    PREFLIGHT_FAILED,
    TRUE,
    Condition,
    read_conditions,
    write_conditions,
)
from nhc_adapters.kubernetes.nodes.marks import apply, plan_annotations
from nhc_adapters.kubernetes.nodes.own_marks import annotations_of
from nhc_adapters.kubernetes.nodes.view import node_state

OF_A_BOOT = (JOB_ERROR, PREFLIGHT_FAILED)
"""Conditions that end with the boot in which they were found; their message names it."""

_TAGS = re.compile(r"(?: \[(?:device|action): [^\]]*\])*$")

Node = Mapping[str, Any]


class Detections:
    """Writes them. `objects` are the nodes as last seen, `held` says whether we may act."""

    def __init__(
        self,
        client: Client,
        settings: ControllerSettings,
        objects: Mapping[str, Node],
        held: Callable[[], bool],
        clock: Callable[[], float],
        log: Callable[[str], None],
    ) -> None:
        self.client, self.settings, self.objects = client, settings, objects
        self.held, self.clock, self.log = held, clock, log
        self._unwritten: Dict[str, Dict[str, Condition]] = {kind: {} for kind in OF_A_BOOT}
        """What could not be written of each condition yet, by node."""

    def read_pods(self, stop: threading.Event) -> None:
        """Look at pod logs until `stop` is set. For a thread of its own."""
        reader = Reader(self.client, self.settings.podlogs, self.log, acknowledged=self.acknowledged_of(JOB_ERROR))
        while not stop.wait(self.settings.podlogs.every):
            if self.held():
                self.say_of_pods(reader.look(), reader.excused)

    def read_preflights(self, stop: threading.Event) -> None:
        """Look at pods with a preflight until `stop` is set. For a thread of its own."""
        settings = self.settings.preflight
        reader = PreflightReader(
            self.client, settings, self.log, self._is_out, self.acknowledged_of(PREFLIGHT_FAILED), self.settings.apply
        )
        while not stop.wait(settings.every):
            if self.held():
                self.say_of_pods(reader.look(self.clock()), {}, PREFLIGHT_FAILED)

    def _is_out(self, name: str) -> bool:
        node = self.objects.get(name)
        return node is not None and not node_state(node).available

    def acknowledged_of(self, kind: str) -> Callable[[str], Mapping[str, float]]:
        """What was acknowledged of one condition, by node."""
        return lambda name: acknowledged(self.objects.get(name) or {}, kind)

    def standing_of(self, kind: str) -> Callable[[str], Mapping[str, float]]:
        """What a condition that is bad stands on, by node."""

        def standing(name: str) -> Mapping[str, float]:
            node = self.objects.get(name) or {}
            condition = read_conditions(node).get(kind)
            is_bad = condition is not None and condition.status == TRUE
            return read_findings(node, FINDINGS).get(kind, {}) if is_bad else {}

        return standing

    def say_of_pods(
        self, blamed: Mapping[str, Condition], excused: Mapping[str, Iterable[str]], kind: str = JOB_ERROR
    ) -> None:
        """Say what is new of the nodes that are blamed, and take it back where the job turned out to be at fault."""
        unwritten = self._unwritten[kind]
        for name, condition in blamed.items():
            node = self.objects.get(name)
            if node is None:
                continue
            standing = read_findings(node, FINDINGS).get(kind, {})
            if not set(condition.findings) <= set(standing.items()):
                findings = tuple({**standing, **dict(condition.findings)}.items())
                message = _in_boot(condition.message, boot_id(node)[:8])
                unwritten[name] = replace(condition, message=message, findings=findings)
        for name, places in excused.items():
            standing = read_findings(self.objects.get(name) or {}, FINDINGS).get(kind, {})
            if standing and name not in unwritten and set(standing) <= set(places):
                text = "the same job failed so on other nodes at the same time: the job is at fault"
                unwritten[name] = Condition(kind, FALSE, "JobAtFault", text)
        failed = self.say(unwritten)
        self._unwritten[kind] = {name: condition for name, condition in unwritten.items() if name in failed}

    def say(self, conditions: Mapping[str, Condition]) -> List[str]:
        """Write conditions of nodes that there are. Returns the nodes whose could not be written."""
        failed: List[str] = []
        for name, condition in conditions.items():
            node = self.objects.get(name)
            if node is None:
                continue
            standing = read_conditions(node).get(condition.type)
            same = standing is not None and standing.status == condition.status
            if same and condition.status == FALSE:
                continue  # why it ended, as by whom, is not to be written over
            known = read_findings(node, FINDINGS).get(condition.type, {})
            if condition.says_the_same(standing) and known == dict(condition.findings):
                continue
            if not self.settings.apply:
                self.log(f"dry run: would set {condition.type}={condition.status} on {name}: {condition.message}")
                continue
            now = self.clock()
            since = standing.since if same and standing is not None else now
            try:
                # First what it stands on: whoever reads the condition can then acknowledge all of it.
                self._annotate(name, condition)
                write_conditions(self.client, name, [replace(condition, since=since, seen=now)])
                self.log(f"{name}: {condition.type}={condition.status}: {condition.message}")
            except AdapterError as error:
                self.log(problem(f"{name}: {condition.type} could not be set: {error}"))
                failed.append(name)
        return failed

    def _annotate(self, name: str, condition: Condition) -> None:
        places = dict(condition.findings) if condition.status == TRUE else {}
        apply(self.client, name, lambda node: plan_annotations(node, record(node, condition.type, places)))

    def clear_after_restart(self, crit: Iterable[str]) -> None:
        """What was found in a boot ends with it: the restart was the repair, and covers it for good."""
        if not ((self.settings.podlogs.namespaces or self.settings.preflight.on) and self.settings.apply):
            return
        reporting = [name for name, node in list(self.objects.items()) if FINDINGS in annotations_of(node)]
        for name in {*crit, *reporting}:
            node = self.objects.get(name) or {}
            conditions, boot = read_conditions(node), boot_id(node)[:8]
            for kind in OF_A_BOOT:
                standing = conditions.get(kind)
                if standing is None or standing.status != TRUE or not boot or "(boot " not in standing.message:
                    continue
                if f"(boot {boot})" not in standing.message and self.held():
                    try:
                        acknowledge_on(self.client, name, (kind,), self.clock())
                    except AdapterError as error:
                        self.log(problem(f"{name}: {kind} could not be acknowledged: {error}"))
                        continue
                    self.say({name: Condition(kind, FALSE, "NodeRestarted", "the node was restarted")})


def _in_boot(message: str, boot: str) -> str:
    """A message with the boot that it speaks of, before its tags, which are last."""
    if not boot:
        return message
    tags = _TAGS.search(message)
    at = tags.start() if tags else len(message)
    return f"{message[:at]} (boot {boot}){message[at:]}"


def acknowledge_on(client: Client, name: str, kinds: Iterable[str], now: float) -> None:
    """Acknowledge on a node all findings of these conditions. Raises AdapterError."""
    wanted = tuple(kinds)
    apply(client, name, lambda node: plan_annotations(node, acknowledge(node, wanted, now)))
