//! Answers `about`: the standing picture of a user.
//!
//! A few standing questions, in the languages of the user, are asked like any others: of the same
//! indexes, under the same conditions. So the picture is as new as the indexes, has nothing that
//! was forgotten, and costs a few recalls, however much is stored. The vectors of these questions
//! are kept. The memories that hold the user's slots (home, work, favourites) are read by key.

use super::answer::Answerer;
use super::ask::{AnswerResult, broken, is_others};
use contract::reply::{Answer, Picture, PictureLine};
use domain::fault::{Fault, Reject};
use domain::{
    About, Filter, Format, Memory, MemoryId, Now, Purpose, Request, UnsetFields, UserKey,
};
use kernel::Reads;
use kernel::policy::Room;
use kernel::ranking::{PromptBlock, Question, Ranked};
use policies::rank;
use policies::rank::picture::{self, Found};
use std::sync::Arc;
use storage::shard::Shard;
use text::wordings::{
    CHINESE, CoveredLanguage, ENGLISH, JAPANESE, PicturePart, standing_questions,
};

/// Languages of a user that the questions are asked in, besides English.
const LANGUAGES_MAX: usize = 2;
/// Memories read of each question: of two, one may have been revised.
const READ_MAX: usize = 4;

impl Answerer {
    pub(super) fn about(
        &mut self,
        now: Now,
        shard: &Shard,
        request: &Request,
        about: &About,
        left_ms: &dyn Fn() -> i64,
    ) -> AnswerResult {
        let profile = self.profiles.of(&request.key).clone();
        let languages = languages(shard, &request.key).map_err(broken)?;
        let mut ask = |language: CoveredLanguage| {
            let questions: Vec<(PicturePart, &str)> = standing_questions(language).collect();
            let wordings = questions.iter().flat_map(|(_, question)| question.split('|'));
            let asked = standing(about, wordings.collect());
            let how = (&*profile, false);
            let found = self.search(now, shard, request, (&asked, Vec::new()), how, left_ms)?;
            // Of the tenant's memories those of others say nothing of this user.
            let is_own = |one: &Ranked| !is_others(&one.memory, &request.key);
            let mut orders = found.orders.into_iter().map(|order| order.ranked);
            let of_question = |(part, question): (PicturePart, &str)| -> Found {
                let wordings = question.split('|').count();
                let own = |ranked: Vec<Ranked>| ranked.into_iter().filter(is_own).collect();
                (part, orders.by_ref().take(wordings).map(own).collect())
            };
            let answers: Vec<Found> = questions.into_iter().map(of_question).collect();
            Ok::<_, Reject>((answers, found.wishes, found.seen))
        };
        let (mut found, mut wishes, mut seen) = ask(ENGLISH)?;
        for language in languages.into_iter().chain(unspaced(&found)).take(LANGUAGES_MAX) {
            let (more, more_wishes, now_seen) = ask(language)?;
            found.extend(more);
            wishes.extend(more_wishes);
            seen = seen.and(now_seen);
        }
        // The first question of a language is the one about wishes: the nearest to it come first.
        wishes.truncate(picture::WISHES_MAX);
        found.retain(|(part, _)| *part != PicturePart::Wishes);
        found.extend(self.holders(now, shard, &request.key, about).map_err(broken)?);
        let lines = picture::picture(found, wishes, now.events);
        let count_tokens = &|text: &str| self.tokens.count(text);
        let room = Room { limit: lines.len(), budget: about.token_budget, count_tokens };
        let PromptBlock { text: prompt, tokens, taken, .. } = match picture::frame(about.format) {
            Some(frame) => rank::framed(&lines, &frame, &room),
            None => PromptBlock { taken: (0..lines.len()).collect(), ..PromptBlock::default() },
        };
        let lines = lines.into_iter().enumerate().filter(|(place, _)| taken.contains(place));
        let lines = lines.map(|(_, one)| PictureLine {
            section: picture::part_of(&one).as_str(),
            memory: one.memory,
        });
        let answer = Answer::About(Picture { lines: lines.collect(), prompt, tokens });
        Ok((answer, seen))
    }

    /// The memories that hold the present value of a slot: home, work, a favourite.
    fn holders(
        &self,
        now: Now,
        shard: &Shard,
        key: &UserKey,
        about: &About,
    ) -> Result<Vec<Found>, Fault> {
        let _still = shard.view();
        let slots = shard.store.slots_under(key, "", SLOTS_MAX)?;
        let (parts, ids): (Vec<PicturePart>, Vec<MemoryId>) = slots
            .iter()
            .filter_map(|(name, holder)| Some((picture::part_of_slot(name)?, holder.memory)))
            .unzip();
        let memories = shard.store.cached_memories(key, &ids)?;
        let asked = standing(about, Vec::new());
        let any = Question::of(&asked, "", None, 0.0);
        let holds = |memory: &Arc<Memory>| {
            rank::admitted_unfiltered(memory, &any) && !memory.is_expired(now.events)
        };
        let found = parts.into_iter().zip(memories).filter_map(|(part, memory)| {
            let one = Ranked::new(memory.filter(holds)?, 0.0, false, Vec::new());
            Some((part, vec![vec![Ranked { relevance: Some(OF_SLOT), ..one }]]))
        });
        Ok(found.collect())
    }
}

/// Slots of a user that are read: nobody states more about themselves.
const SLOTS_MAX: usize = 64;
/// The relevance of a memory that holds the value of a slot: it is about the user.
const OF_SLOT: f32 = 0.9;

/// The languages of the user's memories, besides English, that have questions.
fn languages(shard: &Shard, key: &UserKey) -> Result<Vec<CoveredLanguage>, Fault> {
    let others = shard.index.text.languages(key)?.into_iter();
    let others = others.filter_map(|language| CoveredLanguage::named(&language.to_string()));
    Ok(others.collect())
}

/// The language of memories in a script without spaces, of which the index does not tell.
fn unspaced(found: &[Found]) -> Option<CoveredLanguage> {
    let texts = || {
        found
            .iter()
            .flat_map(|(_, wordings)| wordings.iter().flatten())
            .map(|one| &*one.memory.content)
    };
    let has =
        |first: char, last: char| texts().flat_map(str::chars).any(|c| (first..=last).contains(&c));
    let (kana, han) = (has('\u{3040}', '\u{30ff}'), has('\u{4e00}', '\u{9fff}'));
    if kana { Some(JAPANESE) } else { han.then_some(CHINESE) }
}

fn standing(about: &About, queries: Vec<&str>) -> domain::Recall {
    domain::Recall {
        queries: queries.into_iter().map(str::to_owned).collect(),
        session: about.session.clone(),
        limit: READ_MAX,
        token_budget: about.token_budget,
        kinds: Vec::new(),
        filter: Filter::default(),
        as_of: None,
        period: domain::Period::default(),
        as_of_offset: None,
        include_archived: false,
        searches_archive: false,
        include_compressed: false,
        format: Format::None,
        profile: None,
        explain: false,
        history: Vec::new(),
        min_relevance: 0.0,
        purpose: Purpose::Prompt,
        unsaid: UnsetFields::default(),
    }
}
