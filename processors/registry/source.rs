//! The text of a schema, and the bounds within which values are read by it.

/// The text of a schema, as the registry answers.
#[derive(Clone, Debug, Default)]
pub struct Source {
    /// `AVRO`, `PROTOBUF` or `JSON`.
    pub format: String,
    pub text: String,
    /// Name and text of the schemas that this one refers to. Each stands behind those it refers to.
    pub references: Vec<(String, String)>,
}

#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of a schema's text, with that of all references.
    pub schema_bytes_max: usize,
    pub references_max: usize,
    pub depth_max: usize,
    /// Bytes of the JSON that a value becomes.
    pub json_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            // An event has some twenty fields: 2 KB.
            schema_bytes_max: 256 << 10,
            references_max: 32,
            // Records, unions, arrays and maps in one another in an Avro value: events need four, and
            // Protobuf's own limit is 100.
            depth_max: 32,
            // `limits.message_bytes_max`
            json_bytes_max: 1 << 20,
        }
    }
}

/// The reason that a value cannot be read by the schema, for the sender.
pub type Unreadable = String;
