//! Defines an encoder, and the arithmetic that its implementations share.

use domain::fault::Result;

/// Encodes one text at a time, never a batch: eight-bit activations are quantised per tensor, so
/// the vector of a text would depend on the other texts (cosine 0.991 to itself), and on a CPU a
/// batch is no faster than texts without padding.
pub trait Embedder: Send {
    /// Returns a vector of unit length, also for an empty text.
    fn encode(&mut self, text: &str) -> Result<Vec<f32>>;

    /// Encodes a part of a text by the encoder for the language of that text: a single word does not
    /// show its language.
    fn encode_part(&mut self, part: &str, _is_english: bool) -> Result<Vec<f32>> {
        self.encode(part)
    }

    fn dimensions(&self) -> usize;
    /// Identifies the model: names differ whenever vectors could. A shard stores the name of the
    /// model that made its vectors.
    fn name(&self) -> &str;
}

/// Scales a vector to unit length. A vector without direction becomes the first axis, so that every
/// cosine is a number.
pub fn unit(mut vector: Vec<f32>) -> Vec<f32> {
    let norm = vector.iter().map(|x| x * x).sum::<f32>().sqrt();
    if norm > 0.0 && norm.is_finite() {
        vector.iter_mut().for_each(|x| *x /= norm);
    } else {
        vector.fill(0.0);
        vector[0] = 1.0;
    }
    vector
}

/// Subtracts the centre that all vectors of an encoder share, if there is one.
pub fn centred(mut vector: Vec<f32>, centre: &[f32]) -> Vec<f32> {
    if centre.is_empty() {
        return vector;
    }
    vector.iter_mut().zip(centre).for_each(|(x, shared)| *x -= shared);
    unit(vector)
}
