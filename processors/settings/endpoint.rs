//! Checks the address of another service, and reads the secret for that service from a file or a
//! variable.

use std::net::IpAddr;

/// Checks an address. `secret`: the option that takes a secret instead.
pub fn check(option: &str, url: &str, secret: &str) -> Result<(), String> {
    let (scheme, rest) = url.split_once("://").unwrap_or_default();
    let host = rest.split('/').next().unwrap_or_default();
    if !matches!(scheme, "http" | "https") || host.is_empty() {
        return Err(format!("{option}: must begin with http:// or https:// and a host"));
    }
    if host.contains('@') || rest.contains('?') {
        return Err(format!(
            "{option}: may hold no password and no query, because `config show` prints it; use \
             {secret}"
        ));
    }
    Ok(())
}

/// Returns whether nobody between here and this address can read or change what is sent: https, or this
/// machine itself.
pub fn is_secure(url: &str) -> bool {
    let (scheme, rest) = url.split_once("://").unwrap_or_default();
    let authority = rest.split('/').next().unwrap_or_default();
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    let host = authority.rsplit_once(':').filter(|(_, port)| is_port(port));
    let host = host.map_or(authority, |(host, _)| host).trim_matches(['[', ']']);
    let is_loopback =
        || host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
    !host.is_empty() && (scheme == "https" || scheme == "http" && is_loopback())
}

/// Checks an address whose answers are trusted.
pub fn check_secure(option: &str, url: &str) -> Result<(), String> {
    if !is_secure(url) {
        return Err(format!(
            "{option}: must begin with https:// and a host; http:// only for this machine"
        ));
    }
    if url.contains(['@', '#', '"', '\\']) || url.contains(|it: char| it <= ' ' || it > '~') {
        return Err(format!(
            "{option}: may hold no password, fragment, quote, space or letter beyond ASCII"
        ));
    }
    Ok(())
}

/// The options whose value says where a secret is, with the sources that [`secret`] reads.
const OPTIONS: [&str; 3] = ["llm.key", "schemas.login", "tracing.headers"];
const SOURCES: [&str; 2] = ["file:", "env:"];

/// Returns whether the value of this option says where a secret is.
pub fn is_source(option: &str) -> bool {
    OPTIONS.contains(&option)
}

/// Returns whether the value, as TOML, may be the secret itself where its source belongs, or a part of
/// it where somebody wrote a table.
pub fn may_be_secret(option: &str, value: &str) -> bool {
    let value = value.trim_matches(['"', '\'']);
    let is_inside = OPTIONS
        .iter()
        .any(|source| option.strip_prefix(source).is_some_and(|rest| rest.starts_with('.')));
    let is_source = value.is_empty() || SOURCES.iter().any(|source| value.starts_with(source));
    is_inside || OPTIONS.contains(&option) && !is_source
}

/// Reads a secret from its source, `file:PATH` or `env:VARIABLE`. The error names the source and never
/// the text, nor a value without such a prefix. `what`: the secret, for the error.
pub fn secret<T>(
    option: &str,
    source: &str,
    what: &str,
    parse: impl FnOnce(&str) -> Result<T, &'static str>,
) -> Result<Option<T>, String> {
    let text = match source.split_once(':') {
        _ if source.is_empty() => return Ok(None),
        Some(("file", path)) => std::fs::read_to_string(path).map_err(|error| error.to_string()),
        Some(("env", variable)) => std::env::var(variable).map_err(|_| "is not set".to_owned()),
        _ => {
            return Err(format!(
                "{option}: must say where {what} is, as file:PATH or env:VARIABLE, because `config \
                 show` prints every option"
            ));
        }
    };
    let text = text.map_err(|error| format!("{option}: {source}: {error}"))?;
    parse(&text).map(Some).map_err(|error| format!("{option}: {what} in {source} {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_where_a_place_belongs_may_be_the_secret() {
        for (option, value, may_be) in [
            ("llm.key", "\"sk-1\"", true),
            ("llm.key", "\"file:/run/secrets/llm\"", false),
            ("llm.key", "\"\"", false),
            ("tracing.headers.api-key", "\"sk-1\"", true),
            ("tracing.service", "\"keepsake\"", false),
        ] {
            assert_eq!(may_be_secret(option, value), may_be, "{option} = {value}");
        }
    }
}
