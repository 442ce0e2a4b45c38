"""Encrypts the secrets of webhooks in the database, under a key that is not in the database.

The key comes from `HOLDFAST_SECRET_KEY`, or from a file in the home folder that is created on first use. Several keys
may be given: the first encrypts, all of them decrypt. Each ciphertext names its key by a fingerprint, so a wrong key is
recognised. A writer takes one lock per database and reads the keys while it holds it, so no secret is written under a
key that a concurrent rotation drops.
"""

from __future__ import annotations

import base64
import os
import secrets
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from holdfast.disk import IN_HOME_FOLDER, reporting_full_disk, sync_folder
from holdfast.errors import BadSecretKey, BadSettings
from holdfast.private_files import make_private_folder, open_private_file, restrict_to_owner
from holdfast.webhooks import statements as sql

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from holdfast.db import Database, Transaction

CIPHERTEXT_PREFIX = "enc1"  # of a ciphertext: enc1:<fingerprint of the key>:<token>
KEY_FILE = "secret.key"  # in the home folder: a key per line, the newest first
MIN_KEY_LENGTH = 32  # characters of a key
ADVISORY_LOCK_ID = 0x686F6C64_6B657973  # an advisory lock of our own on PostgreSQL
KEY_DERIVATION_PREFIX = b"holdfast webhook secrets\n"


@dataclass(frozen=True)
class EncryptionKey:
    """One key. Its text is never printed or logged."""

    text: str

    @cached_property
    def fingerprint(self) -> str:
        """Identifies the key without revealing it."""
        return sha256(b"fingerprint\n" + self._derived_key).hexdigest()[:12]

    def encrypt(self, secret: str) -> str:
        return f"{CIPHERTEXT_PREFIX}:{self.fingerprint}:{self._fernet.encrypt(secret.encode()).decode()}"

    def decrypt(self, token: str) -> str:
        from cryptography.fernet import InvalidToken  # noqa: PLC0415 - slow to import, and an extra

        try:
            return str(self._fernet.decrypt(token.encode()).decode())
        except InvalidToken as error:
            raise BadSecretKey("secret_damaged") from error

    @cached_property
    def _derived_key(self) -> bytes:
        return sha256(KEY_DERIVATION_PREFIX + self.text.encode()).digest()

    @cached_property
    def _fernet(self) -> Any:
        from cryptography.fernet import Fernet  # noqa: PLC0415

        return Fernet(base64.urlsafe_b64encode(self._derived_key))

    def __repr__(self) -> str:
        return f"Key({self.fingerprint})"


class SecretCipher:
    """The keys of a deployment, and what they do to the secrets of one database."""

    def __init__(self, given: str, home: Path) -> None:
        self._configured_keys = tuple(EncryptionKey(text) for text in _parse_keys(given.split(",")))
        self._path = home / KEY_FILE
        self._keys_by_fingerprint: dict[str, EncryptionKey] = {}

    def decrypt(self, stored: str) -> str:
        """Return a secret. A plaintext secret of an older version is returned unchanged."""
        if not _is_encrypted(stored):
            return stored
        _, fingerprint, token = stored.split(":", 2)
        if fingerprint not in self._keys_by_fingerprint:  # another process may have rotated the key
            self._load_keys()
        if fingerprint not in self._keys_by_fingerprint:
            raise self._make_wrong_key_error({fingerprint})
        return self._keys_by_fingerprint[fingerprint].decrypt(token)

    def encrypt(self, tx: Transaction, secret: str) -> str:
        """Encrypt a secret; call it in the transaction that stores the result."""
        return self._require_current_key(tx).encrypt(secret)

    def require_readable(self, database: Database) -> None:
        """Raise `BadSecretKey` if a stored secret cannot be decrypted with the configured keys."""
        with database.reading() as tx:
            rows = tx.run(sql.SELECT_SECRETS)
        for _, *stored in rows:
            for one in stored:
                if one:
                    self.decrypt(one)

    def encrypt_plaintext(self, database: Database) -> int:
        """Encrypt plaintext secrets of an older version; return the number of webhooks that had one."""

        def plain(row: Sequence[Any]) -> bool:
            return any(one is not None and not _is_encrypted(one) for one in row[1:])

        with database.reading() as tx:
            if not any(map(plain, tx.run(sql.SELECT_SECRETS))):
                return 0

        def work(tx: Transaction) -> int:
            return self._reencrypt(tx, [row for row in tx.run(sql.SELECT_SECRETS) if plain(row)])

        return database.write(work, durable=True)

    def rotate_key(self, database: Database) -> int:
        """Encrypt all secrets with a new key; return the number of webhooks.

        With a key file: a new key is added to the file, then everything is encrypted with it in one transaction, then
        the old keys are removed from the file. Interrupted at any point, every secret is readable with a key in the
        file, and rotating again completes it. With `HOLDFAST_SECRET_KEY` the first of its keys is the new one.
        """
        if not self._configured_keys:
            database.write(self._add_key, durable=True)
        count = database.write(lambda tx: self._reencrypt(tx, tx.run(sql.SELECT_SECRETS)), durable=True)
        if not self._configured_keys:
            database.write(self._drop_old_keys, durable=True)
        return count

    def _require_current_key(self, tx: Transaction) -> EncryptionKey:
        """Return the encryption key; create the first one, unless stored secrets need an unknown key."""
        _lock_keys(tx)
        stored = {
            one.split(":", 2)[1] for row in tx.run(sql.SELECT_SECRETS) for one in row[1:] if one and _is_encrypted(one)
        }
        keys = self._load_keys()
        if stored and not stored & {key.fingerprint for key in keys}:
            raise self._make_wrong_key_error(stored)
        return keys[0] if keys else self._create_key_file()

    def _reencrypt(self, tx: Transaction, rows: Sequence[Sequence[Any]]) -> int:
        key = self._require_current_key(tx)
        for id_, secret, old in rows:
            new = [None if one is None else key.encrypt(self.decrypt(one)) for one in (secret, old)]
            tx.run(sql.SET_SECRETS, id=id_, secret=new[0], old_secret=new[1])
        return len(rows)

    def _add_key(self, tx: Transaction) -> None:
        self._require_current_key(tx)
        self._save_keys([EncryptionKey(_generate_key()), *self._load_keys()])

    def _drop_old_keys(self, tx: Transaction) -> None:
        _lock_keys(tx)
        newest = self._load_keys()[0]
        stored = [one for row in tx.run(sql.SELECT_SECRETS) for one in row[1:] if one is not None]
        if all(one.startswith(f"{CIPHERTEXT_PREFIX}:{newest.fingerprint}:") for one in stored):
            self._save_keys([newest])

    def _load_keys(self) -> tuple[EncryptionKey, ...]:
        """Read the keys again. Keys from earlier reads stay usable for decryption."""
        keys = self._configured_keys
        if not keys:
            restrict_to_owner(self._path)
            try:
                keys = tuple(EncryptionKey(text) for text in _parse_keys(self._path.read_text().splitlines()))
            except FileNotFoundError:
                keys = ()
            except (OSError, UnicodeDecodeError) as error:
                raise BadSecretKey("secret_key_unreadable", path=self._path, detail=error) from error
        self._keys_by_fingerprint |= {key.fingerprint: key for key in keys}
        return keys

    def _create_key_file(self) -> EncryptionKey:
        """Create the key file. If two processes do so at once, one file wins and both use its key."""
        with (
            self._temporary_key_file([EncryptionKey(_generate_key())]) as draft,
            suppress(FileExistsError),
        ):  # the other process was first
            self._path.hardlink_to(draft)  # fails if it exists
        keys = self._load_keys()
        if not keys:
            raise BadSecretKey("secret_key_empty", path=self._path)
        return keys[0]

    def _save_keys(self, keys: Sequence[EncryptionKey]) -> None:
        with self._temporary_key_file(keys) as draft:
            draft.replace(self._path)
        self._load_keys()

    @contextmanager
    def _temporary_key_file(self, keys: Sequence[EncryptionKey]) -> Iterator[Path]:
        """Write keys to a temporary file beside the key file. After the block, the folder is synced to disk."""
        draft = self._path.with_name(f"{KEY_FILE}.{secrets.token_hex(4)}.new")
        try:
            with reporting_full_disk(IN_HOME_FOLDER):
                make_private_folder(draft.parent)
                _write_keys(draft, keys)
                yield draft
                sync_folder(draft.parent)
        except OSError as error:
            raise BadSecretKey("secret_key_unwritable", path=self._path, detail=error.strerror) from error
        finally:
            with suppress(OSError):
                draft.unlink(missing_ok=True)

    def _make_wrong_key_error(self, stored: set[str]) -> BadSecretKey:
        names = ", ".join(sorted(stored))
        if not self._configured_keys and not self._path.exists():
            return BadSecretKey("secret_key_missing", keys=names, path=self._path)
        place = "HOLDFAST_SECRET_KEY" if self._configured_keys else self._path
        return BadSecretKey("secret_key_wrong", keys=names, place=place)


def _is_encrypted(stored: str) -> bool:
    return stored.startswith(f"{CIPHERTEXT_PREFIX}:")


def _lock_keys(tx: Transaction) -> None:
    """Serialise encryption across processes. On SQLite, write transactions are serial anyway."""
    if tx.connection.dialect.name == "postgresql":
        tx.run_sql(f"SELECT pg_advisory_xact_lock({ADVISORY_LOCK_ID})")


def _generate_key() -> str:
    return base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()


def _parse_keys(given: Sequence[str]) -> list[str]:
    """Return the keys in a setting or a file; refuse short keys, because they can be guessed."""
    texts = [text.strip() for text in given if text.strip()]
    if any(len(text) < MIN_KEY_LENGTH for text in texts):
        raise BadSettings("secret_key_short", shortest=MIN_KEY_LENGTH)
    return texts


def _write_keys(path: Path, keys: Sequence[EncryptionKey]) -> None:
    with open(path, "w", opener=open_private_file) as file:
        file.write("".join(f"{key.text}\n" for key in keys))
        file.flush()
        os.fsync(file.fileno())
