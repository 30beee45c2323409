"""Writes the catalogue's Python modules from the tables beside it: `python -m nhc.data.generate`.

The tables are what people read and edit. What a node loads is their useful columns as strings in a
module: quick with and without bytecode, and out of a zip file as well. A test holds the two together.
"""

from __future__ import annotations

import os
import sys
from typing import Dict, Iterable, List, Mapping, Sequence

HERE = os.path.dirname(os.path.abspath(__file__))


def read(name: str) -> List[Dict[str, str]]:
    """The rows of NAME.tsv: comments skipped, the first line names the columns, "-" is empty."""
    with open(os.path.join(HERE, f"{name}.tsv"), encoding="utf-8") as file:
        lines = [line.rstrip("\n").split("\t") for line in file if line.strip() and not line.startswith("#")]
    head = lines[0]
    for line in lines[1:]:
        if len(line) != len(head):
            raise ValueError(f"{name}.tsv: {line[:3]}: {len(line)} columns, expected {len(head)}")
    return [{key: "" if value == "-" else value for key, value in zip(head, line)} for line in lines[1:]]


def kernel() -> Dict[str, str]:
    """KERNEL: kind, code, severity, action, gates, texts, pattern, message, recovers. REPEATS: as in its table."""
    rows = [
        [row["kind"], row["code"], row["severity"], row["action"], row["gate"] or row["text"], row["text"],
         row["pattern"], row["message"], row["recovers"]]
        for row in read("kernel")
    ]  # fmt: skip
    repeats = [
        [row["kind"], row["code"], row["times"], str(_seconds(row["window"])), row["burst"], row["place"],
         row["others"], row["severity"], row["action"], row["window"]]
        for row in read("repeats")
    ]  # fmt: skip
    return {"KERNEL": lines(rows), "REPEATS": lines(repeats)}


def nvidia() -> Dict[str, str]:
    """XID: code, name, severity, action. SXID: the same and scope. The others: their tables' useful columns."""
    nvlink5 = [
        [row["xid"], row["unit"], *_bits(row["bits_v1"]), *_bits(row["bits_v2"]), str(int(row["status"], 16)),
         row["severity"], row["action"], row["investigate"]]
        for row in read("nvlink5")
    ]  # fmt: skip
    return {
        "XID": lines([r["code"], r["name"], r["severity"], r["action"]] for r in read("xid")),
        "SXID": lines([r["code"], r["name"], r["severity"], r["action"], r["scope"]] for r in read("sxid")),
        "NVLINK5": lines(nvlink5),
        "XID74": lines([r["register"], r["bits"], r["severity"], r["action"], r["meaning"]] for r in read("xid74")),
        "CONTEXT": lines(
            [r["code"], r["generation"], r["mig"], r["rows"], r["severity"], r["action"], r["decision"]]
            for r in read("xid_context")
        ),
    }


def lines(rows: Iterable[Sequence[str]]) -> str:
    """Rows as text, each between line breaks, so that a row is found by its code."""
    return "\n" + "".join("\t".join(row) + "\n" for row in rows)


def _bits(text: str) -> List[str]:
    """A pattern of bits as mask and value: a register fits where register & mask == value."""
    if len(text) != 32 or set(text) - set("01-"):
        raise ValueError(f"{text!r}: expected 32 of 0, 1 and -")
    return [str(int(text.replace("0", "1").replace("-", "0"), 2)), str(int(text.replace("-", "0"), 2))]


def _seconds(text: str) -> int:
    return int(text[:-1]) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[text[-1]]


def render(tables: Mapping[str, str], sources: str) -> str:
    """A module that assigns each table as one string: the quickest thing to load, with bytecode or without."""
    out = [f'"""Written by nhc.data.generate from {sources}: do not edit."""\n\n# ruff: noqa\n# fmt: off\n']
    for name, table in tables.items():
        if '"""' in table:
            raise ValueError(f"{name}: three quotes in a row cannot be written")
        out.append(f'{name} = r"""{table}"""\n')
    return "".join(out)


MODULES = {
    "kernel_table": (kernel, "kernel.tsv and repeats.tsv"),
    "nvidia_table": (nvidia, "xid.tsv, xid_context.tsv, xid74.tsv, sxid.tsv and nvlink5.tsv"),
}


def main() -> int:
    for name, (gather, sources) in MODULES.items():
        with open(os.path.join(HERE, f"{name}.py"), "w", encoding="utf-8") as file:
            file.write(render(gather(), sources))
    return 0


if __name__ == "__main__":
    sys.exit(main())
