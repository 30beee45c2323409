"""The node's gate is open: its suite has passed in this boot, on this machine. Prologs run it before every job."""

from __future__ import annotations

from nhc.core.check import check, flag, opt
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Action, Outcome, crit, ok, skip, unknown
from nhc.core.units import count, seconds, show_seconds, text

if TYPE_CHECKING:
    from typing import Optional

AHEAD = 86400.0
"""Seconds by which the clock may have been ahead at the verdict: a verdict dated later would stay valid until then."""
JOB_NODES = "NHC_JOB_NODES"
"""What a hook sets: how many nodes the job has that is about to start."""


@check(
    "check_gate",
    opt("-f --file", "path", text, "the gate's record; default: $NHC_GATE_FILE, else /var/lib/nhc/gate.json"),
    flag("-c --closed", "closed", "no record, or one that cannot be read, is CRIT, not UNKNOWN"),
    opt("-a --max-age", "max_age", seconds, "the oldest verdict that a large job may have"),
    opt("-m --more-than", "nodes", count, "-a is for jobs of more nodes than this", 1),
)
def check_gate(
    host: Host, path: str = "", closed: bool = False, max_age: Optional[float] = None, nodes: int = 1
) -> Outcome:
    """The node's suite of deep checks has passed, so that it may take work.

    Reads the record that `nhc gate run` keeps, and runs nothing. CRIT (GateClosed) while the suite has not passed;
    CRIT (GateTooOld) where the verdict is older than -a and the job has more nodes than -m, which hooks know of their
    job. A record of another boot counts as none where its gate closes at each start: `nhc gate boot` has not run.
    UNKNOWN without a record, CRIT with -c. For the prolog: a node that the scheduler powers up for a job has that job
    before anything could drain it. SKIP for -a outside a job.

    Example: * |context prolog| check_gate -c
    """
    from nhc.core.state import gate_record

    where = path or gate_record.path()
    cannot = crit if closed else unknown
    try:
        kept = gate_record.parse(host.ours.read(where, gate_record.LIMIT), where)
    except FileNotFoundError:
        return cannot("GateUntold", f"{where}: the gate has no record here: nhc gate boot has not run")
    except OSError as error:
        return cannot("GateUntold", f"{where}: {error.strerror}")
    except ValueError as error:
        return cannot("GateUntold", str(error))
    if not kept.state.lets_in:
        return crit("GateClosed", f"the gate is {kept.state.value}: {kept.why}", action=Action.INSPECT)
    if kept.each_boot and kept.boot != host.boot_id():
        return cannot("GateUntold", "the verdict is of another boot, and nhc gate boot has not run in this one")
    age = max(host.time() - kept.at, 0.0)
    if max_age is None:
        return ok(f"{kept.suite} {kept.state.value} {show_seconds(round(age))} ago")
    size = host.setting(JOB_NODES) if JOB_NODES in host.settings else ""
    if not size.isdigit():
        return skip("NothingAsked", "-a is for the hook of a job, which says how many nodes the job has")
    if int(size) > nodes and kept.at > host.time() + AHEAD:
        dated = f"the verdict of {kept.suite} is dated {show_seconds(round(kept.at - host.time()))} from now"
        return crit("GateTooOld", f"{dated}: the clock was wrong, and its age is not known", action=Action.INSPECT)
    if int(size) > nodes and age > max_age:
        last = f"{kept.suite} {kept.state.value} {show_seconds(round(age))} ago"
        asked = f"a job of {size} nodes asks for at most {show_seconds(max_age)}"
        return crit("GateTooOld", f"{last}, and {asked}", action=Action.INSPECT)
    return ok(f"{kept.suite} {kept.state.value} {show_seconds(round(age))} ago; the job has {size} nodes")
