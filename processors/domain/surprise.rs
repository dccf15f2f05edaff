//! The surprise of a candidate.

/// The surprise of a candidate: five factors from 0 to 1, and the points that add up to the total.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Surprise {
    pub total: f32,
    pub novelty: f32,
    pub contradiction: f32,
    pub specificity: f32,
    pub emphasis: f32,
    pub context_switch: f32,
    /// The weighted points of every part that is not zero. Their sum is `total`.
    pub points: Vec<(&'static str, f32)>,
}
