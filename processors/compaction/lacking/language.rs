//! Stands in for `language.rs` in a build without `llm`, where nobody asks a language model: there is
//! no [`Asking`].

use crate::plan::{Answered, PlannedSummary, Snapshot};
use broker::clock::Clock;
use domain::fault::Result;
use domain::{Memory, Time, UserKey};
use kernel::reads::ContextWindow;
use metrics::Metrics;
use profiles::Profile;
use settings::Config;
use std::convert::Infallible;
use std::sync::Arc;

pub const NO_MODEL: &str = "this build lacks `llm` (cargo feature)";

pub struct Asking(Infallible);

pub fn asking(_: &Config, _: &Arc<dyn Clock>, _: &Arc<Metrics>) -> Result<Option<Asking>> {
    Ok(None)
}

impl Asking {
    pub fn begin(&mut self) {
        match self.0 {}
    }

    pub fn is_waiting(&self) -> bool {
        match self.0 {}
    }

    pub fn wants_round(&self) -> bool {
        match self.0 {}
    }

    pub fn summaries(
        &mut self,
        _: (i32, &UserKey),
        _: &Profile,
        _: &[Memory],
        _: Vec<PlannedSummary>,
    ) -> Vec<PlannedSummary> {
        match self.0 {}
    }

    pub fn facts(
        &mut self,
        _: (i32, &UserKey),
        _: &Profile,
        _: (&Snapshot, &[(String, Arc<ContextWindow>)]),
        _: Time,
        _: impl Fn(&str) -> Result<bool>,
    ) -> Result<Vec<Answered>> {
        match self.0 {}
    }

    pub fn answered(&mut self) -> Option<Answered> {
        match self.0 {}
    }
}
