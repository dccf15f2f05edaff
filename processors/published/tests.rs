//! Adds a policy with one module and one line in the table of policies.

use crate::shared::{self, Judged, Reading};
use domain::fault::Result;
use domain::{Kind, Time};
use kernel::Policy;
use kernel::context::Context;
use kernel::policy::{CandidateInput, Judgement, RememberInput, RememberJudgement, Traits};
use kernel::ranking::{Hit, Question, RankedHits};
use kernel::staged::Staged;
use policies::Entry;
use policies::options::DocumentOptions;
use policies::rank::samples;
use serde::Deserialize;
use std::sync::Arc;

/// Keeps every candidate with at least `words_min` words, and ranks by age.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Longest {
    words_min: usize,
    #[serde(skip)]
    traits: Traits,
}

impl Policy for Longest {
    fn traits(&self) -> &Traits {
        &self.traits
    }

    fn judge(
        &self,
        cx: &Context<'_>,
        staged: &Staged<'_>,
        said: CandidateInput<'_>,
    ) -> Result<Judgement> {
        shared::judgement(cx, staged, said, Reading::default(), |text, ground| {
            let words = text.split_whitespace().count();
            Judged {
                surprise: Default::default(),
                threshold: self.words_min as f32,
                keep: words >= self.words_min,
                reason: format!("{words} words"),
                kind: Kind::new("fact"),
                importance: 0.5,
                confidence: shared::confidence(ground.role),
                same: None,
            }
        })
    }

    fn remember(
        &self,
        _: &Context<'_>,
        _: &Staged<'_>,
        asked: RememberInput<'_>,
    ) -> Result<RememberJudgement> {
        Ok(shared::wish(asked.asked, |_| Kind::new("fact")))
    }

    fn rank(&self, hits: Vec<Hit>, question: &Question<'_>, at: Time) -> RankedHits {
        shared::order(hits, question, at, |hits, at| {
            let ranked = hits.into_iter().map(|hit| {
                let age = shared::days_since_access(&hit.memory, at);
                shared::summed(hit.memory, question, &[("age", age)])
            });
            shared::best_first(ranked.collect())
        })
    }
}

/// The line of the policy in a table.
static LONGEST: Entry =
    Entry::new("longest", "base = \"keepsake\"", DocumentOptions::NONE, |tables| {
        Ok(Arc::new(tables.gate::<Longest>()?))
    });

fn profile(own: &str) -> toml::Table {
    let mut profile = samples::profile();
    let own: toml::Table = own.parse().expect("the test's own TOML is valid");
    let gate = profile["gate"].as_table_mut().expect("`gate` is a table");
    gate.insert("rule".into(), toml::Value::Table(own));
    profile
}

#[test]
fn another_policy_takes_one_folder_and_one_line() {
    let policy = LONGEST.make(&profile("longest = { words_min = 4 }")).expect("valid numbers");
    assert!(!policy.traits().wishes, "only Keepsake's own policy follows wishes");
}

#[test]
fn an_error_in_a_policys_numbers_names_the_option() {
    for (own, option) in [
        ("longest = { words_min = 4, words_max = 9 }", "gate.rule.longest.words_max"),
        ("longest = { words_min = \"four\" }", "gate.rule.longest.words_min"),
        ("", "[gate.rule.longest]"),
    ] {
        let error = LONGEST.make(&profile(own)).err().expect(option);
        assert!(error.contains(option), "{error}");
    }
}
