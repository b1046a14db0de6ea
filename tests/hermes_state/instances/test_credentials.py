"""Credentials: known to their plugin only (T1.6 to T1.8, R3, R4)."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes_state.errors import InstanceRevoked, InvalidAuthentication, StatementFailed
from hermes_state.instances import Instances, Issued, Minted, credentials, records
from hermes_state.instances.importing import Imported, Older
from hermes_state.store import Store
from hermes_state.testing import temporary_store
from tests.support.children import Children


def forms(secret: str) -> list[bytes]:
    """What a secret may look like in a file: its text, its bytes, in hexadecimal, and its plain digest."""
    raw = base64.urlsafe_b64decode(secret + "=" * (-len(secret) % 4))
    return [
        secret.encode(), raw, raw.hex().encode(), hashlib.sha256(secret.encode()).digest(),
        hashlib.sha256(raw).digest(),
    ]


# The bytes of a store's files, read by another process: this one has them open.
READER = """
import sys, pathlib, gates
found = {name: pathlib.Path(name).read_bytes() for name in sys.argv[2:]}
wanted = [bytes.fromhex(line) for line in sys.argv[1].split(",")]
print([name for name, content in found.items() for one in wanted if one in content])
print([name for name, content in found.items() if b"Gateway a" in content])
"""


@pytest.mark.slow
def test_no_file_of_the_store_has_a_byte_of_a_secret(
    registry: Instances, registry_store: Store, child: Children
) -> None:
    """T1.6, R3: db, WAL and WAL index, after an enrollment, after a rotation, and after a checkpoint."""
    minted = [registry.enroll("a", nickname="Gateway a", actor="test")]
    issued = [registry.redeem(minted[0].token, actor="plugin")]
    minted.append(registry.enroll("a", actor="test"))
    issued.append(registry.redeem(minted[1].token, actor="plugin"))
    minted.append(registry.enroll("b", nickname="Gateway b", actor="test"))
    secrets = [one.token for one in minted] + [one.credential for one in issued]
    wanted = ",".join(form.hex() for secret in secrets for form in forms(secret))
    files = [f"{registry_store.path}{ending}" for ending in ("", "-wal", "-shm")]
    for _ in range(2):
        told = child(READER, wanted, *files, audited=False).finish().splitlines()
        assert told[0] == "[]"
        assert told[1] != "[]", "the look finds what is there"
        registry_store.core.writer.checkpoint("passive")


def test_only_what_is_given_once_has_a_field_for_a_secret() -> None:
    """R4: by type; and neither shows it."""
    kinds = [kind for kind in vars(records).values() if dataclasses.is_dataclass(kind)]
    named = {
        (kind.__name__, field.name)  # type: ignore[union-attr]
        for kind in [*kinds, Imported, Older] for field in dataclasses.fields(kind)  # type: ignore[arg-type]
        if any(word in field.name for word in ("token", "credential", "secret", "digest", "key"))
    }
    assert named == {
        ("Minted", "token"), ("Issued", "credential"), ("Older", "credential"), ("Instance", "credential_issued_at"),
    }


def test_neither_a_repr_nor_an_error_shows_a_secret(registry: Instances) -> None:
    """R4: byte scan of results."""
    minted = registry.enroll("a", nickname="A", actor="test")
    issued = registry.redeem(minted.token, actor="plugin")
    shown = [repr(minted), str(minted), repr(issued), str(issued), repr(registry.get("a")), repr(registry.page())]
    for attempt in (
        lambda: registry.redeem(minted.token, actor="plugin"), lambda: registry.authenticate("b", issued.credential),
        lambda: registry.authenticate("a", minted.token),
    ):
        with pytest.raises(Exception) as caught:
            attempt()
        shown += [repr(caught.value), repr(vars(caught.value))]
    assert isinstance(minted, Minted)
    assert isinstance(issued, Issued)
    for text, secret in itertools.product(shown, (minted.token, issued.credential)):
        assert secret not in text


def test_secrets_are_32_bytes_and_never_the_same(registry: Instances, enrolled: Callable[..., Issued]) -> None:
    secrets = {enrolled(str(number)).credential for number in range(5)}
    assert len(secrets) == 5
    assert {len(base64.urlsafe_b64decode(secret + "=")) for secret in secrets} == {32}


def test_what_is_not_the_credential_is_refused_alike(
    registry: Instances, registry_store: Store, enrolled: Callable[..., Issued]
) -> None:
    """T1.7: wrong, of another instance, of one that is removed or unknown: one error, which tells nothing apart."""
    a, b = enrolled("a"), enrolled("b")
    registry.add("c", nickname="C", actor="test")
    registry.revoke("b", actor="test", reason="lost")
    registry.remove("b", actor="test", reason="lost")
    for instance_id, given in (
        ("a", "x"), ("a", ""), ("a", a.credential[:-1]), ("a", a.credential + "x"), ("a", b.credential), ("a", None),
        ("a", "\ud800"), ("a", "x" * 10_000), ("b", b.credential), ("c", a.credential), ("nobody", a.credential),
    ):
        with pytest.raises(InvalidAuthentication) as caught:
            registry.authenticate(instance_id, given)  # type: ignore[arg-type]
        assert str(caught.value) == f"{instance_id!r} did not prove to be an instance of {registry_store.path}."
        assert caught.value.code == "invalid_authentication"
    registry.authenticate("a", a.credential)


def test_a_revoked_instance_is_told_so(
    registry: Instances, registry_store: Store, enrolled: Callable[..., Issued]
) -> None:
    issued = enrolled("a")
    registry.revoke("a", actor="operator", reason="lost")
    with pytest.raises(InstanceRevoked) as caught:
        registry.authenticate("a", issued.credential)
    assert str(caught.value) == (
        f"Instance 'a' of {registry_store.path} is revoked since 2027-01-15T08:00:00Z by operator."
    )


def test_checking_a_credential_needs_nothing_but_a_reader(
    tmp_path: Path, registry: Instances, registry_store: Store, enrolled: Callable[..., Issued]
) -> None:
    """T1.8: it comes before every change of a connection, and can make none itself."""
    from hermes_state.store import open_store

    issued = enrolled("a")
    with open_store(path=registry_store.path, read_only=True) as reader:
        assert reader.instances.authenticate("a", issued.credential).instance_id == "a"
        with pytest.raises(InvalidAuthentication):
            reader.instances.authenticate("a", "wrong")


def test_a_digest_moved_to_another_row_opens_nothing(
    registry: Instances, registry_store: Store, enrolled: Callable[..., Issued]
) -> None:
    """The digest is bound to its instance, and to the key of its store."""
    a, _b = enrolled("a"), enrolled("b")
    registry_store.core.write(
        lambda tx: tx.execute(
            "UPDATE gateway_credentials SET credential_digest = (SELECT credential_digest FROM gateway_credentials"
            " WHERE instance_id = 'a') WHERE instance_id = 'b'"
        )
    )
    with pytest.raises(InvalidAuthentication):
        registry.authenticate("b", a.credential)


def test_two_stores_have_two_keys(registry: Instances, registry_store: Store, tmp_path: Path) -> None:
    registry.enroll("a", nickname="A", actor="test")
    with temporary_store(tmp_path / "other") as other:
        other.instances.enroll("a", nickname="A", actor="test")
        keys = set()
        for store in (registry_store, other):
            with store.core.reader() as reader:
                keys |= set(reader.rows("SELECT digest_key FROM gateway_digest_key"))
    assert len(keys) == 2


def test_the_file_itself_lets_only_an_enrolled_instance_have_a_credential(
    registry: Instances, registry_store: Store, enrolled: Callable[..., Issued]
) -> None:
    enrolled("a")
    registry.add("b", nickname="B", actor="test")
    with pytest.raises(StatementFailed, match="only an enrolled instance has a credential"):
        registry_store.core.write(
            lambda tx: tx.execute("INSERT INTO gateway_credentials VALUES ('b', zeroblob(32), 1.0)")
        )
    with pytest.raises(StatementFailed, match="an instance loses its credential before it is revoked"):
        registry_store.core.write(lambda tx: tx.execute("UPDATE gateway_instances SET state = 'revoked' WHERE no = 1"))


def test_no_secret_can_be_taken_for_an_option() -> None:
    """A person pastes a token behind `--token`; one of 64 would begin with a dash."""
    made = {credentials.new_secret() for _ in range(2000)}
    assert len(made) == 2000
    assert {len(one) for one in made} == {43}
    assert not any(one.startswith("-") for one in made)
