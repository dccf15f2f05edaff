//! A session in a few of its own sentences: what surprised most, each saying something else, in the order it was said.
//! It does not know where turns come from or where a summary goes; the compaction worker publishes it like any other event.
//!
//! The seam for a summarizer that asks a language model is `summarise`: made a trait when there is a second one, with a `Result`,
//! since only the worker calls it and a slow or failing one holds up nobody.

use crate::domain::{Time, Vector};
use crate::text;

/// What was said in the session, in any order.
#[derive(Clone, Debug)]
pub struct Said {
    pub content: String,
    pub surprise: f32,
    pub vector: Vector,
    pub at: Time,
}

/// Chooses and never rewrites, so a summary cannot say what nobody said.
#[derive(Clone, Debug)]
pub struct Extractive {
    pub turns_max: usize,
    pub chars_max: usize,
    /// 0 chooses by surprise alone, 1 only what is unlike the already chosen.
    pub diversity: f32,
}

impl Default for Extractive {
    /// Five turns hold 60 % of what questions later need when chosen by surprise, 52 % when the longest are taken, 27 % the central.
    fn default() -> Extractive {
        Extractive { turns_max: 5, chars_max: 600, diversity: 0.3 }
    }
}

impl Extractive {
    /// Empty if nothing was said.
    pub fn summarise(&self, said: &[Said]) -> String {
        let mut chosen = self.chosen(said);
        chosen.sort_by_key(|place| (said[*place].at, *place));
        let turns: Vec<&str> = chosen.iter().map(|place| said[*place].content.trim()).collect();
        let room = self.chars_max.saturating_sub(turns.len().saturating_sub(1));
        let allowed = shares(&turns, room);
        let heard = turns.iter().zip(allowed).filter(|(_, chars)| *chars > 0);
        heard.map(|(turn, chars)| text::shortened(turn, chars)).collect::<Vec<_>>().join("\n")
    }

    /// Maximal marginal relevance: each time the most surprising after what it repeats of the chosen is taken off.
    fn chosen(&self, said: &[Said]) -> Vec<usize> {
        let most = said.iter().map(|turn| turn.surprise).fold(f32::MIN_POSITIVE, f32::max);
        let mut repeats = vec![0f32; said.len()];
        let mut left: Vec<usize> =
            (0..said.len()).filter(|place| !said[*place].content.trim().is_empty()).collect();
        let mut chosen = Vec::new();
        while chosen.len() < self.turns_max && !left.is_empty() {
            let worth = |place: usize| {
                (1.0 - self.diversity) * said[place].surprise / most
                    - self.diversity * repeats[place]
            };
            let best = best_of(&left, said, worth);
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

/// Of two that are worth the same, the one said earlier.
fn best_of(places: &[usize], said: &[Said], worth: impl Fn(usize) -> f32) -> usize {
    let better = |a: &&usize, b: &&usize| {
        worth(**a).total_cmp(&worth(**b)).then((said[**b].at, **b).cmp(&(said[**a].at, **a)))
    };
    *places.iter().max_by(better).expect("the caller's loop ends when none is left")
}

/// How many characters each may have: the short ones all they need, the long ones an equal share of the rest.
fn shares(turns: &[&str], room: usize) -> Vec<usize> {
    let needed: Vec<usize> = turns.iter().map(|turn| turn.chars().count()).collect();
    let mut order: Vec<usize> = (0..turns.len()).collect();
    order.sort_by_key(|place| needed[*place]);
    let (mut allowed, mut rest) = (vec![0; turns.len()], room);
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

    fn said(at: i64, content: &str, surprise: f32, towards: [f32; 2]) -> Said {
        Said { content: content.into(), surprise, vector: Vector::of(&towards), at: Time(at) }
    }

    fn check(turns_max: usize, said: &[Said], expected: &str) {
        assert_eq!(Extractive { turns_max, ..Extractive::default() }.summarise(said), expected);
    }

    #[test]
    fn the_most_surprising_come_in_the_order_they_were_said() {
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
    fn the_same_words_are_never_said_twice() {
        check(5, &[said(1, "ok then", 0.5, EAST), said(2, " ok then", 0.5, NORTH)], "ok then");
    }

    #[test]
    fn nothing_said_is_an_empty_summary() {
        check(5, &[], "");
        check(5, &[said(1, "  ", 0.9, EAST)], "");
    }

    #[test]
    fn equal_surprise_favours_what_was_said_first_and_an_odd_number_does_no_harm() {
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
        let summary = Extractive::default().summarise(&turns);
        assert_eq!(summary.chars().count(), 600);
        assert!(summary.starts_with("short\né") && summary.ends_with('…'));
        assert_eq!(Extractive { chars_max: 0, ..Extractive::default() }.summarise(&turns), "");
    }
}
