"""nhc.pyz: one file that runs on every Python from 3.9 on with nothing else installed."""

import ast
import marshal
import os
import shutil
import subprocess
import sys
import zipfile
import zlib
from pathlib import Path

import pytest

from nhc.core.archive import build
from nhc.core.archive.build import INTERPRETERS, NODE_ADAPTERS, SOURCE, SOURCES
from nhc.core.check import find_all
from tests.support.require import need

ROOT = Path(__file__).resolve().parents[3]


def interpreters():
    """Every CPython 3.9 or newer on PATH or named in NHC_TEST_PYTHONS (separated by colons), one of each version."""
    named = os.environ.get("NHC_TEST_PYTHONS", "").split(":")
    candidates = [sys.executable, *filter(None, named), *map(shutil.which, INTERPRETERS), "/usr/bin/python3"]
    found = {}
    ask = "import sys; print(sys.implementation.name, *sys.version_info[:2])"
    for path in candidates:
        if not path or not os.path.exists(path):
            continue
        told = subprocess.run([path, "-I", "-S", "-c", ask], capture_output=True, text=True, timeout=60).stdout.split()
        if len(told) == 3 and told[0] == "cpython" and (int(told[1]), int(told[2])) >= (3, 9):
            found.setdefault(f"{told[1]}.{told[2]}", path)
    return found


PYTHONS = interpreters()
BUILT_IN = [check.name for check in find_all() if not check.distribution]
OTHERS = [path for path in PYTHONS.values() if path != sys.executable]
COMPILED = OTHERS[1:]  # not the first: the sources have to do there


@pytest.fixture(scope="session")
def archive(tmp_path_factory):
    path = tmp_path_factory.mktemp("pyz") / "nhc.pyz"
    build.build(str(path), interpreters=COMPILED)
    return path


def start(python, archive, *words, tmp, check=True):
    env = {"PATH": "/usr/bin:/bin", "NHC_STATE_DIR": str(tmp / "state"), "NHC_CACHE_DIR": str(tmp / "cache")}
    done = subprocess.run([python, "-I", "-S", str(archive), *words], capture_output=True, text=True, env=env,
                          cwd=tmp, timeout=120)  # fmt: skip
    assert not check or done.returncode == 0, done.stderr
    return done


each_python = pytest.mark.parametrize("python", PYTHONS.values(), ids=PYTHONS)


@pytest.mark.slow
@each_python
def test_check_local(archive, python, tmp_path):
    config = tmp_path / "nhc.conf"
    config.write_text("* || check_hw_mem_free 1k\n* || check_file_contents /etc/passwd '/^r(o+)t:/'\n* || /bin/true\n")
    for _ in range(2):  # the second time from the kept plan
        done = start(python, archive, "check", "local", "-c", str(config), "--all", tmp=tmp_path)
        assert "3 results (3 OK)" in done.stdout


@pytest.mark.thorough
@each_python
def test_list_needs_nothing_installed(archive, python, tmp_path):
    """It imports every family of checks, and click."""
    listed = start(python, archive, "list", tmp=tmp_path).stdout
    assert [line.split()[0] for line in listed.splitlines()] == BUILT_IN


@pytest.mark.thorough
@each_python
def test_the_hooks_by_the_name_of_a_link(archive, python, tmp_path):
    link = tmp_path / "nhc-healthcheck"
    link.symlink_to(archive)
    done = start(python, link, "-e", "check_file_test -e /", "-l", "-", tmp=tmp_path)
    assert not done.stderr
    failed = start(python, link, "-e", "check_file_test -e /no-such-file", "-l", "-", tmp=tmp_path, check=False)
    assert failed.returncode == 1
    assert "check_file_test" in failed.stdout
    for hook in ("nhc-prolog", "nhc-epilog"):
        (tmp_path / hook).symlink_to(archive)
        assert f"Usage: {hook}" in start(python, tmp_path / hook, "-h", tmp=tmp_path).stdout


@pytest.mark.thorough
@each_python
def test_the_built_in_default_is_in_the_archive(archive, python, tmp_path):
    done = start(python, archive, "check", "local", "--check", "check_hw_mem_free", tmp=tmp_path)
    assert "1 result (1 OK)" in done.stdout


@pytest.mark.thorough
def test_modules_come_out_of_the_compiled_piece_with_their_sources(archive, tmp_path):
    script = (
        f"import runpy, sys\nsys.argv = ['x', '--version']\n"
        f"try: runpy.run_path({str(archive)!r}, run_name='__main__')\nexcept SystemExit: pass\n"
    )
    script = script.replace("runpy.run_path", "import os; os._exit = sys.exit; runpy.run_path", 1)
    script += (
        "import inspect, nhc.core.units\n"
        "print(type(nhc.core.units.__loader__).__name__, nhc.core.units.__file__, nhc.core.units.__package__)\n"
        "print(inspect.getsource(nhc.core.units.text).splitlines()[0])\n"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", script], capture_output=True, text=True, cwd=tmp_path, timeout=60
    )
    assert done.stdout.splitlines()[1:] == [
        f"Compiled {archive}/{SOURCE}/nhc/core/units.py nhc.core",
        "def text(value: str) -> str:",
    ], done.stderr


@pytest.mark.thorough
def test_the_same_inputs_give_the_same_bytes(archive, tmp_path):
    again = tmp_path / "nhc.pyz"
    build.build(str(again), interpreters=COMPILED)
    assert again.read_bytes() == archive.read_bytes()


@pytest.mark.thorough
def test_the_archives_directory_stays_short(archive):
    """zipimport reads all of it at each start: a compiled module must not be an entry of its own."""
    with zipfile.ZipFile(archive) as opened:
        names = opened.namelist()
        with opened.open(SOURCES) as inner, zipfile.ZipFile(inner) as sources:
            modules = sources.namelist()
    assert not [name for name in names if name.endswith(".pyc")]
    assert len([name for name in names if not name.startswith(f"{SOURCE}/")]) <= 2 + len(INTERPRETERS)
    assert [name for name in names if name.endswith(".py") and "/data/" not in name] == ["__main__.py"]
    assert f"{SOURCE}/nhc/core/data/default.conf" in names
    assert {"nhc/cli/main.py", "click/core.py"} <= set(modules)
    assert not [
        name for name in (*names, *modules) if "/." in name or name.startswith(("nhc/store/server", "nhc/console/"))
    ]
    assert "nhc/fleet/summary.py" in modules  # for the controller of the Ansible collection that carries the archive


@pytest.fixture(scope="module")
def bare(archive, tmp_path_factory):
    """The archive with nothing compiled."""
    path = tmp_path_factory.mktemp("bare") / "nhc.pyz"
    with zipfile.ZipFile(archive) as old, zipfile.ZipFile(path, "w") as new:
        for info in old.infolist():
            if not info.filename.startswith("lib/cpython"):
                new.writestr(info, old.read(info))
    return path


def explain(bare, tmp, **environ):
    env = {"PATH": "/usr/bin:/bin", "NHC_CACHE_DIR": str(tmp / "cache"), **environ}
    done = subprocess.run([sys.executable, "-S", str(bare), "explain", "check_fs_free"],
                          capture_output=True, text=True, cwd=tmp, timeout=60, env=env)  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("check_fs_free")


@pytest.mark.thorough
def test_an_interpreter_that_nothing_was_compiled_for_runs_from_the_sources(bare, tmp_path):
    explain(bare, tmp_path, PYTHONDONTWRITEBYTECODE="1")

    assert not any(path.is_file() for path in tmp_path.rglob("*"))


HOSTILE = compile("import sys\nsys.exit('hostile code ran')", "hostile", "exec")


def put(path, code):
    body = marshal.dumps(code)
    path.write_bytes(zlib.crc32(body).to_bytes(4, "little") + body)


@pytest.mark.thorough
def test_such_an_interpreter_keeps_what_it_compiled(bare, tmp_path):
    explain(bare, tmp_path)
    [kept] = (tmp_path / "cache").iterdir()
    modules = {path.name for path in kept.iterdir()}
    assert {"index", "nhc.cli.main", "nhc.core.check"} <= modules
    assert kept.stat().st_mode & 0o077 == 0

    put(kept / "nhc.core.check", HOSTILE)  # what is kept is what runs
    with pytest.raises(AssertionError, match="hostile code ran"):
        explain(bare, tmp_path)
    (kept / "nhc.core.check").write_bytes(b"cut")  # a damaged file is made anew
    explain(bare, tmp_path)
    assert len((kept / "nhc.core.check").read_bytes()) > 100


@pytest.mark.thorough
def test_two_archives_by_turns_keep_what_each_compiled_and_old_ones_go(bare, tmp_path):
    explain(bare, tmp_path)
    [kept] = (tmp_path / "cache").iterdir()
    others = [kept.with_name(f"{kept.name[:-4]}old{number}") for number in range(5)]
    for age, other in enumerate(others):
        other.mkdir()
        os.utime(other, (1e9 - age, 1e9 - age))
    shutil.rmtree(kept)

    explain(bare, tmp_path)

    assert sorted((tmp_path / "cache").iterdir()) == sorted([kept, *others[:3]])


@pytest.mark.thorough
@pytest.mark.parametrize("whose", ["anybody can write to it", "somebody else owns it", "it is a link"])
def test_compiled_code_that_others_could_have_written_does_not_run(bare, tmp_path, whose):
    explain(bare, tmp_path)
    [kept] = (tmp_path / "cache").iterdir()
    put(kept / "nhc.core.check", HOSTILE)
    if whose == "somebody else owns it":
        need("root", not os.geteuid())
        os.chown(kept, 65534, 65534)
    elif whose == "it is a link":
        kept.rename(tmp_path / "elsewhere")
        kept.symlink_to(tmp_path / "elsewhere")
    else:
        kept.chmod(0o777)

    explain(bare, tmp_path)


@pytest.mark.thorough
def test_what_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    done = subprocess.run(
        [sys.executable, "-m", "nhc.core.archive.build", "--help"], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 2
    assert done.stderr.startswith("usage: ")
    with pytest.raises(OSError, match="file"):
        build.build(str(tmp_path / "file" / "nhc.pyz"), interpreters=())


@pytest.mark.parametrize("name", NODE_ADAPTERS)
def test_the_nodes_adapters_need_the_standard_library_alone(name):
    """Imported by the hooks out of the archive, where nothing else is installed."""
    tree = ast.parse((ROOT / "adapters" / "nhc_adapters" / name).read_text())
    roots = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            roots |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "the archive's adapters import one another by name"
            roots.add(node.module)
            if node.module == "nhc_adapters":
                roots |= {f"nhc_adapters.{alias.name}" for alias in node.names}
    for root in roots:
        top, _, rest = root.partition(".")
        if top == "nhc_adapters":
            place = rest.replace(".", "/")
            assert not rest or {f"{place}.py", f"{place}/__init__.py"} & set(NODE_ADAPTERS), (
                f"{root} is not in the archive"
            )
        elif top == "nhc":
            assert not rest.startswith("fleet"), f"{root} is not in the archive"
        else:
            known = getattr(sys, "stdlib_module_names", None)
            assert known is None or top in known, f"{root} is not installed on a node"
