"""Who ticks which homes, as each process says: rows of the dead go, rows of others are never believed or touched."""

from __future__ import annotations

import re
from pathlib import Path

from hermes_state.clock import FakeClock
from hermes_state.host import open_host
from hermes_state.host.layout import HOST
from hermes_state.host.ticking import Ticking, TickStanding, record, retract, tickers
from hermes_state.owners import Presence
from tests.hermes_state.host.hosts import folder_of


def test_the_check_holds_the_words_of_the_code() -> None:
    line = HOST.sql[HOST.sql.index("standing TEXT NOT NULL CHECK") :].partition("\n")[0]
    assert set(re.findall(r"'(\w+)'", line)) == set(TickStanding)


def test_a_process_says_all_anew_and_the_dead_are_forgotten(tmp_path: Path, fake_clock: FakeClock) -> None:
    with open_host(folder_of(tmp_path), clock=fake_clock) as host:
        first, second = Presence(host.folder, clock=fake_clock), Presence(host.folder, clock=fake_clock)
        rows = [
            Ticking(home=f"/h/{name}", standing=TickStanding.TICKS, code_sha="1" * 40, how="start it", since=5.0)
            for name in "ab"
        ]
        record(host.core, first, rows)
        assert [seen.ticking for seen in tickers(host.core)] == rows
        record(host.core, first, rows[:1])
        fake_clock.advance(121)
        record(host.core, second, [Ticking(home="/h/b", standing=TickStanding.WAITS)])
        seen = {one.ticking.home: (one.quiet_seconds, one.is_fresh, one.may_live) for one in tickers(host.core)}
        assert seen == {"/h/a": (121.0, False, True), "/h/b": (0.0, True, True)}
        assert [one.ticking.home for one in tickers(host.core, "/h/b")] == ["/h/b"]
        first.end()
        [dead] = tickers(host.core, "/h/a")
        assert not dead.may_live
        record(host.core, second, [])
        assert tickers(host.core) == []
        record(host.core, second, rows)
        retract(host.core, second)
        assert tickers(host.core) == []
        second.end()


def test_rows_of_another_user_or_of_another_clock_are_never_fresh(tmp_path: Path, fake_clock: FakeClock) -> None:
    with open_host(folder_of(tmp_path), clock=fake_clock) as host:
        presence = Presence(host.folder, clock=fake_clock)
        record(host.core, presence, [Ticking(home=f"/h/{name}", standing=TickStanding.TICKS) for name in "abc"])
        host.core.write(lambda tx: tx.execute("UPDATE ticking SET uid = uid + 1 WHERE home = '/h/a'"))
        host.core.write(lambda tx: tx.execute("UPDATE ticking SET boot_id = 'another' WHERE home = '/h/b'"))
        assert [(one.is_ours, one.quiet_seconds, one.is_fresh) for one in tickers(host.core)] == [
            (False, 0.0, False), (True, None, False), (True, 0.0, True),
        ]
        presence.end()
