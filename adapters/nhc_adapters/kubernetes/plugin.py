"""What nhc finds under the name `kubernetes`: the adapter made of nhc's settings, and the commands behind it."""

from __future__ import annotations

import time
from typing import Any, Dict, List, Mapping, Optional, Sequence

from nhc.marks import cause_of
from nhc.ports import AdapterError, ConditionReport
from nhc_adapters.kubernetes.api.access import find
from nhc_adapters.kubernetes.api.client import READ_TIMEOUT, Client
from nhc_adapters.kubernetes.controller.judge import NEVER, NOT_TAKEN_BACK, judge
from nhc_adapters.kubernetes.nodes.adapter import IN_FLIGHT, Kubernetes
from nhc_adapters.kubernetes.nodes.conditions import read_conditions
from nhc_adapters.kubernetes.nodes.drain import Drain
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
        self._drains: Dict[str, Drain] = {}

    def condition_reports(self) -> List[ConditionReport]:
        """What the conditions of the spoken vocabularies say of each node that has any; as `nhc.ports`."""
        faults = tuple(dict.fromkeys(fault for one in self.treatment.vocabularies for fault in one.faults))
        found, now = [], time.time()
        for node in self.objects():
            judged, conditions = judge(node, faults, now), read_conditions(node)
            report = judged.report
            since = {
                cause_of(one): conditions[kind].since
                for one, kind in zip(report.failures(), judged.types)
                if kind in conditions
            }
            # That a mark's own source has not been taken back says nothing of the node: whoever marked it clears it.
            said = tuple(one for one in report.results if one.outcome.reason not in (NEVER, NOT_TAKEN_BACK))
            if said:
                found.append(ConditionReport(report._replace(results=said), since))
        return found

    def evict(self, names: Sequence[str]) -> Mapping[str, str]:
        """One step of the drain of each node, through the Eviction API; as `nhc.ports`."""
        self._drains = {name: self._drains.get(name) or Drain(self.client, name) for name in names}
        found = {}
        for name, drain in self._drains.items():
            progress = drain.step()
            found[name] = "" if progress.clean else progress.line()
        return found

    @staticmethod
    def commands() -> Any:
        """What stands behind `nhc kubernetes`."""
        from nhc_adapters.kubernetes import commands

        return commands
