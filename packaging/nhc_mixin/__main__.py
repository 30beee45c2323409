"""Write the rules, their runbooks, dashboards and mixin: `python -m nhc_mixin DIRECTORY`.

The content of adapters/prometheus is made by this; a test holds that it is what would be made now.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Dict, List, Optional

from nhc_mixin import alerts, dashboards

MIXIN = """\
// For kube-prometheus, and whoever else builds with jsonnet:
//   local nhc = import 'nhc/mixin.libsonnet';
// `_config.runbooks` is the address of alerts.md at your site, as https://wiki.example.org/nhc: each alert
// then has a `runbook_url`. The annotation `runbook` names the page and its heading in any case.
{
  _config+:: { runbooks: '%s' },
  local config = self._config,
  local named(rule) = if config.runbooks == '' then rule
    else rule { annotations+: { runbook_url: config.runbooks + '#' + std.asciiLower(rule.alert) } },
  prometheusAlerts+:: {
    groups+: [group { rules: [named(rule) for rule in group.rules] } for group in (import 'alerts.json').groups],
  },
  grafanaDashboards+:: {
%s  },
}
"""


def files(runbooks: str = "") -> Dict[str, str]:
    """Every file, by its name within the directory."""
    rules = alerts.rules(runbooks)
    resource = {
        "apiVersion": "monitoring.coreos.com/v1", "kind": "PrometheusRule",
        "metadata": {"name": "nhc", "labels": {"app.kubernetes.io/name": "nhc"}}, "spec": rules,
    }  # fmt: skip
    texts = {
        "alerts.json": _json(rules),
        "alerts.md": alerts.document(),
        "prometheusrule.json": _json(resource),
        "mixin.libsonnet": MIXIN % (
            runbooks, "".join(f"    'nhc-{board.name}.json': (import 'dashboards/{board.name}.json'),\n"
                              for board in dashboards.DASHBOARDS),
        ),
    }  # fmt: skip
    for board in dashboards.DASHBOARDS:
        texts[f"dashboards/{board.name}.json"] = _json(dashboards.value(board))
    return texts


def _json(value: object) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


def main(argv: Optional[List[str]] = None) -> int:
    """Write them all; 1 where a file cannot be written."""
    parser = argparse.ArgumentParser(prog="python -m nhc_mixin", description=__doc__)
    parser.add_argument("directory")
    parser.add_argument("--runbooks", default="", metavar="URL", help="address of alerts.md at your site")
    asked = parser.parse_args(argv)
    made = {os.path.join(asked.directory, name): text for name, text in files(asked.runbooks).items()}
    for path, text in made.items():
        try:
            os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            print(f"{error.filename or path}: {error.strerror or error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
