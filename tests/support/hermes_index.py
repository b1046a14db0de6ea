"""The session index that hermes-agent 0.19.0 itself writes, kept as a fixture.

Run as a program it makes the file: `HERMES_PEERS=... python -m tests.support.hermes_index`, by hand, never over a file
that is there. What hermes-agent cannot be asked for (an entry from a later release, a broken one) tests add themselves.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support.peers import find

FILE = Path(__file__).resolve().parents[1] / "fixtures" / "hermes-agent" / "index-0.19.0.json"
# Runs in hermes-agent's Python: a gateway that serves several profiles, and what happened to its chats.
WRITE = """
import pathlib, sys
from gateway.config import GatewayConfig, Platform
from gateway.session import SessionSource, SessionStore

config = GatewayConfig()
config.multiplex_profiles = True
store = SessionStore(pathlib.Path(sys.argv[1]) / "sessions", config)


def chat(platform, kind, chat_id, **more):
    source = SessionSource(platform=Platform(platform), chat_type=kind, chat_id=chat_id, **more)
    return store.get_or_create_session(source)


chat("telegram", "dm", "1", user_id="1", user_name="ann", chat_name="Ann")
entry = chat("telegram", "group", "-100", user_id="7", user_name="bob", thread_id="5", chat_name="Team")
store.set_model_override(entry.session_key, {"model": "m", "provider": "p", "api_key": "sk-secret", "base_url": ""})
chat("telegram", "group", "-200", user_id="7", user_id_alt="alt-7")
chat("discord", "thread", "300", user_id="8", scope_id="900", parent_chat_id="200", thread_id="300", message_id="5")
store.suspend_session(chat("telegram", "dm", "2", user_id="2").session_key)
store.mark_resume_pending(chat("telegram", "dm", "3", user_id="3").session_key, "restart_timeout")
store.set_expiry_finalized(chat("telegram", "dm", "4", user_id="4"))
store.reset_session(chat("telegram", "dm", "5", user_id="5").session_key)
chat("whatsapp", "dm", "60123456789@s.whatsapp.net", user_id="60123456789@s.whatsapp.net")
chat("matrix", "group", "!room:server", user_id="@ann:server")
chat("telegram", "dm", "6", user_id="6", profile="work")
"""


def make(target: Path) -> None:
    """Have hermes-agent write the file."""
    peer = find("0.19.0")
    if peer is None or target.exists():
        sys.exit("0.19.0 is not there" if peer is None else f"{target} is there already")
    with tempfile.TemporaryDirectory() as home:
        subprocess.run(
            [peer.python, "-c", WRITE, home], env=peer.environment(Path(home)), check=True, stdin=subprocess.DEVNULL
        )
        shutil.copyfile(Path(home) / "sessions" / "sessions.json", target)


if __name__ == "__main__":
    make(FILE)
    print(FILE)
