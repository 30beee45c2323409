"""The commands: each with the place of its code (`module:attribute`) and its line of help, each group with its own."""

from __future__ import annotations

from nhc.light import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Dict, Tuple, Union

    from typing_extensions import TypeAlias

    CommandTable: TypeAlias = "Dict[str, Tuple[str, Union[str, CommandTable]]]"
    """A command is (place, help); a group is (help, its commands)."""

COMMANDS: CommandTable = {
    "check": ("Judge this node.", {
        "local": ("nhc.cli.click_app:check_local", "Judge the node this runs on, now."),
    }),
    "list": ("nhc.cli.catalogue:list_command", "List the built-in checks."),
    "explain": ("nhc.cli.catalogue:explain_command", "Explain a check, or a reason in a report."),
    "genconf": ("nhc.cli.genconf:command", "Write a configuration from what this node is and has."),
    "config": ("Validate configurations.", {
        "check": ("nhc.cli.config:check", "Validate configuration files without running anything."),
        "show": ("nhc.cli.config_show:show", "Print what applies to a node, and where each line comes from."),
        "match": ("nhc.cli.config:match", "Say whether a target applies to a node."),
    }),
    "mute": ("nhc.cli.mute:mute", "Mute a check on this node until a date, or list what is muted."),
    "unmute": ("nhc.cli.mute:unmute", "End a mute now."),
    "profile": ("What this node type should have.", {
        "detect": ("nhc.cli.profile:detect", "Name this node's type, and say why."),
        "list": ("nhc.cli.profile:list_profiles", "List the known types."),
        "show": ("nhc.cli.profile:show", "Show a type's expectations."),
    }),
    "deep": ("Test nodes deeply: under load, measured, with numbers that must be right.", {
        "run": ("nhc.cli.deep:run_command", "Run a suite on this node."),
        "list": ("nhc.cli.deep:list_command", "List the suites, or what one of them runs here."),
        "calibrate": ("nhc.cli.deep:calibrate_command", "Propose expected figures from healthy nodes."),
        "restore": ("nhc.cli.deep:restore_command", "Put back what a run that was killed has left."),
        "sweep": ("nhc.cli.deep_sweep:command", "Test many nodes with one another, and name who is to blame."),
        "status": ("nhc.cli.deep_results:status", "Show the sweeps, and the age of each node's last deep verdict."),
        "show": ("nhc.cli.deep_results:show", "Show a sweep: whom it blames, and by which tests."),
        "history": ("nhc.cli.deep_results:history", "Show what deep checks found of a node."),
        "stop": ("nhc.cli.deep_stop:command", "End a sweep, whoever runs it."),
        "due": ("nhc.cli.deep_due:command", "Show who needs a deep check before a large job."),
        "simulate": ("nhc.cli.deep_simulate:command", "Play a sweep of many nodes on a made-up cluster."),
    }),
    "gate": ("Keep work off a node until its suite has passed.", {
        "run": ("nhc.cli.gate_run:run_command", "Test this node where its gate is due, and let work in."),
        "boot": ("nhc.cli.gate_run:boot_command", "Hold this node where its gate is due: before slurmd starts."),
        "status": ("nhc.cli.gate_status:status_command", "Show how this node's gate stands."),
        "adopt": ("nhc.cli.gate_run:adopt_command", "Take nodes without a verdict as they are."),
        "open": ("nhc.cli.gate_orders:open_command", "Let work onto nodes whose suite has not passed."),
        "close": ("nhc.cli.gate_orders:close_command", "Hold nodes until their suite has passed anew."),
        "sync": ("nhc.cli.gate_orders:sync_command", "Bring a cluster's gates in line with what its nodes say."),
        "doctor": ("nhc.cli.gate_status:doctor_command", "Look for what would not wait for a suite."),
    }),
    "log": ("Read kernel logs.", {
        "classify": ("nhc.cli.kernel:classify", "Say what each line of a kernel log means."),
        "catalogue": ("nhc.cli.kernel:catalogue", "Show what is known of a code or a text of kernel logs."),
    }),
    "inject": ("nhc.cli.kernel:inject", "Write a fault into this node's kernel log, as a drill."),
    "ack": ("nhc.cli.kernel:ack", "Acknowledge findings of the kernel log, or list them."),
    "agent": ("The resident agent.", {
        "run": ("nhc.cli.agent:run", "Run the agent in the foreground."),
        "status": ("nhc.cli.agent:status", "Ask the agent what it knows."),
        "pause": ("nhc.cli.agent:pause", "Stop running checks for a while."),
        "resume": ("nhc.cli.agent:resume", "Run checks again."),
        "check": ("nhc.cli.agent:run_now", "Run checks now."),
        "ack": ("nhc.cli.agent:ack", "Acknowledge a finding."),
        "reload": ("nhc.cli.agent:reload", "Read the configuration again."),
    }),
    "fleet": ("Judge many nodes over SSH.", {
        "check": ("nhc.cli.fleet:check", "Judge every node of a fleet, nothing installed on it."),
        "diff": ("nhc.cli.fleet:diff", "Compare two sweeps."),
        "report": ("nhc.cli.fleet:report", "Show a sweep again: folded text, JSON, HTML."),
    }),
    "sync": ("nhc.cli.sync:sync_command", "Mark and clear nodes as reports say, through any adapter."),
    "slurm": ("Work with Slurm.", {
        "sync": ("nhc.cli.slurm:sync_command", "Drain and resume nodes as reports say, within ceilings."),
    }),
    "kubernetes": ("Kubernetes: conditions into cordons, taints, labels and drains.", {
        "sync": ("nhc.cli.kubernetes:sync_command", "Bring all nodes in line with their conditions, once."),
        "controller": ("nhc.cli.kubernetes:controller_command", "Keep all nodes in line with their conditions."),
        "status": ("nhc.cli.kubernetes:status_command", "Show which nodes are sick, which are marked, and by whom."),
        "doctor": ("nhc.cli.kubernetes:doctor_command", "Look for what would keep an installation from working."),
        "drain": ("nhc.cli.kubernetes:drain_command", "Mark nodes and evict their pods, within disruption budgets."),
        "release-device": (
            "nhc.cli.kubernetes:release_device_command",
            "Put devices of a node back in service by hand.",
        ),
        "uncordon": ("nhc.cli.kubernetes:uncordon_command", "Take nhc's own marks off nodes."),
        "publish": ("nhc.cli.kubernetes:publish_command", "Write reports as conditions of their nodes."),
        "state": ("nhc.cli.kubernetes:state_command", "Put nodes in a state of the vocabulary."),
        "ack": ("nhc.cli.kubernetes:ack_command", "End conditions that nothing shows to be gone."),
    }),
    "console": ("The web page over a fleet.", {
        "run": ("nhc.cli.console:run", "Show a fleet in a browser."),
        "token": ("nhc.cli.console:token", "Make a token that a person logs in with."),
    }),
    "top": ("nhc.cli.top:top", "Watch a fleet in a terminal."),
    "notices": ("Tell people what is wrong: mail, chat, pagers, tickets, webhooks.", {
        "run": ("nhc.cli.notices:run", "Send notices as incidents begin, change and end."),
        "test": ("nhc.cli.notices:test", "Send a test to a channel."),
        "status": ("nhc.cli.notices:status", "Show what waits for each channel, and what was lost."),
    }),
    "store": ("Look after the store of a fleet's reports, episodes and audit log.", {
        "migrate": ("nhc.cli.store:migrate", "Make the store, or bring it to this nhc's schema."),
        "check": ("nhc.cli.store:check", "Say whether this nhc can use the store."),
        "verify": ("nhc.cli.store:verify", "See whether the audit log is whole."),
        "import": ("nhc.cli.store:import_command", "Bring in reports that are there already."),
        "prune": ("nhc.cli.store:prune", "Delete what is old, archive the old audit log."),
        "status": ("nhc.cli.store:status", "Show what the store holds."),
    }),
    "server": ("Take in the reports that agents push.", {
        "run": ("nhc.cli.server:run", "Run the server in the foreground."),
        "token": ("nhc.cli.server:token", "Make a token for a node."),
        "revoke": ("nhc.cli.server:revoke", "End the tokens of a node."),
        "tokens": ("nhc.cli.server:tokens", "List the tokens, without themselves."),
    }),
    "serve": ("nhc.cli.serve:command", "Host the loops, notices, spares and the server in one process."),
    "spares": ("Spare nodes that stand in for those that are out.", {
        "status": ("nhc.cli.spares:status", "Show the spares, and for whom they stand in."),
        "verify": ("nhc.cli.spares:verify", "Say which spares may be trusted with work."),
        "swap": ("nhc.cli.spares:swap", "Swap spares in and back, once."),
    }),
    "train": ("Maintain many nodes in waves: drain, work, verify, return.", {
        "plan": ("nhc.cli.train_run:plan_command", "Show the waves of a train; nothing is done."),
        "run": ("nhc.cli.train_run:run_command", "Carry out a train, or go on with it."),
        "status": ("nhc.cli.train_persons:status", "Show trains, their nodes, and what holds them."),
        "approve": ("nhc.cli.train_persons:approve", "Agree to a train that waits for persons."),
        "hold": ("nhc.cli.train_persons:hold", "Let no node begin until it is resumed."),
        "resume": ("nhc.cli.train_persons:resume", "Let a held or stopped train go on."),
        "abort": ("nhc.cli.train_persons:abort", "End a train; nodes at work are finished."),
    }),
    "remedy": ("Repair nodes and bring them back.", {
        "run": ("nhc.cli.remedy_run:command", "Run the loop: in the foreground, or one round."),
        "status": ("nhc.cli.remedy_status:status", "Show what the loop is at, and what holds it."),
        "episodes": ("nhc.cli.remedy_status:episodes", "List episodes."),
        "show": ("nhc.cli.remedy_status:show", "Show an episode with all that was done."),
        "approve": ("nhc.cli.remedy_persons:approve", "Agree to a repair that waits for a person, or refuse it."),
        "hold": ("nhc.cli.remedy_persons:hold", "Keep the loop off a node, a group or the fleet."),
        "release": ("nhc.cli.remedy_persons:release", "End a hold, give a node back, or close the breaker."),
        "abort": ("nhc.cli.remedy_persons:abort", "Stop an episode."),
        "simulate": ("nhc.cli.remedy_simulate:command", "Play recorded history against another policy."),
        "drill": ("nhc.cli.remedy_drill:command", "Play what other loops failed at, or a fault on a real node."),
        "doctor": ("nhc.cli.remedy_doctor:command", "Look for what would keep the loop from working."),
    }),
    "job": ("Restart jobs after infrastructure faults, and only after those.", {
        "run": ("nhc.cli.job_run:command", "Run the loop: in the foreground, or one round."),
        "status": ("nhc.cli.job_status:status", "Show the jobs, their restarts, and which nodes failed them."),
        "watch": ("nhc.cli.job_watch:command", "Read a job's log, and name whom to test first."),
        "why": ("nhc.cli.job_why:command", "Say why a job ended: the program, a limit, a node, a person."),
        "nodes": ("nhc.cli.job_nodes:command", "Choose the nodes that are the best for a job now."),
        "forget": ("nhc.cli.job_status:forget", "Let a job use the nodes again that failed it."),
        "submit": ("nhc.cli.job_submit:command", "Submit a job so that it is restarted."),
        "step": ("nhc.cli.job_step:command", "Within an allocation of Slurm: run a step again without a failed node."),
    }),
    "demo": ("nhc.cli.demo:demo", "Watch nhc at work on a fleet that is made up."),
    "record": ("nhc.cli.record:record_command", "Record what the checks see of this node, for replay."),
    "replay": ("nhc.cli.record:replay_command", "Judge a recorded node again."),
    "new": ("Begin a part of nhc itself, in a checkout.", {
        "check": ("nhc.cli.new_check:new_check", "Write a new check's module and its test."),
        "adapter": ("nhc.cli.new_part:new_adapter", "Write a new adapter's module, and its contract as a test."),
        "repairer": ("nhc.cli.new_part:new_repairer", "Write a new repairer's module, and its contract as a test."),
        "sink": ("nhc.cli.new_part:new_sink", "Write a new sink's module, and its contract as a test."),
    }),
    "completion": ("nhc.cli.catalogue:completion_command", "Print the completion script for a shell."),
}  # fmt: skip
