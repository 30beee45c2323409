"""The console's server: who gets in, what each may do, what is shown, what is decided."""

import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import urllib.request
from functools import partial
from pathlib import Path

import pytest

from nhc.console import screens
from nhc.console.access import GRANTS, Grant, Role
from nhc.console.doors import HEADERS, IDLE
from nhc.console.hub import Hub
from nhc.console.routes import ROUTES
from nhc.console.scheduler import Scheduler
from nhc.console.settings import parse
from nhc.console.sources import StoreSource
from nhc.core.model import Verdict
from nhc.marks.ports.adapter import AdapterError, Mark, NodeState
from nhc.marks.ports.job_control import WorkItem, WorkList
from nhc.store import attempts, audit, episodes, holds, job_restarts, trains
from nhc.store.errors import StoreError
from nhc.store.job_restarts import WatchedJob
from tests.console.conftest import ROLES, Running, report, settings
from tests.support.other_user import become
from tests.support.ports import free_ports
from tests.support.require import need
from tests.support.waiting import until


def fails():
    raise StoreError("away")


SAMPLE = {"node": "b1", "name": "console.html", "rest": "x", "check": "check_gpu_lost"}


def address(route, site):
    path = route.path.replace("{rest:.*}", "x").replace("{id}", str(site.episode.id))
    for name, value in SAMPLE.items():
        path = path.replace(f"{{{name}}}", value)
    return path


@pytest.mark.thorough
@pytest.mark.parametrize("who", [None, *ROLES])
def test_every_route_is_closed_to_those_without_its_right(console, site, who):
    """All routes with all roles: what is answered is what the table of rights says, and nothing else."""
    rights = GRANTS[Role(ROLES[who])] if who else GRANTS[Role.VIEWER]
    for route in ROUTES:
        if route.path == "/api/stream":
            continue
        headers = {} if who else {"Sec_Fetch_Site": "same-origin"}
        status, _value, _headers = console.ask(
            route.method, address(route, site), {} if route.method == "POST" else None, who, **headers
        )
        allowed = route.scope is Grant.OPEN or route.scope in rights
        assert (status not in (401, 403)) == (allowed and route.path != "/login"), (route, status)


def test_a_route_that_nobody_said_anything_about_is_closed(console):
    assert console.ask("GET", "/nothing/here", who="adam")[0] == 404
    assert console.ask("DELETE", "/api/hold", who="adam")[0] == 405


def test_who_says_no_name_can_look_from_this_machine(console):
    status, me, _headers = console.ask("GET", "/api/me")

    assert (status, me["door"], me["rights"]) == (200, "loopback", ["metrics", "open", "state"])
    assert console.ask("POST", "/api/hold", {}, Sec_Fetch_Site="same-origin")[0] == 403


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec_Fetch_Site": "same-site"},  # another port of this host, to a browser
        {"Sec_Fetch_Site": "cross-site"},
        {"Origin": "http://evil.example"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "null"},
        {},
    ],
)
def test_another_page_cannot_act_with_the_cookie_of_this_one(console, site, headers):
    cookie = log_in(console, "olga")

    status, value, _headers = console.ask("POST", "/api/hold", hold("b1"), Cookie=cookie, **headers)

    assert status == 403, value
    with site.store.read() as connection:
        assert holds.in_force(connection, site.now + 60) == []


def test_the_own_page_can(console, site):
    cookie = log_in(console, "olga")
    for headers in ({"Sec_Fetch_Site": "same-origin"}, {"Origin": f"http://{console.address}"}):
        status, value, _headers = console.ask("POST", "/api/hold", hold("b1"), Cookie=cookie, **headers)
        assert status == 200, value


@pytest.mark.thorough
@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "127.0.0.1:1", ""])
def test_a_name_that_was_rebound_to_loopback_is_refused(console, host):
    assert console.ask("GET", "/api/fleet", Host=host)[0] == 403


def log_in(console, who):
    from tests.console.conftest import TOKENS

    status, _value, headers = console.ask("POST", "/login", {"token": TOKENS[who]}, Sec_Fetch_Site="same-origin")
    assert status == 200
    assert "HttpOnly" in headers["Set-Cookie"]
    assert "SameSite=Strict" in headers["Set-Cookie"]
    return headers["Set-Cookie"].partition(";")[0]


def test_a_session_ends_with_the_logout_and_with_its_time(console):
    cookie = log_in(console, "olga")
    assert console.ask("GET", "/api/me", Cookie=cookie)[1]["name"] == "olga"

    console.ask("POST", "/logout", {}, Cookie=cookie, Sec_Fetch_Site="same-origin")

    assert console.ask("GET", "/api/me", Cookie=cookie)[1]["name"] == ""
    cookie = log_in(console, "olga")
    console.server.doors.clock = lambda: 4e9
    assert console.ask("GET", "/api/me", Cookie=cookie)[1]["name"] == ""


@pytest.mark.parametrize("header", ["X-Forwarded-For", "X-Real-IP", "Forwarded", "Via", "X-Forwarded-User"])
def test_a_proxy_on_this_machine_is_not_this_machine(console, header):
    headers = {header: "192.0.2.7"}
    assert console.ask("GET", "/api/fleet", **headers)[0] == 401
    assert console.ask("GET", "/metrics", **headers)[0] == 200
    assert console.ask("GET", "/api/fleet", None, "vera", **headers)[0] == 200


@pytest.mark.parametrize(
    "more", ['origin = "https://nhc.example.org"\n', '[proxy]\naddresses = ["127.0.0.1"]\nsecret_file = "{}"\n']
)
def test_where_the_settings_name_a_proxy_nobody_without_a_name_is_let_in(site, tmp_path, more):
    secret = tmp_path / "secret"
    secret.write_text("0123456789abcdef")
    port = free_ports(1)[0]
    found = parse(f'listen = "127.0.0.1:{port}"\n{more.format(secret)}[people.zoe]\nroles = ["viewer"]\n')
    running = Running(found, StoreSource(site.store, 600), site.store)
    try:
        assert running.ask("GET", "/api/fleet")[0] == 401
        named = {"X_Remote_User": "zoe", "X_Nhc_Proxy_Secret": "0123456789abcdef"}
        assert running.ask("GET", "/api/fleet", **named)[0] == (200 if found.proxy else 401)
    finally:
        running.stop()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
@pytest.mark.thorough
@pytest.mark.parametrize(("uid", "status"), [(33, 401), (61500, 401), (65534, 401), (1000, 200), (0, 200)])
def test_a_bare_proxy_is_known_by_its_service_account(console, uid, status):
    """nginx's plain proxy_pass adds no header, and names the console's own address as the host."""
    code = (
        "import socket, sys\nwith socket.create_connection((sys.argv[1], int(sys.argv[2]))) as s:\n"
        " s.sendall(f'GET /api/fleet HTTP/1.0\\r\\nHost: {sys.argv[1]}:{sys.argv[2]}\\r\\n\\r\\n'.encode())\n"
        " print(s.makefile('rb').readline().decode())"
    )
    host, _, port = console.address.rpartition(":")
    run = subprocess.run(
        ["/usr/bin/python3", "-c", code, host, port], user=uid, capture_output=True, text=True, timeout=60, check=True
    )  # fmt: skip
    assert run.stdout.split()[1] == str(status)


def stream_of(console, **headers):
    asked = urllib.request.Request(f"http://{console.address}/api/stream", headers=headers)
    stream = urllib.request.urlopen(asked, timeout=60)
    assert next_event(stream)[0] == "resync"
    return stream


@pytest.mark.parametrize("end", ["logout", "the session's", "the token's"])
@pytest.mark.thorough
def test_a_stream_ends_with_what_let_it_in(console, site, end):
    cookie = log_in(console, "olga")
    register = console.server.settings.register
    if end == "the token's":
        stream = stream_of(console, Authorization="Bearer vera-secret-token")
        tokens = tuple(token._replace(ends=1.0) for token in register.tokens)
        console.server.doors.settings = console.server.settings._replace(register=register._replace(tokens=tokens))
    else:
        stream = stream_of(console, Cookie=cookie)
    if end == "logout":
        console.ask("POST", "/logout", {}, Cookie=cookie, Sec_Fetch_Site="same-origin")
    elif end == "the session's":
        console.server.doors.clock = lambda: 4e9
    site.hear(report("a2", Verdict.CRIT, "GpuFallenOffBus", started=site.now + 1))
    assert b"letters" not in stream.read(), "nothing more is sent, and it ends"
    stream.close()


@pytest.mark.parametrize("origin", ["http://[::1", "http://[", "//[", "http://a]", "http://[::1]:x", "http://\xbd"])
def test_an_origin_that_is_none_is_another_pages(console, origin):
    cookie = log_in(console, "olga")
    assert console.ask("POST", "/api/hold", hold("b1"), Cookie=cookie, Origin=origin)[0] == 403


def test_a_page_that_nobody_uses_does_not_keep_its_own_session(console):
    cookie, now = log_in(console, "olga"), console.server.clock()

    def name(at, **headers):
        console.server.doors.clock = lambda: now + at
        return console.ask("GET", "/api/me", Cookie=cookie, **headers)[1]["name"]

    assert [name(at) for at in (0, IDLE / 2, IDLE - 1)] == ["olga"] * 3
    assert name(IDLE - 1, X_Nhc_Attended="yes") == "olga"
    assert name(2 * IDLE - 60, Sec_Fetch_Mode="navigate") == "olga"
    assert name(3 * IDLE - 120) == "olga"
    assert [name(3 * IDLE - 100 + at) for at in range(0, 200, 20)][-1] == ""


def test_wrong_tokens_and_logins_are_in_the_log_and_in_the_audit_log(console, site, capfd):
    def rows():
        with site.store.read() as connection:
            return [row for row in audit.entries(connection, limit=1000) if row.what == "console.login-refused"]

    assert console.ask("POST", "/login", {"token": "guess"}, Sec_Fetch_Site="same-origin")[0] == 401
    assert console.ask("GET", "/api/fleet", Authorization="Bearer guess")[0] == 401
    until(lambda: len(rows()) == 2)
    assert sorted(json.loads(row.detail)["door"] for row in rows()) == ["login", "token"]
    assert "guess" not in str(rows())
    assert capfd.readouterr().err.count("127.0.0.1: an unknown ") == 1, "one line of an address and minute"
    for _ in range(200):
        console.ask("GET", "/api/fleet", Authorization="Bearer guess")
    until(lambda: len(rows()) >= 10)
    assert len(rows()) == 10, "whoever guesses does not fill the audit log"


def test_a_wrong_token_is_nobody(console):
    assert console.ask("POST", "/login", {"token": "guess"}, Sec_Fetch_Site="same-origin")[0] == 401
    assert console.ask("GET", "/api/fleet", Authorization="Bearer guess")[0] == 401
    assert console.ask("GET", "/api/fleet", Authorization="Bearer \xff")[0] == 401  # a byte that is no UTF-8
    assert (
        console.ask("POST", "/login", {"token": "\ud800"}, Sec_Fetch_Site="same-origin")[0] == 409
    )  # half a character


def test_every_answer_forbids_what_a_page_could_be_tricked_into(console):
    for path in ("/", "/static/console.html", "/api/fleet", "/nothing", "/healthz"):
        headers = console.ask("GET", path)[2]
        for name, value in HEADERS.items():
            if name != "Cache-Control":
                assert headers[name] == value, path


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["../server.py", "..%2fserver.py", "x.js", "console.html", "%00.js"])
def test_no_other_file_is_served(console, name):
    assert console.ask("GET", f"/static/{name}")[0] == 404


# What is shown.


@pytest.mark.thorough
def test_the_fleet_is_a_letter_a_node(console):
    layout = console.ask("GET", "/api/layout")[1]
    fleet = console.ask("GET", "/api/fleet")[1]

    assert layout["names"] == ["a1", "a2", "a3", "a4", "b1", "b2", "b3", "b4"]
    assert fleet["letters"] == "ooooccon"
    assert fleet["counts"] == {"c": 2, "u": 0, "w": 0, "s": 0, "n": 1, "o": 5}
    assert [layout["values"]["rack"][place] for place in layout["places"]["rack"]][::4] == ["r-a", "r-b"]


@pytest.mark.thorough
def test_stale_is_stale_and_never_healthy(console, site):
    console.server.source.clock = lambda: site.now + 3600
    until(lambda: console.ask("GET", "/api/fleet")[1]["letters"] == "sssssssn", what="the states to be stale")


@pytest.mark.thorough
def test_problems_are_folded_by_cause(console):
    (cause,) = console.ask("GET", "/api/causes")[1]["causes"]

    assert (cause["reason"], cause["affected"], cause["nodes"]) == ("GpuFallenOffBus", 2, "b[1-2]")
    assert cause["shares"] == [["rack", "r-b", 2, 4]]
    assert sum(cause["trend"]) == 2


@pytest.mark.thorough
def test_a_node_is_shown_with_its_problems_and_its_evidence_to_those_who_may(console):
    seen = console.ask("GET", "/api/node/b1", who="olga")[1]
    assert seen["problems"][0]["reason"] == "GpuFallenOffBus"
    assert seen["report"]["host"] == "b1"
    assert [one["state"] for one in seen["episodes"]] == ["awaiting-approval"]

    assert console.ask("GET", "/api/node/b1", who="vera")[1]["report"] is None
    assert console.ask("GET", "/api/node/nobody", who="olga")[0] == 404


def test_a_check_recolours_the_map(console):
    assert console.ask("GET", "/api/check/check_gpu_lost")[1]["letters"] == "ooooccon"
    assert console.ask("GET", "/api/check/check_fs_mount")[1]["letters"] == "ooooooon"


def test_checks_by_group_and_groups(console):
    rows = console.ask("GET", "/api/checks?fact=rack")[1]["rows"]
    assert rows == [{"check": "check_gpu_lost", "group": "r-b", "crit": 2, "unknown": 0, "warn": 0, "nodes": 3}]
    groups = console.ask("GET", "/api/groups?fact=rack")[1]["rows"]
    assert [(row["group"], row["nodes"]) for row in groups] == [("r-b", 4), ("r-a", 4)]


@pytest.fixture
def repaired(site):
    """Four repairs that have ended, before the console starts: it counts them at once."""
    with site.store.write() as connection:
        for number, (node, took, state) in enumerate(
            [("a1", 100, "returned"), ("a1", 300, "returned"), ("a2", 200, "returned"), ("a1", 9, "escalated")]
        ):
            one, _new = episodes.open_episode(
                connection, node, f"c{number}", action="reboot", state="draining", now=site.now - 1000, by="nhc"
            )
            episodes.save_step(connection, one, step("nhc", "ended"), now=site.now, state=state,
                               ended=site.now - 1000 + took)  # fmt: skip
    return site


def test_failure_rates_are_of_a_fact_and_a_date_that_there_is(console):
    status, seen, *_ = console.ask("GET", "/api/rates?by=rack&days=7")
    assert status == 200
    assert {row["value"] for row in seen["rows"]} >= {"r-b"}
    assert sum(row["rate"]["faults"] for row in seen["rows"]) > 0
    for wrong in ("by=colour", "days=0", "days=9999", "since=99999999999", "since=x"):
        assert console.ask("GET", f"/api/rates?{wrong}")[0] == 409


def test_offenders_are_counted(repaired, console):
    seen = console.ask("GET", "/api/offenders")[1]
    assert (seen["episodes"], seen["outcomes"]) == (4, {"returned": 3, "escalated": 1})
    assert seen["repeat"] == [{"node": "a1", "episodes": 3}]
    assert seen["median_seconds_to_return"] == pytest.approx(200)
    assert seen["p90_seconds_to_return"] == pytest.approx(300)


def test_the_store_counts_offenders_once_a_minute_for_all_who_look(site):
    clock, made = [site.now], []
    hub = Hub(StoreSource(site.store, 600), 60, lambda: clock[0])

    def count():
        made.append(clock[0])
        return screens.offenders(site.store, clock[0])

    async def story():
        asked = [await hub.once_a_minute("offenders", count) for _ in range(5)]
        with site.store.write() as connection:
            episodes.save_step(
                connection, site.episode, step("nhc", "ended"), now=site.now, state="returned", ended=site.now
            )
        clock[0] += 59
        asked.append(await hub.once_a_minute("offenders", count))
        clock[0] += 1
        return asked, await hub.once_a_minute("offenders", count)

    asked, later = asyncio.run(story())
    assert [(one["episodes"], one["at"]) for one in asked] == [(0, site.now)] * 6
    assert (later["episodes"], later["at"]) == (1, site.now + 60)
    assert later["median_seconds_to_return"] == pytest.approx(20)
    assert made == [site.now, site.now + 60]


def test_nobody_waits_for_a_count_that_is_made_ahead(site):
    clock, made = [site.now], []
    hub = Hub(StoreSource(site.store, 600), 60, lambda: clock[0])

    def count():
        made.append(clock[0])
        return {"at": clock[0]}

    async def story():
        seen = []
        for _ in range(10):
            await hub.count_ahead("one", count)
            before = len(made)
            seen.append((await hub.once_a_minute("one", count))["at"])
            assert len(made) == before
            clock[0] += 15
        await hub.count_ahead("one", fails)
        seen.append((await hub.once_a_minute("one", count))["at"])
        clock[0] += 60
        with pytest.raises(StoreError):
            await hub.once_a_minute("one", fails)
        return [at - site.now for at in seen]

    assert asyncio.run(story()) == [0, 0, 30, 30, 60, 60, 90, 90, 120, 120, 120]
    assert len(made) == 5


@pytest.mark.thorough
def test_the_console_has_counted_before_anybody_asks(console):
    until(lambda: "offenders" in console.server.hub._counts, what="the background's first count")


def test_a_count_that_failed_is_made_anew(site):
    hub = Hub(StoreSource(site.store, 600), 60, lambda: site.now)

    async def story():
        with pytest.raises(StoreError):
            await hub.once_a_minute("one", fails)
        return [await hub.once_a_minute("one", partial(dict, n=number)) for number in (1, 2)]

    assert asyncio.run(story()) == [{"n": 1}, {"n": 1}]


def test_an_error_that_nobody_foresaw_is_shown_and_reading_goes_on(site):
    source = StoreSource(site.store, 600)
    hub = Hub(source, 0.01, lambda: site.now)
    whole, broken = source.snapshot, [True]
    source.snapshot = lambda: broken.index(False) if broken else whole()

    async def story():
        reading = asyncio.create_task(hub.run())
        queue = hub.join(None)
        said = [await queue.get(), await queue.get()]
        broken.clear()
        said.append(await queue.get())
        reading.cancel()
        return said

    said = asyncio.run(asyncio.wait_for(story(), 60))
    assert [b"internal error: ValueError" in event.text for event in said] == [False, True, False]
    assert (hub.problem, hub.snapshot is not None) == ("", True)


def test_reading_ahead_goes_on_after_an_error_that_nobody_foresaw(console):
    class Broken:
        def refresh(self, _snapshot):
            raise ValueError("unforeseen")

    reading = console.server._read_ahead(console.server.store, Broken())
    with pytest.raises(asyncio.TimeoutError):
        asyncio.run(asyncio.wait_for(reading, 0.3))


@pytest.mark.thorough
def test_a_view_of_one_snapshot_is_made_once_for_all_who_look(console, monkeypatch):
    from nhc.console import screens

    made, real = [], screens.groups
    monkeypatch.setattr(screens, "groups", lambda snapshot, fact: made.append(snapshot) or real(snapshot, fact))
    asked = [console.ask("GET", "/api/groups?fact=rack")[0] for _ in range(30)]

    assert asked == [200] * 30
    assert len(made) == len({id(one) for one in made}) < 30  # each snapshot once
    monkeypatch.setattr(screens, "groups", real)
    assert console.ask("GET", "/api/groups?fact=pool")[1]["rows"][0]["group"] == ""  # another view is another answer


def test_a_timeline_shows_gaps_as_gaps(console, site):
    seen = console.ask("GET", f"/api/node/b1/timeline?from={site.now - 7200}&to={site.now}")[1]

    assert seen["problems"][0]["began"] == pytest.approx(site.now - 30)
    assert seen["gaps"]
    assert console.ask("GET", "/api/node/b1/timeline?from=9&to=8")[0] == 409
    assert console.ask("GET", "/api/node/b1/timeline?from=x")[0] == 409


def test_an_open_page_does_not_hold_up_the_end_of_the_console(site):
    found = settings(free_ports(1)[0])
    running = Running(found, StoreSource(site.store, found.stale), site.store)
    with stream_of(running) as stream:
        running.stop()
        assert b"letters" not in stream.read(), "it ends"


@pytest.mark.thorough
def test_the_stream_tells_what_changes_and_resumes(console, site):
    stream = urllib.request.urlopen(f"http://{console.address}/api/stream", timeout=60)
    assert next_event(stream)[0] == "resync"

    site.hear(report("a2", Verdict.CRIT, "GpuFallenOffBus", started=site.now + 1))
    number, data = wait_event(stream, "letters")
    assert data["changes"] == [[1, "c"]]
    stream.close()

    site.hear(report("a3", Verdict.WARN, "GpuHot", started=site.now + 2))
    until(lambda: console.server.hub.snapshot.letters[2] == "w", what="the change to be read")
    again = urllib.request.Request(f"http://{console.address}/api/stream", headers={"Last-Event-ID": str(number)})
    stream = urllib.request.urlopen(again, timeout=60)
    assert wait_event(stream, "letters")[1]["changes"] == [[2, "w"]]
    stream.close()


def next_event(stream):
    import json

    found = {}
    while True:
        line = stream.readline().decode().strip()
        if not line and found:
            return found["event"], int(found["id"]), json.loads(found["data"])
        key, _, value = line.partition(": ")
        if key:
            found[key] = value


def wait_event(stream, kind):
    while True:
        event, number, data = next_event(stream)
        if event == kind:
            return number, data


@pytest.mark.thorough
def test_a_store_that_is_away_leaves_the_last_picture_and_says_so(console, site, monkeypatch):
    from nhc.store.errors import StoreError

    def away():
        raise StoreError("the database is away")

    monkeypatch.setattr(console.server.source, "snapshot", away)
    until(lambda: console.ask("GET", "/api/fleet")[1]["trouble"], what="the trouble to be told")

    assert console.ask("GET", "/api/fleet")[1]["letters"] == "ooooccon"
    assert console.ask("GET", "/healthz")[0] == 503
    assert "nhc_fleet_source_up 0" in console.ask("GET", "/metrics")[1]


def test_the_metrics_have_no_label_of_a_node(console):
    text = console.ask("GET", "/metrics")[1]

    assert 'nhc_fleet_nodes{state="crit"} 2' in text
    assert 'nhc_fleet_problems{check="check_gpu_lost",verdict="crit"} 2' in text
    assert 'nhc_fleet_episodes{state="awaiting-approval"} 1' in text
    assert 'nhc_fleet_episodes{state="acting"} 0' in text, "before the first"
    assert 'nhc_fleet_breaker_open{name="remedy"} 0' in text
    assert 'nhc_fleet_node_events{by="rack",value="r-b",kind="faults"} ' in text
    assert 'nhc_fleet_node_days{by="",value=""} ' in text
    assert "b1" not in text


# What is decided.


def shown(console, site):
    return console.ask("GET", f"/api/episode/{site.episode.id}", who="olga")[1]


def decision(console, site, **changes):
    return {
        "decision": "approved",
        "digest": shown(console, site)["digest"],
        "confirm": "b1",
        "reason": "seen it",
        **changes,
    }


def decide(console, site, who, **changes):
    return console.ask("POST", f"/api/episode/{site.episode.id}/decision", decision(console, site, **changes), who)


@pytest.mark.thorough
def test_a_repair_is_agreed_to_once_by_each_person_and_written_down(console, site):
    assert decide(console, site, "olga")[0] == 200
    assert decide(console, site, "olga")[0] == 503  # the store: it takes another person
    assert decide(console, site, "adam")[0] == 200

    with site.store.read() as connection:
        found = attempts.decisions(connection, site.episode.id)
        said = [entry.what for entry in audit.entries(connection, episode=site.episode.id)]
    assert [(one.decided_by, one.decision, one.attempt_number) for one in found] == [
        ("olga", "approved", 1), ("adam", "approved", 1),
    ]  # fmt: skip
    assert said.count("approval.approved") == 2


@pytest.fixture
def alike(site):
    """Two more nodes with the fault of b1, whose reboot waits for agreement as well."""
    with site.store.write() as connection:
        for node in ("b2", "b3"):
            episodes.open_episode(connection, node, "check_gpu_lost|GpuFallenOffBus|gpu1", action="reboot",
                                  state="awaiting-approval", now=site.now, by="nhc", rung="reboot")  # fmt: skip


def agree_to_all(console, who="olga", **changes):
    (one,) = until(lambda: console.ask("GET", "/api/needs", None, "olga")[1]["alike"], what="the set")
    body = {"decision": "approved", "episodes": one["episodes"], "confirm": one["nodes"], "reason": "seen", **changes}
    return console.ask("POST", "/api/decisions", body, who)


def decided(site):
    with site.store.read() as connection:
        found = episodes.list_episodes(connection, is_open=True)
        return sorted(one.node for one in found if attempts.decisions(connection, one.id))


@pytest.mark.thorough
def test_several_repairs_alike_are_agreed_to_by_one_confirmation_of_the_set(console, site, alike):
    status, value, _headers = agree_to_all(console, confirm="b[1-2]")
    assert (status, "type the set of nodes, b[1-3]" in value["error"]) == (409, True)
    assert agree_to_all(console, who="vera")[0] == 403
    assert agree_to_all(console, episodes="1")[0] == 409
    assert agree_to_all(console, episodes="\u00b2:x")[0] == 409
    assert decided(site) == []

    status, value, _headers = agree_to_all(console)
    assert (status, value["nodes"], value["refused"]) == (200, "b[1-3]", [])
    assert decided(site) == ["b1", "b2", "b3"]


def test_of_a_set_what_has_moved_on_is_not_decided_and_is_named(console, site, alike):
    (one,) = until(lambda: console.ask("GET", "/api/needs")[1]["alike"], what="the set")
    with site.store.write() as connection:
        moved = episodes.list_episodes(connection, node="b2")[-1]
        episodes.save_step(connection, moved, step("nhc", "moved"), now=site.now, state="draining")

    body = {"decision": "approved", "episodes": one["episodes"], "confirm": one["nodes"], "reason": "seen"}
    status, value, _headers = console.ask("POST", "/api/decisions", body, "olga")

    assert (status, value["nodes"]) == (200, "b[1,3]")
    assert [said.partition(":")[0] for said in value["refused"]] == ["b2"]
    assert decided(site) == ["b1", "b3"]


def test_repairs_that_differ_are_not_one_set(console, site, alike):
    with site.store.write() as connection:
        other, _new = episodes.open_episode(connection, "a1", "check_x|Slow|", action="reboot", rung="reboot",
                                            state="awaiting-approval", now=site.now, by="nhc")  # fmt: skip
    body = {"decision": "approved", "episodes": f"{site.episode.id}:x {other.id}:x", "confirm": "a1,b1"}
    status, value, _headers = console.ask("POST", "/api/decisions", body, "olga")
    assert (status, "not alike" in value["error"]) == (409, True)


@pytest.mark.thorough
def test_a_problem_has_its_next_step_and_whether_its_node_is_in_service(console, site, alike):
    def waiting():
        (cause,) = console.ask("GET", "/api/causes")[1]["causes"]
        return [cause["out"], cause["plans"][0]["next"], cause["plans"][0]["nodes"]] == [
            0, "waits for your agreement to reboot", 2,
        ]  # fmt: skip

    until(waiting, what="what follows for both nodes")
    rows = console.ask("GET", "/api/cause?check=check_gpu_lost&reason=GpuFallenOffBus")[1]["rows"]
    assert [(row["node"], row["person"], row["out"]) for row in rows] == [("b1", True, False), ("b2", True, False)]


@pytest.mark.thorough
def test_a_reason_is_explained_as_nhc_explain_does(console):
    sections = console.ask("GET", "/api/explain/GpuLost")[1]["sections"]
    assert [heading for heading, _text in sections[1:3]] == ["What it means", "Likely causes"]
    assert console.ask("GET", "/api/explain/check_gpu_lost")[1]["sections"][0][0] == "check_gpu_lost"
    assert console.ask("GET", "/api/explain/NoSuchThing")[0] == 404


@pytest.mark.thorough
def test_the_history_of_the_fleet_has_what_stood_and_what_was_repaired(console, site):
    with site.store.write() as connection:
        one = episodes.get(connection, site.episode.id)
        episodes.save_step(connection, one, step("nhc", "done"), now=site.now, state="returned", ended=site.now)
    site.hear(report("b1", started=site.now - 5))

    value = console.ask("GET", "/api/history?days=1")[1]

    assert value["parts"][-1]["standing"] == {"CRIT": 1}  # b2; b1 has recovered
    assert sum(part["opened"] for part in value["parts"]) == 1
    assert value["parts"][-1]["ended"] == {"returned": 1}
    assert console.ask("GET", "/api/history?days=2")[0] == 409


@pytest.mark.thorough
def test_the_history_of_the_fleet_has_no_maintenance_among_its_repairs(console, site):
    with site.store.write() as connection:
        trains.create(
            connection, "kernel", [["b1"], ["b2"]], plan="", digest="", state="running", node_state="planned",
            by="alice", why="a new kernel", now=site.now - 60,
        )  # fmt: skip
        one = trains.nodes_of(connection, trains.get(connection, "kernel").id)[0]
        episodes.save_step(connection, one, step("nhc train", "done"), now=site.now, state="returned", ended=site.now)

    parts = console.ask("GET", "/api/history?days=1")[1]["parts"]

    assert sum(part["opened"] for part in parts) == 1  # the site's one repair
    assert [part["ended"] for part in parts if part["ended"]] == []


def test_what_has_moved_on_since_it_was_shown_is_not_decided(console, site):
    old = shown(console, site)["digest"]
    with site.store.write() as connection:
        one = episodes.get(connection, site.episode.id)
        episodes.save_step(connection, one, step("nhc", "moved"), now=site.now, rung="power-cycle")

    status, value, _headers = decide(console, site, "olga", digest=old)

    assert (status, value["error"]) == (409, "the episode has moved on since this page was shown: look again")


def step(actor, what):
    return episodes.EpisodeStep(actor, what)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"confirm": "b2"}, "type the node's name, b1, to confirm"),
        ({"decision": "maybe"}, "a decision is approved or refused"),
        ({"decision": "refused", "reason": ""}, "say why it is refused"),
        ({"digest": ""}, "the episode has moved on since this page was shown: look again"),
    ],
)
def test_a_decision_that_is_not_clear_is_refused(console, site, changes, said):
    status, value, _headers = decide(console, site, "olga", **changes)

    assert (status, value["error"]) == (409, said)
    with site.store.read() as connection:
        assert attempts.decisions(connection, site.episode.id) == []


@pytest.mark.thorough
def test_a_person_decides_about_their_own_nodes_alone(console, site):
    assert decide(console, site, "nina")[1]["error"] == "nina may decide nothing about b1"
    assert console.ask("POST", "/api/hold", hold("b1"), "nina")[0] == 409
    assert console.ask("POST", "/api/hold", {**hold("rack=r-a", "4"), "scope": "group"}, "nina")[0] == 409
    assert console.ask("POST", "/api/hold", hold("a1"), "nina")[0] == 200


def hold(name, count="1"):
    return {"scope": "node", "name": name, "why": "being looked at", "confirm": count, "until": "3600"}


def test_a_hold_names_how_many_nodes_it_concerns(console, site):
    seen = console.ask("GET", "/api/hold/preview?scope=group&name=rack%3Dr-b", who="olga")[1]
    assert seen == {"count": 4, "nodes": "b[1-4]"}
    group = {**hold("rack=r-b", "3"), "scope": "group"}
    assert console.ask("POST", "/api/hold", group, "olga")[1]["error"] == (
        "it concerns 4 nodes: type that number to confirm"
    )

    assert console.ask("POST", "/api/hold", {**group, "confirm": "4"}, "olga")[0] == 200
    assert console.ask("GET", "/api/held", who="olga")[1]["holds"][0]["name"] == "rack=r-b"
    assert console.ask("POST", "/api/release", {"scope": "group", "name": "rack=r-b"}, "olga")[0] == 200
    assert console.ask("POST", "/api/release", {"scope": "group", "name": "rack=r-b"}, "olga")[0] == 409


def test_the_audit_is_for_those_who_audit(console, site):
    console.ask("POST", "/api/hold", hold("b1"), "olga")

    entries = console.ask("GET", "/api/audit", who="alma")[1]["entries"]

    assert (entries[0]["actor"], entries[0]["what"]) == ("olga", "hold.set")
    assert console.ask("GET", "/api/audit", who="olga")[0] == 403


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("body", "kind"),
    [
        *((body, "application/json") for body in ("[]", "{", '{"a": 1}', "[" * 100_000)),
        ("{}", "application/json; charset=no-such-one"),
    ],
)
def test_a_body_that_makes_no_sense_is_one_line(console, body, kind):
    request = urllib.request.Request(
        f"http://{console.address}/api/hold", data=body.encode(), method="POST",
        headers={"Content-Type": kind, "Authorization": "Bearer olga-secret-token"},
    )  # fmt: skip
    with pytest.raises(urllib.error.HTTPError) as error:
        urllib.request.urlopen(request, timeout=60)
    assert error.value.code in (409, 413)
    error.value.close()


@pytest.mark.parametrize("request_line", [b"GET / HTTP/1.1", b"GET /nothing HTTP/1.1", b"\x00 no request"])
def test_no_answer_names_a_version_of_the_server(console, request_line):
    host, _, port = console.address.rpartition(":")
    with socket.create_connection((host, int(port)), 60) as client:
        client.sendall(request_line + f"\r\nHost: {console.address}\r\nConnection: close\r\n\r\n".encode())
        said = b"".join(iter(lambda: client.recv(65536), b"")).decode()
    assert [line for line in said.splitlines() if line.startswith("Server:")] == ["Server: nhc"]


# The socket.


def test_who_is_at_the_other_end_of_the_socket_is_asked_of_the_kernel(site, tmp_path):
    path = tmp_path / "console.sock"
    found = parse(f'listen = "unix:{path}"\n[people.root]\nroles = ["operator"]\n')
    running = Running(found, StoreSource(site.store, 600), site.store)
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
            client.sendall(b"GET /api/me HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            said = b"".join(iter(lambda: client.recv(65536), b"")).decode()
    finally:
        running.stop()
    assert '"name":"root"' in said
    assert '"roles":["admin","operator"]' in said


def test_a_user_without_a_name_is_the_same_person_at_the_socket_and_at_a_command(site):
    """Two names would be two approvals of one person."""
    need("root", os.geteuid() == 0, "to become another user")
    ask = (
        "import socket, sys; c = socket.socket(socket.AF_UNIX); c.connect(sys.argv[1]);"
        "c.sendall(b'GET /api/me HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n');"
        "print(b''.join(iter(lambda: c.recv(65536), b'')).decode())"
    )
    tell = "from nhc.core.command_line.common_options import person; print(person())"
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(Path(__file__).resolve().parents[2])}

    def nameless(*words):
        argv = [sys.executable, "-c", *words]
        return subprocess.run(
            argv, env=env, preexec_fn=lambda: become(64321), capture_output=True, text=True, check=True, cwd="/",
            timeout=60,
        ).stdout  # fmt: skip

    with tempfile.TemporaryDirectory() as place:  # pytest's own are closed to others
        os.chmod(place, 0o755)
        running = Running(parse(f'listen = "unix:{place}/c"\n'), StoreSource(site.store, 600), site.store)
        try:
            os.chmod(f"{place}/c", 0o666)
            name = json.loads(nameless(ask, f"{place}/c").partition("\n\n")[2])["name"]
        finally:
            running.stop()
    assert name == nameless(tell).strip() == "64321"


@pytest.mark.thorough
def test_a_proxy_that_runs_as_root_is_no_administrator(site, tmp_path):
    path = tmp_path / "console.sock"
    running = Running(parse(f'listen = "unix:{path}"\n'), StoreSource(site.store, 600), site.store)
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
            client.sendall(b"GET /api/me HTTP/1.1\r\nHost: x\r\nVia: 1.1 px\r\nConnection: close\r\n\r\n")
            said = b"".join(iter(lambda: client.recv(65536), b"")).decode()
    finally:
        running.stop()
    assert '"roles":[]' in said


def test_a_viewer_that_reads_nothing_holds_up_nobody(console):
    hub = console.server.hub
    queue = hub.join(None)
    done = threading.Event()

    def tell():
        for _ in range(2000):
            hub.notify("holds")
        done.set()

    console.loop.call_soon_threadsafe(tell)
    assert done.wait(60)
    assert hub.dropped == 1
    assert queue.get_nowait() is None


class Slurmctld:
    """A scheduler with one drained node, or one that does not answer."""

    def __init__(self):
        self.asked, self.away = 0, False

    def nodes(self, names=None):
        self.asked += 1
        if self.away:
            raise AdapterError("slurmctld does not answer")
        return [NodeState("b1", "MIXED+DRAIN", False, busy=True, mark=Mark("disk", owner="ann"), groups=("gpu",))]


def test_a_nodes_page_has_the_schedulers_state_beside_it(site):
    asked, now = Slurmctld(), [site.now]
    scheduler = Scheduler("slurm", asked, clock=lambda: now[0])

    async def main():
        drained = "slurm: MIXED+DRAIN; takes no work; work runs there; in gpu; reason: disk (ann)"
        assert await scheduler.state("b1") == drained
        assert await scheduler.state("b2") == "slurm has no such node"
        assert asked.asked == 1
        asked.away, now[0] = True, now[0] + 31
        assert await scheduler.state("b1") == "slurm cannot be asked: slurmctld does not answer"

    asyncio.run(main())

    found = settings(free_ports(1)[0])
    asked.away = False
    running = Running(found, StoreSource(site.store, found.stale), site.store)
    try:
        running.server.scheduler = Scheduler("slurm", asked)
        until(lambda: running.server.hub.snapshot, what="the first snapshot")
        assert "MIXED+DRAIN" in running.ask("GET", "/api/node/b1", None, "vera")[1]["scheduler"]
    finally:
        running.stop()


class Working(Slurmctld):
    """The same, with work on its node."""

    items = tuple(WorkItem(str(number), "train", "ann", "RUNNING", float(number)) for number in range(120, 0, -1))

    def work_on(self, node):
        self.asked += 1
        if self.away:
            raise AdapterError("slurmctld does not answer")
        return WorkList(self.items, "Jobs of others may be hidden")


def test_the_work_on_a_node_is_asked_for_now_and_then_and_bounded():
    asked, now = Working(), [0.0]
    scheduler = Scheduler("slurm", asked, clock=lambda: now[0])
    none = {"scheduler": "slurm", "rows": [], "left_out": 0}

    async def ask(node):
        return await scheduler.work(node, {})

    async def main():
        first = await ask("b1")
        assert [row["id"] for row in first["rows"]] == [str(number) for number in range(1, 101)]
        assert (first["left_out"], first["note"], first["problem"]) == (20, "Jobs of others may be hidden", "")
        assert await ask("b1") == first
        assert asked.asked == 1
        asked.away, now[0] = True, 31.0
        away = {**none, "note": "", "problem": "slurm cannot be asked: slurmctld does not answer"}
        assert [await ask("b1"), await ask("b1"), await ask("b2")] == [away] * 3
        assert asked.asked == 3
        cannot = await Scheduler("lsf", Slurmctld()).work("b1", {})
        assert cannot["problem"] == "the adapter lsf cannot tell what works on a node"

    asyncio.run(main())


def test_a_scheduler_that_does_not_answer_holds_up_no_page():
    class Hanging(Slurmctld):
        def work_on(self, node):
            self.asked += 1
            assert free.wait(60)
            return WorkList(Working.items[:1])

    free, asked = threading.Event(), Hanging()
    scheduler = Scheduler("slurm", asked, wait=0.01, clock=lambda: 0.0)

    async def main():
        nodes = [f"n{number}" for number in range(12)]
        try:
            answers = await asyncio.gather(*(scheduler.work(node, {}) for node in nodes * 3))
            assert {answer["problem"] for answer in answers} == {"slurm has not answered yet"}
            assert await scheduler.state("b1") == "slurm has not answered yet"
            assert asked.asked <= 1, "the others wait for their turn"
        finally:
            free.set()
        scheduler.wait = 60
        assert [(await scheduler.work(node, {}))["problem"] for node in nodes] == [""] * 12
        assert asked.asked == 12

    asyncio.run(main())


def test_the_work_on_a_node_is_for_those_who_may_see_evidence_and_leads_to_the_watched_job(console, site):
    assert console.ask("GET", "/api/node/b1/work", who="olga")[1] == {}, "no scheduler is asked"
    with site.store.write() as connection:
        job = job_restarts.watch(connection, WatchedJob(0, "slurm", "batch", "", "17", "", "ann", "Running", "0", "b1",
                                                        1, 3, "", "", site.now, site.now, None))  # fmt: skip
    asked = Working()
    asked.items = (
        WorkItem("17+0", "a", "ann", "RUNNING", 1.0, ("batch/17",)),
        WorkItem("18", "b", "bob", "RUNNING", 2.0),
    )
    console.server.scheduler = Scheduler("slurm", asked, wait=60)
    assert console.ask("GET", "/api/node/b1/work", who="vera")[0] == 403
    seen = console.ask("GET", "/api/node/b1/work", who="olga")[1]["rows"]
    assert [(row["id"], row["user"], row["watched"]) for row in seen] == [("17+0", "ann", job.id), ("18", "bob", None)]
    assert console.ask("GET", "/api/node/nobody/work", who="olga")[0] == 404


def test_a_timeline_of_a_node_that_does_not_exist_says_so(console):
    assert console.ask("GET", "/api/node/nobody/timeline")[0] == 404
    assert console.ask("GET", "/api/node/b4/timeline")[0] == 200
