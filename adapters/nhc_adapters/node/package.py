"""The program of the node as one file, and the line that starts it from standard input: nothing stays on the node."""

from __future__ import annotations

import base64
import io
import shlex
import zipfile
from importlib import import_module
from typing import Sequence

MODULES = (
    "nhc", "nhc.core", "nhc.core.light", "nhc.core.system", "nhc.core.system.bounded_read", "nhc.core.system.process",
    "nhc.core.system.written_files",
    "nhc_adapters", "nhc_adapters.node", "nhc_adapters.node.hand",
    *(f"nhc_adapters.node.hand.{name}" for name in
      ("amd", "carry_out", "evidence", "journal", "look", "nvidia", "plan", "program", "values")),
)  # fmt: skip
"""What the program consists of."""

START = (
    "import base64,os,sys;fd=os.memfd_create('nhc');os.write(fd,base64.b64decode(sys.stdin.read()));"
    "sys.path.insert(0,'/proc/self/fd/%d'%fd);"
    "from nhc_adapters.node.hand.program import main;sys.exit(main(sys.argv[1:]))"
)
"""Read the archive into memory and run it from there: a file system that is full or read-only is no obstacle."""


def archive() -> str:
    """The sources, packed, in base64; the same text each time."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as file:
        for name in MODULES:
            module = import_module(name)
            package = hasattr(module, "__path__")
            path = name.replace(".", "/") + ("/__init__.py" if package else ".py")
            loader = module.__loader__
            source = loader.get_source(name) if loader is not None and hasattr(loader, "get_source") else None
            if source is None:
                raise FileNotFoundError(2, "the source of a module that is sent to nodes", name)
            file.writestr(zipfile.ZipInfo(path, (1980, 1, 1, 0, 0, 0)), source, zipfile.ZIP_DEFLATED)
    return base64.b64encode(packed.getvalue()).decode()


def command(python: str, arguments: Sequence[str], before: Sequence[str] = ()) -> str:
    """The line for a node's shell. -I: nothing of the user's own is imported; -S: nor the site's."""
    return shlex.join([*before, python, "-I", "-S", "-c", START, *arguments])
