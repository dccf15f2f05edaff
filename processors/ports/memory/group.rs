//! One consumer group in memory: who is a member, who is to have which partition, and who still holds it. Knows no record and calls nobody.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// One life of one member: who comes back after an expulsion is another.
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
    /// Told to its owner, and not given up since.
    holds: BTreeSet<i32>,
    /// Its share, as of this generation.
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

    /// By its own wish or not: what it held is free at once.
    pub fn remove(&mut self, member: MemberNumber) {
        if self.members.remove(&member).is_some() {
            self.share_out();
        }
    }

    /// What this member holds and is to have no longer.
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

    /// What this member may begin with: its share, without what another has not given up yet. It holds it from now on.
    pub fn take(&mut self, member: MemberNumber) -> Vec<i32> {
        let held: BTreeSet<i32> =
            self.members.values().flat_map(|member| &member.holds).copied().collect();
        let Some(member) = self.members.get_mut(&member) else { return Vec::new() };
        let free: Vec<i32> = member.share.difference(&held).copied().collect();
        member.holds.extend(&free);
        free
    }

    /// A new generation. Everybody keeps what it holds, up to an even share; the rest goes to those who have less, in the order they came.
    fn share_out(&mut self) {
        self.generation += 1;
        let mut order: Vec<MemberNumber> = self.members.keys().copied().collect();
        order.sort_by_key(|number| (Reverse(self.members[number].holds.len()), *number));
        let (each, more) = (
            self.partitions as usize / order.len().max(1),
            self.partitions as usize % order.len().max(1),
        );
        let quota = |place: usize| each + usize::from(place < more);
        let mut free: BTreeSet<i32> = (0..self.partitions).collect();
        for (place, number) in order.iter().enumerate() {
            let member = self.members.get_mut(number).expect("the order was made of the members");
            member.share = member.holds.iter().copied().take(quota(place)).collect();
            free.retain(|partition| !member.share.contains(partition));
        }
        let mut free = free.into_iter();
        for (place, number) in order.iter().enumerate() {
            let member = self.members.get_mut(number).expect("the order was made of the members");
            let missing = quota(place) - member.share.len();
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

    /// One poll: gives up, then takes.
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
    fn everybody_keeps_what_it_can() {
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
    fn what_an_expelled_member_held_is_free_at_once_and_it_gets_nothing_more() {
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
        assert_eq!(group.generation(), 3, "who is not there cannot leave");
    }

    #[test]
    fn more_members_than_partitions_leave_some_with_nothing() {
        let mut group = Group::new(1);
        for member in [ANN, BOB, CAT] {
            group.join(member);
        }
        let taken: Vec<Vec<i32>> =
            [ANN, BOB, CAT].iter().map(|member| group.take(*member)).collect();
        assert_eq!(taken, [vec![0], vec![], vec![]]);
    }
}
