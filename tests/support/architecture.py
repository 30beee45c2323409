"""The modules of a source tree: what each imports, and where it opens a door to the operating system."""

from __future__ import annotations

import ast
import gc
from pathlib import Path
from typing import Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Set, Tuple

ROOT = Path(__file__).resolve().parents[2]

DOOR_CALLS = {"open", "io.open", "io.FileIO", "os.open", "os.popen", "os.system", "os.fork", "os.forkpty"}
DOOR_PREFIXES = ("os.exec", "os.posix_spawn", "os.spawn")
DOOR_MODULES = {
    "_posixsubprocess", "_socket", "asyncio.subprocess", "multiprocessing", "pathlib", "pty", "socket", "socketserver",
    "subprocess",
}  # fmt: skip
DOOR_METHODS = {"create_subprocess_exec", "create_subprocess_shell"}


class Module(NamedTuple):
    """`source` is None where the tree alone is kept."""

    tree: ast.Module
    is_package: bool
    lines: int


class House:
    """Modules by name, and the modules of ours that each imports, anywhere in it."""

    def __init__(self, modules: Mapping[str, Module], known: Optional[Mapping[str, Set[str]]] = None) -> None:
        self.modules = dict(modules)
        self._nodes: Dict[str, List[ast.AST]] = {}
        self.imports: Dict[str, Set[str]] = {
            name: known[name] if known and name in known else set(self._imported(name)) for name in self.modules
        }
        self._doors: Dict[str, List[Tuple[int, str]]] = {}

    def changed(self, name: str, text: str, add: bool = True) -> House:
        """The same house with a module that is new, has more at its end, or (`add` False) another text."""
        old = self.modules.get(name)
        added = ast.parse(text)
        body = [*(old.tree.body if old and add else []), *added.body]
        module = Module(
            ast.Module(body, []),
            bool(old and old.is_package),
            len(text.splitlines()) + (old.lines if old and add else 0),
        )
        known = {one: others for one, others in self.imports.items() if one != name}
        made = House({**self.modules, name: module}, known)
        made._doors = {one: doors for one, doors in self._doors.items() if one != name}
        return made

    def _calls_and_imports(self, name: str) -> List[ast.AST]:
        if name not in self._nodes:
            wanted = (ast.Call, ast.Import, ast.ImportFrom)
            self._nodes[name] = [node for node in ast.walk(self.modules[name].tree) if isinstance(node, wanted)]
        return self._nodes[name]

    def _imported(self, name: str) -> Iterator[str]:
        """`from package import module` is that module."""
        for node in self._calls_and_imports(name):
            yield from (one for one in self._named(node) if one in self.modules and one != name)

    def _named(self, node: ast.AST) -> List[str]:
        if isinstance(node, ast.Import):
            return [alias.name for alias in node.names]
        if isinstance(node, ast.ImportFrom) and node.module:
            whole = [f"{node.module}.{alias.name}" for alias in node.names]
            return [one if one in self.modules else node.module for one in whole]
        if not isinstance(node, ast.Call) or not node.args or not isinstance(node.args[0], ast.Constant):
            return []
        by_word = dotted(node.func).rpartition(".")[2] in ("__import__", "import_module")
        return [str(node.args[0].value)] if by_word else []

    def relative_imports(self, name: str) -> List[str]:
        return [
            f"{name}:{node.lineno}: a relative import"
            for node in self._calls_and_imports(name)
            if isinstance(node, ast.ImportFrom) and node.level
        ]

    def doors(self, name: str) -> List[Tuple[int, str]]:
        """Where a module opens files, starts processes or speaks to sockets, and by what."""
        if name not in self._doors:
            self._doors[name] = list(self._found_doors(name))
        return self._doors[name]

    def _found_doors(self, name: str) -> Iterator[Tuple[int, str]]:
        nodes = self._calls_and_imports(name)
        called = {
            alias.asname or alias.name: f"{node.module}.{alias.name}"
            for node in nodes
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        renamed = {
            alias.asname: alias.name
            for node in nodes
            if isinstance(node, ast.Import)
            for alias in node.names
            if alias.asname
        }
        for node in nodes:
            if isinstance(node, ast.Call):
                first, dot, rest = dotted(node.func).partition(".")
                full = f"{renamed.get(first, first)}.{rest}" if dot else called.get(first, first)
                if full in DOOR_CALLS or full.startswith(DOOR_PREFIXES) or full.rpartition(".")[2] in DOOR_METHODS:
                    yield node.lineno, full
            elif isinstance(node, (ast.Import, ast.ImportFrom)):
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
                yield from ((node.lineno, one) for one in names if one in DOOR_MODULES)


def dotted(node: ast.AST) -> str:
    """`a.b.c` as it is written, and `().c` of what is no name; ast.unparse takes thirty times as long."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id if isinstance(node, ast.Name) else "()", *reversed(parts)])


def read(tops: Iterable[str], without: str) -> Dict[str, Path]:
    """The files of the modules below some directories of the checkout, by the modules' names."""
    return {
        module_name(path): path
        for top in tops
        for path in sorted((ROOT / top).rglob("*.py"))
        if not path.is_relative_to(ROOT / without)
    }


def module_name(path: Path) -> str:
    relative = path.relative_to(ROOT / "adapters" if "adapters" in path.relative_to(ROOT).parts[:1] else ROOT)
    return ".".join(relative.with_suffix("").parts).removesuffix(".__init__")


def house(files: Mapping[str, Path]) -> House:
    """The modules of these files. The garbage collector would walk their trees again and again, now and later."""
    modules = {}
    gc.disable()
    try:
        for name, path in files.items():
            text = path.read_text()
            modules[name] = Module(ast.parse(text), path.name == "__init__.py", len(text.splitlines()))
        made = House(modules)
        gc.freeze()
    finally:
        gc.enable()
    return made


def circles(graph: Mapping[str, Set[str]]) -> List[List[str]]:
    """The strongly connected components of more than one member (Tarjan)."""
    index: Dict[str, int] = {}
    low: Dict[str, int] = {}
    stack: List[str] = []
    found: List[List[str]] = []

    def visit(one: str) -> None:
        index[one] = low[one] = len(index)
        stack.append(one)
        for other in sorted(graph[one]):
            if other not in index:
                visit(other)
                low[one] = min(low[one], low[other])
            elif other in stack:
                low[one] = min(low[one], index[other])
        if low[one] == index[one]:
            members = stack[stack.index(one) :]
            del stack[stack.index(one) :]
            if len(members) > 1:
                found.append(sorted(members))

    for one in sorted(graph):
        if one not in index:
            visit(one)
    return found
