"""Instances and their names: one row, one name, one index (T1.9 to T1.14, R16 to R19)."""

from __future__ import annotations

import itertools
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes_state.clock import FakeClock
from hermes_state.errors import (
    InstanceExists,
    InstanceNotFound,
    InvalidConnectorUrl,
    InvalidInput,
    NicknameConflict,
    StateError,
)
from hermes_state.instances import Instances, Issued, State
from hermes_state.instances.nicknames import nickname_key
from hermes_state.instances.registry import HOLDER, change
from hermes_state.store import Store, open_store
from hermes_state.testing import temporary_store
from hermes_state.testing.faults import Fault, inject

# Three spellings of one name: as it is, with spaces and capitals, in full-width letters.
SPELLINGS = ("Shared", "  SHARED  ", "\uff33\uff48\uff41\uff52\uff45\uff44")


def names_seen(store: Store) -> set[str]:
    """The nickname of instance a as every reader sees it: the list, the status, and the look by name."""
    shown = store.instances.get("a").nickname
    by_name = store.instances.by_nickname(shown)
    assert by_name is not None
    return {shown, by_name.nickname, *(one.nickname for one in store.instances.page() if one.instance_id == "a")}


def test_an_added_instance_is_configured_and_found_by_every_spelling(registry: Instances) -> None:
    added = registry.add("a", nickname=" Shared ", connector_url="wss://host:7/x", actor="test")
    assert (added.nickname, added.state, added.connector_url) == ("Shared", State.CONFIGURED, "wss://host:7/x")
    assert [registry.by_nickname(name) for name in SPELLINGS] == [added] * 3
    assert registry.page() == [added]


def test_a_key_is_its_own_key() -> None:
    for text in (*SPELLINGS, "stra\u00dfe", "\u0130", "\ufb01", "\u1e9b\u0323", "\u0345\u03b1", "\u00a0x"):
        assert nickname_key(nickname_key(text)) == nickname_key(text)


def test_names_that_look_the_same_are_the_same(registry: Instances) -> None:
    """T1.10, T1.14: by case folding (sharp s, the sign of Kelvin), by compatibility, and by what is not seen."""
    for number, (name, others) in enumerate({
        "Straße": ("STRASSE", "strasse", "stra\u1e9ee"), "Kelvin": ("\u212aelvin",), "file": ("\ufb01le",),
        "Sha\u200bred": ("shared", "\ufeffShared", "Sh\u00adared", "sha\u200dred", "share\ufe0fd", "shar\u3164ed"),
        "re\u0301sume\u0301": ("r\u00e9sum\u00e9", "RE\u0301SUM\u00c9"),
    }.items()):
        registry.add(str(number), nickname=name, actor="test")
        for other in others:
            with pytest.raises(NicknameConflict):
                registry.add("other", nickname=other, actor="test")


def test_what_is_no_nickname_or_no_id_is_refused(registry: Instances) -> None:
    unseen = ("\u00a0", "\u200b", "\u200b\ufe0f", "evil\u202egnp", "\u2066x\u2069")
    for nickname in ("", "   ", "x" * 65, "a\nb", "a\0b", "\ud800", *unseen, None, 7):
        with pytest.raises(InvalidInput, match="A nickname has 1 to 64 printable characters"):
            registry.add("a", nickname=nickname, actor="test")  # type: ignore[arg-type]
    for instance_id in ("", " a", "a\n", "x" * 257, "\ud800", "a\u200bb", "a\u202eb", None):
        with pytest.raises(InvalidInput, match="The id of an instance has 1 to 256 characters that are seen"):
            registry.add(instance_id, nickname="A", actor="test")  # type: ignore[arg-type]
    assert registry.page() == []


def test_what_is_no_connector_is_refused_without_being_shown(registry: Instances) -> None:
    for url, why in (
        ("ftp://host/", "it is no such address"), ("https://", "it is no such address"),
        ("http://host/" + "x" * 2048, "it is no such address"), ("http://[", "it is no such address"),
        ("", "it is no such address"), ("https://me:hunter2@host/", "it has a user or a password in it"),
    ):
        with pytest.raises(InvalidConnectorUrl) as caught:
            registry.add("a", nickname="A", connector_url=url, actor="test")
        assert str(caught.value) == (
            f"A connector's URL is an http, https, ws or wss address of at most 2048 characters: {why}."
        )
        assert "hunter2" not in repr(caught.value) + caught.value.hint


def test_an_id_that_is_there_is_refused_by_who_has_it(registry: Instances, registry_store: Store) -> None:
    registry.add("a", nickname="A", actor="somebody")
    with pytest.raises(InstanceExists) as caught:
        registry.add("a", nickname="B", actor="test")
    assert str(caught.value) == (
        f"{registry_store.path} has an instance 'a' already: configured since 2027-01-15T08:00:00Z by somebody."
    )


def test_a_taken_nickname_is_refused_with_who_has_it_and_since_when(
    registry: Instances, registry_store: Store
) -> None:
    """T1.10, T1.14 in one process: two processes race in tests/processes/test_instances_killed.py."""
    registry.add("a", nickname="Shared", actor="somebody")
    registry.add("b", nickname="Other", actor="test")
    attempts: tuple[Callable[[str], object], ...] = (
        lambda name: registry.add("c", nickname=name, actor="test"),
        lambda name: registry.enroll("c", nickname=name, actor="test"),
        lambda name: registry.rename("b", name),
    )
    for spelling, attempt in itertools.product(SPELLINGS, attempts):
        with pytest.raises(NicknameConflict) as caught:
            attempt(spelling)
        assert str(caught.value) == (
            f"The nickname {spelling.strip()!r} is taken in {registry_store.path} by instance 'a' ('Shared', configured"
            " since 2027-01-15T08:00:00Z by somebody)."
        )
        assert (caught.value.code, caught.value.facts["instance_id"]) == ("nickname_conflict", "a")
    assert [(one.instance_id, one.nickname) for one in registry.page()] == [("a", "Shared"), ("b", "Other")]


def test_a_revoked_instance_keeps_its_nickname_and_a_removed_one_frees_it(
    registry: Instances, enrolled: Callable[..., Issued]
) -> None:
    """T1.10, T1.14: as the facts say of both."""
    enrolled("a", "Shared")
    registry.revoke("a", actor="test", reason="lost")
    with pytest.raises(NicknameConflict):
        registry.add("b", nickname="SHARED", actor="test")
    registry.remove("a", actor="test", reason="lost")
    assert registry.add("b", nickname="SHARED", actor="test").nickname == "SHARED"


def test_two_stores_do_not_know_each_others_names(registry: Instances, tmp_path: Path) -> None:
    registry.add("a", nickname="Shared", actor="test")
    with temporary_store(tmp_path / "other") as other:
        other.instances.add("a", nickname="Shared", actor="test")


def test_a_rename_changes_the_one_name_and_a_repeat_changes_nothing(registry: Instances) -> None:
    """R17: a rename returns what it found; run once or twice, the result is defined."""
    registry.add("a", nickname="Old", connector_url="http://host/", actor="test")
    first, second = registry.rename("a", "New"), registry.rename("a", "New")
    assert [(one.changed, one.instance.nickname) for one in (first, second)] == [(True, "New"), (False, "New")]
    assert registry.by_nickname("old") is None
    assert registry.rename("a", "NEW").instance.nickname == "NEW"
    with pytest.raises(InstanceNotFound, match="There is no instance 'b' in "):
        registry.rename("b", "New")


def test_a_rename_that_is_rolled_back_leaves_no_name(registry_store: Store, registry: Instances) -> None:
    """R17: zero runs."""
    registry.add("a", nickname="Old", actor="test")

    def work(tx: object) -> None:
        change(tx, "a", nickname="New", at=1.0)  # type: ignore[arg-type]
        raise KeyError("the caller's")

    with pytest.raises(KeyError):
        registry_store.core.write(work)
    assert names_seen(registry_store) == {"Old"}


@pytest.mark.slow
def test_a_full_disk_at_any_write_of_a_rename_leaves_one_name(tmp_path: Path, fake_clock: FakeClock) -> None:
    """T1.9, R16: afterwards every reader sees the old name or the new one, and it is the same one."""
    path = tmp_path / "state.db"
    with open_store(path=path) as store:
        store.instances.add("a", nickname="Old", actor="test")
    failed = 0
    for operation in ("write", "sync"):
        for number in range(1, 60):
            new = f"New {operation} {number}"
            with open_store(path=path) as store:
                before = store.instances.get("a").nickname
            fault = Fault(
                operation=operation, number=number, action="full" if operation == "write" else "error",  # type: ignore[arg-type]
            )
            raised = False
            with inject(fault) as injection:
                try:
                    with open_store(path=path) as store:
                        store.instances.rename("a", new)
                except StateError:
                    raised = True
            with open_store(path=path) as store:
                seen = names_seen(store)
            assert seen == {new} if not raised else seen in ({before}, {new})
            failed += raised
            if not injection.hit:
                break
    assert failed > 3, "no fault came"


def test_thousand_interleaved_edits_of_two_instances_all_stay(registry_store: Store, registry: Instances) -> None:
    """T1.11, R9: renames of one instance and edits of another, and of the same one, in any order."""
    for name in ("a", "b"):
        registry.add(name, nickname=name, connector_url="http://first/", actor="test")
    chance = random.Random(11)
    expected = {"a": ["a", "http://first/"], "b": ["b", "http://first/"]}

    def work(tx: object) -> None:
        for number in range(1000):
            name, which = chance.choice("ab"), chance.choice([0, 1])
            value = f"{name} {number}" if which == 0 else f"http://host/{number}"
            expected[name][which] = value
            change(tx, name, **{("nickname", "connector_url")[which]: value}, at=1.0)  # type: ignore[arg-type]
            if number % 50 == 0:
                found = tx.rows("SELECT nickname, connector_url FROM gateway_instances ORDER BY no")  # type: ignore[attr-defined]
                assert [list(row) for row in found] == [expected["a"], expected["b"]]

    registry_store.core.write(work)
    found = {one.instance_id: [one.nickname, one.connector_url] for one in registry.page()}
    assert found == expected


def filled(store: Store, many: int) -> None:
    """Instances made at once, without a transaction each."""
    store.core.write(
        lambda tx: tx.executemany(
            "INSERT INTO gateway_instances (instance_id, nickname, nickname_key, state_at, state_actor, created_at)"
            " VALUES (?, ?, ?, 1.0, 'test', 1.0)",
            [(f"id {number}", f"Gateway {number}", nickname_key(f"Gateway {number}")) for number in range(many)],
        )
    )


def test_uniqueness_costs_one_look_into_an_index_among_ten_thousand(
    registry_store: Store, registry: Instances
) -> None:
    """T1.12, R18: SEARCH by the unique index, and under a millisecond at the median."""
    filled(registry_store, 10_000)
    with registry_store.core.reader() as reader:
        steps = [row[3] for row in reader.rows(f"EXPLAIN QUERY PLAN {HOLDER}", ("x",))]
    assert steps[0] == "SEARCH i USING INDEX gateway_instances_nickname (nickname_key=?)"
    assert not [step for step in steps if step.startswith("SCAN")]
    took = []
    for number in range(0, 10_000, 50):
        began = time.perf_counter()
        assert registry.by_nickname(f"  GATEWAY {number} ") is not None
        took.append(time.perf_counter() - began)
    assert statistics.median(took) < 0.001


def test_a_page_of_ten_thousand_goes_on_where_the_last_one_ended(registry_store: Store, registry: Instances) -> None:
    filled(registry_store, 250)
    seen: list[str] = []
    while page := registry.page(limit=100, after=int(seen[-1].removeprefix("id ")) + 1 if seen else 0):
        seen += [one.instance_id for one in page]
    assert seen == [f"id {number}" for number in range(250)]


@pytest.mark.slow
def test_thousand_checks_of_a_credential_write_nothing(
    registry_store: Store, registry: Instances, enrolled: Callable[..., Issued]
) -> None:
    """T1.13, R19: what a connect does with the registry leaves no trace in the file."""
    issued = enrolled("a")
    with registry_store.core.reader() as reader:
        before = reader.row("PRAGMA data_version"), reader.row("SELECT * FROM gateway_instances")
        size = Path(f"{registry_store.path}-wal").stat().st_size
        for _ in range(1000):
            registry.authenticate("a", issued.credential)
        assert (reader.row("PRAGMA data_version"), reader.row("SELECT * FROM gateway_instances")) == before
        assert Path(f"{registry_store.path}-wal").stat().st_size == size


def test_every_change_of_an_instance_is_in_the_feed(registry_store: Store, registry: Instances) -> None:
    """A picker that follows the feed needs no other source."""
    registry.add("a", nickname="Old", actor="test")
    registry.rename("a", "New")
    registry.rename("a", "New")
    registry.remove("a", actor="test", reason="test")
    with registry_store.core.reader() as reader:
        found = reader.rows("SELECT key, operation FROM changes WHERE table_name = 'gateway_instances' ORDER BY id")
    assert found == [("a", "insert"), ("a", "update"), ("a", "delete")]


def test_a_closed_store_refuses_its_group(tmp_path: Path) -> None:
    with temporary_store(tmp_path) as store:
        kept = store.instances
    with pytest.raises(StateError):
        kept.page()
