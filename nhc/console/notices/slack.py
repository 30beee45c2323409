"""Slack's incoming webhook (https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks)."""

from __future__ import annotations

import html
from typing import Dict

from nhc.console.notices.notice import Notice, cut


def payload(notice: Notice) -> Dict[str, object]:
    """Plain text alone: no evidence of a node becomes a link, a mention or markup."""
    blocks = [
        {"type": "header", "text": {"type": "plain_text", "text": cut(notice.title, 150), "emoji": False}},
        {"type": "section", "text": {"type": "plain_text", "text": cut(notice.text, 3000), "emoji": False}},
    ]
    title = html.escape(cut(notice.title, 1024), quote=False)  # Slack finds neither mentions nor links in it
    return {"text": title, "blocks": blocks, "unfurl_links": False}
