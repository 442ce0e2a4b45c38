"""Language models and embeddings: providers, structured calls, the paid-answer cache, the ledger."""

from typing import TYPE_CHECKING

from holdfast.llm.base import (
    Completion,
    Embeddings,
    ModelInfo,
    Prompt,
    Provider,
    never_stop,
    no_embedding_model,
    replace_surrogates,
)
from holdfast.llm.batches import BYTES_PER_TOKEN, EMPTY_TEXT, PROBE_TEXT
from holdfast.llm.metering import MeteredProvider, split_tokens
from holdfast.llm.normalize import extract_stems, fold, is_significant, shorten, to_single_line
from holdfast.llm.paid_cache import (
    AnswerLookup,
    Charge,
    PaidAnswer,
    PaidAnswerCache,
    UsageTotal,
    answer_key,
    remove_orphan_answers,
    remove_uses,
    require_budget,
)
from holdfast.llm.prices import Price
from holdfast.llm.restored_cache import RestoredAnswer, RestoredAnswers, release_holds
from holdfast.llm.structured_call import (
    ANSWER_CUT_OFF,
    DATA_ONLY,
    THINKING_TAGS,
    Usage,
    build_recipe_name,
    build_repair_prompt,
    call_structured,
    object_schema,
    parse_object,
    require_objects,
    require_string,
    wrap_passage,
    wrap_untrusted,
)
from holdfast.llm.tables import memo_holds, memo_uses, memos

if TYPE_CHECKING:
    from holdfast.llm.base import Matrix as Matrix
    from holdfast.llm.base import Vector as Vector

__all__ = [
    "ANSWER_CUT_OFF",
    "BYTES_PER_TOKEN",
    "DATA_ONLY",
    "EMPTY_TEXT",
    "PROBE_TEXT",
    "THINKING_TAGS",
    "AnswerLookup",
    "Charge",
    "Completion",
    "Embeddings",
    "MeteredProvider",
    "ModelInfo",
    "PaidAnswer",
    "PaidAnswerCache",
    "Price",
    "Prompt",
    "Provider",
    "RestoredAnswer",
    "RestoredAnswers",
    "Usage",
    "UsageTotal",
    "answer_key",
    "build_recipe_name",
    "build_repair_prompt",
    "call_structured",
    "extract_stems",
    "fold",
    "is_significant",
    "memo_holds",
    "memo_uses",
    "memos",
    "never_stop",
    "no_embedding_model",
    "object_schema",
    "parse_object",
    "release_holds",
    "remove_orphan_answers",
    "remove_uses",
    "replace_surrogates",
    "require_budget",
    "require_objects",
    "require_string",
    "shorten",
    "split_tokens",
    "to_single_line",
    "wrap_passage",
    "wrap_untrusted",
]
