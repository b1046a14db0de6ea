"""Which store a command means."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hermes_state.errors import CannotOpen, InvalidInput, NotFound
from hermes_state.location import profiles_of
from maintenance.home import locate


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installation with the profiles work and play; ~ is beside it."""
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    folder = tmp_path / "hermes"
    for home in (folder, folder / "profiles" / "work", folder / "profiles" / "play"):
        home.mkdir(parents=True)
        (home / "state.db").write_bytes(b"")
    return folder


def find(environ: dict[str, str] | None = None, **options: str | bool | None):
    return locate(**{"home": None, "profile": None, "db": None, **options}, environ=environ or {})  # type: ignore[arg-type]


def test_home_option_names_the_folder_of_the_store(root: Path) -> None:
    assert find(home=str(root)) == (root, None, root / "state.db")


def test_hermes_home_is_used_when_no_option_is_given(root: Path) -> None:
    assert find({"HERMES_HOME": str(root)}).db == root / "state.db"


def test_default_home_is_in_the_users_folder(root: Path, tmp_path: Path) -> None:
    home = tmp_path / "user" / ".hermes"
    home.mkdir(parents=True)
    (home / "state.db").touch()
    assert find().db == home / "state.db"


def test_profile_is_looked_for_in_the_root_even_from_another_profile(root: Path) -> None:
    environ = {"HERMES_HOME": str(root / "profiles" / "play")}
    assert find(environ) == (root / "profiles" / "play", "play", root / "profiles" / "play" / "state.db")
    assert find(environ, profile="work").db == root / "profiles" / "work" / "state.db"
    assert find(environ, profile="default") == (root, None, root / "state.db")


def test_the_profile_that_was_chosen_for_good_is_followed_unless_a_home_is_named(root: Path) -> None:
    (root / "active_profile").write_text("work\n")
    environ = {"HERMES_HOME": str(root)}
    assert find(environ).profile == "work"
    assert find(environ, profile="default").profile is None
    assert find(environ, home=str(root)).profile is None
    (root / "active_profile").write_bytes(b"\xff")
    assert find(environ).profile is None


def test_db_names_the_file_and_its_folder_is_the_home(root: Path, tmp_path: Path) -> None:
    other = tmp_path / "copy of it.db"
    other.touch()
    assert find({"HERMES_HOME": str(root)}, db=str(other)) == (tmp_path, None, other)


def test_a_link_is_followed_so_that_sidecars_are_found(root: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(root / "state.db")
    assert find(db=str(link)).db == root / "state.db"


@pytest.mark.parametrize("name", ["a/b", "..", "../work", ".hidden", "a\\b", "with\nbreak"])
def test_a_profile_name_is_one_plain_word(root: Path, name: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        find(home=str(root), profile=name)
    assert caught.value.message == (
        f"--profile says {name!r}, which is not the name of a profile: it is one word without path separators."
    )


def test_an_empty_value_is_an_error_and_not_the_default(root: Path) -> None:
    for option in ("home", "profile", "db"):
        with pytest.raises(InvalidInput) as caught:
            find({"HERMES_HOME": str(root)}, **{option: ""})
        assert caught.value.message == f"--{option} needs a value."


def test_a_missing_profile_names_those_that_exist(root: Path) -> None:
    with pytest.raises(NotFound) as caught:
        find(home=str(root), profile="wrok")
    assert caught.value.message == f"There is no profile wrok in {root / 'profiles'}."
    assert caught.value.hint == "Profiles there: play, work."


def test_a_chosen_profile_that_is_gone_is_not_replaced_by_the_default(root: Path) -> None:
    (root / "active_profile").write_text("gone")
    with pytest.raises(NotFound) as caught:
        find({"HERMES_HOME": str(root)})
    assert caught.value.message == f"There is no profile gone in {root / 'profiles'}."


def test_a_home_without_a_store_says_what_to_name(root: Path) -> None:
    (root / "state.db").unlink()
    with pytest.raises(NotFound) as caught:
        find(home=str(root))
    assert caught.value.message == f"There is no store at {root / 'state.db'}."
    assert caught.value.hint == "Name the profile with --profile (play, work), or the file with --db."
    assert find(home=str(root), must_exist=False).db == root / "state.db"


def test_db_together_with_a_profile_or_a_home_is_refused(root: Path) -> None:
    with pytest.raises(InvalidInput) as caught:
        find(db=str(root / "state.db"), profile="work")
    assert caught.value.message == "--db names a file and --profile names a home: give only one of them."
    with pytest.raises(InvalidInput) as caught:
        find(db=str(root / "state.db"), home=str(root))
    assert caught.value.message == "--db names a file and --home names a folder: give only one of them."


def test_a_folder_a_missing_home_and_a_pipe_are_no_stores(root: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput) as caught:
        find(db=str(root))
    assert caught.value.message == f"{root} is a folder, not a store."
    with pytest.raises(InvalidInput) as caught:
        find(home=str(tmp_path / "nowhere"))
    assert caught.value.message == f"--home {tmp_path / 'nowhere'} does not exist."
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InvalidInput) as caught:
        find(db=str(tmp_path / "pipe"))
    assert caught.value.message == f"{tmp_path / 'pipe'} is not a regular file."


def test_a_loop_of_links_cannot_be_reached(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(CannotOpen) as caught:
        find(db=str(loop))
    assert caught.value.message == f"{loop} cannot be reached: Too many levels of symbolic links."


def test_profiles_are_the_folders_below_profiles(root: Path) -> None:
    (root / "profiles" / "a-file").touch()
    assert profiles_of(root) == ["play", "work"]
    assert profiles_of(root / "profiles" / "work") == []
