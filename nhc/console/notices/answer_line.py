"""What is kept of a receiver's answer: plain words, in one line, without any that a secret of the channel may hold.

A receiver, or a proxy before it, may repeat the request. Its address (Slack, Teams), its body (PagerDuty) or its
headers (Jira, ServiceNow) are secrets. The line goes to the log, into the store and to `nhc status notices`.
"""

from __future__ import annotations

import base64
import re
from typing import Iterable

MOST = 120
"""Characters of the line."""
LONGEST_WORD = 16
"""Letters in a run; keys are longer, or hold digits."""
SHORTEST_PIECE = 4
"""Letters of a word that is compared with the secrets: "no" and "the" are in many."""
_RUN = rf"(?:[A-Z]?[a-z]{{1,{LONGEST_WORD - 1}}}|[A-Z]{{1,{LONGEST_WORD}}})"
_WORDS = re.compile(rf"(?<![A-Za-z0-9]){_RUN}(?:[_'-]{_RUN})*(?![A-Za-z0-9])")


def cleaned(text: str, secrets: Iterable[str] = ()) -> str:
    """The words of an answer; "" for none. `secrets` are the values that were sent and must not be kept."""
    hidden = [form.casefold() for secret in secrets if secret for form in (secret, _base64(secret))]
    kept = []
    for match in _WORDS.finditer(text[:4000]):
        pieces = [piece for piece in re.split("[_'-]", match.group().casefold()) if len(piece) >= SHORTEST_PIECE]
        if not any(piece in secret for piece in pieces for secret in hidden):
            kept.append(match.group())
    line = " ".join(kept)
    return line if len(line) <= MOST else line[: MOST - 1] + "…"


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
