//! The options of `keepsake map`: the topic of another application, and where its records have the
//! fields of a turn.

use super::config::Config;
use super::tables::leaves;
use serde::Deserialize;
use std::collections::BTreeMap;
use toml::{Table, Value};

/// Longest path of a field, and its steps: each step is a look into every record.
const PATH_BYTES_MAX: usize = 256;
const STEPS_MAX: usize = 32;
/// Longest name of the topic. The name is a part of the id of an event, which has at most 256 bytes.
const TOPIC_BYTES_MAX: usize = 200;
/// The roles of a turn.
const ROLES: [&str; 4] = ["user", "assistant", "system", "tool"];

/// The section `[map]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ForeignTopic {
    pub topic: String,
    pub group: String,
    pub begin: Begin,
    pub tenant: String,
    pub user: String,
    pub session: String,
    pub role: String,
    pub speaker: String,
    pub content: String,
    pub time: String,
    pub id: String,
    roles: Table,
}

/// Where a group begins that has committed no offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Begin {
    Earliest,
    Latest,
}

/// The place of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    Constant(String),
    /// The key of the record.
    Key,
    /// A header of the record.
    Header(String),
    Path(Vec<Step>),
}

/// A step of a path into JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A field of an object, or the index of an array.
    Field(String),
    /// An element of an array; -1 is the last one.
    Index(i64),
    /// Each element of an array: the record has several messages.
    Each,
}

impl Source {
    /// Parses `=constant`, `@key`, `@header.NAME`, the path `$.a.b[0]` or the JSON pointer `/a/b/0`.
    /// Empty: `None`.
    pub fn parse(text: &str) -> Result<Option<Source>, String> {
        if text.len() > PATH_BYTES_MAX {
            return Err(format!("is longer than {PATH_BYTES_MAX} bytes"));
        }
        if text.is_empty() {
            return Ok(None);
        }
        if let Some(constant) = text.strip_prefix('=') {
            return Ok(Some(Source::Constant(constant.to_owned())));
        }
        if let Some(place) = text.strip_prefix('@') {
            return match (place, place.strip_prefix("header.")) {
                ("key", _) => Ok(Some(Source::Key)),
                (_, Some(name)) if !name.is_empty() => Ok(Some(Source::Header(name.to_owned()))),
                _ => Err(format!("{text} is neither @key nor @header.NAME")),
            };
        }
        let steps = match text.strip_prefix('/') {
            Some(pointer) => pointer.split('/').map(|name| Step::Field(unescaped(name))).collect(),
            None => steps(text)?,
        };
        match steps.len() {
            0..=STEPS_MAX => Ok(Some(Source::Path(steps))),
            more => Err(format!("{text} has {more} steps, more than {STEPS_MAX}")),
        }
    }

    /// The path of the list whose elements are the messages.
    pub fn list(&self) -> Option<&[Step]> {
        let Source::Path(steps) = self else { return None };
        let at = steps.iter().position(|step| *step == Step::Each)?;
        Some(&steps[..at])
    }
}

/// Replaces the escapes of a [JSON pointer](https://www.rfc-editor.org/rfc/rfc6901).
fn unescaped(name: &str) -> String {
    name.replace("~1", "/").replace("~0", "~")
}

fn steps(text: &str) -> Result<Vec<Step>, String> {
    let wrong = || {
        format!("{text} is no path; write author.id, messages[].content, parts[0], or /author/id")
    };
    let path = text.strip_prefix("$").map(|rest| rest.strip_prefix('.').unwrap_or(rest));
    let mut steps = Vec::new();
    for part in path.unwrap_or(text).split('.') {
        let (name, mut rest) = part.split_at(part.find('[').unwrap_or(part.len()));
        if name.is_empty() && (rest.is_empty() || !steps.is_empty()) {
            return Err(wrong());
        }
        if !name.is_empty() {
            steps.push(Step::Field(name.to_owned()));
        }
        while !rest.is_empty() {
            let (index, after) = rest[1..].split_once(']').ok_or_else(wrong)?;
            steps.push(match index {
                "" => Step::Each,
                index => Step::Index(index.parse().map_err(|_| wrong())?),
            });
            if !after.is_empty() && !after.starts_with('[') {
                return Err(wrong());
            }
            rest = after;
        }
    }
    Ok(steps)
}

impl ForeignTopic {
    /// The fields of a turn and the option of each.
    pub fn fields(&self) -> [(&'static str, &str); 8] {
        [
            ("tenant", &self.tenant),
            ("user", &self.user),
            ("session", &self.session),
            ("role", &self.role),
            ("speaker", &self.speaker),
            ("content", &self.content),
            ("time", &self.time),
            ("id", &self.id),
        ]
    }

    /// The role of a turn for each word of the topic, in lower case.
    pub fn roles(&self) -> BTreeMap<String, String> {
        let own = ROLES.map(|role| (role.to_owned(), role.to_owned()));
        let given = leaves(&self.roles)
            .into_iter()
            .filter_map(|(word, role)| Some((word.to_lowercase(), role.as_str()?.to_owned())));
        own.into_iter().chain(given).collect()
    }

    /// Returns the first violated rule, with the path of the option.
    pub(super) fn check(&self, config: &Config) -> Result<(), String> {
        let mut list = None;
        for (field, text) in self.fields() {
            let source = Source::parse(text).map_err(|why| format!("map.{field}: {why}"))?;
            let Some(Source::Path(steps)) = source else { continue };
            let mut lists = steps.iter().enumerate().filter(|(_, step)| **step == Step::Each);
            let Some((at, _)) = lists.next() else { continue };
            let of_field = steps[..at].to_vec();
            if lists.next().is_some() || list.get_or_insert(of_field.clone()) != &of_field {
                return Err(format!(
                    "map.{field}: {text} is in another list than the field before; a record has \
                     one list of messages, and [] stands for its elements"
                ));
            }
        }
        for (word, role) in leaves(&self.roles) {
            if !matches!(&role, Value::String(role) if ROLES.contains(&role.as_str())) {
                return Err(format!("map.roles.{word}: must be one of {}", ROLES.join(", ")));
            }
        }
        let (topics, topic) = (&config.topics, &self.topic);
        let is_own = topics.all_but_replies().contains(topic)
            || *topic == topics.replies()
            || ["memories", "tenants"]
                .iter()
                .any(|name| topic.starts_with(&format!("{}{name}.g", topics.prefix)));
        if is_own {
            return Err(format!(
                "map.topic: {topic} is a topic of Keepsake itself; name the topic of the other \
                 application"
            ));
        }
        if topic.len() > TOPIC_BYTES_MAX {
            return Err(format!("map.topic: is longer than {TOPIC_BYTES_MAX} bytes"));
        }
        let own = &config.kafka.group_id;
        if self.group.is_empty() || self.group == *own || self.group == format!("{own}-recalls") {
            return Err(format!(
                "map.group: must be a consumer group of its own, not \"{}\"",
                self.group
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Layers;
    use super::*;

    fn field(name: &str) -> Step {
        Step::Field(name.to_owned())
    }

    #[test]
    fn a_source_is_a_constant_a_path_a_pointer_the_key_or_a_header() {
        for (text, expected) in [
            ("", None),
            ("=", Some(Source::Constant(String::new()))),
            ("=acme", Some(Source::Constant("acme".to_owned()))),
            ("@key", Some(Source::Key)),
            ("@header.user", Some(Source::Header("user".to_owned()))),
            ("$.author.id", Some(Source::Path(vec![field("author"), field("id")]))),
            ("/a~1b/0", Some(Source::Path(vec![field("a/b"), field("0")]))),
            (
                "$.messages[].parts[-1]",
                Some(Source::Path(vec![
                    field("messages"),
                    Step::Each,
                    field("parts"),
                    Step::Index(-1),
                ])),
            ),
            ("$[].text", Some(Source::Path(vec![Step::Each, field("text")]))),
        ] {
            assert_eq!(Source::parse(text), Ok(expected), "{text}");
        }
        for wrong in ["@", "@header.", "$", "a..b", "a[", "a[x]", "a[0]b", ".a", "a.[0]"] {
            assert!(Source::parse(wrong).is_err(), "{wrong}");
        }
        assert!(
            Source::parse(&"a.".repeat(200)).is_err() && Source::parse(&"/a".repeat(60)).is_err()
        );
    }

    #[test]
    fn a_wrong_mapping_is_named_before_anything_is_read() {
        for (option, value, named) in [
            ("map.user", "a..b", "map.user"),
            ("map.topic", "keepsake.events", "a topic of Keepsake itself"),
            ("map.topic", "keepsake.memories.g2", "a topic of Keepsake itself"),
            ("map.topic", "keepsake.tenants.g3", "a topic of Keepsake itself"),
            ("map.group", "keepsake", "map.group"),
            ("map.begin", "now", "map.begin"),
            ("map.roles.robot", "machine", "map.roles.robot"),
            ("map.role", "other[].role", "one list of messages"),
            ("map.content", "messages[].parts[].text", "one list of messages"),
        ] {
            let mut layers = Layers::defaults();
            let set = |layers: &mut Layers, option: &str, value: &str| {
                layers.set(option, value, "test").expect("a text");
            };
            set(&mut layers, "map.id", "messages[].id");
            set(&mut layers, option, value);
            let error = layers.checked().expect_err(option).to_string();
            assert!(error.contains(named), "{option}={value}: {error}");
        }
    }
}
