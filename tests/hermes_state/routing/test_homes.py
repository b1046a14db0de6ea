"""Every write names its home, and reaches that home or nothing. T4.1, T4.11, R54, R91 and R97 under their numbers.

The six execution points of T4.1 (R54) and the scope of an activity (R91) are an agent's; what is tested is our API,
which they all write through: without a home, with another home's store, or for a home that is gone, nothing is written.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hermes_state.clock import FakeClock
from hermes_state.engine import Transaction
from hermes_state.errors import GenerationLost, HomeRemoved, InvalidInput, StateError, WrongHome
from hermes_state.routing import Home, Inbound, ProfileRoute, Unserved, canonical_home, guard, served_homes
from hermes_state.store import Store, open_home, open_store
from tests.hermes_state.routing.conftest import PROFILES, Host, source

# The execution points of T4.1, each with what it writes for the home that it acts for.
POINTS: dict[str, Callable[[Store, Home], object]] = {
    "reaper flush": lambda store, home: store.routing.write(home, _row("flush")),
    "MCP shutdown": lambda store, home: store.routing.refuse("mcp", "work", home, reason="shut down"),
    "unserve teardown": lambda store, home: store.routing.refuse("telegram", "work", home, reason="unserved"),
    "notifications": lambda store, home: store.routing.write(home, _owed),
    "kanban spawn": lambda store, home: store.routing.pairing.request("kanban", "7", home),
    "serve": lambda store, home: store.routing.connected("telegram", "work", home),
}


def _row(key: str) -> Callable[[Transaction], int]:
    return lambda tx: tx.execute(
        "INSERT INTO changes (id, table_name, key, operation, at)"
        " SELECT coalesce(max(id), 0) + 1, 'work', ?, 'insert', 0 FROM changes", (key,),
    )


def _owed(tx: Transaction) -> object:
    from hermes_state.outbox import append

    return append(
        tx, dedupe_id="n", kind="completion", transport="telegram", payload=1, policy="at_least_once", at=1.8e9
    )


def rows_of(store: Store) -> dict[str, list[Any]]:
    """Everything that routing and these points wrote."""
    with store.core.reader() as reader:
        tables = ("routing_entries", "routing_unserved", "pairing_requests", "pairing_users", "outbox", "changes")
        return {table: reader.rows(f"SELECT * FROM {table}") for table in tables}


@pytest.mark.parametrize("point", POINTS)
def test_t4_1_an_execution_point_writes_to_the_home_that_it_acts_for_or_nowhere(host: Host, point: str) -> None:
    launch, work = host.stores["default"], host.stores["work"]
    before = rows_of(launch)
    with pytest.raises(WrongHome) as caught:
        POINTS[point](launch, host.home("work"))
    assert caught.value.message == (
        f"A write for {host.home('work')} (store {work.store_id}) reached {launch.path} (store {launch.store_id})."
    )
    for nobody in (None, "", "work", host.home("work").path):
        with pytest.raises(InvalidInput) as refused:
            POINTS[point](launch, nobody)  # type: ignore[arg-type]
        assert refused.value.message == f"home is the Home that it is for, not {nobody!r:.80}."
    POINTS[point](work, host.home("work"))
    assert rows_of(launch) == before  # 0 rows in the launch home


def test_t4_1_every_row_carries_its_own_home(host: Host) -> None:
    host.routes = [ProfileRoute(profile="work", platform="telegram", chat_id="-100")]
    bot = host.bot("default")
    for event in (host.event(bot), host.event(bot, chat_id="-200")):
        host.bound(event)
    for profile in PROFILES:
        store = host.stores[profile]
        store.routing.refuse("whatsapp", profile, store.routing.home, reason="the bridge serves the default only")
        code = store.routing.pairing.request("telegram", "7", store.routing.home)
        store.routing.pairing.approve("telegram", code, store.routing.home, by="test")
        store.routing.pairing.request("telegram", "8", store.routing.home)
    for profile, store in host.stores.items():
        with store.core.reader() as reader:
            homes = {
                table: reader.rows(f"SELECT DISTINCT home FROM {table}")
                for table in ("routing_entries", "routing_unserved", "pairing_requests", "pairing_users")
            }
        own = [(store.store_id,)]
        assert homes == {
            "routing_entries": [] if profile == "side" else own, "routing_unserved": own, "pairing_requests": own,
            "pairing_users": own,
        }


def test_r91_a_deferred_write_reaches_the_home_that_it_was_begun_for(host: Host) -> None:
    """The home is taken at command time and named when the callback writes, whatever store is at hand then."""
    host.routes = [ProfileRoute(profile="work", platform="telegram")]
    event = host.event(host.bot("default"))
    route = host.bound(event)
    with pytest.raises(WrongHome):
        host.stores["default"].routing.choose_model(route, event.identity.runtime_home, {"model": "m"})
    with open_home(event.identity.runtime_home) as store:
        assert store.routing.choose_model(route, event.identity.runtime_home, {"model": "m"}).version == 2
    with pytest.raises(WrongHome):
        host.stores["default"].routing.bind(event, "any")
    with pytest.raises(WrongHome):
        host.stores["default"].routing.find(event)


def test_an_entry_of_another_home_is_not_changed_by_this_one(host: Host) -> None:
    """What an entry was read from counts too: a row of the same key is here as well."""
    host.routes = [ProfileRoute(profile="work", platform="telegram")]
    route = host.bound(host.event(host.bot("default")))
    side = host.stores["side"]
    with pytest.raises(StateError):
        side.routing.suspend(route, side.routing.home, reason="x")


# --- removed homes ------------------------------------------------------------------------------------------------


def late_writes(host: Host, store: Store, home: Home, event: Inbound) -> list[Callable[[], object]]:
    route = store.routing.find(event)
    assert route is not None
    turn = store.turn(store.sessions.create(id="at work", source="cli").id)
    return [
        lambda: store.routing.bind(event, route.session_id),
        lambda: store.routing.go_on(route, event),
        lambda: store.routing.receive(route, event),
        lambda: turn.write(_row("late")),
        lambda: store.chat_turn(event),
        lambda: store.routing.suspend(route, home, reason="late"),
        lambda: store.routing.refuse("telegram", "work", home, reason="late"),
        lambda: store.routing.connected("telegram", "work", home),
        lambda: store.routing.pairing.request("telegram", "7", home),
        lambda: store.routing.write(home, _row("late")),
        lambda: open_home(home),
    ]


def test_t4_11_a_late_write_for_a_removed_home_is_refused_and_makes_no_folder(host: Host) -> None:
    host.routes = [ProfileRoute(profile="work", platform="telegram")]
    event = host.event(host.bot("default"))
    host.bound(event)
    store, home = host.stores["work"], host.home("work")
    late = late_writes(host, store, home, event)
    shutil.rmtree(home.path)
    for write in late:
        with pytest.raises(HomeRemoved) as caught:
            write()
        assert caught.value.message == (
            f"A write for {home} came too late: its store is not there any more ({store.path})."
        )
        assert caught.value.hint == "Nothing was written and no folder was made. Stop the work that was begun for it."
    with pytest.raises(GenerationLost):
        store.messages.append(event.source.chat_id, role="user", content="late")
    with pytest.raises(GenerationLost):
        store.close()
    assert not home.path.exists()
    assert list(home.path.parent.iterdir()) == []
    del host.stores["work"]


def test_t4_11_a_home_that_is_marked_as_removed_takes_no_write_before_its_folder_goes(
    host: Host, fake_clock: FakeClock
) -> None:
    host.routes = [ProfileRoute(profile="work", platform="telegram")]
    event = host.event(host.bot("default"))
    route = host.bound(event)
    store, home = host.stores["work"], host.home("work")
    late = late_writes(host, store, home, event)
    turn = store.turn(store.sessions.create(source="cli").id)
    late += [
        lambda: store.turn("at work"),
        lambda: turn.messages.append(turn.session_id, role="user", content="late"),
        lambda: store.sessions.create(source="cli"),
        lambda: store.sessions.ensure("new", "cli"),
        lambda: store.sessions.branch("at work"),
        lambda: store.sessions.continue_as("at work"),
        lambda: store.messages.append("at work", role="user", content="late"),
        lambda: store.messages.append_many("at work", [{"role": "user", "content": "late"}]),
        lambda: store.messages.stream("at work").settle(),
    ]
    before = rows_of(store)
    store.routing.remove_home(home, actor="test", reason="the profile is deleted")
    marked = rows_of(store)
    for write in late:
        with pytest.raises(HomeRemoved) as caught:
            write()
        assert caught.value.message == f"A write for {home} came too late: it was marked as removed ({store.path})."
        assert caught.value.since == fake_clock.now()  # type: ignore[attr-defined]
    assert rows_of(store) == marked
    assert marked["routing_entries"] == before["routing_entries"]
    assert store.routing.get(route.session_key) == route  # it can still be read
    with pytest.raises(HomeRemoved):
        store.routing.remove_home(home, actor="test", reason="again")


def test_t4_11_work_of_a_home_that_was_made_anew_does_not_reach_the_new_one(host: Host, fake_clock: FakeClock) -> None:
    home = host.home("work")
    host.stores.pop("work").close()
    shutil.rmtree(home.path)
    with open_store(home.path, clock=fake_clock) as anew:
        assert anew.routing.home.path == home.path
        for write in (
            lambda: anew.routing.refuse("telegram", "work", home, reason="late"),
            lambda: open_home(home),
            lambda: anew.core.write(lambda tx: guard(tx, home)),
        ):
            with pytest.raises(WrongHome) as caught:
                write()
            assert caught.value.message == (
                f"A write for {home} (store {home.store_id}) reached {anew.path} (store {anew.store_id})."
            )


def test_a_home_that_was_moved_is_the_same_home(host: Host, fake_clock: FakeClock) -> None:
    """A store is known by its id: its rows stay its own at the new place, and work for the old place is told."""
    home = host.home("work")
    host.stores["work"].routing.refuse("telegram", "work", home, reason="off")
    host.stores.pop("work").close()
    moved = home.path.with_name("moved")
    home.path.rename(moved)
    with open_store(moved, clock=fake_clock) as store:
        assert store.routing.home.store_id == home.store_id
        assert [one.home for one in store.routing.attention()] == [home.store_id]
    with pytest.raises(HomeRemoved):
        open_home(home)


def test_a_copy_of_a_home_is_not_that_home(host: Host, fake_clock: FakeClock) -> None:
    home = host.home("work")
    host.stores.pop("work").close()
    copy = home.path.with_name("copy")
    shutil.copytree(home.path, copy)
    with open_store(copy, clock=fake_clock) as store:
        with pytest.raises(WrongHome) as caught:
            store.routing.refuse("telegram", "work", home, reason="test")
        assert caught.value.message == (
            f"A write for {home} reached {store.path}, which is a copy of it: both are store {home.store_id}."
        )


# --- names --------------------------------------------------------------------------------------------------------


def test_r97_one_home_has_one_name_however_it_is_written(host: Host, tmp_path: Path, fake_clock: FakeClock) -> None:
    home = host.home("work")
    link = tmp_path / "link"
    link.symlink_to(home.path)
    below = tmp_path / "roots"
    below.symlink_to(home.path.parent.parent)
    spellings = [
        home.path, f"{home.path}/", f"{home.path}//", home.path / "." / ".." / "work", link, f"{link}/",
        below / "profiles" / "work", os.path.relpath(home.path),
    ]
    assert {canonical_home(one) for one in spellings} == {home.path}
    for spelling in spellings:
        with open_store(spelling, clock=fake_clock) as store:
            assert store.routing.home == home


def test_r97_a_profile_that_is_a_link_has_the_name_it_is_addressed_by(tmp_path: Path, fake_clock: FakeClock) -> None:
    """One profile on another disk, and all of them; the path stays the canonical one."""
    root, disk = tmp_path / "root", tmp_path / "disk"
    for linked, place in (("profiles/work", disk / "w"), ("profiles/play", disk / "p")):
        place.mkdir(parents=True)
        (root / linked).parent.mkdir(parents=True, exist_ok=True)
        (root / linked).symlink_to(place)
    other = tmp_path / "other"
    other.mkdir()
    (disk / "all" / "anna").mkdir(parents=True)
    (other / "profiles").symlink_to(disk / "all")
    homes = {}
    for folder, name in (
        (root, "default"), (root / "profiles" / "work", "work"), (root / "profiles" / "play", "play"),
        (other / "profiles" / "anna", "anna"),
    ):
        with open_store(folder, clock=fake_clock) as store:
            home = homes[name] = store.routing.home
            assert (home.profile, home.path) == (name, Path(os.path.realpath(folder)))
        with open_home(home) as store:
            assert store.routing.home.profile == name
    assert served_homes(homes.values()) == homes


def test_r97_a_name_that_is_no_text_is_a_name_too(tmp_path: Path) -> None:
    odd = os.fsdecode(b"caf\xe9")
    assert canonical_home(tmp_path / "home", entries=lambda _folder: [odd], same=lambda one, other: False)


def test_r97_where_case_does_not_matter_the_folder_says_how_a_name_is_written() -> None:
    """The file system is played: a folder that finds names in any case, and in both Unicode forms."""
    listed = {"/": ["Users"], "/Users": ["Ann"], "/Users/Ann": [".hermes", "Caf\u00e9"]}

    def entries(folder: str) -> list[str]:
        return listed[folder]

    def same(one: str, other: str) -> bool:
        import unicodedata

        return unicodedata.normalize("NFC", one).casefold() == unicodedata.normalize("NFC", other).casefold()

    for given in ("/users/ann/.HERMES", "/Users/Ann/.hermes", "/USERS/ANN/.Hermes/"):
        assert canonical_home(given, entries=entries, same=same) == Path("/Users/Ann/.hermes")
    assert canonical_home("/users/ann/Cafe\u0301", entries=entries, same=same) == Path("/Users/Ann/Caf\u00e9")


def test_r97_where_case_matters_two_names_are_two_homes(tmp_path: Path) -> None:
    (tmp_path / "Work").mkdir()
    (tmp_path / "work").mkdir()
    assert canonical_home(tmp_path / "Work") != canonical_home(tmp_path / "work")


@pytest.mark.parametrize("given", ["", "a\0b"])
def test_a_home_without_a_name_is_refused(given: str) -> None:
    with pytest.raises(InvalidInput):
        canonical_home(given)


@pytest.mark.parametrize("fields", [{"path": Path("x"), "store_id": "1"}, {"path": Path("/x"), "store_id": ""}])
def test_a_home_is_a_folder_and_a_store(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        Home(**fields)


def test_an_event_of_a_bot_is_dropped_in_the_home_of_that_bot_only(host: Host) -> None:
    unserved = Unserved(source=source(), profile="gone", reason="test", home=host.home("work"))
    with pytest.raises(WrongHome):
        host.stores["default"].routing.drop(unserved)
    nobody = Unserved(source=source(), profile="?", reason="test", home=None)
    with pytest.raises(InvalidInput) as caught:
        host.stores["default"].routing.drop(nobody)
    assert caught.value.message == "home is the Home that it is for, not None."
    assert host.stores["default"].routing.drop(nobody, host.home("default")).warning is not None
