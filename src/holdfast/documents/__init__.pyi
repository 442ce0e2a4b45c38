from .add import ITEMS_PER_TRANSACTION, LONGEST_NAME, DocumentAdder, pause_for_quota
from .items import DocumentChunk
from .lists import DocumentFilter, Order
from .operations import DocumentOperations
from .queries import DocumentCounts
from .remove import DocumentRemover
from .requests import Action, AddOptions, ItemReply, RequestOptions, Upload
from .selection import (
    admit_live_requests,
    lock_open_base,
    refuse_failed,
    require_open,
    select_items_with_slots,
    select_live_requests,
)
from .status import Document, DocumentStatus, IndexStatus, Progress, progress_of

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
