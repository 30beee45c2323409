# Copyright the nhc authors
# SPDX-License-Identifier: Apache-2.0
"""Commands that end in time: AnsibleModule.run_command has no deadline, and waits for pipes that a stuck child keeps."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile

LARGEST = 64 << 20  # bytes of output kept


class Overdue(Exception):
    """The command did not end in time. It was killed, or left where it cannot be."""


def run_until(argv, seconds, environ=None):
    """Run a command in a session of its own, for `seconds` at most. Its status, output and errors. Raises Overdue.

    What it says goes to files, not pipes: a child stuck in the kernel would keep a pipe open for good.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        with open(os.devnull, "rb") as nothing:
            process = subprocess.Popen(argv, stdin=nothing, stdout=out, stderr=err, env=environ, start_new_session=True)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            try:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(1)
            except (OSError, subprocess.TimeoutExpired):
                pass
            raise Overdue(argv[0])
        said = []
        for file in (out, err):
            file.seek(0)
            said.append(file.read(LARGEST).decode("utf-8", "replace"))
    return process.returncode, said[0], said[1]
