"""IMEX: the service by which GPUs of several nodes of one NVLink domain share memory."""

from __future__ import annotations

from nhc.core.check import check
from nhc.core.host import Host
from nhc.core.model import Action, Outcome, crit, ok, skip, unknown

CONFIGURATION = "/etc/nvidia-imex/nodes_config.cfg"
"""The addresses of the domain's nodes (NVIDIA's IMEX guide): without it the service is not set up here."""
SERVICE = "nvidia-imex"
_OFF = ("disabled", "masked", "masked-runtime", "not-found")


@check("check_imex_ready", timeout=20, starting=("ImexStarts",))
def check_imex_ready(host: Host) -> Outcome:
    """The IMEX daemon of a node in a multi-node NVLink domain runs and is ready.

    Asks systemd for nvidia-imex and the daemon itself (`nvidia-imex-ctl -q`). Without it a job over the nodes of a
    GB200 or GB300 rack fails as it imports memory, or falls back to the network. CRIT where the service does not run or
    does not call itself READY. SKIP where it is not set up (no /etc/nvidia-imex/nodes_config.cfg) or switched off, as
    where Kubernetes runs it for each job (NVIDIA's DRA driver).

    Example: gb200* || check_imex_ready
    """
    if not host.exists(CONFIGURATION):
        return skip("NoImex", "no IMEX domain is configured on this node")
    if not host.which("systemctl"):
        return unknown("CommandMissing", "systemctl: not installed")
    enabled = host.run(["systemctl", "is-enabled", SERVICE], timeout=5)
    state = host.run(["systemctl", "is-active", SERVICE], timeout=5).stdout.strip()
    if state != "active" and (enabled.timed_out or not (state or enabled.stdout.strip())):
        return unknown("ImexUnreadable", f"systemd does not tell whether {SERVICE} runs")
    if state != "active" and (enabled.stdout.strip() or "not-found") in _OFF:
        return skip("NoImex", f"{SERVICE} is switched off on this node")
    if state == "activating":
        return crit("ImexStarts", f"{SERVICE} is being started", action=Action.RESTART_APP)
    if state != "active":
        return crit("ImexDown", f"{SERVICE} does not run ({state})", action=Action.RESTART_APP)
    if not host.which("nvidia-imex-ctl"):
        return ok(f"{SERVICE} runs")
    ended = host.run(["nvidia-imex-ctl", "-q"], timeout=10)
    answer = ended.stdout.strip()
    if ended.timed_out:
        return crit("ImexDown", f"{SERVICE} runs and does not answer within 10 s", action=Action.RESTART_APP)
    if "READY" in answer.split():
        return ok(f"{SERVICE} is ready")
    if ended.status or not answer:
        return unknown("ImexUnreadable", f"nvidia-imex-ctl: {ended.complaint}")
    message = f"{SERVICE} is not ready: {answer.splitlines()[0][:100]}"
    return crit("ImexNotReady", message, action=Action.RESTART_APP)
