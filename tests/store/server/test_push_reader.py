"""The server's reader beside the one of `nhc.marks.push`: the same pushes are taken, with the same values."""

import json
import zlib
from random import Random

import pytest

from nhc.core.model import Metric, Outcome, Verdict, printable
from nhc.core.render.json import parse, to_dict
from nhc.marks import push
from nhc.store.nodes import pack, unpack
from nhc.store.server import push_reader
from tests.fuzz.foreign import PUSH, REPORT, RESULT, Reader, encoded, text
from tests.support.intake import OK, XID, report

WELL = {**RESULT, "verdict": "OK", "reason": "", "action": "none", "scope": "node"}
AS_WRITTEN = {**REPORT, "started_at": "2023-11-14T22:13:20.000Z", "results": [RESULT, WELL, WELL]}
UNCHANGED = PUSH["reports"][1]
PUSHES = [
    {**PUSH, "reports": [{"at": 1.5, "seq": 8000, "complete": True, "report": AS_WRITTEN}, UNCHANGED]},
    {**PUSH, "reports": [{"at": 1.5, "complete": True, "suite": "burn", "report": AS_WRITTEN}]},
    {**PUSH, "reports": [UNCHANGED]},
]


def read_by(reader, body):
    """What a reader makes of a push: its values, or the error that it raises."""
    try:
        return reader(body)
    except ValueError as error:
        return type(error), str(error)


def whole(read):
    """A push with the whole of each report: that of a report's text has what was not read of results that are OK."""
    if not isinstance(read, push.Push):
        return read
    reports = []
    for sent in read.reports:
        full = parse(sent.text.decode()) if sent.text else sent.report
        assert full._replace(results=()) == sent.report._replace(results=())
        for seen, written in zip(sent.report.results, full.results):
            if written.verdict is Verdict.OK and sent.text:
                assert seen == OK._replace(check=written.check)
            else:
                assert seen == written
        assert len(full.results) == len(sent.report.results)
        reports.append(sent._replace(report=full, text=b""))
    return read._replace(reports=tuple(reports))


def test_what_agents_write_is_read_in_one_pass(monkeypatch):
    """None of it needs the reader of `nhc.marks.push`."""
    rich = OK._replace(outcome=Outcome(Verdict.OK, "", "all is well", "gpu0", (Metric("t", 41.0, "Cel"),)))
    unknown = OK._replace(outcome=Outcome(Verdict.UNKNOWN, "NoTool", "it is missing"))
    one = push.Pushed(report(results=(rich, XID, unknown)), True, 5.0, "", 7)
    texts = [push.to_text(one), push.to_text(one._replace(suite="burn")), push.to_unchanged_text(one, "d" * 32)]
    head = {"nhc": "push", "schema": 1, "node": "n1", "boot": "b1", "seq": 9}
    body = json.dumps(head).encode()[:-1] + b',"reports":[' + ",".join(texts).encode() + b"]}"
    expected = push.parse(body)

    def refuse(_body):
        raise AssertionError("read a second time")

    monkeypatch.setattr(push, "parse", refuse)
    assert whole(push_reader.read(body)) == expected


@pytest.mark.parametrize("seed", range(20))
def test_both_readers_take_the_same_pushes_with_the_same_values(seed):
    random = Random(seed)
    reader = Reader(tuple(PUSHES), push.parse)
    for _ in range(300):
        body = encoded(text(reader, random))
        assert whole(read_by(push_reader.read, body)) == read_by(push.parse, body), body


@pytest.mark.parametrize(
    ("was", "becomes"),
    [
        ('"elapsed": 0.1', '"elapsed": NaN'),
        ('"elapsed": 0.1', '"elapsed": 1e999'),
        ('"elapsed": 0.1', '"elapsed": -1'),
        ('"value": 1.5', '"value": 100000000000000000000000000'),
        ('"value": 1.5', '"value": Infinity'),
        ('"value": 1.5', '"value": true'),
        ('"strike": 0', '"strike": 0.0'),
        ('"strike": 0', '"strike": 99999999999999999999999'),
        ('"not_run": 0', '"not_run": -1'),
        ('"lost": 0', '"lost": 9007199254740992'),
        ('"schema": 1', '"schema": 2'),
        ('"schema": 1', '"schema": 1, "schema": 1'),
        ('"verdict": "OK"', '"verdict": "FINE"'),
        ('"verdict": "OK"', '"verdict": "CRIT", "verdict": "OK"'),
        ('"action": "none"', '"action": "dance"'),
        ('"message": "m"', '"message": "half \\ud800"'),
        ('"message": "m"', '"message": "a\x01b"'),
        ('"message": "m"', '"message": "a\\u0000b"'),
        ('"labels": {"profile": "gpu"}', '"labels": {"profile": 3}'),
        ('"notes": ["n"]', '"notes": [1, null, "n"]'),
        ('"notes": ["n"]', '"notes": ["n"], "of tomorrow": ' + "[" * 3000 + "]" * 3000),
        ('"notes": ["n"]', '"notes": ["n"], "of tomorrow": {"x": 1}'),
        ('"scope": "node"', '"scope": "planet"'),
        ('"device": {"pci": "0000:3b:00.0"}', '"device": {"pci": 5}'),
        ('"complete": true', '"complete": true, "unchanged": ""'),
        ('"complete": true', '"complete": 1'),
        ('"unchanged": "d"', '"unchanged": "d", "suite": ""'),
        ('"unchanged": "d"', '"unchanged": "d\\n"'),
        ('"unchanged": "d"', '"unchanged": "d", "report": null'),
        ('"boot": "b1"', '"boot": ""'),
        ('"node": "n1"', '"node": ""'),
        ("}", "} }"),
    ],
)
def test_what_is_unusual_is_the_same_to_both(was, becomes):
    for pushed in PUSHES:
        body = json.dumps(pushed).replace(was, becomes).encode("utf-8", "surrogatepass")
        assert whole(read_by(push_reader.read, body)) == read_by(push.parse, body)


def test_bytes_that_are_no_utf_8_are_refused_by_both():
    body = json.dumps(PUSHES[0]).encode().replace(b'"m"', b'"m\xff"')
    assert read_by(push_reader.read, body) == (ValueError, "not UTF-8")


@pytest.mark.parametrize(
    ("message", "as_it_came"),
    [("all is well", True), ('a "quoted" \\ path', True), ("°C", True), ("two\nlines", False), ("\x7f", False)],
)
def test_a_text_is_kept_as_it_came_unless_a_character_of_it_is_not_printable(message, as_it_came):
    plain = to_dict(report(results=(OK,)))
    plain["results"][0]["message"] = message
    text = json.dumps(plain, ensure_ascii=False)
    kept = pack(report(results=()), text.encode())
    found = unpack(kept).results[0].outcome.message
    assert found == message if as_it_came else found == printable(message)
    assert (zlib.decompress(kept) == text.encode()) is as_it_came


def test_a_text_that_is_too_large_is_cut():
    results = [OK._replace(outcome=Outcome(Verdict.OK, "", "m" * 1000))] * 6000
    written = report(results=results)
    kept = unpack(pack(written._replace(results=()), json.dumps(to_dict(written)).encode()))
    assert 0 < len(kept.results) <= 5000
    assert "was cut" in kept.notes[0]
