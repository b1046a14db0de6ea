"""Accidents in any order: a seeded sequence of steps that nobody thought of.

Invariant: only rows that our engine acknowledged are asked for, since other programs lose their own in such company.
The others keep to two rules without which no engine could answer for its rows: they do not drop their own locks inside
a transaction, and a connection that an unlink made stale writes no more (a stale connection's checkpoint goes over
pages whatever anybody does; the scenes about stale holders test what our engine does against it). An unlink and an
accident with our own locks do not meet in one play, and at the unlink one of ours has the store open: what only others
still hold is lost with them.

Not for: a certain accident; those are scenes of their own.
"""

from __future__ import annotations

import random

from tests.campaigns.scenes import scene
from tests.campaigns.stage import Player, Stage

STEPS = 30
SIDECARS = (("-wal",), ("-shm",), ("-wal", "-shm"))
FILES = ("", "-wal", "-shm")
OURS = ("put", "put", "put", "transaction", "read", "raw", "touch", "second", "twin", "checkpoint", "again", "reopen")
THEIRS = ("put", "put", "put", "transaction", "read", "raw", "again")


class Hand:
    """One player with what the play has to remember of it."""

    def __init__(self, player: Player) -> None:
        self.player = player
        self.inside = False  # a transaction is open
        self.second = False  # a second library is open in its process
        self.twin = False  # its second store object is open
        self.may_lose_locks = True  # the play lets other code and other libraries into its process
        self.stale = False  # a plain connection that an unlink left behind

    def step(self, chance: random.Random) -> None:
        """One thing that this player does."""
        player, ours = self.player, self.player.kind == "ours"
        if self.inside and chance.random() < 0.5:
            return self.finish(chance)
        what = "again" if self.stale else chance.choice(OURS if ours else THEIRS)
        if what in ("touch", "second", "raw") and ours and not self.may_lose_locks:
            return None
        if what == "put" and not self.inside:
            player.put(chance.randint(1, 3))
        elif what == "transaction" and not self.inside:
            player.do("begin")
            player.insert_big() if chance.random() < 0.1 else player.insert()
            self.inside = True
        elif what == "raw" and (ours or not self.inside):
            player.do("raw", chance.choice(FILES))
        elif what == "touch":
            player.do("second_touch")
        elif what == "second":
            self._second(chance)
        elif what == "twin":
            if not self.twin:
                self.twin = player.do("twin_open").get("ok", False)
            elif chance.random() < 0.7:
                player.twin_put()
            else:
                self.twin = False
                player.do("twin_do", "close")
        elif what == "again" and not self.inside:
            player.do("close")
            player.do("open")
            self.stale = False
        elif what in ("read", "checkpoint", "reopen") and not self.inside:
            player.do(what)
        return None

    def _second(self, chance: random.Random) -> None:
        """The other library in our process comes, writes or goes."""
        if not self.second:
            self.second = self.player.do("second_open").get("ok", False)
        elif chance.random() < 0.5:
            self.player.second_put()
        else:
            self.second = False
            self.player.do("second_do", "close")

    def finish(self, chance: random.Random) -> None:
        """End the open transaction."""
        self.inside = False
        self.player.do("commit" if chance.random() < 0.8 else "rollback")

    def grow_stale(self) -> None:
        """Files were unlinked under it: a plain connection gives up what it had begun."""
        if self.player.kind != "ours":
            self.stale = True
            if self.inside:
                self.inside = False
                self.player.do("rollback")

    def leave(self) -> None:
        """End everything, in the orderly way."""
        if self.inside:
            self.player.do("rollback")
        if self.twin:
            self.player.do("twin_do", "close")
        if self.second:
            self.player.do("second_do", "close")
        self.player.do("close")


@scene
def any_accidents_in_any_order(stage: Stage, chance: random.Random) -> bool:
    stage.patience, stage.may_die = 0.1, True
    us = Hand(stage.player("A", "ours"))
    others = [Hand(stage.player(name, chance.choice(("apsw", "stdlib", "ours")))) for name in ("B", "C")]
    unlink_at = chance.choice((None, chance.randrange(STEPS)))
    for hand in (us, *others):
        hand.may_lose_locks = unlink_at is None
    for number in range(STEPS):
        if number == unlink_at:
            stage.unlink(*chance.choice(SIDECARS))
            for hand in others:
                hand.grow_stale()
        (us if number % 2 else chance.choice(others)).step(chance)
    for hand in chance.sample([us, *others], 3):
        hand.leave()
    stage.ask_only_for("A")
    return False
