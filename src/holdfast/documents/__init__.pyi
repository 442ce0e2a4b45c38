from .add import ITEMS_PER_TRANSACTION, LONGEST_NAME, DocumentAdder, pause_for_quota
from .bulk import ITEMS_AT_ONCE, REQUESTING, BulkOperation, BulkOperations, parse_bulk_job
from .details import Card, DocumentEntity, MissingChunk, build_card
from .folders import SyncPreview
from .items import DocumentChunk
from .lists import DocumentFilter, Order
from .operations import DocumentOperations
from .queries import DocumentCounts
from .remove import DocumentRemover
from .requests import BUTTONS, Action, AddOptions, ItemReply, RequestOptions, Upload
from .selection import (
    admit_live_requests,
    lock_open_base,
    refuse_failed,
    require_open,
    select_items_with_slots,
    select_live_requests,
)
from .status import Document, DocumentStatus, IndexStatus, Progress, progress_of
from .text import DocumentText, OriginalFile, PassageInContext

__all__ = [
    "BUTTONS",
    "ITEMS_AT_ONCE",
    "ITEMS_PER_TRANSACTION",
    "LONGEST_NAME",
    "REQUESTING",
    "Action",
    "AddOptions",
    "BulkOperation",
    "BulkOperations",
    "Card",
    "Document",
    "DocumentAdder",
    "DocumentChunk",
    "DocumentCounts",
    "DocumentEntity",
    "DocumentFilter",
    "DocumentOperations",
    "DocumentRemover",
    "DocumentStatus",
    "DocumentText",
    "IndexStatus",
    "ItemReply",
    "MissingChunk",
    "Order",
    "OriginalFile",
    "PassageInContext",
    "Progress",
    "RequestOptions",
    "SyncPreview",
    "Upload",
    "admit_live_requests",
    "build_card",
    "lock_open_base",
    "parse_bulk_job",
    "pause_for_quota",
    "progress_of",
    "refuse_failed",
    "require_open",
    "select_items_with_slots",
    "select_live_requests",
]
