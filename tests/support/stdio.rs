//! A client of `keepsake mcp`: a child process that speaks MCP on standard input and output.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// `keepsake mcp` as a child of a client. Killed when dropped.
pub struct Mcp {
    pub process: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Mcp {
    /// Starts a whole command line and says hello.
    pub fn start(command: &mut Command) -> Mcp {
        let mut mcp = Mcp::spawn(command);
        mcp.greets();
        mcp
    }

    pub fn spawn(command: &mut Command) -> Mcp {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().expect("cargo builds the program before this test");
        let input = process.stdin.take();
        let output = BufReader::new(process.stdout.take().expect("piped"));
        Mcp { process, input, output }
    }

    pub fn greets(&mut self) {
        let made = self.ask(
            "initialize",
            json!({"protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": {"name": "t", "version": "1"}}),
        );
        assert_eq!(made["serverInfo"]["name"], "keepsake", "{made}");
        let line = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        self.send(&line);
    }

    fn send(&mut self, line: &Value) {
        let input = self.input.as_mut().expect("not ended");
        writeln!(input, "{line}").expect("the program reads");
    }

    /// Sends a request and returns the result, in the only line that the program prints.
    pub fn ask(&mut self, method: &str, params: Value) -> Value {
        self.send(&json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}));
        let mut line = String::new();
        self.output.read_line(&mut line).expect("the program answers");
        let answer: Value = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{line}: {e}"));
        answer["result"].clone()
    }

    /// Calls a tool and returns its text, its structured content, and whether it is an error.
    pub fn tool(&mut self, name: &str, arguments: Value) -> (String, Value, bool) {
        let result = self.ask("tools/call", json!({"name": name, "arguments": arguments}));
        let text = result["content"][0]["text"].as_str().unwrap_or_default().to_owned();
        (text, result["structuredContent"].clone(), result["isError"] == true)
    }

    pub fn adds(&mut self, text: &str) {
        let (said, added, is_error) = self.tool("add_memory", json!({"text": text}));
        assert!(!is_error && added["id"].is_string(), "{said}");
    }

    pub fn finds(&mut self, query: &str, text: &str) {
        let (said, _, is_error) = self.tool("search_memories", json!({"query": query}));
        assert!(!is_error && said.contains(text), "{said}");
    }

    /// Closes the input, as a client does that ends.
    pub fn end(mut self) -> Option<i32> {
        self.input = None;
        self.process.wait().expect("it ends with its input").code()
    }
}

impl Drop for Mcp {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
