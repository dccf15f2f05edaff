//! Classifies every error by the party at fault and the fate of the error:
//!
//! | type | at fault | fate |
//! |---|---|---|
//! | [`Reject`] | the input | an error reply, or a dead letter with the reason |
//! | [`Retry`] | the world | the same call is tried again |
//! | [`Stop`] | Keepsake, or its data is in danger | the process ends with an exit code |
//!
//! Every [`StopName`] and [`RejectCode`] is a heading in `deploy/RUNBOOK.md`, which a test checks.
//! To add one, add the variant, its exit code or status, and the heading.

use std::fmt;
use std::sync::OnceLock;
use strum::{EnumCount, IntoStaticStr, VariantArray};

/// Result of an operation that touches disk, network or a model.
pub type Result<T> = std::result::Result<T, Fault>;

#[derive(Clone, Debug)]
pub enum Fault {
    /// The world is not ready. The same call may succeed later, and the caller tries again.
    Retry(Retry),
    /// Continuing could lose or mix up data, or cannot work at all. The process ends with the name
    /// and an exit code.
    Stop(Stop),
}

impl Fault {
    pub fn retry(what: impl Into<String>) -> Fault {
        Fault::Retry(Retry { what: what.into() })
    }

    pub fn stop(name: StopName, what: impl Into<String>) -> Fault {
        Fault::Stop(Stop { name, what: what.into() })
    }

    /// Prefixes the message with the context, for example `reads the shard of partition 3: …`.
    pub fn about(self, context: impl fmt::Display) -> Fault {
        match self {
            Fault::Retry(retry) => Fault::retry(format!("{context}: {}", retry.what)),
            Fault::Stop(stop) => Fault::stop(stop.name, format!("{context}: {}", stop.what)),
        }
    }

    pub fn exit_code(&self) -> u8 {
        match self {
            Fault::Retry(_) => 1,
            Fault::Stop(stop) => stop.name.exit_code(),
        }
    }
}

/// Returns the message that this build lacks a part, named by the cargo feature. `what`: the
/// option, command or call that asks for the part.
pub fn lacking(what: &str, part: &str) -> String {
    format!(
        "{what}: this build lacks `{part}` (cargo feature); use a build that has it, or do without {what}"
    )
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Retry(retry) => f.write_str(&retry.what),
            Fault::Stop(stop) => {
                write!(f, "{} [{}, see {}]", stop.what, stop.name.as_str(), runbook())
            }
        }
    }
}

impl std::error::Error for Fault {}

static RUNBOOK: OnceLock<String> = OnceLock::new();

/// Sets the file that errors and help texts name as the runbook. Only the first call has an effect.
pub fn set_runbook(file: String) {
    let _ = RUNBOOK.set(file);
}

/// The file of the runbook: where a package has put it, else its place in a checkout.
pub fn runbook() -> &'static str {
    RUNBOOK.get().map_or("deploy/RUNBOOK.md", String::as_str)
}

#[derive(Clone, Debug)]
pub struct Retry {
    pub what: String,
}

#[derive(Clone, Debug)]
pub struct Stop {
    pub name: StopName,
    pub what: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumCount, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum StopName {
    ConfigInvalid,
    BrokerUnreachable,
    BrokerRefuses,
    LoginRefused,
    TlsFailed,
    AccessDenied,
    TopicMissing,
    TopicMisconfigured,
    PartitionsDiffer,
    EventsGone,
    ChangelogIncomplete,
    ChangelogShared,
    StoreLocked,
    StoreOfAnotherLog,
    StoreNewer,
    StoreOlder,
    StoreUnreadable,
    StoreUnwritable,
    IndexUnwritable,
    ModelUnusable,
    ModelChanged,
    LogDamaged,
    LogUnwritable,
    DeadLetterFlood,
    InstanceTaken,
    NoProgress,
    AddressTaken,
    ThreadDied,
    BackupDamaged,
    BackupOfAnotherLog,
    TargetInUse,
    TargetNotEmpty,
    SigningKeyDiffers,
    GenerationRetired,
    GenerationRefused,
}

impl StopName {
    pub const ALL: [StopName; StopName::COUNT] =
        *StopName::VARIANTS.first_chunk().expect("strum lists every variant once");

    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Returns 2 for wrong usage, 3 for a stop that protects data, 1 for everything else.
    pub fn exit_code(self) -> u8 {
        match self {
            StopName::ConfigInvalid => 2,
            StopName::TopicMisconfigured
            | StopName::PartitionsDiffer
            | StopName::EventsGone
            | StopName::ChangelogIncomplete
            | StopName::ChangelogShared
            | StopName::StoreOfAnotherLog
            | StopName::StoreNewer
            | StopName::StoreOlder
            | StopName::StoreUnreadable
            | StopName::StoreUnwritable
            | StopName::IndexUnwritable
            | StopName::ModelChanged
            | StopName::LogDamaged
            | StopName::LogUnwritable
            | StopName::DeadLetterFlood
            | StopName::InstanceTaken
            | StopName::BackupDamaged
            | StopName::BackupOfAnotherLog
            | StopName::TargetInUse
            | StopName::TargetNotEmpty
            | StopName::SigningKeyDiffers
            | StopName::GenerationRetired
            | StopName::GenerationRefused => 3,
            _ => 1,
        }
    }
}

/// Why an input is refused: the error reply to the sender and the reason on the dead letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reject {
    pub code: RejectCode,
    pub message: String,
    pub field: Option<String>,
    /// Where Keepsake failed on the input, for the dead letter. Never in a reply.
    pub stack: Option<String>,
}

impl Reject {
    pub fn new(code: RejectCode, message: impl Into<String>) -> Reject {
        Reject { code, message: message.into(), field: None, stack: None }
    }

    pub fn of_field(field: impl Into<String>, message: impl Into<String>) -> Reject {
        Reject {
            code: RejectCode::InvalidField,
            message: message.into(),
            field: Some(field.into()),
            stack: None,
        }
    }

    /// A record on which Keepsake itself fails.
    pub fn poison(message: impl Into<String>, stack: Option<String>) -> Reject {
        Reject { stack, ..Reject::new(RejectCode::Poison, message) }
    }
}

impl fmt::Display for Reject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.field {
            Some(field) => write!(f, "{field}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumCount, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum RejectCode {
    TooLarge,
    NotUtf8,
    NotJson,
    UnknownType,
    InvalidField,
    /// The registry did not return the schema of the value.
    SchemaUnavailable,
    /// The registry has no schema of the value's id.
    SchemaUnknown,
    /// The schema cannot be compiled, or is beyond a limit.
    SchemaRefused,
    /// The bytes of the value do not fit the schema.
    NotOfSchema,
    /// The record was forwarded once and again reached a partition that is not that of the key.
    #[strum(serialize = "misrouted-twice")]
    Misrouted,
    /// A proposal without a valid signature: only the compaction worker may write proposals.
    #[strum(serialize = "untrusted-proposal")]
    Untrusted,
    NotFound,
    Expired,
    Stale,
    Overloaded,
    Unavailable,
    /// The record does not carry the signature of its tenant.
    Forbidden,
    #[strum(serialize = "forbidden-reply-topic")]
    ForbiddenReply,
    ReplyTopicMissing,
    /// Keepsake panics on this record, or the model refuses the text.
    Poison,
    /// An operator named the record in `ingest.skip`.
    Skipped,
}

impl RejectCode {
    pub const ALL: [RejectCode; RejectCode::COUNT] =
        *RejectCode::VARIANTS.first_chunk().expect("strum lists every variant once");

    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Returns the `status` field of the error reply, defined in `schemas/`.
    pub fn status(self) -> &'static str {
        match self {
            RejectCode::TooLarge => "too_large",
            RejectCode::NotFound => "not_found",
            RejectCode::Expired => "expired",
            RejectCode::Stale => "stale",
            RejectCode::Overloaded => "overloaded",
            RejectCode::Unavailable | RejectCode::SchemaUnavailable => "unavailable",
            RejectCode::Forbidden | RejectCode::ForbiddenReply | RejectCode::ReplyTopicMissing => {
                "forbidden"
            }
            _ => "invalid",
        }
    }
}
