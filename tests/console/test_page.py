"""The page in a real browser: each screen, keyboard, colour schemes, hostile text, a hundred thousand nodes."""

import json
import time
from importlib import resources
from urllib.parse import quote

import pytest
import sqlalchemy as sa

from nhc.console.fleet_nodes import NodeRow
from nhc.console.scheduler import Scheduler
from nhc.console.settings import parse
from nhc.console.snapshot import take
from nhc.console.sources import StoreSource
from nhc.core.model import Action, CheckResult, Outcome, Report, Verdict
from nhc.marks.ports.job_control import WorkItem, WorkList
from nhc.store import attempts, audit, deep, episodes, holds, job_restarts, nodes, schema, trains
from nhc.store.intake import IntakeSettings
from nhc.store.job_restarts import JobEnd, WatchedJob
from nhc.store.reports import import_reports
from tests.console.conftest import TOKENS, Running, Site, report, settings
from tests.support import browser as browsers
from tests.support.new_store import new_store
from tests.support.ports import free_ports
from tests.support.waiting import until

EVIL = "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\"><b>x"
READY = "return document.body.dataset.ready && document.querySelector('main').dataset.screen"
SCREENS = (
    "needs", "map", "problems", "checks", "node/b1", "episodes", "episode/1", "timeline/b1", "held", "offenders",
    "rates?by=rack&since=2020-01-01", "health", "deep?fact=rack", "map?check=deep", "job/1",
    "nodes?text=b", "nodes?by=rack&group=r-b",
    "explain/GpuFallenOffBus?check=check_gpu_lost", "history",
    "cause?check=check_gpu_lost&reason=GpuFallenOffBus", "login",
)  # fmt: skip


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    site = Site(tmp_path_factory.mktemp("site"))
    site.hear(report("a2", Verdict.WARN, "GpuHot", started=site.now - 5, target=EVIL, message=f"hot {EVIL}"))
    put_to_work(site)
    found = settings(free_ports(1)[0])
    made = Running(found, StoreSource(site.store, found.stale), site.store)
    made.site = site
    until(lambda: made.server.hub.snapshot, what="the first snapshot")
    yield made
    made.stop()
    site.store.close()


def put_to_work(site):
    """A job that failed on b1, a train that it is in, a deep verdict of it."""
    with site.store.write() as connection:
        seen = WatchedJob(0, "kube", "PyTorchJob", "team", EVIL, "u1", "ann", "Running", "r2", "b3", 2, 3, "", "",
                               site.now - 900, site.now, None)  # fmt: skip
        job = job_restarts.watch(connection, seen)
        end = JobEnd(job.id, "r1", "node", "supported", f"the node: {EVIL}", "b1", "may", "", 16, site.now - 9000,
                          site.now - 1800)  # fmt: skip
        job_restarts.keep_end(connection, end, site.now, "nhc", job.text())
        job_restarts.begin(connection, job, key="k1", run="r1", why=EVIL, nodes=["b1"], exclude=["b1"], manifest="",
                   now=site.now, by="nhc serve job")  # fmt: skip
        trains.create(connection, "driver-570", [["b1"]], plan="", digest="", state="running", node_state="planned",
                      by="ann", why="a new driver", now=site.now)  # fmt: skip
        deep.add(connection, [deep.DeepResult("b1", "quick", "gemm", "", None, "", "CRIT", "", site.now - 7200)])


@pytest.fixture(scope="module")
def browser(running):
    made = browsers.start()
    yield made
    made.quit()


@pytest.fixture
def at(browser, running):
    """Opens a screen and waits for it."""

    def open_it(path):
        browser.get(f"http://{running.address}/view/{path}")
        browsers.until_script(
            browser, "return document.body.dataset.ready && document.querySelector('main').dataset.screen", path
        )
        return browser

    return open_it


def has_been_read(running):
    """Wait for the console to read what a test has written: the news of it would make a form anew that is filled in."""
    with running.site.store.read() as connection:
        newest = audit.head(connection)
    until(lambda: running.server.hub.snapshot.revision >= newest.seq, what="the console to read the store")


def text(browser):
    return browser.find_element("tag name", "main").text


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_screen_is_accessible_in_both_colour_schemes_and_complains_of_nothing(at, browser, scheme):
    axe = (resources.files("axe_core_python") / "axe.min.js").read_text(encoding="utf-8")
    browsers.scheme(browser, scheme)
    browser.get_log("browser")
    for screen in SCREENS:
        at(screen)
        # The policy of the page lets no stranger's script in; the driver's own scripts pass it.
        browser.execute_script(f"{axe}; window.axe = axe;")
        found = browser.execute_async_script(
            "const done = arguments[arguments.length - 1];"
            "axe.run(document, {resultTypes: ['violations']}).then((r) => done(r.violations.map((v) =>"
            "[v.impact, v.id, v.nodes.map((n) => n.html + ' ' + n.failureSummary).slice(0, 3)])))"
        )
        assert [one for one in found if one[0] in ("serious", "critical")] == [], screen
        assert [line["message"] for line in browser.get_log("browser")] == [], screen
        assert [one.text for one in browser.find_elements("css selector", "main .error")] == [], screen
        assert "[object" not in text(browser), screen


def test_text_of_a_node_never_becomes_markup(at):
    for screen in ("problems", "node/a2", "timeline/a2", "cause?check=check_gpu_lost&reason=GpuHot"):
        browser = at(screen)
        assert "<img src=x onerror=" in text(browser), screen
        assert browser.title.endswith("nhc console")
        assert browser.execute_script("return document.images.length") == 0


HOSTILE_SCREENS = (
    "needs", "map?by=rack", "problems", "checks?fact=rack", "node/n1", "episodes", "episode/{episode}", "timeline/n1",
    "held", "offenders", "audit", "health", "nodes?text=zz&by=rack", "nodes?set=n[1-2]",
    "cause?check={evil}&reason={evil}",
)  # fmt: skip


class Working:
    """A scheduler on whose nodes one job runs."""

    def nodes(self, names=None):
        return []

    def work_on(self, node):
        return WorkList((WorkItem(EVIL, EVIL, EVIL, "RUNNING", time.time() - 200),), "Jobs of others may be hidden")


@pytest.mark.thorough
def test_nothing_that_a_node_or_a_person_wrote_becomes_markup_on_any_screen(tmp_path):
    """Every text that comes from a node, a job or a form is hostile at once, and the whole page is walked."""
    store = new_store(str(tmp_path), anchor="")
    now = time.time()
    outcome = Outcome(Verdict.CRIT, EVIL, EVIL, EVIL, evidence=(EVIL,), action=Action.REBOOT)
    result = CheckResult(EVIL, outcome)
    made = [
        Report(f"n{number}", EVIL, now - 5, 0.1, (result,), labels={"rack": EVIL, "kind": EVIL}) for number in (1, 2)
    ]
    import_reports(store, made, "agent", IntakeSettings(), now)
    with store.write() as connection:
        episode, _new = episodes.open_episode(
            connection, "n1", f"{EVIL}|{EVIL}|{EVIL}", action="reboot", state="awaiting-approval", now=now, by=EVIL,
            rung="reboot",
        )  # fmt: skip
        holds.hold(connection, "node", "n2", by=EVIL, why=EVIL, now=now, until=now + 3600)
        audit.append(connection, now, EVIL, EVIL, node="n1", detail={"why": EVIL, EVIL: EVIL})
    found = settings(free_ports(1)[0])
    console = Running(found, StoreSource(store, found.stale), store)
    browser = browsers.start()
    try:
        console.server.scheduler = Scheduler("slurm", Working())
        until(lambda: console.server.hub.snapshot, what="the first snapshot")
        browser.get(f"http://{console.address}/login")
        browser.execute_async_script(
            "const done = arguments[arguments.length - 1];"
            "fetch('/login', {method: 'POST', headers: {'Content-Type': 'application/json'},"
            f"body: JSON.stringify({{token: '{TOKENS['adam']}'}})}}).then(() => done())"
        )
        browser.get_log("browser")
        seen = 0
        for screen in HOSTILE_SCREENS:
            path = screen.format(evil=quote(EVIL), episode=episode.id)
            browser.get(f"http://{console.address}/view/{path}")
            browsers.until_script(browser, READY, screen)
            seen += "<img src=x onerror=" in browser.page_source.replace("&lt;", "<")
            assert browser.title.endswith("nhc console"), screen
            assert browser.execute_script("return document.images.length + document.querySelectorAll('b').length") == 0
            assert [line["message"] for line in browser.get_log("browser")] == [], screen
            if screen == "node/n1":
                assert "Work on this node" in text(browser)
                assert "RUNNING 3 min" in text(browser)
                assert "Jobs of others may be hidden." in text(browser)
                story = browser.execute_script("return document.querySelector('.story').textContent")
                assert f"{EVIL}: {EVIL}, by {EVIL}" in story  # what was done, and why
            if screen == "timeline/n1":
                assert "why: " in text(browser)
        assert seen >= 8, "most screens show the texts"
    finally:
        browser.quit()
        console.stop()
        store.close()


def test_a_node_is_shown_with_the_work_on_it(at):
    browser = at("node/b1")
    said = text(browser)
    assert "Maintenance train driver-570, wave 1: planned" in said
    assert "GpuFallenOffBus Explain waits for your agreement to reboot in service" in said
    assert "By ann: a new driver" in said
    assert "Deep checks" in said
    browser.find_element("css selector", "a[href='/view/job/1']").click()
    browsers.until_script(browser, f"{READY} === 'job'", "the job's screen")
    assert "Nodes that it is kept off" in text(browser)
    assert "r1 the node: </script>" in text(browser)
    assert "b1 may help 32.0" in text(browser)
    assert "<img src=x onerror=" in text(browser)


def test_a_screen_says_in_words_what_there_is_and_what_is_not(at):
    said = text(at("episode/1"))
    assert "check_gpu_lost, GpuFallenOffBus" in said  # not as the store keeps it
    assert "|" not in said
    assert "No evidence was collected." in said
    assert "No node failed more than once." in text(at("offenders"))
    assert "a1" in text(at("nodes?text=a1"))
    assert "No node found for nobody" in text(at("nodes?text=nobody"))
    assert "there is no screen called reparis" in text(at("reparis"))
    assert "there is no screen called constructor" in text(at("constructor"))
    held = text(at("held"))
    assert "No breaker was ever open." in held
    assert "Nothing is on hold." in held
    short = at("timeline/b1").execute_script(
        "return [...document.querySelectorAll('.band > .sign')].map((one) => {"
        "const band = one.parentElement.getBoundingClientRect(), here = one.getBoundingClientRect();"
        "return [Math.min(here.right, band.right) - here.left]})"
    )
    assert short
    assert min(short)[0] >= 3  # pixels: what began half a minute ago is seen in a band of a day


def test_the_coverage_of_deep_checks_keeps_its_view_in_the_address(at):
    from selenium.webdriver.support.ui import Select

    browser = at("deep")
    assert "8 nodes are due" in text(browser)
    Select(browser.find_elements("css selector", "main select")[0]).select_by_value("rack")
    browsers.until_script(browser, "return location.search.includes('fact=rack')", "the address")
    browsers.until_script(browser, "return document.querySelector('main').textContent.includes('r-b')", "the groups")
    browser.find_element("link text", "On the map").click()
    browsers.until_script(browser, "return document.querySelector('canvas')?.dataset.drawn === '8'", "the map")
    label = browser.find_element("tag name", "canvas").get_attribute("aria-label")
    assert "1 CRIT, 7 never tested" in label
    # The table beside the picture counts what the picture shows, not the nodes' own verdicts.
    head, *rows = browsers.until_script(
        browser, "return [...document.querySelectorAll('tr')].map((row) => [...row.cells].map((c) => c.innerText))",
        "the table",
    )  # fmt: skip
    of = {row[0]: dict(zip(head, row)) for row in rows}
    assert head[:1] + head[-2:] == ["rack", "never tested", "OK"]
    assert {name: (row["CRIT"], row["never tested"], row["OK"]) for name, row in of.items()} == {
        "r-b": ("1", "3", "0"), "r-a": ("0", "4", "0"),
    }  # fmt: skip


def test_the_map_shows_a_change_as_it_comes(at, running):
    browser = at("map")
    assert "2 CRIT" in browser.find_element("tag name", "canvas").get_attribute("aria-label")

    running.site.hear(report("b3", Verdict.CRIT, "GpuFallenOffBus", started=running.site.now + 1))

    browsers.until_script(
        browser, "return document.getElementById('state').textContent.includes('3 CRIT')", "the change"
    )
    running.site.hear(report("b3", Verdict.OK, started=running.site.now + 2))
    browsers.until_script(
        browser, "return document.getElementById('state').textContent.includes('2 CRIT')", "the end of it"
    )


ASKED = "return performance.getEntriesByType('resource').filter((one) => one.name.includes('/api/layout')).length"
NAMES = (
    "return import('/static/app.js').then(({ page }) =>"
    " page.layout ? page.layout.names.join(' ') + ' ' + page.fleet.letters : '')"
)


def test_names_and_groups_come_once_for_the_map_and_then_what_changed(at, running):
    page = at("problems")
    assert page.execute_script(ASKED) == 0
    page = at("map")
    before = page.execute_script(NAMES)
    asked = page.execute_script(ASKED)
    try:
        with running.site.store.write() as connection:
            nodes.describe(connection, [nodes.NodeDescription("a2x", groups={"rack": "r-a"})])
        *names, letters = before.split()
        place = names.index("a2") + 1
        after = [*names[:place], "a2x", *names[place:], f"{letters[:place]}n{letters[place:]}"]
        browsers.until_script(page, NAMES, " ".join(after))
        assert page.execute_script(ASKED) == asked
    finally:
        with running.site.store.write() as connection:
            connection.execute(sa.delete(schema.nodes).where(schema.nodes.c.node == "a2x"))
    browsers.until_script(page, NAMES, before)
    assert page.execute_script(ASKED) == asked


def letter_of(page, node):
    """The letter of a node on the map, "" while there is no map."""
    *names, letters = page.execute_script(NAMES).split() or [""]
    return letters[names.index(node)] if names else ""


def test_a_change_that_comes_while_the_map_is_asked_for_is_on_it(at, running):
    """The counts are another message than the letters, and come first."""
    page = at("problems")
    page.execute_script(
        "const ask = window.fetch; window.fetch = async (path, options) => {"
        "const answer = await ask(path, options);"
        "if (String(path).startsWith('/api/layout')) await new Promise((go) => { window.letGo = go; });"
        "return answer; };"
        "document.querySelector(\"nav a[href='/view/map']\").click()"
    )
    browsers.until_script(page, "return window.letGo && true", "the answer on its way")
    page.execute_async_script("setTimeout(arguments[0], 200)")
    running.site.hear(report("b3", Verdict.CRIT, "GpuFallenOffBus", started=running.site.now + 3))
    browsers.until_script(page, "return document.getElementById('state').textContent.includes('3 CRIT')", "the change")
    page.execute_async_script("setTimeout(arguments[0], 200)")
    page.execute_script("window.letGo()")
    try:
        until(lambda: letter_of(page, "b3") == "c", what="the change on the map")
    finally:
        running.site.hear(report("b3", Verdict.OK, started=running.site.now + 4))
        browsers.until_script(
            page, "return document.getElementById('state').textContent.includes('2 CRIT')", "the end of it"
        )


def test_the_map_is_walked_with_the_keyboard(at):
    from selenium.webdriver.common.keys import Keys

    browser = at("map")
    canvas = browser.find_element("tag name", "canvas")
    canvas.send_keys(Keys.ARROW_DOWN, Keys.ARROW_DOWN)
    said = browsers.until_script(browser, "return document.getElementById('said').textContent", "what is said")
    assert said in ("b1: CRIT", "a2: WARN")
    canvas.send_keys(Keys.END, Keys.ENTER)
    browsers.until_script(browser, "return location.pathname === '/view/node/b4'", "the node's own screen")


def test_a_form_that_is_being_filled_in_stays_when_something_changes(at, browser, running):
    log_in(browser, running)
    at("node/b1")
    field = browser.find_element("name", "why")
    field.send_keys("waiting for a part")
    browser.execute_script("window.scrollTo(0, 120)")

    running.site.hear(report("a1", Verdict.WARN, "GpuHot", started=running.site.now + 3))
    browsers.until_script(
        browser, "return document.getElementById('state').textContent.includes('2 WARN')", "the change"
    )

    assert field.get_attribute("value") == "waiting for a part"
    running.site.hear(report("a1", Verdict.OK, started=running.site.now + 4))


def test_a_nodes_page_follows_the_node(at, running):
    """The page of a node that turns bad while somebody looks at it says so."""
    browser = at("node/a3")
    assert "No problem stands" in text(browser)

    running.site.hear(report("a3", Verdict.CRIT, "GpuFallenOffBus", started=running.site.now + 5))
    browsers.until_script(
        browser, "return document.querySelector('main').textContent.includes('GpuFallenOffBus')", "it"
    )
    running.site.hear(report("a3", Verdict.OK, started=running.site.now + 6))
    browsers.until_script(
        browser, "return document.querySelector('main').textContent.includes('No problem stands')", ""
    )
    assert "As of " in browser.find_element("id", "asof").text


def test_a_page_that_is_being_typed_into_says_that_it_has_changed(at, browser, running):
    log_in(browser, running)
    at("node/a4")
    field = browser.find_element("name", "why")
    field.send_keys("waiting for a part")

    running.site.hear(report("a4", Verdict.CRIT, "GpuFallenOffBus", started=running.site.now + 7))
    browsers.until_script(
        browser, "return document.querySelector('.new')?.textContent.includes('changed')", "the offer"
    )

    assert field.get_attribute("value") == "waiting for a part"
    browser.find_element("css selector", ".new button").click()
    browsers.until_script(
        browser, "return document.querySelector('main').textContent.includes('GpuFallenOffBus')", "it"
    )
    running.site.hear(report("a4", Verdict.OK, started=running.site.now + 8))


def test_the_loops_steps_reach_the_page_of_an_episode(at, running):
    with running.site.store.write() as connection:
        made, _new = episodes.open_episode(
            connection, "a1", "check_x|Slow|", action="reboot", state="draining", now=running.site.now, by="nhc",
            rung="reboot",
        )  # fmt: skip
    browser = at(f"episode/{made.id}")
    assert "draining" in text(browser)

    with running.site.store.write() as connection:
        current = episodes.get(connection, made.id)
        step = episodes.EpisodeStep("nhc", "aborted", {})
        episodes.save_step(connection, current, step, now=running.site.now, state="aborted", ended=running.site.now)
    browsers.until_script(browser, "return document.querySelector('dl').textContent.includes('aborted')", "the step")


def test_what_needs_a_person_comes_first(at, running):
    browser = at("needs")
    browser.get(f"http://{running.address}/")
    browsers.until_script(browser, f"{READY} === 'needs'", "the first screen")
    approvals = browser.find_element("css selector", "[aria-label^='The longest-waiting']").text
    assert "b1" in approvals
    alone = browser.find_element("css selector", "[aria-label^='On nodes']").text
    assert "GpuFallenOffBus" in alone
    assert "b2" in alone  # CRIT without an episode
    assert "b1" not in alone
    assert "1 node: b4" in text(browser)


def test_back_from_a_search_leads_to_where_one_was(at):
    browser = at("problems")
    box = browser.find_element("css selector", "#find input")
    box.send_keys("a1")
    box.submit()
    browsers.until_script(browser, "return location.pathname === '/view/node/a1'", "the only node of that name")
    browser.back()
    browsers.until_script(browser, f"{READY} === 'problems'", "the screen before")


def test_a_slow_answer_does_not_replace_a_newer_screen(at, browser):
    at("problems")
    browser.execute_script(
        "const ask = window.fetch; window.fetch = async (path, options) => {"
        "if (String(path).startsWith('/api/causes')) await new Promise((go) => { window.letGo = go; });"
        "return ask(path, options); };"
        "document.querySelector(\"nav a[href='/view/held']\").click()"
    )
    browsers.until_script(browser, f"{READY} === 'held'", "another screen")
    browser.find_element("css selector", "nav a[href='/view/problems']").click()
    browsers.until_script(browser, "return document.querySelector('main').textContent.includes('Loading')", "a sign")
    browser.find_element("css selector", "nav a[href='/view/held']").click()
    browsers.until_script(browser, "return document.querySelector('h1').textContent === 'Held back'", "the newer one")
    browser.execute_script("window.letGo()")
    browser.execute_async_script("setTimeout(arguments[0], 200)")
    assert browser.find_element("tag name", "h1").text == "Held back"
    assert browser.title.startswith("Held back")


def log_in(browser, running):
    browser.get(f"http://{running.address}/view/login")
    browsers.until_script(browser, "return document.body.dataset.ready", "the page")
    if "Log out" in browser.find_element("id", "who").text:
        return
    browser.find_element("name", "token").send_keys(TOKENS["olga"])
    browser.find_element("css selector", "main form button").click()
    browsers.until_script(browser, "return document.getElementById('who').textContent.includes('olga')", "the login")


ELSEWHERE = [
    "/\t/evil.example/", "//evil.example", "/\\evil.example", "/\n/evil.example", "https://evil.example/", "",
    "\t//evil.example", "/..//evil.example", "javascript:alert(1)", "/\r\\evil.example", "http://[::1", "//[::1",
    "\x01//evil.example",
]  # fmt: skip


def test_an_address_after_the_login_is_this_servers_own(at, browser, running):
    at("login")
    names = browser.execute_async_script(
        "const done = arguments[arguments.length - 1];"
        "import('/static/app.js').then(({ ours }) => done(arguments[0].map((path) => new URL(ours(path)).host)));",
        [*ELSEWHERE, "/view/nodes?text=a//b"],
    )
    assert set(names) == {running.address}
    kept = browser.execute_async_script(
        "import('/static/app.js').then(({ ours }) => arguments[0](ours('/view/nodes?text=a//b')))"
    )
    assert kept == f"http://{running.address}/view/nodes?text=a//b"


def test_the_login_leads_to_no_other_host(browser, running):
    browser.get(f"http://{running.address}/view/login?then=%2F%09%2Fevil.example%2F")
    browsers.until_script(browser, "return document.body.dataset.ready", "the page")
    browser.execute_async_script(
        "fetch('/logout', {method: 'POST', headers: {'Content-Type': 'application/json'}, body: '{}'})"
        ".then(() => arguments[0]())"
    )
    browser.find_element("name", "token").send_keys(TOKENS["olga"])
    browser.find_element("css selector", "main form button").click()
    browsers.until_script(browser, "return document.getElementById('who').textContent.includes('olga')", "the login")
    assert browser.current_url.startswith(f"http://{running.address}/")


def test_a_repair_is_agreed_to_on_the_page(at, browser, running):
    from selenium.webdriver.common.keys import Keys

    log_in(browser, running)
    at("episode/1")
    form = browser.find_element("css selector", "section[aria-label=Agree] form")
    form.find_element("name", "confirm").send_keys("b2")
    form.find_element("tag name", "button").click()
    browsers.until_script(
        browser, "return document.querySelector('[role=alert]').textContent.includes('type the node')", "no"
    )

    form.find_element("name", "confirm").clear()
    form.find_element("name", "reason").send_keys("seen")
    form.find_element("name", "confirm").send_keys("b1", Keys.ENTER)
    browsers.until_script(
        browser, "return document.querySelector('[role=alert]').textContent.includes('Nothing was sent')", "Enter"
    )
    with running.site.store.read() as connection:
        assert attempts.decisions(connection, 1) == []
    form.find_element("tag name", "button").click()
    browsers.until_script(
        browser, "return document.querySelector('[role=alert], p.done').textContent.includes('approved by olga')", "yes"
    )
    assert "olga" in browser.find_element("css selector", "[aria-label=Decisions]").text  # the page as it is now

    with running.site.store.read() as connection:
        (made,) = attempts.decisions(connection, 1)
    assert (made.decided_by, made.decision, made.reason) == ("olga", "approved", "seen")


def test_an_episode_is_aborted_on_the_page(at, browser, running):
    with running.site.store.write() as connection:
        made, _new = episodes.open_episode(
            connection, "b2", "check_gpu_lost|GpuFallenOffBus|", action="reboot", state="draining",
            now=running.site.now, by="nhc", rung="reboot",
        )  # fmt: skip
    log_in(browser, running)
    has_been_read(running)
    at(f"episode/{made.id}")
    form = browser.find_element("css selector", "section[aria-label=Abort] form")
    form.find_element("name", "reason").send_keys("mine")
    for typed, said in (("b1", "type the node"), ("b2", "is aborted")):
        form.find_element("name", "confirm").clear()
        form.find_element("name", "confirm").send_keys(typed)
        form.find_element("tag name", "button").click()
        script = "return [...document.querySelectorAll('[role=alert], p.done')].some((one) => one.textContent.includes"
        browsers.until_script(browser, f"{script}('{said}'))", said)

    with running.site.store.read() as connection:
        assert episodes.get(connection, made.id).state == "aborted"
    at(f"episode/{made.id}")
    assert browser.find_elements("css selector", "section[aria-label=Abort]") == []


@pytest.mark.parametrize("width", [360, 1280])
def test_nothing_lies_beside_a_narrow_screen(at, browser, width):
    browser.set_window_size(max(width, 500), 900)
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    )
    try:
        for screen in ("map", "problems", "node/b1", "episode/1", "held"):
            at(screen)
            assert browser.execute_script("return document.documentElement.scrollWidth") <= width, screen
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        browser.set_window_size(1280, 900)


class Large:
    """A fleet of a hundred thousand nodes."""

    name = "a large fleet"

    def __init__(self, count):
        self.rows = [
            NodeRow(f"n{number:06}", "CRIT" if number % 997 == 0 else "OK", 1e9, 1e9, "h100",
                    {"rack": f"r{number // 36:04}"}, "agent")
            for number in range(count)
        ]  # fmt: skip
        self.at = 1e9

    def snapshot(self):
        self.at += 1
        return take(self.rows, [], self.at, 1e9)

    def report(self, node):
        return None


def test_a_hundred_thousand_nodes_in_one_picture(browser):
    found = parse(f'listen = "127.0.0.1:{free_ports(1)[0]}"\nrefresh = "10s"\n')
    large = Running(found, Large(100_000), None)
    try:
        until(lambda: large.server.hub.snapshot, 180, what="the first snapshot")
        browser.get(f"http://{large.address}/view/map?by=rack")
        browsers.until_script(
            browser, "return document.querySelector('canvas')?.dataset.drawn === '100000'", "the map", 180
        )
        assert "101 CRIT" in browser.find_element("tag name", "canvas").get_attribute("aria-label")
        assert browser.execute_script("return document.querySelector('canvas').height") < 2400
        # A sick node is seen: red pixels are there, though a cell is three wide.
        # In each of these cells there is a cross, for eyes that see no colour: where a corner of it is white, so is the
        # place below and beside it, and between the two it is red.
        red, crosses = browser.execute_script(
            "const c = document.querySelector('canvas');"
            "const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;"
            "const red = (i) => d[i] === 0xb3 && d[i+1] === 0x14;"
            "const white = (i) => d[i] === 255 && d[i+1] === 255 && d[i+2] === 255 && d[i+3] === 255;"
            "const row = 4 * c.width; let n = 0, x = 0;"
            "for (let i = 0; i < d.length; i += 4) {"
            "  if (red(i)) n++;"
            "  if (white(i) && white(i + row + 4) && red(i + 4) && red(i + row)) x++;"
            "} return [n, x]"
        )
        assert red >= 101 * 20
        assert crosses >= 101
        shown = "return document.querySelector('.map [role=status]').textContent"
        press = "document.querySelector(`.map button[aria-label='${arguments[0]}']`).click();" + shown
        assert browser.execute_script(shown) == ""
        first = browser.execute_script(press, "Zoom in")
        second = browser.execute_script(press, "The next part")
        assert (" to " in first, " to " in second, first != second) == (True, True, True)
        assert browser.execute_script("return document.querySelector('canvas').dataset.drawn") == "100000"
        assert browser.execute_script(press, "The part before") == first
        assert browser.execute_script(press, "Zoom out") == ""
    finally:
        large.stop()


def test_what_the_page_loads_is_its_own(at, browser):
    at("map")
    loaded = browser.execute_script("return performance.getEntriesByType('resource').map((one) => one.name)")
    assert loaded
    assert {json.dumps(name.partition("/")[0]) for name in loaded} == {'"http:"'}
    assert {name.split("/")[2] for name in loaded} == {browser.execute_script("return location.host")}


def test_repairs_alike_are_agreed_to_by_typing_their_set(at, browser, running):
    with running.site.store.write() as connection:
        made = [
            episodes.open_episode(
                connection, node, "check_gpu_lost|GpuLost|", action="reboot", state="awaiting-approval",
                now=running.site.now, by="nhc", rung="reboot",
            )[0].id
            for node in ("a3", "a4")
        ]  # fmt: skip
    log_in(browser, running)
    has_been_read(running)
    at("needs")
    browser.execute_script("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    form = browser.find_element("css selector", "section[aria-label='Agree to reboot of a[3-4], GpuLost'] form")
    for typed, said in (("a3", "type the set of nodes, a[3-4]"), ("a[3-4]", "approved by olga for 2 nodes, a[3-4].")):
        form.find_element("name", "confirm").clear()
        form.find_element("name", "confirm").send_keys(typed)
        form.find_element("tag name", "button").click()
        browsers.until_script(
            browser,
            "return [...document.querySelectorAll('[role=alert], .done')].some((one) =>"
            f" one.textContent.includes('{said}'))",
            said,
        )
    browser.execute_script("document.querySelector('main h1').dataset.before = 'yes'")
    with running.site.store.write() as connection:
        episodes.open_episode(connection, "a5", "check_gpu_lost|GpuLost|", action="reboot", state="awaiting-approval",
                              now=running.site.now, by="nhc", rung="reboot")  # fmt: skip
    browsers.until_script(browser, "return !document.querySelector('main h1').dataset.before", "the page to be renewed")
    still = browser.execute_script("return document.querySelector('p.done')?.textContent")
    assert "a[3-4]." in (still or ""), "what was done is still said"
    with running.site.store.read() as connection:
        assert [attempts.decisions(connection, one)[0].decision for one in made] == ["approved", "approved"]
