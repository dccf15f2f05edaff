//! Maps the cosines of any encoder to the scale of the standard encoder, all-MiniLM-L6-v2.
//!
//! Encoders differ in the cosine that they give unrelated texts: about .1 for one, .8 for another.
//! All thresholds are written for the standard encoder, so every cosine is mapped before a
//! comparison. The mapping has two straight parts that meet at the knee, three deviations above the
//! mean:
//!
//! ```text
//! cosine <= knee   same distance from `unrelated`, measured in deviations
//! cosine >  knee   linear from the knee to 1
//! ```

/// Mean and standard deviation of the cosines that an encoder gives unrelated texts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CosineScale {
    /// The mean cosine of unrelated texts.
    pub unrelated: f32,
    /// The standard deviation of those cosines.
    pub deviation: f32,
}

/// Deviations above `unrelated` up to which the distance in deviations is kept. Texts with higher
/// cosines are related, up to identical texts, whose cosine is 1 for every encoder.
const KNEE: f32 = 3.0;

impl CosineScale {
    /// The spread of all-MiniLM-L6-v2. All thresholds for a cosine (novelty, context switch,
    /// repetition, merge, conflicts) are written on this scale.
    pub const STANDARD: CosineScale = CosineScale { unrelated: 0.061, deviation: 0.073 };

    /// Returns the cosine that the standard encoder would give two texts that are equally far
    /// apart. 1 stays 1, and the order of any two cosines stays.
    ///
    /// Invariant: cosines of the standard encoder itself stay the same to the bit.
    pub fn standard(self, cosine: f32) -> f32 {
        if self == CosineScale::STANDARD {
            return cosine;
        }
        let knee = self.knee();
        let standard_knee = CosineScale::STANDARD.knee();
        if cosine <= knee {
            let deviations = (cosine - self.unrelated) / self.deviation;
            return (CosineScale::STANDARD.unrelated
                + deviations * CosineScale::STANDARD.deviation)
                .max(-1.0);
        }
        standard_knee + (cosine - knee) / (1.0 - knee) * (1.0 - standard_knee)
    }

    /// Returns false for figures that no encoder can have, such as those of a damaged file.
    pub fn is_possible(self) -> bool {
        self.unrelated > -1.0 && self.deviation > 0.0 && self.knee() < 1.0
    }

    fn knee(self) -> f32 {
        self.unrelated + KNEE * self.deviation
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NARROW: CosineScale = CosineScale { unrelated: 0.8, deviation: 0.02 };

    #[test]
    fn cosines_of_the_standard_encoder_stay_the_same() {
        for cosine in [-1.0f32, -0.123, 0.0, 0.061, 0.6, 0.95, 1.0, f32::NAN] {
            assert_eq!(CosineScale::STANDARD.standard(cosine).to_bits(), cosine.to_bits());
        }
    }

    #[test]
    fn unrelated_texts_map_to_the_standard_mean_and_identical_texts_to_1() {
        let unrelated = NARROW.standard(NARROW.unrelated);
        assert!((unrelated - CosineScale::STANDARD.unrelated).abs() < 1e-6, "{unrelated}");
        assert!((NARROW.standard(1.0) - 1.0).abs() < 1e-6);
        assert!(
            (NARROW.standard(0.84) - (0.061 + 2.0 * 0.073)).abs() < 1e-5,
            "two deviations above stay two deviations above"
        );
    }

    #[test]
    fn impossible_figures_are_refused() {
        assert!(NARROW.is_possible() && CosineScale::STANDARD.is_possible());
        for (unrelated, deviation) in
            [(0.8, 0.0), (0.8, 0.1), (1.0, 0.01), (f32::NAN, 0.1), (0.1, f32::NAN), (-1.0, 0.1)]
        {
            assert!(!CosineScale { unrelated, deviation }.is_possible(), "{unrelated} {deviation}");
        }
    }

    proptest! {
        #[test]
        fn the_order_of_two_cosines_stays(
            unrelated in -0.1f32..0.85,
            deviation in 0.01f32..0.045,
            a in -1.0f32..1.0,
            b in -1.0f32..1.0,
        ) {
            let spread = CosineScale { unrelated, deviation };
            let lower = a.min(b);
            let higher = a.max(b);
            prop_assert!(spread.standard(lower) <= spread.standard(higher) + 1e-6);
            prop_assert!((-1.0..=1.0001).contains(&spread.standard(higher)));
        }
    }
}
