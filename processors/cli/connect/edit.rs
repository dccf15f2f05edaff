//! Adds a server to the text of a configuration file, or removes one, and leaves all other bytes,
//! comments included, as they are. Pure.

use jsonc_parser::ParseOptions;
use jsonc_parser::cst::{CstInputValue, CstObject, CstRootNode};
use toml_edit::{Array, DocumentMut, Item, Table, value};

const NAME: &str = "keepsake";
/// Settings of a server that is reached by address, which mean a fault beside a command.
const JSON_OF_ADDRESS: [&str; 3] = ["url", "headers", "type"];
const TOML_OF_ADDRESS: [&str; 6] = [
    "url",
    "bearer_token",
    "bearer_token_env_var",
    "http_headers",
    "env_http_headers",
    "oauth_resource",
];

/// The program that a client of MCP starts.
pub struct Entry {
    pub command: String,
    pub arguments: Vec<String>,
}

#[derive(Clone, Copy)]
pub enum Format {
    /// JSON, with comments and trailing commas if the file has them.
    Json {
        section: &'static str,
        with_type: bool,
    },
    Toml {
        section: &'static str,
    },
}

type Result = std::result::Result<String, String>;

impl Format {
    /// Adds the server, in place of one of the same name, whose other settings stay.
    pub fn added(self, text: &str, entry: &Entry) -> Result {
        match self {
            Format::Json { section, with_type } => {
                let (root, object) = parsed_json(text)?;
                let servers = object
                    .object_value_or_create(section)
                    .ok_or_else(|| format!("{section} is no object"))?;
                let fields = json_fields(entry, with_type);
                let present = servers.get(NAME);
                match present.as_ref().map(|present| (present, present.object_value())) {
                    Some((_, Some(server))) => replace(&server, fields),
                    Some((present, None)) => present.set_value(CstInputValue::Object(fields)),
                    None => drop(servers.append(NAME, CstInputValue::Object(fields))),
                }
                Ok(ended(root.to_string(), text))
            }
            Format::Toml { section } => {
                let mut document = parsed_toml(text)?;
                let servers = document.entry(section).or_insert_with(|| {
                    let mut table = Table::new();
                    table.set_implicit(true);
                    Item::Table(table)
                });
                let servers =
                    servers.as_table_like_mut().ok_or_else(|| format!("{section} is no table"))?;
                let mut server = Table::new();
                server.insert("command", value(entry.command.as_str()));
                server.insert("args", value(entry.arguments.iter().collect::<Array>()));
                if let Some(present) = servers.get_mut(NAME).and_then(Item::as_table_like_mut) {
                    for name in TOML_OF_ADDRESS {
                        present.remove(name);
                    }
                    for (name, item) in server {
                        present.insert(&name, item);
                    }
                } else {
                    servers.insert(NAME, Item::Table(server));
                }
                Ok(document.to_string())
            }
        }
    }

    /// Takes the server out.
    pub fn removed(self, text: &str) -> Result {
        match self {
            Format::Json { section, .. } => {
                let (root, object) = parsed_json(text)?;
                let present = object.object_value(section).and_then(|servers| servers.get(NAME));
                match present {
                    Some(present) => present.remove(),
                    None => return Ok(text.to_owned()),
                }
                Ok(root.to_string())
            }
            Format::Toml { section } => {
                let mut document = parsed_toml(text)?;
                let servers = document.get_mut(section).and_then(Item::as_table_like_mut);
                match servers.and_then(|servers| servers.remove(NAME)) {
                    Some(_) => Ok(document.to_string()),
                    None => Ok(text.to_owned()),
                }
            }
        }
    }
}

pub fn parsed_json(text: &str) -> std::result::Result<(CstRootNode, CstObject), String> {
    let root = CstRootNode::parse(text, &ParseOptions::default()).map_err(|e| e.to_string())?;
    let object = root.object_value_or_create().ok_or("is no JSON object")?;
    Ok((root, object))
}

fn parsed_toml(text: &str) -> std::result::Result<DocumentMut, String> {
    text.parse().map_err(|e: toml_edit::TomlError| e.message().to_owned())
}

/// A new file ends with a line break.
pub fn ended(written: String, before: &str) -> String {
    match before.trim().is_empty() {
        true => format!("{}\n", written.trim()),
        false => written,
    }
}

/// Sets the fields of a server that is there, and removes those of a server by address.
fn replace(server: &CstObject, fields: Vec<(String, CstInputValue)>) {
    for name in JSON_OF_ADDRESS.iter().filter(|name| fields.iter().all(|(it, _)| it != *name)) {
        if let Some(present) = server.get(name) {
            present.remove();
        }
    }
    for (name, value) in fields {
        match server.get(&name) {
            Some(present) => present.set_value(value),
            None => drop(server.append(&name, value)),
        }
    }
}

fn json_fields(entry: &Entry, with_type: bool) -> Vec<(String, CstInputValue)> {
    let text = |text: &str| CstInputValue::String(text.to_owned());
    let arguments = entry.arguments.iter().map(|argument| text(argument)).collect();
    let kind = with_type.then(|| ("type".to_owned(), text("stdio")));
    let rest = [
        ("command".to_owned(), text(&entry.command)),
        ("args".to_owned(), CstInputValue::Array(arguments)),
    ];
    kind.into_iter().chain(rest).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DESKTOP: Format = Format::Json { section: "mcpServers", with_type: false };
    const CODEX: Format = Format::Toml { section: "mcp_servers" };

    fn entry(user: &str) -> Entry {
        let arguments = ["mcp", "--user", user].map(str::to_owned).to_vec();
        Entry { command: "/opt/keep \"sake\"".into(), arguments }
    }

    #[test]
    fn all_else_stays_byte_for_byte() {
        for (format, text) in [
            (DESKTOP, "{\"a\":1e3,\"mcpServers\":{\"x\":{\"command\":\"x\\u0041\"}},\"b\":[ ]}"),
            (DESKTOP, "{\r\n\t\"mcpServers\": {\r\n\t\t\"x\": {} // mine\r\n\t},\r\n}\r\n"),
            (CODEX, "# mine\nmodel = 'x'\n\n[mcp_servers.x] # a\ncommand =  \"x\"\n\n[tui]\na=1\n"),
        ] {
            let added = format.added(text, &entry("ada")).expect("valid");
            assert!(added.contains("--user"), "{added}");
            for part in ["// mine", "# mine", "= 'x'", "=  \"x\"", "1e3", "\\u0041", "\r\n"] {
                assert!(added.contains(part) || !text.contains(part), "{part}: {added}");
            }
            let removed = format.removed(&added).expect("valid");
            // Only an object on a single line keeps its line breaks.
            let is_one_line = text.lines().count() == 1;
            let bare = |text: &str| text.replace(char::is_whitespace, "");
            assert!(removed == text || is_one_line && bare(&removed) == bare(text), "{removed}");
            assert_eq!(format.removed(text).expect("valid"), text);
            let again = format.added(&added, &entry("ada")).expect("valid");
            assert_eq!(again, added, "a second time changes nothing");
            let other = format.added(&added, &entry("zoe")).expect("valid");
            assert!(other.contains("zoe") && !other.contains("ada"), "{other}");
        }
    }

    #[test]
    fn a_server_by_address_becomes_a_command_and_keeps_the_settings_of_the_user() {
        const VS_CODE: Format = Format::Json { section: "servers", with_type: true };
        for (format, text, kept) in [
            (
                CODEX,
                "[mcp_servers.keepsake]\nurl = \"http://x\"\nbearer_token_env_var = \"url_K\"\n\
                 http_headers = { headers = \"1\" }\nenabled = true # mine\n",
                "enabled = true # mine",
            ),
            (
                VS_CODE,
                "{\n  \"servers\": {\n    \"keepsake\": {\n      \"type\": \"http\",\n      \
                 \"url\": \"http://x\",\n      \"headers\": {\"a\": \"1\"},\n      \
                 \"env\": {\"A\": \"b\"} // mine\n    }\n  }\n}\n",
                "\"env\": {\"A\": \"b\"}",
            ),
            (
                DESKTOP,
                "{\"mcpServers\":{\"keepsake\":{\"type\":\"http\",\"url\":\"http://x\",\"env\":{}}}}",
                "\"env\":{}",
            ),
        ] {
            let added = format.added(text, &entry("ada")).expect("valid");
            assert!(added.contains(kept) && added.contains("--user"), "{added}");
            for gone in ["url", "headers", "bearer", "\"http\""] {
                assert!(!added.contains(gone), "{gone}: {added}");
            }
            assert_eq!(
                added.contains("\"stdio\""),
                matches!(format, Format::Json { with_type: true, .. }),
                "{added}"
            );
            assert_eq!(format.added(&added, &entry("ada")).expect("valid"), added);
        }
    }

    #[test]
    fn what_is_no_configuration_is_refused() {
        for (format, text) in [
            (DESKTOP, "{"),
            (DESKTOP, "[]"),
            (DESKTOP, "{\"mcpServers\": []}"),
            (CODEX, "mcp_servers = 3"),
            (CODEX, "[mcp"),
        ] {
            assert!(format.added(text, &entry("ada")).is_err(), "{text}");
        }
    }
}
