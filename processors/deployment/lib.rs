//! Everything that a service finds around it and that commands look after: the data directory, the
//! directory of the shards, the brokers, the topics with their settings, access control lists,
//! signing key and identity, and the generations of shards. Knows no shard and no processor.

pub mod acls;
mod brokers;
mod data;
pub mod dir;
pub mod growth;
pub mod presence;
pub mod private;
pub mod signing_key;
pub mod tenants_log;
pub mod topic_settings;
pub mod topics;

pub use brokers::Brokers;
pub use data::{DataDir, TemporaryData, log_dir};
pub use dir::lock_dir;
pub use private::{keep_as_configured, keep_private};
