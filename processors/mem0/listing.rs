//! Reads a user's list of memories in as many requests as needed: one page by number, or all
//! memories that meet conditions.

use axum::http::StatusCode;
use domain::UserKey;
use gateway::LISTED_MAX;
use gateway::refusal::{Refusal, Result};
use gateway::state::Gateway;
use gateway::tools::of;
use serde::Deserialize;
use serde_json::{Value, json};

/// Memories of one request; the service may send fewer.
const TOGETHER: usize = 100;
/// Memories on a page without `page_size`, as in mem0.
const PAGE: usize = 100;

/// The page of a list that a call of mem0 asks for.
#[derive(Deserialize)]
pub struct Page {
    page: Option<usize>,
    page_size: Option<usize>,
}

impl Page {
    pub fn size(&self) -> usize {
        self.page_size.unwrap_or(PAGE).max(1)
    }

    fn number(&self) -> usize {
        self.page.unwrap_or(1).max(1)
    }

    /// Rows before this page.
    pub fn skipped(&self) -> usize {
        (self.number() - 1).saturating_mul(self.size())
    }

    /// Shows the rows of this page with the neighbouring pages as paths.
    pub fn of(&self, path: &str, count: usize, rows: Vec<Value>) -> Value {
        let (page, size) = (self.number(), self.size());
        let has_next = page.saturating_mul(size) < count;
        let next = has_next.then(|| format!("{path}?page={}&page_size={size}", page + 1));
        let previous = (page > 1).then(|| format!("{path}?page={}&page_size={size}", page - 1));
        json!({"count": count, "next": next, "previous": previous, "results": rows})
    }
}

/// The memories that were read, and the number of all that meet the conditions.
pub struct Listed {
    pub memories: Vec<Value>,
    pub total: usize,
}

/// Reads `count` memories behind the first `skipped`. `fields` are those of the service's `list`.
pub async fn read(
    gateway: &Gateway,
    user: &UserKey,
    fields: &[(&str, &Value)],
    skipped: usize,
    count: usize,
) -> Result<Listed> {
    check(count)?;
    let mut listed = Listed { memories: Vec::new(), total: 0 };
    // The contract's numbers are signed. No user has as many memories.
    let (mut after, mut offset) = (Value::Null, json!(skipped.min(i64::MAX as usize)));
    loop {
        let limit = json!((count - listed.memories.len()).min(TOGETHER));
        let mut request = of("list", fields);
        request["limit"] = limit;
        request["offset"] = std::mem::take(&mut offset);
        request["after"] = after;
        let mut reply = gateway.calls.ask(user, request).await?;
        let Value::Array(memories) = reply["memories"].take() else { return Ok(listed) };
        listed.memories.extend(memories);
        listed.total = reply["total"].as_u64().unwrap_or_default() as usize;
        after = reply["after"].take();
        if after.is_null() || listed.memories.len() >= count {
            return Ok(listed);
        }
    }
}

/// Reads everything that is stored and meets the conditions, also archived memories and those that
/// only their session sees; of the tenant's memories only those that the user made. For a call that
/// erases them.
pub async fn everything(
    gateway: &Gateway,
    user: &UserKey,
    conditions: &Value,
) -> Result<Vec<Value>> {
    let fields = [("where", conditions), ("everything", &json!(true))];
    let listed = read(gateway, user, &fields, 0, LISTED_MAX).await?;
    check(listed.total)?;
    Ok(listed.memories)
}

fn check(count: usize) -> Result<()> {
    if count <= LISTED_MAX {
        return Ok(());
    }
    let what = format!(
        "{count} memories are more than {LISTED_MAX}, the most of one call: POST /v1/keepsake/list goes \
         page by page"
    );
    Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", what))
}
