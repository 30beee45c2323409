"""Reference pages out of the code: checks, reasons, commands, settings, metrics, schemas, and the public API."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import re
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Tuple

import click
from click.testing import CliRunner

from nhc.cli.click_app import application
from nhc.core.check import find_all
from nhc.core.settings.declared import Reference, reference
from nhc.core.settings.files import FILES, file_of
from nhc.marks import plugins
from nhc.node.planning.runbooks import reasons
from nhc_release.manpages import commands

PUBLIC = (
    "nhc.core.check",
    "nhc.core.model",
    "nhc.marks.ports.adapter",
    "nhc.marks.ports.repair",
    "nhc.lab.testing.fake_host",
    "nhc.lab.testing.adapters",
    "nhc.lab.testing.repairers",
    "nhc.lab.testing.sinks",
)
"""What packages of a site may import (docs/extending.md)."""
PARTS = {
    plugins.REPAIRERS: "remedy.toml, [repairers.{name}]",
    plugins.RUNNERS: "remedy.toml, [verify.{name}]",
    plugins.CANDIDATES: "remedy.toml, [leader] by {name}",
    plugins.JOB_CONTROLLERS: "jobs.toml, [controllers.{name}]",
    plugins.SPARE_POOLS: "spares.toml, a pool of {name}",
    plugins.GATEKEEPERS: "gate.toml, [adapter] of {name}",
    plugins.LIFECYCLE_HOOKS: "gate.toml, a hook of {name}",
    plugins.LAUNCHERS: "nhc deep sweep --launcher {name}, by --set",
}
"""Where the settings of each kind of part stand."""
SCHEMAS = ("report", "event")
METRIC = re.compile(r"(nhc|node)_[a-z0-9_]+$")
KINDS = ("counter", "gauge", "histogram")


def pages(root: Path) -> Dict[str, str]:
    """Each page's text by its file name, in the order of the menu."""
    return {
        "checks.md": checks(),
        "reasons.md": findings(),
        "commands.md": options(),
        "settings.md": settings(root),
        "metrics.md": metrics(root),
        "schemas.md": schemas(root),
        "api.md": api(),
    }


def _explained(name: str) -> str:
    done = CliRunner().invoke(application, ["explain", name])
    if done.exit_code:
        raise ValueError(f"nhc explain {name}: {done.output}")
    return done.output


def fenced(text: str, language: str = "") -> str:
    """A block of code, whatever is in it. Without a language it is text, whose long lines the page folds."""
    return f"````{language or '{.text .folded}'}\n{text.strip(chr(10))}\n````"


def unfolded(text: str) -> str:
    """Paragraphs as a line each: the page folds them at its own width. Examples and arguments keep their lines."""
    lines: List[str] = []
    for line in text.split("\n"):
        goes_on = lines and lines[-1][:1].strip() and line[:1].strip() and not line.startswith(("-", "Example:"))
        if goes_on and not lines[-1].startswith(("Example:", "Arguments:")):
            lines[-1] += f" {line}"
        else:
            lines.append(line)
    return "\n".join(lines)


def runbook(text: str) -> str:
    """What `nhc explain REASON` prints, as paragraphs: a line at the margin heads those that are indented below it."""
    title, *lines = text.strip("\n").split("\n")
    parts: List[str] = [plain(title.partition(": ")[2])]
    for line in lines:
        if line[:1].strip():
            parts.append(f"**{plain(line)}**\n")
        else:
            parts.append(plain(line.strip()))
    return "\n".join(parts).strip("\n")


def plain(text: str) -> str:
    """Text in which nothing is Markdown."""
    return re.sub(r"([\\`*_{}\[\]<>#|])", r"\\\1", text)


def checks() -> str:
    found = [check for check in find_all() if not check.distribution]
    lines = [f"# Checks\n\n{len(found)} checks, as `nhc explain CHECK` tells them.\n"]
    lines += [f"## {check.name}\n\n{fenced(unfolded(_explained(check.name)))}\n" for check in found]
    return "\n".join(lines)


def findings() -> str:
    lines = ["# Reasons\n\nWhat reports name as the reason of a failure, as `nhc explain REASON` tells it.\n"]
    lines += [f"## {name}\n\n{runbook(_explained(name))}\n" for name in sorted(set(reasons()))]
    return "\n".join(lines)


def options() -> str:
    lines = ["# Commands\n\nAs `--help` of each prints it.\n"]
    for one in commands(application):
        context = click.Context(
            one.command, info_name=one.context.info_name, parent=one.context.parent, max_content_width=100
        )
        lines.append(f"## {' '.join(one.words)}\n\n{fenced(one.command.get_help(context))}\n")
    return "\n".join(lines)


def _keys(keys: Iterable[Reference]) -> Iterator[str]:
    yield from ("| key | value | default | means |", "|---|---|---|---|")
    for one in keys:
        cells = (f"`{one.key}`", f"{one.form} {one.bounds}".strip(), one.default and f"`{one.default}`", one.help)
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
    yield ""


def settings(root: Path) -> str:
    lines = ["# Settings\n\nEach file with every key: what its value is, its bounds, its default, and what it means.\n"]
    for name in FILES:
        lines += [f"## {name}\n", *_keys(file_of(name).reference())]
    for kind, where in PARTS.items():
        for name in kind.ours:
            lines += [f"## {where.format(name=name)}\n", *_keys(reference(kind.open(name).SETTINGS))]
    example = (root / "conf/nhc.conf.example").read_text()
    return "\n".join([*lines, f"## nhc.conf\n\n{fenced(example)}\n"])


def metrics(root: Path) -> str:
    rows: Dict[str, Tuple[str, str]] = {}
    for path in sorted([*(root / "nhc").rglob("*.py"), *(root / "adapters/nhc_adapters").rglob("*.py")]):
        for name, kind, text in declared(ast.parse(path.read_text())):
            rows.setdefault(name, (kind, text))
    table = [f"| `{name}` | {kind} | {text.replace('|', '/')} |" for name, (kind, text) in sorted(rows.items())]
    head = "# Metrics\n\n[Monitoring](../monitoring.md) says which part serves them, with which labels."
    return "\n".join([head, "", "| metric | type | is |", "|---|---|---|", *table, ""])


def declared(tree: ast.Module) -> Iterator[Tuple[str, str, str]]:
    """Metrics that a module declares: Family(name, type, help), gauge(name, help), or a table of them by name."""
    texts = {
        target.id: node.value.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            given = [_text(arg, texts) for arg in node.args]
            if node.func.id in KINDS:
                given.insert(1, node.func.id)
            if len(given) >= 3 and METRIC.match(given[0]) and given[1] in KINDS:
                yield given[0], given[1], given[2]
        elif isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values):
                if isinstance(key, ast.Constant) and isinstance(key.value, str) and METRIC.match(key.value):
                    yield from _entry(key.value, value)


def _text(value: ast.expr, texts: Dict[str, str]) -> str:
    """A text, or a name that stands for one; "" for what is made when it runs."""
    if isinstance(value, ast.Name):
        return texts.get(value.id, "")
    return value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else ""


def _entry(name: str, value: ast.expr) -> Iterator[Tuple[str, str, str]]:
    if isinstance(value, ast.Constant) and isinstance(value.value, str) and " " in value.value:
        yield name, "gauge", value.value
    elif isinstance(value, ast.Tuple):
        texts = [one.value for one in value.elts if isinstance(one, ast.Constant) and isinstance(one.value, str)]
        if len(texts) == 2 and texts[0] in KINDS:
            yield name, texts[0], texts[1]


def schemas(root: Path) -> str:
    lines = ["# Schemas\n"]
    for name in SCHEMAS:
        schema = json.loads((root / f"docs/{name}.schema.json").read_text())
        lines += [
            f"## {name}\n",
            schema.get("description", schema.get("title", "")),
            "",
            "| key | type | is |",
            "|---|---|---|",
        ]
        lines += _properties(schema, schema, "")
        lines.append(f"\nThe whole of it: [{name}.schema.json](../{name}.schema.json).\n")
    return "\n".join(lines)


def _properties(schema: Dict[str, Any], part: Dict[str, Any], path: str) -> Iterator[str]:
    for key, value in part.get("properties", {}).items():
        kind = value.get("type") or (
            "one of " + ", ".join(map(str, value["enum"])) if "enum" in value else "see the schema"
        )
        shown = " or ".join(kind) if isinstance(kind, list) else kind
        yield f"| `{path}{key}` | {shown} | {str(value.get('description', '')).replace('|', '/')} |"
        yield from _properties(schema, value, f"{path}{key}.")
        if isinstance(value.get("items"), dict):
            yield from _properties(schema, value["items"], f"{path}{key}[].")


def api() -> str:
    lines = ["# Public API\n\nWhat a [package of your own](../extending.md) may import.\n"]
    for name in PUBLIC:
        module = importlib.import_module(name)
        lines.append(f"## {name}\n\n{fenced(inspect.getdoc(module) or '')}\n")
        for title, value in sorted(vars(module).items()):
            if not title.startswith("_") and getattr(value, "__module__", "") == name and callable(value):
                lines.append(f"### {name}.{title}\n\n{fenced(_described(title, value), 'python')}\n")
    return "\n".join(lines)


def _described(title: str, value: Any) -> str:
    lines = [f"{title}{_signature(value)}", *_quoted(value)]
    if inspect.isclass(value):
        for name, method in vars(value).items():
            if inspect.isfunction(method) and not name.startswith("_"):
                lines += ["", f"    {name}{_signature(method)}", *(f"    {line}".rstrip() for line in _quoted(method))]
    return "\n".join(lines)


def _quoted(value: Any) -> List[str]:
    doc = vars(value).get("__doc__") if inspect.isclass(value) else value.__doc__
    return [f"    {line}".rstrip() for line in inspect.cleandoc(doc).splitlines()] if doc else []


def _signature(value: Any) -> str:
    try:
        return re.sub(r" at 0x[0-9a-f]+", "", str(inspect.signature(value)))
    except (TypeError, ValueError):
        return ""
