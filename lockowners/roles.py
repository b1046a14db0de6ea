"""What a command line says its process is: gateway, cron, desktop, cli.

Invariant: a role is only a word for the reader (how to stop it); no verdict depends on it, since any process may call
itself anything.

Not for: finding holders by name. Rejected: matching the word anywhere in the command line, which takes an editor with
`gateway.py` open for a gateway.
"""

from __future__ import annotations

from lockowners.records import Role

# Programs whose first own argument is a verb of the Hermes command line.
_PROGRAMS = frozenset({"hermes", "hermes-state", "hermes.exe", "hermes-state.exe", "hermes-agent", "hermes-agent.exe"})
_MODULES = frozenset(
    {"hermes_cli.main", "hermes_cli", "maintenance", "maintenance.entry", "maintenance.cli", "run_agent"}
)
_SCRIPTS = ("hermes_cli/main.py", "maintenance/entry.py", "run_agent.py", "hermes_cli\\main.py")
# Programs and modules that are one thing whatever their arguments.
_MODULE_ROLES: dict[str, Role] = {
    "gateway.run": "gateway",
    "gateway": "gateway",
    "hermes_gateway": "gateway",
    "cron.scheduler": "cron",
    "cron_store": "cron",
    "tui_gateway.compute_host": "desktop",
    "tui_gateway": "desktop",
    "tui_gateway.entry": "desktop",
    "acp_adapter": "cli",
    "acp_adapter.entry": "cli",
}
_PROGRAM_ROLES: dict[str, Role] = {"hermes-gateway": "gateway", "hermes-acp": "cli", "hermes-desktop": "desktop"}
_SCRIPT_ROLES: tuple[tuple[str, Role], ...] = (("gateway/run.py", "gateway"), ("cron/scheduler.py", "cron"))
_VERB_ROLES: dict[str, Role] = {
    "gateway": "gateway",
    "cron": "cron",
    "desktop": "desktop",
    "gui": "desktop",
    "dashboard": "desktop",
    "serve": "desktop",
}
# Options before the verb that take a value of their own.
_VALUED = frozenset(
    {
        "--profile",
        "-p",
        "--home",
        "--hermes-home",
        "--db",
        "-m",
        "--model",
        "--provider",
        "-t",
        "--toolsets",
        "--skills",
    }
)


def role_of(argv: tuple[str, ...]) -> Role:
    """The role of a process from its arguments; unknown when they are not a Hermes command."""
    if not argv:
        return "unknown"
    if len(argv) == 1 and " " in argv[0]:
        # A title set by the process itself, as one string.
        argv = tuple(argv[0].split())
    program = _base(argv[0])
    if program.startswith(("python", "pypy", "pythonw")) or program in ("uv", "uvx", "pipx"):
        return _python_role(argv[1:])
    if program in _PROGRAM_ROLES:
        return _PROGRAM_ROLES[program]
    return _verb_role(argv[1:]) if program in _PROGRAMS else "unknown"


def _base(text: str) -> str:
    return text.replace("\\", "/").rsplit("/", 1)[-1]


def _python_role(arguments: tuple[str, ...]) -> Role:
    for position, argument in enumerate(arguments):
        rest = arguments[position + 1 :]
        if argument == "-m":
            module = rest[0] if rest else ""
            if module in _MODULE_ROLES:
                return _MODULE_ROLES[module]
            return _verb_role(rest[1:]) if module in _MODULES else "unknown"
        if argument == "-c":
            return "unknown"
        if argument.startswith("-") or argument in ("run", "tool", "python"):
            continue
        base, path = _base(argument), argument.replace("\\", "/")
        if base in _PROGRAM_ROLES:
            return _PROGRAM_ROLES[base]
        for ending, role in _SCRIPT_ROLES:
            if path.endswith(ending):
                return role
        if base in _PROGRAMS or path.endswith(_SCRIPTS):
            return _verb_role(rest)
        return "unknown"
    return "unknown"


def _verb_role(arguments: tuple[str, ...]) -> Role:
    skip = False
    for argument in arguments:
        if skip:
            skip = False
        elif argument in _VALUED:
            skip = True
        elif not argument.startswith("-"):
            return _VERB_ROLES.get(argument, "cli")
    return "cli"
