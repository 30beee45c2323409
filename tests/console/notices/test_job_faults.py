"""What people are told of jobs: given up, held for want of nodes, restarted; out of the store, to a receiver."""

import json
import time

import pytest

from nhc.console.notices import settings as notices_settings
from nhc.console.notices.service import NoticeService
from nhc.core.settings.settings_file import SettingsError
from nhc.store import job_restarts, outbox
from nhc.store.job_restarts import ENDED, HELD, RELEASING, RESTARTED, JobEnd, WatchedJob


@pytest.fixture
def told(store, receiver):
    """What an Alertmanager is told of after `seconds` more, with these settings of jobs."""
    now = [time.time()]

    def after(seconds, text=""):
        now[0] += seconds
        found = notices_settings.parse(
            f'wait = "0s"\nsettle = "0s"\ncooldown = "0s"\n[jobs]\n{text}\n'
            f'[channels.am]\nkind = "alertmanager"\nurl = "{receiver.url}"\n'
        )
        receiver.came.clear()
        NoticeService(store, found, lambda: now[0], lambda: 0.5).round()
        notes = [alert["annotations"] for _, _, _, body in receiver.came for alert in json.loads(body)]
        after.text = " ".join(note["description"] for note in notes)
        return [note["summary"] for note in notes]

    after.now = now
    return after


def watched(store, now, name="llama", **values):
    row = WatchedJob(0, "kubernetes", "PyTorchJob", "team", name, "u", "", "failed", "0.0", "n1 n2", 2, 3, "", "",
                          now, now, None)._replace(**values)  # fmt: skip
    with store.write() as connection:
        return job_restarts.watch(connection, row)


def begun(store, row, now):
    with store.write() as connection:
        return job_restarts.begin(connection, row, key=row.name, run="0.0", why="n1: GpuLost", nodes=["n1"],
                                  exclude=["n1"], manifest="", now=now, by="nhc job")  # fmt: skip


def save(store, row, restart, now, state, outcome=""):
    with store.write() as connection:
        return job_restarts.save(connection, restart, row, state=state, outcome=outcome, now=now, by="nhc job")


LLAMA = "job PyTorchJob/team/llama"


OWNERS = (
    '[channels.m]\nkind = "mail"\nhost = "127.0.0.1"\nport = {port}\ntls = "none"\nfrom = "nhc@example.org"\n'
    'to = ["ops@example.org"]\n'
)


def left(store, now, *people):
    """What the job loop leaves for these owners, a run for each."""
    with store.write() as connection:
        for number, to in enumerate(people):
            lines = [f"job batch/{number}: the node (established): Xid 79, n1\\nBcc: x", "by: scheduler", "restart: no"]
            mail = {"to": to, "job": f"batch/{number}", "run": "0", "lines": lines, "ended": now}
            outbox.add(connection, outbox.owner_key(to), outbox.OWNERS, outbox.OWNER, json.dumps(mail), now)


@pytest.mark.thorough
def test_owners_get_their_mail_by_a_real_server_within_their_bounds(store, mailbox):
    now = [time.time()]
    text = OWNERS.format(port=mailbox.port) + '[jobs]\nowners = "m"\nmost-per-owner = 2\nmost-to-owners = 3\n'
    service = NoticeService(store, notices_settings.parse(text), lambda: now[0], lambda: 0.5)
    ann, bob = "ann@example.org", "bob@example.org"
    left(store, now[0], ann, ann, ann, bob)
    service.round()
    assert mailbox.mails == [], "more runs may end"
    now[0] += 181
    service.round()
    assert [mail["To"] for mail in mailbox.mails] == [ann, bob]
    first = mailbox.mails[0]
    assert (first["Cc"], first["Bcc"], "ops@example.org" in str(first)) == (None, None, False)
    assert first["Subject"].startswith("job batch/0: the node (established): Xid 79, n1")
    lines = first.get_payload().splitlines()
    assert lines[1:3] == ["by: scheduler", "restart: no"]
    assert [line.partition(":")[0] for line in lines[3:7]] == ["", "2 more runs ended within minutes", "job batch/1",
                                                               "job batch/2"]  # fmt: skip
    assert len({mail["Message-ID"] for mail in mailbox.mails}) == 2
    for more in (ann, ann, bob):
        left(store, now[0], more)
        now[0] += 181
        service.round()
    assert [mail["To"] for mail in mailbox.mails[2:]] == [ann], "what is over the bounds is dropped, not put off"
    now[0] += 3601
    left(store, now[0], ann)
    left(store, now[0] - 90000, bob)
    now[0] += 181
    service.round()
    assert [mail["To"] for mail in mailbox.mails[3:]] == [ann]
    service.close()


def test_runs_that_end_all_the_time_are_told_of_all_the_same(store, mailbox):
    now = [time.time()]
    text = OWNERS.format(port=mailbox.port) + '[jobs]\nowners = "m"\n'
    service = NoticeService(store, notices_settings.parse(text), lambda: now[0], lambda: 0.5)
    for _ in range(9):
        left(store, now[0], "ann@example.org")
        now[0] += 120
        service.round()
    assert len(mailbox.mails) == 1
    service.close()


def test_mails_to_owners_go_nowhere_where_the_notices_name_no_channel(store, told):
    left(store, told.now[0], "ann@example.org")
    assert told(1) == []
    with store.read() as connection:
        assert outbox.waiting(connection, outbox.OWNERS) == []


@pytest.mark.parametrize("name", ["nobody", "am"])
def test_owners_are_written_to_by_a_channel_of_mail_alone(name):
    text = f'[jobs]\nowners = "{name}"\n[channels.am]\nkind = "alertmanager"\nurl = "http://a"\n'
    with pytest.raises(SettingsError, match=r"jobs.owners\S* .*a channel of the kind mail"):
        notices_settings.parse(text)


@pytest.mark.thorough
def test_a_job_that_is_given_up_is_told_of_until_it_runs_anew(store, told):
    said = "run 0.0: 3 of 3 restarts are used up (n1: GpuLost)"
    row = watched(store, told.now[0], left="limit", logged=said)
    watched(store, told.now[0], "mine", left="application", logged="run 0.0: exit 1, and its nodes are healthy")
    assert told(1) == [f"CRIT: JobGivenUp in {LLAMA}: 2 nodes"]
    assert said in told.text
    with store.write() as connection:
        job_restarts.watch(connection, row._replace(left="", run="1.0", phase="running"))
    assert told(1) == [f"Resolved: JobGivenUp in {LLAMA}: 2 nodes"]
    assert told(1) == []


@pytest.mark.thorough
def test_a_restart_that_is_held_for_too_long_is_told_of(store, told):
    row = watched(store, told.now[0])
    restart = save(store, row, begun(store, row, told.now[0]), told.now[0], HELD)
    assert told(899) == []
    assert told(2) == [f"WARN: JobHeld in {LLAMA}: 1 node"]
    assert "restart 1 of 3 waits for enough healthy nodes" in told.text
    assert "Nodes: n1\n" in told.text
    save(store, row, restart, told.now[0], RELEASING)
    assert told(1) == [f"Resolved: JobHeld in {LLAMA}: 1 node"]


@pytest.mark.thorough
def test_a_restart_is_told_of_for_a_while_where_that_is_wanted(store, told):
    row = watched(store, told.now[0])
    save(store, row, begun(store, row, told.now[0]), told.now[0], ENDED, RESTARTED)
    assert told(1) == []
    wanted = 'tell = ["restarted"]\nrestarted-for = "10m"'
    assert told(1, wanted) == [f"WARN: JobRestarted in {LLAMA}: 1 node"]
    assert "restart 1 of 3: n1: GpuLost" in told.text
    assert told(600, wanted) == [f"Resolved: JobRestarted in {LLAMA}: 1 node"]


def test_a_word_that_is_none_is_a_mistake():
    with pytest.raises(SettingsError, match=r"jobs.tell\S*: 'gone' is not one of given-up, held, restarted"):
        notices_settings.parse('[jobs]\ntell = ["gone"]\n')


@pytest.mark.thorough
def test_a_job_that_failed_by_itself_is_told_of_with_its_user_and_why_where_that_is_asked_for(store, told):
    row = watched(store, told.now[0], user="ann", left="application", logged="run 0.0: exit status 1")
    end = JobEnd(row.id, "0.0", "program", "supported", "your program (supported): KeyError: 'lr'", "n1", "no", "",
                      8, 0.0, 9.0)  # fmt: skip
    with store.write() as connection:
        job_restarts.keep_end(connection, end, told.now[0], "nhc job", row.text())
        job_restarts.keep_end(
            connection, end._replace(run="old", why="of another run"), told.now[0], "nhc job", row.text()
        )
    assert told(1) == []
    assert told(1, 'tell = ["failed"]') == [f"WARN: JobFailed in {LLAMA}: 2 nodes"]
    assert "its user is ann; why: your program (supported): KeyError: 'lr'" in told.text
    assert "another run" not in told.text


@pytest.mark.thorough
def test_a_job_that_somebody_else_has_taken_in_hand_has_not_failed_by_itself(store, told):
    watched(store, told.now[0], left="over", logged="run 0.0: this run was restarted before, and its restart is over")
    assert told(1, 'tell = ["failed"]') == []
