//! Why a call is refused: an HTTP status, a name, and a message with the next step.

use axum::Json;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use domain::fault::{Fault, Reject};
use serde_json::{Value, json};

/// A token has not the right that a call needs: the name that RFC 6750 gives it.
pub const INSUFFICIENT_SCOPE: &str = "insufficient_scope";

#[derive(Clone, Debug)]
pub struct Refusal {
    pub status: StatusCode,
    pub code: String,
    pub message: String,
    pub field: Option<String>,
    /// The scope that a token needs for the call.
    pub scope: Option<String>,
    /// Whole seconds after which a repeated call can succeed.
    pub retry_after: Option<u64>,
}

pub type Result<T> = std::result::Result<T, Refusal>;

impl Refusal {
    pub fn new(status: StatusCode, code: &str, message: impl Into<String>) -> Refusal {
        let (code, message) = (code.to_owned(), message.into());
        let retry_after = (status == StatusCode::TOO_MANY_REQUESTS).then_some(1);
        Refusal { status, code, message, field: None, scope: None, retry_after }
    }

    pub fn invalid(field: &str, message: impl Into<String>) -> Refusal {
        let refusal = Refusal::new(StatusCode::BAD_REQUEST, "invalid", message);
        Refusal { field: Some(field.to_owned()), ..refusal }
    }

    pub fn forbidden(message: impl Into<String>) -> Refusal {
        Refusal::new(StatusCode::FORBIDDEN, "forbidden", message)
    }

    pub fn not_found(message: impl Into<String>) -> Refusal {
        Refusal::new(StatusCode::NOT_FOUND, "not_found", message)
    }

    pub fn overloaded(message: impl Into<String>) -> Refusal {
        Refusal::new(StatusCode::TOO_MANY_REQUESTS, "overloaded", message)
    }

    /// Adds the time after which a repeated call can succeed.
    pub fn after(self, seconds: f64) -> Refusal {
        Refusal { retry_after: Some(seconds.ceil().max(1.0) as u64), ..self }
    }

    /// A call of mem0 that Keepsake does not answer. The code names the part that is missing.
    pub fn unsupported(code: &str, message: impl Into<String>) -> Refusal {
        Refusal::new(StatusCode::NOT_IMPLEMENTED, code, message)
    }

    /// Translates an error reply of the service. The name stays the service's.
    pub fn of_reply(reply: &Value) -> Option<Refusal> {
        let error = reply.get("error")?;
        let name = reply["status"].as_str().unwrap_or("unavailable");
        let message = error["message"].as_str().unwrap_or_default();
        let field = error["field"].as_str().map(str::to_owned);
        Some(Refusal { field, ..Refusal::new(status_of(name), name, message) })
    }

    /// Translates a refusal of the service's decoder as the service would answer it.
    pub fn of_reject(reject: Reject) -> Refusal {
        let name = reject.code.status();
        // The clients of mem0 show the message without the field.
        let message = match &reject.field {
            Some(field) => format!("{field} {}", reject.message),
            None => reject.message,
        };
        Refusal { field: reject.field, ..Refusal::new(status_of(name), name, message) }
    }

    /// Explains in words of the call why the framework could not read a body, a query or a path.
    pub fn of_framework(status: StatusCode, text: &str) -> Refusal {
        if status == StatusCode::UNSUPPORTED_MEDIA_TYPE {
            let refusal = Refusal::invalid("content-type", "send content-type: application/json");
            return Refusal { status, ..refusal };
        }
        let why = text.split_once(": ").map_or(text, |(_, why)| why);
        let (why, place) = why.rsplit_once(" at line ").unwrap_or((why, ""));
        if text.contains("as JSON") {
            let place = match place {
                "" => String::new(),
                place => format!(", from line {place} on"),
            };
            let what = format!("the body is no JSON{place}: look for a missing quote or comma");
            return Refusal { status, ..Refusal::invalid("body", what) };
        }
        let (field, why) = of_parser(why);
        let refusal = match field {
            Some(field) => Refusal::invalid(field, format!("{field} {why}")),
            None => Refusal::invalid("body", format!("the body {why}")),
        };
        Refusal { status, ..refusal }
    }

    pub fn body(&self) -> Value {
        let status = self.status.as_u16();
        let mut error = json!({"code": self.code, "message": self.message, "status": status});
        if let Some(field) = &self.field {
            error["field"] = json!(field);
        }
        if let Some(scope) = &self.scope {
            error["scope"] = json!(scope);
        }
        // `detail` is where the clients of mem0 look for the text.
        json!({"error": error, "detail": self.message})
    }
}

/// The field that a parser's message names, if any, and the error in that field.
fn of_parser(message: &str) -> (Option<&str>, String) {
    let quoted = message.split('`').nth(1);
    for (theirs, ours) in [
        ("missing field `", "is missing"),
        ("duplicate field `", "is given twice"),
        ("unknown field `", "is no field of this call: see /docs"),
    ] {
        if message.contains(theirs) {
            return (quoted, ours.to_owned());
        }
    }
    let (field, message) = match message.split_once(": ") {
        Some((field, message)) if !field.contains(' ') => (Some(field), message),
        _ => (None, message),
    };
    let known = [
        ("invalid digit found in string", "is no whole number"),
        ("cannot parse integer from empty string", "is empty and must be a whole number"),
        ("invalid float literal", "is no number"),
        ("provided string was not `true` or `false`", "is neither true nor false"),
        ("data did not match any variant", "has a form that this call does not take: see /docs"),
    ];
    let known = known.into_iter().find(|(theirs, _)| message.starts_with(theirs));
    let why = match (known, message.strip_prefix("unknown variant ")) {
        (Some((_, ours)), _) => ours.to_owned(),
        (None, Some(variant)) => format!("is {variant}"),
        (None, None) => contract::decode::plain(message),
    };
    (field, why)
}

fn status_of(name: &str) -> StatusCode {
    match name {
        "invalid" => StatusCode::BAD_REQUEST,
        "too_large" => StatusCode::PAYLOAD_TOO_LARGE,
        "not_found" => StatusCode::NOT_FOUND,
        "forbidden" => StatusCode::FORBIDDEN,
        "overloaded" => StatusCode::TOO_MANY_REQUESTS,
        "expired" => StatusCode::GATEWAY_TIMEOUT,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let body = self.body();
        let mut response = (self.status, Json(body)).into_response();
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
        }
        // By which `admission.rs` tells the client where it gets a token.
        response.extensions_mut().insert(self);
        response
    }
}

pub fn unavailable(fault: &Fault) -> Refusal {
    Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", fault.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_framework_refuses_is_said_in_words_of_the_call() {
        let of = |text: &str| {
            let refusal = Refusal::of_framework(StatusCode::UNPROCESSABLE_ENTITY, text);
            (refusal.field.unwrap_or_default(), refusal.message)
        };
        let data = "Failed to deserialize the JSON body into the target type: ";
        for (text, field, message) in [
            (
                format!(
                    "{data}user_id: invalid type: integer `3`, expected a string at line 1 column 9"
                ),
                "user_id",
                "user_id is integer `3`, expected a string",
            ),
            (
                format!("{data}missing field `query` at line 1 column 2"),
                "query",
                "query is missing",
            ),
            (
                "Failed to parse the request body as JSON: EOF while parsing an object at line 1"
                    .into(),
                "body",
                "the body is no JSON, from line 1 on: look for a missing quote or comma",
            ),
            (
                format!("{data}unknown field `typo`, expected `letters` at line 1 column 7"),
                "typo",
                "typo is no field of this call: see /docs",
            ),
            (
                format!("{data}feedback: unknown variant `UP`, expected `POSITIVE` or `NEGATIVE`"),
                "feedback",
                "feedback is `UP`, expected `POSITIVE` or `NEGATIVE`",
            ),
            (
                format!(
                    "{data}data did not match any variant of untagged enum Messages at line 1 \
                     column 3"
                ),
                "body",
                "the body has a form that this call does not take: see /docs",
            ),
            (
                "Failed to deserialize query string: preview: provided string was not `true` or \
                 `false`"
                    .into(),
                "preview",
                "preview is neither true nor false",
            ),
            (
                "Failed to deserialize query string: limit: invalid digit found in string".into(),
                "limit",
                "limit is no whole number",
            ),
        ] {
            assert_eq!(of(&text), (field.to_owned(), message.to_owned()), "{text}");
        }
    }
}
