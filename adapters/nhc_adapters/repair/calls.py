"""The result of one call to a cloud: the same three answers for every client.

Every client sends a request once and raises CallFailed for everything but success. One rule for each provider decides
which failures prove that nothing has begun; every other failure is AMBIGUOUS.
"""

from __future__ import annotations

from typing import Callable, TypeVar

from nhc.model import printable
from nhc.ports import AdapterError
from nhc.repair import Answer, Sent

LATER = 30.0
"""Seconds after which a call may be tried again where the provider does not say: every provider's bucket has refilled
by then (EC2's refills 2 to 20 calls a second), and a lost connection has often come back."""

MESSAGE = 400
"""Characters kept of what a provider said. AWS appends an encoded explanation of kilobytes to a refusal."""

Target = TypeVar("Target")


class CallFailed(AdapterError):
    """A call without success. `code` is the provider's word for it, "" where nothing was answered.

    `retry_after` is in seconds, 0 where the same call cannot succeed later. `request_id` is what the watch needs of a
    call whose answer is lost: what was so before it.
    """

    def __init__(
        self, answer: Answer, message: str, code: str = "", retry_after: float = 0.0, request_id: str = ""
    ) -> None:
        super().__init__(printable(message, MESSAGE))
        self.answer, self.code, self.retry_after, self.request_id = answer, code, retry_after, request_id

    def known_as(self, request_id: str) -> CallFailed:
        """The same failure of a call that is to be watched under this name."""
        return CallFailed(self.answer, str(self), self.code, self.retry_after, request_id)

    def sent(self) -> Sent:
        """The same as the answer to an order."""
        again = self.retry_after if self.answer is Answer.REFUSED else 0.0
        return Sent(self.answer, str(self), self.request_id, again)


class RepairRefused(AdapterError):
    """The machine is not one that this repair may be sent to: another identity, a wrong state, a protection."""

    def __init__(self, message: str, retry_after: float = 0.0) -> None:
        super().__init__(printable(message, MESSAGE))
        self.retry_after = retry_after


def send_once(prepare: Callable[[], Target], act: Callable[[Target], Sent]) -> Sent:
    """Compare the identity with `prepare`, which changes nothing, then `act` once.

    Whatever stops `prepare` is REFUSED: nothing was sent. A read whose answer was lost may be tried again.
    """
    try:
        target = prepare()
    except CallFailed as error:
        lost = error.answer is Answer.AMBIGUOUS
        return Sent(Answer.REFUSED, f"not sent: {error}", retry_after=error.retry_after or (LATER if lost else 0.0))
    except RepairRefused as error:
        return Sent(Answer.REFUSED, f"not sent: {error}", retry_after=error.retry_after)
    except AdapterError as error:
        return Sent(Answer.REFUSED, f"not sent: {printable(str(error), MESSAGE)}")
    try:
        return act(target)
    except CallFailed as error:
        return error.sent()
    except RepairRefused as error:
        return Sent(Answer.REFUSED, str(error), retry_after=error.retry_after)


def accepted(message: str, request_id: str = "") -> Sent:
    return Sent(Answer.ACCEPTED, printable(message, MESSAGE), printable(request_id, MESSAGE))
