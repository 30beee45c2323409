"""A signed webhook, as Standard Webhooks 1.0 has it (https://www.standardwebhooks.com)."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import time
from typing import Dict, NamedTuple, Tuple

from nhc.console.notices.notice import Notice, cut
from nhc.console.notices.sender import Sender
from nhc.core.system.exchange import Exchange

LIMIT = 20_000
"""Bytes of a body."""


def payload(notice: Notice) -> bytes:
    """The body: the incident's values. Long texts are cut until it fits."""
    for limit in (8000, 2000, 400):
        data = {
            **notice._asdict(), "message": cut(notice.message, limit), "nodes": cut(notice.nodes, limit),
            "title": cut(notice.title, limit),
        }  # fmt: skip
        body = json.dumps({"type": f"nhc.incident.{notice.kind}", "data": data}, ensure_ascii=False).encode()
        if len(body) <= LIMIT:
            break
    return body


def secret_bytes(secret: str) -> bytes:
    """The key in `whsec_BASE64`. Raises ValueError where it is none or has less than 24 bytes."""
    try:
        key = base64.b64decode(secret.removeprefix("whsec_").encode(), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("a webhook's secret is whsec_ and base64") from None
    if not secret.startswith("whsec_") or len(key) < 24:
        raise ValueError("a webhook's secret is whsec_ and base64 of at least 24 bytes")
    return key


def signed(identity: str, at: int, body: bytes, secrets: Tuple[bytes, ...]) -> Dict[str, str]:
    """The headers: one signature for each secret, so that they can be changed one after the other."""
    content = b".".join((identity.encode(), str(at).encode(), body))
    marks = [base64.b64encode(hmac.new(key, content, hashlib.sha256).digest()).decode() for key in secrets]
    return {
        "webhook-id": identity, "webhook-timestamp": str(at), "webhook-signature": " ".join(f"v1,{m}" for m in marks),
    }  # fmt: skip


class WebhookChannel(NamedTuple):
    """Secrets as bytes; the first is the newest."""

    url: str
    secrets: Tuple[bytes, ...]
    sender: Sender

    def deliver(self, notice: Notice, exchange: Exchange) -> None:
        """Raises SendLater, SendRefused. A receiver that takes a message twice knows it by its id."""
        body = payload(notice)
        self.sender.post(exchange, self.url, body, signed(notice.id, int(time.time()), body, self.secrets))
