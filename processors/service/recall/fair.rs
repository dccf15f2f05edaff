//! Orders requests that are ready to be answered: one of each tenant in turn, and within a tenant
//! one of each user, so that nobody waits for all the requests of somebody else. The requests of
//! one user are answered in their order: the next one is taken when the one before is done.

use domain::UserKey;
use std::collections::{HashMap, VecDeque};

pub struct FairQueue<T> {
    /// The tenants of whom a request may be taken, the next one first.
    turns: VecDeque<String>,
    tenants: HashMap<String, Tenant<T>>,
    len: usize,
}

struct Tenant<T> {
    /// The users of whom a request may be taken, the next one first.
    turns: VecDeque<String>,
    users: HashMap<String, User<T>>,
}

/// A user of whom requests wait, or one is taken and not done.
struct User<T> {
    waiting: VecDeque<T>,
    is_taken: bool,
}

impl<T> Default for FairQueue<T> {
    fn default() -> FairQueue<T> {
        FairQueue { turns: VecDeque::new(), tenants: HashMap::new(), len: 0 }
    }
}

impl<T> FairQueue<T> {
    /// Requests that wait. Those that are taken do not count.
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn has_next(&self) -> bool {
        !self.turns.is_empty()
    }

    pub fn push(&mut self, key: &UserKey, request: T) {
        let (tenant, user) = (key.tenant(), key.user());
        if !self.tenants.contains_key(tenant) {
            let empty = Tenant { turns: VecDeque::new(), users: HashMap::new() };
            self.tenants.insert(tenant.to_owned(), empty);
        }
        let users = &mut self.tenants.get_mut(tenant).expect("it was inserted if missing").users;
        if !users.contains_key(user) {
            let new = User { waiting: VecDeque::new(), is_taken: false };
            users.insert(user.to_owned(), new);
        }
        let queue = users.get_mut(user).expect("it was inserted if missing");
        queue.waiting.push_back(request);
        self.len += 1;
        if queue.waiting.len() == 1 && !queue.is_taken {
            self.take_turn(tenant, user);
        }
    }

    /// Takes the next request. No other of its user is taken before [`FairQueue::done`].
    pub fn pop(&mut self) -> Option<T> {
        let name = self.turns.pop_front()?;
        let tenant = self.tenants.get_mut(&name)?;
        let user = tenant.users.get_mut(&tenant.turns.pop_front()?)?;
        let request = user.waiting.pop_front();
        user.is_taken = true;
        if !tenant.turns.is_empty() {
            self.turns.push_back(name);
        }
        self.len -= 1;
        request
    }

    /// The request of this user that was taken is answered, or waits elsewhere.
    pub fn done(&mut self, key: &UserKey) {
        let Some(tenant) = self.tenants.get_mut(key.tenant()) else { return };
        let Some(user) = tenant.users.get_mut(key.user()) else { return };
        user.is_taken = false;
        if !user.waiting.is_empty() {
            return self.take_turn(key.tenant(), key.user());
        }
        tenant.users.remove(key.user());
        if tenant.users.is_empty() {
            self.tenants.remove(key.tenant());
        }
    }

    /// Removes the waiting requests for which `keeps` is false.
    pub fn retain(&mut self, keeps: impl Fn(&T) -> bool) {
        for tenant in self.tenants.values_mut() {
            tenant.users.values_mut().for_each(|user| user.waiting.retain(&keeps));
            tenant.users.retain(|_, user| user.is_taken || !user.waiting.is_empty());
            let Tenant { turns, users } = tenant;
            turns.retain(|user| users.get(user).is_some_and(|user| !user.waiting.is_empty()));
        }
        self.tenants.retain(|_, tenant| !tenant.users.is_empty());
        let tenants = &self.tenants;
        self.turns.retain(|name| tenants.get(name).is_some_and(|it| !it.turns.is_empty()));
        self.len = self.iter().count();
    }

    /// Every request that waits, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        let users = self.tenants.values().flat_map(|tenant| tenant.users.values());
        users.flat_map(|user| &user.waiting)
    }

    /// Puts a user of whom a request may be taken behind those of the tenant, and the tenant behind
    /// the others.
    fn take_turn(&mut self, tenant: &str, user: &str) {
        let Some(of_tenant) = self.tenants.get_mut(tenant) else { return };
        of_tenant.turns.push_back(user.to_owned());
        if of_tenant.turns.len() == 1 {
            self.turns.push_back(tenant.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> UserKey {
        let (tenant, user) = name.split_once('/').expect("two names");
        UserKey::new(tenant, user.trim_end_matches(char::is_numeric)).expect("valid names")
    }

    fn queue(queued: &[&str]) -> FairQueue<String> {
        let mut queue = FairQueue::default();
        for (n, name) in queued.iter().enumerate() {
            queue.push(&key(name), format!("{name}{n}"));
        }
        assert_eq!((queue.len(), queue.iter().count()), (queued.len(), queued.len()));
        queue
    }

    /// Queues `acme/ana` and the like, and returns the order in which they are taken, if each is
    /// done before the next is taken.
    fn taken(queued: &[&str]) -> Vec<String> {
        let mut queue = queue(queued);
        let taken = std::iter::from_fn(|| queue.pop().inspect(|taken| queue.done(&key(taken))));
        let taken: Vec<String> = taken.collect();
        assert_eq!((queue.len(), queue.tenants.len()), (0, 0), "nothing stays behind");
        taken
    }

    #[test]
    fn tenants_and_their_users_take_turns_and_a_user_keeps_the_order() {
        let queued = ["a/x", "a/x", "a/x", "a/y", "b/x", "b/x"];
        assert_eq!(taken(&queued), ["a/x0", "b/x4", "a/y3", "b/x5", "a/x1", "a/x2"]);
        assert_eq!(taken(&[]), Vec::<String>::new());
    }

    #[test]
    fn a_request_of_one_tenant_is_second_behind_a_thousand_of_another() {
        let mut queued = vec!["flood/x"; 1000];
        queued.push("calm/x");
        assert_eq!(taken(&queued)[1], "calm/x1000");
    }

    #[test]
    fn of_a_user_one_request_is_taken_at_a_time_and_others_go_on() {
        let mut queue = queue(&["a/x", "a/x", "b/y", "a/x"]);
        let taken: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(taken, ["a/x0", "b/y2"]);
        assert!(!queue.has_next() && queue.len() == 2);
        queue.push(&key("a/x"), "a/x4".into());
        assert_eq!(queue.pop(), None, "the first one is not done");
        queue.done(&key("a/x"));
        assert_eq!(queue.pop().as_deref(), Some("a/x1"));
        queue.retain(|request| request.starts_with('b'));
        queue.done(&key("a/x"));
        assert_eq!((queue.pop(), queue.len()), (None, 0), "a/x3 and a/x4 are given up");
        queue.done(&key("b/y"));
        assert!(queue.tenants.is_empty(), "nothing stays behind");
    }
}
