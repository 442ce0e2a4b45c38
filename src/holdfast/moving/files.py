"""Copies the files of documents between two blob stores, under the same names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.blobs import UNFINISHED_SUFFIX, parse_blob_id
from holdfast.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.blobs import BlobStore


def copy_files(names: Sequence[str], source: BlobStore, target: BlobStore) -> int:
    """Copy the files that the target lacks, and return how many.

    The name of a file contains the hash of its bytes, so a damaged file is noticed. A file that the source lacks is
    left out; the doctor reports it.
    """
    wanted = sorted(target.find_missing(names) - source.find_missing(names))
    for name in wanted:
        target.remove_unfinished(f"{parse_blob_id(name)}{UNFINISHED_SUFFIX}")  # of an interrupted copy
    ids = iter(map(parse_blob_id, wanted))
    with target.write_batch(lambda: next(ids)) as put:
        for name in wanted:
            with source.open(name) as reader:
                if put(reader).name != name:
                    raise StoreError("file_damaged_at_source", name=name)
    return len(wanted)
