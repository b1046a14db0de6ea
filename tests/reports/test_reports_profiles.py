"""Reports 111, 122 to 125, 127: which store a program means, and that nothing lands in another profile's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hermes_state import open_store
from hermes_state.errors import NotFound
from hermes_state.store import Store
from tests.support.children import Children
from tests.support.cli import RunCli


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installation with the profiles `work` and `private`, whose root is what HERMES_HOME says."""
    home = tmp_path / "hermes"
    for name in ("work", "private"):
        (home / "profiles" / name).mkdir(parents=True)
    monkeypatch.setenv("HERMES_HOME", str(home))
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    return home


def say(store: Store, text: str) -> None:
    session = store.sessions.create(source="cli", title=text)
    store.messages.append(session.id, role="user", content=text)


def chats(db: Path) -> list[str | None]:
    with open_store(path=db, read_only=True) as store:
        return sorted(str(entry.title) for entry in store.sessions.list())


def stores(root: Path) -> list[str]:
    """Every store below the installation."""
    return sorted(str(path.relative_to(root)) for path in root.rglob("state.db"))


# --- 122, 127: a path that was resolved once and for all ---------------------------------------------------------


@pytest.mark.slow
def test_a_program_that_changes_its_profile_writes_to_the_new_one_and_the_old_one_stays(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store() as store:
        say(store, "in the main store")
    before = [(path.stat().st_size, path.stat().st_mtime_ns) for path in sorted(root.glob("state.db*"))]
    monkeypatch.setenv("HERMES_HOME", str(root / "profiles" / "work"))
    with open_store() as store:
        say(store, "at work")
        with pytest.raises(NotFound) as caught:
            store.sessions.rename("an id of the main store", "new name")
    assert str(caught.value) == (
        f"There is no session 'an id of the main store' in {root / 'profiles' / 'work' / 'state.db'}."
    )
    assert [(path.stat().st_size, path.stat().st_mtime_ns) for path in sorted(root.glob("state.db*"))] == before
    assert (chats(root / "state.db"), chats(root / "profiles" / "work" / "state.db")) == (
        ["in the main store"], ["at work"]
    )


@pytest.mark.slow
def test_a_dashboard_with_a_home_of_its_own_makes_nothing_elsewhere(root: Path, child: Children) -> None:
    isolated = root.parent / "isolated"
    dashboard = child(
        """
        import hermes_state, os
        os.environ["HERMES_HOME"] = os.environ["ISOLATED"]  # after the import, as a launcher does it
        with hermes_state.open_store() as store:
            session = store.sessions.create(source="dashboard")
            store.messages.append(session.id, role="user", content="hello")
            store.search("hello")
            print(store.path)
        """,
        env={"ISOLATED": str(isolated)},
    )
    assert dashboard.finish().strip() == str(isolated / "state.db")
    assert stores(root) == []
    assert not (root.parent / "user").exists()


# --- 123: a profile that was named loses to the one that was chosen once -----------------------------------------


@pytest.mark.slow
def test_a_home_that_was_named_wins_over_the_profile_that_was_chosen_for_good(root: Path) -> None:
    (root / "active_profile").write_text("private", encoding="utf-8")
    with open_store(root / "profiles" / "work") as store:
        say(store, "named")
    with open_store() as store:
        say(store, "chosen")
    with open_store(root) as store:
        say(store, "the root by name")
    assert stores(root) == ["profiles/private/state.db", "profiles/work/state.db", "state.db"]
    assert chats(root / "profiles" / "work" / "state.db") == ["named"]
    assert chats(root / "profiles" / "private" / "state.db") == ["chosen"]
    assert chats(root / "state.db") == ["the root by name"]


@pytest.mark.slow
def test_the_profile_of_a_command_wins_over_the_one_that_was_chosen_for_good(root: Path, run_cli: RunCli) -> None:
    (root / "active_profile").write_text("private", encoding="utf-8")
    for name in ("work", "private"):
        with open_store(root / "profiles" / name) as store:
            say(store, f"chat of {name}")
    for options, expected in (((), "private"), (("--profile", "work"), "work")):
        listed = run_cli("sessions", "list", "--json", *options, home=root).json
        assert [entry["title"] for entry in listed["sessions"]] == [f"chat of {expected}"]


# --- 124: a store that was first used under another profile ------------------------------------------------------


def test_an_open_store_stays_the_one_that_it_was_opened_as(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = root / "profiles" / "work"
    with open_store() as launched:
        monkeypatch.setenv("HERMES_HOME", str(work))
        with open_store() as other:
            say(other, "under the override")
            # First used while the environment says something else.
            say(launched, "of the launch home")
        monkeypatch.setenv("HERMES_HOME", str(root))
        say(launched, "after the override")
        assert (launched.path, launched.store_id == other.store_id) == (root / "state.db", False)
    assert chats(work / "state.db") == ["under the override"]
    assert chats(root / "state.db") == ["after the override", "of the launch home"]


# --- 125: a chat of a profile that runs as default ---------------------------------------------------------------


def test_a_chosen_profile_that_is_not_there_is_refused_and_no_other_store_is_used(root: Path) -> None:
    (root / "active_profile").write_text("gone", encoding="utf-8")
    with pytest.raises(NotFound) as caught:
        open_store()
    assert str(caught.value) == f"There is no profile gone in {root / 'profiles'}."
    assert caught.value.hint == "Profiles there: private, work."
    assert stores(root) == []


# --- 111: the history is "gone", because the terminal looks at another store -------------------------------------


@pytest.mark.slow
def test_each_surface_says_which_store_it_uses(root: Path, run_cli: RunCli) -> None:
    (root / "active_profile").write_text("private", encoding="utf-8")
    with open_store(root) as store:
        say(store, "the history")
    with open_store() as store:
        say(store, "seven sessions")
        assert (store.path, repr(store)) == (
            root / "profiles" / "private" / "state.db", f"<Store {root}/profiles/private/state.db open>"
        )
        (hit,) = store.search("seven")
        assert hit.store_path == store.path
    for options, where in (((), root / "profiles" / "private"), (("--profile", "default"), root)):
        checked = run_cli("doctor", *options, home=root)
        assert checked.stdout.splitlines()[0] == f"Store: {where / 'state.db'}"
    os.unlink(root / "profiles" / "private" / "state.db")
    refused = run_cli("sessions", "list", home=root)
    assert refused.exit_code == 1
    assert str(root / "profiles" / "private" / "state.db") in refused.stderr.splitlines()[0]
