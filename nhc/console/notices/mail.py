"""Mail: one thread for one incident (RFC 5322, 3.6.4)."""

from __future__ import annotations

import contextlib
import email.utils
import smtplib
import ssl
from email.message import EmailMessage
from email.policy import SMTP
from typing import Any, NamedTuple, Tuple

from nhc.console.notices.notice import OPEN, TEST, Notice, cleaned, cut
from nhc.console.notices.sender import SendLater, SendRefused
from nhc.core.model import printable
from nhc.core.system.exchange import Exchange
from nhc.core.system.http_client import problem


def payload(notice: Notice, sender: str, to: Tuple[str, ...]) -> EmailMessage:
    """The mail. The first of an incident has an id made of its key; the others answer it."""
    domain = sender.rpartition("@")[2].rstrip(">") or "localhost"
    first = f"<nhc.{notice.key}.{notice.number}@{domain}>"
    message = EmailMessage(policy=SMTP)
    message["From"], message["To"] = sender, ", ".join(to)
    message["Subject"] = cut(printable(notice.title), 200)
    message["Date"] = email.utils.formatdate(notice.at)
    if notice.kind in (OPEN, TEST):
        message["Message-ID"] = first
    else:
        message["Message-ID"] = f"<nhc.{notice.id}@{domain}>"
        message["In-Reply-To"] = message["References"] = first
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(cut(notice.text, 20_000) + "\n")
    return message


class MailChannel(NamedTuple):
    """A server of mail. `tls` is none, starttls or tls."""

    host: str
    port: int
    tls: str
    user: str
    password: str
    sender: str
    to: Tuple[str, ...]

    def deliver(self, notice: Notice, exchange: Exchange) -> None:
        """Raises SendLater, SendRefused.

        Refused is what the server says of this message or this login. Whatever else is wrong with a server passes: its
        greeting, an answer without an end, one that is none.
        """
        to = (notice.to,) if notice.to else self.to
        message = payload(notice, self.sender, to)
        message.as_bytes()  # what is wrong with the message itself is no fault of the server
        try:
            with _MailServer(self, exchange) as server:
                if self.tls == "starttls":
                    server.starttls(context=ssl.create_default_context())
                if self.user:
                    server.login(self.user, self.password)
                server.send_message(message, self.sender, list(to))
        except smtplib.SMTPRecipientsRefused as error:
            codes = [code for code, _ in error.recipients.values()]
            if codes and all(code in _FOR_GOOD for code in codes):
                raise SendRefused(f"every recipient is refused: {codes[0]}") from None
            raise SendLater(f"recipients are refused for now: {codes[:1]}") from None
        except smtplib.SMTPResponseException as error:
            raw = error.smtp_error
            text = raw.decode("utf-8", "replace") if isinstance(raw, bytes) else raw
            answer = f"{error.smtp_code} {cleaned(text, (self.user, self.password, self._plain()))}".rstrip()
            about_us = (smtplib.SMTPSenderRefused, smtplib.SMTPDataError, smtplib.SMTPAuthenticationError)
            if error.smtp_code in _FOR_GOOD and isinstance(error, about_us):
                raise SendRefused(answer) from None
            raise SendLater(answer) from None
        except (OSError, smtplib.SMTPException, ValueError) as error:
            raise SendLater(f"no answer: {problem(error, exchange)}") from None

    def _plain(self) -> str:
        """What AUTH PLAIN sends (RFC 4616)."""
        return f"\0{self.user}\0{self.password}"


_FOR_GOOD = range(500, 600)
"""RFC 5321, 4.2.1: what is refused with such a code is not to be sent again as it is."""
_LINES = 100
"""Lines of one answer: EHLO's are some twenty."""


class _FewLines:
    """What a server sends, of which one answer has so many lines at most."""

    def __init__(self, file: Any) -> None:
        self._file, self.left = file, _LINES

    def readline(self, size: int) -> bytes:
        """See io. Raises SMTPServerDisconnected."""
        self.left -= 1
        if self.left < 0:
            raise smtplib.SMTPServerDisconnected("an answer has no end")
        line: bytes = self._file.readline(size)
        return line

    def close(self) -> None:
        """See io."""
        self._file.close()


class _MailServer(smtplib.SMTP):
    """A connection to the server within an exchange."""

    def getreply(self) -> Tuple[int, bytes]:
        """See smtplib, which says 500 by itself of a line that is too long. Raises SMTPServerDisconnected, OSError."""
        if self.sock is None:
            raise smtplib.SMTPServerDisconnected("the connection is closed")
        if self.file is None:
            self.file = _FewLines(self.sock.makefile("rb"))
        self.file.left = _LINES
        try:
            return super().getreply()
        except smtplib.SMTPResponseException as error:
            self.close()
            raise smtplib.SMTPServerDisconnected(f"an answer that is none: {error.smtp_error!r}") from None

    def __init__(self, channel: MailChannel, exchange: Exchange) -> None:
        self._exchange, self._tls = exchange, channel.tls == "tls"
        super().__init__(channel.host, channel.port)

    def connect(self, host: str = "localhost", port: int = 0, source_address: Any = None) -> Tuple[int, bytes]:
        self.sock = self._exchange.connect(host, port)
        if self._tls:
            self.sock = ssl.create_default_context().wrap_socket(self.sock, server_hostname=host)
        return self.getreply()

    def __exit__(self, *_error: object) -> None:
        with contextlib.suppress(OSError):  # the message is taken or refused by then, whatever it answers to QUIT
            self.docmd("QUIT")
        self.close()
