"""A node that answers badly: the ForceCommand of a test's sshd. What it does depends on the address it is asked on."""

import json
import os
import sys
import time

REPORT = {"schema": 1, "host": "", "boot_id": "", "started": time.time(), "elapsed": 0.1,
          "results": [{"check": "check_x", "verdict": "OK"}]}  # fmt: skip


def main():
    address = os.environ["SSH_CONNECTION"].split()[2]
    mode = MODES[int(address.rpartition(".")[2])]
    command = os.environ.get("SSH_ORIGINAL_COMMAND", "")
    nonce = command.partition("nhc-fleet ")[2].split()[0]
    out = sys.stdout.buffer

    def say(text):
        out.write(f"nhc-fleet {nonce} {text}\n".encode())
        out.flush()

    def report(**changes):
        say("hello python=3.11.0 hostname=x uid=0")
        text = json.dumps({**REPORT, **changes}).encode()
        say(f"ran size={len(text)} status=0 why= stderr= how=pushed")
        out.write(text)

    mode(say, report, out)
    out.flush()


def hung_login(say, report, out):
    time.sleep(60)


def hung_command(say, report, out):
    say("hello python=3.11.0 hostname=x uid=0")
    time.sleep(60)


def truncated(say, report, out):
    say("hello python=3.11.0 hostname=x uid=0")
    say("ran size=5000 status=0 why= stderr= how=pushed")
    out.write(b'{"schema": 1, "host"')


def endless(say, report, out):
    while True:
        out.write(b"x" * 65536)


def endless_report(say, report, out):
    say("hello python=3.11.0 hostname=x uid=0")
    say("ran size=999999999 status=0 why= stderr= how=pushed")
    while True:
        out.write(b" " * 65536)


def not_json(say, report, out):
    say("hello python=3.11.0 hostname=x uid=0")
    say("ran size=5 status=0 why= stderr= how=pushed")
    out.write(b"hello")


def another_host(say, report, out):
    report(host="gpu99")


def control_characters(say, report, out):
    found = {"check": "check_x", "verdict": "CRIT", "reason": "Bad\x1b[31m<b>",
             "message": "a\x1b]0;owned\x07b\nc\u202ed",
             "evidence": ["\x1b[2J</script><script>alert(1)</script>"],
             "metrics": [{"name": "m\x1b", "value": 1.5, "unit": "\x07"}]}  # fmt: skip
    report(host="evil", results=[found], started=1e300)


def no_number(say, report, out):
    metric = {"name": "m", "value": float("inf"), "unit": ""}
    report(host="infinite", results=[{"check": "check_x", "verdict": "OK", "metrics": [metric]}])


def asks_for_anything(say, report, out):
    say("hello python=3.11.0 hostname=x uid=0")
    say("need bundles=../../etc/shadow")
    time.sleep(1)


def no_python(say, report, out):
    say("nopython")


def chatter(say, report, out):
    out.write(b"Welcome to node x!\nLast login: today\nno newline at the end")
    report(host="chatty")


def another_node(say, report, out):
    say("hello python=3.11.0 hostname=evil.example.org uid=0")
    text = json.dumps({**REPORT, "host": "crossed"}).encode()
    say(f"ran size={len(text)} status=0 why= stderr= how=pushed")
    out.write(text)


MODES = {
    1: hung_login, 2: hung_command, 3: truncated, 4: endless, 5: endless_report, 6: not_json, 7: another_host,
    8: control_characters, 9: asks_for_anything, 10: no_python, 11: chatter, 12: another_node,
    13: no_number,
}  # fmt: skip

if __name__ == "__main__":
    main()
