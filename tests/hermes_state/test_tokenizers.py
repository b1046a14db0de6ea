"""Indexes of hermes-agent files are read the way the release that wrote them did, and nothing else changes."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_state.engine import tokenizers
from hermes_state.engine.tokenizers import NulRule, register

FIXTURES = Path(__file__).parents[1] / "fixtures" / "hermes-agent"
RELEASES = ("0.13.0", "0.15.2", "0.16.0", "0.17.0", "0.18.2", "0.19.0")
OPTIONS = ([], ["case_sensitive", "1"], ["case_sensitive", "0"], ["remove_diacritics", "1"])


@pytest.fixture
def cutting() -> Iterator[apsw.Connection]:
    connection = apsw.Connection(":memory:")
    register(connection, NulRule.CUT)
    yield connection
    connection.close()


def tokens(connection: apsw.Connection, name: str, options: list[str], text: bytes, flags: int) -> list[object]:
    tokenizer = connection.fts5_tokenizer(name, options)
    if flags & apsw.FTS5_TOKENIZE_AUX:
        return list(tokenizer(text, flags, None))
    return list(tokenizer(text, flags, None, include_offsets=False, include_colocated=False))


def index_check(path: Path, rule: NulRule) -> str:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    register(connection, rule)
    try:
        return str(connection.execute("PRAGMA quick_check('messages_fts_trigram')").fetchall()[0][0])
    finally:
        connection.close()


@pytest.mark.parametrize("release", RELEASES)
def test_trigram_index_of_each_release_checks_ok_when_text_is_cut_at_the_first_nul(
    release: str, tmp_path: Path
) -> None:
    path = tmp_path / "state.db"
    path.write_bytes(gzip.decompress((FIXTURES / f"state-{release}.db.gz").read_bytes()))
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    rows_with_nul = connection.execute("SELECT count(*) FROM messages WHERE instr(content, char(0))").fetchall()[0][0]
    connection.close()

    assert index_check(path, NulRule.CUT) == "ok"
    native = index_check(path, NulRule.NATIVE)
    if rows_with_nul:
        assert native == "malformed inverted index for FTS5 table main.messages_fts_trigram"
    else:
        assert native == "ok"


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: " ".join(options) or "no options")
@pytest.mark.parametrize("flags", [apsw.FTS5_TOKENIZE_DOCUMENT, apsw.FTS5_TOKENIZE_AUX], ids=["index", "highlight"])
def test_text_without_nul_gives_the_builtin_tokens(cutting: apsw.Connection, options: list[str], flags: int) -> None:
    plain = apsw.Connection(":memory:")

    @given(text=st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=60))
    @settings(max_examples=60, deadline=None, derandomize=True)
    def same(text: str) -> None:
        raw = text.encode()
        assert tokens(cutting, "trigram", options, raw, flags) == tokens(plain, "trigram", options, raw, flags)

    same()
    plain.close()


def test_text_with_nul_gives_the_builtin_tokens_of_what_stands_before_it(cutting: apsw.Connection) -> None:
    assert tokens(cutting, "trigram", [], b"abcd\0efgh", apsw.FTS5_TOKENIZE_DOCUMENT) == ["abc", "bcd"]
    assert tokens(cutting, "trigram", [], b"\0json:[1]", apsw.FTS5_TOKENIZE_DOCUMENT) == []


def test_bad_utf8_gives_the_builtin_tokens(cutting: apsw.Connection) -> None:
    plain = apsw.Connection(":memory:")
    raw = b"ab\xff\xfecd\xed\xa0\x80ef\xc3"
    document = apsw.FTS5_TOKENIZE_DOCUMENT
    assert tokens(cutting, "trigram", [], raw, document) == tokens(plain, "trigram", [], raw, document)
    plain.close()


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: " ".join(options) or "no options")
def test_a_long_text_cut_into_pieces_gives_the_tokens_of_the_whole(
    cutting: apsw.Connection, options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokenizers, "PIECE_BYTES", 16)
    plain = apsw.Connection(":memory:")
    text = "Ünïcode text e\u0301\u0301 with 日本語の長い文 and some ASCII, then 한국어 " * 4
    document = apsw.FTS5_TOKENIZE_DOCUMENT
    assert tokens(cutting, "trigram", options, text.encode(), document) == tokens(
        plain, "trigram", options, text.encode(), document
    )
    plain.close()


def test_options_that_the_builtin_does_not_know_are_refused(cutting: apsw.Connection) -> None:
    with pytest.raises(ValueError, match=r"^the trigram tokenizer has no option 'case_sensitive' with the value '5'$"):
        cutting.fts5_tokenizer("trigram", ["case_sensitive", "5"])
    with pytest.raises(ValueError, match=r"^the trigram option 'case_sensitive' has no value$"):
        cutting.fts5_tokenizer("trigram", ["case_sensitive"])
    with pytest.raises(ValueError, match=r"^a trigram index cannot be case sensitive and remove diacritics at once$"):
        cutting.fts5_tokenizer("trigram", ["case_sensitive", "1", "remove_diacritics", "1"])


def test_highlight_marks_the_right_letters_under_the_cutting_rule(cutting: apsw.Connection) -> None:
    cutting.execute("CREATE VIRTUAL TABLE notes USING fts5(body, tokenize='trigram')").fetchall()
    cutting.execute("INSERT INTO notes VALUES (?)", ("größer als gedacht",)).fetchall()
    hit = cutting.execute("SELECT highlight(notes, 0, '[', ']') FROM notes('gedacht')").fetchall()
    assert hit == [("größer als [gedacht]",)]


def test_cjk_runs_become_pairs_and_the_rest_stays_as_unicode61_leaves_it(cutting: apsw.Connection) -> None:
    found = tokens(cutting, "cjk_unicode61", [], "Größe 你好世界abc 日 한국어!".encode(), apsw.FTS5_TOKENIZE_AUX)
    assert found == [
        (0, 7, "große"),
        (8, 14, "你好"),
        (11, 17, "好世"),
        (14, 20, "世界"),
        (20, 23, "abc"),
        (24, 27, "日"),
        (28, 34, "한국"),
        (31, 37, "국어"),
    ]


def test_an_index_with_the_cjk_tokenizer_finds_two_characters_inside_a_run(cutting: apsw.Connection) -> None:
    cutting.execute("CREATE VIRTUAL TABLE notes USING fts5(body, tokenize='cjk_unicode61')").fetchall()
    cutting.execute("INSERT INTO notes VALUES (?)", ("東京都庁の天気",)).fetchall()
    assert cutting.execute("SELECT highlight(notes, 0, '[', ']') FROM notes('都庁')").fetchall() == [
        ("東京[都庁]の天気",)
    ]
    assert cutting.execute("PRAGMA quick_check('notes')").fetchall() == [("ok",)]


def test_cjk_options_go_to_unicode61(cutting: apsw.Connection) -> None:
    kept = tokens(cutting, "cjk_unicode61", ["remove_diacritics", "0"], "Ä日本".encode(), apsw.FTS5_TOKENIZE_AUX)
    assert kept == [(0, 2, "ä"), (2, 8, "日本")]


def test_a_file_that_is_no_database_is_reported_as_such_and_not_as_missing_full_text_search(tmp_path: Path) -> None:
    (tmp_path / "state.db").write_bytes(b"\0" * 8192)
    connection = apsw.Connection(str(tmp_path / "state.db"), flags=apsw.SQLITE_OPEN_READONLY)
    with pytest.raises(apsw.NotADBError):
        register(connection, NulRule.CUT)
    connection.close()
