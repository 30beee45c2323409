"""Our verdicts against those that LBNL NHC 1.4.3 gave on the same machine (tests/data/lbnl-1.4.3.tsv).

A row must come out the same, verdict and message, or be one of the differences that the documents name.
"""

import re
from pathlib import Path
from typing import Callable, List, NamedTuple, Tuple

import pytest

from nhc.core.check import BadArguments, find
from nhc.core.host import Host
from nhc.core.language import shell_words
from nhc.core.language.lines import parse_text
from nhc.core.matching.nodeset import mcheck
from nhc.core.model import Outcome, Verdict, unknown
from nhc.node.run.engine import call
from tests.lbnl import node

TABLE = Path(__file__).parents[1] / "data" / "lbnl-1.4.3.tsv"


class Row(NamedTuple):
    family: str
    asked: str
    more: str
    status: str
    said: str


def rows(*families: str) -> List[Row]:
    lines = TABLE.read_text().split("\n")[1:-1]
    found = [Row(*line.split("\t")) for line in lines]
    return [row for row in found if row.family in families]


def judge(host: Host, line: str) -> List[Outcome]:
    """What our check says of a line."""
    split = shell_words.split(line)
    assert split, line
    check = find(split[0].text)
    assert check is not None, line
    try:
        return call(check, check.parse([word.text for word in split[1:]]), host)
    except BadArguments as error:
        return [unknown("BadArguments", str(error))]


def same(row: Row, found: List[Outcome]) -> bool:
    """Verdict and message; of several failures LBNL NHC tells one."""
    if row.status == "0":
        return all(outcome.verdict <= Verdict.OK for outcome in found)
    name = row.asked.split()[0]
    told = {f"{name}:  {outcome.message}" for outcome in found if outcome.verdict is Verdict.CRIT}
    return row.said in told or (
        name.startswith("check_fs_mount") and row.said.replace("check_fs_mount", name, 1) in told
    )


def _not_mounted(row: Row, found: Outcome) -> bool:
    return row.status == "0" and found.reason == "FilesystemNotMounted" and not row.asked.startswith("check_fs_mount")


def _command_missing(row: Row, found: Outcome) -> bool:
    return found.reason == "CommandMissing" and row.said.endswith(("127 returned by", "."))


def _made_directory(row: Row, found: Outcome) -> bool:
    return "(auto-fixed)" in row.said and found.reason == "FilesystemNotMounted"


def _handle(row: Row, found: Outcome) -> bool:
    return found.reason == "DmiNoSuchHandle" and row.status == "1"


def _dmi_tabs(row: Row, found: Outcome) -> bool:
    """Raw lines with or without the tabs that indent them."""
    return row.asked.startswith("check_dmi_raw") and found.verdict is Verdict.OK


def _last_empty_line(row: Row, found: Outcome) -> bool:
    """check_cmd_output matches one more empty line than there is, and counts no blank ones."""
    return row.asked.startswith("check_cmd_output") and re.sub(r"line \d+ of", "", row.said) == re.sub(
        r"line \d+ of", "", f"check_cmd_output:  {found.message}"
    )


def _limits_crossed(row: Row, found: Outcome) -> bool:
    """A least value above the greatest: no node can pass, so the configuration is wrong and not the node."""
    return found.reason == "BadArguments" and "min is above max" in found.message


DIFFERENCES: Tuple[Callable[[Row, Outcome], bool], ...] = (
    _not_mounted, _command_missing, _made_directory, _handle, _dmi_tabs, _last_empty_line, _limits_crossed,
)  # fmt: skip
"""Each is a row of docs/lbnl-compatibility.md."""


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    directory = tmp_path_factory.mktemp("lbnl")
    node.make_files(directory)
    return str(directory)


@pytest.mark.thorough
@pytest.mark.parametrize("family", ["hw", "fs", "ps", "dmi", "file", "cmd"])
def test_checks_judge_as_lbnl_nhc_does(family, files):
    host = node.host_for(family)
    bad = []
    table = rows(family)
    for row in table:
        found = judge(host, row.asked.replace("@D@", files))
        found = [outcome._replace(message=outcome.message.replace(files, "@D@")) for outcome in found]
        worst = max(found, key=lambda outcome: outcome.verdict)
        if not same(row, found) and not any(known(row, worst) for known in DIFFERENCES):
            bad.append(
                f"{row.asked}\n  LBNL NHC {row.status} {row.said}\n  nhc      {worst.verdict.name} {worst.message}"
            )
    assert len(table) > 80
    assert not bad, f"{len(bad)} of {len(table)} differ:\n" + "\n".join(bad)


def _no_leading_zero(row: Row) -> bool:
    """`{node[1-10]}` matches node5 as well as node05."""
    return any(row.asked == name and group in row.more for name, group in (("node5", "node[1-10]"), ("n0", "n[0-99]")))


def test_match_strings_match_as_lbnl_nhcs_do():
    table = rows("match")
    bad = [row for row in table if mcheck(row.asked, row.more) != (row.status == "0") and not _no_leading_zero(row)]
    assert len(table) > 800
    assert not bad


@pytest.mark.parametrize("row", rows("read"), ids=lambda row: row.asked[:40])
def test_files_are_read_as_lbnl_nhc_reads_them(row):
    text = row.asked.replace("\\\\", "\0").replace("\\n", "\n").replace("\\t", "\t").replace("\0", "\\")
    lines = parse_text(text, "nhc.conf")
    read = [line.check for line in lines if line.check and mcheck(node.HOSTNAME, line.target)]
    assert read == [check for check in row.said.replace("\\t", "\t").split("\\n") if check]
