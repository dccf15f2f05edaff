//! Simulates one consumer group: its members, the share of partitions of each, and the partitions
//! that each still holds. Calls no owner.
//!
//! The assignment is sticky and cooperative: a member keeps its partitions up to an even share, and
//! a partition goes to its new member only after the old one has given it up.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// A consumer group. All its members subscribe to one topic here.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GroupId {
    pub name: String,
    pub topic: String,
}

impl GroupId {
    pub fn new(name: &str, topic: &str) -> GroupId {
        GroupId { name: name.to_owned(), topic: topic.to_owned() }
    }
}

/// Proves a membership to a transaction that commits offsets.
pub struct MemberProof {
    pub group: GroupId,
    pub member: MemberNumber,
    pub generation: i64,
}

/// Number of a member. A member that rejoins after an expulsion gets a new number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MemberNumber(pub u64);

#[derive(Debug)]
pub struct Group {
    partitions: i32,
    generation: i64,
    members: BTreeMap<MemberNumber, Member>,
}

#[derive(Debug, Default)]
struct Member {
    /// Assigned to its owner and not yet given up.
    holds: BTreeSet<i32>,
    /// The share of this generation.
    share: BTreeSet<i32>,
}

impl Group {
    pub fn new(partitions: i32) -> Group {
        Group { partitions, generation: 0, members: BTreeMap::new() }
    }

    pub fn generation(&self) -> i64 {
        self.generation
    }

    pub fn has(&self, member: MemberNumber) -> bool {
        self.members.contains_key(&member)
    }

    pub fn join(&mut self, member: MemberNumber) {
        self.members.insert(member, Member::default());
        self.share_out();
    }

    /// Removes a member that leaves or is expelled. Its partitions are free at once.
    pub fn remove(&mut self, member: MemberNumber) {
        if self.members.remove(&member).is_some() {
            self.share_out();
        }
    }

    /// Returns the partitions that the member holds and that are no longer in its share.
    pub fn to_give_up(&self, member: MemberNumber) -> Vec<i32> {
        self.members.get(&member).map_or_else(Vec::new, |member| {
            member.holds.difference(&member.share).copied().collect()
        })
    }

    pub fn give_up(&mut self, member: MemberNumber, partitions: &[i32]) {
        if let Some(member) = self.members.get_mut(&member) {
            member.holds.retain(|partition| !partitions.contains(partition));
        }
    }

    /// Takes the partitions of the member's share that no other member still holds.
    pub fn take(&mut self, member: MemberNumber) -> Vec<i32> {
        let held: BTreeSet<i32> =
            self.members.values().flat_map(|member| &member.holds).copied().collect();
        let Some(member) = self.members.get_mut(&member) else { return Vec::new() };
        let free: Vec<i32> = member.share.difference(&held).copied().collect();
        member.holds.extend(&free);
        free
    }

    /// Starts a new generation and divides the partitions. Members keep what they hold up to an
    /// even share, and the rest goes to those with less. The order is: who holds most, then who
    /// joined first.
    fn share_out(&mut self) {
        self.generation += 1;
        let mut order: Vec<MemberNumber> = self.members.keys().copied().collect();
        order.sort_by_key(|number| (Reverse(self.members[number].holds.len()), *number));
        let partitions = self.partitions as usize;
        let each = partitions / order.len().max(1);
        let remainder = partitions % order.len().max(1);
        let mut free: BTreeSet<i32> = (0..self.partitions).collect();
        let mut missing = Vec::with_capacity(order.len());
        for (place, number) in order.iter().enumerate() {
            let quota = each + usize::from(place < remainder);
            let member = self.members.get_mut(number).expect("`order` holds members only");
            member.share = member.holds.iter().copied().take(quota).collect();
            free.retain(|partition| !member.share.contains(partition));
            missing.push(quota - member.share.len());
        }
        let mut free = free.into_iter();
        for (number, missing) in order.iter().zip(missing) {
            let member = self.members.get_mut(number).expect("`order` holds members only");
            member.share.extend(free.by_ref().take(missing));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANN: MemberNumber = MemberNumber(1);
    const BOB: MemberNumber = MemberNumber(2);
    const CAT: MemberNumber = MemberNumber(3);

    /// Polls once: gives up, then takes.
    fn poll(group: &mut Group, member: MemberNumber) -> (Vec<i32>, Vec<i32>) {
        let lost = group.to_give_up(member);
        group.give_up(member, &lost);
        (lost, group.take(member))
    }

    #[test]
    fn a_partition_goes_to_its_new_owner_only_after_the_old_one_gave_it_up() {
        let mut group = Group::new(4);
        group.join(ANN);
        assert_eq!(poll(&mut group, ANN), (vec![], vec![0, 1, 2, 3]));
        group.join(BOB);
        assert_eq!(poll(&mut group, BOB), (vec![], vec![]));
        assert_eq!(poll(&mut group, ANN), (vec![2, 3], vec![]));
        assert_eq!(poll(&mut group, BOB), (vec![], vec![2, 3]));
    }

    #[test]
    fn members_keep_their_partitions_up_to_an_even_share() {
        let mut group = Group::new(5);
        for member in [ANN, BOB] {
            group.join(member);
        }
        assert_eq!(poll(&mut group, ANN).1, [0, 1, 2]);
        assert_eq!(poll(&mut group, BOB).1, [3, 4]);
        group.join(CAT);
        assert_eq!(poll(&mut group, ANN), (vec![2], vec![]));
        assert_eq!(poll(&mut group, BOB), (vec![], vec![]));
        assert_eq!(poll(&mut group, CAT), (vec![], vec![2]));
        group.remove(ANN);
        assert_eq!(poll(&mut group, BOB), (vec![], vec![0]));
        assert_eq!(poll(&mut group, CAT), (vec![], vec![1]));
    }

    #[test]
    fn partitions_of_an_expelled_member_are_free_at_once_and_it_gets_no_more() {
        let mut group = Group::new(2);
        group.join(ANN);
        group.take(ANN);
        group.join(BOB);
        group.remove(ANN);
        assert_eq!(poll(&mut group, BOB), (vec![], vec![0, 1]));
        assert_eq!(poll(&mut group, ANN), (vec![], vec![]));
        assert!(!group.has(ANN));
        assert_eq!(group.generation(), 3);
        group.remove(ANN);
        assert_eq!(group.generation(), 3, "removing an absent member changes nothing");
    }

    #[test]
    fn with_more_members_than_partitions_some_get_none() {
        let mut group = Group::new(1);
        for member in [ANN, BOB, CAT] {
            group.join(member);
        }
        let taken: Vec<Vec<i32>> =
            [ANN, BOB, CAT].iter().map(|member| group.take(*member)).collect();
        assert_eq!(taken, [vec![0], vec![], vec![]]);
    }
}
