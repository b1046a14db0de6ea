"""What credentials refuse by name: those that are not there, used up, dead, or whose grant may be lost.

Invariant: see the package; no error here carries a token, nor any part of one. Not for: leases, whose errors are those
of every lease.
"""

from __future__ import annotations

from hermes_state.errors.base import NotFound, Refused, StateError


class CredentialNotFound(NotFound):
    """No credential of that name in this home; nobody was asked. Facts: `path`, `provider`, `credential`."""

    code = "credential_not_found"


class SecretMissing(NotFound):
    """The row is there and its secrets are not. Facts: `path`, `provider`, `credential`."""

    code = "secret_missing"


class SecretFileRefused(Refused):
    """A secret file that others can read or write, or that is none of ours. Facts: `path`, `why`."""

    code = "secret_file_refused"


class CredentialDead(Refused):
    """The provider has ended the grant: only a new login helps. Facts: `path`, `provider`, `credential`, `reason`."""

    code = "credential_dead"


class CredentialCooling(Refused):
    """It was refused or used up a while ago. Facts: `path`, `provider`, `credential`, `retry_at` (epoch seconds)."""

    code = "credential_cooling"


class CredentialExpired(Refused):
    """Its token ran out and cannot be had anew. Facts: `path`, `provider`, `credential`, `expired_at` or None."""

    code = "credential_expired"


class GrantMayBeLost(Refused):
    """A token that works once was sent, or may have been, and what came back is not known: it is not sent again.

    Facts: `path`, `provider`, `credential`, `since` (epoch seconds UTC or None), `why`.
    """

    code = "grant_may_be_lost"


class RotationFailed(StateError):
    """No new token for now; it is tried again at `retry_at`. Facts: `path`, `provider`, `credential`, `retry_at`."""

    code = "rotation_failed"
