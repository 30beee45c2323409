// For kube-prometheus, and whoever else builds with jsonnet:
//   local nhc = import 'nhc/mixin.libsonnet';
// `_config.runbooks` is the address of alerts.md at your site, as https://wiki.example.org/nhc: each alert
// then has a `runbook_url`. The annotation `runbook` names the page and its heading in any case.
{
  _config+:: { runbooks: '' },
  local config = self._config,
  local named(rule) = if config.runbooks == '' then rule
    else rule { annotations+: { runbook_url: config.runbooks + '#' + std.asciiLower(rule.alert) } },
  prometheusAlerts+:: {
    groups+: [group { rules: [named(rule) for rule in group.rules] } for group in (import 'alerts.json').groups],
  },
  grafanaDashboards+:: {
    'nhc-fleet.json': (import 'dashboards/fleet.json'),
    'nhc-node.json': (import 'dashboards/node.json'),
    'nhc-remedies.json': (import 'dashboards/remedies.json'),
    'nhc-agent.json': (import 'dashboards/agent.json'),
  },
}
