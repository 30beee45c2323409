"""The exit statuses of nhc's commands. Nagios and node-problem-detector have others: `nhc.render`."""

EXIT_HEALTHY = 0
EXIT_UNHEALTHY = 1
EXIT_USAGE = 2
"""Wrong usage, or a configuration that cannot be used."""
EXIT_UNKNOWN = 3
"""UNKNOWN: nhc could not judge, or failed itself."""
