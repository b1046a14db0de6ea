"""A gateway server with a list of credentials for a registry and a recorder for a recovery, on a store alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hermes_state.engine import Reader, Transaction
from hermes_state.instances.connection_records import Hello
from hermes_state.instances.connections import Connections
from hermes_state.instances.protocol import VersionRange
from hermes_state.store import Store


class Denied(Exception):
    """What a registry raises; a class of the tests, so that no registry is needed."""


@dataclass(frozen=True)
class Plan:
    """What was asked of the recovery."""

    instance_id: str
    boot_id: str
    boot_id_changed: bool


class Registry:
    """Who may connect."""

    def __init__(self) -> None:
        self.revoked: set[str] = set()
        self.asked = 0

    def authenticate(self, reader: Reader, instance_id: str, credential: str) -> None:
        self.asked += 1
        if credential != f"secret of {instance_id}" or instance_id in self.revoked:
            raise Denied(f"{instance_id} may not connect")


class Recovery:
    """Records plans and what was applied."""

    def __init__(self) -> None:
        self.applied: list[Plan] = []
        self.owes = False  # whether a connect of the same process finds something to store
        self.before_apply: Callable[[], None] = lambda: None

    def plan(self, reader: Reader, instance_id: str, *, boot_id: str, boot_id_changed: bool) -> Plan:
        return Plan(instance_id, boot_id, boot_id_changed)

    def apply(self, tx: Transaction, plan: Plan) -> None:
        self.before_apply()
        self.applied.append(plan)


class Server:
    """One start of a server on a store."""

    def __init__(self, store: Store, *, versions: VersionRange | None = None) -> None:
        self.registry, self.recovery = Registry(), Recovery()
        self.connections: Connections[Plan] = Connections(
            store.core, versions=versions or VersionRange(2, 3), authenticate=self.registry.authenticate,
            plan=self.recovery.plan, apply=self.recovery.apply,
            changes_nothing=lambda plan: not self.recovery.owes,
        )


def hello(instance_id: str = "mac", **fields: Any) -> Hello:
    plain = {
        "credential": f"secret of {instance_id}", "boot_id": "boot 1", "versions": VersionRange(2, 3),
        "plugin_version": "1.0", "hermes_version": "0.19",
    }
    return Hello(instance_id=instance_id, **(plain | fields))
