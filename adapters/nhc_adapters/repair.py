"""The result of one call to a cloud: the same three answers for every client.

Every client sends a request once and raises CallFailed for everything but success. One rule for each provider decides
which failures prove that nothing has begun; every other failure is AMBIGUOUS.
"""

from __future__ import annotations

import re
import shlex
import time
from typing import Callable, Iterable, Iterator, List, Optional, Tuple, TypeVar

from nhc.core.model import printable
from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.repair import (
    Answer,
    AskLater,
    EvidenceBudget,
    Exhibit,
    Machine,
    Progress,
    RightMissing,
    Rung,
    Sent,
    Sighting,
    Stage,
)

LATER = 30.0
"""Seconds after which a call may be tried again if the provider does not say: every provider's bucket has then refilled
(EC2's refills 2 to 20 calls a second), and a lost connection has often come back.
"""

ARRIVES = 300.0
"""Seconds after which a call of which the provider shows no trace has never arrived. A change shows within seconds at
each of them; EC2 asks for minutes, because what it shows is only consistent in the end (EC2 API, "Eventual
consistency"). The rest is for clocks that differ."""

MESSAGE = 400
"""Characters kept of what a provider said. AWS appends an encoded explanation of kilobytes to a refusal."""

Target = TypeVar("Target")


class CallFailed(AdapterError):
    """A call without success. `code` is the provider's error code, "" without an answer.

    `retry_after` is in seconds, 0 if the same call cannot succeed later. `request_id` is what the watch needs after a
    lost answer: the state before the call. `right` is the missing permission, if that is the cause.
    """

    def __init__(
        self, answer: Answer, message: str, code: str = "", retry_after: float = 0.0, request_id: str = "",
        right: str = "",
    ) -> None:  # fmt: skip
        super().__init__(printable(message, MESSAGE))
        self.answer, self.code, self.retry_after, self.request_id = answer, code, retry_after, request_id
        self.right = printable(right, 100)

    def known_as(self, request_id: str) -> CallFailed:
        """The same failure of a call that is to be watched under this name."""
        return CallFailed(self.answer, str(self), self.code, self.retry_after, request_id, self.right)

    def sent(self) -> Sent:
        """The same as the answer to an order."""
        again = self.retry_after if self.answer is Answer.REFUSED else 0.0
        return Sent(self.answer, str(self), self.request_id, again, right=self.right)


class RepairRefused(AdapterError):
    """The repair may not be sent to this machine: another identity, a wrong state, a protection."""

    def __init__(self, message: str, retry_after: float = 0.0) -> None:
        super().__init__(printable(message, MESSAGE))
        self.retry_after = retry_after

    def sent(self, before: str = "") -> Sent:
        """The same as the answer to an order."""
        return Sent(Answer.REFUSED, f"{before}{self}", retry_after=self.retry_after)


def unknown(what: str, machine: Machine) -> RepairRefused:
    """That `what` (an instance of a provider's) is not known behind a machine, to be raised."""
    given = machine.provider_id or "not set"
    return RepairRefused(f"no {what} is known for {machine.node} (provider id {given!r})")


def require_whole(provider: str, machines: str, rung: Rung, device: str) -> None:
    """Raises RepairRefused for what no provider of whole `machines` does."""
    if device:
        raise RepairRefused(f"{provider} repairs whole {machines}, not {device}")
    if rung not in (Rung.REBOOT, Rung.POWER_CYCLE, Rung.REPLACE):
        raise RepairRefused(f"{provider} has no {rung.value}")


def send_once(prepare: Callable[[], Target], act: Callable[[Target], Sent]) -> Sent:
    """Compare the identity with `prepare`, which changes nothing, then `act` once.

    Whatever stops `prepare` is REFUSED: nothing was sent. RepairRefused says something of the machine; a read that
    failed does not, so it may be tried again.
    """
    try:
        target = prepare()
    except RepairRefused as error:
        return error.sent("not sent: ")
    except AdapterError as error:
        right = error.right if isinstance(error, CallFailed) else ""
        again = error.retry_after if isinstance(error, CallFailed) else 0.0
        message = printable(f"not sent: {error}", MESSAGE)
        return Sent(Answer.REFUSED, message, retry_after=0.0 if right else again or LATER, right=right)
    try:
        return act(target)
    except (CallFailed, RepairRefused) as error:
        return error.sent()


def possible(look: Callable[[], object]) -> str:
    """The answer of `nhc.marks.ports.repair.Repairer.can` where `look` finds the machine that a repair is for: "", or
    what
    RepairRefused says. Raises RightMissing and AskLater where the look itself failed: that says nothing of the machine.
    """
    try:
        look()
    except RepairRefused as error:
        if error.retry_after > 0:
            raise AskLater(str(error), error.retry_after) from None
        return str(error)
    except CallFailed as error:
        if error.right:
            raise RightMissing(str(error), error.right) from None
        raise AskLater(str(error), error.retry_after or LATER) from None
    return ""


def untouched(sent: Sent, before: Sighting, message: str) -> Progress:
    """The progress of an order whose machine has not changed. NOT_BEGUN if it is not known whether the call arrived,
    and its effect would be visible by now.
    """
    late = sent.answer is Answer.AMBIGUOUS and time.time() - before.at > ARRIVES
    return Progress(Stage.NOT_BEGUN if late else Stage.WORKING, message)


def sized(size: int) -> str:
    """The request id of a call after which a group is to come back to its size."""
    return f"size/{size}"


def size_of(sent: Sent) -> int:
    """The size in a request id of this form, 0 in any other."""
    kind, _, count = sent.request_id.partition("/")
    return int(count) if kind == "size" and count.isdigit() else 0


def accepted(message: str, request_id: str = "") -> Sent:
    return Sent(Answer.ACCEPTED, printable(message, MESSAGE), printable(request_id, MESSAGE))


# Evidence cut to its budget of bytes and seconds.


Piece = Tuple[str, str, Callable[[], bytes]]
"""A piece's name, its media type, and what gets it (b"" if there is none yet)."""

_WHOLE = ("image/",)
"""Media types of which a part is worth nothing."""


class EvidenceCollector:
    """The used part of a budget. If a log is longer, its end is kept: the fault is there."""

    def __init__(self, budget: EvidenceBudget) -> None:
        self.taken = 0
        self._left = budget.size
        self._until = time.monotonic() + budget.seconds
        self._missing: List[str] = []

    def spent(self) -> bool:
        return self._left <= 0 or time.monotonic() >= self._until

    def take(self, name: str, kind: str, content: bytes) -> Iterator[Exhibit]:
        """The piece, as much of it as the budget lets; nothing if it would be worth nothing."""
        cut = len(content) > self._left
        if cut and kind.startswith(_WHOLE):
            self.missing(name, f"{len(content)} bytes are more than is left of the budget")
            return
        kept = content[-self._left :] if cut else content
        self._left -= len(kept)
        self.taken += 1
        yield Exhibit(name, kind, kept, cut)

    def gather(self, pieces: Iterable[Piece], nothing: str) -> Iterator[Exhibit]:
        """The available pieces, each requested once. Raises AdapterError, `nothing` and why, if there is none."""
        for name, kind, get in pieces:
            if self.spent():
                break
            try:
                content = get()
            except CallFailed as error:
                self.missing(name, str(error))
                continue
            if content:
                yield from self.take(name, kind, content)
        if not self.taken:
            raise AdapterError(f"{nothing}: {self.complaint() or 'no output yet'}")

    def missing(self, name: str, why: str) -> None:
        self._missing.append(f"{name}: {why}")

    def complaint(self) -> str:
        return "; ".join(self._missing)


# Forms of settings that several adapters have: an address, a pair, services of systemd. Each raises ValueError.


_LOCAL = r"http://(127\.|\[::1\]|localhost|169\.254\.|\[fd00:ec2::254\]|metadata\.google\.internal)"


def https_url(text: str) -> str:
    """An address without a trailing slash. http is for a loopback or a link-local address alone."""
    url = text.rstrip("/")
    if not re.match(_LOCAL, url) and not re.match(r"https://[^/\s]+", url):
        raise ValueError(f"{printable(text, 60)!r} is not an https:// address")
    return url


def pair(text: str) -> Optional[Tuple[str, str]]:
    """NAME=VALUE."""
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise ValueError(f"{printable(text, 60)!r} is not NAME=VALUE")
    return name, value


def services(text: str) -> Tuple[str, ...]:
    """Names of systemd services, with blanks between them."""
    names = tuple(shlex.split(text))
    for name in names:
        if (
            name.startswith("-")
            or not name.endswith(".service")
            or not all(c.isalnum() or c in "@._-:\\" for c in name)
        ):
            raise ValueError(f"{printable(text, 60)!r} is not names of services, each NAME.service")
    return names
