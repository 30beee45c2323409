"""Answers `fake.Nvml`: a question a line (JSON), the outcomes of its checks a line."""

import json
import os
import shlex
import sys

from nhc.core.check import find
from nhc.core.host import Completed, Stat
from nhc.core.render.plain import encode
from nhc.lab.testing.fake_host import FakeHost
from nhc.node.run.engine import call


def outcomes(question, host):
    host.forget()
    found = []
    for line in question["checks"]:
        words = shlex.split(line)
        settings = dict(host.settings)
        while "=" in words[0]:
            where, _, value = words.pop(0).partition("=")
            if where.startswith("/"):
                host.write(where, value)
            else:
                settings[where] = value
        name, *words = words
        check = find(name)
        assert check, f"there is no check {name}"
        parts = None if check.parts is None or question["all_parts"] else frozenset(check.parts)
        seen = host.with_settings(settings).reading(parts)
        found.append([encode(outcome) for outcome in call(check, check.parse(words), seen)])
    return found


def main():
    for line in sys.stdin:
        question = json.loads(line)
        commands = {
            argv: answer if isinstance(answer, str) else Completed(*answer)
            for argv, answer in question["commands"].items()
        }
        host = FakeHost(question["files"], commands, question["settings"])
        host.system.ask = lambda name, answer: json.loads(json.dumps(answer()))
        for pid, uid in question["owners"].items():
            host.system.stats[f"/proc/{pid}"] = Stat(0o40555, uid, uid, 0, 0, 0, 0, 1, 1, 1, 0)
        found = []
        for scenario in question["scenarios"]:
            os.environ["NHC_FAKE_NVML"] = scenario
            found = outcomes(question, host)
            host.system.uptime += question["after"]
        print(json.dumps(found), flush=True)


main()
