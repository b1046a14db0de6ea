"""The rows of `credentials`: reading them, and the few ways in which they change.

Invariant: each function is called in the caller's transaction and changes one row. The marker of a rotation is written
under the lease and names its fence; what follows is written only while the marker is still that one. A row of another
home, as a copied store has them, is not there.

Not for: secrets and files. A version that counts every change was rejected: the fence is what a late writer must lose
by, and a count of uses would make everybody late.
"""

from __future__ import annotations

import secrets as random
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_state.changes.records import record
from hermes_state.errors import CredentialNotFound, GrantMayBeLost, StaleFence
from hermes_state.work.credentials.answers import merged
from hermes_state.work.credentials.records import COLUMNS, MOST_SPENT, SPENT_BYTES, Credential, credential, digest, same
from hermes_state.work.credentials.secrets import MOST_EXTRA_BYTES, Secrets, extra_text
from hermes_state.work.credentials.states import Event, Rotation, Status, after, renew_after

if TYPE_CHECKING:
    from hermes_state.engine import Reader, Transaction

_SALT_BYTES = 16


def has_credentials(reader: Reader) -> bool:
    """Whether the store has the tables: they come with a schema step that a read-only open does not make."""
    return reader.row("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'credentials'") is not None


def find(reader: Reader, provider: str, name: str) -> Credential | None:
    """The row, None when there is none, also not of another home."""
    if not has_credentials(reader):
        return None
    row = reader.row(
        f"SELECT {COLUMNS} FROM credentials WHERE provider = ? AND id = ? AND home = (SELECT store_id FROM store)",
        (provider, name),
    )
    return None if row is None else credential(row)


def read(reader: Reader, provider: str, name: str) -> Credential:
    """The row. Raises `CredentialNotFound`."""
    found = find(reader, provider, name)
    if found is None:
        raise CredentialNotFound(
            f"{reader.path} has no credential {name!r} of {provider}; the provider was not asked.",
            hint="Log in in this home; a credential of another home is not used here.",
            path=reader.path, provider=provider, credential=name,
        )
    return found


def all_of(reader: Reader, provider: str | None = None) -> list[Credential]:
    """Every row of a provider, or of all, by provider, priority and name."""
    if not has_credentials(reader):
        return []
    return [
        credential(row)
        for row in reader.rows(
            f"SELECT {COLUMNS} FROM credentials WHERE (?1 IS NULL OR provider = ?1)"
            " AND home = (SELECT store_id FROM store) ORDER BY provider, priority, id", (provider,),
        )
    ]


def put(
    tx: Transaction, provider: str, name: str, *, home: str, label: str, auth_type: str, source: str, priority: int,
    base_url: str | None, single_use: bool, secrets: Secrets, extra: Mapping[str, object], at: float,
) -> Credential:
    """A login: a new row, or a new grant for the row that is there, whatever stood of it. What was spent stays so."""
    before = find(tx, provider, name)
    if before is not None and single_use and before.single_use:
        refuse_spent(tx, before, secrets)
    salt = random.token_bytes(_SALT_BYTES) if before is None else before.salt
    spent = b"" if before is None else _spent(before, secrets)
    tx.execute(
        "INSERT INTO credentials (provider, id, home, label, auth_type, source, priority, base_url, single_use, status,"
        " status_at, expires_at, agent_key_expires_at, extra, salt, access_digest, refresh_digest, spent, created_at,"
        " updated_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?11,"
        " ?11) ON CONFLICT (provider, id) DO UPDATE SET home = ?3, label = ?4, auth_type = ?5, source = ?6,"
        " priority = ?7, base_url = ?8, single_use = ?9, status = ?10, status_at = ?11, error_code = NULL,"
        " error_reason = NULL, error_message = NULL, reset_at = NULL, expires_at = ?12, agent_key_expires_at = ?13,"
        " rotate_after = NULL, extra = ?14, salt = ?15, access_digest = ?16, refresh_digest = ?17, spent = ?18,"
        " rotation = 'whole', rotation_digest = NULL, rotation_at = NULL, updated_at = ?11",
        (
            provider, name, home, label, auth_type, source, priority, base_url, int(single_use),
            str(Status.OK if before is None else after(before.status, Event.RENEW)), at, secrets.expires_at,
            secrets.agent_key_expires_at, extra_text(extra), salt, digest(salt, secrets.access_token),
            digest(salt, secrets.refresh_token), spent,
        ),
    )
    record(tx, "credentials", f"{provider}/{name}", "insert" if before is None else "update", at)
    return read(tx, provider, name)


def refuse_spent(reader: Reader, row: Credential, secrets: Secrets) -> None:
    """Raises `GrantMayBeLost` for a login with a token that was sent before."""
    if row.was_sent(secrets) or row.has_spent(secrets.refresh_token):
        raise may_be_lost(
            reader.path, row, "the refresh token that was given is one that was sent before, and it works once"
        )


def adopt(tx: Transaction, row: Credential, secrets: Secrets, *, at: float) -> None:
    """The secret file is newer than the row: its tokens are the row's from now on.

    Its grant is whole then, unless the file has the very token that the marker says was sent: that one stays marked,
    and what is there with it is used until its end.
    """
    given = secrets.sorted()
    began = given.written_at if given.written_at is not None and given.written_at <= at else None
    _tokens(
        tx, row, given, extra=given.extra or {}, base_url=None, at=at, sent=row.was_sent(given),
        rotate_after=None if began is None else renew_after(began, given.expires_at),
    )


def mark(tx: Transaction, row: Credential, token: str, *, fence: int, at: float) -> None:
    """The token is handed out to be sent. Raises `StaleFence` when a later owner of the lease has marked already.

    `GrantMayBeLost` when another row of this store has sent it: two rows that name one secret file.
    """
    if row.single_use:
        for other in all_of(tx):
            if (other.provider, other.id) == (row.provider, row.id) or not other.single_use:
                continue
            if other.has_spent(token) or same(other.rotation_digest, other.digest(token)):
                raise may_be_lost(
                    tx.path, row, f"its token is one that {other.provider} credential {other.id!r} has sent"
                )
    changed = tx.execute(
        "UPDATE credentials SET rotation = 'rotating', rotation_fence = ?3, rotation_digest = ?4, rotation_at = ?5,"
        " updated_at = ?5 WHERE provider = ?1 AND id = ?2 AND (rotation = 'whole' OR single_use = 0)"
        " AND rotation_fence < ?3 AND refresh_digest IS ?4",
        (row.provider, row.id, fence, row.digest(token), at),
    )
    if not changed:
        raise stale(tx, row, fence)


def lose(tx: Transaction, row: Credential, *, at: float) -> None:
    """Nobody knows what came back: the marker stays, with the time it was made, and says so."""
    tx.execute(
        "UPDATE credentials SET rotation = 'grant_may_be_lost', updated_at = ?3 WHERE provider = ?1 AND id = ?2"
        " AND rotation = 'rotating' AND rotation_fence = ?4", (row.provider, row.id, at, row.rotation_fence),
    )
    record(tx, "credentials", f"{row.provider}/{row.id}", "update", at)


def rotated(tx: Transaction, row: Credential, secrets: Secrets, *, fence: int, base_url: str | None, at: float) -> None:
    """What came back is kept: the row's tokens from now on. Raises `StaleFence` when the marker is not ours."""
    now = marked(tx, row, fence)
    _tokens(
        tx, now, secrets, extra=secrets.extra or {}, base_url=base_url, at=at, refreshed=True,
        rotate_after=renew_after(at, secrets.expires_at),
    )


def came_to_nothing(
    tx: Transaction, row: Credential, event: Event, *, fence: int | None, code: str | None, reason: str,
    reset_at: float | None, lost: bool, at: float,
) -> bool:
    """An exchange gave no token; False, and nothing is written, when the row has other tokens than it began with.

    `fence`: of its marker (raises `StaleFence` when that is another's); None when the token was never handed out.
    `lost`: it may have been taken; else nobody took it, and the grant is whole.
    """
    if fence is not None:
        marked(tx, row, fence)
        tx.execute(
            "UPDATE credentials SET rotation = 'grant_may_be_lost' WHERE provider = ? AND id = ?" if lost else
            "UPDATE credentials SET rotation = 'whole', rotation_digest = NULL, rotation_at = NULL"
            " WHERE provider = ? AND id = ?", (row.provider, row.id),
        )
    elif not as_it_was(tx, row):
        return False
    judge(tx, row, event, code=code, reason=reason, message=None, reset_at=reset_at, at=at)
    return True


def wait(tx: Transaction, row: Credential, *, until: float, reason: str, at: float) -> bool:
    """Nothing was sent and the token still works: it is used until then. False as in `came_to_nothing`."""
    if not as_it_was(tx, row):
        return False
    tx.execute(
        "UPDATE credentials SET rotate_after = ?3, error_reason = ?4, updated_at = ?5 WHERE provider = ?1 AND id = ?2",
        (row.provider, row.id, until, reason, at),
    )
    record(tx, "credentials", f"{row.provider}/{row.id}", "update", at)
    return True


def as_it_was(reader: Reader, row: Credential) -> bool:
    """Whether nobody has rotated, sent or replaced the tokens of a row since it was read."""
    now = find(reader, row.provider, row.id)
    return now is not None and now.rotation_fence == row.rotation_fence and now.rotation is row.rotation and (
        same(now.refresh_digest, row.refresh_digest) and same(now.access_digest, row.access_digest)
    )


def judge(
    tx: Transaction, row: Credential, event: Event, *, code: str | None, reason: str | None, message: str | None,
    reset_at: float | None, at: float,
) -> None:
    """Another status, by the table; `reset_at` is kept with a rest only, and a dead row stays as it is."""
    status = after(row.status, event)
    if row.status is Status.DEAD and status is Status.DEAD:
        return
    tx.execute(
        "UPDATE credentials SET status = ?3, status_at = ?4, error_code = ?5, error_reason = ?6, error_message = ?7,"
        " reset_at = ?8, updated_at = ?4 WHERE provider = ?1 AND id = ?2",
        (
            row.provider, row.id, str(status), at, code, reason, message,
            reset_at if status is Status.EXHAUSTED else None,
        ),
    )
    record(tx, "credentials", f"{row.provider}/{row.id}", "update", at)


def count_use(tx: Transaction, row: Credential) -> None:
    """One request more, and the newest use of the provider."""
    tx.execute(
        "UPDATE credentials SET request_count = request_count + 1, used_order = 1 + (SELECT max(used_order) FROM"
        " credentials WHERE provider = ?1) WHERE provider = ?1 AND id = ?2", (row.provider, row.id),
    )


def marked(tx: Transaction, row: Credential, fence: int) -> Credential:
    """The row as it is, whose marker is that of this fence. Raises `StaleFence`."""
    now = find(tx, row.provider, row.id)
    if now is None or now.rotation is Rotation.WHOLE or now.rotation_fence != fence:
        raise stale(tx, row, fence)
    return now


def stale(tx: Transaction, row: Credential, fence: int) -> StaleFence:
    """The error of a writer that somebody overtook."""
    now = find(tx, row.provider, row.id)
    current = None if now is None else now.rotation_fence
    return StaleFence(
        f"The rotation of {row.provider} credential {row.id!r} in {tx.path} (fence {fence}) was overtaken.",
        hint="Ask for the token again: whoever overtook it has one.", path=tx.path,
        name=lease_name(row.provider, row.id), fence=fence, current=current,
    )


def may_be_lost(path: Path, row: Credential, why: str) -> GrantMayBeLost:
    """The error of a token that is not sent again."""
    return GrantMayBeLost(
        f"The grant of {row.provider} credential {row.id!r} in {path} may be lost: {why}. It is not sent again.",
        hint="Log in anew; a provider that sees one token twice ends the whole login.", path=path,
        provider=row.provider, credential=row.id, since=row.rotation_at, why=why,
    )


def lease_name(provider: str, name: str) -> str:
    """The lease under which a credential's token is rotated."""
    return f"credential:{provider}/{name}"


def _tokens(
    tx: Transaction, row: Credential, secrets: Secrets, *, extra: Mapping[str, object], base_url: str | None, at: float,
    rotate_after: float | None, refreshed: bool = False, sent: bool = False,
) -> None:
    tx.execute(
        "UPDATE credentials SET status = ?3, status_at = ?4, error_code = NULL, error_reason = NULL,"
        " error_message = NULL, reset_at = NULL, expires_at = ?5, agent_key_expires_at = ?6, extra = ?7,"
        " access_digest = ?8, refresh_digest = ?9, spent = ?10, rotation = iif(?13, rotation, 'whole'),"
        " rotation_digest = iif(?13, rotation_digest, NULL), rotation_at = iif(?13, rotation_at, NULL),"
        " base_url = coalesce(?11, base_url), refreshed_at = iif(?12, ?4, refreshed_at), rotate_after = ?14,"
        " updated_at = ?4 WHERE provider = ?1 AND id = ?2",
        (
            row.provider, row.id, str(after(row.status, Event.RENEW)), at, secrets.expires_at,
            secrets.agent_key_expires_at,
            extra_text(merged(row.extra, extra, MOST_EXTRA_BYTES, newest_first=True)),
            row.digest(secrets.access_token), row.digest(secrets.refresh_token), _spent(row, secrets), base_url,
            int(refreshed), int(sent), rotate_after,
        ),
    )
    record(tx, "credentials", f"{row.provider}/{row.id}", "update", at)


def _spent(row: Credential, secrets: Secrets) -> bytes:
    """The spent tokens of a row once it has these: what it had, and what was sent, are spent if they went.

    Only of grants whose tokens work once: others may come back.
    """
    now, found = row.digest(secrets.refresh_token), row.spent
    if not row.single_use:
        return found
    for old in (row.rotation_digest, row.refresh_digest):
        if old is not None and not same(old, now) and not row_has(found, old):
            found += old[:SPENT_BYTES]
    return found[-MOST_SPENT * SPENT_BYTES :]


def row_has(spent: bytes, whole: bytes) -> bool:
    """Whether a digest is among the spent ones."""
    return any(
        same(spent[at : at + SPENT_BYTES], whole[:SPENT_BYTES]) for at in range(0, len(spent), SPENT_BYTES)
    )
