//! A small HTTP server for the stand-ins of tests: plain HTTP over a socket of this machine, one request
//! for each connection.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

pub struct Request {
    pub method: String,
    pub path: String,
    /// By name in lower case.
    headers: HashMap<String, String>,
    pub body: Vec<u8>,
}

impl Request {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    fn read(stream: &TcpStream) -> Option<Request> {
        let mut reader = BufReader::new(stream);
        let mut next = || {
            let mut line = String::new();
            reader.read_line(&mut line).ok().map(|_| line)
        };
        let first = next()?;
        let (method, path) = first.split_once(' ')?;
        let path = path.split(' ').next()?.to_owned();
        let mut headers = HashMap::new();
        while let Some((name, value)) = next()?.trim().split_once(": ") {
            headers.insert(name.to_lowercase(), value.to_owned());
        }
        let length = headers.get("content-length").map_or(Some(0), |value| value.parse().ok())?;
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        Some(Request { method: method.to_owned(), path, headers, body })
    }
}

/// Serves each connection on a thread of its own until the tests end. A fault of the socket ends the
/// connection.
pub fn start(
    serve: impl Fn(&Request, &mut TcpStream) -> Option<()> + Send + Sync + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has free ports");
    let address = listener.local_addr().expect("it is bound");
    let serve = Arc::new(serve);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let serve = serve.clone();
            std::thread::spawn(move || serve(&Request::read(&stream)?, &mut stream));
        }
    });
    address
}

/// Writes an answer with these header lines, each with its end.
pub fn answer(stream: &mut TcpStream, status: u16, headers: &str, body: &str) -> Option<()> {
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 {status} x\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n{body}"
    )
    .ok()
}
