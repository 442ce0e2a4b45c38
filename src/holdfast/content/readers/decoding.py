"""Decodes text: by byte order mark, as UTF-8, as UTF-16 (recognised by its NULs), as declared, else by a guess.

charset-normalizer makes the guess if it is installed (it comes with the extra `documents`). Text with only a few
accents is taken as Western without it, because it takes French for Central European. Without charset-normalizer,
Japanese and Chinese are recognised by their commonest characters, and everything else is taken as Western.
"""

from __future__ import annotations

import codecs
import re
from importlib import import_module
from itertools import islice
from typing import Any, NamedTuple

BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16, since it begins with the mark of UTF-16
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
CONTROLS = bytes(
    (*range(9), *range(0x0E, 0x1B), *range(0x1C, 0x20), 0x7F)
)  # without escape, which coloured logs contain
MOST_CONTROLS = 0.02
# Common in UTF-16 text: European letters, Arabic, Indic and Thai, punctuation, Chinese, Japanese, Korean.
COMMON_CHARACTER = re.compile(
    r"[\t-\r -~\xa0-\u058f\u0590-\u0eff\u2000-\u22ff\u3000-\u30ff\u4e00-\u9fff\uac00-\ud7a3\uff00-\uffef]"
)
MIN_COMMON_SHARE = 0.95
SAMPLE = 1 << 16
UTF8_GOOD_FOR_BAD = 10  # valid sequences per invalid one: above this the text is damaged UTF-8, not another encoding
WESTERN = "cp1252"
ASIAN = ("gb18030", "big5", "cp932", "euc_jp", "cp949", "cp874")
WINDOWS = ("cp1250", "cp1251", "cp1253", "cp1254", "cp1255", "cp1256", "cp1257", "cp1258")
OLDER = ("cp866", "koi8_r", "koi8_u", "iso8859_2", "iso8859_5", "iso8859_7", "iso8859_9")
CANDIDATE_ENCODINGS = [*ASIAN, *WINDOWS, *OLDER]
# A sign within a word, as in Polish text decoded as Western: "pa³ac".
SIGN_IN_WORD = re.compile(r"[^\W\d_][¡-¦±-³µ¶¹¼-¿][^\W\d_]")
BEYOND_ASCII = re.compile(rb"[\x80-\xff]")
ALONE_BEYOND_ASCII = re.compile(rb"(?<![\x80-\xff])[\x80-\xff](?![\x80-\xff])")
NON_ASCII_LINE = re.compile(rb"[^\n\x80-\xff]{0,40}[\x80-\xff][^\n]*")
MAX_SAMPLE_LINES = 1000
BEYOND_ASCII_CHARACTER = re.compile(r"[^\x00-\x7f]")
KANA = re.compile(r"[\u3040-\u30ff]")
HAN = re.compile(r"[\u4e00-\u9fff\u3000-\u303f\uff00-\uffef]")


class DecodedText(NamedTuple):
    text: str
    encoding: str
    certain: bool = True  # False if the encoding was guessed or the text has invalid bytes


def is_text(head: bytes) -> bool:
    """Return whether the first bytes of a file are text in any encoding."""
    if _encoding_of_mark(head) or not head:
        return True
    if b"\0" in head:
        return _unmarked_utf16(head[:SAMPLE]) is not None
    return len(head) - len(head.translate(None, CONTROLS)) <= len(head) * MOST_CONTROLS


def decode(data: bytes, declared: str | None = None) -> DecodedText:
    """Decode a whole file; the `declared` encoding is used if it fits the bytes."""
    encoding = _encoding_of_mark(data)
    if encoding:
        return DecodedText(data.decode(encoding, "replace"), encoding)
    utf8 = _utf8(data)
    if utf8:
        return utf8
    encoding = _unmarked_utf16(data[:SAMPLE])
    if encoding:
        return DecodedText(data.decode(encoding, "replace"), encoding)
    # A declaration of UTF-16 that was readable as ASCII is wrong.
    text = _decode_strictly(data, declared) if declared and not declared.lower().startswith("utf-16") else None
    if declared and text is not None:
        return DecodedText(text, declared)
    encoding = _guess_encoding(_sample(data))
    return DecodedText(data.decode(encoding, "replace"), encoding, certain=False)


def _encoding_of_mark(data: bytes) -> str | None:
    return next((encoding for mark, encoding in BYTE_ORDER_MARKS if data.startswith(mark)), None)


def _utf8(data: bytes) -> DecodedText | None:
    """Decode UTF-8, also if it ends within a character or has a few invalid bytes."""
    text = _decode_strictly(data, "utf-8")
    if text is not None:
        return None if "\0" in text and _unmarked_utf16(data[:SAMPLE]) else DecodedText(text, "utf-8")
    text = data.decode("utf-8", "replace")
    bad = text.count("\ufffd")
    good = len(BEYOND_ASCII_CHARACTER.findall(text)) - bad
    return DecodedText(text, "utf-8", certain=False) if good > bad * UTF8_GOOD_FOR_BAD else None


def _unmarked_utf16(sample: bytes) -> str | None:
    """Recognise UTF-16 without a mark: it has NULs, and common characters in only one byte order."""
    sample = sample[: len(sample) // 2 * 2]
    if b"\0" not in sample:
        return None
    usual = {
        order: len(COMMON_CHARACTER.findall(sample.decode(order, "replace"))) for order in ("utf-16-le", "utf-16-be")
    }
    likely = max(usual, key=lambda order: usual[order])
    return likely if usual[likely] >= len(sample) // 2 * MIN_COMMON_SHARE else None


def _sample(data: bytes) -> bytes:
    """Return a sample for guessing: the lines with characters beyond ASCII, from shortly before the first."""
    lines = (found[0][:SAMPLE] for found in islice(NON_ASCII_LINE.finditer(data), MAX_SAMPLE_LINES))
    return b"\n".join(lines)[:SAMPLE]


def _guess_encoding(sample: bytes) -> str:
    western = _decode_strictly(sample, WESTERN, cut=True) if _accented(sample) else None
    if western is not None and not SIGN_IN_WORD.search(western):
        return WESTERN
    return _normalizer_guess(sample) or _guess_cjk(sample) or WESTERN


def _accented(sample: bytes) -> bool:
    """Return whether most bytes beyond ASCII are isolated: accents, not another alphabet."""
    return len(ALONE_BEYOND_ASCII.findall(sample)) * 2 > len(BEYOND_ASCII.findall(sample))


def _normalizer_guess(sample: bytes) -> str | None:
    try:
        normalizer: Any = import_module("charset_normalizer")
    except ModuleNotFoundError:
        return None
    best = normalizer.from_bytes(sample, cp_isolation=CANDIDATE_ENCODINGS, enable_fallback=False).best()
    return None if best is None else str(best.encoding)


def _guess_cjk(sample: bytes) -> str | None:
    for encoding, common, share in (("cp932", KANA, 0.3), ("euc_jp", KANA, 0.3), ("gb18030", HAN, 0.7)):
        text = _decode_strictly(sample, encoding, cut=True) or ""
        beyond = len(BEYOND_ASCII_CHARACTER.findall(text))
        if beyond and len(common.findall(text)) > beyond * share:
            return encoding
    return None


def _decode_strictly(data: bytes, encoding: str, *, cut: bool = False) -> str | None:
    """Decode, or return None on any invalid byte; with `cut`, an incomplete last character is allowed."""
    try:
        text = codecs.getincrementaldecoder(encoding)("strict").decode(data, final=not cut)
    except (ValueError, LookupError, AssertionError):  # codecs raise these for bad data and bad names
        return None
    return text if isinstance(text, str) else None  # `declared` may be any codec, even base64
