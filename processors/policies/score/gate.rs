//! Compares a surprise with the threshold and writes the reason.
//!
//! 1. [`threshold`] is the quantile `1 - keep_share` of the user's last 200 totals and 20 prior
//!    totals, but at most `fixed`.
//! 2. A part that keeps or drops whatever the total ([`Effect::Keeps`], [`Effect::Drops`]) decides
//!    first, in the order of [`PARTS`].
//! 3. Else [`verdict`] keeps a total at or above the threshold.
//!
//! The reason is written from the points alone; the text is not an argument.

use super::parts::{Effect, PARTS};
use domain::Surprise;

/// Number of recent totals in the running quantile. Between 50 and 400, the share that is stored
/// changes by two percentage points.
pub const WINDOW: usize = 200;

#[derive(Clone, Debug, PartialEq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GateOptions {
    /// A total at or above this value is always kept.
    pub fixed: f32,
    /// A total within this best share of the user's recent totals is kept too. With a fixed value
    /// alone, nearly nothing is kept for users of light conversations.
    pub keep_share: f32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GateVerdict {
    pub keep: bool,
    /// The text after "kept:" or "dropped:".
    pub reason: String,
    /// The sort of reason, as a metric label.
    pub class: &'static str,
}

/// Totals assumed for a new user, outweighed by real ones within a session.
const PRIOR_TOTALS: [f32; 20] = [
    -0.2, -0.1, 0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7,
    0.75, 0.8, 0.9,
];

/// Returns the total that a candidate must reach. `recent_totals` are the user's, oldest first, and
/// end with the candidate's own.
pub fn threshold(gate: &GateOptions, recent_totals: &[f32]) -> f32 {
    let recent = &recent_totals[recent_totals.len().saturating_sub(WINDOW)..];
    let mut totals = Vec::with_capacity(PRIOR_TOTALS.len() + recent.len());
    totals.extend(PRIOR_TOTALS.iter().chain(recent).filter(|total| total.is_finite()));
    // 1e-3 less, so that a share without an exact binary form is not rounded up to one more.
    let below = ((1.0 - gate.keep_share) * totals.len() as f32 - 1e-3).ceil().max(1.0) as usize - 1;
    let at = below.min(totals.len() - 1);
    let (_, quantile, _) = totals.select_nth_unstable_by(at, f32::total_cmp);
    quantile.min(gate.fixed)
}

pub fn verdict(surprise: &Surprise, threshold: f32) -> GateVerdict {
    if let Some((name, keep, words)) = always(surprise) {
        let reason = match (keep, sort_of_small_talk(surprise), explanation(surprise)) {
            (true, _, _) => words.to_owned(),
            (false, Some(sort), _) => format!("only {sort}"),
            // "Only a question" says more than "only chatter".
            (false, None, Some((_, why))) => why.to_owned(),
            (false, None, None) => format!("only {words}"),
        };
        return GateVerdict { keep, reason, class: class(name) };
    }
    if surprise.total >= threshold {
        return GateVerdict { keep: true, reason: strongest(surprise), class: "surprising" };
    }
    let (class, why) = explanation(surprise).unwrap_or(("generic", "nothing out of the ordinary"));
    let reason = format!("{why}: {}, below {}", two_digits(surprise.total), two_digits(threshold));
    GateVerdict { keep: false, reason, class }
}

/// Finds the part that decides whatever the total: a change of an earlier memory, an instruction,
/// small talk, chatter, an answer (which may be one word), a statement, or an uncovered language.
/// Returns its name, true if it keeps, and its words.
fn always(surprise: &Surprise) -> Option<(&'static str, bool, &'static str)> {
    PARTS.iter().find_map(|part| {
        let points = points(surprise, part.name);
        match part.effect {
            Effect::Keeps(reason) if points > 0.0 => Some((part.name, true, reason)),
            Effect::Drops(reason) if points < 0.0 => Some((part.name, false, reason)),
            _ => None,
        }
    })
}

/// Finds the first part with negative points that explains a drop. The order of [`PARTS`] puts the
/// more specific reason first: a greeting is short, too.
fn explanation(surprise: &Surprise) -> Option<(&'static str, &'static str)> {
    PARTS.iter().find_map(|part| match part.effect {
        Effect::Explains(reason) if points(surprise, part.name) < 0.0 => Some((part.name, reason)),
        _ => None,
    })
}

/// Names the sort of small talk, if a part for this sort has points.
fn sort_of_small_talk(surprise: &Surprise) -> Option<&'static str> {
    let sorts = ["greeting", "thanks", "acknowledgement", "about_other"];
    let named = PARTS
        .iter()
        .filter(|part| sorts.contains(&part.name))
        .find(|part| points(surprise, part.name) < 0.0);
    named.map(|part| part.words)
}

/// Keeps the metric label `change`, which is older than the part's present name.
fn class(name: &'static str) -> &'static str {
    if name == "contradiction" { "change" } else { name }
}

/// Writes the two parts with the most points: "rare words and a time (specificity .21, time .10)".
fn strongest(surprise: &Surprise) -> String {
    let mut gains: Vec<_> = surprise.points.iter().filter(|point| point.1 > 0.0).collect();
    gains.sort_by(|a, b| b.1.total_cmp(&a.1));
    match gains[..] {
        [] => format!("as good as most of late ({})", two_digits(surprise.total)),
        [(name, points)] => format!("{} ({name} {})", in_words(name), two_digits(*points)),
        [(name, points), (other, less), ..] => format!(
            "{} and {} ({name} {}, {other} {})",
            in_words(name),
            in_words(other),
            two_digits(*points),
            two_digits(*less)
        ),
    }
}

fn in_words(name: &str) -> &'static str {
    PARTS.iter().find(|part| part.name == name).map_or("", |part| part.words)
}

fn points(surprise: &Surprise, name: &str) -> f32 {
    surprise.points.iter().find(|point| point.0 == name).map_or(0.0, |point| point.1)
}

/// Writes two decimals without a leading zero: ".23", "-.05", "1.20".
fn two_digits(x: f32) -> String {
    let written = format!("{x:.2}");
    match (written.strip_prefix("0."), written.strip_prefix("-0.")) {
        (Some(digits), _) => format!(".{digits}"),
        (_, Some(digits)) => format!("-.{digits}"),
        _ => written,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::shipped;
    use super::*;

    #[test]
    fn numbers_have_two_decimals_and_no_leading_zero() {
        for (x, expected) in
            [(0.234, ".23"), (-0.05, "-.05"), (1.2, "1.20"), (10.05, "10.05"), (0.0, ".00")]
        {
            assert_eq!(two_digits(x), expected);
        }
    }

    fn check(points: &[(&'static str, f32)], expected: (bool, &str)) {
        let total = points.iter().map(|point| point.1).sum();
        let verdict =
            verdict(&Surprise { total, points: points.to_vec(), ..Surprise::default() }, 0.23);
        assert_eq!((verdict.keep, verdict.reason.as_str()), expected);
    }

    #[test]
    fn a_verdict_says_why() {
        check(
            &[("specificity", 0.21), ("novelty", 0.05), ("time", 0.10)],
            (true, "rare words and a time (specificity .21, time .10)"),
        );
        check(&[("novelty", 0.15)], (false, "nothing out of the ordinary: .15, below .23"));
        check(&[("novelty", 0.15), ("greeting", -0.25)], (false, "a greeting: -.10, below .23"));
        check(
            &[("specificity", 0.3), ("repetition", -0.3)],
            (false, "nothing new: .00, below .23"),
        );
        check(
            &[("question_only", -0.2), ("short", -0.2)],
            (false, "only a question: -.40, below .23"),
        );
        check(
            &[("specificity", 0.1), ("about_other", -0.2)],
            (false, "praise, or about the other: -.10, below .23"),
        );
    }

    #[test]
    fn answers_changes_and_instructions_are_kept_whatever_the_total() {
        check(&[("answer", 0.1), ("short", -0.2)], (true, "answers a question"));
        check(
            &[("contradiction", 0.3), ("repetition", -0.3)],
            (true, "changes what was said before"),
        );
        check(&[("instruction", 0.35), ("about_other", -0.25)], (true, "an instruction"));
    }

    #[test]
    fn a_new_user_is_judged_by_the_prior() {
        assert_eq!(threshold(&shipped().gate, &[]), 0.25);
        assert_eq!(threshold(&GateOptions { fixed: 0.1, ..shipped().gate }, &[]), 0.1);
    }

    #[test]
    fn whoever_chats_lightly_is_judged_by_the_last_totals() {
        let light: Vec<f32> = (0..400).map(|n| (n % 10) as f32 / 100.0).collect();
        let asked = threshold(&shipped().gate, &light);
        assert!((0.03..0.06).contains(&asked), "{asked}");
        assert_eq!(threshold(&shipped().gate, &[0.9; 400]), 0.3);
    }

    #[test]
    fn any_share_and_window_give_a_threshold() {
        for (keep_share, expected) in [(1.0, -0.2), (0.0, 0.9), (-1.0, 0.9), (2.0, -0.2)] {
            let gate = GateOptions { fixed: 1.0, keep_share };
            assert_eq!(threshold(&gate, &[f32::NAN]), expected, "{keep_share}");
        }
    }
}
