"""Webhook secrets are encrypted in the database with a key that all processes share and a command rotates."""

from __future__ import annotations

import resource
import stat
import threading
import time
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from holdfast.engine.effects import Event
from holdfast.engine.store.transitions import record_events
from holdfast.errors import BadSecretKey, BadSettings, StoreFull
from holdfast.events.log import EventLog
from holdfast.sources.address_policy import Reach
from holdfast.webhooks.deliveries import DeliveryOutbox
from holdfast.webhooks.encryption import KEY_FILE, SecretCipher
from holdfast.webhooks.endpoints import WebhookRepository
from holdfast.webhooks.http_post import PostOptions
from holdfast.webhooks.retry_policy import WebhookState
from holdfast.webhooks.sender import Sender
from tests.contract.steps import side_by_side
from tests.support.receiver import Receiver

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from holdfast.engine.store.sql_store import SqlStore
    from tests.support.clock import FakeClock

HERE = Reach.parse("127.0.0.1")
OLD, NEW = "o" * 44, "n" * 44


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


class Process:
    """One process of a deployment, with a configured key or the key file in its home folder."""

    def __init__(self, store: SqlStore, home: Path, key: str = "") -> None:
        self.store = store
        self.cipher = SecretCipher(key, home)
        log = EventLog(store.database)
        self.webhooks = WebhookRepository(store.database, log, self.cipher, HERE)
        self.deliveries = DeliveryOutbox(store.database, log, self.cipher)

    def send(self) -> None:
        event = Event("job.success", "7", "42")
        self.store.database.write(lambda tx: record_events(tx, [event]), durable=True)
        while self.deliveries.collect_events() is not None:
            pass
        sender = Sender(self.deliveries, PostOptions(reach=HERE), chance=lambda: 0.0)
        sender.step()
        sender.close()

    def stored(self) -> list[str]:
        with self.store.database.reading() as tx:
            rows = tx.run_sql("SELECT secret, old_secret FROM webhooks ORDER BY id")
        return [one for row in rows for one in row if one]

    def write_plaintext(self, webhook: int, secret: str) -> None:
        """Store a secret in plain text, like earlier versions."""
        with self.store.database.writing(durable=True) as tx:
            tx.run_sql(f"UPDATE webhooks SET secret = '{secret}' WHERE id = {webhook}")  # noqa: S608 - test data


@pytest.fixture(autouse=True)
def real_time(clock: FakeClock) -> None:
    """Set the clock to the real time, which receivers compare with."""
    clock.jump(timedelta(microseconds=time.time_ns() // 1000 - clock.now()))


@pytest.fixture
def process(store: SqlStore, tmp_path: Path) -> Process:
    return Process(store, tmp_path / "home")


def keys(home: Path) -> list[str]:
    return (home / KEY_FILE).read_text().split()


def test_the_database_has_no_plain_secret_and_messages_are_signed_with_it(process: Process, receiver: Receiver) -> None:
    hook, secret = process.webhooks.create(receiver.url(), ["*"])
    newer = process.webhooks.rotate_secret(hook.id)
    assert not [one for one in process.stored() if secret in one or newer in one]
    process.send()
    (message,) = receiver.got
    assert message.verified(secret) == message.verified(newer)


def test_the_key_file_is_created_on_first_use_and_only_its_owner_can_read_it(process: Process, tmp_path: Path) -> None:
    assert not (tmp_path / "home").exists()
    process.webhooks.create("http://127.0.0.1/", ["*"])
    assert stat.S_IMODE((tmp_path / "home" / KEY_FILE).stat().st_mode) == 0o600
    assert len(keys(tmp_path / "home")) == 1
    (tmp_path / "home" / KEY_FILE).chmod(0o644)  # as after an operator copied it
    Process(process.store, tmp_path / "home").webhooks.create("http://127.0.0.1/", ["*"])
    assert stat.S_IMODE((tmp_path / "home" / KEY_FILE).stat().st_mode) == 0o600


def test_a_full_disk_is_reported_and_leaves_no_partial_key_file(process: Process, tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    for write in (
        lambda: process.webhooks.create("http://127.0.0.1/", ["*"]),
        lambda: process.cipher.rotate_key(process.store.database),
    ):
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
        try:
            with pytest.raises(StoreFull, match="HOLDFAST_HOME"):
                # The transaction is aborted before the database writes anything.
                write()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert process.stored() == []
    assert list((tmp_path / "home").iterdir()) == []


def test_the_error_names_a_key_file_that_cannot_be_written(store: SqlStore, tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file, where the home folder should be")
    process = Process(store, tmp_path / "home")
    with pytest.raises(BadSecretKey, match=f"cannot be read from '{tmp_path}") as refused:
        process.webhooks.create("http://127.0.0.1/", ["*"])
    assert (refused.value.code, refused.value.subcode) == ("secret_key", "secret_key_unreadable")
    assert process.stored() == []


def test_the_error_names_an_empty_key_file(process: Process, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / KEY_FILE).touch()
    with pytest.raises(BadSecretKey, match="contains no key") as refused:
        process.webhooks.create("http://127.0.0.1/", ["*"])
    assert refused.value.subcode == "secret_key_empty"
    assert refused.value.params == {"path": str(tmp_path / "home" / KEY_FILE)}
    assert [path.name for path in (tmp_path / "home").iterdir()] == [KEY_FILE]


def test_processes_that_start_concurrently_agree_on_one_key(store: SqlStore, tmp_path: Path) -> None:
    ready = threading.Barrier(4)

    def create(_: int) -> SecretCipher:
        cipher = SecretCipher("", tmp_path / "home")
        ready.wait()
        cipher._create_key_file()
        return cipher

    made = side_by_side(4, create)
    assert len(keys(tmp_path / "home")) == 1
    assert [path.name for path in (tmp_path / "home").iterdir()] == [KEY_FILE]
    stored = store.database.write(lambda tx: made[0].encrypt(tx, "whsec_x"), durable=False)
    assert {one.decrypt(stored) for one in made} == {"whsec_x"}


def test_a_process_that_is_late_uses_the_existing_key(tmp_path: Path) -> None:
    first = SecretCipher("", tmp_path)._create_key_file()
    assert SecretCipher("", tmp_path)._create_key_file() == first
    assert keys(tmp_path) == [first.text]


@pytest.mark.parametrize(("key", "reason"), [("", "secret_key_missing"), (NEW, "secret_key_wrong")])
def test_with_a_missing_or_wrong_key_nothing_is_written_or_sent(
    store: SqlStore, tmp_path: Path, receiver: Receiver, key: str, reason: str
) -> None:
    right, wrong = Process(store, tmp_path, OLD), Process(store, tmp_path / "other", key)
    hook, _ = right.webhooks.create(receiver.url(), ["*"])
    before = right.stored()
    for write in (
        lambda: wrong.webhooks.create("http://127.0.0.1/", ["*"]),
        lambda: wrong.webhooks.rotate_secret(hook.id),
        lambda: wrong.cipher.rotate_key(wrong.store.database),
    ):
        with pytest.raises(BadSecretKey) as refused:
            write()
        assert refused.value.subcode == reason
        assert "HOLDFAST_SECRET_KEY" in str(refused.value)
    assert right.stored() == before
    assert not (tmp_path / "other" / KEY_FILE).exists()
    wrong.send()
    assert receiver.got == []
    (delivery,) = wrong.deliveries.list_for_webhook(hook.id)
    assert (delivery.reason, wrong.webhooks.get(hook.id).state) == ("secret_key", WebhookState.FAILING)


def test_a_short_key_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match="at least 32 characters") as refused:
        SecretCipher("short", tmp_path)
    assert refused.value.subcode == "secret_key_short"
    assert "'short'" not in str(refused.value)


def test_secrets_stored_as_plain_text_still_sign_and_are_encrypted(process: Process, receiver: Receiver) -> None:
    hook, secret = process.webhooks.create(receiver.url(), ["*"])
    process.write_plaintext(hook.id, secret)
    process.send()
    assert receiver.got[0].verified(secret)
    assert process.cipher.encrypt_plaintext(process.store.database) == 1
    assert process.cipher.encrypt_plaintext(process.store.database) == 0
    assert secret not in process.stored()
    process.send()
    assert receiver.got[1].verified(secret)


def test_rotating_the_key_file_keeps_every_secret_and_drops_the_old_key(
    process: Process, store: SqlStore, tmp_path: Path, receiver: Receiver
) -> None:
    _, secret = process.webhooks.create(receiver.url(), ["*"])
    other = Process(store, tmp_path / "home")  # runs during the rotation and knows only the old key
    other.send()
    before = keys(tmp_path / "home")
    assert process.cipher.rotate_key(process.store.database) == 1
    after = keys(tmp_path / "home")
    assert len(after) == 1
    assert after != before
    other.send()
    assert [bool(message.verified(secret)) for message in receiver.got] == [True, True]
    other.webhooks.create(receiver.url(), ["*"])
    assert len({one.split(":")[1] for one in process.stored()}) == 1


@pytest.mark.parametrize("step", ["_reencrypt", "_drop_old_keys"])
def test_an_interrupted_rotation_loses_no_secret_and_can_be_repeated(
    process: Process, store: SqlStore, tmp_path: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    process.webhooks.create("http://127.0.0.1/", ["*"])

    def killed(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(process.cipher, step, killed)
    with pytest.raises(KeyboardInterrupt):
        process.cipher.rotate_key(process.store.database)
    assert len(keys(tmp_path / "home")) == 2
    new = Process(store, tmp_path / "home")  # knows only the file
    assert [new.cipher.decrypt(one)[:6] for one in new.stored()] == ["whsec_"]
    assert new.cipher.rotate_key(new.store.database) == 1
    assert len(keys(tmp_path / "home")) == 1
    fresh = Process(store, tmp_path / "home")
    assert [fresh.cipher.decrypt(one)[:6] for one in fresh.stored()] == ["whsec_"]


def test_an_old_key_is_kept_as_long_as_a_secret_needs_it(
    process: Process, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process.webhooks.create("http://127.0.0.1/", ["*"])
    # As if another process wrote a secret with the old key during the rotation.
    monkeypatch.setattr(process.cipher, "_reencrypt", lambda *_: 0)
    process.cipher.rotate_key(process.store.database)
    assert len(keys(tmp_path / "home")) == 2


def test_a_configured_key_is_rotated_by_putting_the_new_key_before_the_old(store: SqlStore, tmp_path: Path) -> None:
    Process(store, tmp_path, OLD).webhooks.create("http://127.0.0.1/", ["*"])
    both = Process(store, tmp_path, f"{NEW},{OLD}")
    assert both.cipher.rotate_key(both.store.database) == 1
    new = Process(store, tmp_path, NEW)
    assert [new.cipher.decrypt(one)[:6] for one in new.stored()] == ["whsec_"]
    with pytest.raises(BadSecretKey):
        Process(store, tmp_path, OLD).cipher.decrypt(new.stored()[0])
    assert not (tmp_path / KEY_FILE).exists()
