# Copyright the nhc authors
# SPDX-License-Identifier: Apache-2.0
"""Reports in nhc's own form: one of a node on which nhc could not run, and what a play needs of any."""

from __future__ import annotations

import time

VERDICTS = ("SKIP", "OK", "WARN", "UNKNOWN", "CRIT")


def not_run(node, reason, message):
    """A report that says why there is none."""
    message = "".join(char if char.isprintable() else " " for char in message)
    now = time.time()
    shown = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + ".%03dZ" % (now % 1 * 1000)
    result = {
        "check": "nhc_fleet", "verdict": "UNKNOWN", "reason": reason, "message": message, "target": "", "action": "none",
        "metrics": [], "evidence": [], "elapsed": 0.0, "source": "", "line": "", "tags": [], "strike": 0, "strikes": 0,
    }  # fmt: skip
    return {
        "schema": 1, "version": "", "host": node, "boot_id": "", "started": now, "started_at": shown, "elapsed": 0.0,
        "verdict": "UNKNOWN", "notes": [], "not_run": 0, "labels": {}, "results": [result],
    }  # fmt: skip


def describe(report):
    """What a play needs of a report without digging in it."""
    bad = [result for result in report["results"] if result["verdict"] in ("WARN", "UNKNOWN", "CRIT")]
    bad.sort(key=lambda result: -VERDICTS.index(result["verdict"]))
    lines = []
    for result in bad:
        target = result.get("target", "")
        shown = " " + target if target and not result.get("message", "").startswith(target) else ""
        lines.append("%s %s%s: %s" % (result["verdict"], result["check"], shown, result.get("message", "")))
    actions = []
    for result in bad:
        action = result.get("action", "none")
        if result["verdict"] == "CRIT" and action != "none" and action not in actions:
            actions.append(action)
    return {
        "verdict": report["verdict"],
        "healthy": report["verdict"] in ("OK", "WARN"),
        "summary": lines,
        "actions": actions,
        "ansible_facts": {"nhc_report": report},
    }
