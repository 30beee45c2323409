"""The commands: each with the place of its code (`module:attribute`) and its line of help, each group with its own."""

from __future__ import annotations

from nhc.core.light import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Dict, Tuple, Union

    from typing_extensions import TypeAlias

    CommandTable: TypeAlias = "Dict[str, Tuple[str, Union[str, CommandTable]]]"
    """A command is (place, help); a group is (help, its commands)."""

COMMANDS: CommandTable = {
    "check": ("Judge this node.", {
        "local": ("nhc.cli.click_app:check_local", "Judge the node this runs on, now."),
    }),
    "list": ("nhc.node.commands.catalogue:list_command", "List the built-in checks."),
    "explain": ("nhc.node.commands.catalogue:explain_command", "Explain a check, or a reason in a report."),
    "genconf": ("nhc.node.commands.genconf:command", "Write a configuration from what this node is and has."),
    "config": ("Validate configurations.", {
        "check": ("nhc.node.commands.config:check", "Validate configuration files without running anything."),
        "show": ("nhc.node.commands.config_show:show", "Print what applies to a node, and where each line comes from."),
        "match": ("nhc.node.commands.config:match", "Say whether a target applies to a node."),
    }),
    "mute": ("nhc.node.commands.mute:mute", "Mute a check on this node until a date, or list what is muted."),
    "unmute": ("nhc.node.commands.mute:unmute", "End a mute now."),
    "profile": ("What this node type should have.", {
        "detect": ("nhc.node.commands.profile:detect", "Name this node's type, and say why."),
        "list": ("nhc.node.commands.profile:list_profiles", "List the known types."),
        "show": ("nhc.node.commands.profile:show", "Show a type's expectations."),
    }),
    "deep": ("Test nodes deeply: under load, measured, with numbers that must be right.", {
        "run": ("nhc.deep.commands.deep:run_command", "Run a suite on this node."),
        "list": ("nhc.deep.commands.deep:list_command", "List the suites, or what one of them runs here."),
        "calibrate": ("nhc.deep.commands.deep:calibrate_command", "Propose expected figures from healthy nodes."),
        "restore": ("nhc.deep.commands.deep:restore_command", "Put back what a run that was killed has left."),
        "sweep": (
            "nhc.deep.commands.deep_sweep:command",
            "Test many nodes with one another, and name who is to blame.",
        ),
        "status": (
            "nhc.deep.commands.deep_results:status",
            "Show the sweeps, and the age of each node's last deep verdict.",
        ),
        "show": ("nhc.deep.commands.deep_results:show", "Show a sweep: whom it blames, and by which tests."),
        "history": ("nhc.deep.commands.deep_results:history", "Show what deep checks found of a node."),
        "stop": ("nhc.deep.commands.deep_stop:command", "End a sweep, whoever runs it."),
        "due": ("nhc.deep.commands.deep_due:command", "Show who needs a deep check before a large job."),
        "simulate": ("nhc.deep.commands.deep_simulate:command", "Play a sweep of many nodes on a made-up cluster."),
    }),
    "gate": ("Keep work off a node until its suite has passed.", {
        "run": ("nhc.remedy.commands.gate_run:run_command", "Test this node where its gate is due, and let work in."),
        "boot": (
            "nhc.remedy.commands.gate_run:boot_command",
            "Hold this node where its gate is due: before slurmd starts.",
        ),
        "status": ("nhc.remedy.commands.gate_status:status_command", "Show how this node's gate stands."),
        "adopt": ("nhc.remedy.commands.gate_run:adopt_command", "Take nodes without a verdict as they are."),
        "open": ("nhc.remedy.commands.gate_orders:open_command", "Let work onto nodes whose suite has not passed."),
        "close": ("nhc.remedy.commands.gate_orders:close_command", "Hold nodes until their suite has passed anew."),
        "sync": (
            "nhc.remedy.commands.gate_orders:sync_command",
            "Bring a cluster's gates in line with what its nodes say.",
        ),
        "doctor": ("nhc.remedy.commands.gate_status:doctor_command", "Look for what would not wait for a suite."),
    }),
    "log": ("Read kernel logs.", {
        "classify": ("nhc.node.commands.kernel:classify", "Say what each line of a kernel log means."),
        "catalogue": ("nhc.node.commands.kernel:catalogue", "Show what is known of a code or a text of kernel logs."),
    }),
    "inject": ("nhc.lab.commands.inject:inject", "Write a fault into this node's kernel log, as a drill."),
    "ack": ("nhc.node.commands.kernel:ack", "Acknowledge findings of the kernel log, or list them."),
    "agent": ("The resident agent.", {
        "run": ("nhc.agent.commands.agent:run", "Run the agent in the foreground."),
        "status": ("nhc.agent.commands.agent:status", "Ask the agent what it knows."),
        "pause": ("nhc.agent.commands.agent:pause", "Stop running checks for a while."),
        "resume": ("nhc.agent.commands.agent:resume", "Run checks again."),
        "check": ("nhc.agent.commands.agent:run_now", "Run checks now."),
        "ack": ("nhc.agent.commands.agent:ack", "Acknowledge a finding."),
        "reload": ("nhc.agent.commands.agent:reload", "Read the configuration again."),
    }),
    "fleet": ("Judge many nodes over SSH.", {
        "check": ("nhc.fleet.commands.fleet:check", "Judge every node of a fleet, nothing installed on it."),
        "diff": ("nhc.fleet.commands.fleet:diff", "Compare two sweeps."),
        "report": ("nhc.fleet.commands.fleet:report", "Show a sweep again: folded text, JSON, HTML."),
    }),
    "sync": ("nhc.marks.commands.sync:sync_command", "Mark and clear nodes as reports say, through any adapter."),
    "slurm": ("Work with Slurm.", {
        "sync": ("nhc.marks.commands.slurm:sync_command", "Drain and resume nodes as reports say, within ceilings."),
    }),
    "kubernetes": ("Kubernetes: conditions into cordons, taints, labels and drains.", {
        "sync": ("nhc.marks.commands.kubernetes:sync_command", "Bring all nodes in line with their conditions, once."),
        "controller": (
            "nhc.marks.commands.kubernetes:controller_command",
            "Keep all nodes in line with their conditions.",
        ),
        "status": (
            "nhc.marks.commands.kubernetes:status_command",
            "Show which nodes are sick, which are marked, and by whom.",
        ),
        "doctor": (
            "nhc.marks.commands.kubernetes:doctor_command",
            "Look for what would keep an installation from working.",
        ),
        "drain": (
            "nhc.marks.commands.kubernetes:drain_command",
            "Mark nodes and evict their pods, within disruption budgets.",
        ),
        "release-device": (
            "nhc.marks.commands.kubernetes:release_device_command",
            "Put devices of a node back in service by hand.",
        ),
        "uncordon": ("nhc.marks.commands.kubernetes:uncordon_command", "Take nhc's own marks off nodes."),
        "publish": ("nhc.marks.commands.kubernetes:publish_command", "Write reports as conditions of their nodes."),
        "state": ("nhc.marks.commands.kubernetes:state_command", "Put nodes in a state of the vocabulary."),
        "ack": ("nhc.marks.commands.kubernetes:ack_command", "End conditions that nothing shows to be gone."),
    }),
    "console": ("The web page over a fleet.", {
        "run": ("nhc.console.commands.console:run", "Show a fleet in a browser."),
        "token": ("nhc.console.commands.console:token", "Make a token that a person logs in with."),
    }),
    "top": ("nhc.console.commands.top:top", "Watch a fleet in a terminal."),
    "notices": ("Tell people what is wrong: mail, chat, pagers, tickets, webhooks.", {
        "run": ("nhc.console.commands.notices:run", "Send notices as incidents begin, change and end."),
        "test": ("nhc.console.commands.notices:test", "Send a test to a channel."),
        "status": ("nhc.console.commands.notices:status", "Show what waits for each channel, and what was lost."),
    }),
    "store": ("Look after the store of a fleet's reports, episodes and audit log.", {
        "migrate": ("nhc.store.commands.store:migrate", "Make the store, or bring it to this nhc's schema."),
        "check": ("nhc.store.commands.store:check", "Say whether this nhc can use the store."),
        "verify": ("nhc.store.commands.store:verify", "See whether the audit log is whole."),
        "import": ("nhc.store.commands.store:import_command", "Bring in reports that are there already."),
        "prune": ("nhc.store.commands.store:prune", "Delete what is old, archive the old audit log."),
        "status": ("nhc.store.commands.store:status", "Show what the store holds."),
    }),
    "server": ("Take in the reports that agents push.", {
        "run": ("nhc.store.commands.server:run", "Run the server in the foreground."),
        "token": ("nhc.store.commands.server:token", "Make a token for a node."),
        "revoke": ("nhc.store.commands.server:revoke", "End the tokens of a node."),
        "tokens": ("nhc.store.commands.server:tokens", "List the tokens, without themselves."),
    }),
    "serve": ("nhc.cli.serve:command", "Host the loops, notices, spares and the server in one process."),
    "spares": ("Spare nodes that stand in for those that are out.", {
        "status": ("nhc.remedy.commands.spares:status", "Show the spares, and for whom they stand in."),
        "verify": ("nhc.remedy.commands.spares:verify", "Say which spares may be trusted with work."),
        "swap": ("nhc.remedy.commands.spares:swap", "Swap spares in and back, once."),
    }),
    "train": ("Maintain many nodes in waves: drain, work, verify, return.", {
        "plan": ("nhc.remedy.commands.train_run:plan_command", "Show the waves of a train; nothing is done."),
        "run": ("nhc.remedy.commands.train_run:run_command", "Carry out a train, or go on with it."),
        "status": ("nhc.remedy.commands.train_persons:status", "Show trains, their nodes, and what holds them."),
        "approve": ("nhc.remedy.commands.train_persons:approve", "Agree to a train that waits for persons."),
        "hold": ("nhc.remedy.commands.train_persons:hold", "Let no node begin until it is resumed."),
        "resume": ("nhc.remedy.commands.train_persons:resume", "Let a held or stopped train go on."),
        "abort": ("nhc.remedy.commands.train_persons:abort", "End a train; nodes at work are finished."),
    }),
    "remedy": ("Repair nodes and bring them back.", {
        "run": ("nhc.remedy.commands.remedy_run:command", "Run the loop: in the foreground, or one round."),
        "status": ("nhc.remedy.commands.remedy_status:status", "Show what the loop is at, and what holds it."),
        "episodes": ("nhc.remedy.commands.remedy_status:episodes", "List episodes."),
        "show": ("nhc.remedy.commands.remedy_status:show", "Show an episode with all that was done."),
        "approve": (
            "nhc.remedy.commands.remedy_persons:approve",
            "Agree to a repair that waits for a person, or refuse it.",
        ),
        "hold": ("nhc.remedy.commands.remedy_persons:hold", "Keep the loop off a node, a group or the fleet."),
        "release": (
            "nhc.remedy.commands.remedy_persons:release",
            "End a hold, give a node back, or close the breaker.",
        ),
        "abort": ("nhc.remedy.commands.remedy_persons:abort", "Stop an episode."),
        "simulate": ("nhc.lab.commands.remedy_simulate:command", "Play recorded history against another policy."),
        "drill": (
            "nhc.lab.commands.remedy_drill:command",
            "Play what other loops failed at, or a fault on a real node.",
        ),
        "doctor": ("nhc.remedy.commands.remedy_doctor:command", "Look for what would keep the loop from working."),
    }),
    "job": ("Restart jobs after infrastructure faults, and only after those.", {
        "run": ("nhc.jobs.commands.job_run:command", "Run the loop: in the foreground, or one round."),
        "status": (
            "nhc.jobs.commands.job_status:status",
            "Show the jobs, their restarts, and which nodes failed them.",
        ),
        "watch": ("nhc.jobs.commands.job_watch:command", "Read a job's log, and name whom to test first."),
        "why": ("nhc.jobs.commands.job_why:command", "Say why a job ended: the program, a limit, a node, a person."),
        "nodes": ("nhc.jobs.commands.job_nodes:command", "Choose the nodes that are the best for a job now."),
        "forget": ("nhc.jobs.commands.job_status:forget", "Let a job use the nodes again that failed it."),
        "submit": ("nhc.jobs.commands.job_submit:command", "Submit a job so that it is restarted."),
        "step": (
            "nhc.jobs.commands.job_step:command",
            "Within an allocation of Slurm: run a step again without a failed node.",
        ),
    }),
    "demo": ("nhc.lab.commands.demo:demo", "Watch nhc at work on a fleet that is made up."),
    "record": ("nhc.node.commands.record:record_command", "Record what the checks see of this node, for replay."),
    "replay": ("nhc.node.commands.record:replay_command", "Judge a recorded node again."),
    "new": ("Begin a part of nhc itself, in a checkout.", {
        "check": ("nhc.lab.commands.new_check:new_check", "Write a new check's module and its test."),
        "adapter": (
            "nhc.lab.commands.new_part:new_adapter",
            "Write a new adapter's module, and its contract as a test.",
        ),
        "repairer": (
            "nhc.lab.commands.new_part:new_repairer",
            "Write a new repairer's module, and its contract as a test.",
        ),
        "sink": ("nhc.lab.commands.new_part:new_sink", "Write a new sink's module, and its contract as a test."),
    }),
    "completion": ("nhc.node.commands.catalogue:completion_command", "Print the completion script for a shell."),
}  # fmt: skip
