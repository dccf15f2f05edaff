//! The option `--reason`: chooses dead letters by their reason.

use clap::Args;
use clap::builder::PossibleValuesParser;
use client::letter::DeadLetter;
use domain::fault::RejectCode;

/// Filter by reason.
#[derive(Args)]
pub struct Reasons {
    /// Only dead letters with this reason; may be repeated
    #[arg(long = "reason", value_name = "CODE", value_parser = codes())]
    codes: Vec<String>,
}

impl Reasons {
    pub fn is_given(&self) -> bool {
        !self.codes.is_empty()
    }

    pub fn match_letter(&self, letter: &DeadLetter) -> bool {
        self.codes.is_empty() || self.codes.iter().any(|code| *code == letter.reason())
    }
}

fn codes() -> PossibleValuesParser {
    PossibleValuesParser::new(RejectCode::ALL.map(RejectCode::as_str))
}
