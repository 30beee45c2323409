"""Settings that are read again when their files change, or on SIGHUP; a bad file is refused and logged.

The kubelet replaces a mounted ConfigMap by swapping a symbolic link, so what a path leads to is compared and not the
time of the link.
"""

from __future__ import annotations

import os
import threading
import time
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from nhc.core.settings.settings_file import SettingsError
from nhc.core.system.service_log import problem
from nhc.marks.ports.adapter import AdapterError
from nhc_adapters.kubernetes.controller.settings import ControllerSettings
from nhc_adapters.kubernetes.nodes.known_types import known_types, strangers
from nhc_adapters.kubernetes.nodes.vocabulary import Fault

AGAIN = 10.0
"""Seconds between two tries of settings that were refused and did not change."""

NODES_EVERY = 60.0
"""Seconds between two lists of the nodes for the same faults."""

Signature = Tuple[int, int, int, int]


class WatchedSettings:
    """The settings in force, and whether their files have changed."""

    def __init__(self, read: Callable[[], ControllerSettings], log: Callable[[str], None]) -> None:
        """Reads them. Raises SettingsError, as every first reading may."""
        self._read, self._log = read, log
        self.settings = read()
        self.refused = ""
        """Why the files are not taken as they are now, "" while they are in force."""
        self.asked = threading.Event()
        """Set it to have the files read again even if they have not changed: SIGHUP."""
        self._tried = 0.0
        self._seen = self._look()

    def changed(self) -> Optional[ControllerSettings]:
        """New settings, None if the files have not changed, or are invalid."""
        signatures = self._look()
        asked = self.asked.is_set()
        # Refused ones are tried again now and then: what they lack may be a file that we do not watch, or a node.
        again = bool(self.refused) and time.monotonic() - self._tried >= AGAIN
        if signatures == self._seen and not asked and not again:
            return None
        self._tried = time.monotonic()
        self.asked.clear()
        self._seen = signatures
        try:
            settings = self._read()
        except ValueError as error:  # SettingsError, BadVocabulary, and what the command line says of them
            if asked or str(error) != self.refused:
                self._log(problem(f"settings refused, the ones in force stay: {error}"))
            self.refused = str(error)
            return None
        self._seen = {path: signatures.get(path) or _signature(path) for path in settings.sources}
        if self.refused:
            self._log("settings make sense again")
        self.refused = ""
        if settings == self.settings:
            if asked:
                self._log("settings read again: nothing is different")
            return None
        self._log(f"settings changed: {', '.join(differences(self.settings, settings))}")
        self.settings = settings
        return settings

    def _look(self) -> Dict[str, Optional[Signature]]:
        return {path: _signature(path) for path in self.settings.sources}


def differences(before: ControllerSettings, after: ControllerSettings) -> List[str]:
    """The names of the settings that differ."""
    names = (name for name in before._fields if name != "sources")
    return [name.replace("_", "-") for name in names if getattr(before, name) != getattr(after, name)]


def _signature(path: str) -> Optional[Signature]:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size)


class Fitting:
    """Read settings again; refuse them if they name a condition whose name is nearly that of a known one.

    `nodes` lists the nodes, and is asked at most once in NODES_EVERY for the same faults.
    """

    def __init__(
        self,
        read: Callable[[], ControllerSettings],
        nodes: Callable[[], Iterable[Mapping[str, Any]]],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.started = False
        """Whether a controller runs: what it starts with, it judges itself."""
        self._read, self._nodes, self._clock = read, nodes, monotonic
        self._asked: Tuple[Sequence[Fault], float] = ((), float("-inf"))
        self._refusal = ""

    def controller_started(self) -> None:
        """From now on new settings are compared with what the nodes know."""
        self.started = True

    def read(self) -> ControllerSettings:
        """Raises SettingsError."""
        settings = self._read()
        if self.started and not {fault.type for fault in settings.faults} <= known_types(settings.vocabularies):
            faults, when = self._asked
            if faults != settings.faults or self._clock() - when >= NODES_EVERY:
                self._asked = (settings.faults, self._clock())
                self._refusal = self._judge(settings)
            if self._refusal:
                raise SettingsError(self._refusal)
        return settings

    def _judge(self, settings: ControllerSettings) -> str:
        try:
            return "; ".join(strangers(settings.faults, self._nodes(), settings.vocabularies).refused)
        except AdapterError as error:
            return f"the conditions they name cannot be looked for now: {error}"
