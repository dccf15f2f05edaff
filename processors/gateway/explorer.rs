//! Serves the explorer: web pages that show the memories, and why each is kept. The pages hold no
//! data, so they need no key; the calls that they send do.
//!
//! The pages run no script of another origin, load nothing from elsewhere and cannot be framed
//! ([Content Security Policy](https://www.w3.org/TR/CSP3/)).

mod files;

use crate::refusal::{Refusal, Result};
use axum::extract::Path;
use axum::http::header::{self, HeaderName};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use files::FILES;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::sync::LazyLock;

/// Scripts of the pages may write markup only through the policy of lit-html, which escapes all values.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
    img-src 'self' data:; connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; \
    frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types lit-html";

const HEADERS: [(HeaderName, &str); 8] = [
    (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("permissions-policy"), PERMISSIONS_POLICY),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    // Asked for anew each time, and answered 304 while the file is the same: an update of the gateway
    // shows at once.
    (header::CACHE_CONTROL, "no-cache"),
];

const PERMISSIONS_POLICY: &str = "camera=(), display-capture=(), geolocation=(), microphone=(), \
    midi=(), payment=(), usb=(), browsing-topics=()";

struct EmbeddedFile {
    bytes: &'static [u8],
    kind: &'static str,
    etag: String,
}

static BY_PATH: LazyLock<HashMap<&str, EmbeddedFile>> = LazyLock::new(|| {
    let files = FILES.iter().map(|(path, bytes)| {
        let digest = hex::encode(Sha256::digest(bytes));
        let etag = format!("\"{}\"", &digest[..32]);
        (*path, EmbeddedFile { bytes, kind: kind(path), etag })
    });
    files.collect()
});

fn kind(path: &str) -> &'static str {
    match path.rsplit_once('.').map(|(_, end)| end) {
        Some("html") => "text/html; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("json") => "application/json",
        Some("svg") => "image/svg+xml",
        Some("woff2") => "font/woff2",
        _ => "text/plain; charset=utf-8",
    }
}

/// `GET /`.
pub async fn root(headers: HeaderMap) -> Response {
    file("index.html", &headers)
}

/// `GET /explorer/{path}`.
pub async fn below(Path(path): Path<String>, headers: HeaderMap) -> Response {
    file(&path, &headers)
}

fn file(path: &str, asked: &HeaderMap) -> Response {
    guarded(found(path, asked).unwrap_or_else(Refusal::into_response))
}

/// Adds the headers that keep a page from foreign scripts and frames.
pub fn guarded(mut response: Response) -> Response {
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

fn found(path: &str, asked: &HeaderMap) -> Result<Response> {
    let Some(EmbeddedFile { bytes, kind, etag }) = BY_PATH.get(path) else {
        return Err(Refusal::not_found("the explorer has no such file"));
    };
    let known = asked.get(header::IF_NONE_MATCH).and_then(|known| known.to_str().ok());
    let is_known = known.is_some_and(|known| known.split(',').any(|it| it.trim() == etag));
    let head = [(header::ETAG, etag.as_str()), (header::CONTENT_TYPE, kind)];
    Ok(match is_known {
        true => (StatusCode::NOT_MODIFIED, head).into_response(),
        false => (head, *bytes).into_response(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::path::Path;

    /// Adds the files that a browser may load. Types for the checker, licences and notes are not
    /// served.
    fn add(dir: &Path, root: &Path, found: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(dir).expect("a directory") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                add(&path, root, found);
                continue;
            }
            let name = path.strip_prefix(root).expect("below the root").to_string_lossy();
            let is_served = ["html", "css", "js", "svg", "woff2"]
                .iter()
                .any(|end| name.ends_with(&format!(".{end}")) && !name.ends_with(".test.js"));
            if is_served {
                found.insert(name.into_owned());
            }
        }
    }

    #[test]
    fn the_table_has_every_file_of_the_directory() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("explorer");
        let mut there = BTreeSet::new();
        add(&root, &root, &mut there);
        let listed: BTreeSet<String> = FILES.iter().map(|(path, _)| (*path).to_owned()).collect();
        assert_eq!(listed.len(), FILES.len(), "a file is listed twice");
        assert_eq!(listed, there, "explorer/files.rs lists other files than the directory has");
    }
}
