"""What every verb owes: help with an example, its access, a README row, a JSON description, exit statuses."""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import pytest

from cron_store.cron import Cron
from cron_store.schedule import parse
from hermes_state import open_store
from hermes_state.work.background import NOBODY
from maintenance.verbs import VERBS, Access
from tests.support.children import PROJECT
from tests.support.cron_peer import fixture as cron_home

DOCUMENT = PROJECT / "docs" / "cli-json.md"
STORE_OPTIONS = {"home", "profile", "db", "as_json"}
# They look beside the store and never into it; the first of them also when the store itself is gone.
WORK_WITHOUT_THE_STORE = ("sessions spool", "sessions leftovers", "sessions restore")
DO_NOT_OPEN_IT = ("locks", *WORK_WITHOUT_THE_STORE)
# Verbs that open no store of a home.
NO_STORE = (Access.HOST, Access.LOCAL)
CHANGING = [name for name, verb in VERBS.items() if verb.access not in (Access.READ, Access.HOST)]

# How to run each verb on the fixture so that it prints a document. {session} is the id of one of its sessions.
CALLS: dict[str, str] = {
    "sessions list": "",
    "sessions show": "{session}",
    "sessions stats": "",
    "sessions tail": "",
    "sessions export": "{out} --source cli",
    "sessions import": "{out} --dry-run",
    "sessions adopt": "--dry-run",
    "sessions prune": "--dry-run",
    "sessions archive": "--older-than 1 --dry-run",
    "sessions delete": "{session} --dry-run",
    "sessions rename": "{session} another title",
    "sessions pin": "{session}",
    "sessions unpin": "{session}",
    "sessions captures": "",
    "sessions recover": "--dry-run",
    "sessions scrub": "--pattern nothing-like-this --dry-run",
    "sessions leftovers": "",
    "sessions replicate": "--to {out}.replica --dry-run",
    "sessions spool": "",
    "sessions window": "a-model@localhost:9",
    "sessions compact": "{session} --window 65536 --plan",
    "sessions view": "{session}",
    "sessions repair": "--check-only",
    "sessions backup": "",
    "sessions restore": "{out} --dry-run",
    "sessions optimize": "",
    "sessions optimize-storage": "--dry-run",
    "outbox list": "",
    "outbox show": "{obligation}",
    "outbox retry": "{obligation} --dry-run",
    "outbox drop": "{obligation} --reason test --dry-run",
    "outbox stats": "",
    "instances list": "",
    "instances show": "{instance}",
    "instances add": "another --nickname Another --dry-run",
    "instances enroll": "{instance} --dry-run",
    "instances rename": "{instance} Another --dry-run",
    "instances revoke": "{instance} --reason test --dry-run",
    "instances remove": "{removable} --reason test --dry-run",
    "instances unbind": "{thread} --dry-run",
    "instances tombstones": "",
    "instances gc": "--dry-run",
    "routing list": "",
    "routing import": "--from {index} --dry-run",
    "work list": "",
    "work show": "delegation/d",
    "cron list": "",
    "cron show": "{job}",
    "cron add": "another 30m --zone UTC --dry-run",
    "cron edit": "{job} --name Another --dry-run",
    "cron pause": "{job} --reason test --dry-run",
    "cron resume": "{job} --dry-run",
    "cron remove": "{job} --reason test --dry-run",
    "cron run": "{job} --exec true",
    "cron next": "{job}",
    "cron status": "",
    "cron accept-clock": "--dry-run",
    "cron inflight": "",
    "cron history": "",
    "cron missed": "",
    "cron gc": "--dry-run",
    "cron tick": "--once --exec true",
    "cron calendar": "",
    "cron import": "--from {peer} --dry-run",
    "host status": "",
    "host decide": "--explain",
    "host migrate": "--multiplex",
    "host units": "",
    "doctor": "",
    "locks": "",
    "install-shim": "--dry-run",
}
# A file of hermes-agent is refused by them: they are run on a native store.
NATIVE_ONLY = (
    "sessions compact", "sessions view",
    *(name for name in VERBS if name.startswith(("outbox ", "instances ", "routing ", "work ", "cron "))),
)
# The words of CALLS where there is no store that they could be of.
UNKNOWN: dict[str, object] = {
    "session": "x", "obligation": 1, "instance": "x", "removable": "x", "thread": "x", "index": "x", "job": "x",
    "peer": "nowhere",
}
# In a store that an import can read, and into one that it can write.
DOCUMENT_CALLS = CALLS | {
    "sessions import": "{store} --db {out} --new --dry-run", "sessions restore": "{store} --db {out} --dry-run",
}
# Calls whose documents have other fields than the ones above.
OTHER_CALLS = [
    ("sessions prune", "--yes --allow-large"),
    ("sessions delete", "{session} --yes"),
    ("sessions export", "{out} --source cli --dry-run"),
    ("sessions archive", "--older-than 1 --yes"),
    ("sessions rename", "{session} a title --dry-run"),
    ("sessions show", "{session} --all"),
    ("sessions stats", "--sizes"),
    ("sessions optimize", "--dry-run"),
    ("sessions optimize-storage", ""),
    ("doctor", "--sizes"),
    ("sessions adopt", "--to {out}"),
    ("sessions export", "{out} --since-id 0"),
    ("sessions recover", "--output {out}"),
    ("sessions backup", "--dry-run"),
    ("sessions restore", "{store} --db {out} --yes"),
    ("sessions restore", "--drill {store}"),
    ("sessions compact", "{session} --generations"),
    ("sessions compact", "{session} --rollback 0"),
]




def command_of(name: str) -> click.Command:
    command = import_module(VERBS[name].module).command
    assert isinstance(command, click.Command)
    return command


@cache
def sections() -> dict[str, dict[str, str]]:
    """The tables of docs/cli-json.md: verb -> field -> meaning."""
    found: dict[str, dict[str, str]] = {}
    for part in re.split(r"^## ", DOCUMENT.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        title, _, body = part.partition("\n")
        rows = re.findall(r"^\| `([^`]+)` \| (.+) \|$", body, flags=re.MULTILINE)
        found[title.strip().strip("`")] = dict(rows)
    return found


@pytest.mark.parametrize("name", VERBS)
def test_help_says_what_it_changes_locks_and_leaves_with_an_example_and_exits(name: str) -> None:
    command = command_of(name)
    text = command.help or ""
    assert text.partition("\n")[0].endswith("."), "help begins with one imperative line"
    for word in ("hange", "ock", "Example", "Exit"):
        assert word in text, f"the help of {name} does not say {word!r}"
    assert f"{name}" in text.partition("Example")[2], f"the example of {name} does not use it"
    assert all(option.help for option in command.params if isinstance(option, click.Option))


@pytest.mark.parametrize("name", VERBS)
def test_every_verb_takes_the_four_options(name: str) -> None:
    options = {param.name for param in command_of(name).params}
    assert options >= ({"as_json"} if VERBS[name].access in NO_STORE else STORE_OPTIONS)


@pytest.mark.parametrize("name", CHANGING)
def test_every_verb_that_changes_something_has_a_dry_run(name: str) -> None:
    assert "dry_run" in {param.name for param in command_of(name).params}


@pytest.mark.parametrize("name", ["sessions prune", "sessions delete", "sessions archive"])
def test_verbs_that_ask_can_be_told_yes(name: str) -> None:
    assert "yes" in {param.name for param in command_of(name).params}


@pytest.mark.parametrize("name", VERBS)
def test_every_verb_has_a_row_at_the_gate(name: str) -> None:
    from maintenance.gate.rows import row_of

    row, access = row_of(name), VERBS[name].access
    assert row.exclusive is (access is Access.EXCLUSIVE)
    if access in (Access.READ, Access.HOST, Access.LOCAL):
        assert not (row.online or row.exclusive or row.forced)


def test_the_gates_exceptions_are_verbs() -> None:
    from maintenance.gate.rows import ALSO_FORCED, ALSO_ONLINE

    assert set(VERBS) >= ALSO_FORCED | ALSO_ONLINE


@pytest.mark.parametrize("name", VERBS)
def test_every_verb_has_a_readme_row(name: str) -> None:
    assert re.search(rf"^\| .*`(hermes |hermes-state )?{name}[ `]", (PROJECT / "README.md").read_text(), re.MULTILINE)


@pytest.mark.parametrize("name", VERBS)
def test_every_verb_has_a_json_description(name: str) -> None:
    assert sections().get(name), f"docs/cli-json.md has no table of fields under `## {name}`"


def test_json_descriptions_name_verbs_only() -> None:
    assert [title for title in sections() if title not in (*VERBS, "Errors", "Common objects")] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "arguments"),
    [(name, words) for name, words in (*DOCUMENT_CALLS.items(), *OTHER_CALLS) if name not in NATIVE_ONLY],
)
def test_the_document_has_the_promised_fields_and_no_others(
    name: str, arguments: str, run_cli, store_copy, tmp_path: Path
) -> None:
    store = store_copy("0.19.0")
    if name in NATIVE_ONLY:
        db = tmp_path / "native" / "state.db"
        arguments = arguments.replace("{session}", small_native_store(db))
        for word, value in others(db).items():
            arguments = arguments.replace(f"{{{word}}}", str(value))
        if "{peer}" in arguments:
            arguments = arguments.replace("{peer}", str(cron_home("0.19.0", tmp_path / "peer")))
        arguments = f"{arguments} --db {db}"
    elif "{session}" in arguments:
        listed = run_cli("sessions", "list", "--json").json
        arguments = arguments.replace("{session}", listed["sessions"][0]["id"])
    words = arguments.replace("{out}", str(tmp_path / "out.jsonl")).replace("{store}", str(store)).split()
    # An interpreter of its own: each verb imports all that it uses.
    ran = run_cli(*name.split(), *words, "--json", fresh=True)
    assert ran.exit_code in (0, 3), ran.stderr
    promised = sections()[name]
    missing, unknown = compare(ran.json, promised)
    assert (missing, unknown) == ([], [])


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, verb in VERBS.items() if verb.access not in NO_STORE])
def test_the_document_of_a_native_store_has_no_field_that_nobody_promised(
    name: str, run_cli, store_copy, tmp_path: Path
) -> None:
    if name == "sessions optimize-storage":
        return  # a layout of hermes-agent's search indexes; refused
    db = tmp_path / "native" / "state.db"
    session = small_native_store(db)
    foreign = store_copy("0.19.0")
    given = {"session": session, "out": tmp_path / "out.jsonl", "peer": tmp_path / "peer", **others(db)}
    words = CALLS[name].format(**given).split()
    if name == "cron import":
        cron_home("0.19.0", tmp_path / "peer")
    if name == "sessions import":
        words = [str(foreign), "--dry-run"]
    if name == "sessions restore":
        words = [str(foreign), "--new-store", "--dry-run"]
    ran = run_cli(*name.split(), *words, "--db", db, "--json")
    assert ran.exit_code in (0, 3), ran.stderr
    assert compare(ran.json, sections()[name])[1] == []


def small_native_store(db: Path) -> str:
    """Make a native store with one ended session; returns its id."""
    with open_store(path=db) as store:
        session = store.sessions.create(source="cli", title="Plans").id
        store.messages.append(session, role="user", content="How large is the moon?")
        store.sessions.end(session, "cli_close")
    return session


def others(db: Path) -> dict[str, object]:
    """An obligation, gateway instances and an index beside the store, under the words for them in CALLS."""
    with open_store(path=db) as store:
        owed = store.outbox.append(
            dedupe_id="a reply", kind="final", transport="telegram", payload={"text": "hi"}, policy="at_least_once"
        ).obligation.id
        store.work.delegations.dispatch("d", store.routing.home, task={"goal": "look"}, tell=NOBODY)
        minted = store.instances.enroll("gateway", nickname="Gateway", actor="test")
        store.instances.redeem(minted.token, actor="test")
        store.instances.bind("talk", "gateway", "session")
        store.instances.add("typo", nickname="Typo", actor="test")
        for gone in ("gone", "gone too"):
            store.instances.enroll(gone, nickname=gone, actor="test")
            store.instances.revoke(gone, actor="test", reason="test")
            store.instances.remove(gone, actor="test", reason="test")
        Cron(store).add("brief", parse("every 30m", zone="UTC", now=0))
    index = db.with_name("index.json")
    index.write_text("{}")
    return {
        "obligation": owed, "instance": "gateway", "removable": "typo", "thread": "talk", "index": index,
        "job": "brief",
    }


def compare(document: Any, promised: dict[str, str]) -> tuple[list[str], list[str]]:
    """Promised fields that are not there (but for `Only …` ones), and top-level fields that nobody promised."""
    missing = [
        field for field, meaning in promised.items()
        if not meaning.startswith("Only ") and not present(document, re.findall(r"[\w-]+|\[\]", field))
    ]
    return missing, [key for key in document if not any(re.match(rf"{re.escape(key)}\b", field) for field in promised)]


def present(document: Any, path: list[str]) -> bool:
    """Whether the path leads somewhere. Empty lists and nulls on the way say nothing, so they pass."""
    for step in path:
        if document is None or document == [] or document == {}:
            return True
        if step == "[]":
            document = document[0]
        elif not isinstance(document, dict) or step not in document:
            return False
        else:
            document = document[step]
    return True


@pytest.mark.slow
@pytest.mark.parametrize("name", VERBS)
def test_wrong_options_exit_2_with_one_json_object(name: str, run_cli) -> None:
    ran = run_cli(*name.split(), "--no-such-option", "--json")
    assert (ran.exit_code, ran.stdout) == (2, "")
    assert ran.json_error["error"]["code"] == "usage"


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, verb in VERBS.items() if verb.access not in NO_STORE])
def test_a_missing_store_exits_1_and_creates_nothing(name: str, run_cli, tmp_path: Path) -> None:
    if name in WORK_WITHOUT_THE_STORE:
        return
    missing = tmp_path / "empty" / "state.db"
    missing.parent.mkdir()
    given = UNKNOWN | {"out": tmp_path / "out.jsonl"}
    words = [word.format(**given) for word in CALLS[name].split()]
    ran = run_cli(*name.split(), *words, "--db", missing, "--json")
    assert (ran.exit_code, ran.stdout) == (1, "")
    error = ran.json_error["error"]
    assert (error["code"], error["message"]) == ("not_found", f"There is no store at {missing}.")
    assert list(missing.parent.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, verb in VERBS.items() if verb.access not in NO_STORE])
def test_a_file_that_is_no_store_exits_65(name: str, run_cli, tmp_path: Path) -> None:
    if name in DO_NOT_OPEN_IT:
        return
    text = tmp_path / "notes.db"
    text.write_text("not a database at all, but long enough to look at\n" * 100)
    given = UNKNOWN | {"out": tmp_path / "out.jsonl"}
    words = [word.format(**given) for word in CALLS[name].split()]
    ran = run_cli(*name.split(), *words, "--db", text)
    assert ran.exit_code == 65, (ran.stdout, ran.stderr)
    assert text.read_text().startswith("not a database")
