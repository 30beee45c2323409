"""The one table, in a real browser over a fleet of 700 nodes: sort, filter, pages, files, links; keys; the map."""

import csv
import json
import os

import pytest
from selenium.webdriver.common.keys import Keys

from nhc.console.fleet_nodes import NodeRow
from nhc.console.settings import parse
from nhc.console.snapshot import ProblemRow, take
from tests.console.conftest import Running
from tests.support import browser as browsers
from tests.support.ports import free_ports
from tests.support.waiting import until

READY = "return document.body.dataset.ready && document.querySelector('main').dataset.screen"
COUNT = 700
FORMULA = '=HYPERLINK("http://x")'


class Fleet:
    """Nodes n001 to n700 in racks of ten; every third one has a problem."""

    name = "a fleet"

    def __init__(self):
        names = [f"n{number:03}" for number in range(1, COUNT + 1)]
        self.nodes = [
            NodeRow(name, "CRIT" if place % 3 == 0 else "OK", 1e9, 1e9, "h100", {"rack": f"r{place // 10:02}"}, "agent")
            for place, name in enumerate(names)
        ]
        self.problems = [
            ProblemRow(row.node, "check_gpu_lost", "GpuLost", f"gpu{place % 8}", "CRIT", "reboot",
                       FORMULA if place == 0 else f"message {place}", 1e9 - 60 * place)
            for place, row in enumerate(self.nodes) if row.verdict == "CRIT"
        ]  # fmt: skip

    def snapshot(self):
        return take(self.nodes, self.problems, 1e9, 1e9)

    def report(self, node):
        return None


@pytest.fixture(scope="module")
def console():
    made = Running(parse(f'listen = "127.0.0.1:{free_ports(1)[0]}"\n'), Fleet(), None)
    until(lambda: made.server.hub.snapshot, what="the first snapshot")
    yield made
    made.stop()


@pytest.fixture(scope="module")
def browser(console):
    made = browsers.start()
    yield made
    made.quit()


@pytest.fixture
def at(browser, console):
    def open_it(path):
        browser.get(f"http://{console.address}/view/{path}")
        browsers.until_script(browser, READY, path)
        return browser

    return open_it


CAUSE = "cause?check=check_gpu_lost&reason=GpuLost"


def cells(browser, column):
    return browser.execute_script(
        f"return [...document.querySelectorAll('tbody tr')].map((row) => row.cells[{column}].innerText)"
    )


def head(browser, title):
    return browser.find_element("xpath", f"//th//button[normalize-space()='{title}']")


def test_a_table_is_sorted_filtered_and_turned_and_its_address_keeps_that(at):
    browser = at(CAUSE)
    assert len(cells(browser, 0)) == 50
    head(browser, "Node").click()
    head(browser, "Node").click()  # the other way round
    assert cells(browser, 0)[0] == "n700"
    assert head(browser, "Node").find_element("xpath", "..").get_attribute("aria-sort") == "descending"
    head(browser, "Since").click()  # by the moment, not by the text that says how long ago
    assert cells(browser, 0)[0] == "n700"

    browser.find_element("css selector", "input[aria-label='Filter: Nodes']").send_keys("message 69")
    browsers.until_script(browser, "return document.querySelectorAll('tbody tr').length === 5", "the filtered rows")
    assert set(cells(browser, 3)) == {"message 69", "message 690", "message 693", "message 696", "message 699"}
    browser.refresh()
    browsers.until_script(browser, "return document.querySelectorAll('tbody tr').length === 5", "the same view")

    browser.find_element("css selector", "input[aria-label='Filter: Nodes']").clear()
    at(CAUSE)
    browser.find_element("xpath", "//button[text()='Next']").click()
    assert len(cells(browser, 0)) == 50
    assert cells(browser, 0)[0] == "n151"
    assert "234 rows, page 2 of 5" in browser.find_element("tag name", "main").text


def test_a_table_is_saved_whole_and_no_cell_is_a_formula(at, tmp_path):
    browser = at(CAUSE)
    browser.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)})
    browser.find_element("css selector", "button[aria-label='Save as CSV: Nodes']").click()
    browser.find_element("css selector", "button[aria-label='Save as JSON: Nodes']").click()
    until(lambda: sorted(os.listdir(tmp_path)) == ["nodes.csv", "nodes.json"], what="the files")

    with open(tmp_path / "nodes.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 234
    assert (rows[0]["Node"], rows[0]["Since"], rows[0]["Message"]) == ("n001", "2001-09-09 01:46:40Z", f"'{FORMULA}")
    saved = json.loads((tmp_path / "nodes.json").read_text(encoding="utf-8"))
    assert [row["Node"] for row in saved] == [row["Node"] for row in rows]
    assert saved[0]["Message"] == FORMULA


def test_racks_and_sets_of_nodes_are_links(at):
    browser = at("map?by=rack")
    browsers.until_script(browser, "return document.querySelectorAll('tbody tr').length > 0", "the groups")
    browser.find_element("link text", "r03").click()
    browsers.until_script(browser, "return document.querySelector('h1').innerText === '10 nodes of rack r03'", "it")
    assert cells(browser, 1)[:3] == ["n031", "n034", "n037"]  # the worst first

    at(CAUSE).find_element("css selector", "dd a[href^='/view/nodes?set=']").click()
    browsers.until_script(
        browser, "return document.querySelector('h1').innerText.startsWith('234 nodes of')", "the set"
    )


def test_the_keys_are_listed(at):
    browser = at("problems")
    browser.find_element("tag name", "body").send_keys("?")
    said = browsers.until_script(browser, "return document.querySelector('dialog[open]')?.innerText", "the list")
    assert "Arrow right, left" in said
    browser.find_element("tag name", "body").send_keys(Keys.ESCAPE)
    browsers.until_script(browser, "return !document.querySelector('dialog')", "its end")
    browser.find_element("tag name", "body").send_keys("/")
    assert browser.switch_to.active_element.get_attribute("name") == "text"


def test_an_arrow_key_does_not_paint_the_map_anew(at):
    browser = at("map?by=rack")
    browsers.until_script(browser, "return document.querySelector('canvas')?.dataset.drawn === '700'", "the map")
    browser.execute_script(
        "window.drawn = 0; for (const name of ['fillRect', 'drawImage', 'clearRect', 'fillText']) {"
        "const old = CanvasRenderingContext2D.prototype[name];"
        "CanvasRenderingContext2D.prototype[name] = function (...a) { window.drawn++; return old.apply(this, a); }; }"
    )
    canvas = browser.find_element("tag name", "canvas")
    canvas.send_keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    browsers.until_script(browser, "return document.getElementById('said').textContent === 'n003: OK'", "it")
    assert browser.execute_script("return window.drawn") == 0
    cursor = browser.find_element("css selector", ".cursor")
    assert cursor.is_displayed()


def test_the_map_has_a_legend_with_letters(at):
    browser = at("map")
    legend = browser.find_element("css selector", "fieldset").text
    assert "C CRIT" in legend
    assert "· OK" in legend


@pytest.mark.parametrize(
    ("screen", "first"),
    [("problems", ["Verdict", "Cause", "Nodes"]), (CAUSE, ["Node", "Since"]),
     ("nodes?by=rack&group=r03", ["State", "Node", "Reason"])],
)  # fmt: skip
def test_on_a_phone_the_columns_that_matter_are_seen_first(at, browser, screen, first):
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": False}
    )
    try:
        at(screen)
        seen = browser.execute_script(
            "const here = (one) => one.getBoundingClientRect().right <= 390;"
            "return [...document.querySelectorAll('thead th')].filter(here).map((one) => one.innerText)"
        )
        assert seen[: len(first)] == first
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
