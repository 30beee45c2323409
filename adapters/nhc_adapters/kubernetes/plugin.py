"""What nhc finds under the name `kubernetes`: the adapter made of nhc's settings, and the commands behind it."""

from __future__ import annotations

from typing import Any, Mapping, Optional

from nhc.ports import AdapterError
from nhc_adapters.kubernetes.api.access import find
from nhc_adapters.kubernetes.api.client import READ_TIMEOUT, Client
from nhc_adapters.kubernetes.nodes.adapter import IN_FLIGHT, Kubernetes
from nhc_adapters.kubernetes.nodes.marks import Treatment
from nhc_adapters.kubernetes.nodes.vocabulary_file import BadVocabulary, load


class Adapter(Kubernetes):
    """The same, from nhc's settings: NHC_KUBECONFIG, NHC_KUBE_CONTEXT, NHC_KUBE_VOCABULARY (names with commas)."""

    def __init__(
        self,
        settings: Optional[Mapping[str, str]] = None,
        environ: Optional[Mapping[str, str]] = None,
        timeout: float = READ_TIMEOUT,
    ) -> None:
        given = settings or {}
        names = [name for name in given.get("NHC_KUBE_VOCABULARY", "nhc").split(",") if name]
        try:
            spoken = tuple(load(name) for name in names)
        except BadVocabulary as error:
            raise AdapterError(str(error)) from None
        kubeconfig = given.get("NHC_KUBECONFIG", "") or (environ or {}).get("KUBECONFIG", "")
        access = find(kubeconfig, given.get("NHC_KUBE_CONTEXT", ""))
        super().__init__(Client(access, connections=IN_FLIGHT, read_timeout=timeout), Treatment(spoken))

    @staticmethod
    def commands() -> Any:
        """What stands behind `nhc kubernetes`."""
        from nhc_adapters.kubernetes import commands

        return commands
