"""The HTML report in a real browser: what it shows, and that nothing from a node runs in it."""

from __future__ import annotations

import html
import json
import re
import shutil
import struct
import subprocess
import zlib
from importlib import resources

import pytest

from nhc.core.model import Action, CheckResult, Report, crit, ok, unknown
from nhc.core.render.page_parts import one_script, part
from nhc.core.system.written_files import replace_output
from nhc.fleet import history
from nhc.fleet.fold import show_by_check
from nhc.fleet.html import write_html
from nhc.fleet.node_result import NodeResult, line
from nhc.fleet.summary import picture_of
from nhc.fleet.transport import Node
from tests.support import browser as browsers
from tests.support.require import need

EVIL = "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
SICK = crit(
    "GpuXid79", f"GPU fell off the bus {EVIL}", target="gpu3", action=Action.REBOOT, evidence=(f"NVRM: Xid 79 {EVIL}",)
)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """Twelve nodes in two racks: one CRIT, one UNKNOWN, the rest OK."""
    directory = tmp_path_factory.mktemp("page")
    kept = history.SweepHistory("")
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
    replace_output(str(path), lambda file: write_html(file, picture, kept, number, []))
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
    rows = re.findall(r'<div class="group" data-group="([^"]*)"[^>]*>(.*?)</div></div></div>', dom)
    assert [name for name, _row in rows] == ["rack 0", "rack 1"]
    cells = {name: re.findall(r'class="cell (\w+)[^"]*"[^>]*data-node="(\w+)"', row) for name, row in rows}
    assert cells["rack 0"] == [("OK", f"gpu{index:02}") for index in range(6)]
    assert cells["rack 1"][:3] == [("OK", "gpu06"), ("CRIT", "gpu07"), ("UNKNOWN", "gpu08")]
    assert "1 CRIT" in dom
    assert "12 of 12 nodes" in dom


def test_a_node_s_evidence_is_shown_as_text(dom):
    panel = dom[dom.index('id="node"') : dom.index('id="outliers"')]
    assert "gpu07" in panel
    assert '<pre class="evidence">NVRM: Xid 79 &lt;/script&gt;' in panel
    assert "suggested: reboot" in panel


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
    red, green, purple = (179, 20, 29), (37, 105, 106), (116, 67, 176)  # nhc/core/render/page/palette.css
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


# Contrast, keyboard, long lists: what the page was found wanting in.


def luminance(colour):
    """WCAG 2.2's relative luminance of #rrggbb or #rgb."""
    digits = colour.lstrip("#")
    digits = "".join(two * 2 for two in digits) if len(digits) == 3 else digits
    parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    red, green, blue = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("verdict", ["OK", "WARN", "UNKNOWN", "CRIT", "SKIP"])
def test_what_is_written_on_a_verdicts_colour_can_be_read(page, verdict):
    """WCAG AA asks for 4.5 to 1. The colours are the same in both schemes."""
    text = page.read_text()
    rule = re.search(rf"\.{verdict} {{ background: var\(--(\w+)\);[^}}]*[; ]color: (#\w+); }}", text)
    assert rule is not None
    background = re.search(rf"--{rule[1]}: (#\w+);", text)
    assert background is not None
    light, dark = sorted((luminance(background[1]), luminance(rule[2])), reverse=True)
    assert (light + 0.05) / (dark + 0.05) >= 4.5


def stepped(page, browser, tmp_path, steps):
    """What a copy of the page, whose script goes on with these steps, leaves in `out`."""
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page.read_text())
    copy = tmp_path / "copy.html"
    script = f"const $ = (id) => document.getElementById(id); const out = []; {steps}; "
    script += "$('when').dataset.out = JSON.stringify(out);"
    copy.write_text(text.replace("</body>", f"<script>{script}</script></body>"))
    dom = browser("--dump-dom", copy.as_uri(), profile=tmp_path / "profile")
    found = re.search(r'data-out="([^"]*)"', dom)
    assert found is not None, dom
    return json.loads(html.unescape(found[1]))


def test_the_map_is_one_tab_stop_and_arrow_keys_move_in_it(page, browser, tmp_path):
    key = "const key = (name) => $('map').dispatchEvent(new KeyboardEvent('keydown', {key: name, bubbles: true}))"
    out = stepped(page, browser, tmp_path, f"""{key};
        out.push(document.querySelectorAll('#map, #map *').length);
        out.push([...document.querySelectorAll('#map, #map *')].filter((e) => e.tabIndex >= 0).length);
        for (const name of ['ArrowRight', 'ArrowRight', 'ArrowRight', 'ArrowLeft', 'End', 'Home']) {{
          key(name); out.push(document.querySelector('.cell.at').dataset.node); }}
        out.push($('node').hidden); key('Enter'); out.push($('node').hidden, $('node').querySelector('h2').textContent);
        out.push($($('map').getAttribute('aria-activedescendant')).getAttribute('aria-label'))""")  # fmt: skip
    assert out[0] > 12
    assert out[1:] == [1, "gpu00", "gpu01", "gpu02", "gpu01", "gpu11", "gpu00", True, False, "gpu00 OK", "gpu00: OK"]


@pytest.fixture(scope="module")
def crowded(tmp_path_factory):
    """3,000 nodes: of thirty checks each fails on a few, with figures of its own on every node."""
    directory = tmp_path_factory.mktemp("crowded")
    kept = history.SweepHistory("")
    number = kept.begin("nhc fleet check", "0.1.0", 1000.0, 3005)
    for index in range(3000):
        bad = crit("Bad", f"/data has {index % 7}% free on n{index:04}", target="/data", action=Action.REPLACE)
        results = [CheckResult("check_well", ok("fine"))]
        if index < 300:
            results.append(CheckResult(f"check_{index % 30:02}", bad))
        report = Report(f"n{index:04}", "b", 1000.0, 0.1, tuple(results), ('a note, "results":[',), version="0.1.0")
        text = line(NodeResult(Node(report.host), report, 0.2, how="pushed", hostname=report.host))
        kept.add(number, report.host, int(report.verdict), 0.2, zlib.compress(text.encode()))
    kept.end(number, interrupted=True)
    picture = picture_of(kept, kept.find("last"))
    path = directory / "report.html"
    replace_output(str(path), lambda file: write_html(file, picture, kept, number, []))
    told = show_by_check(picture.folder.by_check())
    kept.close()
    return path, told


def test_rows_beyond_the_first_are_announced_and_every_row_folds_as_in_the_terminal(crowded, browser, tmp_path):
    path, told = crowded
    out = stepped(path, browser, tmp_path, """
        const rows = () => [...$('problems').tBodies[0].rows];
        out.push(rows().length, $('more').textContent, $('more').hidden); $('more').click();
        out.push(rows().length, $('more').hidden);
        const cells = [...rows()[0].cells].map((cell) => cell.textContent); out.push(cells.slice(0, 5));
        const names = rows()[0].cells[5]; const set = () => names.querySelector('.set').textContent;
        out.push(set()); names.querySelector('button').click(); out.push(set().split(',').length);
        out.push($('cut').textContent, document.querySelectorAll('.cell').length)""")  # fmt: skip
    assert out[:5] == [25, "Show all 30 problems", False, 30, True]
    assert out[5][:4] == ["CRIT", "10 nodes", "Bad", "check_00 /data"]
    assert out[5][4] == "/data has 0-6% free on NODE suggested: replace"
    folded = "n[0000,0030,0060,0090,0120,0150,0180,0210,0240,0270]"
    assert out[6] == folded
    assert f"CRIT check_00 /data: 10 nodes {folded}: Bad: /data has 0-6% free on NODE (suggested: replace)" in told
    assert out[7] == 10
    assert out[8] == "Interrupted: 5 nodes not judged"
    assert out[9] == 3000


@pytest.mark.thorough
def test_a_node_that_is_well_is_on_a_large_page_as_on_a_small_one(crowded):
    """Its report is not read: what is shown stands before and behind the results."""
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', crowded[0].read_text(), re.DOTALL)
    assert data is not None
    value = json.loads(data[1])
    well = value["common"] | value["nodes"][2999]
    assert (well["name"], well["verdict"], well["fine"], well["version"]) == ("n2999", "OK", 1, "0.1.0")
    assert well["notes"] == ['a note, "results":[']
    sick = value["common"] | value["nodes"][1]
    assert value["problems"][sick["results"][0][0]]["check"] == "check_01"


def test_no_word_is_broken_inside(crowded, browser, tmp_path):
    """Reason, check and node names keep whole: a cell is at least as wide as its longest word."""
    out = stepped(crowded[0], browser, tmp_path, """
        for (const cell of $('problems').tBodies[0].rows[0].cells) {
          const range = document.createRange(); range.selectNodeContents(cell);
          const style = getComputedStyle(cell); out.push(style.overflowWrap, style.wordBreak); }""")  # fmt: skip
    assert "anywhere" not in out
    assert "break-all" not in out


# What it has in common with the console.


@pytest.fixture(scope="module")
def driven():
    made = browsers.start()
    yield made
    made.quit()


@pytest.mark.browser
@pytest.mark.thorough
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_accessible_in_both_colour_schemes(page, driven, scheme):
    axe = (resources.files("axe_core_python") / "axe.min.js").read_text(encoding="utf-8")
    browsers.scheme(driven, scheme)
    driven.get(f"{page.as_uri()}#gpu07")
    browsers.until_script(driven, "return document.body.dataset.ready", "the page")
    driven.execute_script(f"{axe}; window.axe = axe;")
    found = driven.execute_async_script(
        "const done = arguments[arguments.length - 1];"
        "axe.run(document, {resultTypes: ['violations']}).then((r) => done(r.violations.map((v) =>"
        "[v.impact, v.id, v.nodes.map((n) => n.html + ' ' + n.failureSummary).slice(0, 3)])))"
    )
    assert [one for one in found if one[0] in ("serious", "critical")] == []


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """8,000 nodes in 250 racks, each 40th CRIT for a reason of its own: more of all than the page lists."""
    directory = tmp_path_factory.mktemp("large")
    kept = history.SweepHistory("")
    number = kept.begin("nhc fleet check", "0.1.0", 1000.0, 8000)
    for index in range(8000):
        bad = index % 32 == 7
        outcome = crit(f"Bad{index}", "it is broken") if bad else ok("fine")
        node = Node(f"n{index:04}", facts={"rack": f"r{index // 32:03}"})
        report = Report(node.name, "b", 1000.0, 0.1, (CheckResult("check_one", outcome),), version="0.1.0")
        text = line(NodeResult(node, report, 0.2, how="pushed", hostname=node.name))
        kept.add(number, node.name, int(report.verdict), 0.2, zlib.compress(text.encode()))
    kept.end(number)
    picture = picture_of(kept, kept.find("last"))
    path = directory / "report.html"
    replace_output(str(path), lambda file: write_html(file, picture, kept, number, []))
    kept.close()
    return path


@pytest.mark.browser
@pytest.mark.thorough
def test_a_large_fleet_is_one_picture_within_the_consoles_bounds(large, driven):
    from selenium.webdriver.common.keys import Keys

    driven.get(large.as_uri())
    browsers.until_script(driven, "return document.querySelector('canvas')?.dataset.drawn === '8000'", "the map")
    count = "return document.querySelectorAll(arguments[0]).length"
    assert driven.execute_script(count, ".cell") == 0
    assert driven.execute_script("return document.querySelectorAll('*').length") < 4000
    canvas = driven.find_element("tag name", "canvas")
    assert canvas.get_attribute("aria-label").startswith("Map of 8000 nodes: 250 CRIT, 7750 OK")
    stops = "return [...document.querySelectorAll('#map, #map *')].filter((one) => one.tabIndex >= 0).length"
    assert driven.execute_script(stops) == 5  # the picture, and the buttons that enlarge and turn it
    assert driven.execute_script(count, "#groups tbody tr") == 50
    assert "250 rows, page 1 of 5" in driven.find_element("id", "groups").text

    driven.find_element("id", "more").click()
    assert driven.execute_script(count, "#problems tbody tr") == 200
    assert "50 more are not shown" in driven.find_element("id", "left").text

    canvas = driven.find_element("tag name", "canvas")  # the console's keys: the next sick node, and open it
    canvas.send_keys(Keys.ARROW_DOWN, Keys.ENTER)
    assert driven.find_element("css selector", "#node h2").text == "n0007 CRIT"
    assert driven.find_element("id", "said").get_attribute("textContent") == "n0007: CRIT"

    driven.find_element("id", "search").send_keys("n000")  # ten nodes are cells again
    browsers.until_script(driven, "return document.querySelectorAll('.cell').length === 10", "the cells")
    assert driven.execute_script("return document.getElementById('map').getAttribute('role')") == "listbox"


@pytest.mark.browser
@pytest.mark.thorough
def test_palette_and_letters_are_the_consoles(page, driven):
    """One source: what stands in the page is what the console serves."""
    text = page.read_text()
    assert part("palette.css") in text
    assert one_script() in text
    driven.get(page.as_uri())
    found = driven.execute_script(
        "return [...document.querySelectorAll('.cell')].map((one) => one.textContent).join('')"
    )
    assert found == "·······CU···"


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
