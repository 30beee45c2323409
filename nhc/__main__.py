"""`python -m nhc`: the same command as the `nhc` executable."""

import _signal  # type: ignore[import-not-found]

if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)  # until `entry` takes it

from nhc.cli.main import entry

if __name__ == "__main__":
    entry()
