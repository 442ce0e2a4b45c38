"""A file of 1 GB is sent to a bucket and read from it with little memory."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.support.processes import ROOT

if TYPE_CHECKING:
    from tests.support.object_storage import ObjectStorage

MOST_MEGABYTES = 64
# Prints the size of the file and the peak of the memory, in megabytes, after each step.
SCRIPT = """
import io, json, re, sys
from pathlib import Path
from holdfast.blobs.base import BlobLocation, open_blob_store

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) // 1024

class Source:
    left = 1 << 30
    def read(self, size):
        size = min(size, self.left)
        self.left -= size
        return b"x" * size

blobs = open_blob_store(BlobLocation(address=sys.argv[1], s3_endpoint=sys.argv[2]))
with blobs.write_batch() as put:
    put(io.BytesIO(b"small"))
peaks = [peak()]
with blobs.write_batch() as put:
    blob = put(Source())
peaks.append(peak())
assert blobs.digest(blob.name) == blob.digest
peaks.append(peak())
with blobs.local_file(blob.name) as path:
    size = path.stat().st_size
peaks.append(peak())
print(json.dumps([size, peaks]))
"""


@pytest.mark.s3
def test_a_gigabyte_is_sent_and_read_with_little_memory(s3: ObjectStorage) -> None:
    bucket = s3.create_bucket()
    command = [sys.executable, "-c", SCRIPT, f"s3://{bucket}", s3.endpoint]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    size, (before, *after) = json.loads(ran.stdout)
    assert size == 1 << 30
    assert max(after) - before <= MOST_MEGABYTES, (before, after)
