"""The commands: each with the place of its code (`module:attribute`), its line of help and an example (the words after
its name), each group with its line of help.

A verb that several parts of nhc share comes first, once: `nhc status remedy`, `nhc serve agent`. What only one part
does is a command of its group: `nhc train plan`.
"""

from __future__ import annotations

from nhc.core.light import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Dict, Mapping, Tuple, Union

    from typing_extensions import TypeAlias

    Entry: TypeAlias = "Union[Tuple[str, str, str], Tuple[str, CommandTable]]"
    CommandTable: TypeAlias = "Mapping[str, Entry]"
    """A command is (place, help, example); a group and a verb are (help, its commands)."""
    Sections: TypeAlias = Dict[str, Tuple[str, ...]]

    Table = Dict[str, Entry]
else:
    Table = dict


class Verb(Table):
    """The subjects of a verb. `default` is the subject if the first word names none."""

    def __init__(self, table: CommandTable, default: str = "") -> None:
        super().__init__(table)
        self.default = default


COMMANDS: CommandTable = {
    "check": ("Judge this node.", {
        "local": ("nhc.cli.click_app:check_local", "Judge the node this runs on, now.", "--all --skipped"),
    }),
    "list": ("List what there is: checks, suites, profiles, episodes, tokens.", Verb({
        "checks": ("nhc.node.commands.catalogue:list_command", "The built-in checks.", "--tag gpu"),
        "suites": ("nhc.deep.commands.deep:list_command", "The deep suites, or what one of them runs here.", "quick"),
        "profiles": ("nhc.node.commands.profile:list_profiles", "The known types of nodes.", "'aws-p5*'"),
        "episodes": ("nhc.remedy.commands.remedy_status:episodes", "The faults that the loop works on, or has ended.",
                     "-w 'gpu[001-016]' --since 12h"),
        "tokens": ("nhc.store.commands.server:tokens", "The tokens of nodes, without themselves.", "gpu001"),
    }, default="checks")),
    "explain": ("nhc.node.commands.catalogue:explain_command", "Explain a check, or a reason in a report.",
                "GpuLost"),
    "genconf": ("nhc.node.commands.genconf:command", "Write a configuration from what this node is and has.",
                "-c /etc/nhc/nhc.conf"),
    "config": ("Validate configurations.", {
        "check": ("nhc.node.commands.config:check", "Validate configuration files without running anything.",
                  "/etc/nhc/nhc.conf"),
        "show": ("nhc.node.commands.config:show", "Print what applies to a node, and where each line comes from.",
                 "-n gpu001 --context prolog"),
        "match": ("nhc.node.commands.config:match", "Say whether a target applies to a node.",
                  "gpu017 '{gpu[001-064]}'"),
    }),
    "profile": ("nhc.node.commands.profile:detect", "Name this node's type; or judge it by published criteria.",
                "clustermax"),
    "mute": ("nhc.node.commands.mute:mute", "Mute a check on this node until a date, or list what is muted.",
             "check_ib_link --until 3d --why 'cable ordered'"),
    "unmute": ("nhc.node.commands.mute:unmute", "End a mute now.", "check_ib_link"),
    "log": ("Read kernel logs.", {
        "classify": ("nhc.node.commands.log:classify", "Say what each line of a kernel log means.",
                     "/var/log/messages --explain"),
        "catalogue": ("nhc.node.commands.log:catalogue", "Show what is known of a code or a text of kernel logs.",
                      "Xid79"),
    }),
    "ack": ("Acknowledge what a person has dealt with.", Verb({
        "log": ("nhc.node.commands.log:ack", "Findings of this node's kernel log; without one, list them.",
                "xid/79 --note 'board replaced'"),
        "agent": ("nhc.agent.commands.agent:ack", "Findings of the agent on this node.",
                  "--all --note 'board replaced'"),
        "kubernetes": ("nhc.marks.commands.kubernetes:ack_command", "Conditions that nothing shows to be gone.",
                       "gpu-007 --condition NhcGpuProblem"),
    }, default="log")),
    "agent": ("Speak with the agent on this node.", {
        "check": ("nhc.agent.commands.agent:run_now", "Run checks now.", "check_gpu_count check_gpu_ecc"),
        "reload": ("nhc.agent.commands.agent:reload", "Read the configuration again.", ""),
    }),
    "deep": ("Test nodes deeply: under load, measured, with numbers that must be right.", {
        "run": ("nhc.deep.commands.deep:run_command", "Run a suite on this node.", "quick"),
        "calibrate": ("nhc.deep.commands.deep:calibrate_command", "Propose expected figures from healthy nodes.",
                      "reports/ -o deep-expected.tsv"),
        "restore": ("nhc.deep.commands.deep:restore_command", "Put back what a run that was killed has left.", ""),
        "sweep": (
            "nhc.deep.commands.deep_sweep:command", "Test many nodes with one another, and name who is to blame.",
            "-w 'gpu[001-064]' --dry-run"
        ),
        "history": ("nhc.deep.commands.deep_sweep:history", "Show what deep checks found of a node.",
                    "gpu001 --rates"),
        "due": ("nhc.deep.commands.deep_due:command", "Show who needs a deep check before a large job.",
                "-w 'gpu[001-064]' --younger-than 7d"),
    }),
    "gate": ("Keep work off a node until its suite has passed.", {
        "run": ("nhc.remedy.commands.gate_run:run_command", "Test this node where its gate is due, and let work in.",
                "--apply"),
        "boot": (
            "nhc.remedy.commands.gate_run:boot_command", "Hold this node where its gate is due: before slurmd starts.",
            "--apply"
        ),
        "adopt": ("nhc.remedy.commands.gate_run:adopt_command", "Take nodes without a verdict as they are.",
                  "'gpu[001-064]' --why 'in service before the gate' --apply"),
        "open": ("nhc.remedy.commands.gate_run:open_command", "Let work onto nodes whose suite has not passed.",
                 "gpu001 --why 'tested by hand' --apply"),
        "close": ("nhc.remedy.commands.gate_run:close_command", "Hold nodes until their suite has passed anew.",
                  "'gpu[001-016]' --why 'new firmware' --apply"),
    }),
    "fleet": ("Judge many nodes over SSH.", {
        "check": ("nhc.fleet.commands.fleet:check", "Judge every node of a fleet, nothing installed on it.",
                  "-w 'gpu[001-128]' --sudo"),
        "diff": ("nhc.fleet.commands.fleet:diff", "Compare two sweeps.", ""),
        "report": ("nhc.fleet.commands.fleet:report", "Show a sweep again: folded text, JSON, HTML.",
                   "last -f html -o sweep.html"),
    }),
    "top": ("nhc.console.commands.top:top", "Watch a fleet in a terminal.", "--store /var/lib/nhc-server/store.db"),
    "job": ("Restart jobs after infrastructure faults, and only after those.", {
        "submit": ("nhc.jobs.commands.job_submit:command", "Submit a job so that it is restarted.",
                   "--max-restarts 3 -- -N 16 train.sh"),
        "step": (
            "nhc.jobs.commands.job_step:command",
            "Within an allocation of Slurm: run a step again without a failed node.",
            "--max-restarts 2 -- python train.py"
        ),
        "nodes": ("nhc.jobs.commands.job_nodes:command", "Choose the nodes that are the best for a job now.",
                  "--count 8 --proved 7d"),
        "forget": ("nhc.jobs.commands.job_status:forget", "Let a job use the nodes again that failed it.",
                   "4711 gpu001"),
        "watch": ("nhc.jobs.commands.job_watch:command", "Read a job's log, and name whom to test first.",
                  "slurm-4711.out --follow"),
        "why": ("nhc.jobs.commands.job_why:command", "Say why a job ended: the program, a limit, a node, a person.",
                "4711"),
    }),
    "sync": ("Mark and clear nodes as reports say, once, through any adapter.", Verb({
        "adapter": ("nhc.marks.commands.sync:sync_command", "The nodes of an adapter, as reports say.",
                    "-r reports/ --adapter slurm"),
        "slurm": ("nhc.marks.commands.sync:slurm_command", "Nodes of Slurm, as reports say, within ceilings.",
                  "-r reports/ --apply"),
        "kubernetes": ("nhc.marks.commands.kubernetes:sync_command", "Nodes of Kubernetes, as their conditions say.",
                       "--apply"),
        "gate": ("nhc.remedy.commands.gate_run:sync_command", "A cluster's gates, as its nodes say.", "--apply"),
    }, default="adapter")),
    "approve": ("Agree to what waits for a person, or refuse it.", Verb({
        "episode": ("nhc.remedy.commands.remedy_operators:approve", "A repair.", "12"),
        "train": ("nhc.remedy.commands.train_run:approve", "A train.", "firmware-2026-03 --why 'window agreed'"),
    })),
    "hold": ("Let nothing begin until it is released.", Verb({
        "remedy": ("nhc.remedy.commands.remedy_operators:hold", "The loop, on nodes, a group or the fleet.",
                   "'gpu[001-016]' --until 3d --why 'vendor at work'"),
        "train": ("nhc.remedy.commands.train_run:hold", "A train: no further node begins.",
                  "firmware-2026-03 --why 'first wave looks slow'"),
        "agent": ("nhc.agent.commands.agent:pause", "The agent on this node: it runs no checks for a while.",
                  "--for 30m 'changing a cable'"),
    })),
    "release": ("End a hold.", Verb({
        "remedy": (
            "nhc.remedy.commands.remedy_operators:release",
            "The loop's hold on nodes; give a node back, or close the breaker.",
            "'gpu[001-016]'"
        ),
        "train": ("nhc.remedy.commands.train_run:resume", "A held or stopped train.",
                  "firmware-2026-03 --why 'wave was fine'"),
        "agent": ("nhc.agent.commands.agent:resume", "The agent on this node: it runs checks again.", ""),
    })),
    "abort": ("End what is under way.", Verb({
        "episode": ("nhc.remedy.commands.remedy_operators:abort", "An episode; its node stays as it is.",
                    "12 --why 'node goes back to the vendor'"),
        "train": ("nhc.remedy.commands.train_run:abort", "A train; nodes at work are finished.",
                  "firmware-2026-03 --why 'wrong version'"),
        "sweep": ("nhc.deep.commands.deep_stop:command", "A sweep, whoever runs it.", "7"),
    })),
    "kubernetes": ("Act on nodes of Kubernetes.", {
        "drain": (
            "nhc.marks.commands.kubernetes:drain_command",
            "Mark nodes and evict their pods, within disruption budgets.",
            "gpu-007 --deadline 30m --apply"
        ),
        "release-device": (
            "nhc.marks.commands.kubernetes:release_device_command", "Put devices of a node back in service by hand.",
            "gpu-007 0000:5b:00.0"
        ),
        "uncordon": ("nhc.marks.commands.kubernetes:uncordon_command", "Take nhc's own marks off nodes.", "gpu-007"),
        "publish": ("nhc.marks.commands.kubernetes:publish_command", "Write reports as conditions of their nodes.",
                    "--node gpu-007 -r report.json"),
        "preflight": ("nhc.hooks.commands.preflight:command", "Run a suite before a pod's containers start.", ""),
        "state": ("nhc.marks.commands.kubernetes:state_command", "Put nodes in a state of the vocabulary.",
                  "failed gpu-007"),
    }),
    "spares": ("Spare nodes that stand in for those that are out.", {
        "verify": ("nhc.remedy.commands.spares:verify", "Say which spares may be trusted with work.",
                   "--pools spares.toml"),
        "swap": ("nhc.remedy.commands.spares:swap", "Swap spares in and back, once.", "--pools spares.toml --apply"),
    }),
    "train": ("Maintain many nodes in waves: drain, work, verify, return.", {
        "plan": ("nhc.remedy.commands.train_run:plan_command", "Show the waves of a train; nothing is done.",
                 "firmware.toml"),
        "run": ("nhc.remedy.commands.train_run:run_command", "Carry out a train, or go on with it.",
                "firmware.toml --apply"),
    }),
    "serve": ("Run a service in the foreground.", Verb({
        "all": ("nhc.cli.serve:command", "Loops, notices, spares and the server in one process.",
                "-s /etc/nhc/serve.toml"),
        "agent": ("nhc.agent.commands.agent:run", "The agent: it watches this node.", "--listen 127.0.0.1:9950"),
        "remedy": ("nhc.remedy.commands.remedy_run:command", "The loop that repairs nodes; or one round of it.",
                   "-s /etc/nhc/remedy.toml --dry-run"),
        "job": ("nhc.jobs.commands.job_run:command", "The loop that restarts jobs; or one round of it.",
                "-s /etc/nhc/jobs.toml --dry-run"),
        "kubernetes": (
            "nhc.marks.commands.kubernetes:controller_command",
            "The controller: it keeps nodes in line with their conditions.",
            "-s kubernetes.toml --apply"
        ),
        "preflight": (
            "nhc.deep.commands.serve_preflight:command", "The webhook that adds a suite before a pod starts.",
            "-s kubernetes.toml --certificate /etc/nhc-preflight"
        ),
        "server": ("nhc.store.commands.server:run", "The server that takes in the reports of agents.",
                   "--listen 127.0.0.1:9810"),
        "console": ("nhc.console.commands.console:run", "A fleet in a browser.",
                    "-r reports/ --listen 127.0.0.1:9810"),
        "notices": ("nhc.console.commands.notices:run", "Notices to people, as incidents begin, change and end.",
                    "-s /etc/nhc/notices.toml --once"),
    }, default="all")),
    "doctor": ("Look for what would keep a part from working.", Verb({
        "remedy": ("nhc.remedy.commands.remedy_doctor:command", "The loop that repairs nodes.",
                   "-s /etc/nhc/remedy.toml"),
        "gate": ("nhc.remedy.commands.gate_status:doctor_command", "Gates: what would not wait for a suite.",
                 "-s /etc/nhc/gate.toml"),
        "kubernetes": ("nhc.marks.commands.kubernetes:doctor_command", "An installation on Kubernetes.", ""),
        "store": ("nhc.store.commands.store:check", "The store: whether this nhc can use it.", ""),
    })),
    "store": ("Look after the store of a fleet's reports, episodes and audit log.", {
        "migrate": ("nhc.store.commands.store:migrate", "Make the store, or bring it to this nhc's schema.", ""),
        "import": ("nhc.store.commands.store:import_command", "Bring in reports that are there already.",
                   "/var/lib/nhc/reports"),
        "prune": ("nhc.store.commands.store:prune", "Delete what is old, archive the old audit log.", "--apply"),
        "verify": ("nhc.store.commands.store:verify", "See whether the audit log is whole.", ""),
    }),
    "token": ("Tokens that nodes and persons log in with.", {
        "node": ("nhc.store.commands.server:token", "Make a token for a node.", "'gpu[001-128]'"),
        "revoke": ("nhc.store.commands.server:revoke", "End the tokens of a node.", "gpu001"),
        "person": ("nhc.console.commands.console:token", "Make a token for a person at the console.", "alice"),
    }),
    "notices": ("Tell people what is wrong: mail, chat, pagers, tickets, webhooks.", {
        "test": ("nhc.console.commands.notices:test", "Send a test to a channel.", "mail"),
    }),
    "status": ("Show how a part is, and what holds it; alone, what of nhc there is here.", Verb({
        "overview": ("nhc.cli.overview:command", "What of nhc is set up and runs on this machine.", ""),
        "agent": ("nhc.agent.commands.agent:status", "What the agent on this node knows.", "--checks"),
        "gate": ("nhc.remedy.commands.gate_status:status_command", "This node's gate.", ""),
        "deep": (
            "nhc.deep.commands.deep_sweep:status", "The sweeps, and the age of each node's last deep verdict.",
            "--older-than 7"
        ),
        "remedy": ("nhc.remedy.commands.remedy_status:status", "What the loop is at, and what holds it.", ""),
        "train": ("nhc.remedy.commands.train_run:status", "Trains, their nodes, and what holds them.",
                  "firmware-2026-03"),
        "spares": ("nhc.remedy.commands.spares:status", "The spares, and for whom they stand in.",
                   "--pools spares.toml"),
        "job": (
            "nhc.jobs.commands.job_status:status", "The jobs, their restarts, and which nodes failed them.", "4711"
        ),
        "kubernetes": (
            "nhc.marks.commands.kubernetes:status_command", "Which nodes are sick, which are marked, and by whom.", ""
        ),
        "notices": ("nhc.console.commands.notices:status", "What waits for each channel, and what was lost.", ""),
        "store": ("nhc.store.commands.store:status", "What the store holds.", ""),
        "fleet": ("nhc.store.commands.fleet_status:command",
                  "How often nodes fail, by driver, model or rack, and whether less since a date.",
                  "--by driver --since 14d"),
    }, default="overview")),
    "show": ("Show one thing with all that is known of it.", Verb({
        "episode": ("nhc.remedy.commands.remedy_status:show", "An episode with all that was done.", "12"),
        "sweep": ("nhc.deep.commands.deep_sweep:show", "A deep sweep: whom it blames, and by which tests.", "7"),
        "profile": ("nhc.node.commands.profile:show", "What a node of a type should have.", "aws-p5.48xlarge"),
    })),
    "record": ("nhc.node.commands.record:record_command", "Record what the checks see of this node, for replay.",
               "gpu001.recording"),
    "replay": ("nhc.node.commands.record:replay_command", "Judge a recorded node again.", "tests/nodes/h100-xid79"),
    "demo": ("nhc.lab.commands.demo:demo", "Watch nhc at work on a fleet that is made up.", "--size 200 --top"),
    "simulate": ("Play on a made-up cluster.", Verb({
        "remedy": ("nhc.lab.commands.remedy_simulate:command", "Recorded history against another policy.",
                   "--policy remedy.toml --since 30d"),
        "deep": ("nhc.deep.commands.deep_simulate:command", "A sweep of many nodes.", "--size 64 --bad 3"),
    })),
    "drill": ("nhc.lab.commands.remedy_drill:command", "Play what other loops failed at, or a fault on a real node.",
              "--list"),
    "inject": ("nhc.lab.commands.inject:inject", "Write a fault into this node's kernel log, as a drill.",
               "xid-79 --dry-run"),
    "new": ("Begin a part of nhc itself, in a checkout.", Verb({
        "check": ("nhc.lab.commands.new_part:new_check", "A check's module and its test.", "check_thermal_zones"),
        "adapter": ("nhc.lab.commands.new_part:new_adapter", "An adapter's module, and its contract as a test.",
                    "flux"),
        "repairer": ("nhc.lab.commands.new_part:new_repairer", "A repairer's module, and its contract as a test.",
                     "pdu"),
        "sink": ("nhc.lab.commands.new_part:new_sink", "A sink's module, and its contract as a test.", "kafka"),
    })),
    "completion": ("nhc.node.commands.catalogue:completion_command", "Print the completion script for a shell.",
                   "bash"),
}  # fmt: skip

SECTIONS: Sections = {
    "This node": (
        "check", "explain", "genconf", "config", "profile", "mute", "unmute", "log", "ack", "agent", "deep", "gate",
    ),
    "Many nodes": ("fleet", "top", "job", "spares", "train"),
    "Act": ("sync", "hold", "release", "approve", "abort", "kubernetes"),
    "Services": ("serve", "doctor", "store", "token", "notices"),
    "Look back": ("status", "show", "list", "record", "replay"),
    "Develop": ("demo", "simulate", "drill", "inject", "new", "completion"),
}  # fmt: skip
"""The commands under the headings of `nhc --help`, by who uses them."""

PLAIN = frozenset({
    "nhc.node.commands.genconf:command", "nhc.node.commands.catalogue:completion_command",
    "nhc.console.commands.top:top", "nhc.lab.commands.demo:demo", "nhc.jobs.commands.job_step:command",
    "nhc.cli.serve:command", "nhc.agent.commands.agent:run", "nhc.store.commands.server:run",
    "nhc.console.commands.console:run", "nhc.console.commands.notices:run",
    "nhc.marks.commands.kubernetes:controller_command",
})  # fmt: skip
"""Commands without `--format`: services, a screen, a file for another program, the output of a user's program."""
