"""Credentials after older content was put back: a token that works once and was sent since is not sent again."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from hermes_state import open_store
from hermes_state.errors import CredentialNotFound, GrantMayBeLost
from hermes_state.routing import home_of
from hermes_state.store import Store
from hermes_state.work.credentials import Grant, SecretFile, Secrets, Served, Verdict, verdict_of
from maintenance.backups import backup
from tests.maintenance.backups.making import put_back, tidy


def log_in(store: Store, name: str, *, due: bool = True) -> SecretFile:
    file = SecretFile(store.path.parent / "secrets" / f"{name}.json")
    store.work.credentials.log_in(
        "nous", name, home_of(store.core), secrets=file, auth_type="oauth", new=Secrets(
            access_token=f"access of {name}", refresh_token=f"refresh of {name}",
            expires_at=time.time() + (60.0 if due else 3600.0),
        ),
    )
    return file


def token(store: Store, name: str, file: SecretFile, sent: list[str], *, lost: bool = False) -> Served:
    def exchange(grant: Grant) -> Verdict:
        sent.append(grant.reveal())
        if lost:
            raise TimeoutError
        return verdict_of(200, {
            "access_token": f"new access of {name}", "refresh_token": f"new refresh of {name}", "expires_in": 3600,
        }, now=time.time())

    return store.work.credentials.token("nous", name, home_of(store.core), secrets=file, exchange=exchange)


@pytest.mark.slow
def test_what_was_sent_after_the_backup_is_known_after_the_restore(tmp_path: Path) -> None:
    sent: list[str] = []
    with open_store(tmp_path) as store:
        lost, rotated, removed = (log_in(store, name) for name in ("lost", "rotated", "removed"))
    db = tidy(tmp_path / "state.db")
    made = backup(db)
    with open_store(path=db) as store:
        with pytest.raises(GrantMayBeLost):
            token(store, "lost", lost, sent, lost=True)
        token(store, "rotated", rotated, sent)
        store.work.credentials.remove("nous", "removed", home_of(store.core), actor="test", reason="test")
        later = log_in(store, "later", due=False)
    put_back(made.path, tidy(db))
    with open_store(path=db) as store:
        with pytest.raises(GrantMayBeLost):
            token(store, "lost", lost, sent)
        assert token(store, "rotated", rotated, sent).how == "current"
        assert token(store, "later", later, sent).access_token == "access of later"
        with pytest.raises(CredentialNotFound):
            token(store, "removed", removed, sent)
    assert sent == ["refresh of lost", "refresh of rotated"]


@pytest.mark.campaign
def test_a_backup_from_before_the_table_gets_it_with_the_rows(tmp_path: Path) -> None:
    sent: list[str] = []
    with open_store(tmp_path) as store:
        store.core.write(lambda tx: tx.execute("DROP TABLE credentials"))
        store.core.write(lambda tx: tx.execute("DELETE FROM migrations WHERE number >= 10"))
        store.core.write(lambda tx: [
            tx.execute(f"DROP TABLE {name}") for name in ("model_facts", "provider_registrations", "account_usage")
        ])
    db = tidy(tmp_path / "state.db")
    made = backup(db)
    with open_store(path=db) as store:
        lost = log_in(store, "lost")
        with pytest.raises(GrantMayBeLost):
            token(store, "lost", lost, sent, lost=True)
    put_back(made.path, tidy(db))
    with open_store(path=db) as store, pytest.raises(GrantMayBeLost):
        token(store, "lost", lost, sent)
    assert sent == ["refresh of lost"]
