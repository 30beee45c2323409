"""Writes manual and completion of the nhc on the path: `python -m nhc_release.generated DIRECTORY VERSION EPOCH`.

A process of its own, so that the code which is packaged describes itself, and not the code of whoever builds.
"""

from __future__ import annotations

import contextlib
import io
import sys
from pathlib import Path

from nhc_release import completions, manpages

_USAGE_OF = {
    "nhc-prolog": ("prolog", "--help"),
    "nhc-epilog": ("epilog", "--help"),
    "nhc-healthcheck": ("healthcheck", "-h"),
}


def main(directory: str, version: str, epoch: str) -> int:
    """Write man1/*.1 and one file a shell below `directory`."""
    from click.shell_completion import get_completion_class

    from nhc.cli.click_app import application

    into = Path(directory)
    usages = {name: _usage(module, flag) for name, (module, flag) in _USAGE_OF.items()}
    manpages.write(application, usages, version, int(epoch), into / "man1")
    for shell in completions.PLACES:
        kind = get_completion_class(shell)
        assert kind is not None
        (into / shell).write_text(kind(application, {}, "nhc", "_NHC_COMPLETE").source(), encoding="utf-8")
    return 0


def _usage(module: str, flag: str) -> str:
    """What a hook prints when it is asked for help."""
    main = __import__(f"nhc.hooks.commands.{module}", fromlist=["main"]).main
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
        main([flag])
    return said.getvalue()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
