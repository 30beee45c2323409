"""`nhc store` and `nhc serve server`'s tokens as a person uses them, on both databases."""

import hashlib
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from nhc.core.render.json import render
from nhc.store import episodes, evidence
from nhc.store.connect import open_store
from tests.store.conftest import postgresql, url  # noqa: F401 (fixtures)
from tests.support.intake import XID, report

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def nhc(url, tmp_path):  # noqa: F811
    (tmp_path / "store.toml").write_text(
        f'url = "{url}"\naudit-anchor = "{tmp_path}/anchor"\naudit-archive = "{tmp_path}/old"\n[keep]\naudit = "1d"\n'
    )

    def run(*words):
        done = subprocess.run(
            [sys.executable, "-m", "nhc", *map(str, words)], capture_output=True, text=True, timeout=120,
            env={**os.environ, "NHC_STORE": "", "NHC_STORE_SETTINGS": str(tmp_path / "store.toml")},
        )  # fmt: skip
        assert "Traceback" not in done.stderr
        return done.returncode, done.stdout, done.stderr

    return run


@pytest.mark.slow
def test_from_nothing_to_a_pruned_store(nhc, tmp_path):
    assert nhc("status", "store")[0] == 3
    status, out, _ = nhc("store", "migrate")
    assert (status, "migrated (0100" in out) == (0, True)
    assert "has schema" in nhc("store", "migrate")[1]
    assert nhc("doctor", "store")[0] == 0
    (tmp_path / "reports").mkdir()
    for at, results in ((1000.0, (XID,)), (2000.0, ()), (3000.0, (XID,))):
        (tmp_path / "reports" / f"{at}.json").write_text(render(report(at=at, results=results or (XID,))))
    (tmp_path / "more.json").write_text(render(report("n2", at=4e9)))
    assert nhc("store", "import", tmp_path / "reports") == (0, "1 changed, 2 same\n", "")
    assert nhc("store", "import", tmp_path / "reports")[1] == "2 late, 1 duplicate\n"
    status, out, err = nhc("store", "import", tmp_path / "more.json")
    assert (status, out) == (1, "1 refused\n")
    assert "n2: stamped" in err
    seen = json.loads(nhc("status", "store", "-f", "json")[1])
    assert (seen["nodes"], seen["problems"]) == ({"CRIT": 1}, 1)
    assert "nodes     1: 1 CRIT" in nhc("status", "store")[1]
    status, token, _ = nhc("token", "node", "n1")
    assert (status, bool(re.fullmatch(r"nhc_\S{43}\n", token))) == (0, True)
    nhc("token", "node", "n1", "--only")
    assert nhc("list", "tokens", "n1")[1].count("revoked") == 1
    assert nhc("token", "revoke", "n1")[:2] == (0, "n1: 1 tokens revoked\n")
    assert nhc("token", "revoke", "n1")[0] == 1
    before = nhc("status", "store")[1]
    assert nhc("store", "prune")[1].startswith("would go: 1 of report_history")
    assert nhc("status", "store")[1] == before
    assert nhc("store", "prune", "--apply")[1].startswith("gone: 1 of report_history")
    status, out, _ = nhc("store", "verify")
    assert (status, "whole" in out) == (0, True)


@pytest.mark.slow
def test_expired_evidence_goes_with_its_files_and_nothing_else(nhc, tmp_path, url):  # noqa: F811
    nhc("store", "migrate")
    folder, old, now = tmp_path / "evidence", time.time() - 40 * 86400, time.time()
    digests = {name: hashlib.sha256(name.encode()).hexdigest() for name in ("gone", "shared", "fresh", "other", "link")}
    for name, digest in digests.items():
        (folder / digest[:2]).mkdir(parents=True, exist_ok=True)
        (folder / digest[:2] / digest).write_text(name)
        os.utime(folder / digest[:2] / digest, (now, now) if name == "fresh" else (old, old))
    link = folder / digests["link"][:2] / digests["link"]
    link.rename(tmp_path / "elsewhere")
    link.symlink_to(tmp_path / "elsewhere")
    (tmp_path / "outside").write_text("not evidence")
    store = open_store(url, anchor=str(tmp_path / "anchor"), create=False)
    with store.write() as connection:
        first, _ = episodes.open_episode(
            connection, "n1", "c", action="mark", rung="", state="detected", now=old, by="t"
        )
        for name in ("gone", "shared", "fresh", "link"):
            evidence.add(connection, first, name, now=old, sha256=digests[name], expires=now - 86400)
        evidence.add(connection, first, "shared", now=old, sha256=digests["shared"], expires=now + 86400)
        evidence.add(connection, first, "bad", now=old, sha256="../outside", expires=now - 86400)
    store.close()
    status, out, err = nhc("store", "prune", "--apply")  # where the files are is not known: nothing of it goes
    assert (status, "evidence" in out, "evidence: left, no remedy.toml" in err) == (0, False, True)
    assert nhc("store", "prune", "--evidence", folder)[1].count("5 of evidence") == 1
    assert len([path for path in folder.rglob("*") if path.is_file()]) == 5
    status, out, _ = nhc("store", "prune", "--apply", "--evidence", folder)
    assert (status, "5 of evidence" in out, "evidence: 1 files deleted" in out) == (0, True, True), out
    left = {path.name for path in folder.rglob("*") if path.is_file()}
    assert left == set(digests.values()) - {digests["gone"]}
    assert (tmp_path / "elsewhere").read_text() + (tmp_path / "outside").read_text() == "linknot evidence"


@pytest.mark.thorough
def test_a_changed_row_is_found(nhc, tmp_path, url):  # noqa: F811
    nhc("token", "node", "n1")
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(tmp_path / "store.db")) as connection, connection:
            connection.execute("DROP TRIGGER audit_no_update")
            connection.execute("UPDATE audit SET actor = 'eve'")
        connection.close()
    else:
        import psycopg

        with psycopg.connect(url) as connection:
            connection.execute("ALTER TABLE audit DISABLE TRIGGER ALL")
            connection.execute("UPDATE audit SET actor = 'eve'")
    status, out, _ = nhc("store", "verify")
    assert (status, "audit: row 1 was changed" in out) == (1, True)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("url = 5", "store.toml:1: url: the value (not shown) is not a text"),
        ("[keep]\nhistory = '1s'", "store.toml:2: keep.history: '1s' is too small: expected 1d or more"),
        ("[reports]\ngaps = 1", "store.toml:2: reports.gaps: there is no such key: did you mean 'gap'?"),
    ],
)
def test_wrong_settings_are_one_line(nhc, tmp_path, text, said):
    (tmp_path / "store.toml").write_text(text)
    status, _, err = nhc("status", "store")
    assert (status, said in err, err.count("\n")) == (2, True, 1)


def test_the_units_command_exists():
    unit = (ROOT / "adapters" / "systemd" / "nhc-server.service").read_text()
    assert "ExecStart=/usr/bin/nhc serve server\n" in unit
    if shutil.which("systemd-analyze"):
        done = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", ROOT / "adapters" / "systemd" / "nhc-server.service"],
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert "Unknown" not in done.stderr


def test_tokens_of_a_node_set_come_a_line_each(nhc):
    status, out, _ = nhc("token", "node", "n[1-3],gpu7")
    lines = [line.split(" ") for line in out.splitlines()]
    assert status == 0
    assert [name for name, _token in lines] == ["n1", "n2", "n3", "gpu7"]
    assert all(re.fullmatch(r"nhc_\S{43}", token) for _name, token in lines)
    assert nhc("list", "tokens", "n2")[1].count("made") == 1
    assert nhc("token", "node", "n[1-")[0] == 2
