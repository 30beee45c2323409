"""The output of `nhc-healthcheck`: LBNL NHC's lines in its log, on standard output and in syslog."""

from __future__ import annotations

import os

from nhc.core.language import lbnl_settings
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import CheckResult, describe, printable

if TYPE_CHECKING:
    from typing import Mapping, Sequence


def lbnl_text(result: CheckResult) -> str:
    """A result in LBNL NHC's form: `check_fs_mount:  /scratch not mounted`."""
    return printable(describe(result, ":  "))


class LbnlOutput:
    """Writes LBNL NHC's lines to its log, the caller's standard output, syslog. `warnings` go to the log first."""

    def __init__(self, settings: Mapping[str, str], warnings: Sequence[str] = ()) -> None:
        self.name = settings["NAME"]
        self.silent = settings["SILENT"] == "1"
        self._mute = False
        self.is_verbose = settings["VERBOSE"] == "1" or settings["DEBUG"] == "1"
        target = lbnl_settings.LogFile() if "EVAL_LINE" in settings else lbnl_settings.log_target(settings["LOGFILE"])
        self.fd = -1
        if target.path:
            mode = os.O_WRONLY | os.O_CREAT | (os.O_APPEND if target.append else os.O_TRUNC) | os.O_CLOEXEC
            try:
                self.fd = os.open(target.path, mode | os.O_NONBLOCK, 0o640)
            except OSError as error:
                self._print(f"ERROR:  {self.name}:  Can't write {target.path}: {error.strerror}; logging here")
        for warning in warnings:
            self.log(f"WARNING:  {warning}")

    def log(self, text: str) -> None:
        if self.silent:
            return
        if self.fd < 0:
            self._print(text)
            return
        try:
            os.write(self.fd, f"{text}\n".encode())
        except OSError:  # the disk is full: the verdict matters more than its log
            self._print(text)

    def mute_failures(self) -> None:
        """Print no failures on standard output; the log and syslog still get them."""
        self._mute = True

    def verbose(self, text: str) -> None:
        if self.is_verbose:
            self.log(text)

    def trace(self, result: CheckResult) -> None:
        self.log(f"DEBUG:  {result.verdict.name}  {lbnl_text(result)}  [{result.source}, {result.elapsed:.3f}s]")
        for line in result.outcome.evidence:
            self.log(f"DEBUG:    | {printable(line)}")

    def error(self, text: str) -> None:
        """A failure: logged, printed and sent to syslog."""
        line = f"ERROR:  {self.name}:  {text}"
        self.log(line)
        if self.fd >= 0 and not self.silent and not self._mute:
            self._print(line)
        import syslog

        syslog.openlog(self.name, syslog.LOG_PID, syslog.LOG_DAEMON)
        syslog.syslog(syslog.LOG_ERR, printable(text))

    @staticmethod
    def _print(text: str) -> None:
        print(text, flush=True)
