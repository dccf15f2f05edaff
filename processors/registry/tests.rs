//! Values of every type become JSON, and bytes of strangers become an error. The Avro values are
//! written by `apache-avro`.

use crate::schema::Schema;
use crate::source::{Limits, Source};
use apache_avro::types::Value as Avro;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::HashMap;

const LIMITS: Limits =
    Limits { schema_bytes_max: 1 << 16, references_max: 8, depth_max: 32, json_bytes_max: 1 << 20 };

fn source(format: &str, text: impl Into<String>) -> Source {
    Source { format: format.to_owned(), text: text.into(), references: Vec::new() }
}

fn schema(format: &str, text: impl Into<String>) -> Schema {
    Schema::compile(&source(format, text)).expect("a schema")
}

fn refusal(format: &str, text: impl Into<String>) -> String {
    Schema::compile(&source(format, text)).map(|_| ()).expect_err("no schema")
}

fn read(schema: &Schema, bytes: &[u8]) -> Result<Value, String> {
    schema.read(bytes, &LIMITS).map(Value::Object)
}

/// An Avro record with one field of this type.
fn record_of(of: &Value) -> String {
    json!({"type": "record", "name": "Event", "fields": [{"name": "it", "type": of}]}).to_string()
}

fn written(text: &str, value: Avro) -> Vec<u8> {
    let schema = apache_avro::Schema::parse_str(text).expect("a schema");
    apache_avro::to_avro_datum(&schema, value).expect("a value of the schema")
}

fn field(value: Avro) -> Avro {
    Avro::Record(vec![("it".to_owned(), value)])
}

fn union(branch: u32, value: Avro) -> Avro {
    Avro::Union(branch, Box::new(value))
}

#[test]
fn every_avro_type_becomes_json() {
    let kind = json!({"type": "enum", "name": "Kind", "symbols": ["turn", "tick"]});
    let inner = json!({"type": "record", "name": "Inner", "namespace": "a.b",
        "fields": [{"name": "n", "type": "int"}, {"name": "x", "type": ["null", "string"]}]});
    let nothing = Avro::Union(0, Box::new(Avro::Null));
    let in_it = Avro::Record(vec![("n".into(), Avro::Int(-3)), ("x".into(), nothing.clone())]);
    let pairs = HashMap::from([("k".to_owned(), Avro::String("v".to_owned()))]);
    for (of, value, expected) in [
        (json!("boolean"), Avro::Boolean(true), json!(true)),
        (json!("int"), Avro::Int(i32::MIN), json!(i32::MIN)),
        (json!("long"), Avro::Long(i64::MAX), json!(i64::MAX)),
        (json!("long"), Avro::Long(i64::MIN), json!(i64::MIN)),
        (json!("float"), Avro::Float(0.5), json!(0.5)),
        (json!("double"), Avro::Double(-0.1), json!(-0.1)),
        (json!("bytes"), Avro::Bytes(vec![0, 255]), json!("AP8=")),
        (json!("string"), Avro::String("é\n".into()), json!("é\n")),
        (json!({"type": "string"}), Avro::String(String::new()), json!("")),
        (
            json!({"type": "fixed", "name": "F", "size": 2}),
            Avro::Fixed(2, vec![1, 2]),
            json!("AQI="),
        ),
        (kind, Avro::Enum(1, "tick".into()), json!("tick")),
        (
            json!({"type": "array", "items": "long"}),
            Avro::Array(vec![Avro::Long(1), Avro::Long(-1)]),
            json!([1, -1]),
        ),
        (json!({"type": "map", "values": "string"}), Avro::Map(pairs), json!({"k": "v"})),
        (json!(["null", "string", "long"]), union(2, Avro::Long(7)), json!(7)),
        (inner, in_it, json!({"n": -3})),
        (
            json!({"type": "long", "logicalType": "timestamp-millis"}),
            Avro::TimestampMillis(-1),
            json!("1969-12-31T23:59:59.999Z"),
        ),
        (
            json!({"type": "long", "logicalType": "timestamp-micros"}),
            Avro::TimestampMicros(1_700_000_000_000_001),
            json!("2023-11-14T22:13:20.000001Z"),
        ),
        (
            json!(["null", {"type": "long", "logicalType": "timestamp-millis"}]),
            union(1, Avro::TimestampMillis(0)),
            json!("1970-01-01T00:00:00Z"),
        ),
    ] {
        let text = record_of(&of);
        let bytes = written(&text, field(value));
        assert_eq!(read(&schema("AVRO", &*text), &bytes), Ok(json!({"it": expected})), "{of}");
    }
    let text = record_of(&json!(["null", "string"]));
    let bytes = written(&text, field(nothing));
    assert_eq!(read(&schema("AVRO", text), &bytes), Ok(json!({})), "null is absent");
    let longs = record_of(&json!({"type": "array", "items": "long"}));
    // A block of two with its size, a block of one without.
    let bytes = [3, 4, 2, 4, 2, 6, 0];
    assert_eq!(read(&schema("AVRO", longs), &bytes), Ok(json!({"it": [1, 2, 3]})));
}

#[test]
fn avro_names_are_resolved_in_their_namespace_and_in_references() {
    let mut source = source(
        "AVRO",
        json!({"type": "record", "name": "Event", "namespace": "a", "fields": [
            {"name": "kind", "type": "Kind"},
            {"name": "next", "type": ["null", "Event"]},
            {"name": "far", "type": "b.Far"}]})
        .to_string(),
    );
    let kind = r#"{"type": "enum", "name": "Kind", "namespace": "a", "symbols": ["x"]}"#;
    let far =
        r#"{"type": "record", "name": "b.Far", "fields": [{"name": "kind", "type": "a.Kind"}]}"#;
    source.references = vec![("a.Kind".into(), kind.into()), ("b.Far".into(), far.into())];
    let compiled = Schema::compile(&source).expect("a schema");
    // kind x, next {kind x, next null, far {kind x}}, far {kind x}
    let found = read(&compiled, &[0, 2, 0, 0, 0, 0]);
    assert_eq!(
        found,
        Ok(json!({"kind": "x", "next": {"kind": "x", "far": {"kind": "x"}}, "far": {"kind": "x"}}))
    );
    source.references.pop();
    let why = Schema::compile(&source).map(|_| ()).expect_err("b.Far is missing");
    assert!(why.contains("unknown type: b.Far"), "{why}");
}

#[test]
fn an_avro_schema_that_cannot_be_used_is_refused() {
    for (text, expected) in [
        ("{", "is not JSON"),
        ("7", "has a type that is neither"),
        ("{}", "has an object without a type"),
        (r#"{"type": "array"}"#, "without items"),
        (r#"{"type": "record", "name": "A"}"#, "without fields"),
        (r#"{"type": "enum", "name": "A", "symbols": [1]}"#, "has no texts as symbols"),
        (r#"{"type": "fixed", "name": "A", "size": -1}"#, "has no size"),
        (r#""Nobody""#, "names an unknown type: Nobody"),
        (
            r#"["null", {"type": "fixed", "name": "A", "size": 1},
                {"type": "fixed", "name": "A", "size": 2}]"#,
            "defines A twice",
        ),
    ] {
        let why = refusal("AVRO", text);
        assert!(why.contains(expected), "{text}: {why}");
    }
    assert!(refusal("JSON", "{}").contains("is JSON Schema"));
    assert!(refusal("XML", "").contains("unknown type"));
}

/// Each of these is some bytes long and would take gigabytes, or the whole stack.
#[test]
fn avro_bombs_are_refused() {
    let nulls = record_of(&json!({"type": "array", "items": "null"}));
    let empty = record_of(&json!({"type": "array", "items":
        {"type": "record", "name": "Empty", "fields": []}}));
    let linked = record_of(&json!(["null", "Event"]));
    let lists = r#"{"type": "record", "name": "Event", "fields": [
        {"name": "it", "type": {"type": "array", "items": "Event"}}]}"#;
    // A billion items, each of which takes no byte.
    let billion: &[u8] = &[0x80, 0xa8, 0xd6, 0xb9, 0x07, 0];
    for (text, bytes, expected) in [
        (&*nulls, billion.to_vec(), "longer than"),
        (&*empty, billion.to_vec(), "longer than"),
        (&*linked, vec![2; 1 << 20], "nested too deep"),
        (lists, vec![2; 1 << 20], "nested too deep"),
        (&*record_of(&json!("string")), vec![0xfe, 0xff, 0xff, 0xff, 0x0f], "longer than"),
        (
            &*record_of(&json!({"type": "fixed", "name": "F", "size": u64::MAX})),
            vec![0],
            "cut short",
        ),
    ] {
        let why = read(&schema("AVRO", text), &bytes).expect_err(text);
        assert!(why.contains(expected), "{text}: {why}");
    }
    let mut wide = vec![json!({"type": "record", "name": "N0", "fields":
        [{"name": "z", "type": "null"}]})];
    for n in 1..30 {
        let below = format!("N{}", n - 1);
        wide.push(json!({"type": "record", "name": format!("N{n}"), "fields":
            [{"name": "a", "type": below}, {"name": "b", "type": below}]}));
    }
    let mut source = source("AVRO", "\"N29\"");
    source.references = wide.iter().map(|it| (String::new(), it.to_string())).collect();
    let compiled = Schema::compile(&source).expect("a schema");
    let why = read(&compiled, &[]).expect_err("half a billion records of no bytes");
    assert!(why.contains("longer than"), "{why}");
}

#[test]
fn bytes_that_are_no_value_of_the_avro_schema_are_named() {
    for (of, bytes, expected) in [
        (json!("long"), &[][..], "cut short"),
        (json!("long"), &[0xff; 11], "longer than 64 bits"),
        (json!("long"), &[2, 2], "1 bytes are left over"),
        (json!("boolean"), &[2], "neither 0 nor 1"),
        (json!("string"), &[1], "a length is negative"),
        (json!("string"), &[2, 0xff], "not UTF-8"),
        (json!(["null"]), &[2], "no such branch"),
        (json!(["null"]), &[1], "no such branch"),
        (json!({"type": "enum", "name": "E", "symbols": ["a"]}), &[2], "no such symbol"),
        (json!("double"), &[0, 0, 0, 0, 0, 0, 0xf0, 0x7f], "infinite"),
        (
            json!({"type": "long", "logicalType": "timestamp-millis"}),
            &[0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
            "beyond the year 9999",
        ),
    ] {
        let why = read(&schema("AVRO", record_of(&of)), bytes).expect_err("no value");
        assert!(why.contains(expected), "{of}: {why}");
    }
    assert!(
        read(&schema("AVRO", "\"long\""), &[2]).expect_err("a number").contains("not a record")
    );
}

const EVENT: &str = r#"
    syntax = "proto3";
    package acme;
    import "google/protobuf/timestamp.proto";
    enum Role { user = 0; assistant = 1; }
    message Other { string word = 1; message Inner { int64 n = 1; Inner next = 2; } }
    message Event {
      string type = 1;
      string user_name = 2;
      google.protobuf.Timestamp at = 3;
      map<string, string> metadata = 4;
      Role role = 5;
      optional bool remember = 6;
      int64 big = 7;
      repeated string names = 8;
      bytes raw = 9;
      oneof what { string text = 10; double number = 11; }
    }
"#;

/// A field that is delimited by its length.
fn delimited(number: u8, bytes: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2, bytes.len() as u8], bytes].concat()
}

#[test]
fn every_protobuf_type_becomes_json() {
    let messages = schema("PROTOBUF", EVENT);
    let entry = [delimited(1, b"k"), delimited(2, b"v")].concat();
    let parts = [
        vec![2, 2], // the second message
        delimited(1, b"turn"),
        delimited(2, b"ada"),
        delimited(3, &[8, 1, 16, 0x80, 0xad, 0xe2, 0x04]),
        delimited(4, &entry),
        vec![5 << 3, 1, 6 << 3, 0, 7 << 3, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f],
        delimited(8, b"a"),
        delimited(8, b"b"),
        delimited(9, &[0, 255]),
        vec![11 << 3 | 1, 0, 0, 0, 0, 0, 0, 0xe0, 0x3f],
    ];
    assert_eq!(
        read(&messages, &parts.concat()),
        Ok(json!({"type": "turn", "user_name": "ada", "at": "1970-01-01T00:00:01.010Z",
            "metadata": {"k": "v"}, "role": "assistant", "remember": false, "big": i64::MAX,
            "names": ["a", "b"], "raw": "AP8=", "number": 0.5}))
    );
}

#[test]
fn message_indexes_name_the_message() {
    let messages = schema("PROTOBUF", EVENT);
    for (indexes, expected) in [
        (&[0][..], Ok(json!({}))),
        (&[2, 0], Ok(json!({}))),
        (&[4, 0, 0, 8, 5], Ok(json!({"n": 5}))),
        (&[2, 4], Err("no such message")),
        (&[4, 0, 2], Err("no such message")),
        (&[1], Err("message indexes")),
        (&[0xff, 0xff, 0xff, 0xff, 0x0f], Err("message indexes")),
        (&[0xfe, 0xff, 0xff, 0x7f, 0], Err("cut short")),
        (&[], Err("cut short")),
        (&[2, 2, 0x0a, 9], Err("")),
    ] {
        match (read(&messages, indexes), expected) {
            (found, Ok(expected)) => assert_eq!(found, Ok(expected), "{indexes:?}"),
            (found, Err(why)) => {
                let found = found.expect_err("no message");
                assert!(found.contains(why), "{indexes:?}: {found}");
            }
        }
    }
}

#[test]
fn protobuf_references_are_imported_by_their_names() {
    let mut source = source(
        "PROTOBUF",
        r#"syntax = "proto3"; import "acme/word.proto"; message E { acme.Word word = 1; }"#,
    );
    let word = r#"syntax = "proto3"; package acme; message Word { string it = 1; }"#;
    source.references = vec![("acme/word.proto".into(), word.into())];
    let compiled = Schema::compile(&source).expect("a schema");
    let bytes = [vec![0], delimited(1, &delimited(1, b"x"))].concat();
    assert_eq!(read(&compiled, &bytes), Ok(json!({"word": {"it": "x"}})));
    source.references.clear();
    let why = Schema::compile(&source).map(|_| ()).expect_err("the import is missing");
    assert!(why.contains("cannot be compiled"), "{why}");
}

#[test]
fn protobuf_bombs_are_refused() {
    let nested = format!("{}{}", "message A {".repeat(50_000), "}".repeat(50_000));
    assert!(refusal("PROTOBUF", nested).contains("brackets"));
    let deep = format!("syntax = \"proto3\"; {}{}", "message A {".repeat(1_900), "}".repeat(1_900));
    let _ = Schema::compile(&source("PROTOBUF", deep));
    let any = r#"syntax = "proto3"; import "google/protobuf/any.proto";
        message A { google.protobuf.Any it = 1; }"#;
    assert!(refusal("PROTOBUF", any).contains("any.proto"));
    // A name of ten thousand letters for each byte.
    let name = "X".repeat(10_000);
    let long =
        format!("syntax = \"proto3\"; message A {{ repeated E e = 1; }} enum E {{ {name} = 0; }}");
    let bytes = [vec![0, 10, 200, 1], vec![0; 200]].concat();
    let why = read(&schema("PROTOBUF", long), &bytes).expect_err("2 MB");
    assert!(why.contains("longer than"), "{why}");
    // A message in a message, a thousand times, from the inside.
    let mut value = Vec::new();
    for _ in 0..1_000 {
        let mut around = vec![2 << 3 | 2];
        let mut length = value.len();
        while length > 127 {
            around.push(length as u8 | 0x80);
            length >>= 7;
        }
        around.push(length as u8);
        around.extend(value);
        value = around;
    }
    let linked = "syntax = \"proto3\"; message A { A next = 2; }";
    let bytes = [vec![0], value].concat();
    let why = read(&schema("PROTOBUF", linked), &bytes).expect_err("too deep");
    assert!(why.contains("recursion"), "{why}");
}

#[test]
fn a_protobuf_schema_that_is_no_text_of_one_is_refused() {
    for text in ["", "message", "syntax = \"proto3\"; message A { Nobody n = 1; }", "\0"] {
        match Schema::compile(&source("PROTOBUF", text)) {
            Err(why) => assert!(why.contains("cannot be compiled"), "{text}: {why}"),
            // An empty file is one, without a message.
            Ok(messages) => assert!(read(&messages, &[0]).is_err(), "{text}"),
        }
    }
}

proptest! {
    #[test]
    fn any_bytes_are_a_value_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let all = json!({"type": "record", "name": "Event", "fields": [
            {"name": "a", "type": {"type": "array", "items": ["null", "string", "Event", "double"]}},
            {"name": "m", "type": {"type": "map", "values": ["bytes", "boolean", "float"]}},
            {"name": "t", "type": {"type": "long", "logicalType": "timestamp-micros"}}]});
        let _ = read(&schema("AVRO", all.to_string()), &bytes);
        let messages = schema("PROTOBUF", EVENT);
        let _ = read(&messages, &bytes);
        let _ = read(&messages, &[&[2, 2], &bytes[..]].concat());
    }

    #[test]
    fn any_text_is_a_schema_or_an_error(text in "\\PC{0,200}") {
        for format in ["AVRO", "PROTOBUF"] {
            let _ = Schema::compile(&source(format, text.as_str()));
        }
    }
}
