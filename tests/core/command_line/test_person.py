"""Who gives a command, as the audit logs keep it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.other_user import become
from tests.support.require import need

ROOT = Path(__file__).resolve().parents[3]
NOBODY = 64321  # a number without a name


@pytest.mark.parametrize(
    ("uid", "by", "expected"),
    [(0, "", "ann"), (0, "bo\x1bb", "bo b"), (NOBODY, "", str(NOBODY)), (NOBODY, "eve", "eve")],
)
def test_the_user_behind_sudo_is_believed_of_root_alone(uid, by, expected):
    """Everybody can set $SUDO_USER."""
    need("root", os.geteuid() == 0, "to become another user")
    done = subprocess.run(
        [sys.executable, "-c", f"from nhc.core.command_line.common_options import person; print(person({by!r}))"],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "SUDO_USER": "ann", "PYTHONDONTWRITEBYTECODE": "1"},
        preexec_fn=(lambda: become(uid)) if uid else None, capture_output=True, text=True, check=False, cwd="/",
    )  # fmt: skip
    assert (done.stdout.strip(), done.stderr) == (expected, "")
