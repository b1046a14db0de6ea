"""The file of secrets that we ship: ours alone, whole at every moment, kept for good before `store` returns."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from hermes_state.errors import InvalidInput, SecretFileRefused
from hermes_state.work.credentials import SecretFile, Secrets

SOME = Secrets(
    access_token="a-token", refresh_token="r-token", agent_key="k", others={"id_token": ["x", 1]}, expires_at=5.5,
    agent_key_expires_at=6.0, extra={"scope": "ü"}, written_at=7.0,
)


def facts(secrets: Secrets | None) -> dict[str, object]:
    assert secrets is not None
    return dict(vars(secrets))


def test_what_is_stored_is_loaded_and_nobody_else_may_read_it(tmp_path: Path) -> None:
    file = SecretFile(tmp_path / "new folder" / "main.json")
    assert file.load() is None
    before = os.umask(0)
    try:
        file.store(SOME)
    finally:
        os.umask(before)
    assert facts(file.load()) == facts(SOME)
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.path.parent.stat().st_mode) == 0o700
    assert [path.name for path in file.path.parent.iterdir()] == ["main.json"]


def test_it_is_written_beside_flushed_renamed_and_the_folder_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    plain_sync, plain_replace = os.fsync, os.replace

    def sync(descriptor: int) -> None:
        kind = "folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file"
        done.append(f"sync {kind}")
        plain_sync(descriptor)

    def replace(source: Path, target: Path) -> None:
        done.append("rename")
        plain_replace(source, target)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(os, "replace", replace)
    SecretFile(tmp_path / "main.json").store(SOME)
    assert done == ["sync file", "rename", "sync folder"]


def test_a_failure_leaves_the_old_content_and_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = SecretFile(tmp_path / "main.json")
    file.store(SOME)

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        file.store(Secrets(access_token="other"))
    assert facts(file.load()) == facts(SOME)
    assert [path.name for path in tmp_path.iterdir()] == ["main.json"]


def test_what_a_killed_writer_left_goes_with_the_next_store_and_is_never_read(tmp_path: Path) -> None:
    file = SecretFile(tmp_path / "main.json")
    (tmp_path / ".main.json.0011223344556677.new").write_text("half of a tok")
    assert file.load() is None
    file.store(SOME)
    assert [path.name for path in tmp_path.iterdir()] == ["main.json"]


def test_only_what_a_killed_writer_of_this_very_file_left_goes(tmp_path: Path) -> None:
    """A neighbour of a longer name, one with a pattern for a name, and names that are not ours stay."""
    others = [".main.json.0011223344556677.new", ".main.old.new", ".main.00112233.new", ".mainx.0011223344556677.new"]
    for name in others:
        (tmp_path / name).write_text("x")
    SecretFile(tmp_path / "main").store(SOME)
    SecretFile(tmp_path / "m[a]in").store(SOME)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*others, "main", "m[a]in"])


def test_room_that_was_set_aside_is_used_by_the_next_store_or_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = SecretFile(tmp_path / "main.json")
    file.reserve()
    file.reserve()
    (beside,) = tmp_path.iterdir()
    assert beside.stat().st_blocks * 512 >= 65_536
    assert stat.S_IMODE(beside.stat().st_mode) == 0o600
    file.store(SOME)
    assert facts(file.load()) == facts(SOME)
    assert file.path.stat().st_size < 1_000
    file.reserve()
    file.release()
    assert [path.name for path in tmp_path.iterdir()] == ["main.json"]


def test_a_text_that_utf_8_cannot_write_is_kept_as_it_is(tmp_path: Path) -> None:
    file = SecretFile(tmp_path / "main.json")
    file.store(Secrets(access_token="a", others={"id_token": "\ud800x"}))
    found = file.load()
    assert found is not None
    assert found.others == {"id_token": "\ud800x"}


def test_more_than_is_loaded_again_is_not_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = SecretFile(tmp_path / "main.json")
    monkeypatch.setattr("hermes_state.work.credentials.secret_file._MOST_BYTES", 1_000)
    with pytest.raises(InvalidInput, match="more than 1,000"):
        file.store(Secrets(access_token="a", others={"id_token": "x" * 1_000}))
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_others_can_read_is_refused_and_not_repaired(tmp_path: Path) -> None:
    file = SecretFile(tmp_path / "main.json")
    file.store(SOME)
    file.path.chmod(0o640)
    with pytest.raises(SecretFileRefused) as refused:
        file.load()
    assert str(refused.value) == f"The secret file {file.path} is not used: others can reach it (mode 0640)."
    assert refused.value.hint == (
        f"Log in anew if somebody may have read it; then `chmod 600 {file.path}`."
    )
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o640


def test_a_link_a_folder_and_what_was_not_written_here_are_refused(tmp_path: Path) -> None:
    real = SecretFile(tmp_path / "real.json")
    real.store(SOME)
    (tmp_path / "link.json").symlink_to(real.path)
    (tmp_path / "folder.json").mkdir(mode=0o700)
    os.mkfifo(tmp_path / "pipe.json", 0o600)
    (tmp_path / "other.json").write_text('{"access_token": "a-secret", "format": 9}')
    (tmp_path / "other.json").chmod(0o600)
    for name, why in (
        ("link.json", "it cannot be opened (Too many levels of symbolic links)"),
        ("other.json", "it is not what was written here"),
        ("folder.json", "it is no regular file"),
        ("pipe.json", "it is no regular file"),
    ):
        with pytest.raises(SecretFileRefused) as refused:
            SecretFile(tmp_path / name).load()
        assert str(refused.value) == f"The secret file {tmp_path / name} is not used: {why}."
        assert "a-secret" not in f"{refused.value!r}{refused.value.__cause__!r}"


def test_what_a_newer_release_put_there_stays(tmp_path: Path) -> None:
    file = SecretFile(tmp_path / "main.json")
    file.path.write_text('{"format": 1, "access_token": "a", "device_secret": {"x": 1}}')
    file.path.chmod(0o600)
    found = file.load()
    assert found is not None
    file.store(found)
    again = file.load()
    assert again is not None
    assert (again.access_token, again.others) == ("a", {"device_secret": {"x": 1}})
