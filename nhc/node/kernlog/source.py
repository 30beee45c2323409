"""Where a kernel log is read, and the name under which what was read is remembered."""

from __future__ import annotations

from nhc.core.light import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import Tuple

KMSG, JOURNAL, FILE, DMESG = "kmsg", "journal", "syslog", "dmesg"
OTHER = "other"
"""A log that is not the kernel's, named by a rule file: a program's in journald, or a file. Rules alone apply."""
SYSLOG_FILES = ("/var/log/syslog", "/var/log/messages", "/var/log/kern.log")
STORE = "kernel-log"
"""Name of the memory of /dev/kmsg; other sources' begin with it."""
ACKS = "kernel-log-acks"
"""Memory of what was acknowledged, by whom, and of the stores there are."""


class LogSource(NamedTuple):
    """Where a log is: kmsg, journal, or a file in syslog's or dmesg's form. `rules` are rule files to apply as well."""

    kind: str = ""
    path: str = ""
    rules: Tuple[str, ...] = ()

    @property
    def store(self) -> str:
        parts = [part for part in (self.kind, self.path, *self.rules) if part]
        if parts in ([], [KMSG]):
            return STORE
        return f"{STORE}-" + "".join(c if c.isalnum() else "-" for c in "-".join(parts))[-120:]


class BadRules(ValueError):
    """A rule file that cannot be used; the text names the file and what is wrong."""
