// For kube-prometheus, and whoever else builds with jsonnet:
//   local nhc = import 'nhc/mixin.libsonnet';
// `_config.runbooks` is where docs/alerts.md can be read at your site.
{
  _config+:: { runbooks: 'docs/alerts.md' },
  local config = self._config,
  local named(rule) = rule { annotations+: { runbook_url: config.runbooks + '#' + std.asciiLower(rule.alert) } },
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
