"""Adapters by name. nhc never names an adapter in an import: it looks one up here, when it is asked for.

A name that is not in the table is looked for among the installed packages' entry points (group
`nhc.adapters`), so only a stranger's adapter pays for that search.
"""

from __future__ import annotations

from typing import Any, Dict, Optional

GROUP = "nhc.adapters"

ADAPTERS: Dict[str, str] = {
    "slurm": "nhc_adapters.slurm.adapter:Slurm",
    "slurm-rest": "nhc_adapters.slurm.rest:SlurmRest",
    "pbs": "nhc_adapters.pbs:Pbs",
    "torque": "nhc_adapters.pbs:Torque",
    "lsf": "nhc_adapters.lsf:Lsf",
    "sge": "nhc_adapters.sge:GridEngine",
    "flux": "nhc_adapters.flux:Flux",
    "kubernetes": "nhc_adapters.kubernetes.plugin:Adapter",
}

SINKS: Dict[str, str] = {
    "kubernetes": "nhc_adapters.kubernetes.sink.sink:sink",
}
"""What makes a sink of the agent (`nhc.ports.Sink`), given its settings, the node's name and where to complain."""

SINK_GROUP = "nhc.sinks"


class NoAdapter(Exception):
    """There is no such adapter, or it cannot be loaded. One line for a person."""


def adapter(name: str) -> Any:
    """The adapter's class. Raises NoAdapter."""
    where = ADAPTERS.get(name) or _installed(name)
    if where is None:
        from difflib import get_close_matches

        near = get_close_matches(name, list(ADAPTERS), 1)
        hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(sorted(ADAPTERS))}"
        raise NoAdapter(f"there is no adapter called {name!r}: {hint}")
    return _load(where, name)


def sink(name: str) -> Any:
    """What makes the sink called `name`. Raises NoAdapter."""
    where = SINKS.get(name) or _installed(name, SINK_GROUP)
    if where is None:
        raise NoAdapter(f"there is no sink called {name!r}: known are {', '.join(sorted([*SINKS, 'otel']))}")
    return _load(where, name)


def _load(where: str, name: str) -> Any:
    module, _, attribute = where.partition(":")
    try:
        return getattr(__import__(module, fromlist=[attribute]), attribute)
    except ModuleNotFoundError as error:
        package = (error.name or module).partition(".")[0]
        if package == "nhc_adapters":
            raise NoAdapter(
                f"adapter {name}: {module} is not installed (in a source checkout set PYTHONPATH=adapters)"
            ) from None
        from nhc.extras import how_to_install

        raise NoAdapter(f"adapter {name} needs the Python package {package}: {how_to_install(package, name)}") from None
    except AttributeError:
        raise NoAdapter(f"adapter {name}: {module} has no {attribute}") from None


def _installed(name: str, group_name: str = GROUP) -> Optional[str]:
    from importlib import metadata

    everything: Any = metadata.entry_points()
    # Python 3.9 has a plain mapping of groups here, later ones a selectable set.
    group = everything.select(group=group_name) if hasattr(everything, "select") else everything.get(group_name, ())
    return next((str(entry.value) for entry in group if entry.name == name), None)
