"""Turns errors of an S3 server into errors of Holdfast that name the bucket and its endpoint."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, NamedTuple

from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, PartialCredentialsError
from urllib3.exceptions import HTTPError

from holdfast.errors import StoreFull, StoreReadOnly, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.errors import StoreError

log = logging.getLogger("holdfast")

MISSING_KEY_CODES = frozenset({"NoSuchKey", "NoSuchVersion", "404", "NotFound"})
MISSING_BUCKET_CODES = frozenset({"NoSuchBucket"})
CREDENTIAL_CODES = frozenset(
    {
        "ExpiredToken",
        "InvalidAccessKeyId",
        "InvalidToken",
        "SignatureDoesNotMatch",
        "TokenRefreshRequired",
        "UnrecognizedClientException",
    }
)
DENIED_CODES = frozenset({"AccessDenied", "AllAccessDisabled", "AccountProblem", "403", "Forbidden"})
# Ceph, MinIO and others have no common code for a quota.
FULL_CODES = frozenset(
    {
        "InsufficientCapacity",
        "InsufficientStorage",
        "QuotaExceeded",
        "XMinioAdminBucketQuotaExceeded",
        "XMinioStorageFull",
    }
)
WRITES = frozenset({"s3:PutObject", "s3:DeleteObject", "s3:DeleteObjectVersion"})
MAX_DETAIL = 200  # characters


class BucketAddress(NamedTuple):
    """A bucket as messages name it."""

    name: str
    endpoint: str  # an address, or "AWS"


@contextmanager
def translate_s3_errors(bucket: BucketAddress, action: str, blob: str = "") -> Iterator[None]:
    """Raise errors of the client as errors of Holdfast. `action` is the permission that the request needs.

    With `blob`, an object that does not exist raises `FileNotFoundError`.
    """
    try:
        yield
    except ClientError as error:
        if blob and error.response["Error"].get("Code") in MISSING_KEY_CODES:
            raise FileNotFoundError(blob) from None
        raise _translate_response(bucket, action, error) from error
    except (NoCredentialsError, PartialCredentialsError) as error:
        raise StoreUnavailable("bucket_no_credentials", **_names(bucket), detail=_shorten(error)) from error
    except (BotoCoreError, HTTPError, OSError) as error:
        raise make_unreachable(bucket, error) from error


def make_unreachable(bucket: BucketAddress, error: BaseException) -> StoreUnavailable:
    log.warning("blobs.unreachable bucket=%s endpoint=%s error=%s", bucket.name, bucket.endpoint, _shorten(error))
    return StoreUnavailable("bucket_unreachable", **_names(bucket), detail=_shorten(error))


def make_refusal(bucket: BucketAddress, action: str, code: str, message: str, status: int = 0) -> StoreError:
    """Return the error for a code of the S3 API."""
    names = _names(bucket)
    detail = f"{code}: {message}"[:MAX_DETAIL]
    if code in MISSING_BUCKET_CODES:
        return StoreUnavailable("bucket_missing", **names)
    if code in CREDENTIAL_CODES:
        return StoreUnavailable("bucket_credentials", **names, detail=detail)
    if code in FULL_CODES or status == HTTPStatus.INSUFFICIENT_STORAGE:
        return StoreFull("bucket_full", **names, place=bucket.name, detail=detail)
    if code in DENIED_CODES and action in WRITES:
        return StoreReadOnly("bucket_read_only", **names, action=action, detail=detail)
    if code in DENIED_CODES:
        return StoreUnavailable("bucket_denied", **names, action=action, detail=detail)
    code = "bucket_unreachable" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else "bucket_refused"
    log.warning("blobs.refused bucket=%s endpoint=%s error=%s", bucket.name, bucket.endpoint, detail)
    return StoreUnavailable(code, **names, detail=detail)


def _translate_response(bucket: BucketAddress, action: str, error: ClientError) -> StoreError:
    given = error.response["Error"]
    status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    return make_refusal(bucket, action, str(given.get("Code", status)), str(given.get("Message", "")), status)


def _names(bucket: BucketAddress) -> dict[str, str]:
    return {"bucket": bucket.name, "endpoint": bucket.endpoint}


def _shorten(error: BaseException) -> str:
    return str(error)[:MAX_DETAIL]
