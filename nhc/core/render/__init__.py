"""A report as text, JSON, a Nagios plugin line, a node-problem-detector plugin line, Prometheus."""
