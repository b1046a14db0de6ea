"""One name, two packages: `hermes_state` is also a module of hermes-agent, and programs import its names from us.

Invariant: a name that is not ours is read from, assigned to and deleted on hermes-agent's module, which is loaded once,
when such a name is first used, and which behaves as if it had been imported: `__name__`, loggers, pickles, circular
imports, two threads at once. A store that our door has open is refused to its `SessionDB` and
`apply_wal_with_fallback`: two SQLite libraries on one file in one process lose commits without a word.

Not for: changing what hermes-agent does with its own files, nor its connections that do not go through those two names
(the door refuses those from its side). Executing its source in our own namespace was rejected: its names would replace
our submodules. A lock of our own around loading was rejected too: only the import system's locks know how to break the
deadlock of two modules that wait for each other.
"""

from __future__ import annotations

import functools
import importlib
import importlib.machinery
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

NAME = "hermes_state"
PEER_DISTRIBUTION = "hermes-agent"
PEER_FILE = "hermes_state.py"
_PEER_KEY = f"{NAME}._peer"  # where the import system knows hermes-agent's module, beside our own under NAME
# Names of our public interface and the submodule that has them, loaded at first use.
OWN_NAMES = {"open_store": "store", "Store": "store", "open_spool": "store", "open_home": "store"}
_FOLDER = os.path.dirname(os.path.abspath(__file__))


class StateModule(ModuleType):
    """The class of our package module: ours first, then hermes-agent's."""

    def __getattr__(self, name: str) -> Any:
        if name in OWN_NAMES:
            return getattr(importlib.import_module(f"{NAME}.{OWN_NAMES[name]}"), name)
        if name in own_submodules():
            return importlib.import_module(f"{NAME}.{name}")
        # Tools probe modules for dunder names; that alone must not load hermes-agent. `import *` asks for __all__.
        if name != "__all__" and _is_dunder(name):
            raise AttributeError(f"module {NAME!r} has no attribute {name!r}")
        peer = load_peer()
        if peer is None:
            if name == "__all__":
                raise AttributeError(f"module {NAME!r} has no attribute {name!r}")
            raise AttributeError(f"module {NAME!r} has no attribute {name!r}{_belongs_elsewhere()}")
        if name == "__all__":
            return _public_names(self, peer)
        try:
            return getattr(peer, name)
        except AttributeError:
            raise AttributeError(f"module {NAME!r} has no attribute {name!r}, nor has {peer.__file__}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        peer = None if _is_ours(self, name) else load_peer()
        if peer is None:
            super().__setattr__(name, value)
        else:
            setattr(peer, name, value)

    def __delattr__(self, name: str) -> None:
        peer = None if name in self.__dict__ or _is_ours(self, name) else load_peer()
        if peer is None:
            super().__delattr__(name)
        else:
            delattr(peer, name)

    def __dir__(self) -> list[str]:
        peer = load_peer()
        return sorted({*self.__dict__, *OWN_NAMES, *own_submodules(), *(vars(peer) if peer is not None else ())})


def install(name: str) -> None:
    """Make the module `name` forward, once."""
    if not any(isinstance(finder, PeerFinder) for finder in sys.meta_path):
        sys.meta_path.append(PeerFinder())
    sys.modules[name].__class__ = StateModule


def load_peer() -> ModuleType | None:
    """hermes-agent's module, loaded on first use; None when hermes-agent is not installed beside us.

    While it is being loaded, the thread that loads it gets the part that exists, as in any circular import.
    """
    loaded = sys.modules.get(_PEER_KEY)
    if loaded is not None and not getattr(loaded.__spec__, "_initializing", False):
        return loaded
    if loaded is None and peer_file() is None:
        return None
    # Not `importlib.import_module`: for a module that another thread is loading it takes the module's lock without the
    # way out of a deadlock that the statement has, so of two modules that wait for each other one would fail.
    import hermes_state._peer  # type: ignore[import-not-found]  # noqa: F401

    return sys.modules[_PEER_KEY]


def peer_file() -> Path | None:
    """The file of hermes-agent's module, or None."""
    for finder in sys.meta_path:
        if isinstance(finder, PeerFinder):
            return finder.peer_file()
    return None


@functools.cache
def own_submodules() -> frozenset[str]:
    """The names of our own modules and folders; they stay ours even when hermes-agent uses the same word."""
    with os.scandir(_FOLDER) as entries:
        names = {entry.name.partition(".")[0] for entry in entries if not entry.name.startswith(("_", "."))}
    return frozenset(names - {"py"})


def _is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def _is_ours(module: ModuleType, name: str) -> bool:
    return _is_dunder(name) or name in OWN_NAMES or name in own_submodules() or name in ("annotations", "_peer")


def _public_names(own: ModuleType, peer: ModuleType) -> list[str]:
    exported = getattr(peer, "__all__", None)
    names = exported if exported is not None else [name for name in vars(peer) if not name.startswith("_")]
    return sorted({*names, *(name for name in vars(own) if name in own_submodules())})


def _belongs_elsewhere() -> str:
    return f": it is not a name of hermes-state, and {PEER_DISTRIBUTION}, which may provide it, is not installed here"


class PeerFinder:
    """The last finder on `sys.meta_path`: knows hermes-agent's module, and explains names that nobody provides.

    It has a finder's methods without being an `importlib.abc.MetaPathFinder`: importing that class costs 10 ms.
    """

    def __init__(self) -> None:
        self._known: tuple[tuple[str, ...], Path | None] | None = None

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname == _PEER_KEY:
            file = self.peer_file()
            if file is None:
                return None
            loader = PeerLoader(NAME, str(file))
            return importlib.machinery.ModuleSpec(fullname, loader, origin=str(file))
        parent, _, name = fullname.rpartition(".")
        # `from hermes_state import SessionDB` comes here after the attribute was not found. Named after the missing
        # package, the error passes through the import system as it is.
        if parent == NAME and not _is_dunder(name) and self.peer_file() is None:
            raise ModuleNotFoundError(
                f"cannot import name {name!r} from {NAME!r}{_belongs_elsewhere()}", name=PEER_DISTRIBUTION
            )
        return None

    def invalidate_caches(self) -> None:
        self._known = None

    def peer_file(self) -> Path | None:
        """Looked for once per state of `sys.path`."""
        path = tuple(sys.path)
        if self._known is None or self._known[0] != path:
            self._known = (path, next(_candidates(), None))
        return self._known[1]


def _candidates() -> Iterator[Path]:
    """Where hermes-agent's module may be: its distribution, the path, an editable install's finder."""
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        file = Path(str(distribution(PEER_DISTRIBUTION).locate_file(PEER_FILE)))
        if file.is_file():
            yield file
    except PackageNotFoundError:
        pass
    for folder in sys.path:
        file = Path(folder or os.curdir) / PEER_FILE
        if file.is_file():
            yield file.absolute()
    for finder in sys.meta_path:
        if isinstance(finder, PeerFinder) or not hasattr(finder, "find_spec"):
            continue
        spec = finder.find_spec(NAME, None)
        if spec is not None and spec.origin and os.path.basename(spec.origin) == PEER_FILE:
            yield Path(spec.origin)


class PeerLoader(importlib.machinery.SourceFileLoader):
    """Loads hermes-agent's file as a module that believes to be the top-level `hermes_state`."""

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        module = ModuleType(NAME)
        module.__package__ = ""
        module.__file__ = self.path
        module.__loader__ = self
        return module

    def exec_module(self, module: ModuleType) -> None:
        code = self.get_code(NAME)
        assert code is not None  # a source file always has code; only extension modules have none
        exec(code, module.__dict__)
        guard(module)


def guard(peer: ModuleType) -> None:
    """Make hermes-agent's two ways to open a store refuse what our door has open.

    `SessionDB.__init__` is changed in place, so the class stays the same object for subclasses, pickles and isinstance.
    """
    sessions = getattr(peer, "SessionDB", None)
    if isinstance(sessions, type):
        sessions.__init__ = _guarded_init(sessions.__init__, peer)  # type: ignore[misc]
    set_wal = getattr(peer, "apply_wal_with_fallback", None)
    if callable(set_wal):
        peer.apply_wal_with_fallback = _guarded_wal(set_wal)  # type: ignore[attr-defined]


def _guarded_init(original: Callable[..., None], peer: ModuleType) -> Callable[..., None]:
    @functools.wraps(original)
    def init(self: Any, *args: Any, **options: Any) -> None:
        # The parameter's name differs between releases, so every argument that can be a path counts as one.
        said = (*args, *options.values())
        paths = [value for value in said if isinstance(value, (str, bytes, os.PathLike))]
        for path in paths or filter(None, [getattr(peer, "DEFAULT_DB_PATH", None)]):
            refuse_second_library(path, "SessionDB")
        original(self, *args, **options)

    return init


def _guarded_wal(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def apply(conn: Any, *args: Any, **options: Any) -> Any:
        if _engine_is_loaded():
            for row in conn.execute("PRAGMA database_list").fetchall():
                if row[2]:
                    refuse_second_library(row[2], "apply_wal_with_fallback")
        return original(conn, *args, **options)

    return apply


def _engine_is_loaded() -> bool:
    return f"{NAME}.engine.descriptors" in sys.modules


def refuse_second_library(path: str | bytes | os.PathLike[Any], who: str) -> None:
    """Raise `SecondSQLite` when this process has `path` open through our door."""
    # The engine that was never imported has nothing open; importing it here would load APSW for nothing.
    if not _engine_is_loaded():
        return
    from hermes_state.engine.descriptors import is_open
    from hermes_state.errors import SecondSQLite

    name = os.fsdecode(path)
    if is_open(name):
        raise SecondSQLite(
            f"{name} is open in this process through hermes-state, so hermes-agent's {who} may not open it: two SQLite "
            "libraries on one file in one process cancel each other's locks, and commits are lost.",
            hint="Close the hermes-state store first, or use one of the two in a process of its own.",
            path=Path(name), descriptors=(),
        )
