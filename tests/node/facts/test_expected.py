# ruff: noqa: E501 (tables as they are)
"""The table of expected figures: ours, a site's, and which row counts."""

import pytest

from nhc.core.data.reader import read
from nhc.lab.testing.fake_host import FakeHost
from nhc.node.facts import expected
from nhc.node.facts.expected import find, parse

HEAD = "hgx-h100-8\tcollective_all_reduce\tleast\t460\tGB/s\t0\t8589934592\tsource"


def test_our_table_names_a_source_for_each_figure():
    rows = parse(read(expected.SHIPPED), expected.SHIPPED)
    assert len(rows) > 40
    assert all(len(row.source) > 5 for row in rows)
    assert len({(row.kind, row.metric, row.size) for row in rows}) == len(rows)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("a b c", "expected 9 columns"), (HEAD.replace("least", "more"), "bound: expected least or most"),
        (HEAD.replace("460", "x"), "expected: expected a number"), (HEAD.replace("GB/s", "GiB/s"), "unit: expected one of"),
        (HEAD.replace("8589934592", "8G"), "from: expected a size in bytes"), (HEAD.replace("\t0\t", "\t100\t"), "0 to 99 percent"),
        (HEAD.replace("source", ""), "must not be empty"), (HEAD.replace("460", "-1"), "above 0"),
    ],
)  # fmt: skip
def test_a_wrong_line_is_named(line, said):
    with pytest.raises(ValueError, match=said) as error:
        parse(f"# head\n{line}\n", "own.tsv")
    assert str(error.value).startswith("own.tsv:2: ")


def test_the_site_comes_before_us_and_the_exact_type_before_the_board():
    own = parse(HEAD.replace("460", "300").replace("hgx-h100-8", "aws-p5.48xlarge"), "own")
    ours = parse("\n".join([HEAD, HEAD.replace("hgx-h100-8", "aws-p5.48xlarge").replace("460", "400"),
                            "gpu:NVIDIA H100*\tx\tleast\t1\tGB/s\t0\t0\ts", "gpu:NVIDIA H100 80GB HBM3\tx\tleast\t2\tGB/s\t0\t0\ts",
                            "k\ty\tleast\t1\tGB/s\t0\t0\ts", "k\ty\tleast\t9\tGB/s\t0\t1000\ts"]), "ours")  # fmt: skip
    metric, size = "collective_all_reduce", 8 << 30
    kinds = ["aws-p5.48xlarge", "hgx-h100-8"]
    assert find([own, ours], kinds, metric, size).expected == 300
    assert find([ours], kinds, metric, size).expected == 400
    assert find([ours], ["hgx-h100-8"], metric, size).expected == 460
    assert find([ours], kinds, metric, 1 << 30) is None  # the figure is of a larger size
    assert find([ours], [], "x", device="NVIDIA H100 80GB HBM3").expected == 2
    assert find([ours], [], "x", device="NVIDIA H100 PCIe").expected == 1
    assert find([ours], [], "x", device="NVIDIA A100") is None
    assert [find([ours], ["k"], "y", size).expected for size in (10, 1000)] == [1, 9]


def test_thresholds_and_tables():
    row = parse(HEAD.replace("\t0\t", "\t10\t"), "x")[0]
    assert row.threshold == pytest.approx(414)
    assert (row.share(0.75), row._replace(at_least=False).share(0.5)) == (345, 920)
    assert expected.format_row(row) == HEAD.replace("\t0\t", "\t10\t")
    [spread] = parse(f"{HEAD}\t3.1", "x")
    assert spread.spread == pytest.approx(0.031)
    assert expected.format_row(spread) == f"{HEAD}\t3.1"
    with pytest.raises(ValueError, match="spread: expected"):
        parse(f"{HEAD}\twide", "x")
    assert expected.tables(FakeHost())[0] == ()
    assert len(expected.tables(FakeHost({expected.SITE: HEAD}))[0]) == 1
