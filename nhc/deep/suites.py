"""Suites: which deep checks belong together. Each is a plain fragment of nhc.conf in the context `deep`.

One file a suite in conf/suites; all together are nhc/data/suites.conf, so that they travel with the package and in
nhc.pyz (`python -m nhc.deep.suites` writes it, a test holds it to the files). A site's own /etc/nhc/suites/NAME.conf
replaces a suite of nhc, or adds one. The suite `site` is the lines of the node's own nhc.conf in the context.
"""

from __future__ import annotations

import os
import sys
from typing import Dict, List, Mapping, NamedTuple, Tuple

from nhc.host import Host
from nhc.language import loader
from nhc.language.site_settings import site_settings
from nhc.plan import DEEP, Plan
from nhc.planning.local import Question, load_plan, select
from nhc.state.store import State

BUNDLE = "suites.conf"
MARK = "#@ "
SITE = "/etc/nhc/suites"
OWN = "site"


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
    from nhc.data.reader import read

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
        raise NoSuite(f"there is no suite {name!r}{hint}; nhc deep list shows them")
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
    """Write nhc/data/suites.conf from conf/suites; the names. For those who change a suite that comes with nhc."""
    from nhc.system.output_file import replace

    directory = f"{root}/conf/suites"
    names: List[str] = sorted(os.listdir(directory))
    host = Host()
    text = join({name[: -len(".conf")]: host.read(f"{directory}/{name}") for name in names})
    replace(f"{root}/nhc/data/{BUNDLE}", lambda file: file.write(text))
    return tuple(names)


if __name__ == "__main__":
    print(*write_bundle(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(sys.argv[0]))))))
