//! A span: one piece of work with its times, attributes and links.

use crate::{Context, SpanId};
use std::borrow::Cow;

/// The side of a message on which the work is done. The numbers are those of OTLP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Internal = 1,
    Producer = 4,
    Consumer = 5,
}

/// Invariant: no value is a text of a user. Texts are names of topics and tenants, ids, and words of
/// the code.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Text(Cow<'static, str>),
    Number(i64),
    Flag(bool),
}

pub type Attribute = (&'static str, Value);

#[derive(Clone, Debug)]
pub struct Span {
    pub context: Context,
    pub parent: Option<SpanId>,
    pub name: &'static str,
    pub kind: Kind,
    /// Nanoseconds since 1970.
    pub began_ns: u64,
    pub ended_ns: u64,
    pub attributes: Vec<Attribute>,
    /// Spans of other processes whose messages caused this one.
    pub links: Vec<Context>,
    /// Links beyond the limit.
    pub links_left_out: u32,
    /// The class of the error with which the work ended.
    pub error: Option<&'static str>,
}

impl Span {
    pub fn with(mut self, name: &'static str, value: impl Into<Value>) -> Span {
        self.attributes.push((name, value.into()));
        self
    }

    /// Adds a link to the span of the sender, if there is one.
    pub fn linked(mut self, sender: Option<Context>) -> Span {
        self.links.extend(sender);
        self
    }

    /// Makes this span a child of another one of this process.
    pub fn child_of(self, parent: Context) -> Span {
        Span { parent: Some(parent.span), ..self }
    }

    pub fn with_all(mut self, attributes: impl IntoIterator<Item = Attribute>) -> Span {
        self.attributes.extend(attributes);
        self
    }
}

impl From<&'static str> for Value {
    fn from(text: &'static str) -> Value {
        Value::Text(text.into())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::Text(text.into())
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Value {
        Value::Number(number)
    }
}

impl From<usize> for Value {
    fn from(number: usize) -> Value {
        Value::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Value {
        Value::Flag(flag)
    }
}
