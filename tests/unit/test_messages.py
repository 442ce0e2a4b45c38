"""The catalogue of texts is complete, has no unused texts, and matches the parameters that the source passes."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path

import pytest

import holdfast.messages
from holdfast.engine.problems import Problem
from holdfast.errors import BadRequest, Permanent, UnknownBase
from holdfast.messages import LANGUAGES, format_message, load_catalogue, translations_for
from holdfast.settings import Settings
from holdfast.web.render import Formatter
from tests.support.message_sites import literals, sentences, sites

TEXTS = Path(holdfast.messages.__file__).parent / "texts"
PLACEHOLDER = re.compile(r"\{(\w+)\}")
CODED = ("problem.", "reply.", "waits.", "finding.", "why.")  # sections whose texts belong to codes in the source
PAGE_ONLY = {"problem.title", "problem.offline", "problem.request"}  # texts of the page itself
CJK = re.compile(r"[\u4e00-\u9fff]")
# Names that are the same in Chinese: products, formats, protocols, and words that users type.
# fmt: off
NAMES = frozenset({
    "API", "Anki", "BM25", "CPU", "CSV", "Celery", "Ctrl", "DOCX", "Excel", "GB", "HTML", "HTTP", "HTTPS", "Holdfast",
    "IPv4", "IPv6", "Idempotency-Key", "JSON", "JavaScript", "KB", "MB", "MCP", "Markdown", "NUL", "OCR",
    "OpenAI", "PDF", "PostgreSQL", "PowerPoint", "Prometheus", "Python", "RabbitMQ", "Redis", "SHA-256", "SQL",
    "SQLAlchemy", "SQLite", "SSE",
    "TLS", "TMPDIR", "TOML", "TSV", "URL", "UTC", "UTF-8", "Unicode", "Valkey", "Webhook", "Word", "XML", "ZIP",
    "pgbouncer", "psycopg",
})
# fmt: on
# What users type or read elsewhere in the same form: code, settings, paths, addresses, options, event types.
TYPED = re.compile(
    r"`[^`]*`|\{\w+\}|HOLDFAST_\w+|https?://\S+|--[\w-]+|/[\w./{}-]+|'[^']*'|\b[a-z]+(?:[_.][a-z*]+)+\b"
    r"|\bholdfast(?: [a-z]+)+|pip install"
)


def test_every_text_exists_in_every_language() -> None:
    for key, texts in load_catalogue().items():
        assert set(texts) == set(LANGUAGES), key
        assert all(text.strip() for text in texts.values()), key


def test_a_key_is_in_one_file_only_once() -> None:
    for file in TEXTS.iterdir():
        keys = [key for key, _ in json.loads(file.read_text("utf-8"), object_pairs_hook=list)]
        assert len(keys) == len(set(keys)), file.name


def test_every_code_in_the_source_has_a_text() -> None:
    found = sites()
    assert len({site.code for site in found}) > 250
    assert [site for site in found if f"problem.{site.code}" not in load_catalogue()] == []


def test_no_error_in_the_source_carries_its_own_sentence() -> None:
    assert sentences() == []


def test_no_text_is_unused() -> None:
    unused = [
        key
        for key in load_catalogue()
        if key.startswith(CODED) and key not in PAGE_ONLY and key.partition(".")[2] not in literals()
    ]
    assert unused == []


def test_the_source_passes_every_parameter_of_a_text() -> None:
    missing = [
        (site.where, site.code, language, sorted(set(PLACEHOLDER.findall(text)) - site.params))
        for site in sites()
        if site.params is not None
        for language, text in load_catalogue()[f"problem.{site.code}"].items()
        if not set(PLACEHOLDER.findall(text)) <= site.params
    ]
    assert missing == []


def test_a_translation_has_no_parameters_beyond_those_of_the_english_text() -> None:
    for key, texts in load_catalogue().items():
        assert set(PLACEHOLDER.findall(texts["zh"])) <= set(PLACEHOLDER.findall(texts["en"])), key


def test_a_chinese_text_contains_no_english_except_names() -> None:
    english = {
        key: sorted(words - NAMES)
        for key, texts in load_catalogue().items()
        if (words := set(re.findall(r"[A-Za-z][A-Za-z0-9-]+", TYPED.sub(" ", texts["zh"])))) - NAMES
    }
    assert english == {}


def test_every_setting_has_a_text() -> None:
    described = {key.removeprefix("setting.") for key in load_catalogue() if key.startswith("setting.")}
    assert described == {setting.name for setting in fields(Settings)}


def test_an_error_formats_the_text_of_its_code() -> None:
    assert str(UnknownBase("shelf")) == (
        "No base named 'shelf'. It was never created, or it was deleted. Create it first."
    )
    error = BadRequest("question_too_long", longest=10)
    assert (error.code, error.subcode, error.params) == ("bad_request", "question_too_long", {"longest": "10"})
    assert "10" in str(error)


def test_a_plug_in_uses_its_own_codes_and_messages() -> None:
    error = Permanent("plot_missing", "The plot has no soil. Add some.")
    assert str(error) == "The plot has no soil. Add some."
    assert error.params == {"message": "The plot has no soil. Add some."}
    assert str(Permanent("plot_missing")) == "plot_missing"


def test_a_plug_in_may_use_any_parameter_names() -> None:
    fault = Problem(code="too_slow", message="It took long.", params={"at": "noon", "kind": "mine", "seconds": "3"})
    assert "3 秒" in Formatter(translations_for("zh")).explain(fault)
    assert Formatter(translations_for("en")).explain(fault) == "It took long."


def test_a_missing_parameter_becomes_an_ellipsis() -> None:
    assert format_message("problem.unknown_key", {}) == "No key …. List the keys to see which exist."


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_problem_text_promises_a_retry(language: str) -> None:
    """Only the state of the slot decides whether the work is retried."""
    promise = {
        "en": re.compile(r"(is|are) (tried|looked at|asked for) (again|when)|will be |by itself|continues|goes on"),
        "zh": re.compile("稍后重试|自动继续|会等待|将会重试"),
    }[language]
    texts = {key: texts[language] for key, texts in load_catalogue().items() if key.startswith("problem.")}
    texts = {key: text for key, text in texts.items() if key not in PAGE_ONLY}
    assert {key: text for key, text in texts.items() if promise.search(text)} == {}
