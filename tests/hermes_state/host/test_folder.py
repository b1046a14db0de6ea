"""Where the host lies and whose it is (T2.8, R49): another user's is never believed, an open one is made private."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from hermes_state.errors import HostNotOurs
from hermes_state.host import Reason, Request, Seen, Start, decide, facts_for, host_folder, open_host
from hermes_state.host.folder import prepare

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="giving a file to another user needs root")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_it_lies_in_the_state_folder_that_the_environment_names_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert host_folder({"XDG_STATE_HOME": "/x/state"}) == Path("/x/state/hermes")
    monkeypatch.setenv("HOME", str(tmp_path))
    for said in ({}, {"XDG_STATE_HOME": ""}, {"XDG_STATE_HOME": "not/absolute"}):
        assert host_folder(said) == tmp_path / ".local" / "state" / "hermes"


def test_t2_8_a_folder_that_others_can_enter_is_made_private_and_said(tmp_path: Path) -> None:
    folder = tmp_path / "state" / "hermes"
    with open_host(folder) as made:
        assert made.repaired == ()
    assert [mode(path) for path in (folder, folder / "host.db")] == [0o700, 0o600]
    folder.chmod(0o775)
    (folder / "host.db").chmod(0o664)
    (folder / "host.db-wal").touch()
    (folder / "host.db-wal").chmod(0o644)
    said = prepare(folder)
    assert said == (
        f"{folder} had mode 0775; it is 0700 now",
        f"{folder / 'host.db'} had mode 0664; it is 0600 now",
        f"{folder / 'host.db-wal'} had mode 0644; it is 0600 now",
    )
    assert [mode(path) for path in (folder, folder / "host.db", folder / "host.db-wal")] == [0o700, 0o600, 0o600]


@AS_ROOT
@pytest.mark.parametrize("whose", ["parent", "folder", "host.db", "host.db-wal", "host.db-shm", "gateway.lock"])
def test_t2_8_what_another_user_owns_is_refused_by_name_and_a_start_goes_on_without_it(
    tmp_path: Path, whose: str
) -> None:
    folder = tmp_path / "state" / "hermes"
    open_host(folder).close()
    (folder / "gateway.lock").touch()
    for name in ("host.db-wal", "host.db-shm"):
        (folder / name).touch()
    path = {"parent": folder.parent, "folder": folder}.get(whose, folder / whose)
    os.chown(path, 4321, 4321)
    before = (folder / "host.db").read_bytes()
    for read_only in (True, False):
        with pytest.raises(HostNotOurs) as refused:
            open_host(folder, read_only=read_only)
        assert refused.value.message == (
            f"{path} belongs to user 4321, so nothing that it says is believed by user 0."
        )
    facts = facts_for(Request(home="/h/a"), folder=folder)
    verdict = decide(facts)
    assert facts.seen is Seen.UNKNOWN
    assert isinstance(verdict, Start) and (verdict.reason, verdict.beside) == (Reason.UNKNOWN_OWNER, True)
    assert any(f"{path} belongs to user 4321" in said for said in verdict.evidence)
    assert (folder / "host.db").read_bytes() == before


@AS_ROOT
def test_t2_8_a_row_of_another_user_is_ignored(tmp_path: Path) -> None:
    from tests.hermes_state.host.hosts import Party, run

    folder = tmp_path / "state" / "hermes"
    first, second = Party(folder), Party(folder)
    entered = first.host.enter(run("/h/a"))
    assert entered.member is not None
    first.host.core.write(lambda tx: tx.execute("UPDATE gateways SET uid = 4321"))
    refused = second.host.enter(run("/h/a"))
    assert second.host.probe.dialled == 0
    assert refused.verdict.reason is Reason.OWNER_SILENT  # somebody holds the lock; its row is not believed
    assert any("its row belongs to user 4321 and is ignored" in said for said in refused.verdict.evidence)


def test_asking_what_a_start_would_do_makes_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "state" / "hermes"
    facts = facts_for(Request(home="/h/a"), folder=folder)
    assert facts.seen is Seen.NOBODY
    assert list(tmp_path.iterdir()) == []


def test_r53_it_is_found_from_the_environment_given_and_not_from_the_one_of_the_process(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a program reads for its home wins over what was frozen when it began: nothing is kept between two calls."""
    monkeypatch.setenv("HOME", "/frozen")
    monkeypatch.setenv("XDG_STATE_HOME", "/frozen/state")
    assert host_folder({"HOME": "/h/a"}) == Path("/h/a/.local/state/hermes")
    assert host_folder({"HOME": "/h/a", "XDG_STATE_HOME": "/h/b"}) == Path("/h/b/hermes")


@AS_ROOT
@pytest.mark.parametrize("whose", ["answers", "owners"])
def test_t2_8_a_folder_in_it_that_another_user_owns_is_refused_and_an_open_one_made_private(
    tmp_path: Path, whose: str
) -> None:
    folder = tmp_path / "state" / "hermes"
    open_host(folder).close()
    (folder / whose).mkdir(exist_ok=True)
    (folder / whose).chmod(0o777)
    assert prepare(folder) == (f"{folder / whose} had mode 0777; it is 0700 now",)
    os.chown(folder / whose, 4321, 4321)
    with pytest.raises(HostNotOurs) as refused:
        open_host(folder)
    assert refused.value.message.startswith(f"{folder / whose} belongs to user 4321")


@AS_ROOT
@pytest.mark.parametrize("name", ["", "host.db"])
def test_t2_8_a_link_of_ours_to_what_another_user_owns_is_refused(tmp_path: Path, name: str) -> None:
    folder, theirs = tmp_path / "state" / "hermes", tmp_path / "theirs"
    open_host(theirs).close()
    if name:
        folder.mkdir(parents=True)
        os.chown(theirs / name, 4321, 4321)
        (folder / name).symlink_to(theirs / name)
    else:
        folder.parent.mkdir()
        os.chown(theirs, 4321, 4321)
        folder.symlink_to(theirs)
    with pytest.raises(HostNotOurs) as refused:
        open_host(folder)
    assert refused.value.message.startswith(f"{folder / name if name else folder} belongs to user 4321")


def test_t2_8_a_folder_behind_a_link_is_made_private_too(tmp_path: Path) -> None:
    folder, place = tmp_path / "state" / "hermes", tmp_path / "place"
    place.mkdir(mode=0o755)
    place.chmod(0o775)
    folder.parent.mkdir()
    folder.symlink_to(place)
    assert prepare(folder) == (f"{folder} had mode 0775; it is 0700 now",)
    assert mode(place) == 0o700
