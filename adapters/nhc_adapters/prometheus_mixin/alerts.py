"""The alert rules: each with its expression, what it means and what a person does about it. Pure data.

`job` is `nhc` for agents, and `nhc-console`, `nhc-job`, `nhc-notices`, `nhc-remedy`, `nhc-serve`, `nhc-server`,
`nhc-kubernetes` for the other parts. The agent has strikes and recovery of its own, so a fault waits only shortly here.
Absent series are never healthy: what is gone has alerts of its own.
"""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Tuple

CRITICAL, WARNING, INFO = "critical", "warning", "info"


class Alert(NamedTuple):
    """One rule. `lasts` is how long the expression must hold, `keep` how long the alert outlasts it; durations as in
    Prometheus. `means` and `actions` are its runbook.
    """

    name: str
    expression: str
    lasts: str
    severity: str
    summary: str
    means: str
    actions: Tuple[str, ...]
    keep: str = ""


class AlertGroup(NamedTuple):
    """Rules that are evaluated together."""

    name: str
    alerts: Tuple[Alert, ...]


NODES = AlertGroup("nhc-nodes", (
    Alert(
        "NhcNodeCritical", "max by (job, instance) (nhc_node_verdict) == 4", "1m", CRITICAL,
        "{{ $labels.instance }} is unfit for jobs.",
        "A check of this node says CRIT.",
        ("Read what is wrong: the console's page of the node, or `nhc_problem` of the instance.",
         "`nhc explain REASON` says what to do about each reason.",
         "See that the node takes no jobs: its mark in the scheduler, or the remedy loop's episode."),
        keep="5m",
    ),
    Alert(
        "NhcNodeUnknown", "max by (job, instance) (nhc_node_verdict) == 3", "15m", WARNING,
        "{{ $labels.instance }} cannot be judged.",
        "A check could not find out whether the node is fit. That is not healthy.",
        ("Read the message of the check that is UNKNOWN: a tool that is missing, a device that hangs, a time-out.",
         "Repair what keeps the check from judging, or take the check out of the configuration."),
    ),
    Alert(
        "NhcNodeFlapping", "changes(nhc_node_verdict[1h]) > 6", "10m", WARNING,
        "The verdict of {{ $labels.instance }} changes all the time.",
        "A fault comes and goes. The node looks healthy between.",
        ("Look at the node's timeline in the console.",
         "Take the node out of service until the fault is found; raise `recover` where the check itself is restless."),
    ),
    Alert(
        "NhcFleetUnhealthy",
        "count by (job) (nhc_node_verdict == 4) / count by (job) (nhc_node_verdict) > 0.05", "5m", CRITICAL,
        "{{ $value | humanizePercentage }} of the nodes are unfit for jobs.",
        "Many nodes fail at once. A common cause is more likely than many faults.",
        ("Look at the console's problems, folded by cause: a rack, a switch, a file server, a new configuration.",
         "Hold the remedy loop until the cause is known: `nhc remedy hold fleet --why TEXT`."),
    ),
    Alert(
        "NhcSameFaultMany",
        "count by (job, check, reason) (max by (job, instance, check, reason) "
        "(nhc_problem and on (job, instance, check, target) (nhc_check_verdict == 4))) >= 5", "2m", CRITICAL,
        "{{ $value }} nodes have {{ $labels.reason }} ({{ $labels.check }}).",
        "One fault is on many nodes at the same time.",
        ("Look for what they share: the console names groups in which the fault is frequent.",
         "`nhc explain REASON` names the usual causes."),
    ),
))  # fmt: skip

AGENTS = AlertGroup("nhc-agents", (
    Alert(
        "NhcAgentDown", 'up{job="nhc"} == 0', "5m", WARNING,
        "The agent of {{ $labels.instance }} does not answer.",
        "The node is off, unreachable, or its agent has ended. Nothing is known of its health.",
        ("Reach the node by ssh or its BMC.",
         "`systemctl status nhc-agent` and `journalctl -u nhc-agent` say why it ended."),
    ),
    Alert(
        "NhcAgentsGone", 'absent(up{job="nhc"})', "5m", CRITICAL,
        "Prometheus knows no agent at all.",
        "Service discovery finds no target of the job `nhc`: every other alert on nodes is silent.",
        ("Look at Prometheus' page of targets and at its configuration.",),
    ),
    Alert(
        "NhcAgentStale", "(nhc_agent_healthy == 0) unless on (job, instance) (nhc_agent_paused == 1)", "10m", WARNING,
        "The agent of {{ $labels.instance }} does not check as often as it should.",
        "The agent answers, and its newest report is old.",
        ("`GET /healthz` of the agent names what is late.", "A check that hangs is named in the agent's log."),
    ),
    Alert(
        "NhcAgentPausedLong", "min_over_time(nhc_agent_paused[4h]) == 1", "5m", INFO,
        "Checks of {{ $labels.instance }} have been paused for four hours.",
        "Somebody paused the checks and may have forgotten it.",
        ("`nhc agent status` says who and why.", "`nhc agent resume` ends it."),
    ),
    Alert(
        "NhcConfigRefused", "nhc_agent_config_refused == 1", "10m", WARNING,
        "The agent of {{ $labels.instance }} refuses its changed configuration.",
        "The files have a mistake. The agent goes on with the configuration it had before.",
        ("`nhc agent reload` names each mistake in one line.",),
    ),
    Alert(
        "NhcSinkDown", "nhc_agent_sink_up == 0", "15m", WARNING,
        "{{ $labels.instance }} cannot report to {{ $labels.sink }}.",
        "Events wait on the node; the newest 1000 are kept.",
        ("`nhc agent status` says what the sink answers.",),
    ),
    Alert(
        "NhcSinkLost", "increase(nhc_agent_sink_lost_total[1h]) > 0", "1m", WARNING,
        "{{ $labels.instance }} has lost events for {{ $labels.sink }}.",
        "A sink was away for so long that events were dropped.",
        ("Repair the sink. The state itself is sent whole when it is back; the events between are lost.",),
    ),
    Alert(
        "NhcKernelLogLost", "increase(nhc_agent_kernel_log_lost_total[1h]) > 0", "1m", INFO,
        "{{ $labels.instance }} lost lines of its kernel log.",
        "The kernel wrote faster than could be read: a fault may have been among what was overwritten.",
        ("Find what floods the log: `nhc log classify`.", "Raise `log_buf_len` of the kernel."),
    ),
    Alert(
        "NhcRoundsFailing", 'increase(nhc_agent_rounds_total{outcome="failed"}[30m]) > 3', "5m", WARNING,
        "Rounds of checks fail on {{ $labels.instance }}.",
        "The agent starts its checks and they do not come to an end.",
        ("The agent's log says why: no memory, no processes, a disk that is full.",),
    ),
))  # fmt: skip

FLEET = AlertGroup("nhc-fleet", (
    Alert(
        "NhcComponentDown", 'up{job=~"nhc-.+"} == 0', "5m", WARNING,
        "{{ $labels.job }} on {{ $labels.instance }} does not answer.",
        "A console, server, remedy loop or controller is down or unreachable.",
        ("Look at its log and start it again. It goes on where it stopped.",),
    ),
    Alert(
        "NhcComponentGone",
        'group by (job) (up{job=~"nhc-.+"} offset 1h) unless group by (job) (up{job=~"nhc-.+"})', "5m", WARNING,
        "{{ $labels.job }} has vanished.",
        "Prometheus knew it an hour ago and knows no target of this job now.",
        ("Look at service discovery.", "Where it was taken away on purpose, the alert ends within the hour."),
    ),
    Alert(
        "NhcFleetUnread", "nhc_fleet_source_up == 0", "5m", WARNING,
        "The console cannot read the fleet.",
        "Its store is away. The page shows the last picture, and says so.",
        ("The console's page `Health` and its log name the store's answer.",),
    ),
    Alert(
        "NhcFleetPictureOld", "nhc_fleet_age_seconds > 300", "5m", WARNING,
        "The console's picture is {{ $value | humanizeDuration }} old.",
        "The fleet was not read for minutes.",
        ("Look at the load of the store, and at the console's log.",),
    ),
    Alert(
        "NhcFleetSilent",
        'sum by (job) (nhc_fleet_nodes{state=~"stale|never"}) / sum by (job) (nhc_fleet_nodes) > 0.05', "15m", WARNING,
        "{{ $value | humanizePercentage }} of the nodes have not reported.",
        "Of these nodes nothing is known. A network, a server or a token may be the cause.",
        ("The console's page `Health` lists who has not reported.",
         "`nhc_server_refused_total` counts pushes that were refused."),
    ),
    Alert(
        "NhcServerStoreDown", "nhc_server_store_up == 0", "2m", CRITICAL,
        "The store of {{ $labels.instance }} does not answer.",
        "Reports cannot be written. Agents keep theirs and send them later, within bounds.",
        ("Look at the database: its disk, its connections, its log.",),
    ),
    Alert(
        "NhcServerReportsLost", "increase(nhc_server_reports_lost_total[1h]) > 0", "1m", WARNING,
        "Agents lost reports while the server was away.",
        "The history has gaps. The console shows them as gaps.",
        ("Find out why the server was away for so long.",),
    ),
))  # fmt: skip

NOTICES = AlertGroup("nhc-notices", (
    Alert(
        "NhcNoticesNoLeader", "max by (job) (nhc_notices_leader) < 1", "5m", WARNING,
        "No process sends notices.",
        "Nobody is told of new incidents; they wait in the store.",
        ("Look at the log of `nhc notices run` on each of its hosts.", "`nhc store check` tries the store."),
    ),
    Alert(
        "NhcNoticesChannelDown", "min by (job, channel) (nhc_notices_channel_up) < 1", "15m", WARNING,
        "The channel {{ $labels.channel }} takes no notices.",
        "Messages wait, and are dropped after `give-up`.",
        ("`nhc notices test CHANNEL` says what the channel answers.", "`nhc notices status` shows what waits."),
    ),
    Alert(
        "NhcNoticesLost", "increase(nhc_notices_lost_total[1h]) > 0", "1m", WARNING,
        "The channel {{ $labels.channel }} refused notices, or they were given up.",
        "Somebody was not told of an incident.",
        ("`nhc notices status` shows the last answer of the channel.", "Look at the console for what stands now."),
    ),
))  # fmt: skip

REMEDY = AlertGroup("nhc-remedy", (
    Alert(
        "NhcRemedyNoLeader", "max by (job) (nhc_remedy_leader) < 1", "5m", WARNING,
        "No remedy loop leads.",
        "No repair begins and no episode goes on.",
        ("`nhc remedy status` says who led last.", "Look at the logs of all loops over this store."),
    ),
    Alert(
        "NhcRemedyBehind", "time() - max by (job) (nhc_remedy_last_round_timestamp_seconds) > 600", "5m", WARNING,
        "The remedy loop has not looked for {{ $value | humanizeDuration }}.",
        "The loop runs and finishes no round.",
        ("Its log names what it waits for: the store, a scheduler, a BMC.",),
    ),
    Alert(
        "NhcRemedyBreakerOpen", "max by (job) (nhc_remedy_breaker_open) == 1", "5m", WARNING,
        "The remedy loop's breaker is open.",
        "Too many nodes or repairs failed: no mark is set and no repair begins until a person closes it.",
        ("`nhc remedy status` says why it opened.",
         "Find the common cause, then `nhc remedy release breaker --why TEXT`."),
    ),
    Alert(
        "NhcRemedyStalled", "max by (job) (nhc_remedy_stalled) > 0", "30m", WARNING,
        "{{ $value }} episodes wait for too long.",
        "A step of a repair has not come to its end in the time it has.",
        ("`nhc remedy episodes` and `nhc remedy show NUMBER` say which and what for.",),
    ),
    Alert(
        "NhcRemedyCannotRead", "max by (job) (nhc_remedy_problems) > 0", "15m", WARNING,
        "The remedy loop cannot read everything it needs.",
        "What cannot be read is not acted on.",
        ("`nhc remedy doctor` names what does not answer.",),
    ),
))  # fmt: skip

JOBS = AlertGroup("nhc-job", (
    Alert(
        "NhcJobNoLeader", "max by (job) (nhc_job_leader) < 1", "5m", WARNING,
        "No loop restarts jobs.",
        "A job that a node fails stays failed, and a restart that has begun does not go on.",
        ("Look at the logs of all `nhc job run` over this store: they say who leads, or why nobody can.",),
    ),
    Alert(
        "NhcJobBehind", "time() - max by (job) (nhc_job_last_round_timestamp_seconds) > 600", "5m", WARNING,
        "The job loop has not looked for {{ $value | humanizeDuration }}.",
        "The loop runs and finishes no round.",
        ("Its log names what it waits for: the store, or a job controller.",),
    ),
    Alert(
        "NhcJobGivenUp", 'sum by (job) (max by (job, why) (nhc_job_left{why=~"limit|final|failed"})) > 0',
        "1m", WARNING,
        "{{ $value }} jobs were failed by their nodes and are not restarted.",
        "Their restarts are used up, or they could not be held or made anew.",
        ("`nhc job status NAME` shows a job's restarts and the nodes that failed it.",
         "Repair these nodes, then have the user submit the job again from its checkpoint."),
    ),
    Alert(
        "NhcJobHeld", 'max by (job) (nhc_job_oldest_restart_seconds{state="held"}) > 1800', "5m", WARNING,
        "A job is held for {{ $value | humanizeDuration }} and waits for healthy nodes.",
        "A restart goes on when enough nodes are in service that have not failed the job.",
        ("`nhc job status` names the jobs whose restart is held.",
         "`nhc remedy status` says which nodes are under repair, and whether the fleet is held."),
    ),
    Alert(
        "NhcJobCannotRead", "max by (job) (nhc_job_problems) > 0", "15m", WARNING,
        "The job loop cannot read everything it needs.",
        "Jobs of a controller that cannot be read are not restarted.",
        ("Its log names the controller and what it answered; `nhc job run --dry-run` tries it by hand.",),
    ),
))  # fmt: skip

KUBERNETES = AlertGroup("nhc-kubernetes", (
    Alert(
        "NhcControllerNoLeader", "max by (job) (nhc_kubernetes_leading) < 1", "5m", WARNING,
        "No controller leads.",
        "Nodes are neither tainted nor cleared.",
        ("Look at the Lease and at the controllers' logs.",),
    ),
    Alert(
        "NhcWithheld", "max by (job) (nhc_kubernetes_nodes_withheld) > 0", "30m", WARNING,
        "{{ $value }} operations on nodes are withheld.",
        "A ceiling or a rate keeps nhc from taking more nodes out of service.",
        ("Look whether the faults are real; then repair nodes, or raise the ceiling in the policy.",),
    ),
))  # fmt: skip

WATCHDOG = AlertGroup("nhc-watchdog", (
    Alert(
        "NhcWatchdog", "vector(1)", "0m", INFO,
        "This alert always fires: the way from Prometheus to a person works.",
        "It is a dead man's switch. Send it to a service that complains when it stops.",
        ("Nothing is to be done while it fires. Where it has stopped, look at Prometheus and Alertmanager.",),
    ),
))  # fmt: skip

GROUPS = (NODES, AGENTS, FLEET, NOTICES, REMEDY, JOBS, KUBERNETES, WATCHDOG)
RUNBOOKS = "docs/alerts.md"
"""The page with the runbooks, for the annotation `runbook`. `runbook_url` is the address of that page at a site."""


def rule(one: Alert, runbooks: str = "") -> Dict[str, object]:
    """An alert as Prometheus reads it. `runbooks` is where the site has RUNBOOKS, "" where that is not known."""
    found: Dict[str, object] = {"alert": one.name, "expr": one.expression}
    if one.lasts != "0m":
        found["for"] = one.lasts
    if one.keep:
        found["keep_firing_for"] = one.keep
    found["labels"] = {"severity": one.severity}
    place = f"#{one.name.lower()}"
    notes = {"summary": one.summary, "description": one.means, "runbook": f"{RUNBOOKS}{place}"}
    found["annotations"] = {**notes, "runbook_url": f"{runbooks}{place}"} if runbooks else notes
    return found


def rules(runbooks: str = "") -> Dict[str, List[Dict[str, object]]]:
    """All rules, as the content of a file of rules."""
    groups: List[Dict[str, object]] = []
    for group in GROUPS:
        found = [rule(one, runbooks) for one in group.alerts]
        groups.append({"name": group.name, "rules": found})
    return {"groups": groups}


def document() -> str:
    """docs/alerts.md."""
    lines = [
        "# Alerts and what to do about them",
        "",
        "Made by `python -m nhc_adapters.prometheus_mixin` from `adapters/nhc_adapters/prometheus_mixin/alerts.py`.",
        "[Monitoring](monitoring.md) says how to install the rules and which metrics they read.",
    ]  # fmt: skip
    for group in GROUPS:
        lines += ["", f"## {group.name}"]
        for one in group.alerts:
            lasts = f" for {one.lasts}" if one.lasts != "0m" else ""
            lines += ["", f"### {one.name}", "", f"{one.means} Severity: {one.severity}.", ""]
            lines += [f"It fires when this holds{lasts}: `{one.expression}`", ""]
            lines += [f"{number}. {action}" for number, action in enumerate(one.actions, 1)]
    return "\n".join(lines) + "\n"
