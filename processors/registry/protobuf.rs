//! Reads Protobuf values as JSON, by the text of a `.proto` file.
//!
//! Before the message stand the [message
//! indexes](https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/index.html#wire-format):
//! their number, then the place of the message in its file and in each message around. Fields have
//! the names of the `.proto` file; fields with their default value are absent, 64-bit integers are
//! numbers, enums their names, and the well-known types as [ProtoJSON has
//! them](https://protobuf.dev/programming-guides/json/).

use crate::source::{Limits, Source, Unreadable};
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor, SerializeOptions};
use protox::Compiler;
use protox::file::{ChainFileResolver, File, FileResolver, GoogleFileResolver};
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::io::{self, Write};

/// The name of the file itself. References have names of their own.
const MAIN: &str = "keepsake-schema.proto";
/// Opening brackets of all files: the compiler recurses for each that stands in another.
const BRACKETS_MAX: usize = 2_000;
/// Bytes of the stack on which the compiler runs: 32 KiB for each bracket.
const STACK_BYTES: usize = 64 << 20;
/// Contains any message, and so a value of any depth.
const ANY: &str = "google/protobuf/any.proto";

#[derive(Debug)]
pub struct Messages {
    pool: DescriptorPool,
}

impl Messages {
    pub fn compile(source: &Source) -> Result<Messages, String> {
        let texts = source.references.iter().map(|(_, text)| text).chain([&source.text]);
        let brackets: usize = texts.map(|text| brackets(text)).sum();
        if brackets > BRACKETS_MAX {
            return Err(format!("has more than {BRACKETS_MAX} brackets"));
        }
        let source = source.clone();
        let compiler = std::thread::Builder::new()
            .name("schema".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || compiled(source))
            .map_err(|error| format!("could not be compiled: {error}"))?;
        let pool = compiler.join().map_err(|_| "makes the compiler panic".to_owned())??;
        if pool.get_file_by_name(ANY).is_some() {
            return Err(format!("uses {ANY}, which is refused"));
        }
        Ok(Messages { pool })
    }

    pub fn read(&self, bytes: &[u8], limits: &Limits) -> Result<Map<String, Value>, Unreadable> {
        let mut rest = bytes;
        let message = self.message(&mut rest)?;
        let message = DynamicMessage::decode(message, rest).map_err(|error| error.to_string())?;
        let mut json = Bounded { bytes: Vec::new(), max: limits.json_bytes_max };
        let options = SerializeOptions::new()
            .stringify_64_bit_integers(false)
            .use_proto_field_name(true)
            .skip_default_fields(true);
        message
            .serialize_with_options(&mut serde_json::Serializer::new(&mut json), &options)
            .map_err(|error| error.to_string())?;
        serde_json::from_slice(&json.bytes).map_err(|_| "it is not a message".to_owned())
    }

    /// Finds the message that the indexes name. None at all stand for the first of the file.
    fn message(&self, rest: &mut &[u8]) -> Result<MessageDescriptor, Unreadable> {
        let unknown = || "its schema has no such message".to_owned();
        let count = index(rest)?;
        let first = if count == 0 { 0 } else { index(rest)? };
        let file = self.pool.get_file_by_name(MAIN).ok_or_else(unknown)?;
        let mut message = file.messages().nth(first).ok_or_else(unknown)?;
        for _ in 1..count {
            let next = index(rest)?;
            let inner = message.child_messages().nth(next).ok_or_else(unknown)?;
            message = inner;
        }
        Ok(message)
    }
}

fn brackets(text: &str) -> usize {
    text.bytes().filter(|byte| matches!(byte, b'{' | b'[' | b'(' | b'<')).count()
}

fn compiled(source: Source) -> Result<DescriptorPool, String> {
    let Source { text, references, .. } = source;
    let mut resolver = ChainFileResolver::new();
    let mut texts: HashMap<String, String> = references.into_iter().collect();
    texts.insert(MAIN.to_owned(), text);
    resolver.add(Texts(texts));
    resolver.add(GoogleFileResolver::new());
    let mut compiler = Compiler::with_file_resolver(resolver);
    compiler.open_file(MAIN).map_err(|error| format!("cannot be compiled: {error}"))?;
    Ok(compiler.descriptor_pool())
}

/// The files of a schema, by the names under which they are imported.
struct Texts(HashMap<String, String>);

impl FileResolver for Texts {
    fn open_file(&self, name: &str) -> Result<File, protox::Error> {
        match self.0.get(name) {
            Some(text) => File::from_source(name, text),
            None => Err(protox::Error::file_not_found(name)),
        }
    }
}

/// Reads one of the message indexes: a number in zigzag coding that is not negative.
fn index(rest: &mut &[u8]) -> Result<usize, Unreadable> {
    let mut number = 0_u32;
    for shift in (0..28).step_by(7) {
        let (byte, behind) = rest.split_first().ok_or("its message indexes are cut short")?;
        *rest = behind;
        number |= u32::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            let is_negative = number & 1 == 1;
            return if is_negative { Err(no_index()) } else { Ok((number >> 1) as usize) };
        }
    }
    Err(no_index())
}

fn no_index() -> Unreadable {
    "it does not begin with message indexes".to_owned()
}

/// Bytes up to a limit. Long names in the schema make JSON that is longer than the value.
struct Bounded {
    bytes: Vec<u8>,
    max: usize,
}

impl Write for Bounded {
    fn write(&mut self, more: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + more.len() > self.max {
            let what = "as JSON it is longer than limits.message_bytes_max";
            return Err(io::Error::other(what));
        }
        self.bytes.extend_from_slice(more);
        Ok(more.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
