from .delivery import Delivery
from .encryption import SecretCipher
from .endpoints import StoredWebhook

__all__ = [
    "Delivery",
    "SecretCipher",
    "StoredWebhook",
]
