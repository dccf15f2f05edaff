//! A chat endpoint for tests, in the shapes and with the faults of OpenAI, Ollama, vLLM and
//! llama.cpp.

use super::http_server::{self, Request, answer};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

/// Whose bodies the server writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    OpenAi,
    Ollama,
    Vllm,
    LlamaCpp,
}

impl Shape {
    pub const ALL: [Shape; 4] = [Shape::OpenAi, Shape::Ollama, Shape::Vllm, Shape::LlamaCpp];
}

/// What one request gets.
#[derive(Clone, Debug)]
pub enum Step {
    Says(String),
    /// As server-sent events, although no stream was asked for.
    Streams(String),
    /// A stream that breaks off in the middle.
    StreamsHalf(String),
    /// An answer cut off at the limit of tokens.
    Truncated(String),
    Refuses,
    Filters,
    /// A status with these header lines and this body.
    Status(u16, &'static str, &'static str),
    Hangs,
    /// The connection ends without an answer.
    Closes,
    /// A body of so many bytes.
    Bytes(usize),
}

/// A request as the server read it.
#[derive(Clone, Debug)]
pub struct Asked {
    pub path: String,
    pub authorization: Option<String>,
    pub body: Value,
}

pub struct LanguageServer {
    pub url: String,
    asked: Arc<Mutex<Vec<Asked>>>,
}

type Plan = dyn FnMut(&Asked) -> Step + Send;

impl LanguageServer {
    /// Gives these answers one after the other, and 503 after the last.
    pub fn of(shape: Shape, steps: Vec<Step>) -> LanguageServer {
        let mut steps = VecDeque::from(steps);
        LanguageServer::by(shape, move |_| {
            steps.pop_front().unwrap_or(Step::Status(503, "", "no step is left"))
        })
    }

    pub fn by(shape: Shape, plan: impl FnMut(&Asked) -> Step + Send + 'static) -> LanguageServer {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (seen, plan) = (asked.clone(), Mutex::new(Box::new(plan) as Box<Plan>));
        let address =
            http_server::start(move |request, stream| serve(request, stream, shape, &seen, &plan));
        LanguageServer { url: format!("http://{address}/v1"), asked }
    }

    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().clone()
    }

    /// Everything that was sent, as one text.
    pub fn sent(&self) -> String {
        self.asked().iter().map(|asked| format!("{}\n", asked.body)).collect()
    }
}

fn serve(
    request: &Request,
    stream: &mut TcpStream,
    shape: Shape,
    seen: &Mutex<Vec<Asked>>,
    plan: &Mutex<Box<Plan>>,
) -> Option<()> {
    let asked = Asked {
        path: request.path.clone(),
        authorization: request.header("authorization").map(str::to_owned),
        body: serde_json::from_slice(&request.body).ok()?,
    };
    seen.lock().push(asked.clone());
    let step = (plan.lock())(&asked);
    match step {
        Step::Says(text) => write_json(stream, &whole(shape, &text, "stop")),
        Step::Truncated(text) => write_json(stream, &whole(shape, &text, "length")),
        Step::Refuses => {
            let mut body = whole(shape, "", "stop");
            body["choices"][0]["message"]["content"] = Value::Null;
            body["choices"][0]["message"]["refusal"] = "I cannot help with that.".into();
            write_json(stream, &body)
        }
        Step::Filters => write_json(stream, &whole(shape, "", "content_filter")),
        Step::Streams(text) => {
            answer(stream, 200, "content-type: text/event-stream\r\n", &events(&text, true))
        }
        Step::StreamsHalf(text) => answer(stream, 200, "", &events(&text, false)),
        Step::Status(status, headers, body) => answer(stream, status, headers, body),
        Step::Hangs => {
            std::thread::sleep(Duration::from_secs(30));
            Some(())
        }
        Step::Closes => Some(()),
        Step::Bytes(count) => answer(stream, 200, "", &" ".repeat(count)),
    }
}

/// The fields that each server writes, as captured from their documentation.
fn whole(shape: Shape, text: &str, finish: &str) -> Value {
    let mut body = json!({"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text},
            "finish_reason": finish}],
        "usage": {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}});
    let choice = &mut body["choices"][0];
    match shape {
        Shape::OpenAi => {
            choice["message"]["refusal"] = Value::Null;
            choice["message"]["annotations"] = json!([]);
            choice["logprobs"] = Value::Null;
            body["service_tier"] = "default".into();
        }
        Shape::Ollama => body["system_fingerprint"] = "fp_ollama".into(),
        Shape::Vllm => {
            choice["message"]["reasoning_content"] = Value::Null;
            choice["message"]["tool_calls"] = json!([]);
            choice["stop_reason"] = Value::Null;
            body["prompt_logprobs"] = Value::Null;
        }
        Shape::LlamaCpp => {
            body["timings"] = json!({"prompt_ms": 1.5, "predicted_ms": 3.0});
            body["__verbose"] = json!({"content": ""});
        }
    }
    body
}

fn events(text: &str, ends: bool) -> String {
    let half = text.char_indices().nth(text.chars().count() / 2).map_or(0, |(place, _)| place);
    let event = |delta: Value, finish: Value| {
        format!(
            "data: {}\r\n\r\n",
            json!({"object": "chat.completion.chunk",
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
        )
    };
    let mut stream = event(json!({"role": "assistant", "content": ""}), Value::Null);
    stream += &event(json!({"content": &text[..half]}), Value::Null);
    if ends {
        stream += &event(json!({"content": &text[half..]}), Value::Null);
        stream += &event(json!({}), "stop".into());
        stream += "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":11,\"completion_tokens\":7}}\r\n\r\n";
        stream += "data: [DONE]\r\n\r\n";
    }
    stream
}

fn write_json(stream: &mut TcpStream, body: &Value) -> Option<()> {
    answer(stream, 200, "content-type: application/json\r\n", &body.to_string())
}
