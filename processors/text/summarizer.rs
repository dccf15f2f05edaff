//! Summarises a session by its own sentences: chooses the most surprising turns, each different
//! from the others, and joins them in the order of the conversation.
//!
//! Turns are chosen by [maximal marginal relevance](https://dl.acm.org/doi/10.1145/290941.291025):
//!
//! 1. Score each turn: `(1 - diversity) · surprise - diversity · similarity to the chosen turns`,
//!    with the surprise as a share of the highest.
//! 2. Choose the best, drop turns with the same text, and repeat up to `turns_max`.
//! 3. Sort the chosen turns by time and shorten the longest until `chars_max` holds.
//!
//! The compaction worker passes the turns and publishes the summary as an event. A language model
//! may write another summary, which must keep the names and numbers of this one.

use domain::{Time, Vector};

/// A turn of the session. The order of the turns in a list does not matter.
#[derive(Clone, Debug)]
pub struct SessionTurn {
    pub content: String,
    pub surprise: f32,
    pub vector: Vector,
    pub at: Time,
}

/// Summarises by choosing turns and never rewriting them, so a summary holds no invented statement.
#[derive(Clone, Debug)]
pub struct ExtractiveSummarizer {
    pub turns_max: usize,
    pub chars_max: usize,
    /// From 0, which chooses by surprise alone, to 1, which chooses only turns unlike the chosen
    /// ones.
    pub diversity: f32,
}

impl Default for ExtractiveSummarizer {
    /// Five turns hold 60 % of the facts that later questions need if they are chosen by surprise;
    /// the longest five hold 52 %, the five most central 27 %.
    fn default() -> ExtractiveSummarizer {
        ExtractiveSummarizer { turns_max: 5, chars_max: 600, diversity: 0.3 }
    }
}

impl ExtractiveSummarizer {
    /// Returns the summary, or an empty text if the session has no turns with text.
    pub fn summarise(&self, said: &[SessionTurn]) -> String {
        let mut chosen = self.chosen(said);
        chosen.sort_by_key(|place| (said[*place].at, *place));
        let turns: Vec<&str> = chosen.iter().map(|place| said[*place].content.trim()).collect();
        let room = self.chars_max.saturating_sub(turns.len().saturating_sub(1));
        let allowed = shares(&turns, room);
        turns
            .iter()
            .zip(allowed)
            .filter(|(_, chars)| *chars > 0)
            .map(|(turn, chars)| crate::shortened(turn, chars))
            .collect::<Vec<_>>()
            .join("\n")
    }

    /// Chooses turns by maximal marginal relevance and returns their places in `said`.
    fn chosen(&self, said: &[SessionTurn]) -> Vec<usize> {
        let most = said.iter().map(|turn| turn.surprise).fold(f32::MIN_POSITIVE, f32::max);
        let mut repeats = vec![0f32; said.len()];
        let mut left: Vec<usize> =
            (0..said.len()).filter(|place| !said[*place].content.trim().is_empty()).collect();
        let mut chosen = Vec::new();
        while chosen.len() < self.turns_max && !left.is_empty() {
            let best = best_of(&left, said, |place| {
                (1.0 - self.diversity) * said[place].surprise / most
                    - self.diversity * repeats[place]
            });
            chosen.push(best);
            left.retain(|place| said[*place].content.trim() != said[best].content.trim());
            for place in &left {
                repeats[*place] =
                    repeats[*place].max(said[*place].vector.cosine(&said[best].vector));
            }
        }
        chosen
    }
}

/// Returns the turn of the greatest worth; of two equal ones, the earlier.
fn best_of(places: &[usize], said: &[SessionTurn], worth: impl Fn(usize) -> f32) -> usize {
    let best = places.iter().copied().max_by(|a, b| {
        worth(*a).total_cmp(&worth(*b)).then((said[*b].at, *b).cmp(&(said[*a].at, *a)))
    });
    best.expect("the caller passes at least one place")
}

/// Returns how many characters each turn may have: short turns all they need, long turns an equal
/// share of the rest.
fn shares(turns: &[&str], room: usize) -> Vec<usize> {
    let needed: Vec<usize> = turns.iter().map(|turn| turn.chars().count()).collect();
    let mut order: Vec<usize> = (0..turns.len()).collect();
    order.sort_by_key(|place| needed[*place]);
    let mut allowed = vec![0; turns.len()];
    let mut rest = room;
    for (done, place) in order.into_iter().enumerate() {
        allowed[place] = needed[place].min(rest / (turns.len() - done));
        rest -= allowed[place];
    }
    allowed
}

#[cfg(test)]
mod tests {
    use super::*;

    const EAST: [f32; 2] = [1.0, 0.0];
    const NORTH: [f32; 2] = [0.0, 1.0];

    fn said(at: i64, content: &str, surprise: f32, towards: [f32; 2]) -> SessionTurn {
        SessionTurn {
            content: content.into(),
            surprise,
            vector: Vector::of(&towards),
            at: Time(at),
        }
    }

    fn check(turns_max: usize, said: &[SessionTurn], expected: &str) {
        assert_eq!(
            ExtractiveSummarizer { turns_max, ..ExtractiveSummarizer::default() }.summarise(said),
            expected
        );
    }

    #[test]
    fn the_most_surprising_turns_are_joined_by_time() {
        let turns = [said(3, "c", 0.9, EAST), said(1, "a", 0.1, NORTH), said(2, "b", 0.5, NORTH)];
        check(2, &turns, "b\nc");
        check(5, &turns, "a\nb\nc");
    }

    #[test]
    fn a_turn_that_repeats_a_chosen_one_gives_way_to_another_subject() {
        let turns = [
            said(1, "moved to Lisbon", 0.9, EAST),
            said(2, "lives in Lisbon", 0.85, EAST),
            said(3, "has a cat", 0.6, NORTH),
        ];
        check(2, &turns, "moved to Lisbon\nhas a cat");
    }

    #[test]
    fn turns_with_the_same_text_are_chosen_once() {
        check(5, &[said(1, "ok then", 0.5, EAST), said(2, " ok then", 0.5, NORTH)], "ok then");
    }

    #[test]
    fn a_session_without_text_has_an_empty_summary() {
        check(5, &[], "");
        check(5, &[said(1, "  ", 0.9, EAST)], "");
    }

    #[test]
    fn of_equally_surprising_turns_the_earlier_is_chosen_and_infinite_surprise_is_harmless() {
        check(1, &[said(2, "later", 0.5, EAST), said(1, "earlier", 0.5, EAST)], "earlier");
        check(2, &[said(1, "a", 0.0, EAST), said(2, "b", 0.0, NORTH)], "a\nb");
        check(1, &[said(1, "a", f32::NEG_INFINITY, EAST), said(2, "b", 0.1, NORTH)], "b");
    }

    #[test]
    fn a_summary_is_never_longer_than_allowed_and_short_turns_stay_whole() {
        let long = "é".repeat(1_000);
        let turns = [
            said(1, "short", 0.9, EAST),
            said(2, &long, 0.8, NORTH),
            said(3, &format!("{long}!"), 0.7, EAST),
        ];
        let summary = ExtractiveSummarizer::default().summarise(&turns);
        assert_eq!(summary.chars().count(), 600);
        assert!(summary.starts_with("short\né") && summary.ends_with('…'));
        assert_eq!(
            ExtractiveSummarizer { chars_max: 0, ..ExtractiveSummarizer::default() }
                .summarise(&turns),
            ""
        );
    }
}
