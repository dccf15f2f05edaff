//! Computes the strength of a memory at a moment: `importance × confidence × recency`.
//!
//! 1. `t` is the number of half-lives since the memory was created, used or confirmed.
//! 2. The half-life is the kind's, times `1 + ln(1 + uses + 2 · confirmations)` if the profile lets
//!    uses prolong it.
//! 3. Recency is `(1 + 3t)^-1/2` for [`Shape::PowerLaw`] and `2^-t` for [`Shape::Exponential`]. The
//!    power law has the form of the forgetting curve of [FSRS], scaled to one half at the half-life
//!    instead of 90 % at the stability.
//!
//! Invariant: nothing here is stored. Every read computes the strength again from fields that time
//! alone does not change, so a change of a profile acts at once.
//!
//! [FSRS]: https://github.com/open-spaced-repetition/fsrs4anki/wiki/The-Algorithm

use domain::{Memory, Time};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    /// One half after one half-life, one quarter after five: the
    /// [forgetting curve](https://en.wikipedia.org/wiki/Forgetting_curve) of people.
    #[default]
    PowerLaw,
    /// One half after each half-life.
    Exponential,
}

/// `[fade]` of a profile.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fade {
    /// If false, no memory loses strength with time.
    #[serde(default = "yes")]
    pub enabled: bool,
    pub shape: Shape,
    /// Uses and confirmations prolong the half-life.
    pub uses_prolong: bool,
    pub half_life_days: HalfLives,
    /// Kinds that never fade.
    pub exempt: BTreeSet<String>,
}

/// A profile from before the switch has it on.
fn yes() -> bool {
    true
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct HalfLives {
    /// Used for all other kinds.
    pub default: f32,
    #[serde(flatten)]
    pub by_kind: BTreeMap<String, f32>,
}

/// Returns the strength, 0 to 1.
pub fn strength(memory: &Memory, fade: &Fade, now: Time) -> f32 {
    unit(memory.importance) * unit(memory.confidence) * recency(memory, fade, now)
}

/// Returns 1 for a memory created, used or confirmed now, falling towards 0.
pub fn recency(memory: &Memory, fade: &Fade, now: Time) -> f32 {
    if !fade.enabled || fade.exempt.contains(memory.kind.as_str()) {
        return 1.0;
    }
    let half_lives = now.days_since(memory.fresh_at).max(0.0) / half_life_days(memory, fade);
    match fade.shape {
        Shape::PowerLaw => 1.0 / (1.0 + 3.0 * half_lives).sqrt(),
        Shape::Exponential => (-half_lives).exp2(),
    }
}

/// The loss of strength of one memory, as `strength` computes it.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// `None`: the memory never fades.
    pub half_life_days: Option<f32>,
    /// From the last time that the memory was created, used or confirmed, to one half-life from now.
    pub points: Vec<(Time, f32)>,
}

/// Days after now that the curve of a memory shows which never fades.
const STEADY_DAYS: f32 = 90.0;
/// The last point of a curve is at most a hundred years from now.
const CURVE_DAYS_MAX: f32 = 36_500.0;
const DAY_MS: f32 = 86_400_000.0;

/// Returns the strength at `count` times, at equal distances.
pub fn curve(memory: &Memory, fade: &Fade, now: Time, count: usize) -> Curve {
    let fades = fade.enabled && !fade.exempt.contains(memory.kind.as_str());
    let half_life_days = fades.then(|| half_life_days(memory, fade));
    let ahead = half_life_days.unwrap_or(STEADY_DAYS).min(CURVE_DAYS_MAX);
    let from = memory.fresh_at.0.min(now.0);
    let until = now.0.saturating_add((ahead * DAY_MS) as i64);
    let steps = count.max(2) as i64 - 1;
    let times = (0..=steps).map(|step| Time(from + (until - from) / steps * step));
    Curve { half_life_days, points: times.map(|at| (at, strength(memory, fade, at))).collect() }
}

/// A confirmation counts as two uses. The logarithm keeps a memory that is used often from lasting
/// forever.
fn half_life_days(memory: &Memory, fade: &Fade) -> f32 {
    let HalfLives { default, by_kind } = &fade.half_life_days;
    let of_kind = by_kind.get(memory.kind.as_str()).unwrap_or(default);
    let proofs =
        if fade.uses_prolong { memory.uses as f32 + 2.0 * memory.confirmed as f32 } else { 0.0 };
    let prolonged = if proofs > 0.0 { 1.0 + proofs.ln_1p() } else { 1.0 };
    of_kind.max(f32::MIN_POSITIVE) * prolonged
}

/// Clamps to 0..=1; NaN becomes 0.
pub(super) fn unit(value: f32) -> f32 {
    if value.is_nan() { 0.0 } else { value.clamp(0.0, 1.0) }
}

#[cfg(test)]
mod tests {
    use super::super::samples::{memory, weights};
    use super::*;
    use domain::Kind;
    use proptest::prelude::*;

    const DAY_MS: i64 = super::DAY_MS as i64;

    /// The default profile's numbers, with one half-life for all kinds.
    fn fade() -> Fade {
        let half_life_days = HalfLives { default: 60.0, by_kind: BTreeMap::new() };
        Fade { half_life_days, ..weights().fade }
    }

    fn check(fade: &Fade, days: i64, expected: f32) {
        let actual = recency(&memory(1, "tea"), fade, Time(days * DAY_MS));
        assert!(
            (actual - expected).abs() < 1e-3,
            "{actual} after {days} days, expected {expected}"
        );
    }

    #[test]
    fn half_is_left_after_a_half_life_in_either_shape() {
        fn monthly(shape: Shape) -> Fade {
            let half_life_days = HalfLives { default: 30.0, by_kind: BTreeMap::new() };
            Fade { shape, half_life_days, ..fade() }
        }
        check(&monthly(Shape::PowerLaw), 30, 0.5);
        check(&monthly(Shape::PowerLaw), 150, 0.25);
        check(&monthly(Shape::Exponential), 30, 0.5);
        check(&monthly(Shape::Exponential), 60, 0.25);
        check(&monthly(Shape::Exponential), -5, 1.0);
    }

    #[test]
    fn a_kind_has_its_own_half_life_or_never_fades() {
        let by_kind = BTreeMap::from([("fact".to_owned(), 10.0)]);
        let half_life_days = HalfLives { default: 60.0, by_kind };
        check(&Fade { half_life_days, ..fade() }, 10, 0.5);
        let mut lasting = memory(1, "always answer in French");
        lasting.kind = Kind::new("instruction");
        assert_eq!(recency(&lasting, &fade(), Time(i64::MAX)), 1.0);
    }

    #[test]
    fn a_curve_begins_at_the_last_use_and_ends_a_half_life_from_now() {
        let half_life_days = HalfLives { default: 30.0, by_kind: BTreeMap::new() };
        let fade = Fade { shape: Shape::Exponential, half_life_days, ..fade() };
        let mut subject = memory(1, "tea");
        subject.fresh_at = Time(10 * DAY_MS);
        let found = curve(&subject, &fade, Time(40 * DAY_MS), 7);
        assert_eq!((found.half_life_days, found.points.len()), (Some(30.0), 7));
        assert_eq!(found.points[0], (Time(10 * DAY_MS), 0.5));
        for (day, expected) in [(3, 0.25), (6, 0.125)] {
            let (at, strength) = found.points[day];
            assert!((at.0 - (10 + 10 * day as i64) * DAY_MS).abs() < 1000, "{at:?}");
            assert!((strength - expected).abs() < 1e-3, "{strength}");
        }
        let steady = Fade { enabled: false, ..fade };
        let found = curve(&subject, &steady, Time(40 * DAY_MS), 7);
        assert!(found.half_life_days.is_none() && found.points.iter().all(|(_, at)| *at == 0.5));
    }

    proptest! {
        #[test]
        fn strength_never_grows_with_time_and_never_shrinks_by_use(
            importance in -1f32..2.0, confidence in 0f32..1.0,
            uses in 0u32..1000, confirmed in 0u32..1000,
            early in 0i64..4_000, later in 0i64..4_000,
            exponential: bool, default in 0f32..1000.0,
        ) {
            let shape = if exponential { Shape::Exponential } else { Shape::PowerLaw };
            let half_life_days = HalfLives { default, by_kind: BTreeMap::new() };
            let fade = Fade { shape, half_life_days, ..fade() };
            let mut subject = memory(1, "tea");
            subject.importance = importance;
            subject.confidence = confidence;
            subject.uses = uses;
            subject.confirmed = confirmed;
            let first = strength(&subject, &fade, Time(early * DAY_MS));
            let then = strength(&subject, &fade, Time((early + later) * DAY_MS));
            prop_assert!((0.0..=1.0).contains(&first));
            prop_assert!(then <= first + 1e-6);
            subject.uses += 1;
            prop_assert!(strength(&subject, &fade, Time(early * DAY_MS)) >= first - 1e-6);
        }
    }
}
