//! Reads the body of a chat completion: one JSON object, or a stream of server-sent events whose
//! deltas are joined.
//!
//! OpenAI, Ollama, vLLM and llama.cpp write the same fields; some leave `usage`, `refusal` or
//! `finish_reason` out.

use crate::model::Refusal;
use serde::Deserialize;

/// The answer as a text.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Completion {
    pub text: String,
    pub refusal: Option<Refusal>,
    pub tokens_in: u64,
    pub tokens_out: u64,
}

#[derive(Deserialize)]
struct Written {
    #[serde(default)]
    choices: Vec<Choice>,
    usage: Option<Usage>,
}

#[derive(Deserialize)]
struct Choice {
    message: Option<Part>,
    /// Takes the place of `message` in a stream.
    delta: Option<Part>,
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct Part {
    content: Option<String>,
    refusal: Option<String>,
}

#[derive(Deserialize)]
struct Usage {
    #[serde(default)]
    prompt_tokens: u64,
    #[serde(default)]
    completion_tokens: u64,
}

/// Returns `None` if the body is no completion, or only the beginning of one.
pub fn read(body: &[u8]) -> Option<Completion> {
    let body = std::str::from_utf8(body).ok()?;
    let is_stream = body.trim_start().starts_with("data:") || body.trim_start().starts_with(':');
    let parts = if is_stream { events(body)? } else { vec![serde_json::from_str(body).ok()?] };
    let mut read = Completion::default();
    let mut is_empty = true;
    for Written { choices, usage } in parts {
        if let Some(usage) = usage {
            read.tokens_in = usage.prompt_tokens;
            read.tokens_out = usage.completion_tokens;
        }
        // Only one choice was asked for.
        let Some(choice) = choices.into_iter().next() else { continue };
        is_empty = false;
        if let Some(part) = choice.message.or(choice.delta) {
            read.text.push_str(part.content.as_deref().unwrap_or_default());
            if part.refusal.is_some_and(|refusal| !refusal.is_empty()) {
                read.refusal = Some(Refusal::Declined);
            }
        }
        match choice.finish_reason.as_deref() {
            Some("content_filter") => read.refusal = Some(Refusal::Declined),
            Some("length") => read.refusal = read.refusal.or(Some(Refusal::Truncated)),
            _ => {}
        }
    }
    (!is_empty).then_some(read)
}

/// Returns the events of a stream. `None` if an event is no JSON or the stream breaks off, because
/// the rest is then missing.
fn events(body: &str) -> Option<Vec<Written>> {
    let mut events = Vec::new();
    for line in body.lines() {
        let Some(data) = line.strip_prefix("data:").map(str::trim) else { continue };
        if data == "[DONE]" {
            return Some(events);
        }
        events.push(serde_json::from_str(data).ok()?);
    }
    events.iter().any(has_ended).then_some(events)
}

fn has_ended(event: &Written) -> bool {
    event.choices.iter().any(|one| one.finish_reason.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(body: &str, text: &str, refusal: Option<Refusal>) {
        let read = read(body.as_bytes()).unwrap_or_else(|| panic!("{body}"));
        assert_eq!((read.text.as_str(), read.refusal), (text, refusal), "{body}");
    }

    #[test]
    fn whole_bodies_and_streams_are_read() {
        check(r#"{"choices": [{"message": {"content": "a", "refusal": null}}]}"#, "a", None);
        check(
            "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"a\"}}]}\r\n\r\n\
             : keep-alive\r\n\r\n\
             data:{\"choices\":[{\"delta\":{\"content\":\"b\"},\"finish_reason\":\"stop\"}]}\r\n\r\n\
             data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3}}\r\n\r\ndata: [DONE]\r\n\r\n",
            "ab",
            None,
        );
    }

    #[test]
    fn refusals_and_the_limit_of_tokens_are_found() {
        for (choice, refusal) in [
            (r#""message": {"content": null, "refusal": "I cannot"}"#, Refusal::Declined),
            (
                r#""message": {"content": "x"}, "finish_reason": "content_filter""#,
                Refusal::Declined,
            ),
            (r#""message": {"content": "x"}, "finish_reason": "length""#, Refusal::Truncated),
        ] {
            let body = format!("{{\"choices\": [{{{choice}}}]}}");
            assert_eq!(
                read(body.as_bytes()).and_then(|read| read.refusal),
                Some(refusal),
                "{body}"
            );
        }
    }

    #[test]
    fn a_broken_body_is_no_completion() {
        for body in [
            "",
            "{}",
            "{\"error\": {\"message\": \"overloaded\"}}",
            "{\"choices\": [{\"message\": {\"content\": \"a",
            "<html></html>",
            "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n",
            "data: {\"choices\":[{\"delta\":{\"con",
        ] {
            assert_eq!(read(body.as_bytes()), None, "{body}");
        }
    }
}
