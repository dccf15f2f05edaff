//! What of a memory it is found by: its words, its day and who said it, and what was said around it.

use crate::domain::{Around, Memory, Role, Time};
use crate::stages::index::{Document, Text};
use crate::text::{self, Language, Stems, Words};
use std::sync::Arc;

/// A memory as it is found, read when it is needed.
pub fn document(memory: Memory) -> Document {
    let (id, key, searched) = (memory.id, memory.key.clone(), Searched::of(memory));
    Document::new(id, key, move || searched.text())
}

/// What of a memory makes its document.
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
            around: Around { before, earlier, after },
            ..
        } = memory;
        let around = [before, earlier, after].map(|neighbour| neighbour.map(|one| one.words));
        Searched { created_at, role, speaker, content, around }
    }

    /// Its day, who said it, and its words; and apart from these what was said around it.
    fn text(&self) -> Text {
        let day = text::day(self.created_at);
        let speaker = self.speaker.as_deref();
        let said = Words::again(&self.content);
        let language = said.language().or_else(|| self.language_together());
        let around = self
            .around
            .each_ref()
            .map(|words| words.as_deref().map(|words| stems(&Words::again(words), language)));
        let [before, earlier, after] = around.map(Option::unwrap_or_default);
        let frame = Words::again(&format!("{day} {}", speaker.unwrap_or(self.role.as_str())));
        let own = frame
            .stems_in(Language::ENGLISH)
            .and(&said.stems_in(language.unwrap_or(Language::ENGLISH)));
        Text {
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

    /// A sentence by itself is often too short to tell its language by: of a memory and what was said around it, that is told nearly always.
    fn language_together(&self) -> Option<Language> {
        let [before, earlier, after] = self.around.each_ref().map(Option::as_deref);
        let around: Vec<&str> = [earlier, before, after].into_iter().flatten().collect();
        if around.is_empty() {
            None
        } else {
            Words::of(&[&[self.content.as_str()], &around[..]].concat().join("\n")).language()
        }
    }
}

/// In the language that they are told in, or else that of the memory they stand beside.
fn stems(words: &Words, beside: Option<Language>) -> Stems {
    words.stems_in(words.language().or(beside).unwrap_or(Language::ENGLISH))
}

/// Whether both make the same document: a memory that is confirmed, used or linked is found as before.
pub fn has_same_words(one: &Memory, other: &Memory) -> bool {
    fn searched(memory: &Memory) -> (Time, Role, Option<&str>, &str, [Option<&str>; 3]) {
        let Around { before, earlier, after } = &memory.around;
        let around =
            [before, earlier, after].map(|neighbour| neighbour.as_ref().map(|one| &*one.words));
        (memory.created_at, memory.role, memory.speaker.as_deref(), &memory.content, around)
    }
    searched(one) == searched(other)
}

/// What applications call speakers that have no name.
const NAMELESS: &[&str] = &["user", "assistant", "system", "tool", "human", "ai", "bot"];
