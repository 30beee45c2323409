"""A node with GPUs as a program on it sees one: trees of /proc, /sys and /dev, and the commands of drivers and systemd.

The commands are one program under several names. What it knows is in files below `state`; each call is a line in
`calls`. Texts are those of nvidia-smi(1), amd-smi and systemctl.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Dict, List, Optional, Sequence

BOOT = "6c1f0a52-5f3c-4b57-9a3f-1f0e2d3c4b5a"
UUID = "4c4c4544-0042-3510-8052-b4c04f564433"

COMMANDS = ("nvidia-smi", "systemctl", "modprobe", "amd-smi", "kubectl", "logger", "journalctl", "dmesg", "dcgmi",
            "nvidia-bug-report.sh")  # fmt: skip

PROGRAM = r'''#!@python -IS
import json, os, shutil, sys, time
base = "@base"
root, state = base + "/root", base + "/state"
name, args = os.path.basename(sys.argv[0]), sys.argv[1:]
with open(base + "/calls", "a") as file:
    file.write(" ".join([name, *args]) + "\n")
def read(path, default=""):
    try:
        with open(state + "/" + path) as file:
            return file.read().strip()
    except OSError:
        return default
def write(path, text):
    with open(state + "/" + path, "w") as file:
        file.write(text)
def end(text="", status=0, err=""):
    sys.stdout.write(text); sys.stderr.write(err); sys.exit(status)
def value(option):
    return args[args.index(option) + 1]
def hold(gate):
    while os.path.exists(state + "/" + gate):
        time.sleep(0.01)
wrong = read("fail-" + name + "-" + (args[0] if args else ""))
if wrong:
    end("", 1, wrong + "\n")
def gpus():
    return json.loads(read("gpus"))
def holder(unit, there):
    pid = read("pid-" + unit.replace("/", "_"))
    at, kept = f"{root}/proc/{pid}", f"{state}/proc-{pid}"
    if pid and there and os.path.exists(kept):
        os.rename(kept, at)
    if pid and not there and os.path.exists(at):
        os.rename(at, kept)
if name == "nvidia-smi":
    if "--gpu-reset" in args:
        hold("gate")
        bad, lines = read("refuse-reset"), []
        for bus in value("-i").split(","):
            if bad:
                lines.append(f"  GPU {bus}: {bad}")
            else:
                lines.append(f"GPU {bus} was successfully reset.")
        if not bad:
            found = gpus()
            for one in found:
                if one["bus"] in value("-i").split(",") and not read("no-cure"):
                    one["recovery"] = "None"
            write("gpus", json.dumps(found))
        if bad:
            end("The following GPUs could not be reset:\n" + "\n".join(lines) + "\n", 255)
        end("\n".join(lines) + "\nAll done.\n")
    if "-pm" in args:
        found = gpus()
        for one in found:
            if one["bus"] == value("-i"):
                one["persistence"] = "Enabled" if value("-pm") == "1" else "Disabled"
        write("gpus", json.dumps(found))
        end("All done.\n")
    if args[0] == "nvlink":
        end("".join(f"GPU {n}: NVIDIA (UUID: {one['uuid']})\n" + ("\t Link 0: 26.562 GB/s\n" if one["linked"] else "\t Link 0: <inactive>\n")
                    for n, one in enumerate(gpus())))
    if not any(line.startswith("nvidia ") for line in open(root + "/proc/modules")):
        end("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n", 9)
    if args == ["-q"]:
        end("Attached GPUs : %d\n" % len(gpus()))
    rows = "".join(f"""<gpu id="{one['bus']}"><product_architecture>{one['architecture']}</product_architecture>
<persistence_mode>{one['persistence']}</persistence_mode><uuid>{one['uuid']}</uuid><minor_number>{n}</minor_number>
<mig_devices>{'<mig_device><index>0</index></mig_device>' * one['slices']}</mig_devices>
<gpu_recovery_action>{one['recovery']}</gpu_recovery_action></gpu>""" for n, one in enumerate(gpus()))
    end('<?xml version="1.0" ?><!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd"><nvidia_smi_log>' + rows + "</nvidia_smi_log>")
if name == "systemctl":
    if args[0] == "show":
        blocks = []
        for unit in args[3:]:
            known = os.path.exists(f"{state}/unit-{unit}")
            blocks.append(f"Id={unit}\nLoadState={'loaded' if known else 'not-found'}\nActiveState={read('unit-' + unit, 'inactive')}\n"
                          f"InvocationID={read('run-' + unit)}\nTriggeredBy={read('trigger-' + unit)}\n")
        end("\n".join(blocks))
    if args[0] == "reboot":
        end()
    for unit in args[1:]:
        if args[0] == "stop" and read("path-" + unit) == "active":
            write("unit-" + unit, "active")
        write("unit-" + unit, "inactive" if args[0] == "stop" else "active")
        if args[0] != "stop":
            write("run-" + unit, read("run-" + unit) + "1")
        holder(unit, args[0] != "stop")
    end()
if name == "modprobe":
    loaded = open(root + "/proc/modules").read().splitlines()
    if args[0] == "-r":
        hold("gate")
        loaded = [line for line in loaded if line.split()[0] not in args]
    else:
        loaded.append(f"{args[0]} 1000 0 - Live 0x0")
        if args[0] == "nvidia":
            write("gpus", json.dumps([{**one, "recovery": "None"} for one in gpus()]))
    open(root + "/proc/modules", "w").write("".join(line + "\n" for line in loaded))
    end()
if name == "kubectl":
    labels = json.loads(read("labels", "{}"))
    if "label" in args:
        key, _, text = args[-1].partition("=")
        labels[key] = text
        write("labels", json.dumps(labels))
        holder(key, text == "true")
        end("node/n1 labeled\n")
    end(json.dumps({"metadata": {"labels": labels}}))
if name == "amd-smi":
    if args[0] == "reset":
        hold("gate")
        bad = read("refuse-reset")
        end("".join(f"GPU: {n}\n    GPU_RESET: {'Failed to reset GPU' if n == bad else 'Successfully reset GPU'}\n" for n in args[3:]))
    end("GPU: 0\n")
if name == "nvidia-bug-report.sh":
    with open(value("--output-file") + ".gz" if value("--output-file").startswith(root) else root + value("--output-file") + ".gz", "wb") as file:
        file.write(b"\x1f\x8b bug report")
    end("complete\n")
end(f"what {name} says\n")
'''  # noqa: E501


class GpuNode:
    """One node below `base`. Add what it has, then point the program at `root` and `path`."""

    def __init__(self, base: Path) -> None:
        self.base, self.root, self.state, self.path = base, base / "root", base / "state", base / "bin"
        for directory in (self.root, self.state, self.path):
            directory.mkdir(parents=True)
        program = self.path / "commands"
        program.write_text(PROGRAM.replace("@python", sys.executable).replace("@base", str(base)))
        program.chmod(0o755)
        for name in COMMANDS:
            (self.path / name).symlink_to("commands")
        self.write("/proc/sys/kernel/random/boot_id", BOOT)
        self.write("/sys/class/dmi/id/product_uuid", UUID)
        self.write("/proc/modules", "")

    def write(self, path: str, text: str) -> None:
        """A file of the node's."""
        at = self.root / path.lstrip("/")
        at.parent.mkdir(parents=True, exist_ok=True)
        at.write_text(text + "\n" if text else "")

    def note(self, name: str, text: str) -> None:
        """Something that the commands know."""
        (self.state / name).write_text(text)

    def gpus(self, count: int = 2, architecture: str = "Hopper", linked: bool = True, **more: object) -> None:
        """NVIDIA GPUs of one kind, with the modules of their driver."""
        one = {
            "architecture": architecture,
            "persistence": "Enabled",
            "slices": 0,
            "recovery": "None",
            "linked": linked,
        }
        rows = [{**one, **more, "bus": f"00000000:{24 + n:02X}:00.0", "uuid": f"GPU-{n}"} for n in range(count)]
        self.note("gpus", json.dumps(rows))
        self.write(
            "/proc/modules", "nvidia_uvm 1500 0 - Live 0x0\nnvidia 9000 1 nvidia_uvm, Live 0x0\next4 1 0 - Live 0x0"
        )

    def gpu_rows(self) -> List[Dict[str, object]]:
        found: List[Dict[str, object]] = json.loads((self.state / "gpus").read_text())
        return found

    def process(self, pid: int, name: str, files: Sequence[str], unit: str = "", pod: bool = False) -> None:
        """A process that has files open."""
        self.write(f"/proc/{pid}/comm", name)
        place = (
            "kubepods.slice/pod1/x" if pod else f"system.slice/{unit}" if unit.endswith(".service") else "user.slice/s1"
        )
        self.write(f"/proc/{pid}/cgroup", f"0::/{place}")
        (self.root / f"proc/{pid}/fd").mkdir()
        for number, file in enumerate(files, 3):
            (self.root / f"proc/{pid}/fd/{number}").symlink_to(file)
        if unit:
            self.note(f"pid-{unit.replace('/', '_')}", str(pid))

    def unit(self, name: str, active: str = "active", triggered_by: str = "") -> None:
        self.note(f"unit-{name}", active)
        self.note(f"run-{name}", "1")
        if triggered_by:
            self.note(f"trigger-{name}", triggered_by)

    def units(self) -> Dict[str, str]:
        return {path.name[5:]: path.read_text() for path in sorted(self.state.glob("unit-*"))}

    def switch(self) -> None:
        """An NVSwitch of the node's own."""
        self.write("/sys/bus/pci/devices/0000:05:00.0/class", "0x068000")
        self.write("/sys/bus/pci/devices/0000:05:00.0/vendor", "0x10de")

    def amd(self, count: int, hive: Optional[str] = None) -> None:
        """AMD GPUs, in one XGMI hive or in none."""
        self.write("/proc/modules", "amdgpu 9000 0 - Live 0x0")
        for n in range(count):
            base = f"/sys/bus/pci/devices/0000:{n + 1:02x}:00.0"
            self.write(f"{base}/vendor", "0x1002")
            (self.root / f"{base[1:]}/driver").symlink_to("../../../bus/pci/drivers/amdgpu")
            self.write(f"{base}/drm/renderD{128 + n}/dev", "226:128")
            self.write(f"{base}/xgmi_hive_info/xgmi_hive_id", hive or "0")

    def calls(self, *names: str) -> List[str]:
        """The commands that ran, in order."""
        at = self.base / "calls"
        lines = at.read_text().splitlines() if at.exists() else []
        return [line for line in lines if not names or line.split()[0] in names]

    def changes(self) -> List[str]:
        """The commands that changed something."""
        asks = ("nvidia-smi -q", "nvidia-smi nvlink", "systemctl show", "kubectl", "logger")
        return [
            line for line in self.calls()
            if not line.startswith(asks) or (line.startswith("kubectl") and " label " in line)
        ]  # fmt: skip

    def ssh(self, at: Path) -> Path:
        """A client that logs in here: `no-server`, `no-login` and `lose` below `at` are what goes wrong."""
        program = at / "ssh"
        program.write_text(SSH.replace("@at", str(at)))
        program.chmod(0o755)
        return program


SSH = """\
#!/bin/sh
# The last argument is the command, as with ssh. Each line of `asked` is a command that reached the node.
at=@at
for line; do :; done
[ -e $at/no-server ] && { echo 'ssh: connect to host n1 port 22: Connection refused' >&2; exit 255; }
[ -e $at/no-login ] && { echo 'nhc@n1: Permission denied (publickey).' >&2; exit 255; }
case "$line" in
  *" start "*) word=start ;;
  *) word=ask ;;
esac
[ $word = start ] && echo start >>$at/asked
[ $word = start ] && [ -e $at/busy ] && { rm $at/busy; echo 'nhc: logged in' >&2; echo '{"answer":"refused","message":"another repair runs on this node","retry_after":60}'; exit 0; }
if [ $word = start ] && [ -e $at/no-sudo ]; then
  echo 'nhc: logged in' >&2; echo 'sudo: a password is required' >&2; exit 1
fi
sh -c "$line" >$at/out 2>$at/err; status=$?
if [ $word = start ] && [ -e $at/lose ]; then
  rm $at/lose; echo 'nhc: logged in' >&2; echo 'client_loop: send disconnect: Broken pipe' >&2; exit 255
fi
if [ $word = start ] && [ -e $at/break ]; then
  rm $at/break; echo 'nhc: logged in' >&2; echo 'MemoryError' >&2; exit 1
fi
cat $at/err >&2; cat $at/out; exit $status
"""  # noqa: E501


def remove(path: Path) -> None:
    """A file or a directory, if it is there."""
    if path.is_dir():
        shutil.rmtree(path)
    elif path.exists():
        path.unlink()
