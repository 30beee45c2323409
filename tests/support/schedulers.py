"""Fake schedulers: the commands of each, behaving as its manual says, on a few nodes kept in memory.

Each is a `Runner` of nhc_adapters._command. A command or an option that the manual does not have is an error
here as it would be there.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import Callable, Dict, List, Mapping, Sequence
from xml.sax.saxutils import escape, quoteattr

from nhc.core.matching.node_ranges import expand, fold
from nhc.core.system.process import Completed


@dataclass
class Node:
    state: str
    reason: str = ""
    user: str = ""
    since: int = 0
    extra: Dict[str, str] = field(default_factory=dict)


class Fake:
    """`commands` maps a command's name to the function that carries it out."""

    first = "free"

    def __init__(self, names: Sequence[str]) -> None:
        self.nodes = {name: Node(self.first) for name in names}
        self.down = False
        self.commands: Dict[str, Callable[[List[str]], Completed]] = {}

    def __call__(self, argv: Sequence[str], timeout: float, env: Mapping[str, str]) -> Completed:
        if argv[0] not in self.commands:
            raise FileNotFoundError(2, "no such command", argv[0])
        if self.down:
            return self.unreachable(argv)
        return self.commands[argv[0]](list(argv[1:]))

    def unreachable(self, argv: Sequence[str]) -> Completed:
        return Completed(1, "", f"{argv[0]}: cannot connect to server\n")


def options(words: List[str], valued: str, switches: str) -> Dict[str, str]:
    """Leading options as getopt reads them; the rest stays in `words`."""
    found: Dict[str, str] = {}
    while words and words[0].startswith("-") and len(words[0]) > 1:
        word = words.pop(0)
        for place, letter in enumerate(word[1:], 1):
            if letter in valued:
                found[letter] = word[place + 1 :] or words.pop(0)
                break
            if letter not in switches:
                raise AssertionError(f"there is no option -{letter} in {word}")
            found[letter] = ""
    return found


class FakePbs(Fake):
    """pbsnodes(8B) of PBS Pro and OpenPBS."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(names)
        self.commands["pbsnodes"] = self.pbsnodes
        self.hosts: Dict[str, str] = {}
        """The hosts of vnodes that are called otherwise."""

    def unreachable(self, argv: Sequence[str]) -> Completed:
        return Completed(1, "", "Connection refused\npbsnodes: cannot connect to server pbs, error=15010\n")

    def pbsnodes(self, words: List[str]) -> Completed:
        got = options(words, "CF", "avorlL")
        if "C" in got and not set(got) & {"F"}:
            for name in words:
                if name not in self.nodes:
                    return Completed(1, "", f"Error marking node {name} - Unknown node \n")
            for name in words:
                node = self.nodes[name]
                node.reason = got["C"]
                if "o" in got:
                    node.state = "offline"
                if "r" in got:
                    node.state = "free"
            return Completed(0)
        assert got["F"] == "json"
        nodes: Dict[str, object] = {}
        status = 0
        for name in words or sorted(self.nodes):
            if name not in self.nodes:
                nodes[name] = {"Error": "Unknown node "}
                status = 1
                continue
            node = self.nodes[name]
            entry: Dict[str, object] = {"Mom": name, "Port": 15002, "state": node.state, "pcpus": 8, "queue": "workq"}
            host = self.hosts.get(name, name)
            entry["resources_available"] = {"arch": "linux", "host": host, "vnode": name}
            if node.reason:
                entry["comment"] = node.reason
            nodes[name] = entry
        value = {"timestamp": int(time.time()), "pbs_version": "23.06.06", "pbs_server": "pbs", "nodes": nodes}
        return Completed(status, json.dumps(value, indent=4))


class FakeTorque(Fake):
    """pbsnodes(8) of Torque."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(names)
        self.commands["pbsnodes"] = self.pbsnodes

    def unreachable(self, argv: Sequence[str]) -> Completed:
        return Completed(1, "", "pbsnodes: cannot connect to server head, error=111 (Connection refused)\n")

    def pbsnodes(self, words: List[str]) -> Completed:
        got = options(words, "N", "axorcqn")
        known = [name for name in words if name in self.nodes]
        strange = [name for name in words if name not in self.nodes]
        said = "".join(f"pbsnodes: Unknown node  MSG=cannot locate specified node {name}\n" for name in strange)
        if "x" in got:
            shown = "".join(self.show(name) for name in (known if words else sorted(self.nodes)))
            return Completed(1 if strange else 0, f"<Data>{shown}</Data>" if shown else "", said)
        for name in known:
            if "N" in got:
                self.nodes[name].reason = "" if got["N"] == "n" else got["N"]
            if "o" in got:
                self.nodes[name].state = "offline"
            if "c" in got or "r" in got:
                self.nodes[name].state = "free"
        return Completed(1 if strange else 0, "", said)

    def show(self, name: str) -> str:
        node = self.nodes[name]
        note = f"<note>{escape(node.reason)}</note>" if node.reason else ""
        return f"<Node><name>{name}</name><state>{node.state}</state><np>8</np><ntype>cluster</ntype>{note}</Node>"


class FakeLsf(Fake):
    """bhosts(1) and badmin(8) of Spectrum LSF."""

    first = "ok"

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(names)
        self.commands.update(bhosts=self.bhosts, badmin=self.badmin)

    def unreachable(self, argv: Sequence[str]) -> Completed:
        return Completed(255, "", "Failed in an LSF library call: LIM is down; try later\n")

    def bhosts(self, words: List[str]) -> Completed:
        assert words.pop(0) == "-l"
        strange = [name for name in words if name not in self.nodes]
        if strange:
            return Completed(255, "", f"{strange[0]}: Bad host name, host group name or cluster name\n")
        return Completed(0, "\n".join(self.show(name) for name in words or sorted(self.nodes)))

    def show(self, name: str) -> str:
        node = self.nodes[name]
        head = "STATUS           CPUF  JL/U    MAX  NJOBS    RUN  SSUSP  USUSP    RSV DISPATCH_WINDOW"
        row = f"{node.state:<16} 60.00     -     16      0      0      0      0      0      -"
        load = " CURRENT LOAD USED FOR SCHEDULING:\n              r15s   r1m  r15m\n Total         0.0   0.0   0.0"
        comment = f' ADMIN ACTION COMMENT: "{node.reason}"\n' if node.reason else ""
        return f"HOST  {name}\n{head}\n{row}\n\n{load}\n\n{comment}\n"

    def badmin(self, words: List[str]) -> Completed:
        verb = words.pop(0)
        got = options(words, "C", "")
        for name in words:
            if name not in self.nodes:
                return Completed(255, "", f"{name}: Bad host name\n")
            node = self.nodes[name]
            if verb == "hclose":
                node.state, node.reason = "closed_Adm", got.get("C", "")
            elif verb == "hopen":
                node.state, node.reason = "ok", ""
            else:
                raise AssertionError(f"badmin has no {verb}")
        return Completed(0, "".join(f"Host {name} is being {verb[1:]}d ...\n" for name in words))


class FakeGridEngine(Fake):
    """qhost(1), qmod(1) and qconf(1) of Grid Engine, with two queues."""

    first = ""
    queues = ("all.q", "gpu.q")

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(names)
        for node in self.nodes.values():
            node.extra.update(dict.fromkeys(self.queues, ""))
        self.commands.update(qhost=self.qhost, qmod=self.qmod, qconf=self.qconf)

    def unreachable(self, argv: Sequence[str]) -> Completed:
        said = "error: commlib error: got select error (Connection refused)\n"
        return Completed(1, "", said + 'error: unable to contact qmaster using port 6444 on host "head"\n')

    def qhost(self, words: List[str]) -> Completed:
        assert words[:4] == ["-q", "-F", "nhc_mark", "-xml"]
        names = words[5].split(",") if words[4:5] == ["-h"] else sorted(self.nodes)
        shown = "".join(self.show(name) for name in names if name in self.nodes)
        first = " <host name='global'><hostvalue name='arch_string'>-</hostvalue></host>\n"
        return Completed(0, f"<?xml version='1.0'?>\n<qhost xmlns:xsd=\"http://x\">\n{first}{shown}</qhost>\n")

    def show(self, name: str) -> str:
        node = self.nodes[name]
        kept = f"<resourcevalue name='nhc_mark' dominance='hf'>{escape(node.reason)}</resourcevalue>"
        queues = "".join(
            f"<queue name={quoteattr(queue)}><queuevalue qname='{queue}' name='slots_used'>0</queuevalue>"
            f"<queuevalue qname='{queue}' name='state_string'>{state}</queuevalue></queue>"
            for queue, state in node.extra.items()
        )
        inside = f"<hostvalue name='num_proc'>8</hostvalue>{kept if node.reason else ''}{queues}"
        return f"<host name='{name}'>{inside}</host>\n"

    def qmod(self, words: List[str]) -> Completed:
        verb = words.pop(0)
        for instance in words:
            queue, _at, name = instance.partition("@")
            if name not in self.nodes or queue not in self.nodes[name].extra:
                return Completed(1, "", f'invalid queue "{instance}"\n')
            self.nodes[name].extra[queue] = {"-d": "d", "-e": ""}[verb]
        return Completed(0)

    def qconf(self, words: List[str]) -> Completed:
        verb, kind, attribute, value, name = words
        assert (kind, attribute) == ("exechost", "complex_values")
        if name not in self.nodes:
            return Completed(1, "", f'"{name}" is not an execution host\n')
        key, _equals, text = value.partition("=")
        assert key == "nhc_mark"
        if set(text) & set(' ,="\n'):
            return Completed(1, "", f"denied: {text!r} is not a valid value\n")
        self.nodes[name].reason = {"-mattr": text, "-dattr": ""}[verb]
        return Completed(0)


class FakeFlux(Fake):
    """flux-resource(1)."""

    first = "avail"

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(names)
        self.commands["flux"] = self.flux

    def unreachable(self, argv: Sequence[str]) -> Completed:
        return Completed(1, "", "flux-resource: ERROR: unable to connect to Flux: ENOENT: No such file\n")

    def flux(self, words: List[str]) -> Completed:
        assert words.pop(0) == "resource"
        verb = words.pop(0)
        if verb == "status":
            assert words == ["-n", "-s", "avail,offline,exclude,draining,drained,allocated",
                             "-o", "{state}|{nodelist}|{reason}"]  # fmt: skip
            groups: Dict[tuple[str, str], List[str]] = {}
            for name, node in self.nodes.items():
                groups.setdefault((node.state, node.reason), []).append(name)
            return Completed(0, "".join(f"{s}|{fold(names)}|{reason}\n" for (s, reason), names in groups.items()))
        force = "--force" in words
        words = [word for word in words if word != "--force"]
        names = expand(words.pop(0))
        for name in names:
            if name not in self.nodes:
                return Completed(1, "", f"flux-resource: ERROR: invalid argument: {name}\n")
        if verb == "undrain":
            for name in names:
                if self.nodes[name].state != "drained":
                    return Completed(1, "", f"flux-resource: ERROR: rank {name} not drained\n")
                self.nodes[name].state, self.nodes[name].reason = "avail", ""
            return Completed(0)
        assert verb == "drain"
        if any(self.nodes[name].state == "drained" for name in names) and not force:
            return Completed(1, "", "flux-resource: ERROR: drain: already drained\n")
        for name in names:
            self.nodes[name].state, self.nodes[name].reason = "drained", " ".join(words)
        return Completed(0)
