"""An embedding model that costs money and time: each call takes a second and leaves a receipt in Redis.

The receipts are the bill, and they do not lie: the model cannot know that it has embedded the same text before.
"""

import hashlib
import json
import os
import time

import redis

SECONDS_A_CALL = 1.0

_bill = redis.Redis.from_url(os.environ["REDIS_URL"])


def embed(document: str, text: str) -> list[float]:
    """Return the vector of a text, and charge the document for it."""
    receipt = {"process": os.getpid(), "began": time.time(), "seconds": SECONDS_A_CALL}
    _bill.rpush(f"accident:receipts:{document}", json.dumps(receipt))
    time.sleep(SECONDS_A_CALL)
    return [byte / 255 for byte in hashlib.sha256(text.encode()).digest()[:4]]
