//! Tells chatter from what is worth keeping by the vector of a text: a linear reading that was
//! learned for one encoder (`../../deploy/model/chatter.py`).

use crate::Vector;

#[derive(Clone, Debug, PartialEq)]
pub struct Chatter {
    pub bias: f32,
    /// One for each dimension of the encoder.
    pub weights: Vec<f32>,
    /// True if the encoder gives texts of other languages than English no meaning.
    pub english_only: bool,
}

impl Chatter {
    /// Returns the probability that the text of the vector is chatter.
    pub fn probability(&self, vector: &Vector) -> f32 {
        let pairs = self.weights.iter().zip(vector.values.iter());
        let sum: f32 = pairs.map(|(weight, value)| weight * f32::from(*value)).sum();
        1.0 / (1.0 + (-self.bias - sum * vector.scale).exp())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vector_along_the_weights_is_chatter() {
        let chatter = Chatter { bias: -1.0, weights: vec![4.0, 0.0], english_only: false };
        let probability = |exact: [f32; 2]| chatter.probability(&Vector::of(&exact));
        for (exact, expected) in [([1.0, 0.0], 3f32), ([0.0, 1.0], -1.0), ([-1.0, 0.0], -5.0)] {
            let wanted = 1.0 / (1.0 + (-expected).exp());
            assert!((probability(exact) - wanted).abs() < 1e-3, "{exact:?}");
        }
        assert!(chatter.probability(&Vector::of(&[])) < 0.3, "a text without a vector is not");
    }
}
