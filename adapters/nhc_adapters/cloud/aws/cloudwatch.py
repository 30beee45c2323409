"""CloudWatch as a sink of the agent: a node's health and its Neuron errors as metrics, from the node itself.

    [sinks.cloudwatch]
    region = "us-east-1"            # default: the instance's own
    namespace = "NHC"
    period = "60s"

In NHC: `NodeHealthy` (1 or 0; nothing while it is unknown) and `Problems` (how many checks fail), by InstanceId. In
NeuronHealthCheck, under AWS's own names, so that alarms made for Neuron's node problem detector go on working: a reason
such as NeuronHasError_DMA_ERROR is 1 while it is active, and 0 once it has ended. The role needs
cloudwatch:PutMetricData for the two namespaces (adapters/aws/policy-cloudwatch.json).
"""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, FrozenSet, List, Mapping, NamedTuple, Optional

from nhc.core.model import Report, Verdict
from nhc.core.settings import declared
from nhc.marks.ports.marks import healthy
from nhc.marks.ports.sinks import Delivery, Standing, sink_settings
from nhc_adapters.cloud.aws.client import Aws, AwsAccess, InstanceSettings, OwnInstance

NEURON = "NeuronHealthCheck"
NEURON_REASON = "NeuronHasError_"
PERIOD = 60.0
"""CloudWatch keeps one value a minute of a standard metric; more often costs calls and shows nothing."""
TIMEOUT = 10.0


class CloudWatchMetric(NamedTuple):
    """One value, by InstanceId."""

    namespace: str
    name: str
    value: float


def _namespace(text: str) -> str:
    if text.startswith("AWS/"):
        raise ValueError(f"{text!r} is not a namespace of one's own: AWS/ is AWS's")
    return text


@declared.settings
class CloudWatchSettings(NamedTuple):
    """The table [sinks.cloudwatch]."""

    period: float = declared.seconds("period", PERIOD, "between two values that are the same")
    namespace: str = declared.converted("namespace", _namespace, "NHC")
    access: AwsAccess = declared.part("", AwsAccess)
    instance: InstanceSettings = declared.part("", InstanceSettings)


def sink(settings: Mapping[str, Any], node: str, log: Callable[[str], None]) -> CloudWatchSink:
    """A sink from the table [sinks.cloudwatch]. Raises AdapterError."""
    return CloudWatchSink(sink_settings(CloudWatchSettings, settings, "cloudwatch"))


def neuron_errors(report: Report) -> FrozenSet[str]:
    """Neuron's errors that stand, by AWS's names."""
    outcomes = (result.outcome for result in report.results)
    return frozenset(
        outcome.reason
        for outcome in outcomes
        if outcome.verdict >= Verdict.WARN and outcome.reason.startswith(NEURON_REASON)
    )


def metrics(report: Report, ended: FrozenSet[str], namespace: str) -> List[CloudWatchMetric]:
    """The values of one report. `ended` are Neuron errors that stood before. Pure."""
    standing = neuron_errors(report)
    values = [CloudWatchMetric(NEURON, name, 1.0) for name in sorted(standing)]
    values += [CloudWatchMetric(NEURON, name, 0.0) for name in sorted(ended - standing)]
    failures = report.failures()
    if failures or healthy(report):
        values.append(CloudWatchMetric(namespace, "NodeHealthy", 0.0 if failures else 1.0))
    values.append(CloudWatchMetric(namespace, "Problems", float(len(failures))))
    return values


class CloudWatchSink:
    """As `nhc.marks.ports.sinks.Sink`."""

    def __init__(self, own: CloudWatchSettings, environ: Optional[Mapping[str, str]] = None) -> None:
        self.period, self.namespace = own.period, own.namespace
        self.aws = Aws(own.access, environ, TIMEOUT)
        self._own = OwnInstance(own.instance, self.aws, TIMEOUT)
        self._raised: FrozenSet[str] = frozenset()
        self._sent: List[CloudWatchMetric] = []
        self._due = 0.0

    def standing(self) -> List[Standing]:
        """Metrics are no faults that stand."""
        return []

    def deliver(self, delivery: Delivery) -> None:
        """Put the values that are new, or due. Raises AdapterError."""
        if not delivery.complete:
            return
        now = time.monotonic()
        values = metrics(delivery.report, self._raised, self.namespace)
        if values == self._sent and now < self._due:
            return
        by_namespace: Dict[str, List[Dict[str, object]]] = {}
        for value in values:
            by_namespace.setdefault(value.namespace, []).append(self._datum(value))
        for namespace, data in by_namespace.items():
            self.aws.call("cloudwatch", "PutMetricData", self._own.region(), Namespace=namespace, MetricData=data)
        self._sent, self._due = values, now + self.period
        self._raised = neuron_errors(delivery.report)

    def _datum(self, metric: CloudWatchMetric) -> Dict[str, object]:
        dimensions = [{"Name": "InstanceId", "Value": self._own.id()}]
        return {"MetricName": metric.name, "Value": metric.value, "Unit": "None", "Dimensions": dimensions}

    def close(self) -> None:
        """Nothing is kept."""
