//! Puts the cosines of any encoder on one scale, that of the encoder which the rules were tuned with.

/// Mean and deviation of the cosines that an encoder gives unrelated texts. One encoder calls .1 unrelated and another .8, so a
/// threshold means the same for both only after `standard`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The mean cosine of unrelated texts.
    pub unrelated: f32,
    /// The standard deviation of those cosines.
    pub deviation: f32,
}

/// Cosines up to so many deviations above `unrelated` are moved by their distance in deviations. Above lie texts that are related, up to
/// the identical ones, whose cosine is 1 for every encoder.
const KNEE: f32 = 3.0;

impl Spread {
    /// The spread of all-MiniLM-L6-v2. All thresholds for a cosine (novelty, context switch, repetition, merge, conflicts) are written on this scale.
    pub const STANDARD: Spread = Spread { unrelated: 0.061, deviation: 0.073 };

    /// The cosine that the standard encoder would give two texts as far apart: 1 stays 1, the order of any two cosines stays.
    /// Invariant: for the standard encoder itself nothing changes, to the bit.
    pub fn standard(self, cosine: f32) -> f32 {
        if self == Spread::STANDARD {
            return cosine;
        }
        let (knee, standard_knee) = (self.knee(), Spread::STANDARD.knee());
        if cosine <= knee {
            let deviations = (cosine - self.unrelated) / self.deviation;
            return (Spread::STANDARD.unrelated + deviations * Spread::STANDARD.deviation)
                .max(-1.0);
        }
        standard_knee + (cosine - knee) / (1.0 - knee) * (1.0 - standard_knee)
    }

    /// False where a file holds numbers that no encoder can have.
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

    const NARROW: Spread = Spread { unrelated: 0.8, deviation: 0.02 };

    #[test]
    fn the_standard_encoders_cosines_stay_as_they_are() {
        for cosine in [-1.0f32, -0.123, 0.0, 0.061, 0.6, 0.95, 1.0, f32::NAN] {
            assert_eq!(Spread::STANDARD.standard(cosine).to_bits(), cosine.to_bits());
        }
    }

    #[test]
    fn unrelated_texts_are_unrelated_and_identical_ones_identical_for_every_encoder() {
        let unrelated = NARROW.standard(NARROW.unrelated);
        assert!((unrelated - Spread::STANDARD.unrelated).abs() < 1e-6, "{unrelated}");
        assert!((NARROW.standard(1.0) - 1.0).abs() < 1e-6);
        assert!(
            (NARROW.standard(0.84) - (0.061 + 2.0 * 0.073)).abs() < 1e-5,
            "two deviations above stay two deviations above"
        );
    }

    #[test]
    fn numbers_that_no_encoder_has_are_refused() {
        assert!(NARROW.is_possible() && Spread::STANDARD.is_possible());
        for (unrelated, deviation) in
            [(0.8, 0.0), (0.8, 0.1), (1.0, 0.01), (f32::NAN, 0.1), (0.1, f32::NAN), (-1.0, 0.1)]
        {
            assert!(!Spread { unrelated, deviation }.is_possible(), "{unrelated} {deviation}");
        }
    }

    proptest! {
        #[test]
        fn the_nearer_of_two_texts_stays_the_nearer(
            unrelated in -0.1f32..0.85, deviation in 0.01f32..0.045, a in -1.0f32..1.0, b in -1.0f32..1.0
        ) {
            let spread = Spread { unrelated, deviation };
            let (a, b) = (a.min(b), a.max(b));
            prop_assert!(spread.standard(a) <= spread.standard(b) + 1e-6);
            prop_assert!((-1.0..=1.0001).contains(&spread.standard(b)));
        }
    }
}
