"""From reports in a store to what receivers get: with a real Alertmanager, a real SMTP server, and faults between."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from shutil import which

import pytest
import sqlalchemy as sa
import urllib3
from standardwebhooks.webhooks import Webhook

from nhc.console.notices import settings as notices_settings
from nhc.console.notices.notice import OPEN, cleaned, dump
from nhc.console.notices.sender import DEADLINE, SendLater
from nhc.console.notices.service import NoticeService, status, trial
from nhc.core.model import Action, CheckResult, Outcome, Report, Verdict
from nhc.core.system.exchange import Exchange
from nhc.core.system.http_client import retry_after
from nhc.store import schema
from nhc.store.intake import IntakeSettings
from nhc.store.reports import import_reports
from tests.support.dripping import dripping
from tests.support.new_store import new_store
from tests.support.ports import free_port
from tests.support.require import need
from tests.support.run import nhc
from tests.support.waiting import until

OK = CheckResult("check_gpu", Outcome(Verdict.OK))
LOST = CheckResult("check_gpu", Outcome(Verdict.CRIT, "GpuLost", "gpu3 is gone", action=Action.REBOOT))
FULL = CheckResult("check_fs", Outcome(Verdict.CRIT, "DiskFull", "/ is full"))
SECRET = "whsec_" + base64.b64encode(b"0123456789abcdef01234567").decode()


class Fleet:
    """Reports into a store, at a clock that the test turns."""

    def __init__(self, store, text, extra=""):
        head = 'cluster = "c1"\nwait = "30s"\nsettle = "60s"\n'
        self.store, self.now = store, time.time()
        self.settings = notices_settings.parse(head + extra + text, "notices.toml")
        self.start()

    def start(self):
        """As a new process: nothing is remembered but the store."""
        self.service = NoticeService(self.store, self.settings, lambda: self.now, lambda: 0.5)

    def report(self, *names, result=LOST, rack="r1"):
        made = [Report(name, "boot", self.now, 1.0, (result,), labels={"rack": rack}) for name in names]
        import_reports(self.store, made, "agent", IntakeSettings(), self.now)

    def after(self, seconds):
        self.now += seconds
        return self.service.round()

    def fail(self, *names):
        self.report(*names)
        self.service.round()
        return self.after(31)

    def recover(self, *names):
        self.now += 1
        self.report(*names, result=OK)
        self.service.round()
        return self.after(61)


@pytest.fixture
def secret(tmp_path):
    def make(text):
        path = tmp_path / f"secret{len(list(tmp_path.glob('secret*')))}"
        path.write_text(text)
        path.chmod(0o600)
        return path

    return make


@pytest.fixture
def hooked(store, receiver, secret):
    """A fleet with a signed webhook to the receiver."""
    return Fleet(
        store, f'[channels.hook]\nkind = "webhook"\nurl = "{receiver.url}/x"\nsecret-file = "{secret(SECRET)}"\n'
    )


def kinds(receiver):
    return [json.loads(body)["type"].rpartition(".")[2] for _, _, _, body in receiver.came]


def test_one_cause_in_one_rack_is_one_notice_and_one_end(hooked, receiver):
    hooked.fail("n1", "n2", "n3")
    assert kinds(receiver) == ["open"]
    _, path, headers, body = receiver.came[0]
    assert path == "/x"
    data = Webhook(SECRET).verify(body, headers)["data"]
    assert (data["nodes"], data["affected"], data["place"], data["reason"]) == ("n[1-3]", 3, "rack r1", "GpuLost")
    hooked.recover("n1", "n2", "n3")
    assert kinds(receiver) == ["open", "resolved"]
    assert status(hooked.store, hooked.settings)["hook"][:3] == (0, 2, 0)


@pytest.mark.parametrize("content", ['{"of": "another version"}', "[1]", '{"returns": null}', "no JSON"])
def test_an_incident_that_cannot_be_read_holds_up_no_notice(hooked, receiver, content):
    hooked.fail("n1")
    with hooked.store.write() as connection:
        connection.execute(sa.update(schema.incidents).values(content=content))
    hooked.report("n2", result=FULL)
    first = hooked.service.round()
    assert len(first.problems) == 1
    assert "begins anew" in first.problems[0]
    assert hooked.after(31).problems == []
    assert {json.loads(body)["data"]["reason"] for _, _, _, body in receiver.came} == {"GpuLost", "DiskFull"}


def test_what_asks_to_wait_is_waited_for(hooked, receiver):
    receiver.answers = [(429, {"Retry-After": "300"}, b"slow down")]
    done = hooked.fail("n1")
    assert done.problems == ["hook: status 429: slow down"]
    hooked.after(290)
    assert len(receiver.came) == 1
    hooked.after(11)
    assert kinds(receiver) == ["open", "open"]
    assert receiver.came[0][2]["webhook-id"] == receiver.came[1][2]["webhook-id"]


def test_errors_and_lost_answers_are_tried_again_later_and_later_in_order(hooked, receiver):
    receiver.answers = [(503, {}, b""), "lost", (500, {}, b"")]
    hooked.fail("n1")
    tried = [(hooked.now, len(receiver.came))]
    hooked.now += 1
    hooked.report("n1", result=OK)
    while len(receiver.came) < 4:
        hooked.after(1)
        if len(receiver.came) != tried[-1][1]:
            tried.append((hooked.now, len(receiver.came)))
        assert hooked.now - tried[0][0] < 300
    gaps = [round(later[0] - earlier[0]) for earlier, later in zip(tried, tried[1:])]
    assert gaps[0] in (5, 6)
    assert gaps[1] in (30, 31)
    assert gaps[2] in (120, 121)
    hooked.after(61)
    assert kinds(receiver) == ["open"] * 4 + ["resolved"]


def test_what_is_refused_is_counted_and_not_repeated(hooked, receiver):
    receiver.answers = [(400, {}, b"no such thing")]
    hooked.fail("n1")
    hooked.after(600)
    assert len(receiver.came) == 1
    found = status(hooked.store, hooked.settings)["hook"]
    assert (found.waiting, found.lost, found.error) == (0, 1, "status 400: no such thing")


def test_a_redirect_is_not_followed(hooked, receiver):
    receiver.answers = [(307, {"Location": f"{receiver.url}/elsewhere"}, b"")]
    hooked.fail("n1")
    assert [path for _, path, _, _ in receiver.came] == ["/x"]
    assert status(hooked.store, hooked.settings)["hook"].lost == 1


@pytest.mark.thorough
def test_what_is_never_taken_is_dropped_in_the_end_and_counted(store, secret):
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        text = f'[channels.hook]\nkind = "alertmanager"\nurl = "http://127.0.0.1:{nobody.getsockname()[1]}"\n'
        fleet = Fleet(store, text, 'give-up = "1h"\n')
        fleet.fail("n1")
        fleet.recover("n1")
        for _ in range(200):
            fleet.after(60)
        found = status(store, fleet.settings)["hook"]
    assert found.waiting == 0
    assert found.lost >= 2
    assert found.sent == 0
    assert found.error.startswith("no answer: ")


def test_a_restart_between_the_outbox_and_the_answer_sends_again_and_loses_nothing(hooked, receiver):
    hooked.report("n1")
    hooked.service.round()
    hooked.now += 31

    way = hooked.settings.channels["hook"].way

    class Killed:
        def deliver(self, notice, exchange):
            way.deliver(notice, exchange)
            raise KeyboardInterrupt  # the process ends after the request, before the answer is written down

    channel = hooked.settings.channels["hook"]._replace(way=Killed())
    hooked.service = NoticeService(
        hooked.store, hooked.settings._replace(channels={"hook": channel}), lambda: hooked.now
    )
    with pytest.raises(KeyboardInterrupt):
        hooked.service.round()
    hooked.start()
    hooked.after(1)
    hooked.after(1)
    assert kinds(receiver) == ["open", "open"]
    assert len({headers["webhook-id"] for _, _, headers, _ in receiver.came}) == 1


@pytest.mark.thorough
def test_a_channel_that_is_away_holds_up_no_other(store, receiver, secret):
    fleet = Fleet(
        store,
        f'[channels.away]\nkind = "alertmanager"\nurl = "http://127.0.0.1:9"\n'
        f'[channels.hook]\nkind = "webhook"\nurl = "{receiver.url}"\nsecret-file = "{secret(SECRET)}"\n',
    )
    done = fleet.fail("n1")
    assert kinds(receiver) == ["open"]
    assert [line.partition(":")[0] for line in done.problems] == ["away"]


DRIPS = {
    "head": ('kind = "alertmanager"\nurl = "http://127.0.0.1:{}"', b"HTTP/1.1 200 OK\r\nX: "),
    "body": (
        'kind = "alertmanager"\nurl = "http://127.0.0.1:{}"',
        b"HTTP/1.1 500 No\r\nContent-Length: 999999\r\n\r\n",
    ),
    "tls": ('kind = "alertmanager"\nurl = "https://127.0.0.1:{}"', b"\x16\x03\x03\x40\x00\x02"),
    "mail": ('kind = "mail"\nhost = "127.0.0.1"\nport = {}\ntls = "none"\nfrom = "a@b"\nto = ["a@b"]', b"220-"),
}


@pytest.mark.thorough
@pytest.mark.parametrize("kind", DRIPS)
def test_one_exchange_has_one_deadline_for_all_of_it(store, kind):
    text, first = DRIPS[kind]
    with dripping(first) as port:
        settings = notices_settings.parse(f"[channels.x]\n{text.format(port)}\n", "notices.toml")
        began = time.monotonic()
        with Exchange(1.0) as exchange, pytest.raises(SendLater, match=r"no whole answer within 1 s|status 500"):
            settings.channels["x"].way.deliver(trial(settings, 1.0), exchange)
        assert time.monotonic() - began < 20
    assert threading.active_count() < 20


@pytest.mark.thorough
def test_a_slow_channel_holds_up_no_other_and_keeps_its_own_messages(store, receiver, secret):
    with dripping() as port:
        fleet = Fleet(
            store,
            f'[channels.slow]\nkind = "alertmanager"\nurl = "http://127.0.0.1:{port}"\n'
            f'[channels.hook]\nkind = "webhook"\nurl = "{receiver.url}"\nsecret-file = "{secret(SECRET)}"\n',
        )
        for count in (1, 2):
            fleet.report(f"n{count}", rack=f"r{count}")
            fleet.service.round(patience=0.0)
            fleet.now += 31

            def sent(count=count):
                fleet.service.round(patience=0.2)
                return len(receiver.came) == count

            began = time.monotonic()
            until(sent, every=0.05)
            assert time.monotonic() - began < DEADLINE, "the slow one's deadline was not waited for"
        began = time.monotonic()
        fleet.service.close()
        assert time.monotonic() - began < DEADLINE - 10
    found = status(store, fleet.settings)
    assert (found["slow"].sent, found["slow"].lost, found["slow"].error) == (0, 0, ""), "it was broken off, not refused"
    assert found["slow"].waiting == found["hook"].sent + found["hook"].waiting


@pytest.mark.thorough
def test_a_signal_ends_the_command_while_a_receiver_drips(tmp_path):
    store = new_store(str(tmp_path), anchor="")
    report = Report("n1", "b", time.time(), 1.0, (LOST,))
    import_reports(store, [report], "agent", IntakeSettings(), time.time())
    store.close()
    file = tmp_path / "notices.toml"
    with dripping() as port:
        file.write_text(
            f'store = "sqlite:///{tmp_path}/store.db"\nwait = "0s"\nevery = "0.1s"\n'
            f'[channels.slow]\nkind = "alertmanager"\nurl = "http://127.0.0.1:{port}"\n'
        )
        process = subprocess.Popen([sys.executable, "-m", "nhc", "serve", "notices", "-s", file])
        until(lambda: '"waiting": 1' in nhc("status", "notices", "-f", "json", "-s", file).stdout, every=0.1)
        began = time.monotonic()
        process.terminate()
        assert process.wait(60) == 0
        assert time.monotonic() - began < DEADLINE - 5


ECHOES = {
    "slack": ('url-file = "{url}"', "/services/T0AAAAAAA/B0AAAAAAA/qwertyuiopasdfghjklzxcvb"),
    "teams": ('url-file = "{url}"', "/workflows/qwertyuiopasdfghjklzxcvb/sig-AbCdEf-zyxwv"),
    "pagerduty": ('url = "{plain}"\nrouting-key-file = "{key}"', "abcdefghijklmnopqrstuvwxyzabcdef"),
    "servicenow": ('url = "{plain}"\nuser = "monitor"\npassword-file = "{key}"', "swordfish"),
    "jira": ('url = "{plain}"\nproject = "OPS"\nuser = "monitor"\ntoken-file = "{key}"', "open-sesame"),
}


@pytest.mark.parametrize("kind", ECHOES)
@pytest.mark.parametrize("status_code", [400, 503])
@pytest.mark.thorough
def test_a_receiver_that_repeats_the_request_has_no_secret_in_log_store_or_status(
    store, receiver, secret, kind, status_code
):
    lines, value = ECHOES[kind]
    path = value if value.startswith("/") else "/"
    form = lines.format(url=secret(receiver.url + path), plain=receiver.url, key=secret(value))

    def echo(method, path):
        _, _, headers, body = receiver.came[-1]
        decoded = base64.b64decode(headers.get("Authorization", "").partition(" ")[2])
        parts = (f"invalid {method} {path}".encode(), repr(headers).encode(), decoded, value.upper().encode(), body)
        return status_code, {}, b" ".join(parts[-3:] + parts)

    receiver.default = echo
    fleet = Fleet(store, f'[channels.x]\nkind = "{kind}"\n{form}\n')
    (line,) = fleet.fail("n1").problems
    kept = line + repr(status(store, fleet.settings)) + (store.name if store.sqlite else "")
    with store.read() as connection:
        kept += repr(connection.exec_driver_sql("SELECT error FROM outbox").fetchall())
    assert f"status {status_code}" in line
    encoded = base64.b64encode(f"monitor:{value}".encode()).decode()
    for piece in (value, encoded, *(one for one in re.split("[/-]", value) if len(one) > 3)):
        if piece not in ("services", "workflows", "open"):  # of every such address
            assert piece.casefold() not in kept.casefold()


def test_what_a_receiver_answers_is_kept_as_plain_words():
    assert cleaned('{"errors": ["no_service", "Field summary is too long: 3000"]}') == (
        "errors no_service Field summary is too long"
    )
    assert cleaned("Bearer eyJhbGciOi.JIUzI1NiJ9 \x1b[31mdenied\x1b[0m <b>", ("token-denied",)) == "Bearer b"
    assert len(cleaned("word " * 1000)) <= 120


@pytest.mark.thorough
def test_jira_has_one_issue_even_where_the_answer_is_lost(store, receiver, secret):
    issues = []

    def jira(method, path):
        if method == "GET":
            return 200, {}, json.dumps({"issues": issues}).encode()
        issues.append({"key": "OPS-1"})
        return "lost"

    receiver.default = jira
    token = secret("t0ken")
    fleet = Fleet(store, f'[channels.j]\nkind="jira"\nurl="{receiver.url}"\nproject="OPS"\ntoken-file="{token}"\n')
    fleet.fail("n1")
    fleet.after(10)
    fleet.recover("n1")
    assert [method for method, _, _, _ in receiver.came] == ["GET", "POST", "GET"]
    assert "labels+%3D" in receiver.came[0][1]
    assert receiver.came[0][2]["Authorization"] == "Bearer t0ken"
    assert status(store, fleet.settings)["j"][:3] == (0, 2, 0)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("kind", "path"),
    [("slack", "/h"), ("teams", "/h"), ("pagerduty", "/h"), ("servicenow", "/h/api/global/em/jsonv2")],
)
def test_the_others_get_theirs(tmp_path, receiver, secret, kind, path):
    url = f"{receiver.url}/h"
    lines = {
        "slack": f'url-file = "{secret(url)}"',
        "teams": f'url-file = "{secret(url)}"',
        "pagerduty": f'url = "{url}"\nrouting-key-file = "{secret("k" * 32)}"',
        "servicenow": f'url = "{url}"\nuser = "u"\npassword-file = "{secret("p")}"',
    }
    file = tmp_path / "notices.toml"
    file.write_text(f'store = "sqlite:///{tmp_path}/s.db"\n[channels.x]\nkind = "{kind}"\n{lines[kind]}\n')
    run = nhc("notices", "test", "x", "-s", file)
    assert (run.returncode, run.stdout, run.stderr) == (0, "x: taken\n", "")
    assert [one[:2] for one in receiver.came] == [("POST", path)]
    assert b"test of this channel" in receiver.came[0][3]
    receiver.default = (403, {}, b"wrong key")
    run = nhc("notices", "test", "x", "-s", file)
    assert (run.returncode, run.stderr) == (3, "nhc notices test: x: status 403: wrong key\n")


@pytest.fixture
def alertmanager(tmp_path):
    """A real Alertmanager on loopback; its URL."""
    program = which("prometheus-alertmanager") or which("alertmanager")
    need("alertmanager", program, "apt-get install prometheus-alertmanager")
    settings = tmp_path / "am.yml"
    settings.write_text("route: {receiver: none}\nreceivers: [{name: none}]\n")
    port = free_port()
    process = subprocess.Popen(
        [program, f"--config.file={settings}", f"--storage.path={tmp_path}/am", "--cluster.listen-address=",
         f"--web.listen-address=127.0.0.1:{port}"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    url = f"http://127.0.0.1:{port}"
    deadline = time.monotonic() + 60
    try:
        while True:
            try:
                if urllib3.request("GET", f"{url}/-/ready", retries=False).status == 200:
                    break
            except urllib3.exceptions.HTTPError:
                pass
            assert process.poll() is None
            assert time.monotonic() < deadline, "Alertmanager does not start"
            time.sleep(0.05)
        yield url
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def alerts(url):
    return json.loads(urllib3.request("GET", f"{url}/api/v2/alerts?active=true", retries=False).data)


@pytest.mark.slow
def test_a_real_alertmanager_has_one_alert_keeps_it_and_ends_it(store, alertmanager):
    fleet = Fleet(store, f'[channels.am]\nkind = "alertmanager"\nurl = "{alertmanager}"\n')
    fleet.now -= 400  # all of it lies before Alertmanager's own clock
    fleet.fail("n1", "n2")
    (alert,) = alerts(alertmanager)
    assert alert["labels"]["reason"] == "GpuLost"
    assert alert["annotations"]["nodes"] == "n[1-2]"
    ends = alert["endsAt"]
    fleet.after(130)
    (again,) = alerts(alertmanager)
    assert again["fingerprint"] == alert["fingerprint"]
    assert again["endsAt"] > ends, "it is said again before it would end"
    fleet.recover("n1", "n2")
    assert alerts(alertmanager) == []


BROKEN_SERVERS = {
    "a banner of one endless line": b"220 " + b"x" * 100_000,
    "a banner of endless lines": b"220-x\r\n" * 50_000,
    "no service": b"554 no service here\r\n",
    "no number": b"hello\r\n" * 10,
    "a number of another kind": b"999 x\r\n" * 10,
    "no EHLO and no HELO": b"220 x\r\n" + b"502 no\r\n" * 10,
    "an endless answer to EHLO": b"220 x\r\n" + b"250-x\r\n" * 50_000,
    "an endless line as answer to MAIL": b"220 x\r\n250 x\r\n" + b"250 " + b"y" * 100_000,
    "an endless line as answer to DATA": b"220 x\r\n250 x\r\n250 x\r\n250 x\r\n354 " + b"y" * 100_000,
    "nothing": b"",
    "binary": bytes(range(256)) * 100,
}


@pytest.mark.parametrize("what", BROKEN_SERVERS)
def test_what_a_mail_server_does_wrong_is_tried_again(tmp_path, what):
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer():
            with server.accept()[0] as connection, contextlib.suppress(OSError):
                connection.settimeout(10)
                connection.sendall(BROKEN_SERVERS[what])
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(65536):
                    pass

        thread = threading.Thread(target=answer)
        thread.start()
        text = f'[channels.m]\nkind = "mail"\nhost = "127.0.0.1"\nport = {server.getsockname()[1]}\ntls = "none"\n'
        text += 'from = "nhc@example.org"\nto = ["ops@example.org"]\n'
        settings = notices_settings.parse('cluster = "c1"\n' + text, "notices.toml")
        with pytest.raises(SendLater), Exchange(DEADLINE) as exchange:
            settings.channels["m"].way.deliver(trial(settings, time.time()), exchange)
        thread.join(30)


def test_a_wrong_answer_of_jiras_search_is_tried_again(receiver, tmp_path):
    key = tmp_path / "token"
    key.write_text("t")
    key.chmod(0o600)
    text = f'[channels.j]\nkind = "jira"\nurl = "{receiver.url}"\nproject = "OPS"\ntoken-file = "{key}"\n'
    settings = notices_settings.parse('cluster = "c1"\n' + text, "notices.toml")
    for body in (b"", b"{}", b"[]", b'{"issues": 5}', b'{"issues": "x"}', b'{"issues": null}', b"[" * 100_000):
        receiver.answers.append((200, {}, body))
        with pytest.raises(SendLater), Exchange(DEADLINE) as exchange:
            settings.channels["j"].way.deliver(trial(settings, time.time()), exchange)


@pytest.mark.thorough
def test_a_real_mail_server_gets_one_thread(store, mailbox):
    mailbox.answers = ["451 try again"]
    fleet = Fleet(
        store,
        f'[channels.m]\nkind = "mail"\nhost = "127.0.0.1"\nport = {mailbox.port}\ntls = "none"\n'
        'from = "nhc@example.org"\nto = ["a@example.org", "b@example.org"]\n',
    )
    assert fleet.fail("n1").problems == ["m: 451 try again"]
    fleet.after(10)
    fleet.recover("n1")
    opened, ended = mailbox.mails
    assert opened["Subject"] == "CRIT: GpuLost in rack r1: 1 node"
    assert ended["Subject"] == "Resolved: GpuLost in rack r1: 1 node"
    assert ended["References"] == opened["Message-ID"]
    mailbox.answers = ["554 no"]
    fleet.report("n2")
    fleet.after(400)
    assert fleet.after(31).problems == ["m: refused: 554 no"]


@pytest.mark.thorough
def test_the_command_survives_being_killed(tmp_path, receiver, secret):
    url = f"sqlite:///{tmp_path}/store.db"
    file = tmp_path / "notices.toml"
    file.write_text(
        f'store = "{url}"\nwait = "0s"\nevery = "0.1s"\n[channels.hook]\nkind = "webhook"\nurl = "{receiver.url}"\n'
        f'secret-file = "{secret(SECRET)}"\n'
    )
    store = new_store(str(tmp_path), anchor="")
    import_reports(
        store,
        [Report(f"n{n}", "b", time.time(), 1.0, (LOST,)) for n in range(3)],
        "agent",
        IntakeSettings(),
        time.time(),
    )
    store.close()
    receiver.default = (503, {}, b"")
    first = subprocess.Popen([sys.executable, "-m", "nhc", "serve", "notices", "-s", file], env={**os.environ})
    deadline = time.monotonic() + 60
    while not receiver.came:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    first.kill()
    first.wait(60)
    receiver.default = (200, {}, b"")
    second = subprocess.Popen([sys.executable, "-m", "nhc", "serve", "notices", "-s", file], env={**os.environ})
    try:
        until(lambda: '"sent": 1' in nhc("status", "notices", "-f", "json", "-s", file).stdout, every=0.1)
    finally:
        second.terminate()
        assert second.wait(60) == 0
    assert set(kinds(receiver)) == {"open"}
    assert len({headers["webhook-id"] for _, _, headers, _ in receiver.came}) == 1


def test_a_test_is_said_to_be_one():
    found = trial(notices_settings.NoticesSettings(), 1.0)
    assert found.kind == "test" != OPEN
    assert "Test" in found.title
    assert json.loads(dump(found))["kind"] == "test"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("5", 5),
        ("", 0),
        ("soon", 0),
        ("-3", 0),
        ("999999", 3600),
        ("Thu, 01 Jan 1970 00:02:00 GMT", 20),
        ("9" * 5000, 0),
    ],
)
def test_retry_after(text, seconds):
    assert retry_after(text, now=100.0) == seconds
