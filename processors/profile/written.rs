//! A profile as it is written, table by table, and what each stage makes of it.

use super::{Change, Feedback, Merge, Profile, Prune, Roles, Summary};
use crate::domain::Category;
use crate::stages::redact::Rule;
use crate::stages::{index, rank, redact, score, split};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Written {
    redact: WrittenRedact,
    split: WrittenSplit,
    roles: Roles,
    pub gate: WrittenGate,
    weights: score::Weights,
    never: WrittenNever,
    merge: Merge,
    change: Change,
    rank: WrittenRank,
    fade: rank::WrittenFade,
    template: Option<rank::Template>,
    prune: Prune,
    summary: Summary,
    feedback: Feedback,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenRedact {
    private_key: bool,
    jwt: bool,
    api_key: bool,
    bearer: bool,
    card: bool,
    iban: bool,
    email: bool,
    phone: bool,
}

impl WrittenRedact {
    fn checked(&self) -> redact::Options {
        let is_on = |rule: &Rule| match rule {
            Rule::PrivateKey => self.private_key,
            Rule::Jwt => self.jwt,
            Rule::ApiKey => self.api_key,
            Rule::Bearer => self.bearer,
            Rule::Card => self.card,
            Rule::Iban => self.iban,
            Rule::Email => self.email,
            Rule::Phone => self.phone,
        };
        redact::Options { rules: Rule::ALL.into_iter().filter(is_on).collect() }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenSplit {
    tokens_min: usize,
    tokens_max: usize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WrittenGate {
    fixed: f32,
    keep_share: f32,
    pub rule: Option<score::seeds::Rule>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenNever {
    health: bool,
    politics: bool,
    religion: bool,
    sexuality: bool,
    money: bool,
}

impl WrittenNever {
    fn checked(&self) -> Vec<Category> {
        let is_on = |category: &Category| match category {
            Category::Health => self.health,
            Category::Politics => self.politics,
            Category::Religion => self.religion,
            Category::Sexuality => self.sexuality,
            Category::Money => self.money,
        };
        Category::ALL.into_iter().filter(is_on).collect()
    }
}

/// The engine's own constants, and everything that ranks.
#[derive(Deserialize)]
struct WrittenRank {
    k1: f32,
    b: f32,
    // What is not written adds nothing: a profile that ranks by less says less.
    #[serde(default)]
    previous: f32,
    #[serde(default)]
    short_words: f32,
    #[serde(default)]
    first_person: bool,
    #[serde(flatten)]
    rank: rank::WrittenRank,
}

impl Written {
    pub fn checked(self, name: &str) -> Profile {
        Profile {
            name: name.into(),
            redact: self.redact.checked(),
            split: split::Options {
                tokens_min: self.split.tokens_min,
                tokens_max: self.split.tokens_max.max(1),
            },
            roles: self.roles,
            rule: self.gate.rule,
            gate: score::Gate { fixed: self.gate.fixed, keep_share: self.gate.keep_share },
            weights: self.weights,
            never: self.never.checked(),
            merge: self.merge,
            change: self.change,
            words: index::Bm25 {
                k1: self.rank.k1,
                b: self.rank.b,
                previous: self.rank.previous,
                short_words: self.rank.short_words,
            },
            first_person: self.rank.first_person,
            rank: self.rank.rank.checked(self.fade.checked()),
            template: self.template,
            prune: self.prune,
            summary: self.summary,
            feedback: self.feedback,
        }
    }
}
