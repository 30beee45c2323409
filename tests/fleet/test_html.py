"""The HTML report in a real browser: what it shows, and that nothing from a node runs in it."""

from __future__ import annotations

import json
import re
import shutil
import struct
import subprocess
import zlib

import pytest

from nhc.fleet import history
from nhc.fleet.html import write_html
from nhc.fleet.output import picture_of, write_file
from nhc.fleet.result import NodeResult, line
from nhc.fleet.transport import Node
from nhc.model import CheckResult, Report, crit, ok, unknown
from tests.support.require import need

EVIL = "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
SICK = crit("GpuXid79", f"GPU fell off the bus {EVIL}", target="gpu3", evidence=(f"NVRM: Xid 79 {EVIL}",))


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """Twelve nodes in two racks: one CRIT, one UNKNOWN, the rest OK."""
    directory = tmp_path_factory.mktemp("page")
    kept = history.History("")
    number = kept.begin("nhc fleet check", "0.1.0", 1000.0)
    for index in range(12):
        outcome = SICK if index == 7 else unknown("NoTool", "no nvidia-smi") if index == 8 else ok("fine")
        node = Node(f"gpu{index:02}", facts={"rack": f"rack {index // 6}"})
        report = Report(
            node.name, "b", 1000.0, 0.1, (CheckResult("check_gpu_xid", outcome, line="* || check_gpu_xid"),)
        )
        text = line(NodeResult(node, report, 0.2, how="pushed"))
        kept.add(number, node.name, int(report.verdict), 0.2, zlib.compress(text.encode()))
    kept.end(number)
    picture = picture_of(kept, kept.find("last"))
    path = directory / "report.html"
    write_file(str(path), lambda file: write_html(file, picture, kept, number, []))
    kept.close()
    return path


@pytest.fixture(scope="module")
def browser():
    found = next(
        (shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome") if shutil.which(name)), None
    )
    need("chromium", found)

    def run(*words, profile):
        argv = [found, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1000,700",
                f"--user-data-dir={profile}", "--virtual-time-budget=2000", *words]  # fmt: skip
        return subprocess.run(argv, check=True, capture_output=True, text=True, timeout=60).stdout

    return run


@pytest.fixture(scope="module")
def dom(page, browser, tmp_path_factory):
    """The page after its script has run, with the sick node opened by the address's fragment."""
    return browser("--dump-dom", f"{page.as_uri()}#gpu07", profile=tmp_path_factory.mktemp("profile"))


def test_the_heat_map_has_a_cell_for_each_node_in_its_rack(dom):
    assert 'data-ready="yes"' in dom
    rows = re.findall(r'<div class="group" data-group="([^"]*)">(.*?)</div></div>', dom)
    assert [name for name, _row in rows] == ["rack 0", "rack 1"]
    cells = {name: re.findall(r'class="cell (\w+)[^"]*"[^>]*data-node="(\w+)"', row) for name, row in rows}
    assert cells["rack 0"] == [("OK", f"gpu{index:02}") for index in range(6)]
    assert cells["rack 1"][:3] == [("OK", "gpu06"), ("CRIT", "gpu07"), ("UNKNOWN", "gpu08")]
    assert "1 CRIT" in dom
    assert "12 of 12 nodes" in dom


def test_a_node_s_evidence_is_shown_as_text(dom):
    panel = dom[dom.index('id="node"') : dom.index('id="problems"')]
    assert "gpu07" in panel
    assert '<pre class="evidence">NVRM: Xid 79 &lt;/script&gt;' in panel
    assert "suggested: inspect" in panel


def test_nothing_that_a_node_says_runs(dom, page):
    assert "<title>nhc fleet report</title>" in dom
    assert "<img" not in re.sub(r"<script.*?</script>", "", dom, flags=re.DOTALL)  # text from nodes has &lt;img
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text(), re.DOTALL)
    assert data is not None
    assert len(json.loads(data[1])["nodes"]) == 12


@pytest.mark.service
def test_the_screenshot_shows_the_colours_of_the_verdicts(page, browser, tmp_path):
    browser(f"--screenshot={tmp_path / 'page.png'}", page.as_uri(), profile=tmp_path / "profile")
    colours = pixels(tmp_path / "page.png")
    red, green, purple = (209, 50, 45), (46, 139, 87), (138, 95, 191)
    assert colours.get(green, 0) > 9 * 200  # ten cells of 18 by 18 less their corners
    assert colours.get(red, 0) > 150
    assert colours.get(purple, 0) > 150
    assert colours[green] > 2 * max(colours[red], colours[purple])


def test_filters_leave_what_they_say(page, browser, tmp_path):
    """A copy of the page whose script goes on to use the filters as a person would."""
    steps = """
    const pick = (id, value) => { const e = document.getElementById(id); e.value = value;
      e.dispatchEvent(new Event("input")); return document.getElementById("shown").textContent; };
    const box = (v) => { const e = document.querySelector(`#verdicts input[value=${v}]`); e.click();
      return document.getElementById("shown").textContent; };
    document.body.dataset.steps = [pick("group", "rack 1"), pick("group", ""), pick("search", "xid79"),
      pick("search", "gpu03"), pick("search", ""), pick("check", "check_gpu_xid"), box("OK"), box("CRIT")].join("|");
    """
    text = page.read_text()
    copy = tmp_path / "copy.html"
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text)
    copy.write_text(text.replace("</body>", f"<script>{steps}</script></body>"))
    dom = browser("--dump-dom", copy.as_uri(), profile=tmp_path / "profile")
    found = re.search(r'data-steps="([^"]*)"', dom)
    assert found is not None
    assert [step.split()[0] for step in found[1].split("|")] == ["6", "12", "1", "1", "12", "12", "2", "1"]


def pixels(path):
    """How often each colour is in a PNG of 8-bit RGB or RGBA."""
    data = path.read_bytes()
    at, body, width, height, channels = 8, b"", 0, 0, 3
    while at < len(data):
        size, kind = struct.unpack_from(">I4s", data, at)
        chunk = data[at + 8 : at + 8 + size]
        if kind == b"IHDR":
            width, height, depth, colour = struct.unpack_from(">IIBB", chunk)
            assert depth == 8
            channels = {2: 3, 6: 4}[colour]
        elif kind == b"IDAT":
            body += chunk
        at += size + 12
    raw, stride = zlib.decompress(body), width * channels
    before, counts = bytearray(stride), {}
    for row in range(height):
        begin = row * (stride + 1)
        line_, how = bytearray(raw[begin + 1 : begin + 1 + stride]), raw[begin]
        for i in range(stride if how else 0):
            left = line_[i - channels] if i >= channels else 0
            up, corner = before[i], before[i - channels] if i >= channels else 0
            add = (0, left, up, (left + up) // 2, paeth(left, up, corner))[how]
            line_[i] = (line_[i] + add) & 255
        for i in range(0, stride, channels):
            colour = (line_[i], line_[i + 1], line_[i + 2])
            counts[colour] = counts.get(colour, 0) + 1
        before = line_
    return counts


def paeth(left, up, corner):
    guess = left + up - corner
    distance = [(abs(guess - left), 0, left), (abs(guess - up), 1, up), (abs(guess - corner), 2, corner)]
    return min(distance)[2]
