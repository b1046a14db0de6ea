"""The two scripts, and the only place where an error becomes an exit status.

Invariant: 0 done, 1 refused or failed, 2 usage, 3 a check found problems, 65 damaged, 75 busy; Ctrl-C is 130 with one
line, and a reader that went away (`| head`) is 141 without one, as shells count those signals. A command returns its
status or None. `hermes` decides before anything is imported that could open a store.

Not for: what the commands do. click's own error output was rejected: it knows neither `Why:` nor JSON.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from maintenance.output.streams import open_closed_streams, stdout_failure, watch_stdout

INTERRUPTED = 130
READER_GONE = 141


def hermes_state() -> NoReturn:
    """`hermes-state`: always ours."""
    _leave(run(sys.argv[1:], program="hermes-state"))


def hermes() -> NoReturn:
    """`hermes`: ours for our verbs, hermes-agent's for everything else."""
    _leave(_ours_or_theirs())


def _leave(status: int) -> NoReturn:
    """End the process without taking its modules apart, which would cost a listing 10 ms.

    Stores and files are closed by then, by their `with`; only what is still buffered must go out.
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except OSError:
            status = status or 1
    os._exit(status)


def _ours_or_theirs() -> int:
    _prefer_own_package()
    open_closed_streams()
    import maintenance.handoff as handoff

    arguments = sys.argv[1:]
    if not handoff.is_ours(arguments):
        peer = handoff.find_peer()
        if peer is not None:
            return handoff.hand_over(peer, arguments)
        if not handoff.ours_without_peer(arguments):
            from maintenance.output.problems import print_record

            return print_record(handoff.no_peer_problem(arguments), as_json="--json" in arguments)
    return run(arguments, program="hermes", handed_on=handoff.note(arguments))


def run(arguments: Sequence[str], *, program: str, handed_on: str = "") -> int:
    """Run one command and give its exit status."""
    _prefer_own_package()
    open_closed_streams()
    watch_stdout()
    _survive_any_text()
    as_json = _wants_json(arguments)
    if as_json:
        import logging

        # What is logged is in the error's facts; stderr must stay one JSON object.
        logging.getLogger("hermes_state").addHandler(logging.NullHandler())
    try:
        status = _invoke(arguments, program, handed_on, as_json)
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        sys.stderr.write("Interrupted.\n")
        return INTERRUPTED
    except BrokenPipeError:
        # Python flushes stdout once more at exit; let that go nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return READER_GONE
    except Exception as error:
        return _failed(error, arguments, as_json)


def _failed(error: Exception, arguments: Sequence[str], as_json: bool) -> int:
    """Say what went wrong. A report that could not be written must not look like work that was not done."""
    from maintenance.output.problems import lost_output, print_problem, print_record

    lost = stdout_failure() if isinstance(error, OSError) else None
    if lost is None:
        return print_problem(error, as_json=as_json)
    before = error.__context__
    if isinstance(before, Exception) and not isinstance(before, OSError):
        # The work failed, and the report of how far it came was what could not be written.
        return print_problem(before, as_json=as_json)
    return print_record(lost_output(lost, work_done=_report_follows_work(arguments)), as_json=as_json)


def _report_follows_work(arguments: Sequence[str]) -> bool:
    """Whether stdout tells what was done; of other calls it is the result itself."""
    from maintenance.verbs import VERBS, Access

    words = [word for word in arguments if not word.startswith("-")]
    named = (name for pair in zip(words, [*words[1:], ""], strict=True) for name in (" ".join(pair), pair[0]))
    verb = next((name for name in named if name in VERBS), None)
    if verb is None or "--dry-run" in arguments:
        return False
    return VERBS[verb].access not in (Access.READ, Access.HOST) or (
        verb == "sessions export" and not {"-", "-o-", "--output=-"}.intersection(arguments)
    )


def _invoke(arguments: Sequence[str], program: str, handed_on: str, as_json: bool) -> int:
    import click

    from maintenance.cli import root_command

    command = root_command()
    try:
        with command.make_context(program, list(arguments)) as ctx:
            ctx.meta["maintenance.handed_on"] = handed_on
            return _status(command.invoke(ctx))
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except click.UsageError as error:
        from maintenance.output.problems import print_record, usage_problem

        path = error.ctx.command_path if error.ctx is not None else program
        advice = f"`{path} --help` lists what it takes."
        return print_record(usage_problem(error.format_message(), advice), as_json=as_json)
    except click.ClickException as error:
        from maintenance.output.problems import print_record, usage_problem

        record = usage_problem(error.format_message(), "") | {"exit_code": error.exit_code, "why": ""}
        return print_record(record, as_json=as_json)
    except click.Abort:
        raise KeyboardInterrupt from None


def _status(returned: Any) -> int:
    return returned if isinstance(returned, int) else 0


def _wants_json(arguments: Sequence[str]) -> bool:
    before = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--json" in before


def _survive_any_text() -> None:
    """Titles are any text and a terminal's encoding may be narrow: never fail on a character."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def _prefer_own_package() -> None:
    """hermes-agent's module of the same name may stand first on the path (a source checkout); ours is the package."""
    if "hermes_state" in sys.modules:
        return
    from importlib.machinery import PathFinder

    found = PathFinder.find_spec("hermes_state")
    if found is None or found.submodule_search_locations is None:
        sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
