"""What is not served is told once and seen until it is served. T4.10 and R96 under their numbers."""

from __future__ import annotations

import dataclasses
import threading

from hermes_state.clock import FakeClock
from hermes_state.routing import Home, ProfileRoute, Routing, Unserved, canonicalize
from hermes_state.routing.attention import WRITE_SECONDS
from hermes_state.store import Store, open_store
from tests.hermes_state.routing.conftest import Host, source

REASON = "the bridge of WhatsApp serves the default profile only"


def test_t4_10_it_is_told_once_set_on_refusal_and_cleared_on_connect(
    store: Store, home: Home, fake_clock: FakeClock
) -> None:
    began = fake_clock.now()
    first = store.routing.refuse("whatsapp", "work", home, reason=REASON)
    assert first.warning == (
        f"Profile 'work' is not served on whatsapp: {REASON}. What it is sent is dropped until a process serves it."
    )
    assert [store.routing.refuse("whatsapp", "work", home, reason=REASON).warning for _ in range(9)] == [None] * 9
    (seen,) = store.routing.attention()
    assert (seen.needs_attention, seen.warnings, seen.dropped, seen.since_at) == (True, 1, 0, began)
    fake_clock.advance(100)
    served = store.routing.connected("whatsapp", "work", home)
    assert served is not None
    assert (served.needs_attention, served.served_at) == (False, began + 100)
    assert store.routing.attention() == []
    assert store.routing.attention(served_too=True) == [served]
    fake_clock.advance(100)
    again = store.routing.refuse("whatsapp", "work", home, reason="gone")
    assert again.warning is not None
    assert (again.attention.warnings, again.attention.since_at) == (2, began + 200)


def test_r96_what_is_dropped_is_counted_and_rarely_written(store: Store, home: Home, fake_clock: FakeClock) -> None:
    unserved = Unserved(source=source(), profile="work", reason=REASON, home=home)
    position = store.changes.position()
    for _ in range(100):
        store.routing.drop(unserved)
    assert [one.dropped for one in store.routing.attention()] == [1]
    fake_clock.advance(WRITE_SECONDS)
    store.routing.drop(unserved)
    assert [one.dropped for one in store.routing.attention()] == [101]
    store.routing.drop(unserved)
    served = store.routing.connected("telegram", "work", home)
    assert served is not None and served.dropped == 102
    told = [one.key for one in store.changes.since(position).changes if one.table_name == "routing_unserved"]
    assert told == ["telegram/work"] * 2  # it began, and it ended


def test_a_restart_and_another_process_tell_it_no_second_time(store: Store, home: Home) -> None:
    assert store.routing.refuse("telegram", "work", home, reason=REASON).warning is not None
    another = Routing(store.core)
    assert another.refuse("telegram", "work", home, reason=REASON).warning is None
    assert another.connected("telegram", "side", home) is None
    store.routing.connected("telegram", "work", home)
    assert another.refuse("telegram", "work", home, reason=REASON).warning is not None


def test_of_many_threads_one_is_told(store: Store, home: Home) -> None:
    told: list[str] = []
    ready = threading.Barrier(8)

    def refuse() -> None:
        routing = Routing(store.core)
        ready.wait()
        noted = routing.refuse("telegram", "work", home, reason=REASON)
        if noted.warning is not None:
            told.append(noted.warning)

    threads = [threading.Thread(target=refuse) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(told) == 1


def test_platforms_and_profiles_are_marked_apart(store: Store, home: Home) -> None:
    for platform, profile in (("telegram", "work"), ("telegram", "side"), ("whatsapp", "work")):
        assert store.routing.refuse(platform, profile, home, reason=REASON).warning is not None
    store.routing.connected("telegram", "work", home)
    assert [(one.platform, one.profile) for one in store.routing.attention()] == [
        ("telegram", "side"), ("whatsapp", "work")
    ]


def test_a_reader_sees_what_needs_attention(store: Store, home: Home, fake_clock: FakeClock) -> None:
    store.routing.refuse("telegram", "work", home, reason=REASON)
    with open_store(path=store.path, read_only=True, clock=fake_clock) as reader:
        assert reader.routing.attention() == store.routing.attention()


def test_a_routed_profile_without_a_bot_of_its_own_is_served_where_it_was_dropped(host: Host) -> None:
    """The mark is in the store of the bot, and it is told again when it begins anew."""
    host.routes = [ProfileRoute(profile="work", platform="telegram")]
    host.unserved = {"work"}
    store, home, bot = host.stores["default"], host.home("default"), host.bot("default")
    dropped = canonicalize(source(), lambda given: host.identity(given, bot))
    assert isinstance(dropped, Unserved)
    assert store.routing.drop(dropped).warning is not None
    store.routing.refuse("signal", "work", home, reason="test")
    host.unserved = set()
    (served,) = store.routing.serves("telegram", host.served, home)
    assert (served.profile, served.needs_attention) == ("work", False)
    assert [one.platform for one in store.routing.attention()] == ["signal"]
    assert store.routing.serves("telegram", host.served, home) == []
    assert store.routing.drop(dropped).warning is not None


def test_one_store_may_note_what_is_dropped_for_every_bot(host: Host) -> None:
    """For one of another home, for one that nobody knows, and for one whose home was made anew."""
    store, home = host.stores["default"], host.home("default")
    anew = dataclasses.replace(host.home("work"), store_id="of before")
    for number, of in enumerate((host.home("work"), None, anew)):
        unserved = Unserved(source=source(), profile=f"gone {number}", reason="test", home=of)
        assert store.routing.drop(unserved, home).attention.home == store.store_id
    assert len(store.routing.attention()) == 3
