//! A schema registry for tests: the two GET calls of Confluent's HTTP, with its error codes.

use super::http_server::{self, Request};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

/// How the registry behaves now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Answers,
    /// The connection is taken, and no answer comes.
    Hangs,
    Fails,
}

pub struct RegistryServer {
    pub url: String,
    state: Arc<Mutex<State>>,
}

struct State {
    mode: Mode,
    /// Answers by path.
    answers: HashMap<String, Value>,
    /// The `authorization` header that is asked for.
    login: Option<String>,
    /// Paths that were asked for.
    asked: Vec<String>,
}

impl RegistryServer {
    pub fn start() -> RegistryServer {
        let state = Arc::new(Mutex::new(State {
            mode: Mode::Answers,
            answers: HashMap::new(),
            login: None,
            asked: Vec::new(),
        }));
        let shared = state.clone();
        let address = http_server::start(move |request, stream| serve(request, stream, &shared));
        RegistryServer { url: format!("http://{address}"), state }
    }

    /// Gives this answer for the schema of an id.
    pub fn schema(&self, id: u32, answer: Value) {
        self.put(format!("/schemas/ids/{id}"), answer);
    }

    pub fn put(&self, path: String, answer: Value) {
        self.state.lock().answers.insert(path, answer);
    }

    pub fn ask_for_login(&self, header: &str) {
        self.state.lock().login = Some(header.to_owned());
    }

    pub fn turn(&self, mode: Mode) {
        self.state.lock().mode = mode;
    }

    pub fn asked(&self) -> Vec<String> {
        self.state.lock().asked.clone()
    }
}

fn serve(request: &Request, stream: &mut TcpStream, state: &Mutex<State>) -> Option<()> {
    let path = &request.path;
    let (mode, answer, is_known) = {
        let mut state = state.lock();
        state.asked.push(path.clone());
        let is_known =
            state.login.is_none() || state.login.as_deref() == request.header("authorization");
        (state.mode, state.answers.get(path).cloned(), is_known)
    };
    let (status, body) = match (mode, answer) {
        (Mode::Hangs, _) => {
            std::thread::sleep(Duration::from_secs(30));
            return None;
        }
        (Mode::Fails, _) => (500, json!({"error_code": 50001, "message": "Store failed"})),
        _ if !is_known => (401, json!({"error_code": 401, "message": "Unauthorized"})),
        (Mode::Answers, Some(answer)) => (200, answer),
        (Mode::Answers, None) if path.starts_with("/schemas/ids/") => {
            (404, json!({"error_code": 40403, "message": "Schema not found"}))
        }
        (Mode::Answers, None) if path.starts_with("/subjects/") => {
            (404, json!({"error_code": 40401, "message": "Subject not found"}))
        }
        (Mode::Answers, None) => (404, json!("no such page")),
    };
    let headers = "content-type: application/vnd.schemaregistry.v1+json\r\n";
    http_server::answer(stream, status, headers, &body.to_string())
}
