"""Requests to one bucket of an S3 server. Each raises errors of Holdfast that name the bucket and its endpoint."""

from __future__ import annotations

import io
from contextlib import closing
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from urllib3.exceptions import HTTPError

from holdfast.blobs.s3_errors import BucketAddress, make_refusal, translate_s3_errors

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

    from holdfast.blobs.hashed_copy import HashedCopy

MAX_CONNECTIONS = 16  # of one process
KEYS_PER_REQUEST = 1_000  # the limit of S3 for lists and deletes
CONNECT_SECONDS, READ_SECONDS = 5, 60
CHECK_SECONDS = 10  # a process does not start before the check has ended
TRIES = 3  # of one request, by the client
RESUMES = 3  # of a download that makes no progress


class Version(NamedTuple):
    """A version of an object, or a delete marker."""

    key: str
    id: str  # empty if the server knows no versions
    written_at: float


class Bucket:
    """A bucket and the connections to it. Threads may share it; processes may not."""

    def __init__(self, name: str, endpoint: str) -> None:
        self._name = name
        self._address = BucketAddress(name, endpoint or "AWS")
        self._endpoint = endpoint
        self._client = _open_client(endpoint)
        self._lists_versions = True

    def check(self, prefix: str) -> None:
        """Raise an error if the bucket cannot be used. A server that answers nothing counts as down after one try."""
        impatient = _open_client(self._endpoint, read_timeout=CHECK_SECONDS, tries=1)
        with closing(impatient) as client, self.translating("s3:ListBucket"):
            client.list_objects_v2(Bucket=self._name, Prefix=prefix, MaxKeys=1)

    def put(self, key: str, copy: HashedCopy) -> None:
        """Send an object. It is durable when this returns."""
        with self.translating("s3:PutObject"):
            self._client.put_object(
                Bucket=self._name,
                Key=key,
                Body=copy.file,
                ContentLength=copy.size,
                ContentMD5=copy.md5,
                ContentType="application/octet-stream",
            )

    def open(self, key: str, start: int) -> ObjectReader:
        """Read an object from a position; raise `FileNotFoundError` if it does not exist."""
        with self.translating("s3:GetObject", key):
            return ObjectReader(self, key, start)

    def get(self, key: str, start: int) -> Any:
        """Request an object from a position; empty at its end."""
        span = {"Range": f"bytes={start}-"} if start else {}
        try:
            return self._client.get_object(Bucket=self._name, Key=key, **span)["Body"]
        except ClientError as error:
            if error.response["ResponseMetadata"]["HTTPStatusCode"] != HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                raise
            return io.BytesIO()

    def exists(self, key: str) -> bool:
        try:
            with self.translating("s3:GetObject", key):
                self._client.head_object(Bucket=self._name, Key=key)
        except FileNotFoundError:
            return False
        return True

    def list_versions(self, prefix: str, after: str = "") -> Iterator[Version]:
        """Yield the versions and delete markers of all keys with a prefix, in the order of the keys, newest first.

        A server that knows no versions, such as Cloudflare R2, lists its objects.
        """
        marker: dict[str, str] = {"KeyMarker": after} if after else {}
        while self._lists_versions:
            try:
                with self.translating("s3:ListBucketVersions"):
                    page = self._request_versions(prefix, marker)
            except NotImplementedError:
                self._lists_versions = False
                break
            found = [_parse_version(one) for one in (*page.get("Versions", ()), *page.get("DeleteMarkers", ()))]
            yield from sorted(found, key=lambda version: (version.key, -version.written_at))
            if not page.get("IsTruncated"):
                return
            following = {"KeyMarker": page.get("NextKeyMarker"), "VersionIdMarker": page.get("NextVersionIdMarker")}
            marker = {name: value for name, value in following.items() if value}
        yield from self._list_objects(prefix, marker.get("KeyMarker", ""))

    def _request_versions(self, prefix: str, marker: dict[str, str]) -> Any:
        try:
            return self._client.list_object_versions(Bucket=self._name, Prefix=prefix, **marker)
        except ClientError as error:
            if error.response["ResponseMetadata"]["HTTPStatusCode"] == HTTPStatus.NOT_IMPLEMENTED:
                raise NotImplementedError from error
            raise

    def _list_objects(self, prefix: str, after: str) -> Iterator[Version]:
        while True:
            with self.translating("s3:ListBucket"):
                page = self._client.list_objects_v2(Bucket=self._name, Prefix=prefix, StartAfter=after)
            yield from (found := [_parse_version(one) for one in page.get("Contents", ())])
            if not page.get("IsTruncated") or not found:
                return
            after = found[-1].key

    def delete(self, keys: Sequence[str]) -> list[str]:
        """Delete objects; return the keys that got a delete marker instead, because the bucket is versioned."""
        deleted = self._delete([{"Key": key} for key in keys], "s3:DeleteObject")
        return [one["Key"] for one in deleted if one.get("DeleteMarker")]

    def delete_versions(self, versions: Sequence[Version]) -> None:
        """Delete versions and delete markers for good."""
        named = [{"Key": one.key, "VersionId": one.id} if one.id else {"Key": one.key} for one in versions]
        self._delete(named, "s3:DeleteObjectVersion")

    def _delete(self, objects: Sequence[dict[str, str]], action: str) -> list[dict[str, Any]]:
        deleted: list[dict[str, Any]] = []
        for first in range(0, len(objects), KEYS_PER_REQUEST):
            batch = objects[first : first + KEYS_PER_REQUEST]
            with self.translating(action):
                reply = self._client.delete_objects(Bucket=self._name, Delete={"Objects": batch})
            for refused in reply.get("Errors", ()):
                raise make_refusal(self._address, action, refused.get("Code", ""), refused.get("Message", ""))
            deleted += reply.get("Deleted", ())
        return deleted

    def translating(self, action: str, key: str = "") -> AbstractContextManager[None]:
        return translate_s3_errors(self._address, action, key)


class ObjectReader:
    """Reads an object. After a lost connection it requests the rest."""

    def __init__(self, bucket: Bucket, key: str, start: int) -> None:
        self._bucket = bucket
        self._key = key
        self._position = start
        self._body: Any = bucket.get(key, start)

    def read(self, size: int, /) -> bytes:
        with self._bucket.translating("s3:GetObject", self._key):
            block = self._read(size, RESUMES)
        self._position += len(block)
        return block

    def close(self) -> None:
        self._body.close()

    def _read(self, size: int, resumes: int) -> bytes:
        try:
            block: bytes = self._body.read(size)
        except (BotoCoreError, HTTPError, OSError):
            if not resumes:
                raise
            self._body.close()
            self._body = self._bucket.get(self._key, self._position)
            return self._read(size, resumes - 1)
        return block


def _parse_version(listed: dict[str, Any]) -> Version:
    return Version(listed["Key"], listed.get("VersionId", ""), listed["LastModified"].timestamp())


def _open_client(endpoint: str, *, read_timeout: float | None = None, tries: int = TRIES) -> Any:
    """Open a client with the credentials that boto3 finds: in the environment, in `~/.aws`, or from the machine."""
    config = Config(
        connect_timeout=CONNECT_SECONDS,
        read_timeout=read_timeout or READ_SECONDS,
        retries={"mode": "standard", "total_max_attempts": tries},
        max_pool_connections=MAX_CONNECTIONS,
        # Other servers than AWS do not know the newer checksums; `put` sends an MD5, which all of them compare.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        s3={"addressing_style": "path" if endpoint else "auto"},
    )
    return boto3.session.Session().client("s3", endpoint_url=endpoint or None, config=config)
