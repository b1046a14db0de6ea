"""One SQLite library in our processes: the standard library's module is nowhere in the packages and is never loaded."""

from __future__ import annotations

import ast

from tests.test_architecture import OURS, all_imports, name_of

SECOND_LIBRARIES = ("sqlite3", "pysqlite3", "aiosqlite")


def test_no_module_imports_the_standard_librarys_sqlite() -> None:
    assert [breach for _, _, first, breach in all_imports(OURS) if first in SECOND_LIBRARIES] == []


def test_only_the_engine_and_what_tests_it_use_apsw() -> None:
    wrong = [
        f"{name_of(path)}:{node.lineno}"
        for path in OURS
        if not {"engine", "testing"} & set(path.parts)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Name) and node.id == "apsw"
    ]
    assert wrong == []


def test_importing_every_module_loads_no_second_library(child) -> None:
    code = f"""
    import importlib, pkgutil, sys
    for package in ("lockowners", "hermes_state", "cron_store", "maintenance"):
        found = importlib.import_module(package)
        for module in pkgutil.walk_packages(found.__path__, package + "."):
            importlib.import_module(module.name)
    print([name for name in {(*SECOND_LIBRARIES, "sqlite_utils")!r} if name in sys.modules])
    """
    assert child(code).finish() == "[]\n"


def test_importing_hermes_state_is_light(child) -> None:
    heavy = ("click", "rich", "psutil", "watchfiles", "sqlite3", "sqlite_utils", "apsw", "lockowners")
    code = f"import sys, hermes_state; print([name for name in {heavy!r} if name in sys.modules])"
    assert child(code).finish() == "[]\n"
