"""A real sshd with users of its own: passwords, PAM and sudo, without touching this machine's accounts.

The server has a mount namespace in which /etc/passwd, /etc/shadow, /etc/sudoers and PAM's files are others.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Iterator

from tests.support import ssh
from tests.support.require import need

USER, PASSWORD = "tester", "s3cret word"
UID = 64123

_PAM = "auth required pam_unix.so\naccount required pam_unix.so\nsession required pam_permit.so\n"


@contextlib.contextmanager
def login_server(*, sudoers: str = "", more: str = "PasswordAuthentication yes") -> Iterator[ssh.Server]:
    """An sshd where `tester` may log in with PASSWORD, or with the server's identity; `sudoers` are the rules."""
    need("root", os.geteuid() == 0, "to give a server users of its own")
    need("openssl", shutil.which("openssl"))
    directory = Path(tempfile.mkdtemp(prefix="nhc-login-"))  # tests' own directories cannot be read by other users
    try:
        prepare = _mounts(directory, sudoers)
        with ssh.sshd(directory / "ssh", more=more, prepare=prepare) as server:
            server.trust(["127.0.0.1"])
            server.config.write_text(server.config.read_text().replace("User root", f"User {USER}"))
            yield server
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _mounts(directory: Path, sudoers: str) -> list[str]:
    directory.chmod(0o755)
    (directory / "ssh").mkdir()
    home = directory / "home"
    home.mkdir(mode=0o700)
    shutil.chown(home, UID, UID)
    hashed = subprocess.run(["openssl", "passwd", "-6", "-stdin"], input=PASSWORD, check=True, capture_output=True,
                            text=True).stdout.strip()  # fmt: skip
    files = {
        "/etc/passwd": Path("/etc/passwd").read_text() + f"{USER}:x:{UID}:{UID}::{home}:/bin/sh\n",
        "/etc/shadow": f"root:*:19000:0:99999:7:::\nsshd:*:19000:0:99999:7:::\n{USER}:{hashed}:19000:0:99999:7:::\n",
        "/etc/pam.d/sshd": _PAM,
    }
    if sudoers:
        need("sudo", shutil.which("sudo"))
        files["/etc/pam.d/sudo"] = _PAM
        files["/etc/sudoers"] = f"Defaults env_reset\n{sudoers}\n"
    commands = []
    for number, (path, text) in enumerate(files.items()):
        copy = directory / str(number)
        copy.write_text(text)
        copy.chmod(0o440 if path == "/etc/sudoers" else 0o600 if path == "/etc/shadow" else 0o644)
        commands.append(f"mount --bind {copy} {path}")
    return commands
