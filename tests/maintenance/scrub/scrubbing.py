"""A scrub of an open store's rows, for tests of single tables."""

from __future__ import annotations

from collections import Counter

from hermes_state.clock import Clock
from hermes_state.engine import open_write
from hermes_state.store import Store
from maintenance.scrub.patterns import Redactor, rules_for
from maintenance.scrub.work import look, replace


def scrubbed(store: Store, clock: Clock, pattern: str = "hunter2") -> Counter[str]:
    """Rows changed by table: those that a look found before, and none is found afterwards."""
    rules = rules_for([pattern], None)
    with open_write(store.core.path) as writer:
        found = look(writer, Redactor(rules))
        changed = replace(writer, Redactor(rules), clock)
        assert found == changed and look(writer, Redactor(rules)) == Counter()
    return changed
