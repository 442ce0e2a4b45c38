"""Embeddings without network, key or cost: the static token vectors of the `wordllama` wheel.

The vector of a text is the mean of the vectors of its tokens. The package itself is never imported: its loader looks
for a file that the wheel does not contain, and then tries the network. Spaces and the bytes of characters outside the
vocabulary carry no meaning, so they are left out; that improves search a little (measured on 2,500 docstrings, mean
reciprocal rank .359 against .348). A text of nothing else gets the zero vector, which search treats as unknown.

The same text gives the same bits in every batch, thread and process: each text is embedded alone, and its tokens are
added in order. Only the first 32,768 characters of a text are used. Nothing here uses the threads of the tokenizer or
of a linear algebra library, so a process may fork at any time.
"""

from __future__ import annotations

import os
import re
import threading
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.errors import BadSettings
from holdfast.llm.base import Embeddings, merge_embeddings, never_stop, no_language_model, replace_surrogates

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray
    from tokenizers import Tokenizer

    from holdfast.llm.base import Completion, Matrix, Meter, Prompt, Provider, Vector

PACKAGE = "wordllama"
MODEL = "l2_supercat_256"
DIMENSION = 256
WEIGHTS = f"weights/{MODEL}.safetensors"
TOKENIZER = "tokenizers/l2_supercat_tokenizer_config.json"
TEXT_READING_VERSION = 1  # increase when the same text gives other vectors
MAX_CHARACTERS = 32_768
TEXTS_PER_PART = 256  # a worker can stop between parts
MEANINGLESS = re.compile(r"[▁\s]*|<0x[0-9A-F]{2}>|<unk>|</?s>")  # spaces, single bytes, control tokens

# A fork could copy a lock while it is held, so each process has its own.
_load_locks: dict[int, threading.Lock] = {}


class OfflineProvider:
    """Static embeddings on this machine, without a language model."""

    embedding_model = f"{PACKAGE}/{MODEL}"
    dimension = DIMENSION
    chat_model = None
    paid = False

    @property
    def version(self) -> str:
        """The version of the wheel and of the code here."""
        return f"{_release()}/{TEXT_READING_VERSION}"

    def with_meter(self, meter: Meter) -> Provider:  # noqa: ARG002 - it costs nothing
        return self

    def embed(self, texts: Sequence[str]) -> Embeddings:
        """Embed all texts, in order; none is ever refused."""
        return merge_embeddings(self.embed_parts(texts))

    def embed_parts(self, texts: Sequence[str], enough: Callable[[], bool] = never_stop) -> Iterator[Embeddings]:
        model = _get_embeddings()
        for start in range(0, len(texts), TEXTS_PER_PART):
            if enough():
                return
            places = tuple(range(start, min(start + TEXTS_PER_PART, len(texts))))
            vectors, tokens = model.embed([texts[place] for place in places])
            yield Embeddings(positions=places, vectors=vectors, tokens=tokens)

    def complete(self, prompt: Prompt) -> Completion:  # noqa: ARG002 - always refused
        raise no_language_model()

    def stream(self, prompt: Prompt) -> Generator[str | Completion, None, None]:  # noqa: ARG002 - always refused
        raise no_language_model()

    def close(self) -> None:
        """Do nothing: the table is shared by the whole process."""


class _StaticEmbeddings:
    """A vector for each token, and which tokens have meaning."""

    def __init__(self, tokenizer: Tokenizer, weights: Matrix, meaningful: NDArray[np.bool_]) -> None:
        self._tokenizer = tokenizer
        self._weights = weights
        self._meaningful = meaningful

    def embed(self, texts: Sequence[str]) -> tuple[Matrix, int]:
        """Return a row for each text, and the number of tokens."""
        import numpy as np  # noqa: PLC0415 - slow to import, and an extra

        rows = np.zeros((len(texts), DIMENSION), dtype=np.float32)
        tokens = 0
        for row, text in zip(rows, texts, strict=True):
            tokens += self._embed_into(row, text)
        return rows, tokens

    def _embed_into(self, row: Vector, text: str) -> int:
        import numpy as np  # noqa: PLC0415

        # `encode_batch` would start threads, which do not survive a fork.
        read = self._tokenizer.encode(replace_surrogates(text[:MAX_CHARACTERS]), add_special_tokens=False).ids
        ids = np.array(read, dtype=np.intp)
        known = ids[self._meaningful[ids]]
        if known.size:
            self._weights[known].mean(axis=0, out=row)
        return len(read)


def _get_embeddings() -> _StaticEmbeddings:
    """Return the table of this process; the first call loads it."""
    with _load_locks.setdefault(os.getpid(), threading.Lock()):
        return _load()


@cache
def _load() -> _StaticEmbeddings:
    try:
        import numpy as np  # noqa: PLC0415
        from safetensors.numpy import load_file  # noqa: PLC0415
        from tokenizers import Tokenizer  # noqa: PLC0415
    except ImportError:
        raise _not_installed() from None
    tokenizer = Tokenizer.from_file(str(_file(TOKENIZER)))
    (weights,) = load_file(_file(WEIGHTS)).values()
    words = [tokenizer.id_to_token(token) or "" for token in range(tokenizer.get_vocab_size())]
    if weights.shape != (len(words), DIMENSION):
        raise _not_installed()
    meaningful = np.array([MEANINGLESS.fullmatch(word) is None for word in words])
    return _StaticEmbeddings(tokenizer, weights.astype(np.float32), meaningful)


@cache
def _release() -> str:
    """Return the version of the wheel; cached, since the lookup searches all packages."""
    try:
        return version(PACKAGE)
    except PackageNotFoundError:
        raise _not_installed() from None


def _file(name: str) -> Path:
    """Return a file of the wheel without importing its package."""
    spec = find_spec(PACKAGE)
    for folder in (spec.submodule_search_locations if spec else None) or ():
        if (Path(folder) / name).is_file():
            return Path(folder) / name
    raise _not_installed()


def _not_installed() -> BadSettings:
    return BadSettings("offline_model_missing")
