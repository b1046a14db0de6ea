"""Create one environment per hermes-agent release, from the package index, for the campaigns against real releases.

Invariant: an environment that is already complete is left alone; one that failed half-way is removed, so that a
directory that exists can be used.

Not for: our own dependencies. Running it by hand: `python tests/campaigns/install_peers.py DIRECTORY`, then
`HERMES_PEERS=DIRECTORY ./dev releases`.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.support.peers import VERSIONS


def install(directory: Path, version: str) -> None:
    """One environment with hermes-agent of that version."""
    target = directory / version
    if (target / "bin" / "hermes").exists():
        print(f"{version}  already there")
        return
    try:
        subprocess.run([sys.executable, "-m", "venv", str(target)], check=True)
        python = target / "bin" / "python"
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", f"hermes-agent=={version}"], check=True)
    except BaseException:
        shutil.rmtree(target, ignore_errors=True)
        raise
    print(f"{version}  installed")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("usage: install_peers.py DIRECTORY")
    root = Path(sys.argv[1])
    root.mkdir(parents=True, exist_ok=True)
    for release in VERSIONS:
        install(root, release)
