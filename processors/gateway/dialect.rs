//! Paths of another server, which a crate above adds to the gateway, so that its clients work here.

use crate::budget::Budgets;
use crate::refusal::Refusal;
use crate::route::Route;
use axum::http::{Extensions, Uri};
use domain::fault::lacking;

/// Method, path and purpose of a call, and the names that it takes: those of a body for POST and PUT,
/// of the query otherwise; an asterisk marks the required ones.
pub type Call = (&'static str, &'static str, &'static str, &'static [&'static str]);

/// A heading of `GET /docs`, the sentence below it, and the beginnings of its paths.
pub type Heading = (&'static str, &'static str, &'static [&'static str]);

#[derive(Debug)]
pub struct Dialect {
    pub routes: &'static [Route],
    /// The calls of the OpenAPI document, in its order.
    pub calls: &'static [Call],
    pub headings: &'static [Heading],
    /// Makes what its handlers find in `Gateway::beside`.
    pub beside: fn(&Budgets) -> Extensions,
}

/// Stands in for the dialects of mem0 in a build without `mem0`: their paths name what is missing.
pub static LACKING_MEM0: Dialect = Dialect {
    routes: routes! {
        any "/memories"            Key None Nothing Unsupported lacking_mem0;
        any "/memories/"           Key None Nothing Unsupported lacking_mem0;
        any "/memories/{*rest}"    Key None Nothing Unsupported lacking_mem0;
        any "/search"              Key None Nothing Unsupported lacking_mem0;
        any "/v1/ping/"            Key None Nothing Unsupported lacking_mem0;
        any "/v1/memories/"        Key None Nothing Unsupported lacking_mem0;
        any "/v1/memories/{*rest}" Key None Nothing Unsupported lacking_mem0;
        any "/v1/batch/"           Key None Nothing Unsupported lacking_mem0;
        any "/v1/feedback/"        Key None Nothing Unsupported lacking_mem0;
        any "/v1/entities/"        Key None Nothing Unsupported lacking_mem0;
        any "/v1/entities/{*rest}" Key None Nothing Unsupported lacking_mem0;
        any "/v1/exports/"         Key None Nothing Unsupported lacking_mem0;
        any "/v1/exports/{*rest}"  Key None Nothing Unsupported lacking_mem0;
        any "/v1/summary/"         Key None Nothing Unsupported lacking_mem0;
        any "/v2/{*rest}"          Key None Nothing Unsupported lacking_mem0;
        any "/v3/{*rest}"          Key None Nothing Unsupported lacking_mem0;
        any "/api/v1/{*rest}"      Key None Nothing Unsupported lacking_mem0;
    },
    calls: &[],
    headings: &[],
    beside: |_| Extensions::new(),
};

async fn lacking_mem0(uri: Uri) -> Refusal {
    Refusal::unsupported("lacking_mem0", lacking(uri.path(), "mem0"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::StatusCode;

    #[tokio::test]
    async fn a_path_of_mem0_names_the_part_that_the_build_lacks() {
        let refusal = lacking_mem0(Uri::from_static("/v3/memories/add/?page=1")).await;
        assert_eq!(refusal.status, StatusCode::NOT_IMPLEMENTED);
        assert_eq!(refusal.message, lacking("/v3/memories/add/", "mem0"));
    }
}
