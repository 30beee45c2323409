"""What a node's own path may not load, and the wait until a plan is kept."""

import time

from nhc.node.planning.cache import _RACY

#: What costs too much before a job.
LOCAL_PATH_BANNED = {
    "argparse", "asyncio", "click", "dataclasses", "datetime", "decimal", "email", "http", "importlib.metadata",
    "inspect", "logging", "paramiko", "pathlib", "pynvml", "shlex", "socket", "sqlite3", "ssl", "subprocess",
    "tempfile", "threading", "tomllib", "typing", "urllib.parse", "yaml", "zipfile",
}  # fmt: skip

#: Not in the process that waits: the second run has its plan, and the checks are the workers'.
SUPERVISOR_BANNED = LOCAL_PATH_BANNED | {
    "collections", "contextlib", "enum", "fnmatch", "functools", "glob", "json", "re", "signal", "types", "warnings",
    "nhc.core.check", "nhc.core.language.loader", "nhc.core.language.shell_words", "nhc.core.matching.nodeset",
}  # fmt: skip


def settle(path):
    """Wait until the file is old enough for a plan made of it to be kept."""
    while time.time_ns() < path.stat().st_ctime_ns + 2 * _RACY:
        time.sleep(0.005)
