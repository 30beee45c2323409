"""Who may import whom, and which modules touch files and processes: docs/architecture.md, held by walking syntax trees.

nhc/ consists of the rooms in ROOMS, from the top down. An import runs to a room below, or within its room. Imports
inside functions count, and so do those for type checkers alone, save at the DISPATCH points, where a name decides what
is imported. A room imports only what the README of another names as public.
"""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from nhc.core import check_index
from tests.support.architecture import House, circles, house, read
from tests.support.startup import LOCAL_PATH_BANNED, SUPERVISOR_BANNED, settle

ROOT = Path(__file__).resolve().parents[1]

#: From the top down: each imports what stands below it. `nhc_adapters` is the source root adapters/.
ROOMS = (
    "__main__", "api", "cli", "lab", "console", "remedy", "deep", "jobs", "fleet", "agent", "hooks", "nhc_adapters",
    "store", "marks", "node", "core",
)  # fmt: skip
LEVEL = {room: number for number, room in enumerate(ROOMS)}
MOST_ARROWS = 75
"""Pairs of rooms of which one imports the other: that many can be held in the head."""

#: Within a room whose packages have an order of their own: each imports those before it.
INSIDE = {
    "nhc.node": (
        {"gpu_proof", "hosts"},
        {"facts"},
        {"kernlog"},
        {"checks", "run"},
        {"planning"},
        {"commands"},
    ),
    "nhc_adapters.kubernetes": (
        {"api"},
        {"nodes"},
        {"devices", "preflight"},
        {"controller", "deep_launch", "gates", "sink", "spares"},
        {"doctor", "jobs", "repair"},
        {"commands", "readings"},
        {"plugin"},
    ),
}
NEVER = {
    ("nhc.node.run", "nhc.node.checks"): "the engine calls what planning found, and knows no check",
    ("nhc.node.checks", "nhc.node.run"): "a check sees its host alone",
    ("nhc.node.checks", "nhc.core.language"): "a check is given arguments, never lines",
}
#: What adapters see of nhc: the contract, the values, and small shared pieces.
ADAPTERS_SEE = {
    "nhc.core.json_values",
    "nhc.core.limits",
    "nhc.core.matching",
    "nhc.core.model",
    "nhc.core.prometheus_family",
    "nhc.core.settings",
    "nhc.core.system",
    "nhc.core.timestamps",
    "nhc.core.units",
    "nhc.marks.policy",
    "nhc.marks.ports",
    "nhc.node.facts.certificates",
    "nhc.node.kernlog",
}

#: Where a name decides what is imported, so that nothing else is: (importer, the package or module it picks from).
DISPATCH = {
    ("nhc.cli.main", "nhc.cli"),  # the commands
    ("nhc.cli.click_app", "nhc.cli"),
}

#: Who may open files, start processes and speak to sockets; everything else asks Host. Each with the reason it may.
DOORS = {
    "nhc.agent": "a resident program: its sockets, its followers, its worker and sink processes",
    "nhc.core.archive.build": "builds a file",
    "nhc.cli.own_modules": "reads bytecode, before anything else of nhc can be imported",
    "nhc.core.archive.importer": "keeps what it compiled, before anything of nhc can be imported",
    "nhc.console.doors": "asks the kernel who is at the other end of a socket, and whose socket it is",
    "nhc.cli.main": "standard streams that are closed",
    "nhc.core.command_line": "writes what a person asks for",
    "nhc.deep.journal": "what a run must put back outlives it",
    "nhc.deep.progress": "a process that rewrites one line",
    "nhc.node.checks.runtime": "a container runtime answers on a socket",
    "nhc.node.facts.sockets": "netlink has no file",
    "nhc.node.facts.write_probe": "writes, to see that it can be read back",
    "nhc.fleet": "the transports and what a sweep keeps",
    "nhc.node.gpu_proof.launcher": "the processes of GPUs hold nothing of their caller's",
    "nhc.hooks": "locks, logs and leftovers of jobs",
    "nhc.core.host": "Host itself",
    "nhc.node.hosts": "other kinds of Host",
    "nhc.node.kernlog.filters": "run by hand it writes a column of the catalogue",
    "nhc.core.language": "configurations, and targets that are decided in a process of their own",
    "nhc.marks.policy": "policies, and the ledger",
    "nhc.node.run": "workers and the shell",
    "nhc.core.system.web_listener": "the socket that a server listens on",
    "nhc.core.state": "what is remembered",
    "nhc.store": "the database's file, the audit's anchor and its archived segments",
    "nhc.core.system": "the edge of the operating system",
    "nhc.lab.testing": "the test kit writes trees",
    "nhc_adapters": "what an adapter speaks to is the outside",
}

#: The most modules and folders that a room may show to the others; core is what all of them speak in.
LARGEST_FACE = {"core": 45, "node": 36}
USUAL_FACE = 30

#: The one door for marks and clears: who may ask its parts by themselves, and who calls a marker, each with the reason.
RULES_OF_MARKS = {"nhc.marks.ports.marks": {"may_mark", "may_clear"}, "nhc.marks.policy.bounds": {"may_mark", "room"}}
ASKS_BY_ITSELF = {
    "nhc.marks.policy.door": "the door",
    "nhc.marks.policy.bounds": "whether there is room",
    "nhc_adapters": "an adapter obeys once more what it sees right before its call",
    "nhc.store.node_source": "an adapter, as those of nhc_adapters: the store is its other side",
    "nhc.lab.testing": "the contract of adapters",
    "nhc.api": "the names of packages of others, whose adapters obey as well",
}
CALLS_A_MARKER = {
    "nhc.hooks.marking": "one node, by its own report",
    "nhc.marks.policy.reconcile": "a round of the reports of many",
    "nhc.remedy.actuators": "the loop and trains, after it was stored",
    "nhc.remedy.spares.swap": "a spare of ours is given back, which nobody has any work on",
    "nhc.lab": "drills and the test kit",
    "nhc_adapters": "the controller, and what a person asks for by hand",
}

# What is sent to nodes as text runs there by itself, under whatever Python there is; the launchers have no suffix.
FILES = read(("nhc", "adapters/nhc_adapters"), without="nhc/fleet/data")
PACKAGES = [name for name, path in FILES.items() if path.name == "__init__.py"]


@pytest.fixture(scope="module")
def ours():
    """The source tree, read once and only for the tests of this module: 150 MiB of syntax trees."""
    return house(FILES)


def room(name):
    first, _, rest = name.partition(".")
    return rest.partition(".")[0] if first == "nhc" else first


def may_import(one, other):
    if room(other) == "":  # nhc itself: its version
        return True
    if room(one) == room(other):
        return not broken_never(one, other)
    if room(one) == "nhc_adapters" and not any(below(other, seen) for seen in ADAPTERS_SEE):
        return False
    return LEVEL[room(one)] < LEVEL[room(other)] and room(other) != "nhc_adapters" and not broken_never(one, other)


def broken_never(one, other):
    """Why one module never imports another, "" where it may."""
    return next((why for (a, b), why in NEVER.items() if below(one, a) and below(other, b)), "")


def place_of(room):
    return ROOT / ("adapters/nhc_adapters" if room == "nhc_adapters" else f"nhc/{room}")


def face(room, readme=None):
    """The modules and folders (with a slash) that the README of a room says are public, by their full names."""
    text = readme if readme is not None else (place_of(room) / "README.md").read_text()
    paragraph = re.search(r"^Public modules: (.*?)\n\n", text, re.DOTALL | re.MULTILINE)
    top = room if room == "nhc_adapters" else f"nhc.{room}"
    return {f"{top}.{name.rstrip('/').replace('/', '.')}" for name in re.findall(r"`([^`]+)`", paragraph[1])}


FACES = {room: face(room) for room in ROOMS[2:]}


def private_imports(house, name):
    """What a module imports of another room that the face of that room does not show.

    `cli` picks commands by name, so the commands of every room are open to it.
    """
    return [
        f"{name} imports {other}, which is private to its room: nhc/{room(other)}/README.md names the public modules"
        for other in sorted(house.imports[name])
        if room(other) in FACES and room(other) != room(name) and other.count(".") > 1
        if not any(below(other, shown) for shown in FACES[room(other)])
        if not (room(name) == "cli" and ".commands." in other)
    ]


def unused_faces(house):
    """What a face shows and no other room imports; `testing` is for packages of others."""
    used = {other for one, others in house.imports.items() for other in others if room(one) != room(other)}
    shown = {one for faces in FACES.values() for one in faces} - {"nhc.lab.testing"}
    return sorted(one for one in shown if not any(below(other, one) for other in used))


# The rules: what is wrong with a house, one line each.


def unnamed_rooms(house):
    rooms = {room(name) for name in house.modules} - {""}
    return sorted(rooms ^ set(LEVEL))


def wrong_imports(house, name):
    if room(name) == "":
        return []
    return [
        f"{name} imports {other}: {broken_never(name, other) or 'imports run to a room below, see ROOMS'}"
        for other in sorted(house.imports[name])
        if not may_import(name, other)
    ]


def arrows(house):
    """The pairs of rooms of which one imports the other."""
    pairs = {(room(one), room(other)) for one, others in house.imports.items() for other in others}
    return {(one, other) for one, other in pairs if one != other and "" not in (one, other)}


def dispatched(name, other):
    return any(
        name == importer and (other == chosen or other.startswith(chosen + ".")) for importer, chosen in DISPATCH
    )


def module_circles(house):
    return circles({one: {o for o in others if not dispatched(one, o)} for one, others in house.imports.items()})


def package_circles(house):
    """Packages within one another count as well: kubernetes.nodes and kubernetes.controller.

    The modules that lie directly in nhc.core belong to no package there: each is an idea of its own.
    """

    def package(name):
        parent = name.rpartition(".")[0]
        alone = house.modules[name].is_package or parent in ("nhc", "nhc.core", "nhc_adapters")
        return name if alone else parent

    graph = {}
    for one, others in house.imports.items():
        reached = {package(other) for other in others if not dispatched(one, other)}
        graph.setdefault(package(one), set()).update(reached - {package(one)})
    for reached in list(graph.values()):
        for one in reached:
            graph.setdefault(one, set())
    return circles(graph)


def upwards_inside(house):
    return [line for top, order in INSIDE.items() for line in upwards_within(house, f"{top}.", order)]


def upwards_within(house, top, order):
    level = {top + part: number for number, parts in enumerate(order) for part in parts}

    def part(name):
        return top + name.removeprefix(top).partition(".")[0]

    ours = [name for name in house.modules if name.startswith(top)]
    unnamed = sorted({part(name) for name in ours} ^ set(level))
    return unnamed or [
        f"{name} imports {other}"
        for name in ours
        for other in sorted(house.imports[name])
        if other.startswith(top) and part(other) != part(name) and level[part(other)] >= level[part(name)]
    ]


def unused_exceptions(house):
    """An exception that nothing needs any more is taken away."""
    seen = {other for one, others in house.imports.items() if room(one) == "nhc_adapters" for other in others}
    doors = {name for name in house.modules if list(house.doors(name))}
    return [
        *sorted(f"ADAPTERS_SEE {one}" for one in ADAPTERS_SEE if not any(below(other, one) for other in seen)),
        *sorted(
            f"DISPATCH {one}" for one, chosen in DISPATCH if not any(dispatched(one, o) for o in house.imports[one])
        ),
        *sorted(f"DOORS {door}" for door in DOORS if not any(below(name, door) for name in doors)),
    ]


def below(name, package):
    return name == package or name.startswith(package + ".")


def full_package(house, name):
    """Whether a package's `__init__` holds more than a docstring: everything below it pays for that."""
    body = house.modules[name].tree.body
    return name != "nhc" and bool(body) and not (isinstance(body[0], ast.Expr) and len(body) == 1)


def wrong_doors(house, name):
    if ".commands." in name or any(below(name, door) for door in DOORS):  # a command writes what a person asks for
        return []
    return [f"{name}:{line} uses {what}: ask Host" for line, what in house.doors(name)]


def test_every_room_is_named_once(ours):
    assert unnamed_rooms(ours) == [], "give it a place in ROOMS, and a row in docs/architecture.md"
    assert len(ROOMS) == len(LEVEL)


def rooms_of_the_page(text):
    """The rooms that the table of docs/architecture.md names, from the top row down."""
    return [line.split("|")[1].strip().strip("`") for line in text.splitlines() if line.startswith("| `")]


def test_the_page_names_every_room_once_and_in_this_order():
    named = rooms_of_the_page((ROOT / "docs/architecture.md").read_text())
    assert named == [{"nhc_adapters": "adapters"}.get(one, one) for one in ROOMS if one != "__main__"]


@pytest.mark.parametrize("room", ROOMS[2:])
def test_the_readme_of_a_room_names_its_folders(room):
    said = (place_of(room) / "README.md").read_text()
    inside = {path.name for path in place_of(room).iterdir() if path.is_dir()}
    folders = inside - {"__pycache__", "data"}
    assert [name for name in sorted(folders) if f"`{name}/" not in said] == []


def test_the_rooms_can_be_held_in_the_head(ours):
    assert len(arrows(ours)) <= MOST_ARROWS


def test_no_import_is_relative(ours):
    assert [line for name in FILES for line in ours.relative_imports(name)] == []


def failing(rule, names=FILES):
    """What a rule says of each file that breaks it."""
    return {name: said for name in names for said in [rule(name)] if said}


def test_imports_run_one_way(ours):
    assert failing(lambda name: wrong_imports(ours, name)) == {}


def test_a_room_imports_public_modules_of_others_only(ours):
    assert failing(lambda name: private_imports(ours, name)) == {}


def test_an_import_of_a_private_module_is_seen(ours):
    house = ours.changed("nhc.hooks.prolog", "import nhc.node.run.supervisor")
    assert [line.split(",")[0] for line in private_imports(house, "nhc.hooks.prolog")] == [
        "nhc.hooks.prolog imports nhc.node.run.supervisor"
    ]


def test_a_face_is_small_and_used(ours):
    large = {room: len(shown) for room, shown in FACES.items() if len(shown) > LARGEST_FACE.get(room, USUAL_FACE)}
    assert large == {}
    assert unused_faces(ours) == []


@pytest.mark.parametrize("room", ROOMS[2:])
def test_the_readme_of_a_room_is_one_screen_and_names_who_imports_it(ours, room):
    text = (place_of(room) / "README.md").read_text()
    named = set(re.findall(r"`([a-z]+)`", re.search(r"^Imported by .*", text, re.MULTILINE)[0]))
    if " but " in text.partition("Imported by every room")[2].partition("\n")[0]:
        named = set(ROOMS) - named - {room}
    elif "Imported by every room" in text:
        named = set(ROOMS) - {room}
    by_name = {"__main__", "api", "cli", "nhc_adapters"}  # cli picks commands by name
    assert {one for one, other in arrows(ours) if other == room} - by_name == named - by_name
    assert len(text.splitlines()) <= 40


def test_no_module_imports_itself_in_a_circle(ours):
    assert module_circles(ours) == []


def test_no_package_imports_itself_in_a_circle(ours):
    assert package_circles(ours) == []


def test_the_packages_of_a_room_import_one_way(ours):
    assert upwards_inside(ours) == []


def test_circles_are_found():
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [["a", "b", "c"]]


@pytest.mark.thorough
def test_every_exception_is_used(ours):
    assert unused_exceptions(ours) == []


def test_a_package_itself_is_empty(ours):
    assert failing(lambda name: full_package(ours, name), PACKAGES) == {}


def own_rules_of_marks(house, name):
    """Where a module asks a part of the door by itself, or marks past it."""
    tree = house.modules[name].tree
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and not any(below(name, one) for one in ASKS_BY_ITSELF):
            names = RULES_OF_MARKS.get(node.module or "", set())
            found += [f"{name}:{node.lineno}: {each.name}" for each in node.names if each.name in names]
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            part = node.value.id in ("bounds", "bounding", "marks") and node.attr in ("may_mark", "may_clear", "room")
            if part and not any(below(name, one) for one in ASKS_BY_ITSELF):
                found.append(f"{name}:{node.lineno}: {ast.unparse(node)}")
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("mark", "clear"):
            of = ast.unparse(node.func.value).rpartition(".")[2]
            if of in ("adapter", "marker") and not any(below(name, one) for one in CALLS_A_MARKER):
                found.append(f"{name}:{node.lineno}: {ast.unparse(node.func)}")
    return found


def test_every_mark_goes_through_the_one_door(ours):
    """No hook, command, loop or train has rules of its own on whose a node is, and how many may be out."""
    assert failing(lambda name: own_rules_of_marks(ours, name)) == {}
    asked = {name for name, others in ours.imports.items() if any(below(o, "nhc.marks.policy.door") for o in others)}
    assert {
        "nhc.hooks.marking", "nhc.marks.policy.mark_decision", "nhc.remedy.steps", "nhc.remedy.after_repair",
        "nhc.remedy.trains.steps",
    } <= asked  # fmt: skip


def test_only_the_doors_open_files_and_start_processes(ours):
    assert failing(lambda name: wrong_doors(ours, name)) == {}


#: Attributes of libraries' objects, and of functions, that are there to be written.
LIBRARIES_ATTRIBUTES = {
    "nhc_adapters.kubernetes.api.access": {"check_hostname", "verify_mode"},  # ssl's context
    "nhc.core.command_line.common_options": {"is_eager", "callback"},  # click's options
    "nhc.core.system.service_log": {"propagate"},
    "nhc.core.system.web_server": {"handlers", "propagate", "request_handler", "SERVER_SOFTWARE"},  # logging, aiohttp
    "nhc.core.archive.build": {"compress_type", "external_attr"},  # zipfile
    "nhc.console.server": {"minimum_version", "verify_mode"},  # ssl
    "nhc.cli.own_modules": {"has_location", "cached"},  # importlib
    "nhc.core.archive.importer": {"has_location"},  # importlib
    "nhc.console.top.app": {"active", "label", "value"},  # textual
    "nhc.core.check": {"__doc__"},
    "nhc.cli.click_app": {"message", "name"},  # click
    "nhc.core.command_line.report_output": {"failure"},  # of the stream that stands in for standard output
    "nhc.node.facts.nvml": {"version"},  # NVML's structures
    "nhc.fleet.ssh.libssh": {"argtypes", "restype"},  # ctypes
    "nhc.fleet.ssh.transport_paramiko": {
        "_preferred_ciphers", "_preferred_kex", "_preferred_keys", "auth_timeout", "banner_timeout",
        "handshake_timeout", "start_handshake",
    },
    "nhc.fleet.worker": {"value"},  # multiprocessing
    "nhc.core.light": {"__qualname__"},
    "nhc.core.settings.declared": {"__defaults__"},  # of a NamedTuple's constructor
    "nhc.core.command_line.printing": {"callback", "params"},  # click's command
    "nhc.node.run.engine": {"end"},  # of a function, which its worker calls at its end
    "nhc.core.system.written_files": {"filename"},  # OSError
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


@pytest.mark.thorough
def test_no_attribute_is_written_from_another_module(ours):
    found = failing(lambda name: strangers_written(name, ours.modules[name].tree))
    assert found == {}, "give the classes methods that say what is meant"


def test_of_a_rule_that_files_break_each_of_them_is_named():
    assert failing(len, ["", "a", "bc"]) == {"a": 1, "bc": 2}


def test_the_rule_on_attributes_sees_what_it_is_for():
    tree = ast.parse(
        "class A:\n  def f(self):\n    self.own = 1\ndef g(a, b):\n  a.own = 2\n  b.theirs, b.own = 3, 4\n"
    )
    assert strangers_written("nhc.x", tree) == ["nhc.x:6: b.theirs"]


# What is loaded before a job.


def loaded_modules(code, state, root=ROOT):
    script = f"import sys\n{code}\nprint(chr(10).join(sys.modules), file=sys.stderr)"
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{root}:{root / 'adapters'}", "NHC_STATE_DIR": str(state),
           "NHC_MUTES": "/no/such/file"}  # fmt: skip  # what this machine has muted is not the test's
    # -S: what a site's own .pth files import is not ours.
    done = subprocess.run([sys.executable, "-S", "-c", script], capture_output=True, text=True, env=env, timeout=60,
                          cwd="/")  # fmt: skip  # or Python would look in the checkout first
    assert done.returncode == 0, done.stderr
    return set(done.stderr.split()), done.stdout


def banned_in_check_local(base, root=ROOT):
    """What two runs load that is too dear: the first reads the configuration, the second has its plan."""
    config = base / "nhc.conf"
    config.write_text("* || check_hw_mem_free 1k\n* || check_fs_mount /\n* || check_ps_loadavg 99999 99999 99999\n")
    settle(config)
    run = f"from nhc.cli.main import main\nmain(['check', 'local', '-c', {str(config)!r}, '--all'])"
    found = set()
    for banned in (LOCAL_PATH_BANNED, SUPERVISOR_BANNED):
        loaded, said = loaded_modules(run, base / "state", root)
        assert "3 results" in said
        found |= banned & loaded
        # The first run reads the configuration, and so the checks' declarations; the second leaves both alone.
        assert ("nhc.node.checks.hw_mem" in loaded) == (banned is LOCAL_PATH_BANNED)
    return found


def banned_in_family(family, base, root=ROOT):
    """Each worker that claims one of its checks imports it."""
    loaded, _said = loaded_modules(f"import nhc.node.checks.{family}", base, root)
    assert f"nhc.node.checks.{family}" in loaded
    return LOCAL_PATH_BANNED & loaded


def banned_in_version(base, root=ROOT):
    loaded, said = loaded_modules("from nhc.cli.main import main\nmain(['--version'])", base, root)
    assert said.startswith("nhc ")
    return (LOCAL_PATH_BANNED | {"re", "typing", "json"}) & loaded


@pytest.mark.thorough
def test_check_local_loads_only_cheap_modules(tmp_path):
    assert banned_in_check_local(tmp_path) == set()


@pytest.mark.parametrize("family", check_index.families())
def test_a_check_family_loads_only_cheap_modules(family, tmp_path):
    assert banned_in_family(family, tmp_path) == set()


@pytest.mark.parametrize(
    "family", ["cmd", "file", "fs", "fs_mount", "gpu", "hw", "hw_mem", "ps", "ps_load", "ps_service"]
)
def test_the_checks_that_every_node_runs_compile_no_regular_expression_to_be_imported(family, tmp_path):
    loaded, _said = loaded_modules(f"import nhc.node.checks.{family}", tmp_path)
    assert not loaded & {"re", "enum", "functools"}, "they cost a tenth of a run"


def test_a_command_is_run_without_enumerations_of_signals(tmp_path):
    run = "from nhc.core.system import process\nassert process.run(['true'], timeout=30.0, env={}).status == 0"
    loaded, _said = loaded_modules(run, tmp_path)
    assert not loaded & {"signal", "enum"}


def test_the_version_costs_nothing(tmp_path):
    assert banned_in_version(tmp_path) == set()


# Each rule broken once: a rule that sees nothing would hold for ever.


def one_of(package):
    """A module of that package, no package itself."""
    return next(name for name in FILES if below(name, package) and name not in PACKAGES)


def whole(rule):
    """A rule about all modules, as one about the changed one."""
    return lambda house, _name: rule(house)


LAZY = "def function():\n    from {} import {}\n"
#: The rule, the module that is changed, what it says, and what the rule says of it.
BROKEN = {
    "a room without a name": (whole(unnamed_rooms), "nhc.attic.box", "", "attic"),
    "a module of the root without a name": (whole(unnamed_rooms), "nhc.attic", "", "attic"),
    "an import upwards": (wrong_imports, "nhc.node.facts.dmi", "from nhc.fleet import sweep", "nhc.fleet.sweep"),
    "a lazy import upwards": (
        wrong_imports, "nhc.node.facts.dmi", LAZY.format("nhc.fleet", "sweep"), "nhc.fleet.sweep"),
    "an import for type checkers upwards": (
        wrong_imports, "nhc.node.facts.dmi",
        "from nhc.core.light import TYPE_CHECKING\nif TYPE_CHECKING:\n    from nhc.fleet.sweep import x\n",
        "nhc.fleet.sweep"),
    "an import by a word upwards": (
        wrong_imports, "nhc.node.facts.dmi", "__import__('nhc.fleet.sweep')", "nhc.fleet.sweep"),
    "an import by importlib upwards": (
        wrong_imports, "nhc.node.facts.dmi", "import importlib\nimportlib.import_module('nhc.fleet.sweep')",
        "nhc.fleet.sweep"),
    "an import upwards within a room": (
        whole(upwards_inside), "nhc.node.facts.dmi", "import nhc.node.checks.fs", "nhc.node.checks.fs"),
    "nhc imports an adapter": (
        wrong_imports, "nhc.marks.commands.slurm", "import nhc_adapters.pbs", "nhc_adapters.pbs"),
    "a room above the adapters imports one": (
        wrong_imports, "nhc.hooks.log", "import nhc_adapters.pbs", "nhc_adapters.pbs"),
    "an adapter imports more than it may see": (
        wrong_imports, "nhc_adapters.pbs", "import nhc.core.state.store", "nhc.core.state.store"),
    "an adapter imports what checks see": (wrong_imports, "nhc_adapters.pbs", "import nhc.core.host", "nhc.core.host"),
    "a relative import": (House.relative_imports, "nhc.node.facts.dmi", "from . import pci", "nhc.node.facts.dmi"),
    "two modules in a circle": (whole(module_circles), "nhc.core.light", "import nhc.core.model", "nhc.core.model"),
    "a lazy circle of modules": (
        whole(module_circles), "nhc.core.light", LAZY.format("nhc.core", "model"), "nhc.core.model"),
    "a circle of packages": (
        whole(package_circles), "nhc.core.system.process", LAZY.format("nhc.node.run", "worker"), "nhc.core.system"),
    "a circle among commands, where some may dispatch": (
        whole(module_circles), "nhc.core.command_line.options", LAZY.format("nhc.cli", "click_app"),
        "nhc.cli.click_app"),
    "Kubernetes upwards": (
        whole(upwards_inside), "nhc_adapters.kubernetes.api.client",
        "import nhc_adapters.kubernetes.nodes.marks", "nodes.marks"),
    "a package of Kubernetes without a level": (
        whole(upwards_inside), "nhc_adapters.kubernetes.attic.box", "", "nhc_adapters.kubernetes.attic"),
    "a package that is not empty": (
        lambda house, name: [name] * full_package(house, name), "nhc.node.facts", "from nhc.node.facts import dmi",
        "nhc.node.facts"),
    "a rule of marks that is asked past the door": (
        own_rules_of_marks, "nhc.hooks.prolog", "from nhc.marks.ports.marks import may_mark", "may_mark"),
    "a bound that is asked past the door": (
        own_rules_of_marks, "nhc.remedy.moves", "def function(bounds):\n    bounds.room()", "bounds.room"),
    "a mark that is set past the door": (
        own_rules_of_marks, "nhc.remedy.moves", "def function(site):\n    site.marker.mark({})", "site.marker.mark"),
    "an attribute written from another module": (
        lambda house, name: strangers_written(name, house.modules[name].tree), "nhc.node.facts.dmi",
        "def function(agent):\n    agent.publisher = 1\n", "agent.publisher"),
}  # fmt: skip
BROKEN.update({
    f"{one} never imports {other}": (
        wrong_imports, one_of(one), f"import {one_of(other)}", why)
    for (one, other), why in NEVER.items()
})  # fmt: skip
BROKEN.update({
    f"a door: {code.splitlines()[-1]}": (wrong_doors, "nhc.node.facts.dmi", code, "nhc.node.facts.dmi")
    for code in (
        "open('/x')", "import io\nio.open('/x')", "import os\nos.open('/x', 0)", "import os\nos.fork()",
        "import os\nos.execv('/x', [])", "import os\nos.posix_spawn('/x', [], {})", "import os\nos.popen('x')",
        "import os\nos.system('x')", "from os import fork\nfork()", "from os import system as f\nf('x')",
        "import os as o\no.fork()", "import subprocess", "from subprocess import run", "import socket",
        "import _posixsubprocess", "import multiprocessing", "from pathlib import Path", "import pty",
        "def function():\n    import subprocess", "async def f(a):\n    await a.create_subprocess_exec('x')",
    )
})  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_a_rule_sees_what_breaks_it(case, ours):
    rule, name, text, said = BROKEN[case]
    before = rule(ours, name) if name in ours.modules else []
    broken = rule(ours.changed(name, text), name)
    assert before == []
    assert any(said in str(one) for one in broken), broken


@pytest.mark.parametrize(
    ("name", "said"),
    [("nhc.node.checks.runtime", "DOORS nhc.node.checks.runtime"),
     ("nhc.cli.main", "DISPATCH nhc.cli.main")],
)  # fmt: skip
def test_an_exception_that_nothing_needs_is_seen(name, said, ours):
    assert said in unused_exceptions(ours.changed(name, "", add=False))


def test_what_adapters_no_longer_see_is_seen(ours):
    house = ours
    for name in [name for name, others in ours.imports.items() if any(below(o, "nhc.node.kernlog") for o in others)]:
        house = house.changed(name, "", add=False) if room(name) == "nhc_adapters" else house
    assert "ADAPTERS_SEE nhc.node.kernlog" in unused_exceptions(house)


@pytest.fixture
def tree(tmp_path):
    """This source tree, in which a module can be changed."""

    def change(module, text):
        root = tmp_path / "tree"
        place = root
        for part in [*Path(module).parts[:-1], ""]:  # the packages on the way are this tree's own, all else is shared
            place.mkdir()
            for entry in (ROOT / place.relative_to(root)).iterdir():
                if entry.name not in (part, Path(module).name):
                    (place / entry.name).symlink_to(entry)
            place = place / part
        (root / module).write_text(f"{(ROOT / module).read_text()}\n{text}\n")
        return root

    return change


@pytest.mark.thorough
def test_a_dear_module_on_the_local_path_is_seen(tree, tmp_path):
    root = tree("nhc/core/units.py", "import logging")
    assert "logging" in banned_in_check_local(tmp_path, root)
    assert banned_in_version(tmp_path, root) == set()


@pytest.mark.thorough
def test_a_dear_module_in_the_waiting_process_alone_is_seen(tree, tmp_path):
    assert banned_in_check_local(tmp_path, tree("nhc/node/run/supervisor.py", "import fnmatch")) >= {"fnmatch"}


def test_a_dear_module_in_a_family_is_seen(tree, tmp_path):
    assert "subprocess" in banned_in_family("fs", tmp_path, tree("nhc/node/checks/fs.py", "import subprocess"))


@pytest.mark.thorough
def test_a_dear_module_for_the_version_is_seen(tree, tmp_path):
    assert "json" in banned_in_version(tmp_path, tree("nhc/core/exit_status.py", "import json"))


@pytest.mark.thorough
def test_a_class_has_a_name_of_its_own(ours):
    places = {}
    for name, module in ours.modules.items():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(name)
    twice = {kind: found for kind, found in places.items() if len(found) > 1}
    assert twice == {}, "say in the name what each of them is, as LedgerEntry and FstabEntry do"


MOST_FIELDS = 12
"""Fields of a record that can be held in the head."""
LARGE_RECORDS = {
    "a row of a table of the store": {
        "Attempt", "DeepResult", "Episode", "JobRestart", "KnownNode", "StoredNode", "StoredProblem", "SweepTest",
        "WatchedJob",
    },
    "a row of a table of this package": {"Check", "JobKind", "Manager", "Repeat"},
    "a file, an answer or an object that has a published form": {
        "AgentStatus", "EventDetails", "GateRecord", "JobEndRecord", "LogEvent", "LogMonitor", "LogState", "Notice",
    },
    "what one contract says of one thing: a node, a job, a device, a line of the configuration": {
        "Device", "DeviceRule", "Item", "JobView", "Node", "NodeState", "Option", "RawLine", "Route", "Setting",
    },
    "the flat keys of a settings file": {
        "AgentSettings",
        "ConsoleSettings", "ControllerSettings", "DeepSettings", "FleetSettings", "RemedySettings", "TrainPlan",
    },
    "what is asked for at once, by the options of one command": {"RunRequest", "SweepPlan"},
    "what one flow of the loop decides by": {
        "Detail", "EpisodeView", "FleetProblem", "GateWorld", "Incident", "Job", "SpareView",
    },
}  # fmt: skip
"""The records that have more, by the reason why."""


def large_records(house):
    """The records with more fields, but for those that are the options of a command."""
    found = {}
    for name, module in house.modules.items():
        for node in ast.walk(module.tree):
            if not isinstance(node, ast.ClassDef):
                continue
            marks = [ast.unparse(each) for each in (*node.bases, *node.decorator_list)]
            record = any(re.search(r"NamedTuple|TypedDict|dataclass|declared\.settings", mark) for mark in marks)
            fields = sum(isinstance(each, ast.AnnAssign) for each in node.body)
            if record and fields > MOST_FIELDS and not {"declared", "options.declared"} & set(marks):
                found[node.name] = f"{name}: {node.name} has {fields} fields"
    return found


def test_a_record_can_be_held_in_the_head_or_has_a_reason(ours):
    found, known = large_records(ours), set().union(*LARGE_RECORDS.values())
    assert {said for kind, said in found.items() if kind not in known} == set(), "make it the few things it is"
    assert known - set(found) == set(), "these need no reason any more"


def test_a_large_record_is_seen(ours):
    fields = "".join(f"    f{number}: int\n" for number in range(MOST_FIELDS + 1))
    house = ours.changed("nhc.core.units", f"from typing import NamedTuple\nclass Large(NamedTuple):\n{fields}")
    assert large_records(house)["Large"] == "nhc.core.units: Large has 13 fields"
