//! The interface of a memory policy: how candidates and explicit wishes are judged, facts are
//! extracted from several messages, and memories are ranked and rendered. Keepsake's own is in
//! `policies/`, five others in `published/`; the kernel and recall know only this trait.
//!
//! A policy decides and never writes, but for `extract`, which rewrites the memories that the
//! policy's gate has put aside. So the same call can be made for a shadow, whose judgement nobody
//! applies.

use super::context::Context;
use super::handled::Handled;
use super::staged::Staged;
use crate::ranking::{Hit, PromptBlock, Question, Ranked, RankedHits};
use domain::fault::Result;
use domain::{
    Decision, Kind, Memory, MemoryId, Outcome, Purpose, Recall, Remember, Scope, Surprise, Time,
    Turn, Vector,
};
use std::any::Any;
use std::sync::Arc;
use text::Stems;
use text::split::{Candidate, Slot};

pub trait Policy: Any + Send + Sync {
    /// The policy's requirements on the other steps, fixed when a profile is loaded.
    fn traits(&self) -> &Traits;

    /// Judges a candidate on the user's earlier memories and turns.
    fn judge(
        &self,
        cx: &Context<'_>,
        staged: &Staged<'_>,
        said: CandidateInput<'_>,
    ) -> Result<Judgement>;

    /// Judges a text that somebody asked to remember.
    fn remember(
        &self,
        cx: &Context<'_>,
        staged: &Staged<'_>,
        asked: RememberInput<'_>,
    ) -> Result<RememberJudgement>;

    /// Reads several messages at once, after the turn was applied.
    fn extract(
        &self,
        _cx: &Context<'_>,
        _staged: &mut Staged<'_>,
        _turn: &Turn,
        _handled: &mut Handled,
    ) -> Result<()> {
        Ok(())
    }

    /// Fills in the fields that the request leaves open.
    fn complete(&self, asked: &Recall) -> Recall {
        asked.clone()
    }

    /// Orders the admitted hits, best first, at most as many as asked for.
    fn rank(&self, hits: Vec<Hit>, question: &Question<'_>, at: Time) -> RankedHits;

    /// Chooses the memories of the answer from the ranked ones, after a cross-encoder has reordered
    /// them. A policy that chooses by the token budget needs [`Traits::selects`].
    fn select(&self, mut ranked: Vec<Ranked>, room: &Room<'_>) -> Vec<Ranked> {
        ranked.truncate(room.limit);
        ranked
    }

    /// The policy's own prompt block, if any.
    fn render(&self, _ranked: &[Ranked], _room: &Room<'_>) -> Option<PromptBlock> {
        None
    }
}

/// The room that an answer has.
pub struct Room<'a> {
    /// The greatest number of memories.
    pub limit: usize,
    /// Tokens of the prompt block.
    pub budget: usize,
    pub count_tokens: &'a dyn Fn(&str) -> usize,
}

/// Rates a text from 0 to 1.
pub type Rating = dyn Fn(&str) -> f32 + Send + Sync;

/// The steps, data and numbers of a policy that others follow. The defaults are those of a document
/// that names none.
#[derive(Clone)]
pub struct Traits {
    /// Recall ranks all of the user's memories, and not only the nearest.
    pub all_memories: bool,
    /// The ranking reads how near a memory is to the question. Without it the question is not
    /// encoded.
    pub reads_vectors: bool,
    /// Recall measures single words of the question.
    pub word_vectors: bool,
    /// Recall reads how many things a question asks, and the event that bounds its time.
    pub reads_questions: bool,
    /// A cross-encoder may reorder the answer.
    pub reranking: bool,
    /// The policy ranks more memories than an answer holds, and selects from them.
    pub selects: bool,
    /// Wishes in a turn are followed ("off the record", "forget what I just said").
    pub wishes: bool,
    /// The compaction worker may propose links between contradicting memories.
    pub links: bool,
    /// What is asked to be remembered a second time is stored a second time, unless the policy finds
    /// that it is the same.
    pub stores_repeats: bool,
    /// The share of the bound of strength below which a memory is archived, given the probability that
    /// it is chatter, if the encoder says anything of it. With it the fade is counted from when a memory
    /// was stored, if that is later than when it was said; without it all have the same bound.
    pub prune_share: Option<fn(&Memory, Option<f32>) -> f32>,
    /// The gate puts candidates aside and decides on several together.
    pub decides_later: bool,
    /// Names the weights of the total. Two policies with the same name give every candidate the
    /// same total, so a total of one may be compared with the stored totals of the other.
    pub totals: Option<String>,
    /// Rates how lasting a statement is, for a policy with such a score.
    pub stability: Option<Arc<Rating>>,
    /// Orders the memories of several questions, each with its best score.
    pub arrange: fn(Vec<Ranked>) -> Vec<Ranked>,
    /// Place of the block in the prompt, if the policy's document gives one for this purpose.
    pub placement: fn(Purpose) -> Option<&'static str>,
    /// The readers of a memory that is made from a turn of a session.
    pub scope_in_session: Scope,
    /// The least cosine, on the scale of the standard encoder, at which two statements of one
    /// speaker may be the same.
    pub repeated_cosine: f32,
    /// The kinds that stand first, outside the order by relevance, or that a prompt presents as an
    /// instruction or as the user's identity. A tenant memory of another user is recalled as a plain
    /// fact instead, unless the profile names its author as a writer.
    pub ruling_kinds: &'static [&'static str],
    /// The factor on a superseded memory when a cross-encoder reorders the answer.
    pub superseded_factor: f32,
}

impl Default for Traits {
    fn default() -> Traits {
        Traits {
            all_memories: false,
            reads_vectors: true,
            word_vectors: false,
            reads_questions: false,
            reranking: false,
            selects: false,
            wishes: false,
            links: false,
            stores_repeats: false,
            prune_share: None,
            decides_later: false,
            totals: None,
            stability: None,
            arrange: |mut ranked| {
                ranked.sort_by(|a, b| {
                    b.score.total_cmp(&a.score).then(a.memory.id.cmp(&b.memory.id))
                });
                ranked
            },
            placement: |_| None,
            scope_in_session: Scope::User,
            repeated_cosine: 0.95, // as in the default profile
            ruling_kinds: &["instruction", "preference"],
            superseded_factor: 1.0,
        }
    }
}

impl Traits {
    pub fn stability_of(&self, content: &str) -> Option<f32> {
        self.stability.as_ref().map(|rated| rated(content))
    }
}

/// A candidate of a turn, with the vector.
#[derive(Clone, Copy)]
pub struct CandidateInput<'a> {
    pub turn: &'a Turn,
    pub candidate: &'a Candidate,
    pub vector: &'a Vector,
    /// The stored totals were made by other weights: the gate must not compare with them.
    pub has_foreign_totals: bool,
}

/// A text to remember, with the kind and slots that the wording gives.
#[derive(Clone, Copy)]
pub struct RememberInput<'a> {
    pub asked: &'a Remember<Vector>,
    pub candidate: &'a Candidate,
}

/// The conclusion about a candidate.
pub struct Judgement {
    /// Kept, superseded, merged or dropped.
    pub outcome: Outcome,
    pub reason: String,
    /// The reason's class in the metric of judgements.
    pub class: &'static str,
    pub kind: Kind,
    pub surprise: Surprise,
    pub threshold: f32,
    pub importance: f32,
    pub confidence: f32,
    /// The memory with the same statement, where the outcome is merged.
    pub same: Option<Memory>,
    /// True if the user has confirmed that memory. An echo by an assistant confirms nothing.
    pub confirms: bool,
    pub links: Links,
    pub lifecycle: Lifecycle,
    pub learned: Option<Learned>,
}

impl Judgement {
    /// The published form. A memory that is to be made has no id yet.
    pub fn decision(&self, cx: &Context<'_>, candidate: &Candidate) -> Decision {
        let related = match self.outcome {
            Outcome::Kept | Outcome::Superseded => self.links.related().collect(),
            _ => Vec::new(),
        };
        Decision {
            candidate: Some(candidate.text.clone()),
            kind: Some(self.kind.clone()),
            surprise: Some(self.surprise.clone()),
            threshold: Some(self.threshold),
            memory: self.same.as_ref().map(|memory| memory.id),
            related,
            ..cx.decision(self.outcome, self.reason.clone())
        }
    }
}

/// An earlier memory, and the reason why the new one contradicts that memory.
pub struct Opposed {
    pub memory: Memory,
    pub why: String,
}

/// A memory that is probably revised, and the reason.
pub struct Revised {
    pub memory: Memory,
    pub probability: f32,
    pub is_partial: bool,
    pub why: String,
}

/// Links from a new memory to earlier ones.
#[derive(Default)]
pub struct Links {
    /// Slots whose value the new memory gives.
    pub slots: Vec<Slot>,
    /// Memories that hold another value of one of them.
    pub replaced: Vec<Memory>,
    pub opposed: Vec<Opposed>,
    pub revised: Vec<Revised>,
}

impl Links {
    pub fn related(&self) -> impl Iterator<Item = MemoryId> {
        let replaced = self.replaced.iter().map(|memory| memory.id);
        let opposed = self.opposed.iter().map(|opposed| opposed.memory.id);
        replaced.chain(opposed).chain(self.revised.iter().map(|revised| revised.memory.id))
    }
}

/// The state in which a memory begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lifecycle {
    #[default]
    Active,
    /// Kept aside until the policy has read more of the conversation.
    Waiting,
}

/// Changes of the user's gate state.
pub struct Learned {
    pub stems: Option<Stems>,
    pub total: f32,
}

/// The conclusion about a text that somebody asked to remember.
pub struct RememberJudgement {
    pub kind: Kind,
    pub confidence: f32,
    /// A memory with nearly the same statement, which takes the new words.
    pub same: Option<Memory>,
    pub links: Links,
}
