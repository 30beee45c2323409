"""Carry out a plan: stop the users, wait until the devices are free, repair once, verify, put back; all journaled.

`amd-smi reset --gpureset` exits with 0 even if a reset failed: its output for each GPU shows the result.
"""

from __future__ import annotations

import re
import time
from typing import Callable, Dict, List, Mapping, Sequence

from nhc_adapters.node.hand import look, nvidia
from nhc_adapters.node.hand.journal import ACTING, BOOTING, ENDED, RepairJournal, RepairState
from nhc_adapters.node.hand.look import LocalNode
from nhc_adapters.node.hand.plan import CONTROL
from nhc_adapters.node.hand.values import (
    AskedRepair,
    NodeFacts,
    NotPossible,
    RepairDevice,
    RepairPlan,
    RepairResult,
    Undo,
)

RESET = 300.0
"""Seconds for one command that repairs."""
SERVICE = 120.0
"""Seconds for a service to stop or to start."""
LOOK = 0.25
"""Seconds between two looks for holders, or for devices that come back."""

Clock = Callable[[], float]


class RepairWork:
    """One repair under way. `state` is as the journal has it."""

    def __init__(self, node: LocalNode, journal: RepairJournal, state: RepairState, asked: AskedRepair) -> None:
        self.node, self.journal, self.state, self.asked = node, journal, state, asked

    def _note(self, **changes: object) -> None:
        self.state = self.state._replace(**changes)  # type: ignore[arg-type]
        self.journal.save(self.state)

    def carry_out(self, plan: RepairPlan, facts: NodeFacts) -> None:
        """Run to the end, and put back after any result. Raises OSError if the journal cannot be written."""
        judged = RepairResult(False, "it was ended before the repair began")
        try:
            self._take_away(plan)
            self._wait_until_free(plan, facts)
            self._note(phase=BOOTING if plan.judge == "reboot" else ACTING)
            judged = RepairResult(False, "it was ended during the repair")
            judged = self._act(plan, facts)
        except NotPossible as error:
            judged = RepairResult(False, str(error), judged.results)
        finally:
            if not (plan.judge == "reboot" and judged.fine):
                self.put_back(judged)

    def _take_away(self, plan: RepairPlan) -> None:
        for undo in plan.undo:
            if undo.kind == "module":
                continue  # the repair itself unloads it
            self._note(left=(*self.state.left, undo))
            self._switch(undo, False)
        modules = tuple(undo for undo in plan.undo if undo.kind == "module")
        if modules:
            self._note(left=(*self.state.left, *modules))

    def _switch(self, undo: Undo, on: bool) -> None:
        """Take something away, or put it back; a module is only put back, as the repair itself unloads it."""
        if undo.kind == "label":
            self.node.ask(
                "kubectl", "--kubeconfig", self.asked.kubeconfig, "label", "--overwrite", "node", self.asked.node,
                f"{undo.name}={undo.value if on else 'false'}",
            )  # fmt: skip
        elif undo.kind == "unit":
            self.node.ask("systemctl", "start" if on else "stop", undo.name, timeout=SERVICE)
        elif undo.kind == "persistence":
            self.node.ask("nvidia-smi", "-i", undo.name, "-pm", "1" if on else "0", timeout=SERVICE)
        elif on and undo.name not in look.modules(self.node):
            self.node.ask("modprobe", undo.name, timeout=SERVICE)

    def _wait_until_free(self, plan: RepairPlan, facts: NodeFacts) -> None:
        """Raises NotPossible with the names of who still holds a device."""
        until = time.monotonic() + self.asked.wait
        control = CONTROL.get(facts.vendor, ())
        while plan.files or plan.modules:
            held = [
                holder for holder in look.holders(self.node)
                if plan.files.intersection(holder.files)
                or (plan.modules and any(file.startswith(control) for file in holder.files))
            ]  # fmt: skip
            if not held:
                break
            if time.monotonic() >= until:
                raise NotPossible(f"still held after {self.asked.wait:g} s by {', '.join(map(str, held[:5]))}")
            time.sleep(LOOK)
        loaded = look.modules(self.node)
        for name in plan.modules:
            module = loaded.get(name)
            if module and (set(module.users) - set(plan.modules) or module.references > len(module.users)):
                others = ", ".join(sorted(set(module.users) - set(plan.modules)))
                raise NotPossible(
                    f"module {name} is in use{f' by {others}' if others else ''} ({module.references} references)"
                )

    # The repair.

    def _act(self, plan: RepairPlan, facts: NodeFacts) -> RepairResult:
        if plan.judge in ("nvidia", "amd"):
            return self._reset(plan)
        for command in plan.commands:
            self.node.ask(*command, timeout=RESET)
        if plan.judge == "reboot":
            return RepairResult(True, "systemd has taken the reboot")
        return self._services(facts) if plan.judge == "services" else self._devices(plan, facts)

    def _reset(self, plan: RepairPlan) -> RepairResult:
        done = self.node.run(*plan.commands[0], timeout=RESET)
        output = f"{done.stdout}\n{done.stderr}"
        judge = nvidia.judge_reset if plan.judge == "nvidia" else judge_reset
        judged = judge(done.status, output, plan.devices)
        if not judged.fine or plan.judge == "amd":
            return judged
        after = nvidia.judge_after(plan.devices, look.nvidia_devices(self.node))
        return judged if after.fine else RepairResult(False, f"{judged.message}, but {after.message}", judged.results)

    def _services(self, before: NodeFacts) -> RepairResult:
        now = look.units(self.node, self.asked.services)
        bad = [
            name for name in self.asked.services
            if name not in now or not now[name].active or now[name].run == before.units[name].run
        ]  # fmt: skip
        if bad:
            return RepairResult(False, f"{', '.join(bad)} was not started again")
        return RepairResult(True, f"{', '.join(self.asked.services)} started again")

    def _devices(self, plan: RepairPlan, facts: NodeFacts) -> RepairResult:
        """The driver is there again, with as many devices as before."""
        if facts.vendor == "nvidia":
            after = nvidia.judge_after(plan.devices, look.nvidia_devices(self.node))
            return after if not after.fine else RepairResult(True, f"the driver is loaded anew, {after.message}")
        until = time.monotonic() + SERVICE
        while True:
            there = {device.bus for device in look.devices(self.node, facts.vendor)}
            absent = [device.label for device in plan.devices if device.bus not in there]
            if not absent:
                return RepairResult(True, f"the driver is loaded anew, {len(there)} devices")
            if time.monotonic() >= until:
                return RepairResult(False, f"{', '.join(absent)} did not come back with the driver")
            time.sleep(LOOK)

    # Afterwards.

    def put_back(self, judged: RepairResult) -> None:
        """Put back all that is left, the last first, and end. What cannot be put back makes it a failure."""
        failed: List[str] = []
        kept: List[Undo] = []
        same = look.identity(self.node).boot == self.state.boot
        for undo in reversed(self.state.left):
            try:
                if undo.kind == "label" or same:  # the rest belongs to the old boot: systemd and udev have restarted
                    self._switch(undo, True)
            except NotPossible as error:
                failed.append(f"{undo.name} was not put back: {error}")
                kept.insert(0, undo)
        message = "; ".join([judged.message, *failed])
        self._note(
            phase=ENDED, outcome="done" if judged.fine and not failed else "failed", message=message[:900],
            results=dict(judged.results), left=tuple(kept),
        )  # fmt: skip


def answer_of(state: RepairState, boot: str, busy: bool) -> Mapping[str, object]:
    """A repair as the answer to `show`: `stage` is working, killed, done or failed."""
    stage, message = "working", state.message or state.phase
    if state.phase == ENDED:
        stage = "failed" if state.outcome != "done" else "done"
    elif state.phase == BOOTING:
        rebooted = boot != state.boot
        stage, message = ("done", "booted again") if rebooted else ("working", "has not booted again yet")
    elif not busy:
        stage, message = (
            "killed",
            f"the repair was killed while it was {state.phase}; what it stopped is to be put back",
        )
    return {"stage": stage, "message": message, "results": dict(state.results), "boot": boot}


def judge_reset(status: int, output: str, devices: Sequence[RepairDevice]) -> RepairResult:
    """The results by GPU: blocks of `GPU: N` with `Successfully reset GPU` or `Failed to reset GPU` in each."""
    results: Dict[int, str] = {}
    number = -1
    for line in output.splitlines():
        head = re.match(r"\s*GPU:\s*(\d+)\s*$", line)
        number = int(head[1]) if head else number
        own = re.search(r"(Successfully reset|Failed to reset) GPU\s*(\d*)", line)
        if own:
            which = int(own[2]) if own[2] else number
            good = own[1].startswith("Success") and results.get(which, "reset") == "reset"
            results[which] = "reset" if good else "Failed to reset GPU"
    if len(devices) == 1 and -1 in results:  # one GPU was asked for, and none is named
        results[devices[0].number] = results.pop(-1)
    mine = {device.label: results.get(device.number, "") for device in devices}
    bad = [f"{label}: {text or 'amd-smi does not say'}" for label, text in mine.items() if text != "reset"]
    if status and not bad:
        bad = [f"amd-smi ended with {status}"]
    return RepairResult(not bad, "; ".join(bad) or f"{', '.join(mine)} reset", mine)
