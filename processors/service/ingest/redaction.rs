//! Redacts every text of an event that is stored, published or encoded. Order matters: redaction
//! precedes every other use of the text.
//!
//! Identifiers stay unchanged (tenant, user, session, id, kind, keys of the metadata), because they
//! address the memory. So does the query of a `forget`, which is neither stored nor published.

use super::Ingest;
use super::count::Count;
use domain::{Action, Event, Revise};
use text::redact;

impl Ingest {
    /// Redacts the texts of an event, and counts the findings where `counts` is given.
    pub(super) fn redact(&self, event: &mut Event, mut counts: Option<&mut Vec<Count>>) {
        let rules = &self.profiles.of(&event.key).redact;
        for text in texts(event) {
            let Some(redacted) = redact::redacted(text, rules) else { continue };
            *text = redacted.text;
            if let Some(counts) = &mut counts {
                counts.extend(redacted.found.iter().map(|rule| Count::Redacted(rule.as_str())));
            }
        }
    }
}

fn texts(event: &mut Event) -> Vec<&mut String> {
    let mut texts: Vec<&mut String> = event.metadata.values_mut().collect();
    match &mut event.action {
        Action::Turn(turn, ()) => {
            texts.extend([&mut turn.content].into_iter().chain(&mut turn.speaker))
        }
        Action::Remember(remember) => texts.push(&mut remember.content.text),
        Action::Update(update) => {
            texts.extend(update.content.as_mut().map(|content| &mut content.text))
        }
        Action::Summary { content, made, .. } => {
            texts.push(&mut content.text);
            texts.extend(made.as_mut().map(|made| &mut made.reason));
        }
        Action::Extracted(extracted) => {
            texts.extend(extracted.facts.iter_mut().map(|fact| &mut fact.content.text));
            texts.push(&mut extracted.made.reason);
        }
        Action::Prune { reason, .. } | Action::Revise(Revise { reason, .. }) => texts.push(reason),
        Action::Forget(_) | Action::Feedback { .. } | Action::Tick => {}
    }
    texts
}
