"""The audit hook that guards every other test is itself tested here."""

from __future__ import annotations

import os
import shutil
import sqlite3
import types
from pathlib import Path

import pytest


@pytest.fixture
def guarded(store_copy, live_store_audit_hook) -> Path:
    path = store_copy("0.19.0")
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).touch()
    live_store_audit_hook.protect(path)
    yield path
    live_store_audit_hook.breaches.clear()


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm"])
def test_open_of_a_protected_store_is_refused_and_recorded(guarded: Path, suffix: str, live_store_audit_hook) -> None:
    target = f"{guarded}{suffix}"
    with pytest.raises(live_store_audit_hook.LiveStoreOpened):
        Path(target).read_bytes()
    with pytest.raises(live_store_audit_hook.LiveStoreOpened):
        os.open(target, os.O_RDONLY)
    assert live_store_audit_hook.breaches == [f"open of {target} in process {os.getpid()}"] * 2


def test_standard_sqlite3_and_copies_are_refused(guarded: Path, live_store_audit_hook, tmp_path: Path) -> None:
    for attempt in (
        lambda: sqlite3.connect(guarded),
        lambda: sqlite3.connect(f"file:{guarded}?mode=ro", uri=True),
        lambda: shutil.copyfile(guarded, tmp_path / "copy"),
        lambda: shutil.copyfile(tmp_path / "nothing", guarded),
    ):
        with pytest.raises(live_store_audit_hook.LiveStoreOpened):
            attempt()


def test_a_link_to_the_store_is_the_store(guarded: Path, live_store_audit_hook, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(guarded)
    (tmp_path / "walink").symlink_to(f"{guarded}-wal")
    for name in ("link", "walink"):
        with pytest.raises(live_store_audit_hook.LiveStoreOpened):
            (tmp_path / name).read_bytes()


def test_stat_and_o_path_are_safe(guarded: Path) -> None:
    os.stat(guarded)
    os.close(os.open(guarded, os.O_PATH))


def test_what_the_engine_has_open_counts_without_being_named(
    store_copy, live_store_audit_hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = store_copy("0.19.0")
    seen = os.stat(path)
    engine = types.ModuleType("hermes_state.engine.descriptors")
    engine.open_stores = lambda: frozenset({(seen.st_dev, seen.st_ino)})  # type: ignore[attr-defined]
    monkeypatch.setitem(__import__("sys").modules, "hermes_state.engine.descriptors", engine)
    with pytest.raises(live_store_audit_hook.LiveStoreOpened):
        path.read_bytes()
    live_store_audit_hook.breaches.clear()


def test_a_child_is_audited_too(child, store_copy, _audit_report: Path) -> None:
    path = store_copy("0.19.0")
    breach = child(
        """
        import sys, gates, live_store_audit
        live_store_audit.protect(sys.argv[1])
        try:
            open(sys.argv[1], "rb")
        except AssertionError:
            gates.reach("refused")
        """,
        path,
    )
    breach.wait_for("refused")
    breach.finish()
    lines = _audit_report.read_text().splitlines()
    assert lines[-1] == f"open of {path} in process {breach.pid}"
    with _audit_report.open("r+") as report:
        report.truncate(0)


def test_a_child_stops_at_its_gates(child) -> None:
    other = child(
        """
        import gates
        gates.reach("ready", "42")
        print("said", gates.wait("go"))
        """
    )
    assert other.wait_for("ready") == "42"
    other.release("go", "yes")
    assert other.finish() == "said yes\n"


def test_a_killed_child_is_reported_with_its_stderr(child) -> None:
    other = child("import sys; sys.exit('no luck')")
    with pytest.raises(AssertionError, match="no luck"):
        other.wait_for("ready")
