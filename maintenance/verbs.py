"""The one table of verbs: what the program can do, which file does it, and what access to a store it may get.

Invariant: a verb that is not here does not exist: it has no help, no gate row and no command. The gate reads the access
from here, the command line reads the module from here, and a test compares both with README and docs/cli-json.md.

Not for: options or behaviour. Decorators that register a command on import were rejected: listing the verbs would then
import every command.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Access(Enum):
    """The most that a verb may ask the gate for."""

    READ = "read"  # a read-only open: no write lock, no checkpoint, whoever else has the store open
    ONLINE = "online"  # bounded write transactions beside other processes
    EXCLUSIVE = "exclusive"  # SQLite's exclusive lock from before the verdict to the end
    HOST = "host"  # the user's host.db, read-only; no home's store
    LOCAL = "local"  # no store at all


class Verb(NamedTuple):
    """One verb. A NamedTuple because a frozen dataclass would cost the start of every listing some milliseconds."""

    module: str  # the module that exports `command`
    access: Access  # the most that the gate gives it
    help: str  # one imperative line for the list of verbs


_COMMANDS = "maintenance.commands"

VERBS: dict[str, Verb] = {
    "sessions list": Verb(f"{_COMMANDS}.list", Access.READ, "List sessions, newest activity first."),
    "sessions show": Verb(f"{_COMMANDS}.show", Access.READ, "Show one session: its facts, its lineage, its messages."),
    "sessions stats": Verb(f"{_COMMANDS}.stats", Access.READ, "Count sessions and messages by source, with sizes."),
    "sessions tail": Verb(f"{_COMMANDS}.tail", Access.READ, "Show the newest messages of all sessions; follow them."),
    "sessions export": Verb(f"{_COMMANDS}.export", Access.READ, "Write sessions to a file, one JSON line each."),
    "sessions import": Verb(f"{_COMMANDS}.import_", Access.ONLINE, "Merge sessions of files and other programs."),
    "sessions adopt": Verb(f"{_COMMANDS}.adopt", Access.EXCLUSIVE, "Turn a file of hermes-agent into a native store."),
    "sessions prune": Verb(f"{_COMMANDS}.prune", Access.EXCLUSIVE, "Delete old ended sessions, return the space."),
    "sessions archive": Verb(f"{_COMMANDS}.archive", Access.ONLINE, "Hide sessions without deleting them."),
    "sessions delete": Verb(f"{_COMMANDS}.delete", Access.EXCLUSIVE, "Delete the named sessions with their delegates."),
    "sessions rename": Verb(f"{_COMMANDS}.rename", Access.ONLINE, "Give a session another title."),
    "sessions pin": Verb(f"{_COMMANDS}.pin", Access.ONLINE, "Protect sessions from prune and archive."),
    "sessions unpin": Verb(f"{_COMMANDS}.unpin", Access.ONLINE, "Take that protection away."),
    "sessions captures": Verb(
        f"{_COMMANDS}.captures", Access.ONLINE, "Show what captures of a lost WAL hold; merge it."
    ),
    "sessions scrub": Verb(
        f"{_COMMANDS}.scrub", Access.EXCLUSIVE, "Find secrets in a store and take them out for good."
    ),
    "sessions leftovers": Verb(
        f"{_COMMANDS}.leftovers", Access.ONLINE, "List what lies beside a store; drop what is safe."
    ),
    "sessions replicate": Verb(
        f"{_COMMANDS}.replicate", Access.ONLINE, "Copy a store to a replica with Litestream; drill it."
    ),
    "sessions spool": Verb(
        f"{_COMMANDS}.spool", Access.ONLINE, "Show turns that wait beside a store; bring them in."
    ),
    "sessions window": Verb(
        f"{_COMMANDS}.window", Access.ONLINE, "Show what is known of a model's window; probe or declare it."
    ),
    "sessions compact": Verb(
        f"{_COMMANDS}.compact", Access.ONLINE, "Fit a session into a small window; go back to a generation."
    ),
    "sessions view": Verb(
        f"{_COMMANDS}.view", Access.READ, "Show what a model is sent of a session, by generation."
    ),
    "sessions optimize": Verb(
        f"{_COMMANDS}.optimize", Access.EXCLUSIVE, "Merge the search indexes and return free pages when that pays."
    ),
    "sessions optimize-storage": Verb(
        f"{_COMMANDS}.optimize_storage", Access.EXCLUSIVE, "Convert the search indexes to the smaller layout."
    ),
    "sessions backup": Verb(
        f"{_COMMANDS}.backup", Access.READ, "Make a verified copy of the store, encrypted if wished."
    ),
    "sessions restore": Verb(
        f"{_COMMANDS}.restore", Access.EXCLUSIVE, "Put a backup in the store's place, or drill it."
    ),
    "sessions repair": Verb(
        f"{_COMMANDS}.repair", Access.EXCLUSIVE, "Build damaged indexes and schema entries again from the rows."
    ),
    "sessions recover": Verb(
        f"{_COMMANDS}.recover", Access.EXCLUSIVE, "Salvage what can be read of a damaged store into a new file."
    ),
    "outbox list": Verb(f"{_COMMANDS}.outbox.list", Access.READ, "List obligations, newest first."),
    "outbox show": Verb(
        f"{_COMMANDS}.outbox.show", Access.READ, "Show one obligation with its payload and its last verdict."
    ),
    "outbox retry": Verb(
        f"{_COMMANDS}.outbox.retry", Access.ONLINE, "Make an obligation due now, or owe a settled one again."
    ),
    "outbox drop": Verb(f"{_COMMANDS}.outbox.drop", Access.ONLINE, "Take back obligations that nobody has sent."),
    "outbox stats": Verb(f"{_COMMANDS}.outbox.stats", Access.READ, "Count obligations by kind and state."),
    "instances list": Verb(f"{_COMMANDS}.instances.list", Access.READ, "List gateway instances, the oldest first."),
    "instances show": Verb(
        f"{_COMMANDS}.instances.show", Access.READ,
        "Show one gateway instance, its threads, and when it was last seen.",
    ),
    "instances add": Verb(
        f"{_COMMANDS}.instances.add", Access.ONLINE,
        "Register a gateway instance, or bring in the files of an older server.",
    ),
    "instances enroll": Verb(
        f"{_COMMANDS}.instances.enroll", Access.ONLINE, "Mint a one-time token with which a plugin enrolls itself."
    ),
    "instances rename": Verb(
        f"{_COMMANDS}.instances.rename", Access.ONLINE, "Give a gateway instance another nickname or connector."
    ),
    "instances revoke": Verb(
        f"{_COMMANDS}.instances.revoke", Access.ONLINE, "Keep gateway instances out: credentials and tokens end now."
    ),
    "instances remove": Verb(
        f"{_COMMANDS}.instances.remove", Access.ONLINE,
        "Remove gateway instances that are revoked, or were never enrolled.",
    ),
    "instances unbind": Verb(
        f"{_COMMANDS}.instances.unbind", Access.ONLINE, "Take threads from the gateway instance that serves them."
    ),
    "instances tombstones": Verb(
        f"{_COMMANDS}.instances.tombstones", Access.READ,
        "List removed ids that cannot come back yet, and what keeps them.",
    ),
    "instances gc": Verb(
        f"{_COMMANDS}.instances.gc", Access.ONLINE, "Free removed ids that nothing keeps any more; drop dead tokens."
    ),
    "routing list": Verb(
        f"{_COMMANDS}.routing.list", Access.READ, "List where chats go on, and what is not served."
    ),
    "routing import": Verb(
        f"{_COMMANDS}.routing.import_", Access.ONLINE, "Bring in where chats go on, from hermes-agent's session index."
    ),
    "work list": Verb(
        f"{_COMMANDS}.work.list", Access.READ, "List what goes on beside conversations and what waits."
    ),
    "work show": Verb(
        f"{_COMMANDS}.work.show", Access.READ, "Show one piece of background work, or what waits in a lane."
    ),
    "cron list": Verb(f"{_COMMANDS}.cron.list", Access.READ, "List cron jobs, by id."),
    "cron show": Verb(
        f"{_COMMANDS}.cron.show", Access.READ, "Show one cron job: how it stands, its next and its latest slots."
    ),
    "cron add": Verb(f"{_COMMANDS}.cron.add", Access.ONLINE, "Declare a cron job."),
    "cron edit": Verb(
        f"{_COMMANDS}.cron.edit", Access.ONLINE, "Change what is named of a cron job, and nothing else."
    ),
    "cron pause": Verb(
        f"{_COMMANDS}.cron.pause", Access.ONLINE, "Pause cron jobs: their slots are skipped until they are resumed."
    ),
    "cron resume": Verb(
        f"{_COMMANDS}.cron.resume", Access.ONLINE,
        "Resume paused cron jobs: they go on with their first slot after now.",
    ),
    "cron remove": Verb(f"{_COMMANDS}.cron.remove", Access.ONLINE, "Remove cron jobs for good."),
    "cron run": Verb(f"{_COMMANDS}.cron.run", Access.ONLINE, "Run a cron job now, by one command."),
    "cron next": Verb(
        f"{_COMMANDS}.cron.next", Access.READ, "Show the next slots of a cron job, in its own zone and in UTC."
    ),
    "cron status": Verb(
        f"{_COMMANDS}.cron.status", Access.READ, "Say whether the cron jobs of this home fire, and who ticks it."
    ),
    "cron accept-clock": Verb(
        f"{_COMMANDS}.cron.accept_clock", Access.ONLINE,
        "Say that the wall clock is right, when cron doubts a step of it.",
    ),
    "cron inflight": Verb(
        f"{_COMMANDS}.cron.inflight", Access.READ, "List the cron runs in flight: by whom, since when."
    ),
    "cron history": Verb(f"{_COMMANDS}.cron.history", Access.READ, "List cron runs, newest first."),
    "cron missed": Verb(
        f"{_COMMANDS}.cron.missed", Access.READ, "List slots that were missed: which, how many, why."
    ),
    "cron gc": Verb(f"{_COMMANDS}.cron.gc", Access.ONLINE, "Let go of old records of slots, runs and events."),
    "cron tick": Verb(
        f"{_COMMANDS}.cron.tick", Access.ONLINE, "Tick this home once, and run what is due by one command."
    ),
    "cron calendar": Verb(
        f"{_COMMANDS}.cron.calendar", Access.READ, "Draw the week ahead and what became of the last one."
    ),
    "cron import": Verb(
        f"{_COMMANDS}.cron.import_", Access.ONLINE, "Bring in the cron jobs of hermes-agent; hand them over."
    ),
    "host status": Verb(
        f"{_COMMANDS}.host.status", Access.HOST, "Show who owns the host, which gateways live and what they need."
    ),
    "host decide": Verb(
        f"{_COMMANDS}.host.decide", Access.HOST, "Say what a gateway that starts now would do, and why."
    ),
    "host migrate": Verb(
        f"{_COMMANDS}.host.migrate", Access.HOST, "Show the steps to one gateway for all homes."
    ),
    "host units": Verb(
        f"{_COMMANDS}.host.units", Access.HOST, "Check the service files of gateways against the exit codes of a start."
    ),
    "doctor": Verb(f"{_COMMANDS}.doctor", Access.READ, "Check a store without changing it."),
    "locks": Verb(f"{_COMMANDS}.locks", Access.READ, "Name every process that holds or blocks a store."),
    "install-shim": Verb(f"{_COMMANDS}.install_shim", Access.LOCAL, "Make the `hermes` script this program's again."),
}

GROUPS: dict[str, str] = {
    "sessions": "List, export, shrink and delete the sessions of a store.",
    "outbox": "See and settle what a store owes to somebody.",
    "instances": "Register, enroll, revoke and remove gateway instances.",
    "host": "See which gateways of this user run and what a start would do.",
    "routing": "See where chats go on and who answers them.",
    "work": "See background work, lanes, replies and sign-ins.",
    "cron": "Declare cron jobs, see when they run and what became of every slot, tick a home once.",
}


def verbs_of(group: str | None) -> dict[str, Verb]:
    """The verbs of a group by their last word, or those outside any group."""
    if group is None:
        return {name: verb for name, verb in VERBS.items() if " " not in name}
    prefix = f"{group} "
    return {name.removeprefix(prefix): verb for name, verb in VERBS.items() if name.startswith(prefix)}
