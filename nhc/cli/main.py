"""The nhc command: names and the modules that carry them out.

`nhc check local` and the scheduler hooks run before every job, so they start without click: `main` sends
them straight to their modules. Everything else, help and completion included, goes through the click
application in `nhc.cli.click_app`, whose `check local` is built from the same option table
(`nhc.core.command_line.options`).
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` makes enumerations of it: 0.3 ms
import gc
import os
import sys

import nhc.cli.own_modules  # noqa: F401 (the first: it finds the others)
from nhc.core.command_line.clean_output import clean_streams, forgive_streams
from nhc.core.exit_status import EXIT_HEALTHY, EXIT_UNHEALTHY, EXIT_UNKNOWN, EXIT_USAGE
from nhc.core.light import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any, Callable, Sequence

HOOKS = ("nhc.hooks.commands.prolog", "nhc.hooks.commands.epilog", "nhc.hooks.commands.healthcheck")
"""Entry points that a scheduler runs: a closed output does not change their status."""
FAILED = {"nhc.hooks.commands.prolog": EXIT_HEALTHY, "nhc.hooks.commands.epilog": EXIT_HEALTHY}
"""The status of an entry point after an unexpected error, if it is not EXIT_UNKNOWN: the job starts."""


def entry(run: Callable[[], int] | str = "nhc.cli.main") -> None:
    """An executable: runs `main` of a module, or a function, then exits at once. Python's teardown would cost each run
    3 ms.

    An unexpected error gives one line and a file to report (`nhc.node.run.crash_report`), never a traceback.
    """
    module = run if isinstance(run, str) else run.__module__
    once = one_shot(module, sys.argv[1:])
    if "site" not in sys.modules:  # a launcher's doing
        if once:
            sys.meta_path.append(LateSite)
        else:
            from nhc.core.plugins import import_site

            import_site()
    if once:
        gc.disable()  # a run ends before there is garbage worth collecting; the collections cost 2 ms
    mask = os.umask(0o022)
    if mask & 0o002:  # a mask that blocks others stays as it is; with a mask of 0 every user could write our files
        os.umask(mask)
    try:
        if not once and _signal.getsignal(_signal.SIGINT) == _signal.SIG_DFL:  # the launchers' doing
            _signal.signal(_signal.SIGINT, _signal.default_int_handler)
        # An entry point that runs once leaves SIGINT to the kernel until its checks run
        # (`nhc.core.system.ending_signals`): if the handler raises in a callback, such as the import lock's, Python
        # drops the exception with a traceback, and the run would go on.
        status = _status(module, run)
    except KeyboardInterrupt:
        _signal.signal(_signal.SIGINT, _signal.SIG_IGN)  # a second one does not change how this ends
        status = 130
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except BrokenPipeError:
        status = status or EXIT_UNHEALTHY
    except (OSError, ValueError):
        status = status or EXIT_UNKNOWN  # the output could not be written
    failure = getattr(sys.stdout, "failure", None)
    if failure is not None and module not in HOOKS:  # a hook's status is for its scheduler, even if no one reads
        gone = isinstance(failure, BrokenPipeError)
        status = status or (EXIT_UNHEALTHY if gone else EXIT_UNKNOWN)
        if not gone:
            why = getattr(failure, "strerror", None) or failure
            print(f"nhc: standard output: {why}: not everything could be printed", file=sys.stderr)
    children = sys.modules.get("nhc.core.system.children")
    if children:
        children.reap_all()
    os._exit(status)


class LateSite:
    """The last finder of modules: if no other finds one, it imports `site`, and the others are asked once more."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> Any:
        if path is not None:  # a part of a package that is found
            return None
        from nhc.core.plugins import import_site

        sys.meta_path.remove(LateSite)
        import_site()
        found = (finder.find_spec(name, path, target) for finder in tuple(sys.meta_path))
        return next((spec for spec in found if spec is not None), None)


def _status(module: str, run: Callable[[], int] | str) -> int:
    """Its exit status. After this returns a SIGINT changes nothing. Raises KeyboardInterrupt."""
    try:
        standard_streams()
        clean_streams()
        forgive_streams()
        main_of = __import__(module, fromlist=["main"]).main if isinstance(run, str) else run
        status = main_of()
    except SystemExit as leaving:
        status = leaving.code if isinstance(leaving.code, int) else EXIT_USAGE if leaving.code else EXIT_HEALTHY
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        status = FAILED.get(module, EXIT_UNKNOWN)
        crashed(module, error)
    _signal.signal(_signal.SIGINT, _signal.SIG_IGN)
    return status


def one_shot(module: str, arguments: Sequence[str]) -> bool:
    """Whether an entry point judges this node once and ends: those that run before each job. All others may keep
    running.

    Grid Engine's load sensor, which is `nhc-healthcheck` as well, collects garbage again when it begins to keep
    running.
    """
    return module in HOOKS or (module == "nhc.cli.main" and list(arguments[:2]) == ["check", "local"])


def crashed(module: str, error: BaseException) -> None:
    """Say what went wrong. Never raises."""
    name = module.rpartition(".")[2]
    command = [argument for argument in sys.argv[1:3] if argument.isalpha()] if name == "main" else []
    program = " ".join(["nhc", *command]) if name == "main" else f"nhc-{name}"
    try:
        missing = _missing(error)
        if missing:
            print(f"{program}: {missing}", file=sys.stderr, flush=True)
            return
        from nhc.node.run.crash_report import report_crash

        report_crash(program, error)
    except BaseException:  # not even that can be loaded
        try:
            print(f"nhc: internal error: {type(error).__name__}", file=sys.stderr, flush=True)
        except (OSError, ValueError, MemoryError):
            pass


def _missing(error: BaseException) -> str:
    """The resource that this machine or user has run out of, if that is the only cause; else ""."""
    from nhc.core.system.process import NOTHING_LEFT

    if isinstance(error, OSError) and error.errno in NOTHING_LEFT:
        return error.strerror or str(error)
    if isinstance(error, RuntimeError) and str(error) == "can't start new thread":  # threading has no class for it
        return "no thread is left"
    return ""


def standard_streams() -> None:
    """Open on /dev/null the standard streams that the caller has closed.

    Python has None for them. The next file that is opened, perhaps the state of strikes, would get their number, and a
    command's output would go into it.
    """
    for fd, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            null = os.open(os.devnull, os.O_RDWR)
            if null != fd:
                os.dup2(null, fd)
                os.close(null)
            os.set_inheritable(fd, True)
            setattr(sys, name, open(fd, "r" if fd == 0 else "w", encoding="utf-8", closefd=False))  # noqa: SIM115


def main(argv: list[str] | None = None) -> int:
    """Run the nhc command with `argv` (default: the process's own) and return its exit status."""
    arguments = sys.argv[1:] if argv is None else argv
    try:
        if (
            arguments[:2] == ["check", "local"]
            and not {"-h", "--help"} & {*arguments}
            and "_NHC_COMPLETE" not in os.environ
        ):
            from nhc.node.commands.check_local import main as check_local

            return check_local(arguments[2:])
        if arguments == ["-h"]:  # an option of LBNL NHC, too
            arguments = ["--help"]
        if arguments == ["--version"]:
            from nhc import __version__

            print(f"nhc {__version__}")
            return EXIT_HEALTHY
        if (not arguments or arguments[0][:2] != "--") and "_NHC_COMPLETE" not in os.environ:
            from nhc.node.commands.lbnl_usage import answer

            usage = answer(arguments)
            if usage:
                print(usage, file=sys.stderr)
                return EXIT_USAGE
        return _application(arguments)
    except BrokenPipeError:
        # The reader is gone. Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return EXIT_UNHEALTHY
    except KeyboardInterrupt:
        return 130


def _application(arguments: list[str]) -> int:
    try:
        import click  # noqa: F401
    except ModuleNotFoundError:
        print(
            "nhc: this command needs click: install it (pip install click) or use nhc.pyz, which contains it. "
            "Only `nhc check local` and the scheduler hooks run without it.",
            file=sys.stderr,
        )
        return EXIT_USAGE
    from nhc.cli.click_app import run

    return run(arguments)
