//! Which texts of an event are redacted: all that is kept, published or encoded. Order matters: before anything looks at them.
//! Names stay as they are (tenant, user, session, id, kind, names of metadata): they decide whose and where. So does what is to be
//! forgotten, which is neither kept nor published.

use super::Ingest;
use crate::domain::{Action, Event, Revise};
use crate::stages::redact;

impl Ingest {
    /// `counted`: a copy for another shard's sake was counted at home.
    pub(super) fn redact(&self, event: &mut Event, counted: bool) {
        let options = &self.profiles.of(&event.key).redact;
        for text in texts(event) {
            let Some(redacted) = redact::redacted(text, options) else { continue };
            *text = redacted.text;
            for rule in redacted.found.iter().filter(|_| counted) {
                self.metrics.redacted(rule.as_str());
            }
        }
        if let Action::Update(update) = &mut event.action
            && let Some(metadata) = &mut update.metadata
        {
            metadata.clone_from(&event.metadata); // the same, read twice: counted once
        }
    }
}

fn texts(event: &mut Event) -> Vec<&mut String> {
    let mut texts: Vec<&mut String> = event.metadata.values_mut().collect();
    match &mut event.action {
        Action::Turn(turn) => {
            texts.extend([&mut turn.content].into_iter().chain(&mut turn.speaker))
        }
        Action::Remember(remember) => texts.push(&mut remember.content),
        Action::Update(update) => texts.extend(&mut update.content),
        Action::Summary { content, .. } => texts.push(content),
        Action::Prune { reason, .. } | Action::Revise(Revise { reason, .. }) => texts.push(reason),
        Action::Forget(_) | Action::Feedback { .. } | Action::Tick => {}
    }
    texts
}
