"""`python -m nhc`: the same command as the `nhc` executable, but for a SIGINT while Python itself starts.

Python answers that one with a traceback and status 1, before anything of nhc is read. The executable has no such
moment (`nhc/core/launch/nhc` starts Python without site), so hooks and units start the executable.
"""

import _signal  # type: ignore[import-not-found]

if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)  # until `entry` takes it

from nhc.cli.main import entry

if __name__ == "__main__":
    entry()
