"""What the controller answers over HTTP (`nhc.core.system.metrics_server`): /healthz, /readyz and /metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional

from nhc.core.prometheus_family import Family, counter, gauge
from nhc.core.system import metrics_server
from nhc.marks.ports.adapter import AdapterError

if TYPE_CHECKING:
    from nhc_adapters.kubernetes.controller.controller import Controller
    from nhc_adapters.kubernetes.controller.reload import WatchedSettings


def metrics(controller: Controller, watched: Optional[WatchedSettings] = None) -> str:
    """What the controller counts, in Prometheus' text format."""
    rounds, fleet = controller.rounds, controller.rounds.fleet
    unknown = "Nodes of which nothing certain is known: silent, never heard of, or marked by a word not taken back."
    families = [
        gauge("nhc_kubernetes_nodes", "Nodes followed.", len(fleet.nodes)),
        gauge("nhc_kubernetes_nodes_sick", "Nodes whose conditions say CRIT.", len(fleet.sick())),
        gauge("nhc_kubernetes_nodes_unknown", unknown, fleet.unknown()),
        gauge("nhc_kubernetes_nodes_marked", "Nodes that carry nhc's mark.", len(fleet.marked())),
        gauge("nhc_kubernetes_nodes_withheld", "Operations that a ceiling or rate withholds.", len(rounds.withheld)),
        gauge(
            "nhc_kubernetes_fault_types_unseen",
            "Condition types of `faults` that no node carries and no vocabulary knows.",
            controller.unseen_types(),
        ),
        gauge("nhc_kubernetes_leading", "1 while this process holds the Lease.", controller.lease.held()),
    ]
    devices = rounds.devices
    if devices is not None:
        out = "Devices that a rule of nhc's keeps out."
        families.append(gauge("nhc_kubernetes_devices_out", out, devices.out()))
        held = "Rules for devices that a ceiling, a rate, a hold or the device's driver withholds."
        families.append(gauge("nhc_kubernetes_devices_withheld", held, len(devices.withheld)))
        served = "1 while devices can be taken out: the cluster serves DeviceTaintRules, and they can be read."
        families.append(gauge("nhc_kubernetes_devices_usable", served, not devices.view.watch.why_not()))
    loki = controller.detections.loki
    if loki is not None:
        aside = "Lines of Loki that name no node or make no sense."
        families.append(counter("nhc_kubernetes_loki_lines_set_aside_total", aside, loki.loki.aside))
        behind = "How much of the log in Loki is not read yet."
        families.append(gauge("nhc_kubernetes_loki_behind_seconds", behind, loki.behind()))
    missing = Family("nhc_kubernetes_right_missing", "gauge", "Rights that the API server does not grant us.")
    for right in controller.rights.missing:
        missing.add(1, right=str(right))
    families.append(missing)
    if watched is not None:
        refused = "1 while the settings' files hold something that is not taken."
        families.append(gauge("nhc_kubernetes_settings_refused", refused, bool(watched.refused)))
    failing = Family("nhc_kubernetes_failing", "gauge", "What fails now; the log says why.")
    for what in sorted(controller.outages.standing()):
        failing.add(1, what=what)
    operations = Family("nhc_kubernetes_operations_total", "counter", "Operations on nodes, by kind and effect.")
    done = Family("nhc_kubernetes_deeds_total", "counter", "The older name of nhc_kubernetes_operations_total.")
    for key, times in sorted(controller.operations.counts.items()):
        operation, effect = key.split("_", 1)
        operations.add(times, operation=operation, effect=effect)
        done.add(times, deed=operation, effect=effect)
    requests = Family("nhc_kubernetes_requests_total", "counter", "Requests to the API server.")
    for method, times in sorted(controller.context.client.counts.items()):
        requests.add(times, method=method)
    drains = gauge("nhc_kubernetes_drains", "Drains under way.", len(controller.drains.running()))
    return "".join(family.render() for family in (*families, failing, drains, operations, done, requests))


class ControllerServer:
    """Serves one controller at a time on `host:port`, from when it is made. Raises AdapterError if it cannot listen."""

    def __init__(self, listen: str, controller: Controller, watched: Optional[WatchedSettings] = None) -> None:
        self.controller, self._watched = controller, watched
        try:
            self._server = metrics_server.serve(listen, self)
        except (OSError, ValueError) as error:
            raise AdapterError(f"cannot listen on {listen!r} (expected host:port): {error}") from None
        self.port = self._server.server_address[1]

    def serve(self, controller: Controller) -> None:
        """Answer for another controller from now on: the settings have changed."""
        self.controller = controller

    def page(self, path: str) -> tuple[int, str]:
        """The status and the text of a path."""
        return _answer(path, self.controller, self._watched)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def _answer(path: str, controller: Controller, watched: Optional[WatchedSettings]) -> tuple[int, str]:
    if path == "/metrics":
        return 200, metrics(controller, watched)
    if path == "/healthz":
        why = controller.healthy()
        return (503, f"{why}\n") if why else (200, "ok\n")
    if path == "/readyz":
        why = controller.unready()
        return (503, f"{why}\n") if why else (200, "ok\n")
    return 404, "there are /healthz, /readyz and /metrics\n"
