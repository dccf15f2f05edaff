//! Reads numbers that have a range. The error names the option and where its value comes from, like
//! that of a wrong type (`layers.rs`).

use serde::de::{Deserialize, Deserializer, Error};
use std::fmt::Display;

/// Reads a number that must not be 0; its type excludes negative ones.
pub fn at_least_1<'de, D, T>(from: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default + PartialOrd + Display,
{
    within(from, "at least 1", |number: &T| *number > T::default())
}

/// Reads a number of at least 0.
pub fn not_negative<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    within(from, "at least 0", |number: &f64| (0.0..).contains(number))
}

/// Reads a share or a probability.
pub fn share<'de, D, T>(from: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Copy + Into<f64> + Display,
{
    within(from, "0 to 1", |number: &T| (0.0..=1.0).contains(&(*number).into()))
}

fn within<'de, D, T>(from: D, range: &str, is_within: fn(&T) -> bool) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Display,
{
    let number = T::deserialize(from)?;
    if is_within(&number) {
        return Ok(number);
    }
    Err(D::Error::custom(format!("must be {range}, not {number}")))
}
