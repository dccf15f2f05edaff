//! Headers for the collector, such as an API key. Their values are shown nowhere.

use std::fmt;

/// In the form of `OTEL_EXPORTER_OTLP_HEADERS`: `name=value,name=value`, with `%` escapes.
#[derive(Clone, Default)]
pub struct Headers(Vec<(String, String)>);

impl Headers {
    /// Reads the text of a file or a variable. The error does not quote the text.
    pub fn of(text: &str) -> Result<Headers, &'static str> {
        let parts = text.trim().split(',').filter(|part| !part.trim().is_empty());
        let headers: Result<Vec<_>, _> = parts.map(header).collect();
        let headers = headers?;
        if headers.is_empty() {
            return Err("has no header; write name=value");
        }
        Ok(Headers(headers))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

fn header(part: &str) -> Result<(String, String), &'static str> {
    let (name, value) = part.split_once('=').ok_or("has a header without \"=\"")?;
    let name = name.trim();
    if name.is_empty() || !name.bytes().all(is_of_a_name) {
        return Err("has a header whose name has other characters than HTTP allows");
    }
    let value = unescaped(value.trim()).ok_or("has a \"%\" without two hexadecimal digits")?;
    if !value.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
        return Err("has characters that no HTTP header may have");
    }
    Ok((name.to_owned(), value))
}

/// Bytes of a token ([RFC 9110](https://www.rfc-editor.org/rfc/rfc9110#name-tokens)). `%` is left out
/// because it begins an escape.
fn is_of_a_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$&'*+-.^_`|~".contains(&byte)
}

fn unescaped(value: &str) -> Option<String> {
    let mut parts = value.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let digits = part.get(..2).filter(|digits| !digits.starts_with('+'))?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    String::from_utf8(bytes).ok()
}

/// Hides the values from logs and panic messages.
impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Headers(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_and_an_unusable_one_is_not_quoted() {
        let headers =
            Headers::of(" api-key=secret , Authorization=Basic%20a%3D%3D,\n").expect("valid");
        let read: Vec<_> = headers.iter().collect();
        assert_eq!(read, [("api-key", "secret"), ("Authorization", "Basic a==")]);
        assert_eq!(format!("{headers:?}"), "Headers(…)");
        for text in [
            "",
            " ,",
            "secret",
            "=secret",
            "a b=secret",
            "a=secrét",
            "a=secret%0a",
            "a=%+fsecret",
            "a=secret%2",
        ] {
            let error = Headers::of(text).expect_err(text);
            assert!(!error.contains("secr"), "{error}");
        }
    }
}
