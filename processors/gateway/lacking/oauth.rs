//! Stands in for `oauth.rs` in a build without the feature `oauth`: no token is accepted. The check of the
//! options stops an operator who names an issuer.

use crate::keys::Caller;
use crate::refusal::{Refusal, Result};
use axum::response::Response;
use prometheus::IntCounterVec;

/// There are none.
pub enum Tokens {}

impl Tokens {
    pub fn of(_: &settings::Gateway, _: IntCounterVec) -> Option<Tokens> {
        None
    }

    pub async fn prepare(&self) {
        match *self {}
    }

    pub async fn caller(&self, _: &str) -> Result<Caller> {
        match *self {}
    }

    pub fn challenge(&self, _: &mut Response) {
        match *self {}
    }
}

pub async fn metadata() -> Refusal {
    Refusal::not_found(domain::fault::lacking("gateway.oauth.issuer", "oauth"))
}
