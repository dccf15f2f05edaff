//! Why a call is refused: an HTTP status, a name, and a message that says what to do.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use domain::fault::Reject;
use serde_json::{Value, json};

#[derive(Clone, Debug)]
pub struct Refusal {
    pub status: StatusCode,
    pub code: String,
    pub message: String,
    pub field: Option<String>,
}

pub type Result<T> = std::result::Result<T, Refusal>;

impl Refusal {
    pub fn new(status: StatusCode, code: &str, message: impl Into<String>) -> Refusal {
        Refusal { status, code: code.to_owned(), message: message.into(), field: None }
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

    /// A call of mem0 that Keepsake does not answer. The code names the part that is missing.
    pub fn unsupported(code: &str, message: impl Into<String>) -> Refusal {
        Refusal::new(StatusCode::NOT_IMPLEMENTED, code, message)
    }

    /// Translates an error reply of the service. The name stays the service's.
    pub fn of_reply(reply: &Value) -> Option<Refusal> {
        let error = reply.get("error")?;
        let name = reply["status"].as_str().unwrap_or("unavailable");
        Some(Refusal {
            status: status_of(name),
            code: name.to_owned(),
            message: error["message"].as_str().unwrap_or_default().to_owned(),
            field: error["field"].as_str().map(str::to_owned),
        })
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

    /// Says in words of the call why the framework could not read a body, a query or a path.
    pub fn of_framework(status: StatusCode, text: &str) -> Refusal {
        if status == StatusCode::UNSUPPORTED_MEDIA_TYPE {
            let refusal = Refusal::invalid("content-type", "send content-type: application/json");
            return Refusal { status, ..refusal };
        }
        let why = text.split_once(": ").map_or(text, |(_, why)| why);
        let why = why.split(" at line ").next().unwrap_or(why);
        if text.contains("as JSON") {
            let refusal = Refusal::invalid("body", format!("the body is no JSON: {why}"));
            return Refusal { status, ..refusal };
        }
        let missing = why.split('`').nth(1).filter(|_| why.contains("missing field"));
        let (field, why) = match (missing, why.split_once(": ")) {
            (Some(field), _) => (field, "is missing".to_owned()),
            (None, Some((field, why))) if !field.contains(' ') => {
                let why = log::decode::plain(why);
                (field, why.replace("invalid digit found in string", "is no whole number"))
            }
            _ => return Refusal::new(status, "invalid", why),
        };
        Refusal { status, ..Refusal::invalid(field, format!("{field} {why}")) }
    }

    pub fn body(&self) -> Value {
        let mut error = json!({"code": self.code, "message": self.message});
        if let Some(field) = &self.field {
            error["field"] = json!(field);
        }
        // `detail` is where the clients of mem0 look for the text.
        json!({"error": error, "detail": self.message})
    }
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
        if self.status == StatusCode::TOO_MANY_REQUESTS {
            let second = axum::http::HeaderValue::from_static("1");
            response.headers_mut().insert("retry-after", second);
        }
        response
    }
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
                "the body is no JSON: EOF while parsing an object",
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
