"""Clocks that were ahead, names that look alike, arguments that are none, and files of older servers that are half."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from hermes_state.clock import FakeClock
from hermes_state.errors import EnrollmentExpired, InvalidConnectorUrl, InvalidInput
from hermes_state.instances import State, last_seen
from hermes_state.store import Store
from hermes_state.testing import temporary_store

YEAR = 365 * 86_400.0


@pytest.fixture(name="store")
def store_on_clock(tmp_path: Path, fake_clock: FakeClock) -> Any:
    with temporary_store(tmp_path, clock=fake_clock) as opened:
        yield opened


def older(folder: Path, kind: str, name: str, content: object) -> Path:
    folder.mkdir(exist_ok=True)
    encoded = base64.urlsafe_b64encode(name.encode()).decode().rstrip("=")
    path = folder / f"hermes-gateway-{kind}-{encoded}.bin"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_a_token_of_a_clock_that_was_ahead_opens_nothing(store: Store, fake_clock: FakeClock) -> None:
    """B15: it was good for a year. A clock that is set back a little spends no token."""
    fake_clock.step_wall(YEAR)
    token = store.instances.enroll("mac", nickname="Mac", actor="test").token
    fake_clock.step_wall(-300.0)
    assert store.instances.check_token(token).instance_id == "mac"
    fake_clock.step_wall(-YEAR + 300.0 * 86_400.0)
    for call in (store.instances.check_token, lambda given: store.instances.redeem(given, actor="plugin")):
        with pytest.raises(EnrollmentExpired):
            call(token)
    assert store.instances.get("mac").state is State.CONFIGURED
    assert store.instances.sweep().expired == 1


def test_last_seen_of_a_clock_that_was_ahead_is_told_anew(store: Store, fake_clock: FakeClock) -> None:
    """B15: it said next year, until then. In memory, and by a server that was started since."""
    store.instances.add("mac", nickname="Mac", actor="test")
    fake_clock.step_wall(YEAR)
    seen = last_seen.LastSeen(store.core)
    seen.note("mac")
    assert seen.write() == 1
    fake_clock.step_wall(-YEAR)
    for one in (seen, last_seen.LastSeen(store.core)):
        fake_clock.advance(3600)
        one.note("mac")
        assert one.write() == 1
        with store.core.reader() as reader:
            assert last_seen.read(reader, "mac") == fake_clock.now()


def test_an_id_has_one_way_to_be_written_and_no_name_is_blank(store: Store) -> None:
    """C23: two instances looked the same; one could not be seen."""
    store.instances.add("caf\u00e9", nickname="a", actor="test")
    for odd in ("cafe\u0301", "a\u2800", "\u2800"):
        with pytest.raises(InvalidInput, match=r"composed \(NFC\)"):
            store.instances.add(odd, nickname="b", actor="test")
    for odd in ("laptop\u2800", "\u2800"):
        with pytest.raises(InvalidInput, match="A nickname has 1 to 64 printable characters"):
            store.instances.add("b", nickname=odd, actor="test")


def test_a_name_that_an_earlier_release_let_pass_does_not_keep_the_connector_from_changing(store: Store) -> None:
    """C23."""
    store.instances.add("mac", nickname="Mac", actor="test")
    blank = "UPDATE gateway_instances SET nickname = 'x\u2800', nickname_key = 'x\u2800'"
    store.core.write(lambda tx: tx.execute(blank))
    assert store.instances.change("mac", connector_url="wss://host/").instance.connector_url == "wss://host/"
    assert store.instances.rename("mac", "Mac").instance.nickname == "Mac"


def test_a_connector_has_no_query_in_which_secrets_travel(store: Store) -> None:
    """C23."""
    for url in ("wss://h/?token=abc", "wss://h/#abc", "https://h?"):
        with pytest.raises(InvalidConnectorUrl, match="it has a query or a fragment, where secrets travel") as caught:
            store.instances.add("mac", nickname="Mac", connector_url=url, actor="test")
        assert "abc" not in str(caught.value)


def test_arguments_that_are_none_are_refused_by_name(store: Store) -> None:
    """C22."""
    instances: Any = store.instances
    for ttl in ("x", None, True, float("nan"), [1]):
        with pytest.raises(InvalidInput, match="A token is good for more than 0"):
            instances.enroll("mac", nickname="Mac", actor="test", ttl_seconds=ttl)
    for states in ("revoked", 7, ["gone"]):
        with pytest.raises(InvalidInput, match="state"):
            instances.page(states=states)
    with pytest.raises(InvalidInput, match="after is a whole number"):
        instances.page(after="x")
    assert instances.page(states=["configured"]) == []
    instances.add("mac", nickname="Mac", actor="test")
    with pytest.raises(InvalidInput, match="horizon_seconds is a number of seconds"):
        instances.remove("mac", actor="test", reason="old", horizon_seconds="x")


def test_an_instance_whose_credential_cannot_be_read_waits_for_the_next_time(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B14: it was brought in without one, and the second time it was there already: its plugin was out for good."""
    folder = tmp_path / "older"
    secret = base64.urlsafe_b64encode(b"x" * 32).decode().rstrip("=")
    older(folder, "metadata", "mac", {"nickname": "Mac"})
    key = older(folder, "credential", "mac", secret)
    plain = Path.open

    def opened(self: Path, *given: Any, **options: Any) -> Any:
        if self.name == key.name:
            raise PermissionError(13, "Permission denied")
        return plain(self, *given, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", opened)
        done = store.instances.bring_in(folder, actor="test")
    assert (done.added, [why for _name, why in done.problems]) == ((), [
        "cannot be read: Permission denied",
        "has a credential beside it that cannot be read: Permission denied; try again when it can be read",
    ])
    assert store.instances.bring_in(folder, actor="test").added == (("mac", State.ENROLLED),)
    assert store.instances.authenticate("mac", secret).instance_id == "mac"


def test_a_revocation_and_a_removal_are_brought_in_whatever_else_the_file_says(store: Store, tmp_path: Path) -> None:
    """B14: the file was left out whole, so anybody could take the id."""
    folder = tmp_path / "older"
    store.instances.add("other", nickname="Taken", actor="test")
    older(folder, "metadata", "gone", {"nickname": "", "removed": True})
    older(folder, "metadata", "stolen", {"nickname": "Taken", "revoked": True, "connectorUrl": "ws://u:p@h"})
    older(folder, "metadata", "unnamed", {"revoked": True})
    older(folder, "metadata", "deep", "[" * 30_000 + "]" * 30_000)
    planned = store.instances.bring_in(folder, actor="test", dry_run=True)
    done = store.instances.bring_in(folder, actor="test")
    assert planned == done
    assert dict(done.added) == {"gone": State.REMOVED, "stolen": State.REVOKED, "unnamed": State.REVOKED}
    assert store.instances.get("stolen").connector_url is None
    assert sorted(done.problems)[1:] == [
        ("hermes-gateway-metadata-ZGVlcA.bin", "is not JSON"),
        ("stolen", "is brought in as 'stolen 823d95a9a728': 'Taken' is taken"),
        ("stolen", "is brought in without its connector: A connector's URL is an http, https, ws or wss address of at"
                   " most 2048 characters: it has a user or a password in it."),
        ("unnamed", "is brought in as 'unnamed e882bcaadb1e': A nickname has 1 to 64 printable characters; None cannot"
                    " be one."),
    ]
    again = store.instances.bring_in(folder, actor="test")
    assert (again.added, [name for name, _why in again.problems]) == ((), ["hermes-gateway-metadata-ZGVlcA.bin"])


def test_a_credential_that_nobody_got_makes_its_token_good_again(store: Store, fake_clock: FakeClock) -> None:
    """A9: and only then; nothing else that happened meanwhile is undone."""
    token = store.instances.enroll("mac", nickname="Mac", actor="test").token
    issued = store.instances.redeem(token, actor="plugin")
    assert store.instances.take_back(token, issued)
    assert not store.instances.take_back(token, issued)
    with pytest.raises(Exception, match="did not prove"):
        store.instances.authenticate("mac", issued.credential)
    again = store.instances.redeem(token, actor="plugin")
    store.instances.authenticate("mac", again.credential)
    store.instances.enroll("mac", actor="test")
    assert not store.instances.take_back(token, again)
    fake_clock.advance(3600)
    with pytest.raises(EnrollmentExpired):
        store.instances.redeem(token, actor="plugin")
