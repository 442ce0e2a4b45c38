"""Reads e-mail (RFC 5322) and web pages saved as MHTML: the visible headers and the body.

Attachments are counted and not opened. kreuzberg is not used here because it joins the lines of a message into one
paragraph.
"""

from __future__ import annotations

import email
import email.policy
from typing import TYPE_CHECKING, cast

from holdfast.content import errors
from holdfast.content.readers.base import ExtractedText, ReadLimits
from holdfast.content.readers.cleaning import clean, drop_placeholder, has_words, to_short_line
from holdfast.content.readers.decoding import decode
from holdfast.content.readers.documents import html_to_markdown
from holdfast.content.readers.files import read_bytes

if TYPE_CHECKING:
    from email.message import EmailMessage
    from pathlib import Path

    from holdfast.content.readers.formats import FileFormat

HEADERS = ("Subject", "From", "To", "Cc", "Date")


def read_mail(path: Path, format_: FileFormat, limits: ReadLimits) -> ExtractedText:
    try:
        message = email.message_from_bytes(read_bytes(path, limits), policy=email.policy.default)
        headers = {key: to_short_line(message[key]) for key in HEADERS if message[key]}
        body = _body(message, limits)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):  # `email` raises all of them
        raise errors.unreadable() from None
    if not has_words(headers.get("Subject", "") + body):
        raise errors.no_text()
    return ExtractedText(
        text=clean("\n".join(f"{key}: {value}" for key, value in headers.items()) + "\n\n" + body),
        title=drop_placeholder(headers.get("Subject")),
        metadata=format_.metadata | _facts(headers),
        warnings=_attachment_warnings(message),
    )


def _body(message: EmailMessage, limits: ReadLimits) -> str:
    """Return the plain text body, or the HTML body as Markdown if there is no plain one."""
    part = message.get_body(("plain", "html"))
    if part is None:
        return ""
    payload = cast("bytes", part.get_payload(decode=True) or b"")
    text = decode(payload, part.get_content_charset()).text
    return html_to_markdown(text, limits) if part.get_content_type() == "text/html" else clean(text)


def _facts(headers: dict[str, str]) -> dict[str, str]:
    facts = {"author": headers.get("From"), "created": headers.get("Date"), "subject": headers.get("Subject")}
    return {key: value for key, value in facts.items() if value}


def _attachment_warnings(message: email.message.Message) -> tuple[str, ...]:
    count = sum(part.get_content_disposition() == "attachment" for part in message.walk())
    return (f"Attachments were not read: {count}.",) if count else ()
