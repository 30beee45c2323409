"""The site is built without a warning, its links lead somewhere, and nothing in it comes from another host."""

from __future__ import annotations

import html
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

from nhc.cli.click_app import application
from nhc.core.check import find_all
from nhc_docs import reference, staging
from nhc_release.manpages import commands
from tests.support.run import ROOT


class Page(HTMLParser):
    """What a page links to, what it loads, and the names within it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.media: set[str] = set()
        self.names: set[str] = {"", "__top"}
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {key: value or "" for key, value in attrs}
        self.names |= {given[key] for key in ("id", "name") if key in given}
        if tag == "input":  # a switch of colours: without one, the theme does not ask the system
            self.media.add(given.get("data-md-color-media", ""))
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag == "link" and given.get("rel") not in ("canonical", "next", "prev"):
            self.loads.append(given.get("href", ""))
        if "src" in given:
            self.loads.append(given["src"])


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> dict[Path, Page]:
    out = tmp_path_factory.mktemp("site")
    env = {"PYTHONPATH": f"{ROOT}:{ROOT}/adapters:{ROOT}/packaging", "PATH": "/usr/bin:/bin"}
    command = [sys.executable, "-m", "nhc_docs", str(out)]
    done = subprocess.run(command, cwd=ROOT, env=env, text=True, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return {path: Page(path) for path in out.rglob("*.html")}


@pytest.mark.slow
def test_every_link_within_the_site_leads_to_a_page_and_a_name_in_it(site):
    wrong = []
    for path, page in site.items():
        if path.name == "404.html":
            continue  # its links are absolute, for a server
        for link in page.links:
            file, name = urldefrag(link)
            if re.match(r"[a-z]+:", file):
                continue
            target = (path.parent / unquote(file)).resolve() if file else path
            target = target / "index.html" if target.is_dir() else target
            if not target.exists() or (target in site and unquote(name) not in site[target].names):
                wrong.append(f"{path.name}: {link}")
    assert wrong == []


@pytest.mark.slow
def test_nothing_is_loaded_from_another_host(site):
    assert {load for page in site.values() for load in page.loads if re.match(r"([a-z]+:)?//", load)} == set()
    assert {path.name for path in site if re.search(r"url\(['\"]?(https?:)?//", path.read_text())} == set()


@pytest.mark.slow
def test_every_page_has_our_style_and_follows_the_systems_colours(site):
    for path, page in site.items():
        if path.name != "404.html":
            assert [load for load in page.loads if load.endswith("assets/nhc.css")], path
            assert "(prefers-color-scheme: dark)" in page.media, path


@pytest.mark.slow
def test_every_document_is_a_page_and_the_menu_has_it(site):
    pages = {str(path).partition("/docs/")[2] for path in site}
    written = {path.stem for path in (ROOT / "docs").glob("*.md")} - {"README"}
    assert {f"{name}.html" for name in written} <= pages
    menu = {str(target) for _heading, entries in staging.chapters(ROOT) for _title, target in entries}
    assert {f"docs/{name}.md" for name in written} <= menu


def reference_page(site, name):
    """The text of a page that is made from the code."""
    return next(path for path in site if path.name == f"{name}.html" and path.parent.name == "reference").read_text()


def test_a_paragraph_for_a_terminal_is_one_line_of_the_page_and_a_list_stays_a_list():
    lines = ["check_x [-a]", "", "Reads what", "is new.", "", "Example: * || check_x", "Example: * || check_x -a", "",
             "Arguments:", "  -a  all", "  -b  none"]  # fmt: skip
    assert reference.unfolded("\n".join(lines)).split("\n") == [*lines[:2], "Reads what is new.", *lines[4:]]


@pytest.mark.slow
def test_the_reference_has_every_check_command_and_settings_file(site):
    def headings(name):
        return [
            html.unescape(found) for found in re.findall(r'<h2 id="[^"]*">(.*?)<a class', reference_page(site, name))
        ]

    assert headings("checks") == [check.name for check in find_all() if not check.distribution]
    assert headings("commands") == [" ".join(one.words) for one in commands(application)]
    assert {"agent.toml", "kubernetes.toml", "remedy.toml", "policy.toml"} <= set(headings("settings"))
    assert {"GpuLost", "Xid79"} <= set(headings("reasons"))


@pytest.mark.slow
def test_the_metrics_of_every_part_are_in_the_reference(site):
    row = r"<td><code>(\w+)</code></td>\s*<td>(?:gauge|counter|histogram)</td>\s*<td>\S"
    assert {
        "nhc_node_verdict", "nhc_problem", "nhc_agent_healthy", "nhc_kubernetes_nodes_marked", "nhc_remedy_episodes",
        "nhc_kubernetes_operations_total", "nhc_agent_config_refused",
    } <= set(re.findall(row, reference_page(site, "metrics")))  # fmt: skip


def test_a_runbook_is_paragraphs_in_which_nothing_is_markdown():
    given = "Xid79: GPU_LOST, fatal\n\nWhat it means\n  The *GPU* is gone: see [a]\n  and <b>.\n\nSources\n  `docs`\n"
    assert reference.runbook(given) == (
        "GPU\\_LOST, fatal\n\n**What it means**\n\nThe \\*GPU\\* is gone: see \\[a\\]\nand \\<b\\>.\n\n"
        "**Sources**\n\n\\`docs\\`"
    )


def test_lists_are_indented_as_python_markdown_wants_them():
    given = "Text\n1. **One.**\n   More:\n\n       code\n   - inner\n     text\n\nEnd\n"
    assert staging.indented(given) == (
        "Text\n\n1. **One.**\n    More:\n\n        code\n\n    - inner\n        text\n\nEnd\n"
    )
