//! The numbers that order memories: the weights of the terms, their scale, the floor and the factors.

use super::fade::Fade;
use super::relevance::Relevance;
use super::terms::Points;

/// The numbers of a profile for ranking.
#[derive(Clone, Debug, PartialEq)]
pub struct RankOptions {
    /// Used if two people or more speak.
    pub several: TermWeights,
    /// Used if one person speaks, to an assistant or alone.
    pub single: TermWeights,
    /// Limits the effect of recency, importance and confidence together to this share of a score,
    /// up or down.
    pub bound: f32,
    pub fade: Fade,
    /// The least score of a returned memory, as a share of the best one's `by_itself`.
    pub floor: f32,
    /// `None`: replies carry no relevance.
    pub relevance: Option<Relevance>,
    /// The factor on the score of a superseded memory.
    pub superseded: f32,
}

/// The weights of the terms, the scale of BM25, and the factor on memories of an assistant or a
/// tool.
#[derive(Clone, Debug, PartialEq)]
pub struct TermWeights {
    pub points: Points,
    /// BM25 is divided by the best memory's, but by no less than this multiple of the question's
    /// `information`. Otherwise a match of one common word could count as much as a perfect match.
    pub words_full: f32,
    pub assistant: f32,
}
