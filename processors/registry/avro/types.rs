//! The types of an Avro schema, as values are read by them.

#[derive(Debug)]
pub struct Types {
    pub root: Type,
    /// Records, enums and fixed types, to which [`Type::Named`] refers.
    pub named: Vec<Named>,
}

#[derive(Debug)]
pub enum Type {
    Null,
    Boolean,
    /// 32 bits on paper. Both are written in the same way.
    Long,
    Float,
    Double,
    Bytes,
    Text,
    /// A `long` that counts time since 1970 in parts of a second.
    Timestamp(PartsOfSecond),
    Array(Box<Type>),
    Map(Box<Type>),
    Union(Vec<Type>),
    Named(usize),
}

#[derive(Clone, Copy, Debug)]
pub struct PartsOfSecond(pub i64);

#[derive(Debug)]
pub enum Named {
    Record(Vec<Field>),
    Enum(Vec<String>),
    Fixed(usize),
    /// A type whose definition is being read, so that the type can contain itself.
    Open,
}

#[derive(Debug)]
pub struct Field {
    pub name: String,
    pub of: Type,
}
