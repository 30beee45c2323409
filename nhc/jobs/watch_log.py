"""Reads one line of a training job's log: progress, loss, step time, NaN, NCCL's watchdog, and which rank.

Pure. The forms are those of torchrun (`[rank3]:`), srun -l (`3: `), mpirun (`[1,3]<stderr>:`), PyTorch's
ProcessGroupNCCL, NCCL, Megatron-LM, DeepSpeed and Hugging Face's Trainer. A line in no known form gives no fact, and
never counts as a sign of health.
"""

from __future__ import annotations

import re
from enum import Enum
from math import isfinite
from typing import List, NamedTuple, Optional, Tuple

LONGEST = 16384
"""Characters of a line that are looked at."""
RANKS = 1 << 20
"""Ranks that a job may have: a larger number is none, and nothing is kept under it."""


class JobLineKind(str, Enum):
    """What a line tells of."""

    STEP = "step"
    LOSS = "loss"
    TIME = "time"
    NAN = "nan"
    WATCHDOG = "watchdog"
    FIRST = "first-failure"
    MAP = "rank-map"


class LogFact(NamedTuple):
    """One thing that a line says. `rank` is -1 and `node` "" where it does not name them.

    `value` is a step's number, a loss, or seconds of one step.
    """

    kind: JobLineKind
    rank: int = -1
    node: str = ""
    value: float = 0.0
    text: str = ""


_RANK = re.compile(r"\[(?:rank|Rank) ?(\d+)\]|\bRank (\d+)\]|\bon rank[ :]+(\d+)|\brank[ :=]+(\d+)\b", re.IGNORECASE)
_TASK = re.compile(r"^ ?(\d{1,6}): |^.{0,40}\[\d+,(\d+)\]<std(?:err|out)>:")
_HOST = re.compile(r"^(?:\[?(?P<a>[A-Za-z][\w.-]*)\]?: )?(?:\s*\d+: )?(?P<b>[A-Za-z][\w.-]*):\d+:\d+ \[\d+\] NCCL ")
_STEP = re.compile(r"\b(?:global[_ ]step|iteration|iter|step)['\"]?\s*[:=#]?\s*(\d+)", re.IGNORECASE)
_NUMBER = r"([-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+|nan|inf(?:inity)?))"
_LOSS = re.compile(rf"\bloss['\"]?\s*[:=]?\s+?{_NUMBER}|\bloss['\"]?\s*[:=]\s*{_NUMBER}", re.IGNORECASE)
_NORM = re.compile(rf"\bgrad(?:ient)?[ _]norm['\"]?\s*[:=]\s*{_NUMBER}", re.IGNORECASE)
_TIME = re.compile(
    r"(?:elapsed time per iteration|(?:step|iter(?:ation)?)[ _]time)\s*(\(ms\)|\(s\))?\s*[:=]?\s*([\d.]+)\s*(ms|s)?\b",
    re.IGNORECASE,
)
_NAN = re.compile(
    r"found NaN|Unexpected result (?:nan|inf)|NaN (?:or Inf )?(?:found|detected|encountered)|"
    r"(?:loss|grad\w{0,20}|weights?|output|tensor)\b.{0,40}\b(?:is|are|contains?|became|has) (?:a )?(?:nan|inf)\b",
    re.IGNORECASE,
)
_WATCHDOG = re.compile(r"Watchdog caught collective operation timeout: WorkNCCL\(SeqNum=(\d+), OpType=(\w+)")
_FIRST = re.compile(r"Root Cause \(first observed failure\)", re.IGNORECASE)
_EXIT = re.compile(r"rank\s*:\s*(\d+) \(local_rank: \d+\)")
_ON_HOST = re.compile(r"^\s*host\s*:\s*([A-Za-z][\w.-]*)\s*$")
_GLOO = re.compile(r"gloo/.*\] (Timed out waiting \d+ms for \w+ operation)")
_INIT = re.compile(r"NCCL INFO .*\brank (\d+) nranks? (\d+)")
_NCCL_TESTS = re.compile(r"Rank\s+(\d+)\b.*? on\s+([A-Za-z][\w.-]*)\s+device")


def read_line(line: str) -> List[LogFact]:
    """What a line says, nothing for most."""
    line = line[:LONGEST].rstrip("\r\n")
    if not line.strip():
        return []
    rank, node = rank_and_node(line)
    mapped = _mapped(line, node)
    if mapped is not None:
        return [mapped]
    facts: List[LogFact] = []
    if _NAN.search(line):
        facts.append(LogFact(JobLineKind.NAN, rank, node, text=_short(line)))
    timeout = _WATCHDOG.search(line)
    if timeout:
        facts.append(
            LogFact(JobLineKind.WATCHDOG, rank, node, _number(timeout[1]) or 0.0, f"{timeout[2]} {timeout[1]}"[:200])
        )
    waited = _GLOO.search(line)
    if waited:
        facts.append(LogFact(JobLineKind.WATCHDOG, rank, node, 0.0, waited[1]))
    elastic = _EXIT.search(line)
    if elastic:
        facts.append(LogFact(JobLineKind.FIRST, rank_in(elastic[1]), node, text=_short(line)))
    return facts or _progress(line, rank, node)


def root_cause(line: str) -> bool:
    """Whether torchrun's block about the first failure begins here: the rank comes some lines below."""
    return bool(_FIRST.search(line))


def named_host(line: str) -> str:
    """The host in torchrun's block, "" where the line is another."""
    match = _ON_HOST.match(line)
    return match[1] if match else ""


def _progress(line: str, rank: int, node: str) -> List[LogFact]:
    step, loss, norm, took = _STEP.search(line), _LOSS.search(line), _NORM.search(line), _TIME.search(line)
    facts: List[LogFact] = []
    number = _number(step[1]) if step else None
    if number is not None and isfinite(number) and (loss or took or norm):
        facts.append(LogFact(JobLineKind.STEP, rank, node, number))
    for kind, match in ((JobLineKind.LOSS, loss), (JobLineKind.NAN, norm)):
        value = _number(next(filter(None, match.groups()))) if match else None
        if value is not None and not isfinite(value):
            facts.append(LogFact(JobLineKind.NAN, rank, node, text=_short(line)))
        elif value is not None and kind is JobLineKind.LOSS:
            facts.append(LogFact(kind, rank, node, value))
    seconds = _number(took[2]) if took else None
    if took and seconds is not None and isfinite(seconds):
        facts.append(LogFact(JobLineKind.TIME, rank, node, seconds / (1e3 if "ms" in f"{took[1]} {took[3]}" else 1.0)))
    return facts


def _number(text: str) -> Optional[float]:
    """What is no number is no fact: `0.5.2`."""
    try:
        return float(text)
    except ValueError:
        return None


def rank_in(digits: Optional[str]) -> int:
    """The rank that digits say; -1 where there are none, or more than any job has."""
    return int(digits) if digits and len(digits) < 8 and int(digits) < RANKS else -1


def rank_and_node(line: str) -> Tuple[int, str]:
    """The rank and the node that a line is of, -1 and "" where it does not say."""
    match = _RANK.search(line)
    rank = rank_in(next(filter(None, match.groups()), "")) if match else -1
    if rank < 0:
        task = _TASK.match(line)
        rank = rank_in(task[1] or task[2]) if task else -1
    host = _HOST.match(line)
    return rank, (host["b"] if host else "")


def _mapped(line: str, node: str) -> Optional[LogFact]:
    """A line that says on which node a rank is."""
    test = _NCCL_TESTS.search(line)
    if test and rank_in(test[1]) >= 0:
        return LogFact(JobLineKind.MAP, rank_in(test[1]), test[2])
    init = _INIT.search(line)
    if init and node and rank_in(init[1]) >= 0:
        return LogFact(JobLineKind.MAP, rank_in(init[1]), node, float(rank_in(init[2])))
    return None


def _short(line: str) -> str:
    return " ".join(line.split())[:200]
