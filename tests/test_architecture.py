"""Who may import whom, and which modules touch files and processes: docs/architecture.md, held by walking syntax trees.

Every package and every module at the root of nhc stands in LAYERS; one that does not fails. An import runs from a room
to one of a lower layer, or to a room of its own layer that SAME_LAYER names. Imports inside functions count, and so do
those for type checkers alone, save at the DISPATCH points, where a name decides what is imported.
"""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from nhc import check_index
from tests.support.startup import LOCAL_PATH_BANNED, SUPERVISOR_BANNED, settle

ROOT = Path(__file__).resolve().parents[1]

#: From left to right: each imports what stands below it.
LAYERS = (
    {"cli", "__main__"},
    {"agent", "deep", "fleet", "hooks", "remedy"},
    {"planning"},
    {"checks", "run"},
    {"kernlog", "language", "policy", "state", "store"},
    {"facts"},
    {"hosts"},
    {"testing"},
    {
        "check",
        "declare",
        "host",
        "marks",
        "plugins",
        "ports",
        "render",
        "repair",
        "sinks",
        "testing_adapters",
        "testing_repairers",
    },
    {
        "archive",
        "check_index",
        "data",
        "exit_status",
        "extras",
        "matching",
        "memory",
        "model",
        "plan",
        "settings_file",
        "system",
        "toml_text",
        "units",
    },
    {"light"},
)
LEVEL = {room: number for number, rooms in enumerate(LAYERS) for room in rooms}
SAME_LAYER = {
    ("__main__", "cli"),
    ("check", "plugins"),  # a check that is not built in is asked for there
    ("declare", "check"),
    ("language", "policy"),  # the form of a ceiling is policy's
    ("marks", "ports"),  # the rules of what ports describe
    ("settings_file", "system"),
    ("settings_file", "toml_text"),
    ("settings_file", "units"),
    ("sinks", "ports"),
    ("testing_adapters", "marks"),
    ("testing_adapters", "ports"),  # the contract of what ports describe
    ("testing_repairers", "ports"),
    ("testing_repairers", "repair"),
}
NEVER = {
    ("run", "checks"): "the engine calls what planning found, and knows no check",
    ("checks", "run"): "a check sees its host alone",
    ("checks", "language"): "a check is given arguments, never lines",
    ("checks", "policy"): "a check says what it saw, not what is to be done",
}
#: What adapters see of nhc: the contract, the values, and small shared pieces.
ADAPTERS_SEE = {
    "kernlog",
    "marks",
    "matching",
    "model",
    "policy",
    "ports",
    "repair",
    "settings_file",
    "sinks",
    "system",
    "toml_text",
    "units",
}

#: Where a name decides what is imported, so that nothing else is: (importer, the package or module it picks from).
DISPATCH = {
    ("nhc.cli.main", "nhc.cli"),  # the commands
    ("nhc.cli.click_app", "nhc.cli"),
}

#: Who may open files, start processes and speak to sockets; everything else asks Host. Each with the reason it may.
DOORS = {
    "nhc.agent": "a resident program: its sockets, its followers, its worker and sink processes",
    "nhc.archive.build": "builds a file",
    "nhc.cli": "writes what a person asks for",
    "nhc.facts.cri": "a container runtime answers on a socket",
    "nhc.facts.sockets": "netlink has no file",
    "nhc.facts.write_probe": "writes, to see that it can be read back",
    "nhc.fleet": "the transports and what a sweep keeps",
    "nhc.hooks": "locks, logs and leftovers of jobs",
    "nhc.host": "Host itself",
    "nhc.hosts": "other kinds of Host",
    "nhc.language": "configurations, and targets that are decided in a process of their own",
    "nhc.policy": "policies, and the ledger",
    "nhc.run": "workers and the shell",
    "nhc.state": "what is remembered",
    "nhc.store": "the database's file, the audit's anchor and its archived segments",
    "nhc.system": "the edge of the operating system",
    "nhc.testing": "the test kit writes trees",
    "nhc_adapters": "what an adapter speaks to is the outside",
}
DOOR_CALLS = {"open", "os.open", "os.popen", "os.system", "os.fork", "os.forkpty"}
DOOR_PREFIXES = ("os.exec", "os.posix_spawn", "os.spawn")
DOOR_MODULES = {"subprocess", "socket", "_socket", "_posixsubprocess"}


def module_name(path):
    relative = path.relative_to(ROOT / "adapters" if "adapters" in path.relative_to(ROOT).parts[:1] else ROOT)
    return ".".join(relative.with_suffix("").parts).removesuffix(".__init__")


# What is sent to nodes as text runs there by itself, under whatever Python there is; the launchers have no suffix.
FILES = {
    module_name(path): path
    for top in ("nhc", "adapters/nhc_adapters")
    for path in sorted((ROOT / top).rglob("*.py"))
    if not path.is_relative_to(ROOT / "nhc/fleet/data")
}
TREES = {name: ast.parse(path.read_text()) for name, path in FILES.items()}


def is_package(name):
    return FILES[name].name == "__init__.py"


def imported(name):
    """The modules of ours that a module imports, anywhere in it. `from package import module` is that module."""
    for node in ast.walk(TREES[name]):
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}:{node.lineno}: a relative import"
            whole = [f"{node.module}.{alias.name}" for alias in node.names]
            found = [one if one in FILES else node.module for one in whole]
        else:
            continue
        yield from (one for one in found if one in FILES and one != name)


IMPORTS = {name: set(imported(name)) for name in FILES}


def room(name):
    first, _, rest = name.partition(".")
    return rest.partition(".")[0] if first == "nhc" else first


def may_import(one, other):
    if one == other or other == "":  # "" is nhc itself: its version
        return True
    if one == "nhc_adapters":
        return other in ADAPTERS_SEE
    if (one, other) in NEVER or other == "nhc_adapters":
        return False
    return LEVEL[one] < LEVEL[other] or (one, other) in SAME_LAYER


def test_every_room_is_named_once():
    rooms = {room(name) for name in FILES} - {"", "nhc_adapters"}
    assert rooms == set(LEVEL), "give it a layer in LAYERS, and a row in docs/architecture.md"
    assert sum(map(len, LAYERS)) == len(LEVEL)


@pytest.mark.parametrize("name", FILES)
def test_imports_run_one_way(name):
    if room(name) == "":
        return
    for other in sorted(IMPORTS[name]):
        why = NEVER.get((room(name), room(other)), "imports run from left to right, see LAYERS")
        assert may_import(room(name), room(other)), f"{name} imports {other}: {why}"


def circles(graph):
    """The strongly connected components of more than one member (Tarjan)."""
    index, low, stack, found = {}, {}, [], []

    def visit(one):
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


def dispatched(name, other):
    return any(
        name == importer and (other == chosen or other.startswith(chosen + ".")) for importer, chosen in DISPATCH
    )


def test_no_module_imports_itself_in_a_circle():
    assert circles({one: {o for o in IMPORTS[one] if not dispatched(one, o)} for one in IMPORTS}) == []


def test_no_package_imports_itself_in_a_circle():
    """Packages within one another count as well: kubernetes.nodes and kubernetes.controller."""

    def package(name):
        return name if is_package(name) else name.rpartition(".")[0] if name.count(".") > 1 else name

    graph = {}
    for one, others in IMPORTS.items():
        reached = {package(other) for other in others if not dispatched(one, other)}
        graph.setdefault(package(one), set()).update(reached - {package(one)})
    for reached in list(graph.values()):
        for one in reached:
            graph.setdefault(one, set())
    assert circles(graph) == []


#: Within the Kubernetes adapter, from the ground up: each package imports those before it. The last two are modules.
KUBERNETES = ({"api"}, {"nodes"}, {"controller", "sink"}, {"doctor"}, {"commands"}, {"plugin"})


def test_the_kubernetes_adapters_packages_import_one_way():
    top = "nhc_adapters.kubernetes."
    level = {top + part: number for number, parts in enumerate(KUBERNETES) for part in parts}

    def part(name):
        return top + name.removeprefix(top).partition(".")[0]

    ours = [name for name in FILES if name.startswith(top)]
    assert {part(name) for name in ours} == set(level)
    upwards = [
        f"{name} imports {other}"
        for name in ours
        for other in sorted(IMPORTS[name])
        if other.startswith(top) and part(other) != part(name) and level[part(other)] >= level[part(name)]
    ]
    assert not upwards


def test_circles_are_found():
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [["a", "b", "c"]]


def test_every_exception_is_used():
    """An exception that nothing needs any more is taken away."""
    edges = {(room(one), room(other)) for one, others in IMPORTS.items() for other in others}
    assert edges >= SAME_LAYER
    assert {other for one, other in edges if one == "nhc_adapters"} - {"nhc_adapters", ""} == ADAPTERS_SEE
    assert all(any(dispatched(one, other) for other in IMPORTS[one]) for one, _ in DISPATCH)


@pytest.mark.parametrize("name", [name for name in FILES if is_package(name)])
def test_a_package_itself_is_empty(name):
    """What stands in `__init__` is paid for by everything below it."""
    assert (
        name == "nhc"
        or not TREES[name].body
        or (isinstance(TREES[name].body[0], ast.Expr) and len(TREES[name].body) == 1)
    )


def doors(name):
    for node in ast.walk(TREES[name]):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called in DOOR_CALLS or called.startswith(DOOR_PREFIXES):
                yield node.lineno, called
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module]
            yield from ((node.lineno, one) for one in names if one in DOOR_MODULES)


@pytest.mark.parametrize("name", FILES)
def test_only_the_doors_open_files_and_start_processes(name):
    if not any(name == door or name.startswith(door + ".") for door in DOORS):
        found = list(doors(name))
        assert not found, f"{FILES[name]}:{found[0][0]} uses {found[0][1]}: ask Host"


def test_every_door_is_used():
    used = {name for name in FILES if list(doors(name))}
    assert all(any(name == door or name.startswith(door + ".") for name in used) for door in DOORS)


def loaded_modules(code, *arguments):
    script = f"import sys\n{code}\nprint(chr(10).join(sys.modules), file=sys.stderr)"
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{ROOT}:{ROOT / 'adapters'}", "NHC_STATE_DIR": str(arguments[0]),
           "NHC_MUTES": "/no/such/file"}  # fmt: skip  # what this machine has muted is not the test's
    # -S: what a site's own .pth files import is not ours.
    done = subprocess.run([sys.executable, "-S", "-c", script], capture_output=True, text=True, env=env, timeout=60)
    return set(done.stderr.split()), done.stdout


def test_check_local_loads_only_cheap_modules(tmp_path):
    config = tmp_path / "nhc.conf"
    config.write_text("* || check_hw_mem_free 1k\n* || check_fs_mount /\n* || check_ps_loadavg 99999 99999 99999\n")
    settle(config)
    run = f"from nhc.cli.main import main\nmain(['check', 'local', '-c', {str(config)!r}, '--all'])"
    for banned in (LOCAL_PATH_BANNED, SUPERVISOR_BANNED):
        loaded, said = loaded_modules(run, tmp_path / "state")
        assert "3 results" in said
        assert not banned & loaded
        # The first run reads the configuration, and so the checks' declarations; the second leaves both alone.
        assert ("nhc.checks.hw_mem" in loaded) == (banned is LOCAL_PATH_BANNED)


@pytest.mark.parametrize("family", check_index.families())
def test_a_check_family_loads_only_cheap_modules(family, tmp_path):
    """Each worker that claims one of its checks imports it."""
    loaded, _said = loaded_modules(f"import nhc.checks.{family}", tmp_path)
    assert not LOCAL_PATH_BANNED & loaded


def test_the_version_costs_nothing(tmp_path):
    loaded, said = loaded_modules("from nhc.cli.main import main\nmain(['--version'])", tmp_path)
    assert said.startswith("nhc ")
    assert not (LOCAL_PATH_BANNED | {"re", "typing", "json"}) & loaded


@pytest.mark.parametrize("path", sorted((ROOT / "nhc").rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT)))
def test_no_module_outgrows_one_idea(path):
    assert len(path.read_text().splitlines()) <= 400, "split it: see docs/architecture.md"


#: Attributes of libraries' objects, and of functions, that are there to be written.
LIBRARIES_ATTRIBUTES = {
    "nhc_adapters.kubernetes.api.access": {"check_hostname", "verify_mode"},  # ssl's context
    "nhc_adapters.kubernetes.controller.http_server": {"daemon_threads"},  # socketserver
    "nhc.archive.build": {"compress_type", "external_attr"},  # zipfile
    "nhc.archive.importer": {"has_location"},  # importlib
    "nhc.check": {"__doc__"},
    "nhc.cli.click_app": {"message", "name"},  # click
    "nhc.cli.report_output": {"failure"},  # of the stream that stands in for standard output
    "nhc.facts.nvml": {"version"},  # NVML's structures
    "nhc.fleet.ssh.connection": {"start_handshake"},  # paramiko
    "nhc.fleet.ssh.transport_paramiko": {
        "_preferred_ciphers", "_preferred_kex", "_preferred_keys", "auth_timeout", "banner_timeout",
        "handshake_timeout",
    },
    "nhc.fleet.worker": {"value"},  # multiprocessing
    "nhc.light": {"__qualname__"},
    "nhc.run.engine": {"end"},  # of a function, which its worker calls at its end
    "nhc.system.output_file": {"filename"},  # OSError
}  # fmt: skip


def written_attributes(tree):
    """Each attribute that is written in a module, with the object it is written on."""
    for node in ast.walk(tree):
        targets = node.targets if isinstance(node, (ast.Assign, ast.Delete)) else []
        targets = [node.target] if isinstance(node, (ast.AugAssign, ast.AnnAssign)) else targets
        for target in targets:
            for one in target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]:
                if isinstance(one, ast.Attribute):
                    yield one, ast.unparse(one.value)


def own_attributes(tree):
    """The attributes of the classes that a module defines."""
    names = set()
    for kind in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
        names |= {one.attr for one, holder in written_attributes(kind) if holder == "self"}
        for node in kind.body:
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                names.add(node.target.id)
            elif isinstance(node, ast.Assign):
                names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
                if any(isinstance(target, ast.Name) and target.id == "__slots__" for target in node.targets):
                    names |= {one.value for one in ast.walk(node.value) if isinstance(one, ast.Constant)}
    return names


def strangers_written(name, tree):
    """Attributes that a module writes on objects of classes of other modules."""
    own = own_attributes(tree) | LIBRARIES_ATTRIBUTES.get(name, set())
    return [
        f"{name}:{one.lineno}: {ast.unparse(one)}"
        for one, holder in written_attributes(tree)
        if holder not in ("self", "cls") and one.attr not in own
    ]


@pytest.mark.parametrize("name", sorted(FILES))
def test_no_attribute_is_written_from_another_module(name):
    assert strangers_written(name, TREES[name]) == [], "give the class a method that says what is meant"


def test_the_rule_on_attributes_sees_what_it_is_for():
    tree = ast.parse(
        "class A:\n  def f(self):\n    self.own = 1\ndef g(a, b):\n  a.own = 2\n  b.theirs, b.own = 3, 4\n"
    )
    assert strangers_written("nhc.x", tree) == ["nhc.x:6: b.theirs"]
