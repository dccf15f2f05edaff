//! Why a call is refused: an HTTP status, a name, and a message that says what to do.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
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
        let status = match name {
            "invalid" => StatusCode::BAD_REQUEST,
            "too_large" => StatusCode::PAYLOAD_TOO_LARGE,
            "not_found" => StatusCode::NOT_FOUND,
            "forbidden" => StatusCode::FORBIDDEN,
            "overloaded" => StatusCode::TOO_MANY_REQUESTS,
            "expired" => StatusCode::GATEWAY_TIMEOUT,
            _ => StatusCode::SERVICE_UNAVAILABLE,
        };
        Some(Refusal {
            status,
            code: name.to_owned(),
            message: error["message"].as_str().unwrap_or_default().to_owned(),
            field: error["field"].as_str().map(str::to_owned),
        })
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
