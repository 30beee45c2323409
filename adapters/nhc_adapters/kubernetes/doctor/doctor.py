"""`nhc kubernetes doctor`: what would keep an installation from working, found before it is missed.

It reads and never writes. Each finding is a line: `ok`, `warn`, `problem`, or `unknown` where the user who asks may
not look. What is wrong says what to do about it.
"""

from __future__ import annotations

import json
import time
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from nhc.ports import AdapterError
from nhc_adapters.kubernetes.api.client import Client, namespaced
from nhc_adapters.kubernetes.api.errors import ApiError
from nhc_adapters.kubernetes.controller.settings import Settings

OK, WARN, PROBLEM, UNKNOWN = "ok", "warn", "problem", "unknown"

SHOWN = 5
"""Names listed; the others are counted."""


class Finding(NamedTuple):
    """One thing found. `advice` is what to do about it."""

    level: str
    topic: str
    text: str
    advice: str = ""


class Installation:
    """What is installed in a cluster, read once. What may not be read is a finding and stays empty."""

    def __init__(
        self, client: Client, namespace: str, settings: Settings, now: Callable[[], float] = time.time
    ) -> None:
        self.client, self.namespace, self.settings, self.now = client, namespace, settings, now
        self.unread: List[Finding] = []
        apps = namespaced(namespace, "{}", group="apis/apps/v1")
        chosen = {"labelSelector": settings.selector} if settings.selector else {}
        self.nodes = self.list("nodes", "/api/v1/nodes", **chosen)
        own = {"labelSelector": "app.kubernetes.io/name=nhc"}
        self.agents = self.list("agents", apps.format("daemonsets"), **own)
        self.deployments = self.list("controller", apps.format("deployments"), **own)
        self.configmaps = {
            str(one["metadata"]["name"]): one.get("data") or {}
            for one in self.list("settings", namespaced(namespace, "configmaps"))
        }

    def list(self, topic: str, path: str, **query: str) -> List[Dict[str, Any]]:
        try:
            return list(self.client.items(path, **query))
        except ApiError as error:
            self.unread.append(Finding(UNKNOWN, topic, f"cannot be looked at: {error}"))
            return []

    def get(self, topic: str, path: str) -> Optional[Dict[str, Any]]:
        """An object, None where there is none or it may not be read (which is noted)."""
        try:
            return self.client.get(path)
        except ApiError as error:
            if error.status != 404:
                self.unread.append(Finding(UNKNOWN, topic, f"cannot be looked at: {error}"))
            return None

    def readable(self, topic: str) -> bool:
        return all(one.topic != topic for one in self.unread)


Check = Callable[[Installation], Iterator[Finding]]


def examine(client: Client, namespace: str, settings: Settings) -> List[Finding]:
    """All findings. Raises AdapterError where the cluster cannot be used at all."""
    from nhc_adapters.kubernetes.doctor import controller, nodes

    installation = Installation(client, namespace, settings)
    checks: Tuple[Check, ...] = (*controller.CHECKS, *nodes.CHECKS)
    found: List[Finding] = []
    for check in checks:
        try:
            found += check(installation)
        except ApiError as error:
            topic = check.__name__.replace("_", " ")
            found.append(Finding(UNKNOWN, topic, f"cannot be looked at: {error}"))
    return list(dict.fromkeys([*installation.unread, *found]))


def names(many: Sequence[str]) -> str:
    """A few names, and how many more."""
    chosen = sorted(many)
    more = f" and {len(chosen) - SHOWN} more" if len(chosen) > SHOWN else ""
    return f"{', '.join(chosen[:SHOWN])}{more}"


def as_text(found: Sequence[Finding]) -> str:
    width = max((len(one.topic) for one in found), default=0)
    lines = []
    for one in found:
        lines.append(f"{one.level:7}  {one.topic:{width}}  {one.text}")
        if one.advice:
            lines.append(f"{'':7}  {'':{width}}  -> {one.advice}")
    problems = sum(1 for one in found if one.level == PROBLEM)
    warnings = sum(1 for one in found if one.level in (WARN, UNKNOWN))
    lines.append(f"{problems} problems, {warnings} warnings")
    return "\n".join(lines) + "\n"


def as_json(found: Sequence[Finding]) -> str:
    return json.dumps([one._asdict() for one in found], indent=2) + "\n"


def sick(found: Sequence[Finding]) -> bool:
    return any(one.level == PROBLEM for one in found)


__all__ = ["AdapterError", "Finding", "Installation", "as_json", "as_text", "examine", "sick"]
