"""Suites: which deep checks belong together. Each is a plain fragment of nhc.conf in the context `deep`.

One file a suite in conf/suites; all together are nhc/core/data/suites.conf, so that they travel with the package and
in nhc.pyz (`python -m nhc.node.planning.suites` writes it, a test holds it to the files). A site's own
/etc/nhc/suites/NAME.conf replaces a suite of nhc, or adds one. The suite `site` is the lines of the node's own
nhc.conf in the context.
"""

from __future__ import annotations

import os
from typing import Dict, List, Mapping, NamedTuple, Sequence, Tuple

from nhc.core.check import find as find_check
from nhc.core.host import Host
from nhc.core.language import loader
from nhc.core.language.site_settings import site_settings
from nhc.core.plan import BUILT_IN, DEEP, Item, Plan
from nhc.core.state.store import State
from nhc.node.planning.local import Question, load_plan, select

BUNDLE = "suites.conf"
MARK = "#@ "
SITE = "/etc/nhc/suites"
OWN = "site"
USUAL = 20.0
"""Seconds expected of a check that names no duration and has not run here before."""
LEVELS = {"1": 30.0, "2": 120.0, "3": 900.0, "4": 5400.0}
"""Seconds that NVIDIA gives for the levels of its diagnostics; HyperPod gives 45 to 90 minutes for the last."""
TIMES = "deep-times"
"""Memory: how many seconds each line took when it last ran here."""


class ExpectedCheck(NamedTuple):
    """One check to come, and how long it is thought to take, in seconds."""

    name: str
    seconds: float


class NoSuite(ValueError):
    """There is no such suite, or it has nothing for this node: one line."""


class Suite(NamedTuple):
    """A suite: its name, its lines, where they are from, and the first line of what it says of itself."""

    name: str
    text: str
    source: str

    @property
    def shipped(self) -> bool:
        """Whether it comes with nhc: no file of the site's."""
        return self.source.startswith("suite ")

    @property
    def summary(self) -> str:
        first = self.text.lstrip("\n").split("\n", 1)[0].lstrip("# ")
        return first.partition(": ")[2].partition(" Run: ")[0] or first


def shipped() -> Dict[str, str]:
    """The text of each suite that comes with nhc, by its name in small letters."""
    from nhc.core.data.reader import read

    parts = (part.partition("\n") for part in f"\n{read(BUNDLE)}".split(f"\n{MARK}")[1:])
    return {name.strip(): text for name, _, text in parts}


def join(fragments: Mapping[str, str]) -> str:
    """The bundle of all suites by their names."""
    return "".join(f"{MARK}{name}\n{text.rstrip()}\n\n" for name, text in sorted(fragments.items()))


def suites(host: Host) -> Dict[str, Suite]:
    """Every suite there is, the site's own first. Raises OSError for a file of the site's that cannot be read."""
    known = {name: Suite(_written(name, text), text, f"suite {name}") for name, text in shipped().items()}
    try:
        own = [name for name in host.ours.listdir(SITE) if name.endswith(".conf") and name[0] != "."]
    except OSError:
        own = []
    for name in own:
        path, title = f"{SITE}/{name}", name[: -len(".conf")]
        known[title.lower()] = Suite(title, host.ours.read(path), path)
    return known


def _written(name: str, text: str) -> str:
    """A suite's name as its first line writes it: `InstanceStress`."""
    title = text.lstrip("\n# ").partition(":")[0]
    return title if title.lower() == name else name


def find(name: str, host: Host) -> Suite:
    """The suite called `name`, or in that file. Raises NoSuite, OSError."""
    if "/" in name or name.endswith(".conf"):
        return Suite(os.path.basename(name).rpartition(".conf")[0] or name, host.ours.read(name), name)
    known = suites(host)
    suite = known.get(name.lower())
    if suite is None:
        from difflib import get_close_matches

        near = get_close_matches(name.lower(), [*known, OWN], 1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        raise NoSuite(f"there is no suite {name!r}{hint}; nhc list suites shows them")
    return suite._replace(name=name)


def plan_of(name: str, host: Host, node: str, state: State) -> Plan:
    """What a suite has for this node. Raises NoSuite, loader.ConfigError for lines that are wrong, and OSError.

    A suite is a gate: a line of it that is wrong would be a test that is left out, so that nothing runs at all.
    """
    if name == OWN:
        asked = Question(profile="none", context=DEEP)
        plan = select(load_plan(asked, node, host, state), asked)
    else:
        suite = find(name, host)
        whole = loader.load_text(suite.text, suite.source, node, site_settings().settings, strict=True)
        plan = whole._replace(items=tuple(item for item in whole.items if DEEP in item.contexts))
    if not plan.items:
        raise NoSuite(f"suite {name} has no line for {node} in the context deep")
    return plan


def write_bundle(root: str) -> Tuple[str, ...]:
    """Write nhc/core/data/suites.conf from conf/suites; the names. For those who change a suite that comes with nhc."""
    from nhc.core.system.written_files import replace_output

    directory = f"{root}/conf/suites"
    names: List[str] = sorted(os.listdir(directory))
    host = Host()
    text = join({name[: -len(".conf")]: host.read(f"{directory}/{name}") for name in names})
    replace_output(f"{root}/nhc/core/data/{BUNDLE}", lambda file: file.write(text))
    return tuple(names)


def estimate(items: Sequence[Item], state: State) -> List[ExpectedCheck]:
    """How long each line may take: as long as it took here last, else the time that it is to load the node."""
    last = {line: float(took) for line, took in state.load(TIMES).items() if isinstance(took, (int, float))}
    return [ExpectedCheck(item.name, last.get(item.line, USUAL + duration(item))) for item in items]


def duration(item: Item) -> float:
    """For how long a line says that it loads the node, in seconds; 0 if it does not say."""
    check = find_check(item.argv[0]) if item.kind == BUILT_IN else None
    if check is None:
        return 0.0
    try:
        options = check.parse(item.argv[1:])
        value = options.get("duration", 0.0)
    except ValueError:
        return 0.0
    if item.name == "check_deep_dcgm":
        return LEVELS.get(options.get("run", ""), LEVELS["2"])
    return float(value) if isinstance(value, (int, float)) else 0.0


if __name__ == "__main__":
    import nhc

    print(*write_bundle(os.path.dirname(os.path.dirname(os.path.abspath(nhc.__file__)))))
