"""The rules of the source tree, read with `ast`: who imports whom, who may use which library, how long a file may be.

Each test collects every breach, so that one run shows them all.
"""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.support.children import PROJECT

# maintenance -> cron_store -> hermes_state -> lockowners
ORDER = ("lockowners", "hermes_state", "cron_store", "maintenance")
# Each library and the places that may import it.
DOORS = {
    "apsw": ("hermes_state/engine/", "hermes_state/testing/"),
    "click": ("maintenance/",),
    "croniter": ("cron_store/schedule/expressions.py",),
    "rich": ("maintenance/output/progress.py",),
    "psutil": ("lockowners/process.py",),
    "sqlite_utils": ("maintenance/reading/",),
    "watchfiles": ("hermes_state/changes",),
    "zstandard": ("hermes_state/engine/frames.py",),
    # loaded by name when an adapter is made; the line is the rule for whoever would import them otherwise
    "tokenizers": ("hermes_state/compaction/tokens/adapters/",),
    "tiktoken": ("hermes_state/compaction/tokens/adapters/",),
    "mistral_common": ("hermes_state/compaction/tokens/adapters/",),
    "llama_cpp": ("hermes_state/compaction/tokens/adapters/", "benchmarks/"),
    "pyrage": ("maintenance/backups/sealing.py",),
}
# Modules of hermes_state that every folder of it may import.
LEAVES = (
    "engine", "clock", "errors", "coexist", "location", "owners", "leases", "tombstones", "deletions", "changes",
    "file_lock", "flushing", "spool", "shell_words", "outbox", "json_values",
)
# Folders that are one concern in two: what a session shows is computed from its messages and its generations together;
# a home has one spelling for the host and for routing.
TOGETHER = ({"conversation", "compaction"}, {"host", "routing"})
# The public face, and what is built of all the others: they put the folders together, so they may import all of them;
# nothing of hermes_state imports them.
FACE = ("store.py", "aio.py", "aio_outbox.py", "testing", "coexist.py", "gateway", "work")
MODULE_LINES, TEST_LINES = 400, 500
# Where this checkout and this interpreter happen to be: no file may say it.
PLACES_OF_ONE_MACHINE = tuple(
    place for place in {str(PROJECT), str(Path(sys.prefix)), str(Path(sys.executable).parent)}
    if place not in ("/usr", "/usr/bin", "/usr/local", "/usr/local/bin", "/")
)


def sources(*packages: str) -> list[Path]:
    """Every module below the named folders."""
    return sorted(path for package in packages for path in (PROJECT / package).rglob("*.py"))


def name_of(path: Path) -> str:
    """The path as rules and breaches name it."""
    return path.relative_to(PROJECT).as_posix()


@functools.cache
def imports(path: Path) -> tuple[tuple[str, int], ...]:
    """Every imported module with its line, imports inside functions included; `from a import b` gives a and a.b."""
    found: list[tuple[str, int]] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            found.append((module, node.lineno))
            found += ((f"{module}.{alias.name}", node.lineno) for alias in node.names)
    return tuple(found)


OURS = sources(*ORDER)


def all_imports(paths: list[Path]) -> Iterator[tuple[Path, str, str, str]]:
    """(path, imported module, its first word, how to name the breach)."""
    for path in paths:
        for module, line in imports(path):
            yield path, module, module.partition(".")[0], f"{name_of(path)}:{line} imports {module}"


def test_imports_point_one_way() -> None:
    wrong = []
    for path, _, first, breach in all_imports(OURS):
        package = path.relative_to(PROJECT).parts[0]
        allowed = ORDER[: ORDER.index(package) + 1]
        if first in (*ORDER, "tests", "benchmarks") and first not in allowed:
            wrong.append(breach)
    assert wrong == []


def test_imports_are_absolute() -> None:
    assert [breach for _, module, _, breach in all_imports(OURS) if module.startswith(".")] == []


def test_each_library_has_one_door() -> None:
    wrong = [
        breach for path, _, first, breach in all_imports(OURS)
        if first in DOORS and not name_of(path).startswith(DOORS[first])
    ]
    assert wrong == []


def test_only_the_standard_library_and_declared_libraries_are_imported() -> None:
    known = {*sys.stdlib_module_names, *ORDER, *DOORS}
    assert [breach for _, _, first, breach in all_imports(OURS) if first not in known] == []


def test_stores_do_not_import_each_others_internals() -> None:
    wrong = []
    for path, module, first, breach in all_imports(sources("hermes_state")):
        place = path.relative_to(PROJECT / "hermes_state").parts[0]
        own, words = place.removesuffix(".py"), module.split(".")
        if place in FACE or (len(words) > 2 and {own, words[1]} in TOGETHER):
            continue
        if first == "hermes_state" and len(words) > 2 and words[1] not in (own, *LEAVES):
            wrong.append(breach)
    assert wrong == []


def test_lockowners_is_loaded_by_hermes_state_only_when_it_is_needed() -> None:
    """At module level it would make every open pay for psutil."""
    wrong = [
        f"{name_of(path)}:{node.lineno}"
        for path in sources("hermes_state")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, (ast.Import, ast.ImportFrom)) and "lockowners" in ast.unparse(node)
    ]
    assert wrong == []


def test_every_module_fits_in_the_head() -> None:
    limits = [(path, MODULE_LINES) for path in [*OURS, *sources("benchmarks")]]
    limits += [(path, TEST_LINES) for path in sources("tests")]
    lengths = {name_of(path): (len(path.read_text(encoding="utf-8").splitlines()), limit) for path, limit in limits}
    assert {name: length for name, (length, limit) in lengths.items() if length > limit} == {}


def test_every_module_opens_with_what_it_is_and_what_it_is_not_for() -> None:
    wrong = []
    for path in OURS:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        text = ast.get_docstring(tree) or ""
        # The file of a command says in its help what it is; a package says it in one sentence.
        short = path.name == "__init__.py" or "commands" in path.parts
        if tree.body and (not text or (not short and "not for" not in text.lower())):
            wrong.append(name_of(path))
    assert wrong == []


def test_no_file_names_a_place_on_somebodys_machine() -> None:
    files = [*OURS, *sources("benchmarks", "tests"), PROJECT / "dev", PROJECT / ".ci" / "run"]
    files += [PROJECT / "pyproject.toml", *PROJECT.glob("*.md"), *(PROJECT / "docs").rglob("*.md")]
    wrong = [
        f"{name_of(path)} says {word}"
        for path in files
        if path != Path(__file__).resolve()
        for word in PLACES_OF_ONE_MACHINE
        if word in path.read_text(encoding="utf-8")
    ]
    assert wrong == []
