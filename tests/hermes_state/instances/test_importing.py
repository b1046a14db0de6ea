"""Bringing in what older servers kept as files."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from hermes_state.errors import InstanceRevoked, InvalidAuthentication, NotFound
from hermes_state.instances import Instances, State
from hermes_state.store import Store

CREDENTIAL = base64.urlsafe_b64encode(bytes(range(32))).decode().rstrip("=")


@pytest.fixture(name="older")
def older_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "secrets"
    folder.mkdir()
    return folder


def put(folder: Path, instance_id: str, credential: bytes | None = None, **fields: object) -> None:
    name = base64.urlsafe_b64encode(instance_id.encode()).decode().rstrip("=")
    content = {"nickname": instance_id.title(), "connectorUrl": "http://host/", "revoked": False} | fields
    (folder / f"hermes-gateway-metadata-{name}.bin").write_text(json.dumps(content))
    if credential is not None:
        (folder / f"hermes-gateway-credential-{name}.bin").write_bytes(credential)


def test_states_names_and_credentials_come_along_and_files_stay(registry: Instances, older: Path) -> None:
    put(older, "working", CREDENTIAL.encode(), lastSeen={"pluginVersion": "1.2"})
    put(older, "as raw bytes", bytes(range(32)))
    put(older, "lost", CREDENTIAL.encode(), revoked=True)
    put(older, "gone", removed=True, revoked=True)
    put(older, "never paired", connectorUrl="")
    (older / "something-else.bin").write_text("not ours")
    files = {path.name: path.read_bytes() for path in older.iterdir()}
    done = registry.bring_in(older, actor="operator")
    assert dict(done.added) == {
        "working": State.ENROLLED, "as raw bytes": State.ENROLLED, "lost": State.REVOKED, "gone": State.REMOVED,
        "never paired": State.CONFIGURED,
    }
    assert (done.present, done.problems) == ((), ())
    for name in ("working", "as raw bytes"):
        assert registry.authenticate(name, CREDENTIAL).connector_url == "http://host/"
    with pytest.raises(InstanceRevoked):
        registry.authenticate("lost", CREDENTIAL)
    with pytest.raises(InvalidAuthentication):
        registry.authenticate("gone", CREDENTIAL)
    assert [one.key for one in registry.tombstones()] == ["gone"]
    assert {path.name: path.read_bytes() for path in older.iterdir()} == files


def test_a_second_import_changes_nothing_and_takes_nothing_back(registry: Instances, older: Path) -> None:
    for name in ("a", "b", "c"):
        put(older, name, CREDENTIAL.encode())
    registry.bring_in(older, actor="test")
    registry.revoke("a", actor="test", reason="lost")
    registry.revoke("b", actor="test", reason="lost")
    registry.remove("b", actor="test", reason="lost")
    registry.rename("c", "Renamed")
    before = registry.page(states=list(State))
    done = registry.bring_in(older, actor="test")
    assert (done.added, sorted(done.present), done.problems) == ((), ["a", "b", "c"], ())
    assert registry.page(states=list(State)) == before


def test_what_cannot_be_brought_in_is_said_and_the_rest_is_brought_in(
    registry: Instances, registry_store: Store, older: Path
) -> None:
    put(older, "good")
    put(older, "same name", nickname="GOOD")
    put(older, "no name", nickname="")
    put(older, "no flag", revoked="yes")
    put(older, "bad secret", b"short")
    (older / "hermes-gateway-metadata-eA.bin").write_text("{not json")
    (older / "hermes-gateway-metadata-eQ.bin").write_text("[]")
    (older / "hermes-gateway-metadata-_w.bin").write_text("{}")
    (older / "hermes-gateway-credential-eg.bin").write_text(CREDENTIAL)
    (older / "hermes-gateway-metadata-bGFyZ2U.bin").write_bytes(b" " * 70_000)
    done = registry.bring_in(older, actor="test")
    assert [name for name, _state in done.added] == ["good"]

    def named(name: str) -> str:
        return f"hermes-gateway-metadata-{base64.urlsafe_b64encode(name.encode()).decode().rstrip('=')}.bin"

    assert sorted(done.problems) == sorted([
        (named("no name"), "A nickname has 1 to 64 printable characters; '' cannot be one."),
        (named("no flag"), "says neither true nor false of 'revoked'"),
        (named("bad secret"), "has a credential beside it that is no base64url of 32 bytes"),
        ("hermes-gateway-metadata-eA.bin", "is not JSON"),
        ("hermes-gateway-metadata-eQ.bin", "is no JSON object"),
        ("hermes-gateway-metadata-_w.bin", "its name holds no instance id"),
        ("hermes-gateway-metadata-bGFyZ2U.bin", "has more than 65536 bytes"),
        ("z", "has a credential and no metadata"),
        (
            "same name",
            f"The nickname 'GOOD' is taken in {registry_store.path} by instance 'good' ('Good', configured since"
            " 2027-01-15T08:00:00Z by test).",
        ),
    ])


def test_a_folder_that_is_not_there_is_an_error(registry: Instances, tmp_path: Path) -> None:
    with pytest.raises(NotFound) as caught:
        registry.bring_in(tmp_path / "none", actor="test")
    assert str(caught.value) == f"There is no folder {tmp_path / 'none'}."
