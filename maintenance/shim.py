"""The `hermes` script: whose it is, and how it becomes ours again.

Invariant: the script is replaced whole or not at all, and a script that is neither ours nor hermes-agent's is left
alone unless the caller says otherwise. Both packages install a script of this name: the one installed last owns it, and
uninstalling either removes it for both.

Not for: `hermes-state`, which only we install. Reinstalling through pip was rejected: the environment may have no pip.
"""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hermes_state.errors import Refused

Owner = Literal["hermes-state", "hermes-agent", "unknown", "missing"]

SCRIPT = "hermes.exe" if sys.platform == "win32" else "hermes"
DISTRIBUTION = "hermes-state"
_OUR_MARK = b"maintenance.entry"
_PEER_MARK = b"hermes_cli"
# Longer than any script that an installer writes, short enough to read; launchers of Windows are some 100 KiB.
_READ_BYTES = 1 << 20
# What every kernel takes as a #! line.
_LONGEST_SHEBANG = 127


@dataclass(frozen=True, kw_only=True)
class ShimState:
    """What is known about the `hermes` script."""

    path: Path  # where this environment keeps the script
    owner: Owner  # whose it is
    on_path: Path | None  # the `hermes` that a shell would start, None when there is none

    @property
    def shadowed(self) -> bool:
        """Whether a shell starts another file than this environment's script."""
        return self.on_path is not None and os.path.realpath(self.on_path) != os.path.realpath(self.path)

    @property
    def sentence(self) -> str:
        """The state as one line for people."""
        said = {
            "hermes-state": f"{self.path} is the script of hermes-state",
            "hermes-agent": f"{self.path} is the script of hermes-agent, so `hermes` is its command line alone",
            "unknown": f"{self.path} belongs to neither hermes-state nor hermes-agent",
            "missing": f"there is no {self.path}",
        }[self.owner]
        return f"{said}; a shell starts {self.on_path}" if self.shadowed else said


def script_folder() -> Path:
    """The folder of this environment's scripts: where our own `hermes-state` was installed."""
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        for file in distribution(DISTRIBUTION).files or ():
            if file.name in ("hermes-state", "hermes-state.exe"):
                return Path(os.path.normpath(str(file.locate()))).parent
    except PackageNotFoundError:
        pass
    return Path(sysconfig.get_path("scripts"))


def owner_of(script: Path) -> Owner:
    """Whose a script is, by the module that it imports."""
    try:
        with script.open("rb") as source:
            text = source.read(_READ_BYTES)
    except FileNotFoundError:
        return "missing"
    except IsADirectoryError:
        return "unknown"
    if _OUR_MARK in text:
        return "hermes-state"
    return "hermes-agent" if _PEER_MARK in text else "unknown"


def shim_state(*, folder: Path | None = None, environ: Mapping[str, str] = os.environ) -> ShimState:
    """Look at the script of this environment, or of `folder`."""
    path = (folder or script_folder()) / SCRIPT
    found = shutil.which("hermes", path=environ.get("PATH", os.defpath))
    return ShimState(path=path, owner=owner_of(path), on_path=Path(found) if found else None)


def script_text(python: str) -> str:
    """The script that starts `maintenance.entry` with the interpreter `python`."""
    if len(python) + 2 <= _LONGEST_SHEBANG and not any(char.isspace() for char in python):
        lead = f"#!{python}\n"
    else:
        # A line that /bin/sh runs and Python reads as a string.
        quoted = python.replace("\\", "\\\\").replace('"', '\\"').replace("$", "\\$").replace("`", "\\`")
        lead = f"#!/bin/sh\n'''exec' \"{quoted}\" \"$0\" \"$@\"\n' '''\n"
    return (
        f"{lead}import sys\nfrom maintenance.entry import hermes\n"
        "if __name__ == '__main__':\n    sys.exit(hermes())\n"
    )


def install(state: ShimState, *, overwrite_unknown: bool = False) -> bool:
    """Put our script in place; False when it is ours already. An unknown script needs `overwrite_unknown`."""
    if state.owner == "hermes-state":
        return False
    if sys.platform == "win32":
        raise Refused(
            "On Windows the launcher is made by the installer.",
            hint="pip install --force-reinstall --no-deps hermes-state", path=state.path,
        )
    if state.path.is_dir() or (state.owner == "unknown" and not overwrite_unknown):
        raise Refused(
            f"{state.path} belongs to neither hermes-state nor hermes-agent, so it is left alone.",
            hint="Look at that file; --yes replaces it.", path=state.path,
        )
    descriptor, staged = tempfile.mkstemp(prefix=".hermes-", dir=state.path.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as out:
            out.write(script_text(sys.executable))
            out.flush()
            os.fsync(out.fileno())
        os.chmod(staged, 0o755)
        os.replace(staged, state.path)
    except BaseException:
        os.unlink(staged)
        raise
    return True
