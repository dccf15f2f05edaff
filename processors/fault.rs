//! What can go wrong, by who is at fault: `Reject` is the input, `Retry` is the world, `Stop` is us or our data in danger.
//! Each has a name; the name is a heading in `deploy/RUNBOOK.md`.

use std::fmt;

/// The result of anything that touches the world.
pub type Result<T> = std::result::Result<T, Fault>;

#[derive(Clone, Debug)]
pub enum Fault {
    /// The world is not ready: the same call may succeed later, and is tried again.
    Retry(Retry),
    /// Going on could lose or mix up data, or cannot work at all: the process ends with the name and an exit code.
    Stop(Stop),
}

impl Fault {
    pub fn retry(what: impl Into<String>) -> Fault {
        Fault::Retry(Retry { what: what.into() })
    }

    pub fn stop(name: StopName, what: impl Into<String>) -> Fault {
        Fault::Stop(Stop { name, what: what.into() })
    }

    /// Says what it was done to: `reads the shard of partition 3: …`.
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

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Retry(retry) => f.write_str(&retry.what),
            Fault::Stop(stop) => {
                write!(f, "{} [{}, see deploy/RUNBOOK.md]", stop.what, stop.name.as_str())
            }
        }
    }
}

impl std::error::Error for Fault {}

#[derive(Clone, Debug)]
pub struct Retry {
    pub what: String,
}

#[derive(Clone, Debug)]
pub struct Stop {
    pub name: StopName,
    pub what: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopName {
    ConfigInvalid,
    BrokerUnreachable,
    BrokerRefuses,
    TopicMissing,
    PartitionsDiffer,
    EventsGone,
    StoreLocked,
    StoreOfAnotherLog,
    StoreNewer,
    StoreUnreadable,
    StoreUnwritable,
    IndexUnwritable,
    ModelUnusable,
    ModelChanged,
    DurabilityDiffers,
    DeadLetterFlood,
    InstanceTaken,
    AddressTaken,
    ThreadDied,
}

impl StopName {
    pub const ALL: [StopName; 19] = [
        StopName::ConfigInvalid,
        StopName::BrokerUnreachable,
        StopName::BrokerRefuses,
        StopName::TopicMissing,
        StopName::PartitionsDiffer,
        StopName::EventsGone,
        StopName::StoreLocked,
        StopName::StoreOfAnotherLog,
        StopName::StoreNewer,
        StopName::StoreUnreadable,
        StopName::StoreUnwritable,
        StopName::IndexUnwritable,
        StopName::ModelUnusable,
        StopName::ModelChanged,
        StopName::DurabilityDiffers,
        StopName::DeadLetterFlood,
        StopName::InstanceTaken,
        StopName::AddressTaken,
        StopName::ThreadDied,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            StopName::ConfigInvalid => "config-invalid",
            StopName::BrokerUnreachable => "broker-unreachable",
            StopName::BrokerRefuses => "broker-refuses",
            StopName::TopicMissing => "topic-missing",
            StopName::PartitionsDiffer => "partitions-differ",
            StopName::EventsGone => "events-gone",
            StopName::StoreLocked => "store-locked",
            StopName::StoreOfAnotherLog => "store-of-another-log",
            StopName::StoreNewer => "store-newer",
            StopName::StoreUnreadable => "store-unreadable",
            StopName::StoreUnwritable => "store-unwritable",
            StopName::IndexUnwritable => "index-unwritable",
            StopName::ModelUnusable => "model-unusable",
            StopName::ModelChanged => "model-changed",
            StopName::DurabilityDiffers => "durability-differs",
            StopName::DeadLetterFlood => "dead-letter-flood",
            StopName::InstanceTaken => "instance-taken",
            StopName::AddressTaken => "address-taken",
            StopName::ThreadDied => "thread-died",
        }
    }

    /// 2: used wrongly, 3: stopped to protect data, 1: anything else.
    pub fn exit_code(self) -> u8 {
        match self {
            StopName::ConfigInvalid => 2,
            StopName::PartitionsDiffer
            | StopName::EventsGone
            | StopName::StoreOfAnotherLog
            | StopName::StoreNewer
            | StopName::StoreUnreadable
            | StopName::StoreUnwritable
            | StopName::IndexUnwritable
            | StopName::ModelChanged
            | StopName::DurabilityDiffers
            | StopName::DeadLetterFlood
            | StopName::InstanceTaken => 3,
            _ => 1,
        }
    }
}

/// Why an input is not taken: the answer to its sender and the reason on its dead letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reject {
    pub code: RejectCode,
    pub message: String,
    pub field: Option<String>,
}

impl Reject {
    pub fn new(code: RejectCode, message: impl Into<String>) -> Reject {
        Reject { code, message: message.into(), field: None }
    }

    pub fn of_field(field: impl Into<String>, message: impl Into<String>) -> Reject {
        Reject {
            code: RejectCode::InvalidField,
            message: message.into(),
            field: Some(field.into()),
        }
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RejectCode {
    TooLarge,
    NotUtf8,
    NotJson,
    UnknownType,
    InvalidField,
    /// Kafka delivered it where its key does not belong, twice.
    Misrouted,
    /// A proposal of the worker's kind from somebody else.
    Untrusted,
    NotFound,
    Expired,
    Stale,
    Overloaded,
    Unavailable,
    ForbiddenReply,
}

impl RejectCode {
    pub const ALL: [RejectCode; 13] = [
        RejectCode::TooLarge,
        RejectCode::NotUtf8,
        RejectCode::NotJson,
        RejectCode::UnknownType,
        RejectCode::InvalidField,
        RejectCode::Misrouted,
        RejectCode::Untrusted,
        RejectCode::NotFound,
        RejectCode::Expired,
        RejectCode::Stale,
        RejectCode::Overloaded,
        RejectCode::Unavailable,
        RejectCode::ForbiddenReply,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            RejectCode::TooLarge => "too-large",
            RejectCode::NotUtf8 => "not-utf8",
            RejectCode::NotJson => "not-json",
            RejectCode::UnknownType => "unknown-type",
            RejectCode::InvalidField => "invalid-field",
            RejectCode::Misrouted => "misrouted-twice",
            RejectCode::Untrusted => "untrusted-proposal",
            RejectCode::NotFound => "not-found",
            RejectCode::Expired => "expired",
            RejectCode::Stale => "stale",
            RejectCode::Overloaded => "overloaded",
            RejectCode::Unavailable => "unavailable",
            RejectCode::ForbiddenReply => "forbidden-reply-topic",
        }
    }

    /// The `status` of the contract.
    pub fn status(self) -> &'static str {
        match self {
            RejectCode::TooLarge => "too_large",
            RejectCode::NotFound => "not_found",
            RejectCode::Expired => "expired",
            RejectCode::Stale => "stale",
            RejectCode::Overloaded => "overloaded",
            RejectCode::Unavailable => "unavailable",
            RejectCode::ForbiddenReply => "forbidden",
            _ => "invalid",
        }
    }
}
