//! The options of Talome's decision record by their own names.

use crate::options::{DocumentOption, DocumentOptions};

pub const OPTIONS: DocumentOptions = DocumentOptions {
    environment: None,
    options: &[
        of("recencyWeight", &["rank.rule.talome.recency"]),
        of("accessWeight", &["rank.rule.talome.access"]),
        of("confidenceWeight", &["rank.rule.talome.confidence"]),
    ],
};

const fn of(name: &'static str, paths: &'static [&'static str]) -> DocumentOption {
    DocumentOption { name, paths }
}
