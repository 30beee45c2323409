"""Manual pages and completion, made from the commands themselves."""

import subprocess
import sys
from pathlib import Path
from shutil import which

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nhc.cli.click_app import application
from nhc.cli.command_table import COMMANDS
from nhc_release import completions, generated, manpages
from tests.support.require import need

EPOCH = 1_700_000_000


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Everything that is generated, by the very program that a build calls."""
    directory = tmp_path_factory.mktemp("generated")
    assert generated.main(str(directory), "1.2.3", str(EPOCH)) == 0
    return directory


def below(table, *words):
    for name, (_, inner, *_example) in table.items():
        yield (*words, name)
        if isinstance(inner, dict):
            yield from below(inner, *words, name)


@pytest.mark.thorough
def test_every_command_has_a_page(made):
    wanted = {"nhc", *manpages.HOOKS, *("-".join(words) for words in below(COMMANDS, "nhc"))}
    assert {path.name for path in (made / "man1").iterdir()} == {f"{name}.1" for name in wanted}


def test_mandoc_finds_no_fault(made):
    need("mandoc", which("mandoc"), "apt-get install mandoc")
    pages = sorted((made / "man1").iterdir())
    said = subprocess.run(["mandoc", "-Tlint", "-Wwarning", *pages], capture_output=True, text=True, check=False)
    assert said.stdout + said.stderr == ""


def shown(page):
    need("mandoc", which("mandoc"), "apt-get install mandoc")
    done = subprocess.run(["mandoc", "-Tutf8", "-Owidth=100", page], capture_output=True, text=True, check=True)
    return subprocess.run(["col", "-bx"], input=done.stdout, capture_output=True, text=True, check=True).stdout


def test_a_page_says_what_the_help_says(made):
    text = shown(made / "man1/nhc-serve-remedy.1")
    assert "nhc-serve-remedy - bring faulty nodes back" in text
    assert "nhc serve remedy [OPTIONS]" in text
    assert "--metrics-file FILE" in text
    assert "Exit status: 0 done or ended by a signal" in " ".join(text.split())
    assert "nhc-serve(1)" in text
    text = shown(made / "man1/nhc-approve.1")
    assert "nhc approve episode" in text
    text = shown(made / "man1/nhc-check-local.1")
    assert text.index("What to judge by") < text.index("How they run")


def test_a_hooks_page_is_its_own_help(made):
    text = shown(made / "man1/nhc-prolog.1")
    assert "Usage: nhc-prolog [-c FILE]" in text
    assert "-D DIR" in text


@pytest.mark.thorough
def test_the_same_commands_give_the_same_pages():
    assert manpages.pages(application, "1", EPOCH) == manpages.pages(application, "1", EPOCH)


@pytest.mark.thorough
@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=40))
def test_no_text_is_a_request(text):
    for line in manpages._line(text).splitlines():
        assert not line.startswith((".", "'"))
        assert line.isascii()


@pytest.mark.thorough
def test_bash_completes(made):
    script = f"""
      source {made}/bash
      COMP_WORDS=(nhc approve ep) COMP_CWORD=2
      _nhc_completion nhc
      printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env={"PATH": path}, check=False)
    assert (done.stdout.split(), done.stderr) == (["episode"], "")


@pytest.mark.thorough
def test_fish_completes(made, tmp_path):
    need("fish", which("fish"), "apt-get install fish")
    environ = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "HOME": str(tmp_path)}
    words = ["fish", "-c", f"source {made}/fish; complete -C 'nhc approve '"]
    done = subprocess.run(words, capture_output=True, text=True, env=environ, check=False)
    assert [line.split("\t")[0] for line in done.stdout.splitlines()] == ["episode", "train"], done.stderr


@pytest.mark.thorough
def test_zsh_reads_its_script_where_it_looks_for_it(made, tmp_path):
    need("zsh", which("zsh"), "apt-get install zsh")
    completions.write({shell: (made / shell).read_text() for shell in completions.PLACES}, tmp_path)
    place = (tmp_path / completions.PLACES["zsh"]).parent
    script = f"fpath=({place} $fpath); autoload -Uz compinit; compinit -u -d {tmp_path}/dump; print ${{_comps[nhc]}}"
    environ = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    done = subprocess.run(["zsh", "-f", "-c", script], capture_output=True, text=True, env=environ, check=False)
    assert (done.stdout, done.stderr) == ("_nhc\n", "")
