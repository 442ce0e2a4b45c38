"""Documents: add, remove, index, list, and keep in step with their sources."""

from holdfast.documents.add import (
    ITEMS_PER_TRANSACTION,
    LONGEST_NAME,
    AddOptions,
    DocumentAdder,
    ItemReply,
    Upload,
    pause_for_quota,
)
from holdfast.documents.items import DocumentChunk
from holdfast.documents.lists import DocumentFilter, Order
from holdfast.documents.operations import Action, DocumentOperations, RequestOptions
from holdfast.documents.queries import DocumentCounts
from holdfast.documents.remove import DocumentRemover
from holdfast.documents.selection import (
    admit_live_requests,
    lock_open_base,
    refuse_failed,
    require_open,
    select_items_with_slots,
    select_live_requests,
)
from holdfast.documents.status import Document, DocumentStatus, IndexStatus, Progress, progress_of

__all__ = [
    "ITEMS_PER_TRANSACTION",
    "LONGEST_NAME",
    "Action",
    "AddOptions",
    "Document",
    "DocumentAdder",
    "DocumentChunk",
    "DocumentCounts",
    "DocumentFilter",
    "DocumentOperations",
    "DocumentRemover",
    "DocumentStatus",
    "IndexStatus",
    "ItemReply",
    "Order",
    "Progress",
    "RequestOptions",
    "Upload",
    "admit_live_requests",
    "lock_open_base",
    "pause_for_quota",
    "progress_of",
    "refuse_failed",
    "require_open",
    "select_items_with_slots",
    "select_live_requests",
]
