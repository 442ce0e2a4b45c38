"""Documents: add, remove, index, list, and keep in step with their sources."""

from holdfast.documents.add import LONGEST_NAME, TOGETHER, Adding, Reply, Terms, Upload, await_quota
from holdfast.documents.items import Chunk
from holdfast.documents.lists import Filter, Order
from holdfast.documents.operations import Action, Manner, Requesting
from holdfast.documents.queries import Counts
from holdfast.documents.remove import Removing
from holdfast.documents.selection import locked, refuse_failed, still_there, with_slots
from holdfast.documents.status import Document, Index, Progress, Standing, progress_of

__all__ = [
    "LONGEST_NAME",
    "TOGETHER",
    "Action",
    "Adding",
    "Chunk",
    "Counts",
    "Document",
    "Filter",
    "Index",
    "Manner",
    "Order",
    "Progress",
    "Removing",
    "Reply",
    "Requesting",
    "Standing",
    "Terms",
    "Upload",
    "await_quota",
    "locked",
    "progress_of",
    "refuse_failed",
    "still_there",
    "with_slots",
]
