//! Distinguishes a second builder of a generation from a broker that has ended the first one's
//! transactions. In both cases the first may write no more.
//!
//! Each builder notes an id of its own before it ends the transactions of another: beside an offset
//! of a group that nobody reads. A builder that may write no more looks at the note. The builder
//! begins again if the id is its own and stops otherwise, or two builders would end each other for
//! ever. The builder whose id was noted last stays.

use domain::fault::{Fault, Result, StopName};
use kafka::{Connection, Noted};
use std::collections::BTreeMap;
use uuid::Uuid;

/// Times in a row that a builder begins again without having written anything in between.
const BEGUN_AGAIN_MAX: u32 = 5;
/// The partition beside whose offset the id is.
const NOTED_AT: i32 = 0;

pub struct Rivalry {
    connection: Connection,
    group: String,
    topic: String,
    own: String,
    has_noted: bool,
    is_fenced: bool,
    begun_again: u32,
}

impl Rivalry {
    pub fn new(connection: Connection, group: String, topic: String) -> Rivalry {
        let own = Uuid::new_v4().simple().to_string();
        Rivalry {
            connection,
            group,
            topic,
            own,
            has_noted: false,
            is_fenced: false,
            begun_again: 0,
        }
    }

    /// Notes that this builder begins. Order matters: before ending the transactions of another
    /// builder, which would else find its own id and end this one's.
    pub fn note(&mut self) -> Result<()> {
        let noted = Noted { offset: 0, text: self.own.clone() };
        self.connection.note(&self.group, &self.topic, &BTreeMap::from([(NOTED_AT, noted)]))?;
        self.has_noted = true;
        Ok(())
    }

    /// The fault of a builder that may write no more and has to begin again, unless
    /// [`Rivalry::check`] finds another builder.
    pub fn fenced(&mut self, why: &str) -> Fault {
        self.is_fenced = true;
        Fault::retry(format!("the transactions of this builder were ended: {why}"))
    }

    pub fn written(&mut self) {
        self.begun_again = 0;
    }

    /// Stops a builder that begins again although another builder has begun. Order matters: before
    /// noting an id and ending the other's transactions. After any failure, because a write that
    /// the other has ended can fail in other ways, too.
    pub fn check(&mut self) -> Result<()> {
        if !self.has_noted {
            return Ok(());
        }
        let noted = self.connection.noted(&self.group, &self.topic, &[NOTED_AT])?;
        let noted = noted.get(&NOTED_AT).map(|noted| noted.text.as_str());
        check_own(&self.own, noted, self.begun_again)?;
        self.begun_again += u32::from(std::mem::take(&mut self.is_fenced));
        Ok(())
    }
}

/// `noted`: the id beside the offset, which the broker forgets after a week without a change.
fn check_own(own: &str, noted: Option<&str>, begun_again: u32) -> Result<()> {
    let what = match noted {
        Some(noted) if noted != own => "another builder of this generation has begun".to_owned(),
        _ if begun_again < BEGUN_AGAIN_MAX => return Ok(()),
        _ => format!(
            "the transactions of this builder were ended {begun_again} times in a row: something \
             else writes under its transactional id"
        ),
    };
    Err(Fault::stop(StopName::InstanceTaken, what))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_builder_begins_again_unless_another_has_begun() {
        for (noted, begun_again, goes_on) in [
            (Some("own"), 0, true),
            (None, 0, true),
            (Some("other"), 0, false),
            (Some("own"), BEGUN_AGAIN_MAX - 1, true),
            (Some("own"), BEGUN_AGAIN_MAX, false),
        ] {
            let checked = check_own("own", noted, begun_again);
            assert_eq!(checked.is_ok(), goes_on, "{noted:?} {begun_again}");
        }
    }
}
