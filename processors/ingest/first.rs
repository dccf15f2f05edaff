//! Makes a memory and a decision as they begin: with everything that follows from the event alone.

use super::Here;
use crate::domain::{Around, Decision, Kind, Memory, MemoryId, Outcome, Role, Scope};

impl Here<'_> {
    /// A memory as it begins: everything that follows from the event alone.
    pub(super) fn memory(&self, span: u32, content: &str, kind: Kind) -> Memory {
        let event = self.event;
        Memory {
            id: MemoryId::of(self.source(), span),
            key: event.key.clone(),
            author: None,
            scope: Scope::User,
            session: event.session.clone(),
            kind,
            content: content.to_owned(),
            role: Role::User,
            speaker: None,
            importance: 1.0,
            confidence: 1.0,
            created_at: event.at,
            valid_from: event.at,
            valid_to: None,
            source: event.source.clone(),
            event_id: event.id.clone(),
            metadata: event.metadata.clone(),
            supersedes: Vec::new(),
            superseded_by: None,
            revises: Vec::new(),
            revised_by: None,
            conflicts_with: Vec::new(),
            archived: false,
            version: 1,
            changed: self.offset(),
            uses: 0,
            confirmed: 0,
            fresh_at: event.at,
            surprise: None,
            threshold: None,
            reason: String::new(),
            profile: self.profile.name.clone(),
            covers: Vec::new(),
            history: Vec::new(),
            around: Around::default(),
        }
    }

    /// A decision about this event, before anything but its outcome is known.
    pub(super) fn decision(&self, outcome: Outcome, reason: String) -> Decision {
        let event = self.event;
        Decision {
            outcome,
            reason,
            event: event.source.clone(),
            event_id: event.id.clone(),
            key: event.key.clone(),
            session: event.session.clone(),
            candidate: None,
            kind: None,
            surprise: None,
            threshold: None,
            memory: None,
            related: Vec::new(),
            left: None,
            profile: self.profile.name.clone(),
            at: event.at,
            misrouted: self.is_misrouted(),
        }
    }
}
