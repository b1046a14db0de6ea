"""Exit codes: the table of four supervisors and three codes, and who is the supervisor."""

from __future__ import annotations

from itertools import product

import pytest

from hermes_state.host import (
    FATES,
    Fate,
    MarkerKind,
    Outcome,
    Reading,
    Supervisor,
    exit_code,
    stop_code,
    supervisor_of,
)

RESTARTED, PARKED, ENDED = Fate.RESTARTED, Fate.PARKED, Fate.ENDED
# Supervisor -> what it does with 75, 78 and 0; a pair where the sources differ (release, change log).
CELLS = {
    Supervisor.SYSTEMD: (RESTARTED, PARKED, RESTARTED),
    Supervisor.S6: (RESTARTED, PARKED, (RESTARTED, PARKED)),
    Supervisor.LAUNCHD: (RESTARTED, PARKED, (RESTARTED, PARKED)),
    Supervisor.NONE: (ENDED, ENDED, ENDED),
}


@pytest.mark.parametrize(("supervisor", "number"), list(product(CELLS, range(3))))
def test_each_of_the_twelve_cells_is_what_the_sources_say(supervisor: Supervisor, number: int) -> None:
    wanted, code = CELLS[supervisor][number], (75, 78, 0)[number]
    found = tuple(FATES[reading][supervisor, code] for reading in (Reading.RELEASE, Reading.CHANGE_LOG))
    assert found == (wanted if isinstance(wanted, tuple) else (wanted, wanted))


def test_the_verdicts_have_their_codes() -> None:
    codes = {one: [exit_code(one, supervisor) for supervisor in Supervisor] for one in Outcome}
    assert codes == {
        Outcome.START: [None] * 5, Outcome.REPLACE_HOST: [None] * 5, Outcome.ATTACH: [75, 75, 75, 75, 0],
        Outcome.REFUSE_PERMANENT: [78] * 5, Outcome.REFUSE_TRANSIENT: [75] * 5,
    }


@pytest.mark.parametrize("supervisor", list(Supervisor))
def test_a_planned_stop_exits_0_any_other_1_and_one_whose_place_was_taken_comes_back(supervisor: Supervisor) -> None:
    codes = [stop_code(marker, supervisor) for marker in (MarkerKind.PLANNED_STOP, None, MarkerKind.TAKEOVER)]
    assert codes == [0, 1, 0 if supervisor is Supervisor.NONE else 75]


@pytest.mark.parametrize(
    ("environ", "wanted"),
    [
        ({}, Supervisor.NONE),
        ({"INVOCATION_ID": "x"}, Supervisor.SYSTEMD),
        ({"INVOCATION_ID": "x", "SYSTEMD_EXEC_PID": "10"}, Supervisor.SYSTEMD),
        ({"INVOCATION_ID": "x", "SYSTEMD_EXEC_PID": "9"}, Supervisor.SYSTEMD),
        ({"INVOCATION_ID": "x", "SYSTEMD_EXEC_PID": "3"}, Supervisor.NONE),
        ({"HERMES_S6_SUPERVISED_CHILD": "1"}, Supervisor.S6),
        ({"XPC_SERVICE_NAME": "0"}, Supervisor.NONE),
        ({"XPC_SERVICE_NAME": "ai.hermes.gateway"}, Supervisor.LAUNCHD),
        ({"HERMES_GATEWAY_EXTERNAL_SUPERVISOR": "1"}, Supervisor.EXTERNAL),
        ({"HERMES_GATEWAY_EXTERNAL_SUPERVISOR": "s6"}, Supervisor.S6),
        ({"HERMES_GATEWAY_EXTERNAL_SUPERVISOR": "0"}, Supervisor.NONE),
    ],
)
def test_the_supervisor_is_read_from_the_environment(environ: dict[str, str], wanted: Supervisor) -> None:
    assert supervisor_of(environ, pid=10, parent=9) is wanted
