from .blocks import parse_blocks
from .chunking import ChunkingRules, ChunkSpan, split_into_chunks
from .errors import MIB, file_missing, format_size, not_a_file
from .languages import LANGUAGES
from .names import (
    MAX_NAME_CHARACTERS,
    MAX_NAME_WORDS,
    NAMES_VERSION,
    DefinitionOrigin,
    TitleMatcher,
    find_definitions,
    find_names,
    is_found_by_words,
    name_key,
    split_key_words,
)
from .readers.base import ExtractedText
from .readers.cleaning import strip_markdown
from .readers.decoding import is_text
from .readers.files import translate_os_errors
from .readers.formats import HEAD_BYTES, SIGNATURES
from .reading import read
from .token_estimate import TOKEN_WEIGHT, estimate_tokens, weigh
from .tokenize import TOKENIZER_VERSION, Term, parse_query_terms, segment_text, uses_stemming
from .units import sentence_starts

__all__ = [
    "HEAD_BYTES",
    "LANGUAGES",
    "MAX_NAME_CHARACTERS",
    "MAX_NAME_WORDS",
    "MIB",
    "NAMES_VERSION",
    "SIGNATURES",
    "TOKENIZER_VERSION",
    "TOKEN_WEIGHT",
    "ChunkSpan",
    "ChunkingRules",
    "DefinitionOrigin",
    "ExtractedText",
    "Term",
    "TitleMatcher",
    "estimate_tokens",
    "file_missing",
    "find_definitions",
    "find_names",
    "format_size",
    "is_found_by_words",
    "is_text",
    "name_key",
    "not_a_file",
    "parse_blocks",
    "parse_query_terms",
    "read",
    "segment_text",
    "sentence_starts",
    "split_into_chunks",
    "split_key_words",
    "strip_markdown",
    "translate_os_errors",
    "uses_stemming",
    "weigh",
]
