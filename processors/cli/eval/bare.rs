//! Ranks the turns of a conversation by nothing but cosine, with the service's own encoder: the simplest thing a service has to beat.

use super::cache::Encoder;
use super::data::Turn;
use crate::fault::Result;
use crate::ports::embedder::Embedder;
use std::cmp::Reverse;

/// Turns that a ranking holds at most: as many as a service is asked for.
const LIMIT: usize = 100;

/// Every turn of the user, kept by the service or not, with its vector.
pub struct Bare<'c> {
    encoder: Encoder,
    turns: Vec<(&'c str, Vec<f32>)>,
}

impl<'c> Bare<'c> {
    /// Encodes each of the user's turns as `speaker: text`, as the service does.
    pub fn of(encoder: &Encoder, turns: &'c [Turn]) -> Result<Bare<'c>> {
        let mut encoder = encoder.clone();
        let mut encode = |turn: &'c Turn| {
            let speaker = turn.speaker.as_deref().unwrap_or(&turn.role);
            Ok((turn.id.as_str(), encoder.encode(&format!("{speaker}: {}", turn.content))?))
        };
        let turns =
            turns.iter().filter(|turn| turn.is_users()).map(&mut encode).collect::<Result<_>>()?;
        Ok(Bare { encoder, turns })
    }

    /// The turns nearest to a question, which is encoded as it was asked. Of equals the later one comes first.
    pub fn ranking(&mut self, question: &str) -> Result<Vec<String>> {
        let question = self.encoder.encode(question)?;
        let cosine = |vector: &[f32]| vector.iter().zip(&question).map(|(a, b)| a * b).sum::<f32>();
        let mut scored: Vec<(f32, usize)> = self
            .turns
            .iter()
            .enumerate()
            .map(|(place, (_, vector))| (cosine(vector), place))
            .collect();
        scored.sort_by(|a, b| b.0.total_cmp(&a.0).then(Reverse(a.1).cmp(&Reverse(b.1))));
        Ok(scored.iter().take(LIMIT).map(|(_, place)| self.turns[*place].0.to_owned()).collect())
    }
}
