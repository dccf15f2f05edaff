//! The author of a turn.

use strum::{EnumString, IntoStaticStr, VariantNames};

/// Author of a turn.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, IntoStaticStr, EnumString, VariantNames,
)]
#[strum(serialize_all = "lowercase")]
pub enum Role {
    #[default]
    User,
    Assistant,
    System,
    Tool,
}

impl Role {
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}
