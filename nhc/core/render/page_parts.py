"""What the console and the report in a file have in common: palette, letters, elements, tables, the map of nodes.

The console serves the parts as they are. A page in one file cannot import: for it they become one script.
"""

from __future__ import annotations

import re
from importlib import resources

PARTS = ("palette.css", "dom.js", "table.js", "map.js")
SCRIPTS = ("dom.js", "table.js", "map.js")
"""In the order in which they build on each other."""


def part(name: str) -> str:
    """The text of a part."""
    return (resources.files("nhc.core.render") / "page" / name).read_text(encoding="utf-8")


def one_script() -> str:
    """The scripts as one that needs no import; what they export is in `page`."""
    text = "".join(part(name) for name in SCRIPTS)
    exported = re.findall(r"^export (?:const|class|(?:async )?function) (\w+)", text, re.MULTILINE)
    body = re.sub(r"^export ", "", re.sub(r"^import .*\n", "", text, flags=re.MULTILINE), flags=re.MULTILINE)
    return f"const page = (() => {{\n{body}return {{ {', '.join(exported)} }};\n}})();\n"
