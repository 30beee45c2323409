"""Microsoft Teams by a workflow's webhook: an adaptive card (https://adaptivecards.io/explorer/)."""

from __future__ import annotations

import json
from typing import Dict

from nhc.console.notices.notice import Notice, cut

LIMIT = 20_000
"""Bytes: 28 KB are documented, and refusals from 21 KB on were seen."""
COLOURS = {"CRIT": "attention", "UNKNOWN": "warning", "WARN": "warning"}


def payload(notice: Notice) -> Dict[str, object]:
    """A card of plain text, cut until it fits."""
    card: Dict[str, object] = {}
    for limit in (8000, 2000, 400):
        card = _card(notice, limit)
        if len(json.dumps(card, ensure_ascii=False).encode()) <= LIMIT:
            break
    return card


def _card(notice: Notice, limit: int) -> Dict[str, object]:
    colour = "good" if notice.resolved else COLOURS.get(notice.verdict, "default")
    title = {"type": "TextRun", "text": cut(notice.title, 400), "weight": "bolder", "size": "medium", "color": colour}
    card = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json", "type": "AdaptiveCard", "version": "1.4",
        "body": [  # RichTextBlock, since TextBlock would read Markdown out of what nodes say
            {"type": "RichTextBlock", "inlines": [title]},
            {"type": "RichTextBlock", "inlines": [{"type": "TextRun", "text": cut(notice.text, limit)}]},
        ],
    }  # fmt: skip
    kind = "application/vnd.microsoft.card.adaptive"
    return {"type": "message", "attachments": [{"contentType": kind, "contentUrl": None, "content": card}]}
