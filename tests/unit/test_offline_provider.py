"""Embeddings made on this machine need no network, are reproducible and are free."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.errors import BadSettings, Permanent
from holdfast.llm import offline
from holdfast.llm.base import Prompt, Provider
from holdfast.llm.offline import DIMENSION, MAX_CHARACTERS, TEXTS_PER_PART, OfflineProvider

if TYPE_CHECKING:
    from holdfast.llm.base import Vector

PROVIDER = OfflineProvider()
WEATHER = "The storm brought heavy rain and strong wind to the coast."
OTHERS = ["A lease proves nothing.", "", "Zweierlei Maß", "雨が降っている", WEATHER * 40, "\n"]


def vector(text: str) -> Vector:
    row: Vector = PROVIDER.embed([text]).vectors[0]
    return row


def likeness(one: str, other: str) -> float:
    a, b = vector(one), vector(other)
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def test_each_text_gets_the_vector_at_its_position() -> None:
    embedded = PROVIDER.embed(OTHERS)
    assert embedded.positions == tuple(range(len(OTHERS)))
    assert embedded.vectors.shape == (len(OTHERS), DIMENSION)
    assert embedded.vectors.dtype == np.float32
    assert np.isfinite(embedded.vectors).all()
    assert not embedded.refused
    assert embedded.tokens > 100


def test_an_empty_list_of_texts_has_no_vectors() -> None:
    assert PROVIDER.embed([]).positions == ()


def test_texts_on_the_same_subject_are_more_similar_than_others() -> None:
    assert likeness(WEATHER, "Rain and wind were strong") > likeness(WEATHER, "The invoice is due on Monday") + 0.2


@given(st.text(), st.lists(st.text(), max_size=5), st.integers(0, 5))
@example(WEATHER, OTHERS, 3)
@example("half a character \ud800", ["\udfff"], 1)
def test_a_vector_does_not_depend_on_the_other_texts_of_a_call(text: str, others: list[str], place: int) -> None:
    place = min(place, len(others))
    together = PROVIDER.embed([*others[:place], text, *others[place:]]).vectors[place]
    assert together.tobytes() == vector(text).tobytes()


def test_a_vector_does_not_depend_on_its_position_in_a_long_call() -> None:
    texts = [f"{number} {WEATHER}" for number in range(2 * TEXTS_PER_PART + 3)]
    parts = list(PROVIDER.embed_parts(texts))
    assert [len(part.positions) for part in parts] == [TEXTS_PER_PART, TEXTS_PER_PART, 3]
    whole = PROVIDER.embed(texts).vectors
    for place in (0, TEXTS_PER_PART - 1, TEXTS_PER_PART, 2 * TEXTS_PER_PART, 2 * TEXTS_PER_PART + 2):
        assert whole[place].tobytes() == vector(texts[place]).tobytes()


def test_a_vector_is_the_mean_of_its_token_vectors_added_in_order() -> None:
    model = offline._load()
    ids = model._tokenizer.encode(WEATHER, add_special_tokens=False).ids
    total = np.zeros(DIMENSION, dtype=np.float32)
    for one in ids:
        total = total + model._weights[one]
    assert (total / np.float32(len(ids))).tobytes() == vector(WEATHER).tobytes()


def test_vectors_change_only_with_the_version() -> None:
    assert PROVIDER.version == "0.4.0.post1/1"
    assert hashlib.sha256(vector(WEATHER).tobytes()).hexdigest()[:16] == "adad500acda29663"


@pytest.mark.parametrize("text", ["", " ", "\n\t  \r\n", "🦜", "\x00", "<s> </s> <unk>", " 🦜\n"])
def test_a_text_without_any_known_token_is_the_zero_vector(text: str) -> None:
    assert not vector(text).any()


def test_white_space_and_unknown_characters_do_not_change_a_vector() -> None:
    assert vector("storm warning").tobytes() == vector("storm warning\n\n  🦜  ").tobytes()


def test_only_the_beginning_of_a_very_long_text_is_read() -> None:
    start = ("storm " * MAX_CHARACTERS)[:MAX_CHARACTERS]
    assert vector(start + " invoice" * 1000).tobytes() == vector(start).tobytes()
    assert vector(start[:-1] + "x").tobytes() != vector(start).tobytes()


def test_threads_share_one_table() -> None:
    offline._load.cache_clear()
    barrier = threading.Barrier(4)
    vectors: list[bytes] = []

    def embed() -> None:
        barrier.wait()
        vectors.append(vector(WEATHER).tobytes())

    threads = [threading.Thread(target=embed) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert vectors == [vector(WEATHER).tobytes()] * 4
    assert offline._load.cache_info().misses == 1


ALONE = """
import socket, sys

def nothing(*args, **kwargs):
    raise OSError("there is no network")

socket.socket.connect = socket.create_connection = socket.getaddrinfo = nothing
from holdfast.llm.base import Prompt
assert "numpy" not in sys.modules, "the protocol is light"
from holdfast.llm.offline import OfflineProvider
provider = OfflineProvider()
assert not {"numpy", "tokenizers", "safetensors"} & set(sys.modules), "loaded when needed"
vectors = provider.embed([sys.argv[1]]).vectors
assert not {"wordllama", "requests", "openai"} & set(sys.modules), "never"
print(vectors.tobytes().hex())
"""


def test_another_process_without_network_computes_the_same_vector() -> None:
    run = subprocess.run([sys.executable, "-c", ALONE, WEATHER], capture_output=True, text=True, check=True)
    assert bytes.fromhex(run.stdout) == vector(WEATHER).tobytes()


FORKED = """
import os, sys
from holdfast.llm.offline import OfflineProvider
before = OfflineProvider().embed([sys.argv[1]]).vectors
child = os.fork()
if child == 0:
    os._exit(0 if (OfflineProvider().embed([sys.argv[1]]).vectors == before).all() else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_process_may_fork_after_the_weights_were_loaded() -> None:
    run = subprocess.run([sys.executable, "-c", FORKED, WEATHER], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (0, "")


@pytest.mark.parametrize("missing", ["package", "file"])
def test_without_the_model_files_the_error_names_the_extra_to_install(
    missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    offline._load.cache_clear()
    offline._release.cache_clear()
    if missing == "package":
        monkeypatch.setattr(offline, "find_spec", lambda _: None)
        monkeypatch.setattr(offline, "PACKAGE", "no-such-package")
        with pytest.raises(BadSettings, match=r"pip install 'holdfast\[documents\]'"):
            _ = PROVIDER.version
    else:
        monkeypatch.setattr(offline, "WEIGHTS", "weights/other.safetensors")
    with pytest.raises(BadSettings, match=r"pip install 'holdfast\[documents\]'"):
        PROVIDER.embed([WEATHER])


@pytest.mark.parametrize("module", ["numpy", "safetensors.numpy", "tokenizers"])
def test_without_a_library_the_error_names_the_extra_to_install(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    offline._load.cache_clear()
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(BadSettings, match=r"pip install 'holdfast\[documents\]'"):
        PROVIDER.embed([WEATHER])


def test_model_files_that_do_not_match_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    offline._load.cache_clear()
    monkeypatch.setattr(offline, "DIMENSION", 512)
    with pytest.raises(BadSettings):
        PROVIDER.embed([WEATHER])


def test_the_offline_provider_has_no_language_model() -> None:
    for ask in (PROVIDER.complete, PROVIDER.stream):
        with pytest.raises(Permanent) as refused:
            ask(Prompt(text="Who are you?"))
        assert refused.value.code == "no_language_model"


def test_the_offline_provider_is_free() -> None:
    provider: Provider = PROVIDER
    assert (provider.embedding_model, provider.dimension, provider.chat_model, provider.paid) == (
        "wordllama/l2_supercat_256",
        256,
        None,
        False,
    )
