//! `GET /docs`: the calls of the OpenAPI document as one page to read, without scripts.

use crate::dialect::{Dialect, Heading};
use serde_json::{Map, Value};
use std::fmt::Write;

/// The first heading. Those of the dialect follow; a path stands under the first that fits.
const OWN: Heading = (
    "Keepsake's own calls",
    "The body of a POST is a message of the contract without its type; the key decides the tenant.",
    &["/v1/keepsake/"],
);

/// Writes the page. Whatever comes from the document is escaped.
pub fn page(document: &Value, dialect: &Dialect) -> String {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>All calls of Keepsake</title>\n\
         <link rel=\"icon\" href=\"explorer/icon.svg\" type=\"image/svg+xml\">\n\
         <link rel=\"stylesheet\" href=\"explorer/style.css\">\n</head>\n<body>\n<main>\n\
         <h1>All calls</h1>\n<p>{} Send a key as <code>Authorization: Bearer KEY</code> or \
         <code>X-API-Key: KEY</code>. A refusal is <code>{{\"error\": {{\"code\", \"message\", \
         \"field\"}}}}</code>. Version {}. For programs: <a href=\"openapi.json\">openapi.json</a>. \
         <a href=\"./\">Explorer</a></p>\n",
        escaped(text(&document["info"]["description"])),
        escaped(text(&document["info"]["version"])),
    );
    let none = Map::new();
    let paths = document["paths"].as_object().unwrap_or(&none);
    let headings: Vec<&Heading> = std::iter::once(&OWN).chain(dialect.headings).collect();
    for (n, (title, about, _)) in headings.iter().enumerate() {
        let _ = write!(page, "<section>\n<h2>{title}</h2>\n<p>{about}</p>\n");
        for (path, calls) in paths.iter().filter(|(path, _)| part(&headings, path) == n) {
            for (method, call) in calls.as_object().unwrap_or(&none) {
                add_call(&mut page, document, method, path, call);
            }
        }
        page.push_str("</section>\n");
    }
    page.push_str("</main>\n</body>\n</html>\n");
    page
}

fn part(headings: &[&Heading], path: &str) -> usize {
    headings
        .iter()
        .position(|(_, _, begins): &&Heading| begins.iter().any(|it| path.starts_with(it)))
        .unwrap_or(headings.len() - 1)
}

fn add_call(page: &mut String, document: &Value, method: &str, path: &str, call: &Value) {
    let body = resolved(document, &call["requestBody"]["content"]["application/json"]["schema"]);
    let _ = write!(
        page,
        "<details>\n<summary><code>{} {}</code> {}</summary>\n<p>{} {}</p>\n",
        method.to_uppercase(),
        escaped(path),
        escaped(text(&call["summary"])),
        escaped(text(&body["description"])),
        escaped(text(&call["description"])),
    );
    let mut rows = String::new();
    for parameter in call["parameters"].as_array().into_iter().flatten() {
        let place = text(&parameter["in"]);
        let is_required = parameter["required"] == true;
        let about = text(&parameter["description"]);
        add_row(
            &mut rows,
            text(&parameter["name"]),
            place,
            is_required,
            &parameter["schema"],
            about,
        );
    }
    let required = body["required"].as_array().map_or(&[][..], Vec::as_slice);
    for (name, field) in body["properties"].as_object().into_iter().flatten() {
        // The path names the type, and the key the tenant.
        if path.starts_with("/v1/keepsake/") && ["type", "tenant"].contains(&name.as_str()) {
            continue;
        }
        let is_required = required.iter().any(|it| it == name.as_str());
        let whole = resolved(document, field);
        let about = field["description"].as_str().unwrap_or(text(&whole["description"]));
        add_row(&mut rows, name, "body", is_required, whole, about);
    }
    if !rows.is_empty() {
        let _ = write!(
            page,
            "<table>\n<thead><tr><th>Name</th><th>In</th><th>Type</th><th></th></tr></thead>\n\
             <tbody>\n{rows}</tbody>\n</table>\n"
        );
    }
    page.push_str("</details>\n");
}

fn add_row(
    rows: &mut String,
    name: &str,
    place: &str,
    is_required: bool,
    schema: &Value,
    about: &str,
) {
    let star = if is_required { " (required)" } else { "" };
    let _ = writeln!(
        rows,
        "<tr><td><code>{}</code>{star}</td><td>{place}</td><td>{}</td><td>{}</td></tr>",
        escaped(name),
        escaped(&kind(schema)),
        escaped(about),
    );
}

/// Follows a reference to a component of the document.
fn resolved<'d>(document: &'d Value, schema: &'d Value) -> &'d Value {
    let to = schema["$ref"].as_str().and_then(|to| document.pointer(to.strip_prefix('#')?));
    to.unwrap_or(schema)
}

/// The type of a field, or its allowed values.
fn kind(schema: &Value) -> String {
    match (&schema["enum"], &schema["type"]) {
        (Value::Array(values), _) => {
            values.iter().map(|it| it.as_str().unwrap_or("null")).collect::<Vec<_>>().join(", ")
        }
        (_, Value::String(kind)) => kind.clone(),
        _ => String::new(),
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::LACKING_MEM0;
    use crate::openapi;
    use serde_json::json;

    #[test]
    fn the_page_has_every_call_with_its_right_and_its_fields() {
        let document = &openapi::document(&LACKING_MEM0);
        let page = page(document, &LACKING_MEM0);
        for (path, calls) in document["paths"].as_object().expect("paths") {
            for method in calls.as_object().expect("methods").keys() {
                let name = format!("<code>{} {path}</code>", method.to_uppercase());
                assert_eq!(page.matches(&name).count(), 1, "{name}");
            }
        }
        let (_, recall) = page.split_once("POST /v1/keepsake/recall<").expect("the call");
        let (recall, _) = recall.split_once("</details>").expect("its end");
        for word in ["Needs the right read.", "<code>user</code> (required)", "token_budget"] {
            assert!(recall.contains(word), "{word}: {recall}");
        }
        assert!(!recall.contains("<code>tenant</code>"), "{recall}");
    }

    #[test]
    fn a_description_is_no_markup() {
        let call = json!({"get": {"summary": "<script>\"&\"</script>"}});
        let page = page(&json!({"paths": {"/search": call}}), &LACKING_MEM0);
        assert!(page.contains("&lt;script&gt;&quot;&amp;&quot;&lt;/script&gt;"), "{page}");
    }
}
