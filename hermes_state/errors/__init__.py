"""Every error of the project, as one tree.

Invariant: each class has a stable `code`, says whether a plain retry may help (`retryable`), which exit status the
command line gives it (`exit_code`) and what to do next (`hint`); what is known is kept as attributes, never only as
text. Errors pickle, and the SQLite error that started one stays its `__cause__`.

Not for: classifying by message text. SQLite's own errors are mapped by result code in `engine/translate.py`.

    StateError
    ├── InvalidInput          the caller's argument cannot be used
    │   ├── InvalidConnectorUrl   no http, https, ws or wss address
    │   └── ScheduleRefused, UnknownZone   a text is no schedule or never fires; a name is no time zone
    ├── Refused               the request is understood and is not carried out
    │   ├── StoreHeld         other processes have the store open
    │   ├── SessionGuarded    a lease or ledger row protects a session
    │   ├── ForeignStore      the file belongs to hermes-agent: adopt it or use the maintenance commands
    │   ├── SessionDeleted    the session was removed; its id may not be used
    │   ├── SessionReplaced   a continuation took the session over: go on there
    │   ├── SessionExists     the id is taken
    │   ├── TitleTaken        another session has the title
    │   ├── VersionIncompatible   a plugin and the server have no protocol version in common
    │   ├── FrameRefused, CursorVersionRefused   of another protocol version than can be read here
    │   ├── Entombed          a deleted id may not come back yet
    │   │   └── InstanceRemoved   a gateway instance was removed
    │   ├── InstanceExists, InstanceNotEnrolled, InstanceRevoked, InstanceNotRevoked   it stands otherwise
    │   ├── NicknameConflict  another living instance has the nickname
    │   ├── EnrollmentExpired, InvalidAuthentication   a token or a credential opens nothing
    │   ├── ThreadBound       the thread is bound to another instance or session
    │   ├── WrongPassphrase   an encrypted backup does not open with it
    │   ├── IdentityConflict  the same store is live at two files
    │   ├── HostNotOurs       the host's folder or a file in it belongs to another user
    │   ├── WrongHome         a write for one home reached the store of another
    │   ├── HomeRemoved       a late write for a home that was removed
    │   ├── JobExists, JobBusy, JobRemoved   a cron job stands otherwise
    │   ├── SlotSettled       a slot of a cron job was accounted for
    │   ├── RouteStopped      a chat goes on only in a new session
    │   ├── KeyCollision      two chats would have one session key
    │   ├── BackgroundWorkFull    as many processes or delegations as one home may have
    │   ├── PairingRefused    no pairing code is given out or looked at for now
    │   ├── CredentialDead, CredentialCooling, CredentialExpired   a credential cannot be used, or not now
    │   ├── GrantMayBeLost    a token that works once may have been sent: it is not sent again
    │   ├── SecretFileRefused a secret file that others can read, or none of ours
    │   ├── NotAnExtension, ReplyEnded   a streamed reply does not go on so, or not any more
    │   ├── LoginRefused, LoginEnded   no login is begun here and now, or it is past that
    │   ├── PrefixTooLarge    system prompt and tools leave too little of a model's window to compact for
    │   ├── TurnActive, TurnNotActive   the thread has an active turn already, or another one
    │   ├── ThreadStopped     its session is stopped or is being stopped
    │   ├── Unsupported, UnsupportedMessage   a provider cannot do it, or sent what is no message
    │   └── InsufficientSpace the disk has no room for a safe rewrite
    ├── NotFound              no such store, session, or file
    │   ├── InstanceNotFound  no gateway instance of that id
    │   ├── BackgroundWorkNotFound    no background process or delegation of that key
    │   ├── ThreadNotFound    no gateway serves the thread
    │   ├── RequestNotFound   no open interaction of that id
    │   ├── SessionNotFound   no session of that id
    │   ├── JobNotFound       no cron job of that id
    │   ├── ReplyNotFound, LoginNotFound   no reply of that turn, no login attempt of that id
    │   ├── RouteNotFound     no routing entry of that key
    │   └── CredentialNotFound, SecretMissing   no credential of that name, or no secrets of it
    ├── IdempotencyConflict   the key was used before, for something else
    ├── TooOld                the key was made before what is still remembered
    ├── StaleGeneration       a connection of a gateway instance that was replaced
    ├── ServerReplaced        another gateway server was started on the store
    ├── GatewayRunning        a gateway server runs on the store, and is not to be taken over from
    ├── NotConnected          the gateway that serves a thread is not connected here
    ├── Unanswered            a request to a gateway instance got no answer
    │   └── RequestTimedOut, RequestAbandoned, ConnectionLost
    ├── LeaseHeld             another owner has the lease
    ├── HostLost              this process no longer owns the host, or its run is over: stop
    ├── LeaseLost, StaleFence the lease went to somebody else: stop
    ├── CompactionRunning     somebody is compacting the session: go on without
    ├── CompactionInflated    a pass would have made the view no smaller: thrown away
    ├── CompactionLost        a pass is no longer its maker's: stop
    ├── ViewMoved             the session is no longer seen as it was planned on: plan again
    ├── RotationFailed        no new token of a credential for now
    ├── JobMoved              a cron job was edited since it was read: read it again
    ├── RouteMoved            a routing entry changed since it was read: read it again
    ├── EndpointUnreachable   a model server does not answer
    ├── LockTimeout           the deadline for a lock passed
    ├── UnsafeProcess         this process can no longer trust its own locks or files
    │   ├── SecondSQLite      a second SQLite library has the same file open in this process
    │   ├── GenerationLost    the database, its WAL or its WAL index was replaced or unlinked under us
    │   ├── WriteLockLost     the kernel no longer shows our lock
    │   └── ForkedConnection  a connection was used after fork
    ├── StorageError          SQLite or the file system failed
    │   ├── LedgerUnreadable  what cron did before cannot be read: it runs nothing
    │   ├── BackupDamaged     a backup is not what its manifest says
    │   ├── Corrupt           canonical data is damaged
    │   ├── NotAStore         the file is not an SQLite database, or has none of the tables
    │   ├── DiskFull, IOFailure, CannotOpen, ReadOnlyStore, PragmaRefused
    │   └── StatementFailed   SQLite refused a statement for another reason
    ├── SchemaTooOld, SchemaTooNew
    ├── MigrationFailed       a migration step did not apply; the store is as before
    ├── NotSaved              a turn is neither in the store nor in the spool
    ├── CaptureRefused        a capture of a lost WAL is partial, altered or out of order
    ├── TornItem              a line of the spool is not whole
    ├── SearchUnavailable     the search index cannot be used and the caller asked not to do without
    ├── RepairFailed, RepairStopped   a repair did not make the copy sound, or was cancelled; the store is as before
    ├── GateNotOpened         for tests: another process did not come to where it was waited for (see `testing`)
    ├── BackupStopped         a backup or restore was cancelled; nothing was changed
    ├── RecoveryStopped       a recovery was cancelled; what it did so far is kept
    ├── ReplicationFailed     Litestream ended, or did not do what it said
    ├── SummarizerFailed      the caller's summariser gave no answer; nothing was changed
    ├── QueueUnreadable       a queue of deliveries is there and cannot be read whole; it was left as it is
    └── MarksDamaged, LedgerDamaged   a file that we keep beside the store cannot be read
"""

from __future__ import annotations

from hermes_state.errors.base import (
    InvalidInput,
    NotFound,
    Refused,
    StateError,
    StorageError,
)
from hermes_state.errors.connections import (
    ConnectionLost,
    CursorVersionRefused,
    FrameRefused,
    GatewayRunning,
    NotConnected,
    RequestAbandoned,
    RequestTimedOut,
    ServerReplaced,
    StaleGeneration,
    Unanswered,
    VersionIncompatible,
)
from hermes_state.errors.conversation import (
    CompactionInflated,
    CompactionLost,
    CompactionRunning,
    EndpointUnreachable,
    Entombed,
    IdempotencyConflict,
    LeaseHeld,
    LeaseLost,
    NotSaved,
    PrefixTooLarge,
    SearchUnavailable,
    SessionDeleted,
    SessionExists,
    SessionGuarded,
    SessionNotFound,
    SessionReplaced,
    StaleFence,
    SummarizerFailed,
    TitleTaken,
    TooOld,
    TornItem,
    ViewMoved,
)
from hermes_state.errors.credentials import (
    CredentialCooling,
    CredentialDead,
    CredentialExpired,
    CredentialNotFound,
    GrantMayBeLost,
    RotationFailed,
    SecretFileRefused,
    SecretMissing,
)
from hermes_state.errors.cron import (
    JobBusy,
    JobExists,
    JobMoved,
    JobNotFound,
    JobRemoved,
    LedgerUnreadable,
    SlotSettled,
)
from hermes_state.errors.host import (
    HostLost,
    HostNotOurs,
)
from hermes_state.errors.instances import (
    EnrollmentExpired,
    InstanceExists,
    InstanceNotEnrolled,
    InstanceNotFound,
    InstanceNotRevoked,
    InstanceRemoved,
    InstanceRevoked,
    InvalidAuthentication,
    InvalidConnectorUrl,
    NicknameConflict,
    ThreadBound,
)
from hermes_state.errors.maintenance import (
    BackupDamaged,
    BackupStopped,
    CaptureRefused,
    LedgerDamaged,
    MarksDamaged,
    RecoveryStopped,
    RepairFailed,
    RepairStopped,
    ReplicationFailed,
    WrongPassphrase,
)
from hermes_state.errors.routing import (
    HomeRemoved,
    KeyCollision,
    PairingRefused,
    RouteMoved,
    RouteNotFound,
    RouteStopped,
    WrongHome,
)
from hermes_state.errors.schedules import (
    ScheduleRefused,
    UnknownZone,
)
from hermes_state.errors.stores import (
    CannotOpen,
    Corrupt,
    DiskFull,
    ForeignStore,
    ForkedConnection,
    GenerationLost,
    IdentityConflict,
    InsufficientSpace,
    IOFailure,
    LockTimeout,
    MigrationFailed,
    NotAStore,
    PragmaRefused,
    ReadOnlyStore,
    SchemaTooNew,
    SchemaTooOld,
    SecondSQLite,
    StatementFailed,
    StoreHeld,
    UnsafeProcess,
    WriteLockLost,
)
from hermes_state.errors.streams import (
    LoginEnded,
    LoginNotFound,
    LoginRefused,
    NotAnExtension,
    ReplyEnded,
    ReplyNotFound,
)
from hermes_state.errors.turns import (
    QueueUnreadable,
    RequestNotFound,
    ThreadNotFound,
    ThreadStopped,
    TurnActive,
    TurnNotActive,
    Unsupported,
    UnsupportedMessage,
)
from hermes_state.errors.work import BackgroundWorkFull, BackgroundWorkNotFound

__all__ = [
    "BackgroundWorkFull",
    "BackgroundWorkNotFound",
    "BackupDamaged",
    "BackupStopped",
    "CannotOpen",
    "CaptureRefused",
    "CompactionInflated",
    "CompactionLost",
    "CompactionRunning",
    "ConnectionLost",
    "Corrupt",
    "CredentialCooling",
    "CredentialDead",
    "CredentialExpired",
    "CredentialNotFound",
    "CursorVersionRefused",
    "DiskFull",
    "EndpointUnreachable",
    "EnrollmentExpired",
    "Entombed",
    "ForeignStore",
    "ForkedConnection",
    "FrameRefused",
    "GatewayRunning",
    "GenerationLost",
    "GrantMayBeLost",
    "HomeRemoved",
    "HostLost",
    "HostNotOurs",
    "IOFailure",
    "IdempotencyConflict",
    "IdentityConflict",
    "InstanceExists",
    "InstanceNotEnrolled",
    "InstanceNotFound",
    "InstanceNotRevoked",
    "InstanceRemoved",
    "InstanceRevoked",
    "InsufficientSpace",
    "InvalidAuthentication",
    "InvalidConnectorUrl",
    "InvalidInput",
    "JobBusy",
    "JobExists",
    "JobMoved",
    "JobNotFound",
    "JobRemoved",
    "KeyCollision",
    "LeaseHeld",
    "LeaseLost",
    "LedgerDamaged",
    "LedgerUnreadable",
    "LockTimeout",
    "LoginEnded",
    "LoginNotFound",
    "LoginRefused",
    "MarksDamaged",
    "MigrationFailed",
    "NicknameConflict",
    "NotAStore",
    "NotAnExtension",
    "NotConnected",
    "NotFound",
    "NotSaved",
    "PairingRefused",
    "PragmaRefused",
    "PrefixTooLarge",
    "QueueUnreadable",
    "ReadOnlyStore",
    "RecoveryStopped",
    "Refused",
    "RepairFailed",
    "RepairStopped",
    "ReplicationFailed",
    "ReplyEnded",
    "ReplyNotFound",
    "RequestAbandoned",
    "RequestNotFound",
    "RequestTimedOut",
    "RotationFailed",
    "RouteMoved",
    "RouteNotFound",
    "RouteStopped",
    "ScheduleRefused",
    "SchemaTooNew",
    "SchemaTooOld",
    "SearchUnavailable",
    "SecondSQLite",
    "SecretFileRefused",
    "SecretMissing",
    "ServerReplaced",
    "SessionDeleted",
    "SessionExists",
    "SessionGuarded",
    "SessionNotFound",
    "SessionReplaced",
    "SlotSettled",
    "StaleFence",
    "StaleGeneration",
    "StateError",
    "StatementFailed",
    "StorageError",
    "StoreHeld",
    "SummarizerFailed",
    "ThreadBound",
    "ThreadNotFound",
    "ThreadStopped",
    "TitleTaken",
    "TooOld",
    "TornItem",
    "TurnActive",
    "TurnNotActive",
    "Unanswered",
    "UnknownZone",
    "UnsafeProcess",
    "Unsupported",
    "UnsupportedMessage",
    "VersionIncompatible",
    "ViewMoved",
    "WriteLockLost",
    "WrongHome",
    "WrongPassphrase",
]
