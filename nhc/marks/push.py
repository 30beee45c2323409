"""What an agent pushes to a server: one or several of its reports in one JSON object, packed with gzip.

    {"nhc": "push", "schema": 1, "node": "n1", "lost": 0, "boot": "b1", "seq": 9000,
     "reports": [{"at": 1.5, "seq": 8000, "complete": true, "report": {...}}]}

A report that differs from its node's newest only in figures is sent as the parts that may differ:

    {"at": 61.5, "seq": 68000, "complete": true, "unchanged": DIGEST, "started": 61.0, "elapsed": 0.5, "results": [...]}

DIGEST is what the server answered to the whole report, and `results` are the problems alone, left out if there are
none. Its times have milliseconds. A server whose store has a different digest of the node answers `"whole": true` and
stores nothing; the agent then sends the whole report.

`at` is when the node was so (Unix time); its report begins with its oldest result. `seq` counts the milliseconds of
this boot (CLOCK_BOOTTIME) until the report was made, and until the push was sent: setting the clock does not change the
order of reports, and the difference is a report's age. A report of deep checks has `suite`: it gives their results, not
the node's present state. `lost`, if present, counts reports that the agent could not store while the server was not
reachable. The reader trusts nothing: the bytes are bounded before and after they are unpacked.
"""

from __future__ import annotations

import json
import zlib

from nhc.core.json_values import list_in, number_of, whole_of
from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.core.model import Report
from nhc.core.render.json import from_dict, from_result, loads, to_dict, to_result
from nhc.core.system.bounded_read import TooLarge

if TYPE_CHECKING:
    from typing import Mapping, Sequence, Tuple

PATH = "/v1/reports"
SCHEMA = 1
MOST = 100
"""Reports in one push."""
SUITE_LIMIT = 100
"""Characters of a suite's name."""
DIGEST_LIMIT = 100
"""Characters of a digest."""
VALUES = 400_000
"""Values in one push. A hundred reports of 150 results have fewer; each takes 50 to 240 bytes once it is read, however
short it is when packed."""


class Pushed(NamedTuple):
    """One report, when the node was so, and whether all of its checks have been judged in it."""

    report: Report
    complete: bool
    at: float
    suite: str = ""
    """Its suite of deep checks, "" for an ordinary report."""
    seq: int = 0
    """Milliseconds of its boot when it was made, no two the same; 0 if it is not known."""
    unchanged: str = ""
    """The digest of its node's newest report, if this one says the same: it then has the problems alone."""
    text: bytes = b""
    """The JSON of the report if `report` has only the checks' names of results that are OK; "" if it has all of
    them."""


class Push(NamedTuple):
    """What one node pushes at once, the oldest report first."""

    node: str
    reports: Tuple[Pushed, ...]
    lost: int = 0
    boot: str = ""
    """The boot in which it was sent, "" if it is not known."""
    seq: int = 0
    """Milliseconds of that boot when it was sent."""


def to_text(pushed: Pushed) -> str:
    """One report as a spool stores it: an entry of a push's list, on one line."""
    more = {**({"suite": pushed.suite} if pushed.suite else {}), **({"seq": pushed.seq} if pushed.seq else {})}
    return json.dumps(
        {"at": pushed.at, "complete": pushed.complete, **more, "report": to_dict(pushed.report)}, separators=(",", ":")
    )


def to_unchanged_text(pushed: Pushed, digest: str) -> str:
    """A report that says the same as the server's under `digest`: its times and its problems."""
    report = pushed.report
    results = [to_result(result) for result in report.results if result.is_problem]
    return json.dumps(
        {
            "at": round(pushed.at, 3), "complete": pushed.complete, "seq": pushed.seq, "unchanged": digest,
            "started": round(report.started, 3), "elapsed": round(report.elapsed, 3),
            **({"results": results} if results else {}),
        },
        separators=(",", ":"),
    )  # fmt: skip


def pack(node: str, texts: Sequence[str], lost: int = 0, boot: str = "", seq: int = 0) -> bytes:
    """A push of reports as `to_text` made them."""
    sent = {**({"lost": lost} if lost else {}), **({"boot": boot, "seq": seq} if boot and seq else {})}
    head = json.dumps({"nhc": "push", "schema": SCHEMA, "node": node, **sent}, separators=(",", ":"))
    body = f'{head[:-1]},"reports":[{",".join(texts)}]}}'.encode()
    packer = zlib.compressobj(6, zlib.DEFLATED, 31)  # 31: as gzip
    return packer.compress(body) + packer.flush()


def bounded(body: bytes) -> None:
    """Raises TooLarge if a JSON document has too many values; values in its texts count too."""
    if len(body) > VALUES and len(body) - len(body.translate(None, b",[{")) > VALUES:  # a fifth of the time of `count`
        raise TooLarge(f"more than {VALUES} values")


def parse(body: bytes) -> Push:
    """The push in a JSON document. Raises ValueError saying what is wrong with it."""
    bounded(body)
    try:
        value = loads(body.decode())
    except UnicodeDecodeError:
        raise ValueError("not UTF-8") from None
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from None
    if not isinstance(value, dict) or value.get("nhc") != "push":
        raise ValueError('no push: expected an object with "nhc": "push"')
    if value.get("schema") != SCHEMA:
        raise ValueError(f"a push of schema {str(value.get('schema'))[:20]}: this nhc reads schema {SCHEMA}")
    node, listed, lost = value.get("node"), value.get("reports"), value.get("lost", 0)
    if not isinstance(node, str) or not node:
        raise ValueError("node is no name")
    if not isinstance(listed, list) or not 0 < len(listed) <= MOST:
        raise ValueError(f"reports is no list of 1 to {MOST}")
    boot = value.get("boot", "")
    if not isinstance(boot, str):
        raise ValueError("boot is no name")
    reports = tuple(_pushed(entry, node, boot) for entry in listed)
    return Push(node, reports, _count(lost, "lost"), boot, _count(value.get("seq", 0), "seq"))


def _count(value: object, name: str) -> int:
    whole = whole_of(value)
    if whole is None or not 0 <= whole < 1 << 53:
        raise ValueError(f"{name} is no count")
    return whole


def _pushed(entry: object, node: str, boot: str) -> Pushed:
    if not isinstance(entry, dict) or not isinstance(entry.get("complete"), bool):
        raise ValueError("complete is neither true nor false")
    at, suite = _time(entry, "at"), entry.get("suite", "")
    if not isinstance(suite, str) or not is_suite(suite):
        raise ValueError("suite is no name")
    seq = _count(entry.get("seq", 0), "seq")
    if "unchanged" in entry:
        return Pushed(_unchanged(entry, node, boot), entry["complete"], at, "", seq, _digest(entry, boot, seq))
    return Pushed(from_dict(entry.get("report")), entry["complete"], at, suite, seq)


def is_suite(name: str) -> bool:
    """Whether a text can be the name of a suite; "" is the one of ordinary reports."""
    return len(name) <= SUITE_LIMIT and name.isprintable()


def is_digest(text: str) -> bool:
    """Whether a text can be a digest."""
    return 0 < len(text) <= DIGEST_LIMIT and text.isprintable()


def _digest(entry: Mapping[str, object], boot: str, seq: int) -> str:
    digest = entry["unchanged"]
    if not isinstance(digest, str) or not is_digest(digest):
        raise ValueError("unchanged is no digest")
    if not boot or not seq or "suite" in entry or "report" in entry:
        raise ValueError("a report that is unchanged has a boot and a number of its own, no suite and no report")
    return digest


def _unchanged(entry: Mapping[str, object], node: str, boot: str) -> Report:
    started, elapsed = _time(entry, "started"), _time(entry, "elapsed")
    return Report(node, boot, started, elapsed, tuple(map(from_result, list_in(entry, "results"))))


def _time(entry: Mapping[str, object], name: str) -> float:
    time = number_of(entry.get(name))
    if time is None or not 0 <= time < 1e12:
        raise ValueError(f"{name} is no time")
    return time
