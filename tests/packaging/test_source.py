"""What may be released, and what goes into a build."""

import os
import subprocess

import pytest

from nhc_release import artifacts, deb, signing, source
from nhc_release.__main__ import main
from nhc_release.commands import BuildError

CHANGELOG = "# Changelog\n\n## 1.1.0, unreleased\n\n- New.\n\n## 1.0.0, 2026-01-31\n\n- First.\n"


@pytest.fixture
def checkout(tmp_path):
    """A committed checkout of version 1.0.0."""
    top = tmp_path / "checkout"
    (top / "nhc").mkdir(parents=True)
    (top / "nhc/__init__.py").write_text('__version__ = "1.0.0"\n')
    (top / "CHANGELOG.md").write_text(CHANGELOG)
    (top / ".gitignore").write_text("/dist\n")
    git(top, "init", "-q")
    commit(top)
    return top


def git(top, *words):
    environ = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_COMMITTER_DATE": "@1700000000 +0000"}
    who = ["-c", "user.name=n", "-c", "user.email=n@example.org"]
    subprocess.run(["git", *who, "-C", top, *words], check=True, env=environ, capture_output=True)


def commit(top):
    git(top, "add", "-A")
    git(top, "commit", "-q", "-m", "x")


def test_a_clean_checkout_with_its_entry_is_released(checkout):
    found = source.read(checkout)
    assert found == source.Source(checkout, "1.0.0", 1_700_000_000, "2026-01-31", "- First.")
    assert source.refusals(found) == []


def test_what_is_not_committed_is_refused(checkout):
    (checkout / "nhc/new.py").write_text("")
    (said,) = source.refusals(source.read(checkout))
    assert said == "the checkout has changes that are not committed: nhc/new.py"


@pytest.mark.parametrize(
    ("version", "said"),
    [
        ("1.1.0", "CHANGELOG.md: the date of 1.1.0 is 'unreleased', not YYYY-MM-DD"),
        ("1.2.0", "CHANGELOG.md has no entry for 1.2.0: add `## 1.2.0, YYYY-MM-DD`"),
    ],
)
def test_a_version_that_the_changelog_does_not_date_is_refused(checkout, version, said):
    (checkout / "nhc/__init__.py").write_text(f'__version__ = "{version}"\n')
    commit(checkout)
    assert source.refusals(source.read(checkout)) == [said]


def test_a_refused_release_builds_nothing(checkout, capsys, monkeypatch, tmp_path):
    (checkout / "left").write_text("")
    monkeypatch.setattr(source, "ROOT", checkout)
    monkeypatch.setattr(source.read, "__defaults__", (checkout,))
    assert main(["release", "--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err == "nhc_release: the checkout has changes that are not committed: left\n"
    assert not (tmp_path / "out").exists()


def test_an_export_has_neither_the_umask_nor_the_times_nor_what_git_ignores(checkout, tmp_path):
    (checkout / "dist").mkdir()
    (checkout / "dist/old.whl").write_text("")
    (checkout / "run").write_text("")
    (checkout / "run").chmod(0o711)
    (checkout / "CHANGELOG.md").chmod(0o600)
    made = source.export(source.read(checkout), tmp_path / "made")
    files = {str(p.relative_to(made)): oct(p.stat().st_mode & 0o777) for p in made.rglob("*") if p.is_file()}
    assert files == {".gitignore": "0o644", "CHANGELOG.md": "0o644", "nhc/__init__.py": "0o644", "run": "0o755"}
    assert {p.stat().st_mtime for p in made.rglob("*")} == {1_700_000_000}


def test_a_version_of_another_form_is_one_line(checkout):
    (checkout / "nhc/__init__.py").write_text('__version__ = "soon"\n')
    with pytest.raises(BuildError, match="no line __version__"):
        source.read(checkout)


def test_debian_orders_a_candidate_before_its_release():
    assert deb.debian_version("0.2.0rc1") == "0.2.0~rc1"
    assert subprocess.run(["dpkg", "--compare-versions", "0.2.0~rc1", "lt", "0.2.0"], check=False).returncode == 0


def test_two_builds_that_differ_are_seen(tmp_path):
    for name, text in (("a", "one"), ("b", "two")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "same").write_text("")
        (tmp_path / name / "file").write_text(text)
        signing.write_sums(tmp_path / name)
    assert artifacts.differences(tmp_path / "a", tmp_path / "b") == ["file"]
    assert artifacts.differences(tmp_path / "a", tmp_path / "a") == []
