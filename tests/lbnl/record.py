"""Record LBNL NHC's verdicts: `python -m tests.lbnl.record DIRECTORY > tests/data/lbnl-1.4.3.tsv`.

DIRECTORY is an unpacked LBNL NHC, whose functions are called as they are: nothing of it is in this repository.
Each row is a fact: the family, what it was asked, its exit status (or what it read), and its message.
"""

import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.lbnl import node
from tests.lbnl.lines import lines, matches, texts
from tests.support.processes import TICKS

DRIVER = r"""
NHC_LOAD_ONLY=1; . "$PEER/nhc"; unset NHC_LOAD_ONLY
nhcmain_init_env
HOSTNAME=$NODE HOSTNAME_S=${NODE%%.*} NAME=nhc LOGFILE="" DEBUG=0 TS=0 SILENT=0 VERBOSE=0 MARK_OFFLINE=0 TIMEOUT=30
NHC_CHECK_ALL=0 NHC_CHECK_FORKED=0 NHC_RM="" ONLINE_NODE=: OFFLINE_NODE=: INCDIR=$SCRIPTS
PATH=$STUBS:$PATH SHELL=/bin/bash PASSWD_DATA_SRC=$D/etc/passwd LOGIN_DEFS_SRC=$D/etc/login.defs
DF_CMD=$STUBS/df DF_FLAGS=space DFI_CMD=$STUBS/df DFI_FLAGS=inodes
nhcmain_load_scripts
syslog_flush() { LOGGER_TEXT=""; }
nhc_hw_gather_data; nhc_fs_df_gather_data; nhc_fs_dfi_gather_data; nhc_fs_mounts_gather_data; nhc_ps_gather_data
while IFS=$'\037' read -r -d '' family asked more; do
    case "$family" in
        match) mcheck "$asked" "$more" 2>/dev/null; printf '%s\0%s\0' "$?" '' ;;
        read) CHECKS=( ); nhc_load_conf <(printf "$asked") 2>/dev/null
              printf '%s\0%s\0' "${#CHECKS[*]}" "$(IFS=$'\036'; printf '%s' "${CHECKS[*]}")" ;;
        *) CHECK="$asked"
           said=$( ( eval $CHECK; exit $? ) 2>&1 </dev/null )
           status=$?
           said=$(printf '%s\n' "$said" | sed -n 's/^ERROR:  nhc:  Health check failed:  //p' | head -1)
           printf '%s\0%s\0' "$status" "$said" ;;
    esac
done
"""


def record(peer: Path, directory: Path) -> None:
    """Write the table to standard output."""
    stage(peer, directory)
    files = directory / "files"
    files.mkdir()
    node.make_files(files)
    draw = random.Random(1)
    asked = [(family, line, "") for family in ("hw", "fs", "ps", "dmi", "file", "cmd") for line in lines(family, draw)]
    asked += [("match", string, pattern) for string, pattern in matches(draw)]
    asked += [("read", text, "") for text in texts()]
    given = "".join(f"{family}\x1f{text}\x1f{more}\0" for family, text, more in asked).replace("@D@", str(files))
    environ = {"PATH": os.environ["PATH"], "PEER": str(peer), "SCRIPTS": str(directory / "scripts"),
               "D": str(directory), "STUBS": str(directory / "stubs"), "NODE": node.HOSTNAME}  # fmt: skip
    done = subprocess.run(["bash", "-c", DRIVER], input=given, capture_output=True, text=True, env=environ)
    answers = done.stdout.replace(str(files), "@D@").split("\0")[:-1]
    if len(answers) != 2 * len(asked):
        raise SystemExit(f"{len(answers)} answers to {len(asked)} questions\n{done.stderr[-2000:]}")
    print("# LBNL NHC 1.4.3's verdicts, recorded by tests/lbnl/record.py: family, question, pattern, status, message")
    for (family, text, more), status, said in zip(asked, answers[::2], answers[1::2]):
        print(
            "\t".join(
                (family, text, more, status, said.replace("\n", "\\n").replace("\x1e", "\\n").replace("\t", "\\t"))
            )
        )


def stage(peer: Path, directory: Path) -> None:
    """Lay out the recorded machine for LBNL NHC: its scripts with other paths, files, and commands that answer."""
    (directory / "scripts").mkdir()
    for script in sorted((peer / "scripts").glob("*.nhc")):
        text = (
            script.read_text().replace("/proc/", f"{directory}/proc/").replace("/sys/class/", f"{directory}/sys/class/")
        )
        (directory / "scripts" / script.name).write_text(text)
    for path, text in {"proc/meminfo": node.MEMINFO, "proc/loadavg": node.LOADAVG, "proc/net/dev": node.NET_DEV,
                       "proc/modules": node.MODULES, "proc/mounts": node.MOUNTS, "etc/passwd": node.PASSWD,
                       "etc/login.defs": node.LOGIN_DEFS, "sys/class/infiniband_mad/abi_version": "5\n",
                       "dmi": node.DMI, "ps": ps(), "df.space": df(0), "df.inodes": df(3)}.items():  # fmt: skip
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_text(text)
    stubs = {"dmidecode": "cat $D/dmi", "ps": "cat $D/ps", "df": "cat $D/df.$1", "service": "exit 1"}
    (directory / "stubs").mkdir()
    for name, script in stubs.items():
        (directory / "stubs" / name).write_text(f"#!/bin/bash\n{script}\n")
        (directory / "stubs" / name).chmod(0o755)


def ps() -> str:
    """The recorded machine's processes as `ps axo user:32,uid,pid,ppid,pcpu,pmem,rss,vsz,bsdtime,args` prints them."""
    names = {uid: name for name, uid in node.USERS.items()}
    rows = ["USER UID PID PPID %CPU %MEM RSS VSZ TIME COMMAND"]
    total = int(node.MEMINFO.split()[1])
    for process in node.PROCESSES:
        resident = process.rss // 4 * 4
        cpu, memory = process.cpu * 1000 // process.age, resident * 1000 // total
        time = f"{process.cpu // 60}:{process.cpu % 60:02}"
        rows.append(f"{names[process.uid]} {process.uid} {process.pid} {process.parent} {_tenths(cpu)} "
                    f"{_tenths(memory)} {resident} {process.vsize} {time} {process.args}")  # fmt: skip
    assert TICKS == 100
    return "\n".join(rows) + "\n"


def _tenths(share: int) -> str:
    """A percentage as ps prints it: cut off, and without a decimal from 100 on."""
    return str(share // 10) if share > 999 else f"{share // 10}.{share % 10}"


def df(at: int) -> str:
    """Its file systems as `df -Tka` (space, at 0) or `df -Tia` (inodes, at 3) prints them."""
    rows = ["Filesystem Type Total Used Available Use% Mounted"]
    for line in node.MOUNTS.splitlines():
        source, point, kind = line.split()[:3]
        total, used, free, inodes, inodes_used = node.USAGE.get(point, (0, 0, 0, 0, 0))
        if at:
            total, used, free = inodes, inodes_used, inodes - inodes_used
        share = f"{-(-used * 100 // (used + free))}%" if used + free else "-"
        rows.append(f"{source} {kind} {total} {used} {free} {share} {point}")
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        record(Path(sys.argv[1]).resolve(), Path(made))
