//! Checks the address of another service, and reads the secret for it from a file or a variable.

/// An option and its value.
type Named<'a> = (&'a str, &'a str);

/// Checks an address. `secrets`: the options that take a secret instead.
pub fn check(option: &str, url: &str, secrets: &str) -> Result<(), String> {
    let (scheme, rest) = url.split_once("://").unwrap_or_default();
    let host = rest.split('/').next().unwrap_or_default();
    if !matches!(scheme, "http" | "https") || host.is_empty() {
        return Err(format!("{option}: must begin with http:// or https:// and a host"));
    }
    if host.contains('@') || rest.contains('?') {
        return Err(format!(
            "{option}: may hold no password and no query, because `config show` prints it; use \
             {secrets}"
        ));
    }
    Ok(())
}

/// Reads a secret from the file or from the variable that an option names. The error names the place
/// and never the text. `what`: the secret, for the error.
pub fn secret<T>(
    (file_option, file): Named<'_>,
    (variable_option, variable): Named<'_>,
    what: &str,
    parse: impl FnOnce(&str) -> Result<T, &'static str>,
) -> Result<Option<T>, String> {
    let (option, place, text) = match (file, variable) {
        ("", "") => return Ok(None),
        (file, "") => {
            let text = std::fs::read_to_string(file).map_err(|error| error.to_string());
            (file_option, file, text)
        }
        ("", variable) => {
            let text = std::env::var(variable).map_err(|_| "is not set".to_owned());
            (variable_option, variable, text)
        }
        _ => {
            return Err(format!("{variable_option}: {file_option} is set too; set one of the two"));
        }
    };
    let text = text.map_err(|error| format!("{option}: {place}: {error}"))?;
    parse(&text).map(Some).map_err(|error| format!("{option}: {what} in {place} {error}"))
}
