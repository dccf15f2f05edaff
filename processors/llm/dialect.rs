//! The differences between OpenAI-compatible servers: which options of a request they accept.
//!
//! A request begins with the options of the newest servers. If a server refuses a request, the
//! option that the error names is changed, or else the format of the answer is asked for less
//! strictly. The dialect that a server accepted is kept for the next requests.

use crate::model::Shape;
use serde_json::{Map, Value, json};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dialect {
    format: Format,
    /// The name of the limit of tokens.
    limit: Limit,
    has_temperature: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    JsonSchema,
    /// The schema beside `json_object`, as llama-cpp-python takes it.
    SchemaOfObject,
    JsonObject,
    /// The prompt alone asks for JSON.
    Plain,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Limit {
    /// All servers but the newest models of OpenAI.
    MaxTokens,
    MaxCompletionTokens,
}

impl Default for Dialect {
    fn default() -> Dialect {
        Dialect { format: Format::JsonSchema, limit: Limit::MaxTokens, has_temperature: true }
    }
}

impl Dialect {
    /// Returns the dialect to try after a refused request. `None` if there is none left.
    pub fn after(self, error: &str) -> Option<Dialect> {
        if self.limit == Limit::MaxTokens && error.contains("max_completion_tokens") {
            return Some(Dialect { limit: Limit::MaxCompletionTokens, ..self });
        }
        if self.has_temperature && error.contains("temperature") {
            return Some(Dialect { has_temperature: false, ..self });
        }
        let format = match self.format {
            Format::JsonSchema => Format::SchemaOfObject,
            Format::SchemaOfObject => Format::JsonObject,
            Format::JsonObject => Format::Plain,
            Format::Plain => return None,
        };
        Some(Dialect { format, ..self })
    }

    /// Adds the options to a request.
    pub fn write(self, request: &mut Map<String, Value>, shape: &Shape, tokens_max: u32) {
        let limit = match self.limit {
            Limit::MaxTokens => "max_tokens",
            Limit::MaxCompletionTokens => "max_completion_tokens",
        };
        request.insert(limit.into(), tokens_max.into());
        if self.has_temperature {
            request.insert("temperature".into(), 0.into());
        }
        let format = match self.format {
            Format::JsonSchema => json!({"type": "json_schema", "json_schema": {
                "name": shape.name, "strict": true, "schema": shape.schema}}),
            Format::SchemaOfObject => json!({"type": "json_object", "schema": shape.schema}),
            Format::JsonObject => json!({"type": "json_object"}),
            Format::Plain => return,
        };
        request.insert("response_format".into(), format);
    }
}

/// True if an error names an option that a dialect may leave out.
pub fn names_an_option(error: &str) -> bool {
    ["response_format", "json_schema", "temperature", "max_tokens"]
        .iter()
        .any(|option| error.contains(option))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_leads_to_a_simpler_request_or_to_an_end() {
        let mut dialect = Dialect::default();
        for (error, left) in [
            ("use 'max_completion_tokens' instead", true),
            ("unsupported value: 'temperature'", true),
            ("max_completion_tokens and temperature", true),
            ("response_format", true),
            ("response_format", true),
            ("anything", false),
        ] {
            match dialect.after(error) {
                Some(next) => {
                    assert!(left, "{error}");
                    assert_ne!(next, dialect, "{error}");
                    dialect = next;
                }
                None => assert!(!left, "{error}"),
            }
        }
    }
}
