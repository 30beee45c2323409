"""What a person does is not disturbed by news: tables stay scrolled, what was opened stays open, a press arrives."""

import pytest

from nhc.console.snapshot import find
from nhc.console.sources import StoreSource
from nhc.core.model import CheckResult, Outcome, Report, Verdict
from tests.console.conftest import Running, Site, report, settings
from tests.support import browser as browsers
from tests.support.ports import free_ports
from tests.support.waiting import until

READY = "return document.body.dataset.ready && document.querySelector('main').dataset.screen"


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    site = Site(tmp_path_factory.mktemp("site"))
    found = settings(free_ports(1)[0])
    made = Running(found, StoreSource(site.store, found.stale), site.store)
    made.site = site
    until(lambda: made.server.hub.snapshot, what="the first snapshot")
    yield made
    made.stop()
    site.store.close()


@pytest.fixture(scope="module")
def browser(running):
    made = browsers.start()
    yield made
    made.quit()


@pytest.fixture
def narrow(browser):
    def width(pixels):
        browser.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": pixels, "height": 844, "deviceScaleFactor": 1, "mobile": False},
        )

    yield width
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def go(browser, running, path):
    browser.get(f"http://{running.address}/view/{path}")
    browsers.until_script(browser, READY, path)


def news(running, reason):
    """A problem of another node than what a test looks at, as the page gets it from the stream."""
    running.site.now += 1
    running.site.hear(report("a4", Verdict.WARN, reason, started=running.site.now))


def many(running, count):
    """So many problems of one node at once."""
    running.site.now += 1
    outcomes = [Outcome(Verdict.WARN, f"Many{number}", "one of many", f"gpu{number}") for number in range(count)]
    results = tuple(CheckResult("check_gpu_lost", outcome) for outcome in outcomes)
    running.site.hear(Report("a4", "boot-a4", running.site.now, 0.1, results))


def test_a_refresh_leaves_a_table_scrolled_and_rows_as_they_are(browser, running, narrow):
    narrow(700)
    go(browser, running, "problems")
    browser.execute_script("document.styleSheets[1].insertRule('.wide table { width: 2000px }')")
    browser.execute_script(
        "document.querySelector('main .wide').scrollLeft = 150;"
        "window.rows = [...document.querySelectorAll('main tbody tr')]"
    )
    assert browser.execute_script("return document.querySelector('main .wide').scrollLeft") == 150
    news(running, "GpuWarm")
    browsers.until_script(browser, "return document.querySelector('main').innerText.includes('GpuWarm')", "the news")
    assert browser.execute_script("return document.querySelector('main .wide').scrollLeft") == 150


def test_rows_that_say_the_same_stay_and_what_was_opened_stays_open(browser, running):
    go(browser, running, "needs")
    kept = browser.execute_async_script(
        """
        const done = arguments[0];
        Promise.all([import('/static/dom.js'), import('/static/table.js')]).then(([{ replace, el }, { table }]) => {
          const box = el('div'), make = (some) => [table('Rows', ['Name', 'Message'], some),
            el('details', {}, el('summary', {}, 'More'), 'text')];
          document.body.append(box);
          replace(box, ...make([['a', 'one'], ['b', 'two']]));
          box.querySelector('details').open = true;
          const [first, second] = box.querySelectorAll('tbody tr');
          replace(box, ...make([['new', 'zero'], ['a', 'one'], ['b', 'other']]));
          const after = [...box.querySelectorAll('tbody tr')];
          done([after[1] === first, after[2] === second, after.length, box.querySelector('details').open]);
        });
        """
    )
    assert kept == [True, False, 3, True]


def test_nothing_is_replaced_between_a_press_and_its_release(browser, running):
    go(browser, running, "problems")
    browser.execute_script(
        "window.pressed = document.querySelector('main tbody a');"
        "window.pressed.dispatchEvent(new PointerEvent('pointerdown', {bubbles: true}))"
    )
    news(running, "GpuPressed")
    until(lambda: "GpuPressed" in str(running.ask("GET", "/api/causes")[1]), what="the news in the console")
    browsers.until_script(browser, "return true", "the page")
    browser.set_script_timeout(30)
    browser.execute_async_script("setTimeout(arguments[0], 2500)")  # the time in which a refresh would have come
    assert browser.execute_script("return window.pressed.isConnected")
    browser.execute_script("window.pressed.dispatchEvent(new PointerEvent('pointerup', {bubbles: true}))")
    browsers.until_script(
        browser, "return document.querySelector('main').innerText.includes('GpuPressed')", "the news after the release"
    )


def test_what_is_typed_outside_a_decision_stays_too_and_a_filter_keeps_its_caret(browser, running):
    go(browser, running, "node/a4")
    field = browser.find_element("css selector", "form.bar input")
    field.send_keys("a1")
    news(running, "GpuTyped")
    browsers.until_script(browser, "return document.querySelector('.new') !== null", "the offer")
    assert field.get_attribute("value") == "a1"

    many(running, 9)  # enough rows for a filter
    until(lambda: "Many8" in str(running.ask("GET", "/api/causes")[1]), what="the news in the console")
    go(browser, running, "problems")
    browser.find_element("css selector", ".tools input").send_keys("Mny")
    browser.execute_script("document.activeElement.setSelectionRange(1, 1); window.before = document.activeElement")
    many(running, 10)
    browsers.until_script(browser, "return !window.before.isConnected", "the screen made anew")
    browser.switch_to.active_element.send_keys("a")
    assert browser.find_element("css selector", ".tools input").get_attribute("value") == "Many"
    running.site.hear(report("a4", started=running.site.now + 1))


@pytest.mark.parametrize("screen", ["needs", "problems", "nodes?text=", "node/b1", "episodes"])
def test_on_a_phone_rows_are_cards_and_all_of_them_is_seen(browser, running, narrow, screen):
    narrow(390)
    go(browser, running, screen)
    beside = browser.execute_script(
        "return [...document.querySelectorAll('main td')].filter((one) => one.offsetParent !== null)"
        ".filter((one) => one.getBoundingClientRect().right > 390).map((one) => one.innerText)"
    )
    assert beside == []
    heads = browser.execute_script(
        "return [...document.querySelectorAll('main tbody tr')]"
        ".map((row) => [...row.cells].filter((one) => one.offsetHeight)"
        ".sort((a, b) => a.getBoundingClientRect().top - b.getBoundingClientRect().top).map((one) => one.dataset.head))"
    )
    first = {"Message", "Cause", "Waits for", "Why"}
    for row in heads:
        if first & set(row):
            assert row[0] in first, row


# The find box.


@pytest.mark.parametrize(
    ("text", "nodes", "by"),
    [
        (" b1 ", ["b1"], ["name", "message"]), ("b[1-2]", ["b1", "b2"], ["node set"]),
        ("b1,a2", ["a2", "b1"], ["node set"]),
        ("r-b", ["b1", "b2", "b3", "b4"], ["group"]), ("rack=r-a", ["a1", "a2", "a3", "a4"], ["group"]),
        ("gpufallen", ["b1", "b2"], ["reason", "message"]), ("bus of b2", ["b2"], ["message"]),
        ("check_gpu_lost", ["b1", "b2"], ["reason"]), ("no such thing", [], []), ("b[1-", [], []),
    ],
)  # fmt: skip
def test_the_find_box_takes_what_a_person_knows(tmp_path, text, nodes, by):
    site = Site(tmp_path)
    try:
        snapshot = StoreSource(site.store, 600).snapshot()
        found = find(snapshot, text)
        assert sorted(found.nodes) == nodes
        assert sorted(found.by) == sorted(by)
    finally:
        site.store.close()


def test_what_was_searched_is_said(browser, running):
    go(browser, running, "nodes?text=nobody-at-all")
    main = browser.find_element("tag name", "main").text
    assert "No node found for nobody-at-all" in main
    for each in ("node sets", "racks", "reasons", "messages"):
        assert each in main
