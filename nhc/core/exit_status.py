"""The exit statuses of nhc's commands, and the exception that carries one.

Nagios and node-problem-detector have others: `nhc.core.render`.
"""

EXIT_HEALTHY = 0
EXIT_UNHEALTHY = 1
EXIT_USAGE = 2
"""Wrong usage, or a configuration that cannot be used."""
EXIT_UNKNOWN = 3
"""UNKNOWN: nhc could not judge, or failed itself."""


class ExpectedError(Exception):
    """Ends a command before it has done its work: the text is one line for a person, `status` the exit status.

    EXIT_UNKNOWN for a store, an adapter or a file that cannot be used now; EXIT_USAGE for settings, and for what they
    and the command line name.
    """

    status = EXIT_UNKNOWN
