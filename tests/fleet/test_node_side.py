"""What runs on the node: where it keeps things, whose nhc it runs, and what it refuses. Over the local transport."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import sys
import time
import zipfile
from pathlib import Path

import pytest

from nhc.fleet import node_session
from nhc.fleet.bundles import Bundle, SiteFiles, bundle, site_files
from nhc.fleet.transport import Node, Trouble
from nhc.fleet.transport_local import Local
from tests.support.require import need

NODE = Node("gpu01", python=sys.executable)


def archive(text: str) -> Bundle:
    """A tiny stand-in for nhc.pyz: a zip with a __main__."""
    import io

    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as file:
        file.writestr(zipfile.ZipInfo("__main__.py", (2020, 1, 1, 0, 0, 0)), text)
    return bundle({"nhc.pyz": (0o600, data.getvalue())})


ECHO = archive("import json, sys, os; print(json.dumps([sys.argv[1:], os.environ['PATH']]))")


def ask(task: node_session.SweepTask, node: Node = NODE) -> node_session.NodeOutput:
    session = Local().connect(node, time.monotonic() + 10)
    return node_session.judge(session, node, task)


def task(directory: Path, engine: Bundle = ECHO, **more: object) -> node_session.SweepTask:
    values = {"engine": engine, "site": SiteFiles(None, ()), "use": "pushed", "directory": str(directory),
              "nonce": "abc", "seconds": 5.0, **more}  # fmt: skip
    return node_session.SweepTask(**values)  # type: ignore[arg-type]


def trouble(asked: node_session.SweepTask, node: Node = NODE) -> Trouble:
    with pytest.raises(Trouble) as found:
        ask(asked, node)
    return found.value


@pytest.mark.thorough
def test_what_is_sent_is_kept_for_this_user_alone_and_sent_once(tmp_path):
    first, second = ask(task(tmp_path / "kept")), ask(task(tmp_path / "kept"))
    assert first.pushed == len(ECHO.blob)
    assert second.pushed == 0
    for path in [tmp_path / "kept", *(tmp_path / "kept").rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) & 0o77 == 0, path


def test_the_check_is_told_the_node_s_name_and_its_deadline(tmp_path):
    argv, path = json.loads(ask(task(tmp_path / "kept", options=("--all",))).report)
    assert argv == ["check", "local", "--format", "jsonl", "--timeout", "5s", "--node", "gpu01", "--all"]
    assert "/usr/sbin" in path.split(":")  # a login that is not a shell has no sbin on its path


@pytest.mark.thorough
def test_a_bundle_that_was_changed_on_the_node_is_sent_again(tmp_path):
    ask(task(tmp_path / "kept"))
    kept = tmp_path / "kept" / ECHO.digest / "nhc.pyz"
    for spoilt in (b"print('evil')", kept.read_bytes()[:-1], kept.read_bytes() + b"x"):
        kept.write_bytes(spoilt)
        answer = ask(task(tmp_path / "kept"))
        assert (answer.pushed, "check" in answer.report) == (len(ECHO.blob), True)
    (kept.parent / ".index").unlink()
    assert ask(task(tmp_path / "kept")).pushed


@pytest.mark.thorough
def test_a_directory_that_others_can_write_to_is_refused(tmp_path):
    open_parent = tmp_path / "open"
    open_parent.mkdir()
    open_parent.chmod(0o777)
    assert trouble(task(open_parent / "kept")).reason == "UnsafeDirectory"
    open_parent.chmod(0o1777)  # like /tmp: others cannot replace what is ours
    assert ask(task(open_parent / "kept")).pushed
    (open_parent / "kept").chmod(0o750)
    found = trouble(task(open_parent / "kept"))
    assert (found.reason, "750" in found.message) == ("UnsafeDirectory", True)


def test_a_directory_that_somebody_put_there_is_refused(tmp_path):
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "kept").symlink_to(tmp_path / "real")
    assert trouble(task(tmp_path / "kept")).reason == "UnsafeDirectory"
    need("root", os.geteuid() == 0, "to give a directory away")
    (tmp_path / "other").mkdir(mode=0o700)
    os.chown(tmp_path / "other", 12345, 12345)
    assert "belongs to user 12345" in trouble(task(tmp_path / "other")).message


def test_a_name_that_leaves_its_directory_is_refused(tmp_path):
    index = b"../escaped:600:4\n"
    evil = Bundle(hashlib.blake2b(index + b"evil", digest_size=32).hexdigest(), index + b"evil")
    assert trouble(task(tmp_path / "kept", evil)).reason in ("NodeError", "Truncated")
    assert not (tmp_path / "escaped").exists()
    assert not (tmp_path / "kept" / "escaped").exists()


@pytest.mark.thorough
def test_old_bundles_go(tmp_path):
    for number in range(12):
        ask(task(tmp_path / "kept", archive(f"print({number})")))
    kept = list((tmp_path / "kept").iterdir())
    assert len(kept) <= 9
    assert (tmp_path / "kept" / archive("print(11)").digest).is_dir()


@pytest.mark.thorough
def test_a_python_that_is_too_old_names_one_that_is_not(tmp_path):
    """A python3 that says it is 3.6 is asked once, and the newer one beside it does the work."""
    bin_directory = tmp_path / "bin"
    bin_directory.mkdir()
    old = bin_directory / "python3"
    source = "import sys; sys.version_info = (3, 6, 8); exec(sys.argv.pop(1))"
    old.write_text(f'#!/bin/sh\nshift 3\nexec {sys.executable} -I -S -c "{source}" "$@"\n')
    old.chmod(0o755)
    (bin_directory / "python3.11").symlink_to(sys.executable)

    class Elsewhere:
        def start(self, command: str, deadline: float) -> object:
            from nhc.fleet.transport_local import ProcessStream

            return ProcessStream(["/bin/sh", "-c", command], {"PATH": f"{bin_directory}:/bin"})

        def close(self) -> None:
            """Nothing is open."""

    answer = node_session.judge(Elsewhere(), Node("gpu01"), task(tmp_path / "kept"))  # type: ignore[arg-type]
    assert answer.python.startswith(".".join(map(str, sys.version_info[:2])))
    found = trouble(task(tmp_path / "kept"), Node("gpu01", python=str(old)))
    assert (found.reason, "3.6.8" in found.message) == ("OldPython", True)


@pytest.mark.thorough
@pytest.mark.parametrize(("version", "how"), [("SAME", "installed"), ("0.0.1", "pushed")])
def test_the_node_s_own_nhc_is_used_where_it_is_the_same_version(tmp_path, version, how):
    from nhc import __version__

    own = tmp_path / "bin" / "nhc"
    own.parent.mkdir()
    version = __version__ if version == "SAME" else version
    own.write_text(f'#!/bin/sh\nif [ "$1" = --version ]; then echo "nhc {version}"; else echo "own $*"; fi\n')
    own.chmod(0o755)
    asked = task(tmp_path / "kept", use="auto")
    answer = with_path(f"{own.parent}:{os.environ['PATH']}", asked)
    assert (answer.how, answer.report.startswith("own check local")) == (how, how == "installed")
    own.chmod(0o757)  # somebody else could have written it
    assert with_path(f"{own.parent}:{os.environ['PATH']}", asked).how == "pushed"


def with_path(path: str, asked: node_session.SweepTask) -> node_session.NodeOutput:
    class Session:
        def start(self, command: str, deadline: float) -> object:
            from nhc.fleet.transport_local import ProcessStream

            return ProcessStream(["/bin/sh", "-c", command], {**os.environ, "PATH": path})

        def close(self) -> None:
            """Nothing is open."""

    return node_session.judge(Session(), NODE, asked)  # type: ignore[arg-type]


def test_only_an_installed_nhc_is_used_where_that_is_asked(tmp_path):
    assert trouble(task(tmp_path / "kept", use="installed")).reason == "NotInstalled"


@pytest.mark.thorough
def test_output_without_end_and_a_run_without_end_are_ended_there(tmp_path, monkeypatch):
    monkeypatch.setattr(node_session, "GRACE", 1.0)
    endless = archive("import sys\nwhile True: sys.stdout.write('x' * 65536)")
    assert trouble(task(tmp_path / "kept", endless)).reason == "OutputTooLarge"
    hung = archive("import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(60)")
    begin = time.monotonic()
    asked = task(tmp_path / "kept", hung, seconds=0.2)
    assert trouble(asked).reason == "HungCommand"
    assert time.monotonic() - begin < 0.2 + 2 * node_session.GRACE + 40, "it sleeps for a minute"


def test_what_nhc_complains_of_is_passed_on(tmp_path):
    found = trouble(task(tmp_path / "kept", archive("import sys; sys.exit('no\\x1b such thing')")))
    assert (found.reason, found.message) == ("NoReport", "nhc ended with status 1: no such thing")


def test_neither_the_program_nor_a_password_is_an_argument(tmp_path):
    node = NODE._replace(sudo=True, sudo_password="s3cret")
    command = node_session.command(node, task(tmp_path))
    assert "s3cret" not in command
    assert "def main" not in command
    assert "\n" not in command  # csh ends a quoted word at one
    assert "!" not in command


@pytest.mark.thorough
def test_two_sweeps_that_push_at_once_both_get_their_report(tmp_path):
    import threading

    found = []
    threads = [threading.Thread(target=lambda: found.append(ask(task(tmp_path / "kept")))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 6
    assert not [path for path in (tmp_path / "kept").iterdir() if path.name.startswith(".")]


def test_a_site_bundle_is_the_same_for_the_same_files(tmp_path):
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "conf.d" / "a b%.conf").write_text("* || check_fs_mount /\n")
    one, two = site_files([str(tmp_path / "conf.d")], []), site_files([str(tmp_path / "conf.d")], [])
    assert one == two
    assert one.bundle is not None
    show = archive("import sys; d = sys.argv[sys.argv.index('--config') + 1]; import os; print(os.listdir(d))")
    asked = task(tmp_path / "kept", show, site=one)
    assert ask(asked).report == "['a b%.conf']\n"


@pytest.mark.slow
def test_a_node_that_takes_long_says_that_it_has_begun(tmp_path):
    """What it says first travels with its answer, but not when that takes longer than a login may."""
    slow = archive("import time; time.sleep(2.5); print('{}')")
    answer = ask(task(tmp_path / "kept", slow, login=2.0))
    assert answer.report == "{}\n"
    assert answer.python.startswith(f"{sys.version_info[0]}.")
