"""What the controller itself finds, written as conditions of nodes: device errors in pod logs, kernel lines.

An active finding is written once, however often it is read; an acknowledged one is not written.
"""

from __future__ import annotations

import re
import threading
from dataclasses import replace
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional

from nhc.core.system.service_log import problem
from nhc.marks.ports.adapter import AdapterError
from nhc_adapters.kubernetes.api.client import Client
from nhc_adapters.kubernetes.controller.acknowledged import FINDINGS, acknowledge, acknowledged, read_findings, record
from nhc_adapters.kubernetes.controller.context import RoundContext
from nhc_adapters.kubernetes.controller.loki_watch import KernelLogs, LokiWatch
from nhc_adapters.kubernetes.controller.podlogs import Reader
from nhc_adapters.kubernetes.controller.preflights import PreflightReader
from nhc_adapters.kubernetes.nodes.boots import boot_id
from nhc_adapters.kubernetes.nodes.conditions import (
    FALSE,
    JOB_ERROR,
    KERNEL_LOG,
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
    """Writes them."""

    def __init__(self, context: RoundContext) -> None:
        self.context = context
        self.loki: Optional[LokiWatch] = None
        if context.settings.loki.url:
            logs = KernelLogs(self.acknowledged_of(KERNEL_LOG), self.standing_of(KERNEL_LOG))
            self.loki = LokiWatch(context, self.say, logs)
        self._unwritten: Dict[str, Dict[str, Condition]] = {kind: {} for kind in OF_A_BOOT}
        """What could not be written of each condition yet, by node."""

    def read_pods(self, stop: threading.Event) -> None:
        """Look at pod logs until `stop` is set. For a thread of its own."""
        context, settings = self.context, self.context.settings.podlogs
        reader = Reader(context.client, settings, context.log, acknowledged=self.acknowledged_of(JOB_ERROR))
        while not stop.wait(settings.every):
            if context.allowed():
                self.say_of_pods(reader.look(), reader.excused)

    def read_preflights(self, stop: threading.Event) -> None:
        """Look at pods with a preflight until `stop` is set. For a thread of its own."""
        context, settings = self.context, self.context.settings.preflight
        acknowledged, apply = self.acknowledged_of(PREFLIGHT_FAILED), context.settings.apply
        reader = PreflightReader(context.client, settings, context.log, self._is_out, acknowledged, apply)
        while not stop.wait(settings.every):
            if context.allowed():
                self.say_of_pods(reader.look(context.clock()), {}, PREFLIGHT_FAILED)

    def _is_out(self, name: str) -> bool:
        node = self.context.objects.get(name)
        return node is not None and not node_state(node).available

    def acknowledged_of(self, kind: str) -> Callable[[str], Mapping[str, float]]:
        """What was acknowledged of one condition, by node."""
        return lambda name: acknowledged(self.context.objects.get(name) or {}, kind)

    def standing_of(self, kind: str) -> Callable[[str], Mapping[str, float]]:
        """The findings of a bad condition, by node."""

        def standing(name: str) -> Mapping[str, float]:
            node = self.context.objects.get(name) or {}
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
            node = self.context.objects.get(name)
            if node is None:
                continue
            standing = read_findings(node, FINDINGS).get(kind, {})
            if not set(condition.findings) <= set(standing.items()):
                findings = tuple({**standing, **dict(condition.findings)}.items())
                message = _in_boot(condition.message, boot_id(node)[:8])
                unwritten[name] = replace(condition, message=message, findings=findings)
        for name, places in excused.items():
            standing = read_findings(self.context.objects.get(name) or {}, FINDINGS).get(kind, {})
            if standing and name not in unwritten and set(standing) <= set(places):
                text = "the same job failed so on other nodes at the same time: the job is at fault"
                unwritten[name] = Condition(kind, FALSE, "JobAtFault", text)
        failed = self.say(unwritten)
        self._unwritten[kind] = {name: condition for name, condition in unwritten.items() if name in failed}

    def say(self, conditions: Mapping[str, Condition]) -> List[str]:
        """Write conditions of nodes that there are. Returns the nodes whose could not be written."""
        failed: List[str] = []
        for name, condition in conditions.items():
            node = self.context.objects.get(name)
            if node is None:
                continue
            standing = read_conditions(node).get(condition.type)
            same = standing is not None and standing.status == condition.status
            if same and condition.status == FALSE:
                continue  # why it ended, as by whom, is not to be written over
            known = read_findings(node, FINDINGS).get(condition.type, {})
            if condition.says_the_same(standing) and known == dict(condition.findings):
                continue
            if not self.context.settings.apply:
                self.context.log(
                    f"dry run: would set {condition.type}={condition.status} on {name}: {condition.message}"
                )
                continue
            now = self.context.clock()
            since = standing.since if same and standing is not None else now
            try:
                # First its findings: who reads the condition can then acknowledge all of them.
                self._annotate(name, condition)
                write_conditions(self.context.client, name, [replace(condition, since=since, seen=now)])
                self.context.log(f"{name}: {condition.type}={condition.status}: {condition.message}")
            except AdapterError as error:
                self.context.log(problem(f"{name}: {condition.type} could not be set: {error}"))
                failed.append(name)
        return failed

    def _annotate(self, name: str, condition: Condition) -> None:
        places = dict(condition.findings) if condition.status == TRUE else {}
        apply(self.context.client, name, lambda node: plan_annotations(node, record(node, condition.type, places)))

    def clear_after_restart(self, crit: Iterable[str]) -> None:
        """What was found in a boot ends with it: the restart was the repair, and covers it for good."""
        if not (
            (self.context.settings.podlogs.namespaces or self.context.settings.preflight.on)
            and self.context.settings.apply
        ):
            return
        reporting = [name for name, node in list(self.context.objects.items()) if FINDINGS in annotations_of(node)]
        for name in {*crit, *reporting}:
            node = self.context.objects.get(name) or {}
            conditions, boot = read_conditions(node), boot_id(node)[:8]
            for kind in OF_A_BOOT:
                standing = conditions.get(kind)
                if standing is None or standing.status != TRUE or not boot or "(boot " not in standing.message:
                    continue
                if f"(boot {boot})" not in standing.message and self.context.allowed():
                    try:
                        acknowledge_on(self.context.client, name, (kind,), self.context.clock())
                    except AdapterError as error:
                        self.context.log(problem(f"{name}: {kind} could not be acknowledged: {error}"))
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
