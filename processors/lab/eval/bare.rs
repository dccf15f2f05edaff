//! Ranks the turns of a conversation by cosine alone, with the encoder of the service: the baseline
//! that the service is compared with.

use super::cache::CachedEncoder;
use super::data::EvalTurn;
use domain::fault::Result;
use models::embedder::Embedder;
use std::cmp::Reverse;

/// Maximum number of turns in a ranking, equal to the `limit` of the requests to the service.
const LIMIT: usize = 100;

/// Every turn of the user with its vector and its place among all turns, also those that the gate
/// drops.
pub struct CosineBaseline<'c> {
    encoder: CachedEncoder,
    turns: Vec<(usize, &'c str, Vec<f32>)>,
}

impl<'c> CosineBaseline<'c> {
    /// Encodes each turn of the user as `speaker: text`, like the service.
    pub fn of(encoder: &CachedEncoder, turns: &'c [EvalTurn]) -> Result<CosineBaseline<'c>> {
        let mut encoder = encoder.clone();
        let turns = turns
            .iter()
            .enumerate()
            .filter(|(_, turn)| turn.is_users())
            .map(|(place, turn)| {
                let speaker = turn.speaker.as_deref().unwrap_or(&turn.role);
                let vector = encoder.encode(&format!("{speaker}: {}", turn.content))?;
                Ok((place, turn.id.as_str(), vector))
            })
            .collect::<Result<_>>()?;
        Ok(CosineBaseline { encoder, turns })
    }

    /// Returns those of the first turns that are nearest to a question. The later of two equally near
    /// turns comes first.
    pub fn ranking(&mut self, question: &str, first: usize) -> Result<Vec<String>> {
        let question = self.encoder.encode(question)?;
        let mut scored: Vec<(f32, usize)> = self
            .turns
            .iter()
            .enumerate()
            .take_while(|(_, (place, ..))| *place < first)
            .map(|(position, (.., vector))| {
                let cosine = vector.iter().zip(&question).map(|(a, b)| a * b).sum();
                (cosine, position)
            })
            .collect();
        scored.sort_by(|a, b| b.0.total_cmp(&a.0).then(Reverse(a.1).cmp(&Reverse(b.1))));
        let nearest = scored.iter().take(LIMIT);
        Ok(nearest.map(|(_, position)| self.turns[*position].1.to_owned()).collect())
    }
}
