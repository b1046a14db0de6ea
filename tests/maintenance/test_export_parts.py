"""Parts of an export: file names that stay inside a folder, and masked secrets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes_state.errors import InvalidInput, Refused
from maintenance.reading.export.items import ExportRecord
from maintenance.reading.export.pages import count_pages, write_html
from maintenance.reading.export.redact import Redactor
from maintenance.reading.export.tables import count_tables, write_tables
from maintenance.reading.export.target import file_name, refuse_target
from maintenance.reading.export.writers import count_json, count_jsonl, write_json, write_jsonl


def test_names_of_sessions_never_leave_the_folder() -> None:
    assert file_name("20260820_000000_fc23ea", ".md") == "20260820_000000_fc23ea.md"
    names = {file_name(key, ".md") for key in ("../../etc/passwd", "..", "a/b", "a_b", "", "x" * 300, "b\udcff")}
    assert len(names) == 7 and all("/" not in name and not name.startswith(".") and len(name) < 140 for name in names)


def test_the_usual_secrets_are_masked_and_ordinary_text_is_not() -> None:
    redactor = Redactor()
    secrets = [
        "sk-proj-abcdefghijklmnop1234",
        "ghp_abcdefghijklmnopqrstuvwxyz",
        "xoxb-1234567890-abc",
        "AKIAABCDEFGHIJKLMNOP",
        "12345678:abcdefghijklmnopqrstuvwxyzABCDE-_12",
        "-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----",
        "eyJhbGciOiJI.eyJzdWIiOiIx.c2lnbmF0dXJl",
    ]
    for secret in secrets:
        assert redactor.apply(f"x {secret} y") == "x [redacted] y", secret
    assert redactor.apply({"a": ["Authorization: Bearer abcdefgh12", 'password="hunter2hunter2"']}) == {
        "a": ["Authorization: Bearer [redacted]", 'password="[redacted]"']
    }
    assert redactor.apply("postgres://me:topsecret1@host/db") == "postgres://me:[redacted]@host/db"
    assert redactor.count == len(secrets) + 3
    for plain in ("the token count is 12345", "ask-about-skills", "password: no", "https://example.org/a:b@c"):
        assert redactor.apply(plain) == plain


def records() -> Iterator[ExportRecord]:
    for key in ("a", "b"):
        messages = [{"id": number, "session_id": key, "role": "user", "content": "x" * 50} for number in range(3)]
        if key == "b":
            messages = [{**message, "id": message["id"] + 10} for message in messages]
        yield ExportRecord(session={"id": key}, messages=iter(messages))


@pytest.mark.parametrize(
    ("write", "count"),
    [(write_jsonl, count_jsonl), (write_json, count_json), (write_html, count_pages)],
)
def test_a_text_export_that_was_cut_short_does_not_verify(tmp_path: Path, write: Any, count: Any) -> None:
    path = tmp_path / "export"
    with path.open("w") as out:
        write(records(), out)
    assert count(path) == (2, 6)
    whole = path.read_bytes()
    # From the middle of the last message on, every cut is seen.
    path.write_bytes(whole[: whole.rindex(b"x" * 50)])
    try:
        assert count(path) == (-1, -1)
    except Refused as error:
        assert error.message == "The export export does not read back as it was written, so it was not put in place."


def test_an_sqlite_export_that_was_damaged_does_not_verify(tmp_path: Path) -> None:
    path = tmp_path / "export.db"
    write_tables(records(), path)
    assert count_tables(path) == (2, 6)
    with path.open("r+b") as out:
        out.truncate(path.stat().st_size - 4096)
    assert count_tables(path) == (-1, -1)


def test_devices_folders_and_missing_folders_are_no_target(tmp_path: Path) -> None:
    for target, message in (
        (Path("/dev/null"), "/dev/null is not an ordinary file."),
        (tmp_path, f"{tmp_path} is a folder; this format is one file."),
        (tmp_path / "no" / "x", f"The folder {tmp_path / 'no'} does not exist."),
    ):
        with pytest.raises(InvalidInput) as caught:
            refuse_target(target, tmp_path / "state.db", force=True)
        assert caught.value.message == message
