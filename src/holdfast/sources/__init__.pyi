from .address_policy import PUBLIC_ONLY, Reach
from .errors import folder_not_allowed
from .folder import (
    DEFAULT_RULES,
    FolderRules,
    FoundFile,
    Skipped,
    SkipReason,
    Stamp,
    open_found,
    require_allowed,
    scan,
    to_displayable,
)
from .headers import parse_headers, parse_retry_after
from .safe_transport import Deadline, Resolver, open_response, resolve_host
from .sitemaps import expand
from .urls import Url
from .web import Unchanged, Validators, fetch

__all__ = [
    "DEFAULT_RULES",
    "PUBLIC_ONLY",
    "Deadline",
    "FolderRules",
    "FoundFile",
    "Reach",
    "Resolver",
    "SkipReason",
    "Skipped",
    "Stamp",
    "Unchanged",
    "Url",
    "Validators",
    "expand",
    "fetch",
    "folder_not_allowed",
    "open_found",
    "open_response",
    "parse_headers",
    "parse_retry_after",
    "require_allowed",
    "resolve_host",
    "scan",
    "to_displayable",
]
