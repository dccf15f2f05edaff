//! Decides in which shards of a new generation a record of the old generation's changelog belongs.
//! Pure: from the owner of a record and two numbers of partitions.
//!
//! | record | new shards |
//! |---|---|
//! | of a user, or of a whole tenant | the one of the key among the new partitions |
//! | offset of a forwarded record | the one with the old number, and all that take users from it |
//! | of a user, in the shard of the tenant's home | the one of the tenant's key among the new partitions |
//! | signing key | the one with the old number |
//! | meta record, end of the generation | none: the builder makes meta records of its own |
//!
//! Invariant: the new number is a multiple of the old one, so a user either keeps the partition or
//! moves to an added one. On a kept partition offsets go on, so a `min-offset` keeps its meaning, and
//! copies of forwarded records are known by the offsets that the shard kept.

use crate::changelog::Owner;
use domain::fault::{Fault, Result, StopName};

/// The numbers of partitions of the old and of the new generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rekeying {
    pub from: i32,
    pub to: i32,
}

impl Rekeying {
    pub fn of(from: i32, to: i32) -> Result<Rekeying> {
        if from > 0 && to >= from && to % from == 0 {
            return Ok(Rekeying { from, to });
        }
        let why = if to < from {
            "partitions of the events topic cannot be removed".to_owned()
        } else {
            format!(
                "it must be a multiple, such as {}: otherwise users would move between partitions \
                 that have other offsets",
                2 * from
            )
        };
        let what = format!("a generation of {from} partitions cannot become one of {to}: {why}");
        Err(Fault::stop(StopName::GenerationRefused, what))
    }

    /// Returns the new shards of a record that shard `at` of the old generation holds.
    pub fn shards_of(&self, owner: &Owner, at: i32) -> Vec<i32> {
        match owner {
            Owner::Meta | Owner::Closed => Vec::new(),
            Owner::SigningKey => vec![at],
            Owner::Via => (at..self.to).step_by(self.from as usize).collect(),
            // Not at home here: ids and forgets of a user that the tenant's home has decided about.
            Owner::User(key) if key.partition(self.from) != at => {
                let of_home = key.tenant_key().partition(self.from) == at;
                vec![if of_home { key.tenant_key().partition(self.to) } else { at }]
            }
            Owner::User(key) => vec![key.partition(self.to)],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::UserKey;
    use proptest::prelude::*;

    proptest! {
        /// Each user's records are in one shard, and a move is always to an added partition.
        #[test]
        fn a_user_stays_or_moves_to_an_added_partition(
            from in 1..32i32, times in 1..9i32, name in "[a-z]{1,12}"
        ) {
            let rekeying = Rekeying::of(from, from * times).unwrap();
            let key = UserKey::new("acme", &name).unwrap();
            let at = key.partition(from);
            let to = rekeying.shards_of(&Owner::User(key.clone()), at);
            prop_assert_eq!(to.len(), 1);
            prop_assert_eq!(to[0], key.partition(from * times));
            prop_assert!(to[0] == at || to[0] >= from);
        }

    }

    #[test]
    fn what_a_home_keeps_of_users_elsewhere_goes_with_the_tenants_memories() {
        let rekeying = Rekeying { from: 2, to: 6 };
        for n in 0..40 {
            let key = UserKey::new(&format!("house-{n}"), "ada").unwrap();
            let home = key.tenant_key();
            if key.partition(2) == home.partition(2) {
                continue;
            }
            let owner = Owner::User(key.clone());
            assert_eq!(rekeying.shards_of(&owner, home.partition(2)), [home.partition(6)]);
            assert_eq!(rekeying.shards_of(&owner, key.partition(2)), [key.partition(6)]);
        }
    }

    #[test]
    fn what_belongs_to_a_partition_keeps_its_number() {
        let rekeying = Rekeying { from: 2, to: 6 };
        assert_eq!(rekeying.shards_of(&Owner::Via, 1), [1, 3, 5]);
        assert_eq!(rekeying.shards_of(&Owner::SigningKey, 0), [0]);
        assert!(rekeying.shards_of(&Owner::Meta, 1).is_empty());
        assert!(rekeying.shards_of(&Owner::Closed, 1).is_empty());
    }

    #[test]
    fn fewer_partitions_and_numbers_that_are_no_multiple_are_refused_by_name() {
        for (from, to, is_fine) in [(6, 24, true), (6, 6, true), (6, 8, false), (6, 3, false)] {
            let refused = Rekeying::of(from, to).err().map(|fault| fault.to_string());
            assert_eq!(refused.is_none(), is_fine, "{from} {to}: {refused:?}");
            assert!(refused.is_none_or(|what| what.contains("generation")));
        }
    }
}
