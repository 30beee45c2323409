"""What is made of journalctl's answers. Against the real journald: tests/machines/test_journald.py."""

import json

import pytest

from nhc.core.host import BOOT_ID, Completed
from nhc.lab.testing.fake_host import FakeHost
from nhc.node.facts.journal import STALE, read_journal
from nhc.node.facts.kernel_lines import parse_journal

NOW = 1_795_228_200.0  # 2026-11-21T02:30:00Z
BOOT = "aa37e4b2-6ced-4938-9514-952abd03b69b"


def place(number, boot=BOOT, stream="f00", when=NOW):
    """A cursor, as journald makes them."""
    return f"s={stream};i={number:x};b={boot.replace('-', '')};m={number:x};t={int(when * 1e6):x};x={number:x}"


class Journal:
    """Entries in their order, and journalctl's ways with them."""

    def __init__(self):
        self.entries = []
        self.host = FakeHost({BOOT_ID: BOOT + "\n"}, {"journalctl": self.answer})
        self.host.system.now = NOW

    def say(self, number, text, transport="kernel", when=NOW, boot=BOOT, **more):
        self.entries.append({"MESSAGE": text, "__CURSOR": place(number, boot, when=when), "number": number,
                             "_BOOT_ID": boot.replace("-", ""), "_TRANSPORT": transport, "PRIORITY": "3",
                             "__REALTIME_TIMESTAMP": str(int(when * 1e6)), **more})  # fmt: skip

    def answer(self, argv, _stdin):
        chosen = [entry for entry in self.entries if "-k" not in argv or entry["_TRANSPORT"] == "kernel"]
        cursor = next((word.partition("=")[2] for word in argv if word.startswith("--cursor=")), "")
        if cursor and ";" not in cursor:
            return Completed(1, "", "Failed to seek to cursor: Invalid argument\n")
        if cursor:
            first = int(dict(part.split("=") for part in cursor.split(";"))["i"], 16)
            chosen = [entry for entry in chosen if entry["number"] >= first]
        if "-n" in argv:
            chosen = chosen[:1] if cursor else chosen[-1:]
        return Completed(0, "".join(json.dumps(entry) + "\n" for entry in chosen))

    def read(self, cursor):
        batch = read_journal(self.host, cursor)
        return [record.text for record in batch.records], batch.lost, batch.cursor


@pytest.fixture
def journal():
    return Journal()


def test_what_is_new_is_read_once(journal):
    journal.say(1, "a")
    journal.say(2, "b")
    assert journal.read("") == (["a", "b"], 0, place(2))
    assert journal.read(place(2)) == ([], 0, place(2))
    journal.say(3, "c")
    assert journal.read(place(2)) == (["c"], 0, place(3))
    assert read_journal(journal.host, "").records[0].when == NOW


def test_entries_of_another_boot_are_not_news(journal):
    journal.say(1, "old", boot="0" * 32)
    journal.say(2, "new")
    assert journal.read("")[0] == ["new"]


def test_entries_that_were_thrown_away_unread_are_told(journal):
    for number in (1, 2, 3, 4):
        journal.say(number, f"line {number}")
    del journal.entries[:2]
    assert journal.read(place(1)) == (["line 3", "line 4"], -1, place(4))


def test_all_entries_thrown_away_are_told(journal):
    assert journal.read(place(1)) == ([], -1, place(1))


def test_an_entry_that_went_without_any_after_it_is_no_loss(journal):
    journal.say(2, "the next one")
    assert journal.read(place(1)) == (["the next one"], 0, place(2))


def test_a_quiet_kernel_in_a_full_journal_loses_nothing(journal):
    """Other programs' entries push the kernel's out: the place moves on with them."""
    early = NOW - STALE - 1
    journal.say(1, "the kernel's last word", when=early)
    journal.say(2, "a daemon", "stdout", when=NOW - 2)
    _said, _lost, cursor = journal.read(place(1, when=early))
    assert cursor == place(2, when=NOW - 2)
    del journal.entries[0]
    journal.say(3, "the kernel again")
    assert journal.read(cursor) == (["the kernel again"], 0, place(3))


def test_an_entry_that_journald_moved_to_disk_is_still_the_same(journal):
    journal.say(1, "a")
    journal.entries[0]["__CURSOR"] = place(1, stream="another").replace("i=1;", "i=7;")
    assert journal.read(place(1))[:2] == ([], 0)


def test_a_cursor_that_journald_cannot_read_is_a_loss(journal):
    journal.say(9, "a")
    assert journal.read("s=1")[:2] == (["a"], -1)


def test_journalctl_that_fails_is_an_error(journal):
    journal.host.system.commands["journalctl",] = Completed(1, "", "No journal files were opened\n")
    with pytest.raises(OSError, match="No journal files"):
        read_journal(journal.host, "")


def test_bytes_that_are_no_text_are_read():
    record, _cursor, _boot = parse_journal(json.dumps({"MESSAGE": [104, 105, 255]}))
    assert record.text == "hi\ufffd"


@pytest.mark.parametrize("priority", ["9" * 5000, "\u00b2", ["3", "4"]], ids=["long", "superscript", "two"])
def test_a_priority_that_is_no_number_costs_no_entry(priority):
    record, _cursor, _boot = parse_journal(json.dumps({"MESSAGE": "gone", "PRIORITY": priority}))
    assert (record.text, record.level) == ("gone", 6)
    assert parse_journal("[" * 100_000) is None


def test_a_name_that_journald_took_off_a_line_of_dev_kmsg_is_put_back():
    entry = {"MESSAGE": "Xid (PCI:0000:3b:00): 79", "_TRANSPORT": "kernel", "SYSLOG_IDENTIFIER": "NVRM"}
    assert parse_journal(json.dumps(entry))[0].text == "NVRM: Xid (PCI:0000:3b:00): 79"
    assert parse_journal(json.dumps({**entry, "SYSLOG_PID": "7"}))[0].text == "NVRM[7]: Xid (PCI:0000:3b:00): 79"
    assert parse_journal(json.dumps({**entry, "SYSLOG_IDENTIFIER": "kernel"}))[0].text == entry["MESSAGE"]
    assert parse_journal(json.dumps({**entry, "_TRANSPORT": "syslog"}))[0].text == entry["MESSAGE"]
