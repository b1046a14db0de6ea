"""For tests of programs that use this library: temporary stores, gates, one clock, damage, faults, power loss.

The submodules `corruption`, `faults` and `power_loss` are imported by name: they load APSW, these names do not.
"""

from __future__ import annotations

from hermes_state.testing.stores import (
    CLOCK_FILE_VARIABLE,
    ClockDomain,
    FakeClock,
    Gate,
    GateNotOpened,
    clock_from_environment,
    temporary_store,
)

__all__ = [
    "CLOCK_FILE_VARIABLE", "ClockDomain", "FakeClock", "Gate", "GateNotOpened", "clock_from_environment",
    "temporary_store",
]
