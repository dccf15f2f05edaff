//! Reads one Avro value from bytes, by the types of a schema.
//!
//! Every value and every name is paid from the bytes that the JSON may have, so what takes no bytes
//! itself, such as a null, is bounded too.

use super::types::{Field, Named, PartsOfSecond, Type, Types};
use crate::source::{Limits, Unreadable};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Map, Number, Value};

pub fn read(
    schema: &Types,
    bytes: &[u8],
    limits: &Limits,
) -> Result<Map<String, Value>, Unreadable> {
    let mut reader = Reader {
        named: &schema.named,
        rest: bytes,
        json_bytes_left: limits.json_bytes_max,
        depth_left: limits.depth_max,
    };
    let value = reader.value(&schema.root)?;
    if !reader.rest.is_empty() {
        return Err(format!("{} bytes are left over", reader.rest.len()));
    }
    match value {
        Value::Object(object) => Ok(object),
        _ => Err("it is not a record".to_owned()),
    }
}

struct Reader<'a> {
    named: &'a [Named],
    rest: &'a [u8],
    json_bytes_left: usize,
    depth_left: usize,
}

impl Reader<'_> {
    fn value(&mut self, of: &Type) -> Result<Value, Unreadable> {
        self.pay(1)?;
        match of {
            Type::Null => Ok(Value::Null),
            Type::Boolean => match self.take(1)? {
                [0] => Ok(false.into()),
                [1] => Ok(true.into()),
                _ => Err("a boolean is neither 0 nor 1".to_owned()),
            },
            Type::Long => Ok(self.long()?.into()),
            Type::Float => {
                let bytes = self.take(4)?.try_into().expect("four bytes were taken");
                number(f32::from_le_bytes(bytes).into())
            }
            Type::Double => {
                let bytes = self.take(8)?.try_into().expect("eight bytes were taken");
                number(f64::from_le_bytes(bytes))
            }
            Type::Bytes => {
                let length = self.length()?;
                self.base64(length)
            }
            Type::Text => Ok(self.text()?.into()),
            Type::Timestamp(parts) => {
                let text = rfc_3339(self.long()?, *parts)?;
                self.pay(text.len())?;
                Ok(text.into())
            }
            Type::Array(items) => self.deeper(|reader| reader.array(items)),
            Type::Map(values) => self.deeper(|reader| reader.map(values)),
            Type::Union(branches) => {
                let branch = usize::try_from(self.long()?).ok();
                let branch = branch.and_then(|branch| branches.get(branch));
                let branch = branch.ok_or("a union has no such branch")?;
                self.deeper(|reader| reader.value(branch))
            }
            Type::Named(index) => match &self.named[*index] {
                Named::Record(fields) => self.deeper(|reader| reader.record(fields)),
                Named::Enum(symbols) => {
                    let symbol = usize::try_from(self.long()?).ok();
                    let symbol = symbol.and_then(|symbol| symbols.get(symbol));
                    let symbol = symbol.ok_or("an enum has no such symbol")?;
                    self.pay(symbol.len())?;
                    Ok(symbol.as_str().into())
                }
                Named::Fixed(size) => self.base64(*size),
                Named::Open => Err("its schema is not complete".to_owned()),
            },
        }
    }

    fn record(&mut self, fields: &[Field]) -> Result<Value, Unreadable> {
        let mut object = Map::new();
        for Field { name, of } in fields {
            let value = self.value(of)?;
            if !value.is_null() {
                self.pay(name.len())?;
                object.insert(name.clone(), value);
            }
        }
        Ok(Value::Object(object))
    }

    fn array(&mut self, items: &Type) -> Result<Value, Unreadable> {
        let mut array = Vec::new();
        while let Some(count) = self.block()? {
            for _ in 0..count {
                array.push(self.value(items)?);
            }
        }
        Ok(Value::Array(array))
    }

    fn map(&mut self, values: &Type) -> Result<Value, Unreadable> {
        let mut object = Map::new();
        while let Some(count) = self.block()? {
            for _ in 0..count {
                let name = self.text()?;
                let value = self.value(values)?;
                if !value.is_null() {
                    object.insert(name, value);
                }
            }
        }
        Ok(Value::Object(object))
    }

    /// Returns the number of items of the next block, `None` at the end. Behind a negative number
    /// stands the size of the block in bytes, which is of no use here.
    fn block(&mut self) -> Result<Option<u64>, Unreadable> {
        let count = self.long()?;
        if count < 0 {
            self.long()?;
        }
        Ok((count != 0).then_some(count.unsigned_abs()))
    }

    fn text(&mut self) -> Result<String, Unreadable> {
        let length = self.length()?;
        self.pay(length)?;
        let text = std::str::from_utf8(self.take(length)?);
        Ok(text.map_err(|_| "a string is not UTF-8")?.to_owned())
    }

    fn base64(&mut self, length: usize) -> Result<Value, Unreadable> {
        let bytes = self.take(length)?;
        let text = BASE64_STANDARD.encode(bytes);
        self.pay(text.len())?;
        Ok(text.into())
    }

    fn length(&mut self) -> Result<usize, Unreadable> {
        usize::try_from(self.long()?).map_err(|_| "a length is negative".to_owned())
    }

    /// Reads a number in zigzag coding, seven bits in a byte and the lowest first.
    fn long(&mut self) -> Result<i64, Unreadable> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1)?[0];
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok((number >> 1) as i64 ^ -((number & 1) as i64));
            }
        }
        Err("a number is longer than 64 bits".to_owned())
    }

    fn take(&mut self, count: usize) -> Result<&[u8], Unreadable> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or("it is cut short")?;
        self.rest = rest;
        Ok(taken)
    }

    fn pay(&mut self, bytes: usize) -> Result<(), Unreadable> {
        let left = self.json_bytes_left.checked_sub(bytes);
        self.json_bytes_left = left.ok_or("as JSON it is longer than limits.message_bytes_max")?;
        Ok(())
    }

    fn deeper(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<Value, Unreadable>,
    ) -> Result<Value, Unreadable> {
        self.depth_left = self.depth_left.checked_sub(1).ok_or("it is nested too deep")?;
        let value = read(self)?;
        self.depth_left += 1;
        Ok(value)
    }
}

fn number(float: f64) -> Result<Value, Unreadable> {
    let number = Number::from_f64(float).ok_or("a number is infinite, or is none")?;
    Ok(Value::Number(number))
}

fn rfc_3339(count: i64, PartsOfSecond(parts): PartsOfSecond) -> Result<String, Unreadable> {
    let nanoseconds = count.rem_euclid(parts) * (1_000_000_000 / parts);
    let time = jiff::Timestamp::new(count.div_euclid(parts), nanoseconds as i32);
    Ok(time.map_err(|_| "a time is beyond the year 9999")?.to_string())
}
