"""The console's design in a real browser: the frame, colours, tiles, strips, plots, keys, a phone, two of a kind."""

import json

import pytest
from selenium.webdriver.common.keys import Keys

from nhc.console.sources import StoreSource, accelerators
from nhc.core.model import Action, CheckResult, Metric, Outcome, Report, Verdict
from nhc.store import episodes, job_restarts, trains
from nhc.store.job_restarts import WatchedJob
from tests.console.conftest import TOKENS, Running, Site, settings
from tests.support import browser as browsers
from tests.support.ports import free_ports
from tests.support.waiting import until

READY = "return document.body.dataset.ready && document.querySelector('main').dataset.screen"


def measured(node, started, degrees, verdict=Verdict.OK):
    """A report with figures: GPUs, and how warm two of them are."""
    bad = Outcome(
        verdict, "GpuFallenOffBus" if verdict is Verdict.CRIT else "", f"lost, {degrees}", action=Action.REBOOT
    )
    results = [
        CheckResult("check_gpu_lost", bad),
        CheckResult("check_gpu_count", Outcome(Verdict.OK, metrics=(Metric("gpu_expected", 8),))),
        *(CheckResult("check_gpu_temp", Outcome(Verdict.OK, target=f"gpu{gpu}",
                                                       metrics=(Metric("gpu_temperature", degrees + gpu, "Cel"),)))
          for gpu in range(2)),
    ]  # fmt: skip
    return Report(node, f"boot-{node}", started, 0.1, tuple(results))


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    site = Site(tmp_path_factory.mktemp("site"))
    now = site.now
    site.hear(measured("b1", now - 20, 50.0), measured("b1", now - 10, 90.0, Verdict.CRIT))
    with site.store.write() as connection:
        job_restarts.watch(connection, WatchedJob(0, "kube", "PyTorchJob", "team", "llama", "u1", "ann", "Running",
                                                  "r1", "b1 b2", 2, 3, "", "", now - 900, now, None))  # fmt: skip
        trains.create(connection, "driver-570", [["a1"], ["a2"]], plan="", digest="", state="running",
                      node_state="planned", by="ann", why="a new driver", now=now)  # fmt: skip
        made, _new = episodes.open_episode(
            connection, "b3", "check_gpu_lost|GpuLost|", action="reboot", state="draining", now=now - 3600, by="nhc",
            rung="reboot",
        )  # fmt: skip
        episodes.save_step(connection, made, episodes.EpisodeStep("nhc", "marked", {}), now=now - 3600,
                           detail=json.dumps({"marked": now - 3600}, separators=(",", ":")))  # fmt: skip
    found = settings(free_ports(1)[0])
    running = Running(found, StoreSource(site.store, found.stale), site.store)
    running.site = site
    until(lambda: running.server.hub.snapshot, what="the first snapshot")
    yield running
    running.stop()
    site.store.close()


@pytest.fixture(scope="module")
def browser(running):
    made = browsers.start("--window-size=1440,900")
    yield made
    made.quit()


@pytest.fixture
def at(browser, running):
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})

    def open_it(path, width=0):
        if width:
            size = {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": False}
            browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        browser.get(f"http://{running.address}/view/{path}")
        browsers.until_script(browser, READY, path)
        return browser

    return open_it


def text(browser):
    return browser.find_element("tag name", "main").text


# The frame.


def test_the_screens_stand_at_the_side_in_four_groups(at):
    browser = at("problems")
    groups = browser.execute_script(
        "return [...document.querySelectorAll('#nav ul')].map((one) => [one.getAttribute('aria-label'),"
        " [...one.querySelectorAll('a')].map((a) => a.getAttribute('href').split('/').pop())])"
    )
    assert groups == [
        ["Now", ["needs", "map", "problems"]], ["Act", ["episodes", "held", "maintenance"]],
        ["Understand", ["nodes", "history", "rates", "deep", "checks", "offenders"]], ["System", ["health"]],
    ]  # fmt: skip
    side, main = (browser.find_element("css selector", one).rect for one in ("#nav", "main"))
    assert side["x"] + side["width"] <= main["x"] + 1
    assert browser.find_element("css selector", "#nav [aria-current=page]").text == "Problems"


def test_counts_are_links_and_what_needs_a_person_is_in_the_title(at):
    browser = at("held")
    assert browser.title == "Held back · 2 need you · nhc console"  # b1 waits for agreement, nothing is planned for b2
    browser.find_element("css selector", "#state a.c").click()
    browsers.until_script(browser, f"{READY} === 'nodes'", "the nodes")
    assert browser.current_url.endswith("/view/nodes?show=c")
    assert "2 nodes" in text(browser)


def test_on_a_phone_the_screens_are_behind_a_menu(at):
    browser = at("problems", 390)
    link = browser.find_element("css selector", "#nav a[href='/view/history']")
    assert not link.is_displayed()
    browser.find_element("id", "menu").click()
    assert link.is_displayed()
    assert browser.find_element("id", "menu").get_attribute("aria-expanded") == "true"
    link.click()
    browsers.until_script(browser, f"{READY} === 'history'", "the screen")
    assert not browser.find_element("css selector", "#nav a[href='/view/map']").is_displayed()


SCREENS = (
    "needs",
    "map",
    "problems",
    "nodes?text=",
    "node/b1",
    "history",
    "maintenance",
    "compare?a=b1&b=b2",
    "episode/1",
)


@pytest.mark.parametrize("width", [390, 1024, 1440])
def test_nothing_lies_beside_the_window(at, browser, width):
    for screen in SCREENS:
        at(screen, width)
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width, screen


CONTRAST = """
const scheme = getComputedStyle(document.documentElement);
const box = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
const linear = (part) => { const s = part / 255; return s <= 0.03928 ? s / 12.92 : ((s + 0.055) / 1.055) ** 2.4; };
const light = (name) => {
  box.fillStyle = scheme.getPropertyValue(name).trim() || name;
  box.fillRect(0, 0, 1, 1);
  const [r, g, b] = [...box.getImageData(0, 0, 1, 1).data].map(linear);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
return arguments[0].map(([one, other]) => {
  const [low, high] = [light(one), light(other)].sort((x, y) => x - y);
  return [one, other, (high + 0.05) / (low + 0.05)];
});
"""
MARKS = ("--ok", "--unknown", "--crit", "--stale", "--skip", "--never", "--warn-edge", "--field",
         *(f"--c{number}" for number in range(1, 9)))  # fmt: skip


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_mark_has_three_to_one_and_every_text_more(at, browser, scheme):
    browsers.scheme(browser, scheme)
    at("health")
    marks = [(mark, ground) for mark in MARKS for ground in ("--surface", "--page")]
    texts = [("--text", "--surface"), ("--muted", "--surface"), ("--muted", "--page"), ("--muted", "--raised"),
             ("--link", "--page"), ("--on-accent", "--accent"), ("--danger", "--surface"), ("--warn-text", "--warn"),
             ("--note-text", "--note"),
             *(("#ffffff", mark) for mark in ("--ok", "--unknown", "--crit", "--stale", "--skip"))]  # fmt: skip
    try:
        low = [one for one in browser.execute_script(CONTRAST, marks) if one[2] < 3]
        low += [one for one in browser.execute_script(CONTRAST, texts) if one[2] < 4.5]
    finally:
        browsers.scheme(browser, "light")
    assert low == []


def test_a_verdict_is_a_pill_with_a_letter_and_its_word(at):
    pill = at("node/b2").find_element("css selector", "main .sign.c")
    assert pill.text == "CRIT"
    assert pill.get_attribute("data-mark") == "C"
    letter = at("node/b2").execute_script(
        "return getComputedStyle(document.querySelector('main .sign.c'), '::before').content"
    )
    assert letter == '"C"'


# The first screen.


def test_the_first_screen_has_numbers_the_map_and_what_an_agreement_does(at):
    browser = at("needs")
    tiles = browser.execute_script(
        "return [...document.querySelectorAll('.tile')].map((one) => one.innerText.split('\\n'))"
    )
    numbers = {words: (number, more) for number, words, more in tiles}
    assert numbers["need you"] == ("2", "of 8 nodes")
    assert numbers["CRIT"][0] == "2"
    assert numbers["out of service"][0] == "1"
    assert (numbers["in repair"][0], numbers["returned"][0], numbers["to return"][0]) == ("0", "0", "–")
    browsers.until_script(browser, "return document.querySelector('.map canvas')?.dataset.drawn === '8'", "the map")
    said = browser.find_element("css selector", "[aria-label^='The longest-waiting']").text
    assert "lost, 90.0" in said  # what is wrong, in the report's own words
    assert "reboot restarts the node: all that runs there ends. 1 watched job runs there." in said
    browser.find_element("css selector", "a.go").click()
    browsers.until_script(browser, f"{READY} === 'episode'", "where it is decided")


def test_the_jobs_and_gpus_of_a_problem_are_counted(running):
    row, *_others = running.ask("GET", "/api/causes")[1]["causes"]
    assert (row["reason"], row["affected"], row["jobs"], row["devices"]) == ("GpuFallenOffBus", 2, 1, 8)


@pytest.mark.parametrize(("value", "count"), [(8, 8), (0, 0), (float("nan"), 0), (float("inf"), 0), (-1, 0), (1e9, 0)])
def test_a_count_that_cannot_be_true_is_none(value, count):
    result = CheckResult("check_gpu_count", Outcome(Verdict.OK, metrics=(Metric("gpu_count", value),)))
    assert accelerators(Report("n", "b", 0.0, 0.1, (result,))) == count


# Strips, plots, history.


def test_each_row_has_its_last_day_and_its_share_in_service(at, running):
    browser = at("nodes?by=rack&group=r-b")
    browsers.until_script(browser, "return document.querySelectorAll('.day').length === 4", "the strips")
    of = browser.execute_script(
        "return Object.fromEntries([...document.querySelectorAll('.strip')].map((one) => [one.dataset.node,"
        " [one.querySelector('.day').getAttribute('aria-label'), one.querySelector('.share').textContent]]))"
    )
    assert "CRIT" in of["b2"][0]
    assert "no report" in of["b4"][0]
    assert "OK" not in of["b4"][0]  # silence is not health
    assert of["b1"][1] == "100 %"
    assert of["b3"][1] in ("95.8 %", "95.7 %")  # an hour of 24, and the time since
    strips = running.ask("GET", "/api/strips?set=b[1-4],nobody")[1]["strips"]
    assert sorted(strips) == ["b1", "b2", "b3", "b4"]
    assert strips["b4"]["letters"] == "s" * 48
    assert strips["b2"]["letters"][-1] == "c"
    assert running.ask("GET", "/api/strips?set=b[1-")[0] == 409


def test_a_nodes_page_tells_its_story_with_plots_of_what_the_store_has(at):
    browser = at("node/b1")
    browsers.until_script(browser, "return document.querySelectorAll('.plot .u-over').length > 0", "the plots")
    plot = browser.find_element("css selector", ".plot .canvas").get_attribute("aria-label")
    assert plot.startswith("GPU temperature, by check_gpu_temp: gpu0 from 50 to 90, last 90 °C")
    story = browser.find_elements("css selector", ".story li")
    said = [one.text for one in story]
    assert any("Problem" in one and "GpuFallenOffBus" in one for one in said)
    assert any("episode.opened" in one and "by nhc" in one for one in said)
    columns = "return [...document.querySelectorAll('.wide[aria-label=Problems] th')].filter((one) => one.offsetWidth)"
    heads = browser.execute_script(f"{columns}.map((one) => one.textContent)")
    assert ("Message" in heads, "Target" in heads) == (True, False)  # no problem of it has a target
    order = browser.execute_script("return [...document.querySelectorAll('.story time')].map((one) => one.dateTime)")
    assert order == sorted(order, reverse=True)
    first = browser.execute_script("return document.querySelector('main h1').nextElementSibling.innerText")
    assert "waits for your agreement" in first  # decisions come first
    assert len(at("timeline/b1").find_elements("css selector", ".bands .hours span")) == 5


def test_the_history_has_an_axis_a_legend_and_says_where_nothing_was_known(at, running):
    browser = at("history?hours=1")
    browsers.until_script(browser, "return document.querySelectorAll('.plot .u-over').length === 2", "the plots")
    assert len(browser.find_elements("css selector", ".plot:first-of-type .u-axis")) == 2
    legend = browser.execute_script("return [...document.querySelectorAll('.u-legend')].map((one) => one.innerText)")
    for word in ("CRIT", "UNKNOWN", "WARN"):
        assert word in legend[0]
    assert "no node" in text(browser)
    value = running.ask("GET", "/api/history?hours=1")[1]
    known = [part["watched"] > 0 for part in value["parts"]]
    assert known == sorted(known)  # nothing before the first report, and a report is believed for ten minutes
    assert (known[0], value["parts"][-1]["watched"]) == (False, 7)
    assert value["parts"][-1]["out"] == 1
    assert 3500 < sum(part["node_seconds"] for part in value["parts"]) <= 3601
    for wrong in ("hours=2", "days=2", "hours=x"):
        assert running.ask("GET", f"/api/history?{wrong}")[0] == 409, wrong


# Keys, decisions, two of a kind.


def test_rows_are_walked_opened_and_agreed_to_by_keys(at, browser, running):
    body = at("nodes?by=rack&group=r-b").find_element("tag name", "body")
    here = "return document.activeElement.closest('tr')?.querySelector('a')?.textContent"
    body.send_keys("j")
    first = browser.execute_script(here)
    browser.switch_to.active_element.send_keys("j")
    second = browser.execute_script(here)
    browser.switch_to.active_element.send_keys("k")
    assert (browser.execute_script(here), first != second) == (first, True)
    browser.switch_to.active_element.send_keys(Keys.ENTER)
    browsers.until_script(browser, f"{READY} === 'node'", "the node")

    browser.get(f"http://{running.address}/view/login")
    browsers.until_script(browser, "return document.body.dataset.ready", "the page")
    browser.execute_async_script(
        "fetch('/login', {method: 'POST', headers: {'Content-Type': 'application/json'},"
        f"body: JSON.stringify({{token: '{TOKENS['olga']}'}})}}).then(() => arguments[0]())"
    )
    at("needs").find_element("tag name", "body").send_keys("j")
    browser.switch_to.active_element.send_keys("a")
    browsers.until_script(browser, f"{READY} === 'episode'", "the repair")
    browser.find_element("tag name", "body").send_keys("a")
    assert browser.switch_to.active_element.get_attribute("name") == "confirm"
    looks = browser.execute_script(
        "return ['Agree', 'Refuse'].map((one) => {"
        " const s = getComputedStyle(document.querySelector(`[aria-label=${one}] form button`));"
        " return [s.backgroundColor, s.borderTopStyle]; })"
    )
    assert looks[0][0] != looks[1][0]
    assert looks[0][1] != looks[1][1]


def test_two_nodes_and_two_racks_are_compared(at):
    browser = at("compare?a=b1&b=a1")
    rows = browser.execute_script(
        "return [...document.querySelectorAll('tbody tr')].map((row) => [...row.cells].map((c) => c.innerText))"
    )
    of = {row[1]: row for row in rows}
    assert of["Verdict"][:1] + of["Verdict"][2:] == ["differs", "CRIT", "OK"]
    assert rows[0][0] == "differs"
    assert of["rack"][2:] == ["r-b", "r-a"]
    browser = at("compare?by=rack&a=r-a&b=r-b")
    assert "GpuFallenOffBus" in text(browser)
    assert "Two names of nodes" in text(at("compare"))
    assert "no node is called nobody" in text(at("compare?a=b1&b=nobody"))


def test_trains_have_a_screen(at):
    said = text(at("maintenance"))
    assert "driver-570" in said
    assert "2 planned" in said


def test_one_search_finds_jobs_too(at):
    browser = at("health")
    browser.find_element("tag name", "body").send_keys("/")
    browser.switch_to.active_element.send_keys("llama", Keys.ENTER)
    browsers.until_script(browser, f"{READY} === 'nodes'", "what was found")
    assert "PyTorchJob/team/llama" in text(browser)


def test_a_moment_stands_in_local_time_as_well(at, browser):
    browser.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": "Asia/Tokyo"})
    try:
        stamp = at("maintenance").find_element("css selector", "td.stamp").text
        assert "Z\n" in stamp
        assert "GMT+9" in stamp
        assert "GMT+9" in browser.execute_script("return document.getElementById('asof').textContent")
    finally:
        browser.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": "UTC"})


def test_an_empty_list_says_what_will_stand_there(at):
    said = text(at("needs"))
    assert "None. A node that no repair brought back will stand here." in said
