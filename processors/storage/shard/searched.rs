//! Builds the search document of a memory: its text, date, speaker and neighbouring turns.

use crate::index::{Document, SearchText};
use domain::{Memory, NeighbourTurns, Role, Time};
use std::sync::Arc;
use text::{Language, Stems, Words};

/// Names that applications give to speakers without a name. A question that contains such a word
/// does not ask for a speaker.
const NAMELESS: &[&str] = &["user", "assistant", "system", "tool", "human", "ai", "bot"];

/// Returns the search document of a memory. Its words are stemmed when the index first reads them.
pub fn document(memory: Memory) -> Document {
    let id = memory.id;
    let key = memory.key.clone();
    let searched = Searched::of(memory);
    Document::new(id, key, move || searched.text())
}

/// Returns whether both memories make the same document. Then a memory that was only confirmed,
/// used or linked need not be indexed again.
pub fn has_same_words(one: &Memory, other: &Memory) -> bool {
    fn searched(memory: &Memory) -> (Time, Role, Option<&str>, &str, [Option<&str>; 3]) {
        let NeighbourTurns { before, earlier, after } = &memory.around;
        let around =
            [before, earlier, after].map(|neighbour| neighbour.as_ref().map(|one| &*one.words));
        (memory.created_at, memory.role, memory.speaker.as_deref(), &memory.content, around)
    }
    searched(one) == searched(other)
}

/// The parts of a memory that its document is made from.
struct Searched {
    created_at: Time,
    role: Role,
    speaker: Option<String>,
    content: String,
    /// Words of the turn before, of the one before that and of the one after.
    around: [Option<Arc<str>>; 3],
}

impl Searched {
    fn of(memory: Memory) -> Searched {
        let Memory {
            created_at,
            role,
            speaker,
            content,
            around: NeighbourTurns { before, earlier, after },
            ..
        } = memory;
        let around = [before, earlier, after].map(|neighbour| neighbour.map(|one| one.words));
        Searched { created_at, role, speaker, content, around }
    }

    /// Stems the date, the speaker and the text as the memory's own words, and each neighbouring
    /// turn apart from them.
    fn text(&self) -> SearchText {
        let day = text::day(self.created_at);
        let speaker = self.speaker.as_deref();
        let content = Words::of(&self.content);
        let language = content.language().or_else(|| self.language_with_neighbours());
        let around = self.around.each_ref().map(|words| {
            words.as_deref().map(|words| stems(&Words::of(words), language)).unwrap_or_default()
        });
        let [before, earlier, after] = around;
        let frame = Words::of(&format!("{day} {}", speaker.unwrap_or(self.role.as_str())));
        let own = frame
            .stems_in(Language::ENGLISH)
            .and(&content.stems_in(language.unwrap_or(Language::ENGLISH)));
        SearchText {
            own,
            before,
            earlier,
            after,
            language: language.filter(|language| *language != Language::ENGLISH),
            speaker: speaker
                .map(text::name)
                .filter(|name| !name.is_empty() && !NAMELESS.contains(&name.as_str())),
            words: text::count_words(&self.content),
        }
    }

    /// Detects the language of the text together with its neighbours: one sentence alone is often
    /// too short, all of them together nearly always suffice.
    fn language_with_neighbours(&self) -> Option<Language> {
        let [before, earlier, after] = self.around.each_ref().map(Option::as_deref);
        let around: Vec<&str> = [earlier, before, after].into_iter().flatten().collect();
        if around.is_empty() {
            None
        } else {
            Words::of(&[&[self.content.as_str()], &around[..]].concat().join("\n")).language()
        }
    }
}

/// Stems words in their own language, or else in the language of the memory beside them.
fn stems(words: &Words, beside: Option<Language>) -> Stems {
    words.stems_in(words.language().or(beside).unwrap_or(Language::ENGLISH))
}
