//! Measures an encoder on texts that ship with Keepsake: the mean of its vectors, and the cosines
//! of texts that have nothing in common.
//!
//! 1. Encode all texts. If even the language that the encoder separates best has a mean cosine of
//!    `CENTRED_FROM` or more, subtract the mean vector from all.
//! 2. For each language, compute mean and deviation of the cosines of all pairs of texts.
//! 3. Take the language with the lowest mean: in a language that the encoder hardly covers, all
//!    texts look alike.
//!
//! The result is deterministic.

use super::spread::Measured;
use super::vectors::{Embedder, centred};
use domain::CosineScale;
use domain::fault::Result;

/// Everyday texts: on each line a language, a text and for some a paraphrase. Texts of one language
/// are about different things.
const TEXTS: &str = include_str!("../../../deploy/model/texts.tsv");

/// Mean cosine of unrelated texts from which the centre is subtracted. All vectors of such an
/// encoder share a direction, and the rest of the vector separates texts better.
/// multilingual-e5-small has .79, all-MiniLM-L6-v2 .06.
const CENTRED_FROM: f32 = 0.3;

/// The measured spread, and cosines on the standard scale, as they are compared with thresholds.
pub struct Measurement {
    pub measured: Measured,
    /// The language that the encoder separates best.
    pub language: &'static str,
    /// Cosines of unrelated texts in that language, and in all languages.
    pub unrelated: Vec<f32>,
    pub unrelated_anywhere: Vec<f32>,
    /// Cosines of texts and their paraphrases.
    pub same: Vec<f32>,
}

/// Measures an encoder. `session` must be of an unmeasured model, since the centre can only be
/// found in vectors that are not centred.
pub fn measure(session: &mut dyn Embedder) -> Result<Measurement> {
    let texts = texts();
    let vectors =
        texts.iter().map(|text| Encoded::of(text, session)).collect::<Result<Vec<_>>>()?;
    let needs_centring = spread_of(&vectors).1.unrelated >= CENTRED_FROM;
    let centre = if needs_centring { mean(&vectors) } else { Vec::new() };
    let vectors: Vec<Encoded> = vectors.into_iter().map(|one| one.without(&centre)).collect();
    let (language, spread) = spread_of(&vectors);
    let unrelated_anywhere: Vec<(&str, f32)> =
        pairs(&vectors).map(|(of, cosine)| (of, spread.standard(cosine))).collect();
    let same = vectors
        .iter()
        .filter_map(|one| Some(spread.standard(cosine(&one.vector, one.again.as_ref()?))));
    Ok(Measurement {
        language,
        unrelated: unrelated_anywhere
            .iter()
            .filter(|(of, _)| *of == language)
            .map(|(_, cosine)| *cosine)
            .collect(),
        unrelated_anywhere: unrelated_anywhere.iter().map(|(_, cosine)| *cosine).collect(),
        same: same.collect(),
        measured: Measured {
            model: session.name().to_owned(),
            unrelated: spread.unrelated,
            deviation: spread.deviation,
            centre,
        },
    })
}

struct Text {
    language: &'static str,
    text: &'static str,
    again: Option<&'static str>,
}

fn texts() -> Vec<Text> {
    let rows = TEXTS.lines().map(|line| line.split('\t').collect::<Vec<_>>());
    rows.filter_map(|row| {
        Some(Text { language: row.first()?, text: row.get(1)?, again: row.get(2).copied() })
    })
    .collect()
}

struct Encoded {
    language: &'static str,
    vector: Vec<f32>,
    again: Option<Vec<f32>>,
}

impl Encoded {
    fn of(text: &Text, session: &mut dyn Embedder) -> Result<Encoded> {
        let vector = session.encode(text.text)?;
        let again = text.again.map(|again| session.encode(again)).transpose()?;
        Ok(Encoded { language: text.language, vector, again })
    }

    fn without(self, centre: &[f32]) -> Encoded {
        let again = self.again.map(|again| centred(again, centre));
        Encoded { vector: centred(self.vector, centre), again, ..self }
    }
}

/// Returns the language with the lowest mean cosine, with mean and deviation over all its pairs.
fn spread_of(vectors: &[Encoded]) -> (&'static str, CosineScale) {
    let mut best: Option<(&'static str, CosineScale)> = None;
    for group in vectors.chunk_by(|a, b| a.language == b.language) {
        let cosines: Vec<f64> = pairs(group).map(|(_, cosine)| f64::from(cosine)).collect();
        let count = cosines.len().max(1) as f64;
        let mean = cosines.iter().sum::<f64>() / count;
        let variance = cosines.iter().map(|cosine| (cosine - mean).powi(2)).sum::<f64>() / count;
        let found =
            CosineScale { unrelated: rounded(mean, 1e3), deviation: rounded(variance.sqrt(), 1e3) };
        if best.is_none_or(|(_, best)| found.unrelated < best.unrelated) {
            best = Some((group[0].language, found));
        }
    }
    best.unwrap_or(("", CosineScale::STANDARD))
}

/// Returns the cosine of every pair of texts of one language.
fn pairs(vectors: &[Encoded]) -> impl Iterator<Item = (&'static str, f32)> {
    vectors.iter().enumerate().flat_map(move |(n, a)| {
        let others = vectors[n + 1..].iter().filter(|b| b.language == a.language);
        others.map(move |b| (a.language, cosine(&a.vector, &b.vector)))
    })
}

fn mean(vectors: &[Encoded]) -> Vec<f32> {
    let mut sum = vec![0f64; vectors.first().map_or(0, |one| one.vector.len())];
    for one in vectors {
        sum.iter_mut().zip(&one.vector).for_each(|(sum, x)| *sum += f64::from(*x));
    }
    sum.into_iter().map(|x| rounded(x / vectors.len() as f64, 1e6)).collect()
}

/// Rounds a figure, so that the file is readable and the same on every processor.
fn rounded(x: f64, parts: f64) -> f32 {
    ((x * parts).round() / parts) as f32
}

fn cosine(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};

    #[test]
    fn the_texts_are_many_short_and_different_and_in_many_languages() {
        let texts = texts();
        let mut languages = BTreeMap::new();
        assert_eq!(texts.len(), TEXTS.lines().count());
        assert_eq!(texts.iter().map(|text| text.text).collect::<BTreeSet<_>>().len(), texts.len());
        for text in &texts {
            assert!(
                (4..120).contains(&text.text.chars().count()) && text.again != Some(text.text),
                "{}",
                text.text
            );
            *languages.entry(text.language).or_insert(0) += 1;
        }
        assert!(
            languages.len() >= 8 && languages.values().all(|count| *count >= 30),
            "{languages:?}"
        );
        assert_eq!(
            texts.chunk_by(|a, b| a.language == b.language).count(),
            languages.len(),
            "each language in one run"
        );
    }
}
