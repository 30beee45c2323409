"""The cluster that a command talks to, and where the command writes its output."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, TextIO

from nhc_adapters.kubernetes.api.access import find
from nhc_adapters.kubernetes.api.client import Client


@dataclass(frozen=True)
class Cluster:
    """Which cluster to talk to, and where to write."""

    kubeconfig: str = ""
    context: str = ""
    out: TextIO = sys.stdout
    err: TextIO = sys.stderr
    command: str = "nhc kubernetes"

    def client(self, connections: int = 4, **options: Any) -> Client:
        return Client(find(self.kubeconfig, self.context), connections=connections, **options)

    def say(self, line: str) -> None:
        self.out.write(f"{line}\n")
        self.out.flush()

    def complain(self, problem: object) -> None:
        self.err.write(f"{self.command}: {problem}\n")
