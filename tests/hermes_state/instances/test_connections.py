"""Who is connected, as which generation, and what a reconnect recovers (T1.8, T1.19 to T1.21, T1.46, T1.48)."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from hermes_state.clock import FakeClock
from hermes_state.errors import InvalidInput, ServerReplaced, StaleGeneration, VersionIncompatible
from hermes_state.instances import connection_states, remembered
from hermes_state.instances.connection_states import LinkEvent, LinkState, PublicStatus, public_status
from hermes_state.instances.generations import Generation, parse
from hermes_state.instances.protocol import VersionRange, rejection
from hermes_state.store import Store, open_store
from hermes_state.testing import temporary_store
from tests.hermes_state.instances.servers import Denied, Plan, Server, hello


@pytest.fixture(name="store")
def gateway_store(tmp_path: Path, fake_clock: FakeClock) -> Iterator[Store]:
    with temporary_store(tmp_path, clock=fake_clock) as opened:
        yield opened


@pytest.fixture(name="server")
def started(store: Store) -> Server:
    return Server(store)


# --- the tables --------------------------------------------------------------------------------------------------


def test_every_state_and_event_of_a_link_has_its_outcome() -> None:
    """R42."""
    offline, connected, upgrade = LinkState
    outcomes = {pair: connection_states.to_event(*pair) for pair in product(LinkState, LinkEvent)}
    assert outcomes == {
        (offline, LinkEvent.ACCEPT): connected, (connected, LinkEvent.ACCEPT): connected,
        (upgrade, LinkEvent.ACCEPT): connected,
        (offline, LinkEvent.UPGRADE): upgrade, (connected, LinkEvent.UPGRADE): upgrade,
        (upgrade, LinkEvent.UPGRADE): upgrade,
        (offline, LinkEvent.COUNT): None, (connected, LinkEvent.COUNT): connected, (upgrade, LinkEvent.COUNT): None,
        (offline, LinkEvent.END): None, (connected, LinkEvent.END): offline, (upgrade, LinkEvent.END): None,
        (offline, LinkEvent.CLEAR): offline, (connected, LinkEvent.CLEAR): offline,
        (upgrade, LinkEvent.CLEAR): offline,
    }


@pytest.mark.parametrize("connecting", [False, True])
@pytest.mark.parametrize("revoked", [False, True])
@pytest.mark.parametrize("state", LinkState)
def test_public_status_goes_by_precedence(state: LinkState, revoked: bool, connecting: bool) -> None:
    """Revoked > upgrade-required > connected > connecting > offline."""
    said = public_status(state, revoked=revoked, connecting=connecting)
    holds = {
        PublicStatus.REVOKED: revoked, PublicStatus.UPGRADE_REQUIRED: state is LinkState.UPGRADE_REQUIRED,
        PublicStatus.CONNECTED: state is LinkState.CONNECTED, PublicStatus.CONNECTING: connecting,
        PublicStatus.OFFLINE: True,
    }
    assert said is next(status for status in PublicStatus if holds[status])


# --- accepting ---------------------------------------------------------------------------------------------------


def test_bad_credential_with_an_incompatible_version_leaves_the_healthy_connection_untouched(server: Server) -> None:
    """T1.8."""
    healthy = server.connections.accept(hello())
    before = server.connections.link("mac")
    with pytest.raises(Denied):
        server.connections.accept(hello(credential="guessed", versions=VersionRange(9, 9), boot_id="boot 2"))
    with pytest.raises(Denied):
        server.connections.accept(hello(credential="guessed"))
    with pytest.raises(Denied):
        server.connections.admit_delivery(hello(credential="guessed"))
    assert server.connections.link("mac") == before
    assert server.connections.refuse_stale("mac", healthy.generation) == healthy.connection
    assert len(server.recovery.applied) == 1


def test_stranger_leaves_nothing_in_memory_or_store(store: Store, server: Server) -> None:
    """T1.8: whoever is not authenticated makes nothing grow."""
    for number in range(50):
        with pytest.raises(Denied):
            server.connections.accept(hello(f"guess {number}", credential="guessed"))
    assert server.connections._links == server.connections._connecting == server.connections._turns == {}
    with store.core.reader() as reader:
        assert reader.rows("SELECT * FROM gateway_links") == []


def test_every_accept_gives_a_greater_generation_and_what_to_recover(server: Server) -> None:
    first, again = server.connections.accept(hello()), server.connections.accept(hello())
    other = server.connections.accept(hello("phone"))
    assert first.generation < again.generation < other.generation
    assert [first.recovery_plan, again.recovery_plan, other.recovery_plan] == [
        Plan("mac", "boot 1", True), Plan("mac", "boot 1", False), Plan("phone", "boot 1", True),
    ]
    assert (first.displaced, again.displaced, other.displaced) == (None, first.connection, None)
    assert parse(str(again.generation)) == again.generation


@pytest.mark.parametrize(
    "text", ["", "3", "3.", ".7", "0.1", "1.0", "-1.2", "1.2.3", "a.b", "1.\u0661", "9" * 30 + ".1"]
)
def test_text_that_is_no_generation_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput) as error:
        parse(text)
    assert str(error.value) == f"A generation is <epoch>.<number>, such as 3.17, not {text!r:.60}."


def test_stale_disconnect_and_counts_leave_the_new_connection_alone(server: Server) -> None:
    """T1.19."""
    first, second = server.connections.accept(hello()), server.connections.accept(hello())
    assert not server.connections.record_session_count("mac", first.generation, 9)
    assert not server.connections.disconnect("mac", first.generation)
    assert server.connections.status("mac", revoked=False) is PublicStatus.CONNECTED
    assert server.connections.record_session_count("mac", second.generation, 3)
    live = server.connections.link("mac").connection
    assert live is not None
    assert (live.generation, live.session_count) == (second.generation, 3)
    assert server.connections.disconnect("mac", second.generation)
    assert not server.connections.disconnect("mac", second.generation)
    assert server.connections.status("mac", revoked=False) is PublicStatus.OFFLINE


def test_generation_of_another_instance_is_not_ours(server: Server) -> None:
    server.connections.accept(hello())
    phone = server.connections.accept(hello("phone"))
    assert not server.connections.disconnect("mac", phone.generation)
    assert not server.connections.record_session_count("mac", phone.generation, 1)
    assert [one.instance_id for one in server.connections.connected()] == ["mac", "phone"]


def test_restart_gives_a_greater_generation_and_refuses_frames_from_before(store: Store, server: Server) -> None:
    """T1.21."""
    before = server.connections.accept(hello())
    restarted = Server(store)
    with pytest.raises(StaleGeneration) as error:
        restarted.connections.refuse_stale("mac", before.generation)
    assert str(error.value) == f"Instance 'mac' of {store.path} is not connected; this is of connection 1.1."
    after = restarted.connections.accept(hello())
    assert after.generation > before.generation
    assert (str(before.generation), str(after.generation)) == ("1.1", "2.1")
    assert not after.boot_id_changed
    with pytest.raises(StaleGeneration) as error:
        restarted.connections.refuse_stale("mac", before.generation)
    assert str(error.value) == (
        f"Instance 'mac' of {store.path} is connected as 2.1; this is of connection 1.1."
    )
    assert not restarted.connections.disconnect("mac", before.generation)


def test_epoch_survives_closing_the_store(tmp_path: Path, fake_clock: FakeClock) -> None:
    """T1.21, with every process of the first server gone."""
    epochs = []
    for _ in range(3):
        with open_store(tmp_path / "home", clock=fake_clock) as store:
            epochs.append(Server(store).connections.epoch)
    assert epochs == [1, 2, 3]


def test_server_that_was_replaced_accepts_nothing(store: Store, server: Server) -> None:
    Server(store)
    with pytest.raises(ServerReplaced) as error:
        server.connections.accept(hello())
    assert str(error.value) == (
        f"Another gateway server was started on {store.path}: this one is of epoch 1, that one of 2."
    )
    assert server.connections.connected() == []


# --- versions ----------------------------------------------------------------------------------------------------


def test_agreed_version_is_kept_with_the_connection(store: Store, server: Server) -> None:
    """T1.46, R31: [2, 3] and [1, 2] agree on 2."""
    accepted = server.connections.accept(hello(versions=VersionRange(1, 2)))
    with store.core.reader() as reader:
        stored = remembered.read(reader, "mac")
    assert stored is not None
    assert (accepted.connection.protocol_version, stored.protocol_version) == (2, 2)


def test_incompatible_version_names_both_ranges_and_touches_no_other_instance(server: Server) -> None:
    """T1.46, R31: [2, 3] and [4, 5]."""
    phone, old = server.connections.accept(hello("phone")), server.connections.accept(hello())
    with pytest.raises(VersionIncompatible) as error:
        server.connections.accept(hello(versions=VersionRange(4, 5), plugin_version="9.0"))
    assert str(error.value) == "Instance 'mac' speaks protocol 4 to 5; this server speaks 2 to 3."
    assert error.value.hint == "Update the server."
    assert rejection(error.value) == {
        "type": "connection.rejected", "code": "version_incompatible", "message": str(error.value),
        "server_versions": {"lowest": 2, "highest": 3}, "plugin_versions": {"lowest": 4, "highest": 5},
    }
    assert error.value.facts["displaced"] == str(old.generation)
    assert pickle.loads(pickle.dumps(error.value)).facts == error.value.facts
    upgrade = server.connections.link("mac").upgrade
    assert upgrade is not None
    assert (upgrade.versions, upgrade.plugin_version) == (VersionRange(4, 5), "9.0")
    assert server.connections.status("mac", revoked=False) is PublicStatus.UPGRADE_REQUIRED
    assert server.connections.status("mac", revoked=True) is PublicStatus.REVOKED
    assert server.connections.connected() == [phone.connection]
    # The end of the old connection, told late, changes nothing; a compatible plugin clears it.
    assert not server.connections.disconnect("mac", old.generation)
    server.connections.accept(hello())
    assert server.connections.status("mac", revoked=False) is PublicStatus.CONNECTED
    assert server.connections.link("mac").upgrade is None


def test_fifty_paired_plugins_still_connect_after_the_server_was_upgraded(store: Store) -> None:
    """T1.48, R31."""
    older = Server(store, versions=VersionRange(2, 2))
    for number in range(50):
        older.connections.accept(hello(f"plugin {number}", versions=VersionRange(2, 2)))
    newer = Server(store, versions=VersionRange(2, 3))
    versions = [
        newer.connections.accept(hello(f"plugin {number}", versions=VersionRange(2, 2))).connection.protocol_version
        for number in range(50)
    ]
    assert versions == [2] * 50
    assert newer.recovery.applied == []  # nothing changed: no connect of theirs committed anything


# --- another process of the plugin -------------------------------------------------------------------------------


def test_recovery_is_applied_with_the_boot_id_or_not_at_all(store: Store, server: Server) -> None:
    """A crash between them would make the next connect believe that it was the same process of the plugin."""
    server.connections.accept(hello())

    def fail() -> None:
        raise ArithmeticError("the server dies here")

    server.recovery.before_apply = fail
    with pytest.raises(ArithmeticError):
        server.connections.accept(hello(boot_id="boot 2"))
    live = server.connections.link("mac").connection
    assert live is not None  # nothing of the failed connect was registered
    assert live.boot_id == "boot 1"
    restarted = Server(store)
    again = restarted.connections.accept(hello(boot_id="boot 2"))
    assert (again.boot_id_changed, restarted.recovery.applied) == (True, [Plan("mac", "boot 2", True)])


def test_reconnect_of_the_same_process_stores_what_there_is_to_recover_before_it_is_accepted(server: Server) -> None:
    """H5, T1.34: nobody has to remember to apply the plan; a failure to store it is no connection."""
    first = server.connections.accept(hello())
    server.recovery.owes = True
    again = server.connections.accept(hello())
    assert server.recovery.applied == [first.recovery_plan, again.recovery_plan]

    def fail() -> None:
        raise ArithmeticError("the disk is full")

    server.recovery.before_apply = fail
    with pytest.raises(ArithmeticError):
        server.connections.accept(hello())
    assert server.connections.link("mac").connection == again.connection


def test_another_version_alone_is_no_other_process(server: Server) -> None:
    server.connections.accept(hello())
    again = server.connections.accept(hello(versions=VersionRange(2, 2)))
    assert (again.boot_id_changed, again.recovery_plan.boot_id_changed) == (False, False)


# --- delivery role, revoke, remove -------------------------------------------------------------------------------


def test_delivery_socket_displaces_nobody_and_has_no_generation(server: Server) -> None:
    live = server.connections.accept(hello())
    admitted = server.connections.admit_delivery(hello(boot_id="a cron job", versions=VersionRange(1, 2)))
    assert not hasattr(admitted, "generation")
    assert admitted.protocol_version == 2
    with pytest.raises(VersionIncompatible):
        server.connections.admit_delivery(hello(versions=VersionRange(7, 7)))
    assert server.connections.link("mac").connection == live.connection
    assert server.connections.accept(hello()).generation == Generation(1, 2)  # no number was spent either
    assert [plan.boot_id for plan in server.recovery.applied] == ["boot 1"]


def test_revoke_waits_for_a_connect_under_way_and_ends_it(store: Store, server: Server) -> None:
    """A connect that was authenticated just before the revoke does not outlive it."""
    inside, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        inside.set()
        assert go_on.wait(10)

    server.recovery.before_apply = hold
    connecting = threading.Thread(target=server.connections.accept, args=(hello(),))
    connecting.start()
    assert inside.wait(10)
    assert server.connections.status("mac", revoked=False) is PublicStatus.CONNECTING
    server.registry.revoked.add("mac")
    ended: list[object] = []
    clearing = threading.Thread(target=lambda: ended.append(server.connections.clear("mac")))
    clearing.start()
    go_on.set()
    connecting.join(10)
    clearing.join(10)
    assert [str(getattr(one, "generation", None)) for one in ended] == ["1.1"]
    assert server.connections.status("mac", revoked=False) is PublicStatus.OFFLINE
    with pytest.raises(Denied):
        server.connections.accept(hello())


def test_nothing_stays_of_a_removed_instance(store: Store, server: Server) -> None:
    server.connections.accept(hello())
    server.connections.accept(hello("phone"))
    store.core.write(lambda tx: remembered.forget(tx, "mac"), durability="power")
    with store.core.reader() as reader:
        assert reader.rows("SELECT instance_id FROM gateway_links") == [("phone",)]


def test_one_instance_held_open_keeps_no_other_from_connecting(store: Store, server: Server) -> None:
    """T1.20: a slow step of one instance, outside every transaction, and 100 handshakes of another beside it."""
    inside, go_on = threading.Event(), threading.Event()
    server.connections.accept(hello("fast"))
    plain = server.registry.authenticate

    def slow(reader: object, instance_id: str, credential: str) -> None:
        if instance_id == "slow":
            inside.set()
            assert go_on.wait(30)
        plain(reader, instance_id, credential)  # type: ignore[arg-type]

    server.connections._authenticate = slow  # type: ignore[assignment]
    held = threading.Thread(target=server.connections.accept, args=(hello("slow"),))
    held.start()
    assert inside.wait(10)
    took = []
    for _ in range(100):
        started = time.perf_counter()
        server.connections.accept(hello("fast"))
        took.append(time.perf_counter() - started)
    go_on.set()
    held.join(10)
    assert sorted(took)[98] < 0.05
    assert len(server.connections.connected()) == 2


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("instance_id", "", ", not empty"), ("boot_id", "", ", not empty"), ("boot_id", "a\0b", ", not empty"),
        ("plugin_version", "x" * 513, ""), ("model", "\0", ""), ("hermes_version", 19, ""),
    ],
)
def test_hello_that_no_plugin_sends_is_refused_before_anything_is_asked(
    server: Server, field: str, value: object, said: str
) -> None:
    odd = hello(**{"instance_id": "mac", field: value})
    with pytest.raises(InvalidInput) as error:
        server.connections.accept(odd)
    assert str(error.value) == f"{field} of a hello is a text of at most 512 characters without NUL{said}."
    assert server.registry.asked == 0


def test_credential_is_in_no_text_of_a_hello_or_a_connection(server: Server) -> None:
    """T1.6, of what is in memory."""
    accepted = server.connections.accept(hello())
    assert "secret of" not in repr(hello()) + repr(accepted) + repr(server.connections.link("mac"))
