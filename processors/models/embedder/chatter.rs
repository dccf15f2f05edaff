//! Reads `chatter.json` beside an encoder: the weights that tell chatter from its vectors. An encoder
//! without the file is not asked.

use super::spread::beside;
use crate::onnx;
use domain::Chatter;
use domain::fault::{Fault, Result, StopName};
use serde::Deserialize;
use std::path::Path;

const FILE: &str = "chatter.json";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Learned {
    bias: f32,
    weights: Vec<f32>,
}

/// Returns `None` if there is no file.
pub fn read(directory: &Path, dimensions: usize, english_only: bool) -> Result<Option<Chatter>> {
    let path = directory.join(FILE);
    let learned = parse(&path, dimensions).map_err(|error| {
        let what = format!(
            "reads {}: {error}; run deploy/model/setup.sh, or remove the file",
            path.display()
        );
        Fault::stop(StopName::ModelUnusable, what)
    })?;
    Ok(learned.map(|Learned { bias, weights }| Chatter { bias, weights, english_only }))
}

fn parse(path: &Path, dimensions: usize) -> onnx::Result<Option<Learned>> {
    let Some(learned) = beside::<Learned>(path)? else { return Ok(None) };
    if learned.weights.len() != dimensions {
        let count = learned.weights.len();
        return Err(format!("it has {count} weights, the model's vectors {dimensions}").into());
    }
    Ok(Some(learned))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_another_encoder_stops_and_no_file_says_nothing() {
        let directory = tempfile::tempdir().expect("a directory");
        assert_eq!(read(directory.path(), 2, true).expect("no file"), None);
        let write = |text: &str| std::fs::write(directory.path().join(FILE), text).expect("a file");
        write(r#"{"bias": -1.5, "weights": [0.5, 2.0]}"#);
        let expected = Chatter { bias: -1.5, weights: vec![0.5, 2.0], english_only: true };
        assert_eq!(read(directory.path(), 2, true).expect("a file"), Some(expected));
        for (text, dimensions) in [(r#"{"bias": 0, "weights": [1.0]}"#, 2), ("no JSON", 2)] {
            write(text);
            let fault = read(directory.path(), dimensions, true).expect_err(text).to_string();
            assert!(fault.contains("chatter.json") && fault.contains("setup.sh"), "{fault}");
        }
    }
}
