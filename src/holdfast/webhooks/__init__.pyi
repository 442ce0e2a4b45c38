from .delivery import Delivery
from .endpoints import StoredWebhook

__all__ = [
    "Delivery",
    "StoredWebhook",
]
