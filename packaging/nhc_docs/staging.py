"""What mkdocs is given: the documents and the files that they link to, laid out as in the checkout, so that links hold.

The documents are CommonMark. Python-Markdown, which mkdocs uses, wants what belongs to an item of a list indented by
four columns, and a blank line before a list: both are put in here.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Dict, List, Mapping, Set, Tuple

from markdown_it import MarkdownIt

FENCE = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[([^\]]*)\]\(([^)\s]+)\)")
ITEM = re.compile(r"( *)([-*+]|\d+[.)])( {1,4})(?=\S)")
INDEX = "docs/README.md"
REFERENCE = "docs/reference"
STYLE = "assets/nhc.css"
PALETTE = [
    {"media": "(prefers-color-scheme)", "toggle": {"icon": "material/brightness-auto", "name": "Light colours"}},
    {"media": "(prefers-color-scheme: light)", "scheme": "default",
     "toggle": {"icon": "material/weather-sunny", "name": "Dark colours"}},
    {"media": "(prefers-color-scheme: dark)", "scheme": "slate",
     "toggle": {"icon": "material/weather-night", "name": "Colours as the system has them"}},
]  # fmt: skip
"""The theme follows the system's scheme only where it has a switch as well; each name says what a click brings."""


def stage(root: Path, source: Path, generated: Mapping[str, str]) -> None:
    """Copy README.md, and whatever can be reached from it by links; add the generated pages (name to text)."""
    for name, text in generated.items():
        page = source / REFERENCE / name
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(text)
    style = source / STYLE
    style.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(Path(__file__).with_name("site.css"), style)
    waiting, done = ["README.md", INDEX], set()
    while waiting:
        name = waiting.pop()
        if name in done:
            continue
        done.add(name)
        target = source / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if not name.endswith(".md"):
            shutil.copyfile(root / name, target)
            continue
        text = (root / name).read_text()
        target.write_text(indented(text))
        waiting += sorted(linked(root, name, text) - done)


def linked(root: Path, name: str, text: str) -> Set[str]:
    """The files of the checkout that a page links to, from the checkout's root."""
    found = set()
    for _title, link in LINK.findall(FENCE.sub("", text)):
        file = link.partition("#")[0]
        if file and not re.match(r"[a-z]+:", file):
            path = (root / name).parent.joinpath(file).resolve()
            if path.is_file():
                found.add(str(path.relative_to(root)))
    return found


def indented(text: str) -> str:
    """The page as Python-Markdown reads it the way CommonMark does."""
    lines = text.split("\n")
    inside: List[List[int]] = [[] for _ in lines]
    lists: Set[int] = set()
    for token in MarkdownIt("commonmark").parse(text):
        if token.map and token.type in ("bullet_list_open", "ordered_list_open"):
            lists.add(token.map[0])
        elif token.map and token.type == "list_item_open":
            first, end = token.map
            marker = ITEM.match(lines[first])
            for number in range(first + 1, end):
                inside[number].append(len(marker[2] + marker[3]) if marker else 2)
    out: List[str] = []
    for number, line in enumerate(lines):
        if number in lists and out and out[-1].strip():
            out.append("")
        widths = inside[number]
        # A line that is indented by less continues a paragraph, and needs no indentation there.
        belongs = bool(widths) and not line[: sum(widths)].strip() and bool(line.strip())
        out.append(" " * 4 * len(widths) + line[sum(widths) :] if belongs else line)
    return "\n".join(out)


def chapters(root: Path) -> List[Tuple[str, List[Tuple[str, str]]]]:
    """The index's headings, each with its pages: (title, path from the checkout's root)."""
    found: List[Tuple[str, List[Tuple[str, str]]]] = []
    for line in (root / INDEX).read_text().splitlines():
        if line.startswith("## "):
            found.append((line[3:], []))
        for title, link in LINK.findall(line):
            path = (root / INDEX).parent.joinpath(link).resolve()
            if link.endswith(".md") and found:
                found[-1][1].append((title[:1].upper() + title[1:], str(path.relative_to(root))))
    return found


def config(root: Path, source: Path, out: Path, generated: Mapping[str, str]) -> str:
    """The text of mkdocs.yml."""
    import json

    nav: List[Dict[str, object]] = [{"Overview": "README.md"}, {"All documents": INDEX}]
    nav += [{name: [{title: path} for title, path in pages if path != "README.md"]} for name, pages in chapters(root)]
    titles = [{text.split("\n", 1)[0].lstrip("# "): f"{REFERENCE}/{name}"} for name, text in generated.items()]
    nav.append({"Reference": titles})
    settings = {
        "site_name": "nhc", "docs_dir": str(source), "site_dir": str(out), "use_directory_urls": False,
        "site_description": "One health check engine for the nodes of GPU, AI and HPC clusters.",
        "theme": {"name": "material", "font": False, "palette": PALETTE,
                  "features": ["navigation.indexes", "navigation.top", "toc.follow"]},
        "extra_css": [STYLE],
        "plugins": ["search"],  # not "offline": it names a script on another host
        "extra": {"generator": False},
        "validation": {"nav": {"omitted_files": "ignore", "not_found": "warn"},
                       "links": {"not_found": "warn", "anchors": "warn", "absolute_links": "warn",
                                 "unrecognized_links": "warn"}},
        "nav": nav,
    }  # fmt: skip
    text = "".join(f"{key}: {json.dumps(value)}\n" for key, value in settings.items())
    # Headings are named in links as GitHub names them.
    return text + (
        "markdown_extensions:\n  - tables\n  - sane_lists\n  - pymdownx.superfences\n  - toc:\n      permalink: true\n"
        "      slugify: !!python/object/apply:pymdownx.slugs.slugify {kwds: {case: lower}}\n"
    )
