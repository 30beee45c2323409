"""The commands of docs/store.md, run as they stand there, on SQLite and PostgreSQL: what is restored is whole."""

import re
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest

from nhc.store import episodes
from nhc.store.connect import open_store
from tests.support.postgresql import postgresql  # noqa: F401 (a fixture)
from tests.support.require import need
from tests.support.run import ROOT

BLOCKS = re.findall(
    r"^```sh\n(.*?)^```",
    (ROOT / "docs/store.md").read_text(encoding="utf-8").partition("\n## Back up and restore\n")[2],
    re.DOTALL | re.MULTILINE,
)


def add(store, *nodes):
    for node in nodes:
        with store.write() as connection:
            episodes.open_episode(connection, node, "c|R|", action="reboot", state="draining", now=1.0, by="nhc")


def run(block, places, url):
    """A block of commands, with this test's places in it. Its last status, and what it printed."""
    for old, new in places.items():
        block = block.replace(old, str(new))
    nhc = f'nhc() {{ PYTHONPATH="{ROOT}:{ROOT}/adapters" "{sys.executable}" -m nhc "$@"; }}\n'
    done = subprocess.run(["sh", "-ec", nhc + block], check=False, capture_output=True, text=True, timeout=120,
                          env={"PATH": "/usr/bin:/bin", "NHC_STORE": url, "HOME": str(places["/backup"]),
                               "NHC_STORE_SETTINGS": str(places["settings"])})  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def names(url, anchor):
    store = open_store(url, anchor=anchor)
    with store.read() as connection:
        found = [one.node for one in episodes.list_episodes(connection)]
    store.close()
    return found


@pytest.mark.parametrize(
    "kind", ["sqlite", pytest.param("postgresql", marks=[pytest.mark.postgresql, pytest.mark.slow])]
)
def test_a_store_is_backed_up_while_it_is_used_and_restored(kind, tmp_path, request):
    save, restore = BLOCKS[:2] if kind == "sqlite" else BLOCKS[2:]
    tool = "sqlite3" if kind == "sqlite" else "pg_dump"
    need(tool, shutil.which(tool), "packages sqlite3, postgresql-client")
    place, backup = tmp_path / "var", tmp_path / "backup"
    place.mkdir()
    backup.mkdir()
    places = {"/var/lib/nhc-server": place, "/backup": backup, "settings": tmp_path / "store.toml"}
    server = None
    if kind == "sqlite":
        url, anchor = f"sqlite:///{place}/store.db", f"{place}/store.db.anchor"
    else:
        server = request.getfixturevalue("postgresql")
        url, anchor = server.database(), f"{place}/nhc.anchor"
    (tmp_path / "store.toml").write_text(f'url = "{url}"\naudit-anchor = "{anchor}"\n')
    store = open_store(url, anchor=anchor)
    add(store, "n1", "n2")

    assert run(save, places, url) == (0, "")
    add(store, "n3")  # after the backup
    store.close()

    target = url
    if server is not None:  # an empty database, as the page asks for
        target = server.database()
        (tmp_path / "store.toml").write_text(f'url = "{target}"\naudit-anchor = "{anchor}"\n')
    status, said = run(restore.replace("nhc store verify\n", ""), places, target)
    assert (status, said) == (0, "")
    status, said = run("nhc store verify", places, target)
    assert status == 0, said
    assert names(target, anchor) == ["n1", "n2"]

    store = open_store(target, anchor=anchor)
    add(store, "n4")
    store.close()
    assert run("nhc store verify", places, target)[0] == 0


@pytest.mark.thorough
def test_an_anchor_that_is_newer_than_the_restored_store_is_noticed(tmp_path):
    url, anchor = f"sqlite:///{tmp_path}/store.db", str(tmp_path / "store.db.anchor")
    store = open_store(url, anchor=anchor)
    add(store, "n1")
    with closing(sqlite3.connect(tmp_path / "store.db")) as old, closing(sqlite3.connect(tmp_path / "copy.db")) as new:
        old.backup(new)
    add(store, "n2")
    store.close()
    (tmp_path / "copy.db").replace(tmp_path / "store.db")
    (tmp_path / "store.toml").write_text(f'url = "{url}"\naudit-anchor = "{anchor}"\n')

    places = {"/var/lib/nhc-server": tmp_path, "/backup": tmp_path, "settings": tmp_path / "store.toml"}
    assert run("nhc store verify", places, url)[0] == 1
