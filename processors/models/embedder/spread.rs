//! Reads and writes `spread.json` beside an encoder: the mean and deviation of the cosines of
//! unrelated texts, and the centre that all vectors of the encoder share.
//!
//! `keepsake model measure` or the model set-up writes the file, which is read when an encoder is
//! opened. The field names are a file format.

use crate::onnx;
use domain::CosineScale;
use domain::fault::{Fault, Result, StopName};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{ErrorKind, Read, Write};
use std::path::Path;

pub const FILE: &str = "spread.json";

/// Limit of a file: one with 8,192 numbers takes about 90 kB.
const BYTES_MAX: u64 = 1 << 20;

/// Reads a JSON file that stands beside an encoder; `None` if there is none.
pub(super) fn beside<T: DeserializeOwned>(path: &Path) -> onnx::Result<Option<T>> {
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let mut text = String::new();
    file.take(BYTES_MAX).read_to_string(&mut text)?;
    Ok(Some(serde_json::from_str(&text)?))
}

#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// The name of the measured model. The figures are wrong for any other.
    pub model: String,
    pub unrelated: f32,
    pub deviation: f32,
    /// Subtracted from every vector, which is then scaled to unit length again. Empty if the
    /// encoder needs no centring.
    pub centre: Vec<f32>,
}

impl Measured {
    /// Returns `None` if there is no file.
    pub fn read(directory: &Path, model: &str, dimensions: usize) -> Result<Option<Measured>> {
        let path = directory.join(FILE);
        Measured::parse(&path, model, dimensions).map_err(|error| {
            let what = format!(
                "reads {}: {error}; run keepsake model measure {}",
                path.display(),
                directory.display()
            );
            Fault::stop(StopName::ModelUnusable, what)
        })
    }

    fn parse(path: &Path, model: &str, dimensions: usize) -> onnx::Result<Option<Measured>> {
        let Some(measured) = beside::<Measured>(path)? else { return Ok(None) };
        measured.check(model, dimensions)?;
        Ok(Some(measured))
    }

    /// Writes a new file and renames it, so that a reader finds either the whole old file or the
    /// whole new one.
    pub fn write(&self, directory: &Path) -> Result<()> {
        let path = directory.join(FILE);
        let written = serde_json::to_string(self).map_err(std::io::Error::other).and_then(|text| {
            let new_path = directory.join(format!("{FILE}.new"));
            let mut new = std::fs::File::create(&new_path)?;
            writeln!(new, "{text}")?;
            new.sync_all()?;
            std::fs::rename(&new_path, &path)
        });
        written.map_err(|error| {
            Fault::stop(StopName::ModelUnusable, format!("writes {}: {error}", path.display()))
        })
    }

    pub fn spread(&self) -> CosineScale {
        CosineScale { unrelated: self.unrelated, deviation: self.deviation }
    }

    fn check(&self, model: &str, dimensions: usize) -> std::result::Result<(), String> {
        if self.model != model {
            return Err(format!("it was measured with another model, {}", self.model));
        }
        if !self.spread().is_possible() {
            return Err(format!(
                "no encoder has unrelated texts at {} ± {}",
                self.unrelated, self.deviation
            ));
        }
        if !self.centre.is_empty() && self.centre.len() != dimensions {
            return Err(format!(
                "its centre has {} numbers, the model's vectors {dimensions}",
                self.centre.len()
            ));
        }
        match self.centre.iter().find(|x| !(-1.0..=1.0).contains(*x)) {
            Some(x) => Err(format!("a mean of vectors of unit length has no component {x}")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Option<Measured>> {
        let directory = tempfile::tempdir().expect("a directory");
        std::fs::write(directory.path().join(FILE), text).expect("a file");
        Measured::read(directory.path(), "tiny", 2)
    }

    #[test]
    fn a_written_file_is_read_back() {
        let directory = tempfile::tempdir().expect("a directory");
        let measured = Measured {
            model: "tiny".into(),
            unrelated: 0.789,
            deviation: 0.028,
            centre: vec![0.046771, -0.5],
        };
        assert_eq!(Measured::read(directory.path(), "tiny", 2).expect("readable"), None);
        measured.write(directory.path()).expect("a directory of ours");
        measured.write(directory.path()).expect("again");
        assert_eq!(Measured::read(directory.path(), "tiny", 2).expect("readable"), Some(measured));
        let text = std::fs::read_to_string(directory.path().join(FILE)).expect("written");
        assert_eq!(
            text,
            concat!(
                r#"{"model":"tiny","unrelated":0.789,"deviation":0.028,"#,
                r#""centre":[0.046771,-0.5]}"#,
                "\n"
            )
        );
    }

    #[test]
    fn a_wrong_file_is_refused_with_the_remedy() {
        for (text, why) in [
            ("{", "EOF"),
            (
                r#"{"model": "tiny", "unrelated": 0.1, "deviation": 0.1, "centre": [], "more": 1}"#,
                "unknown field",
            ),
            (r#"{"model": "tiny", "unrelated": 0.1, "deviation": 0.1}"#, "missing field"),
            (
                r#"{"model": "huge", "unrelated": 0.1, "deviation": 0.1, "centre": []}"#,
                "another model, huge",
            ),
            (r#"{"model": "tiny", "unrelated": 0.1, "deviation": 0.0, "centre": []}"#, "0.1 ± 0"),
            (
                r#"{"model": "tiny", "unrelated": 0.1, "deviation": 0.1, "centre": [0.1]}"#,
                "1 numbers",
            ),
            (
                r#"{"model": "tiny", "unrelated": 0.1, "deviation": 0.1, "centre": [0.1, 7]}"#,
                "component 7",
            ),
        ] {
            let fault = read(text).expect_err(text).to_string();
            assert!(
                fault.contains(why) && fault.contains("run keepsake model measure"),
                "{text}: {fault}"
            );
        }
    }
}
