from .delivery import Delivery
from .encryption import SecretCipher
from .endpoints import StoredWebhook
from .http_post import PostOptions, post
from .retry_policy import AttemptOutcome, decide_retry
from .signing import new_secret, sign

__all__ = [
    "AttemptOutcome",
    "Delivery",
    "PostOptions",
    "SecretCipher",
    "StoredWebhook",
    "decide_retry",
    "new_secret",
    "post",
    "sign",
]
