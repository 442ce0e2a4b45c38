"""Language models and embeddings: providers, structured calls, the paid-answer cache, the ledger."""

from typing import TYPE_CHECKING

from holdfast.llm.base import Completion, Embedded, Models, Prompt, Provider, never, no_embedding_model, readable
from holdfast.llm.batches import BYTES_PER_TOKEN, EMPTY_TEXT, HARMLESS
from holdfast.llm.metering import Metered, shares
from holdfast.llm.normalize import fold, shorten, stems, telling, tidy
from holdfast.llm.paid_cache import Bill, Entry, Memos, Spent, Use, allow, forget_uses, memo_key, remove_without_use
from holdfast.llm.prices import Price
from holdfast.llm.restored_cache import Held, Holding, let_go
from holdfast.llm.structured_call import (
    BROKEN_OFF,
    DATA_ONLY,
    THOUGHTS,
    Usage,
    converse,
    enclose,
    material,
    objects,
    parsed,
    recipe,
    repair,
    shape,
    string,
    usage_of,
)
from holdfast.llm.tables import memo_holds, memo_uses, memos

if TYPE_CHECKING:
    from holdfast.llm.base import Matrix as Matrix
    from holdfast.llm.base import Vector as Vector
    from holdfast.llm.structured_call import Paid as Paid

__all__ = [
    "BROKEN_OFF",
    "BYTES_PER_TOKEN",
    "DATA_ONLY",
    "EMPTY_TEXT",
    "HARMLESS",
    "THOUGHTS",
    "Bill",
    "Completion",
    "Embedded",
    "Entry",
    "Held",
    "Holding",
    "Memos",
    "Metered",
    "Models",
    "Price",
    "Prompt",
    "Provider",
    "Spent",
    "Usage",
    "Use",
    "allow",
    "converse",
    "enclose",
    "fold",
    "forget_uses",
    "let_go",
    "material",
    "memo_holds",
    "memo_key",
    "memo_uses",
    "memos",
    "never",
    "no_embedding_model",
    "objects",
    "parsed",
    "readable",
    "recipe",
    "remove_without_use",
    "repair",
    "shape",
    "shares",
    "shorten",
    "stems",
    "string",
    "telling",
    "tidy",
    "usage_of",
]
