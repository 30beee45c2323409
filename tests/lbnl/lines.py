"""What LBNL NHC and our checks are asked: lines drawn at random from the spellings its manual and its users have."""

# ruff: noqa: E501 (a table of spellings, one a line)

import random
import re
from typing import Callable, Dict, Iterator, List, Tuple

COUNT = {"hw": 220, "fs": 300, "ps": 220, "dmi": 90, "file": 220, "cmd": 110}

D = "@D@"
UNITS = ["", "k", "K", "kb", "KB", "kB", "m", "M", "mb", "MB", "Mb", "g", "G", "gb", "GB", "t", "tb", "TB"]
POINTS = ["/", "/dev/shm", "/boot", "/home", "/scratch", "/tmp", "/nowhere"]
OPTIONS = ["/(^|,)rw(,|$)/", "*rw*", "rw*", "ro*", "*nosuid*", "!*nosuid*", "/nosuid/", "!/ro/", "*", "/(^|,)vers=4.2(,|$)/",
           "/relatime/", "!ro,*", "*hard*", "/flock/", "/vers=3/"]  # fmt: skip
TYPES = ["tmpfs", "ext4", "*fs", "/(tmpfs|ext4)/", "nfs", "nfs*", "!nfs*", "lustre", "/^nfs4?$/", "nfs,nfs4", "!tmpfs"]
SOURCES = [
    "nas1:/export/home",
    "nas*",
    "/nas[0-9]:/",
    "tmpfs",
    "!tmpfs",
    "/dev/sd??",
    "/dev/mapper/*",
    "*@o2ib:/lfs",
    "none",
]
PATTERNS = ["line1", "line*", "*line*", "/line/", "/^line[12]$/", "!line1", "!*nosuch*", "!/nosuch/", "nosuch", "/nosuch/",
            "/PermitRootLogin[[:space:]]+no/", "/^[[:space:]]*#/", "key = *", "last line", "/^indented/", "?", "[ab]", "*.*",
            "@(line1|b)", "/a{1,2}/", "/^.usecp/", "/./", "!/^#/", "line[0-9]", "line[!3-9]", "$loglevel 3", "{node[1-3]}",
            "/^.pbsserver master.node$/"]  # fmt: skip
DMI = ["BIOS Information: Version: 2.11.0", "BIOS Information: Version: 2.0.2", "*Version: 2.11.0", "*Speed: 2933 MT/s",
       "*Speed:*", "/Characteristics: PCI is/", "/Example/", "*Lenovo*", "System Information: Product Name: Compute 6420", "*",
       "Compute", "*: 2666*", "*ABC1234", "/^Memory Device: Size: 32/"]  # fmt: skip
COMMANDS = ["cat @D@/plain", "cat @D@/pbs", "-e 'cat @D@/plain'", "-e 'echo line1'", "echo line1", "false", "true", "/bin/false",
            "cat @D@/missing", "sh -c 'echo line1; exit 1'", "-e 'cat @D@/one'"]  # fmt: skip
STATUSES = ["true", "false", "/bin/true", "sh -c 'exit 3'", "test -d /", "test -d /nowhere", "cat @D@/missing",
            "grep -q master @D@/pbs"]  # fmt: skip
DAEMONS = [
    "crond",
    "rsyslogd",
    "slurmd",
    "agentd",
    "sshd",
    "ntpd",
    "python3",
    "matlab",
    "a.out",
    "cron",
    "/usr/sbin/crond",
]
OWNERS = ["root", "svc", "bob", "alice", "!root", "/^(root|svc)$/", "*", "b*", "1011", "stranger"]


OF_THE_MOMENT = re.compile(r"-(?:[noON] \d+|[NOG]) (?:/dev/\S+|/)$")
"""What is true of a device or of / at one time, or for one user."""


def lines(family: str, draw: random.Random) -> List[str]:
    """Different lines of one family."""
    makers = MAKERS[family]
    found: Dict[str, None] = {}
    while len(found) < COUNT[family]:
        line = " ".join(draw.choice(makers)(draw).split(" ")).rstrip()
        if not OF_THE_MOMENT.search(line):
            found[line] = None
    return list(found)


def _size(draw: random.Random) -> str:
    number = draw.choice([draw.randint(0, 9), draw.randint(0, 128), draw.randint(0, 70000), draw.randint(10**6, 10**8)])
    return f"{number}{draw.choice(UNITS)}"


def _share(draw: random.Random) -> str:
    return f"{draw.randint(0, 100)}%"


def _fudge(draw: random.Random) -> str:
    return draw.choice(["", "0%", "3%", "5%", "10%", "50%", "1g", "1024", "500m"])


def _quoted(draw: random.Random, text: str) -> str:
    if draw.random() < 0.5 and not set(text) & set(" '\"|$!&;<>()*?[]#`\\~{}"):
        return text
    return f'"{text}"' if draw.random() < 0.4 and not set(text) & set('"$`\\!') else f"'{text}'"


def _some(draw: random.Random, choices: List[str], most: int, least: int = 0) -> str:
    return " ".join(draw.choice(choices) for _ in range(draw.randint(least, most)))


def _mount(draw: random.Random) -> str:
    made = []
    for _ in range(draw.randint(0, 3)):
        option, values = draw.choice([("-t", TYPES), ("-s", SOURCES), ("-o", OPTIONS), ("-o", OPTIONS)])
        made.append(option + draw.choice([" ", ""]) + _quoted(draw, draw.choice(values)))
    named = draw.choice(["-f ", "-f"]) + draw.choice(POINTS[:-1])
    return f"check_fs_mount{draw.choice(['', '_rw', '_ro'])} {' '.join([*made, named])}"


def _stat(draw: random.Random) -> str:
    option = ["-m 0644", "-m0644", "-m 0600", "-m 01777", "-m 0755", "-M 0444", "-M 0600", "-M 0111", "-M 01000", "-n 3600",
              "-n 86400", "-o 86400", "-o 3600", "-O 3600", "-N 86400", "-t 1", "-T 3", "-t1 -T3", "-t 0x1", "-T 5"]  # fmt: skip
    files = [f"{D}/{name}" for name in ("plain", "one", "exe", "dir", "link", "empty")] + ["/dev/null", "/dev/zero"]
    return f"check_file_stat {draw.choice(option)} {draw.choice(files)}"


def _test(draw: random.Random) -> str:
    files = [f"{D}/{name}" for name in ("plain", "one", "exe", "dir", "link", "empty", "dangling", "fifo", "missing")]
    files += ["/dev/null", "/", "/dev/zero"]
    negated = draw.choice(["", "", "", "-! "])
    return f"check_file_test {negated}-{draw.choice('abcdefghkprsuwxOGLSN')} {draw.choice(files)}"


def _found(draw: random.Random, most: int, option: str = "") -> str:
    return " ".join(option + _quoted(draw, draw.choice(PATTERNS)) for _ in range(draw.randint(1, most)))


Maker = Callable[[random.Random], str]
MAKERS: Dict[str, List[Maker]] = {
    "hw": [
        lambda d: f"check_hw_{d.choice(['physmem', 'swap', 'mem'])} {_size(d)} {_size(d)} {_fudge(d)}",
        lambda d: f"check_hw_{d.choice(['physmem', 'swap', 'mem'])} {d.choice(['62', '64', '8', '70'])}g {d.choice(['64', '72', '8'])}g {_fudge(d)}",
        lambda d: f"check_hw_{d.choice(['physmem_free', 'swap_free', 'mem_free'])} {_size(d)}",
        lambda d: f"check_hw_eth {_quoted(d, d.choice(['lo', 'eth0', 'eth*', 'l?', '[el]o', 'nosuch', 'enp*', '*', 'en[pq]3s0f1']))}",
        lambda d: f"check_ps_loadavg {d.choice(['3', '4', '3 8 13', '4 7 13', '4 8 12', '4 8 13', '10', '0', '20 20 20', '4 8', '3 1 1'])}",
    ],
    "fs": [
        lambda d: f"check_fs_size {d.choice(POINTS)} {_size(d)} {d.choice([_size(d), ''])}",
        lambda d: f"check_fs_{d.choice(['free', 'used'])} {d.choice(POINTS)} {d.choice([_size(d), _share(d), _share(d)])}",
        lambda d: f"check_fs_inodes {d.choice(POINTS)} {d.choice(['1k', '1000', '3m', '0', '500k', '1001'])} {d.choice(['', '1k', '10M', '4m'])}",
        lambda d: f"check_fs_{d.choice(['ifree', 'iused'])} {d.choice(POINTS)} {d.choice(['10', '11', '1k', '1m', '990', '60m', _share(d), _share(d)])}",
        _mount, _mount,
        lambda d: f"check_fs_mount{d.choice(['', '_rw', '_ro'])} {d.choice(POINTS[:-1])} {d.choice(['', 'nas1:/export/home', '* nfs4', 'tmpfs tmpfs'])}",
    ],
    "ps": [
        lambda d: f"check_ps_daemon {d.choice(DAEMONS)} {d.choice(['', 'root', 'svc', 'bob', 'alice', 'stranger'])}",
        lambda d: f"check_ps_daemon {d.choice(['crond root -n', 'crond root -x', 'slurmd root -D', 'python3 alice train.py', '[c]rond', 'c?ond root'])}",
        lambda d: f"check_ps_blacklist {d.choice(DAEMONS)} {d.choice(['', *(_quoted(d, owner) for owner in OWNERS if owner != '1011')])}",
        lambda d: f"check_ps_service {d.choice(['', '-u ' + _quoted(d, d.choice(OWNERS[:-1])), '-fu root', '-d crond'])} {d.choice(DAEMONS)}",
        lambda d: f"check_ps_service {d.choice(['-f -m ' + repr('*agent.conf'), '-fm ' + repr('/train.py/'), '-m ' + repr('*/crond'), '-m ' + repr('/^slurm/')])} x",
        lambda d: f"check_ps_{d.choice(['mem', 'physmem'])} {_some(d, ['-A', '-a', '-u alice', '-u bob', '-m ' + repr('*a.out'), '-f'], 2)} {d.choice(['1g', '2g', '3G', '30g', '31457280', '100m', '500m', '64g'])}",
        lambda d: f"check_ps_physmem {_some(d, ['-A', '-u alice', '-a'], 1)} {_share(d)}",
        lambda d: f"check_ps_cpu {_some(d, ['-A', '-a', '-u alice', '-f', '-m ' + repr('*a.out')], 2)} {d.choice(['90', '90%', '99%', '100', '350%', '351%', '5', '1%'])}",
    ],
    "dmi": [
        lambda d: f"check_dmi_data_match {_some(d, ['-t 17', '-t 0', '-t 1', '-h 0x0000', '-h 0x0100', '-t ' + repr('Memory Device'), '-!', '-n'], 1)} {_quoted(d, d.choice(DMI))}",
        lambda d: f"check_dmi_raw_data_match {_quoted(d, d.choice([text for text in DMI if text[0] in '*/']))}",
    ],
    "file": [
        lambda d: f"check_file_contents {D}/{d.choice(['plain', 'pbs', 'one', 'link'])} {_found(d, 4)}",
        _test, _stat,
    ],
    "cmd": [
        lambda d: f"check_cmd_output {d.choice(['', '-t 2', '-t2', '-r 0', '-r0', '-r 1'])} {_found(d, 3, '-m ')} {d.choice(COMMANDS)}",
        lambda d: f"check_cmd_status {_some(d, ['-t 2', '-t2', '-r 0', '-r0', '-r 1', '-r 3'], 1)} {d.choice(STATUSES)}",
    ],
}  # fmt: skip

STRINGS = ["n0001", "login", "n0", "n0042", "n0100", "n0042.cluster", "gpu7", "node5", "node05", "node010", "login", "rack1-n07", "n0042.gpu", "",
           "a", "ab", "abc", "a b", "A1", "x*y", "10.0.0.1", "eth0:1", "foo.bar.baz", "-bash", "n0042.cluster.example"]  # fmt: skip
PIECES = [
    "n",
    "0",
    "00",
    "42",
    "*",
    "?",
    "[0-9]",
    "[!0-9]",
    "[a-c]",
    ".",
    "cluster",
    "a",
    "b",
    "@(a|b)",
    "+(0|4)",
    "?(n)",
    "-",
]
EXPRESSIONS = [
    "n",
    "0+",
    "[0-9]",
    "[0-9]{4}",
    "^",
    "$",
    ".",
    "\\.",
    "(gpu|phi)",
    ".*",
    "a?",
    "[[:alpha:]]",
    "[^0-9]",
    "b|c",
    "42",
]
RANGES = ["n[0000-0099]", "n[0001-0042]", "n00[40-44]", "n[0-99]", "node[01-10]", "node[1-10]", "n[0040-0050].cluster", "gpu[1-8]",
          "n0042", "rack1-n[00-10]", "n[42-40]", "n[0042-0042]"]  # fmt: skip


def matches(draw: random.Random) -> Iterator[Tuple[str, str]]:
    """Strings and match strings. Those whose meaning ours changes (docs/lbnl-compatibility.md) are not drawn."""
    for _ in range(900):
        kind = draw.random()
        if kind < 0.4:
            pattern = _concatenated(draw, PIECES)
        elif kind < 0.7:
            pattern = f"/{_concatenated(draw, EXPRESSIONS)}/"
        else:
            pattern = "{" + ",".join(draw.choice(RANGES) for _ in range(draw.randint(1, 3))) + "}"
        negated = "!" if draw.random() < 0.2 and not pattern.startswith("(") else ""
        yield draw.choice(STRINGS), negated + pattern


def _concatenated(draw: random.Random, pieces: List[str]) -> str:
    return "".join(draw.choice(pieces) for _ in range(draw.randint(1, 4)))


def texts() -> List[str]:
    """Configurations, as printf(1) takes them: what is read from them, in order, for the node."""
    return [
        "* || a b\\n", "*||a\\n", "\\t*\\t||\\ta\\tb\\t\\n", "   *   ||   a   \\n", "# * || a\\n  # x\\n\\t# y\\n* || b # c\\n",
        "n0042.cluster || a\\nn0042 || b\\nn00* || c\\n!n00* || d\\n", "/^n00/ || a\\n/\\.cluster$/ || b\\n!/gpu/ || c\\n",
        "{n00[40-44].cluster} || a\\n{n00[00-10].cluster} || b\\n!{n00[00-10].cluster} || c\\n", "* || a || b\\n* || c && d\\n",
        "\\n\\n* || a\\n\\n", "|| a\\n* ||\\n* ||   \\n* || b\\n", "* || a \\\\\\n  b\\n* || c\\n", "n* || a\\n*r || b\\n?0042* || c\\n",
        "*.cluster||a\\n*.gpu||b\\n", "* || X=1\\n* || export Y=2\\n", "other\\nwords without bars\\n* || a\\n",
    ]  # fmt: skip
