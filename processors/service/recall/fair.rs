//! Orders requests that are ready to be answered: one of each tenant in turn, and within a tenant
//! one of each user, so that nobody waits for all the requests of somebody else. The requests of
//! one user keep their order.

use domain::UserKey;
use std::collections::{HashMap, VecDeque};

pub struct FairQueue<T> {
    /// The tenants with a request, the next one first.
    turns: VecDeque<String>,
    tenants: HashMap<String, Tenant<T>>,
    len: usize,
}

struct Tenant<T> {
    /// The users with a request, the next one first.
    turns: VecDeque<String>,
    users: HashMap<String, VecDeque<T>>,
}

impl<T> Default for FairQueue<T> {
    fn default() -> FairQueue<T> {
        FairQueue { turns: VecDeque::new(), tenants: HashMap::new(), len: 0 }
    }
}

impl<T> FairQueue<T> {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn push(&mut self, key: &UserKey, request: T) {
        if !self.tenants.contains_key(key.tenant()) {
            self.turns.push_back(key.tenant().to_owned());
            let tenant = Tenant { turns: VecDeque::new(), users: HashMap::new() };
            self.tenants.insert(key.tenant().to_owned(), tenant);
        }
        let tenant = self.tenants.get_mut(key.tenant()).expect("it was inserted if missing");
        if !tenant.users.contains_key(key.user()) {
            tenant.turns.push_back(key.user().to_owned());
            tenant.users.insert(key.user().to_owned(), VecDeque::new());
        }
        let user = tenant.users.get_mut(key.user()).expect("it was inserted if missing");
        user.push_back(request);
        self.len += 1;
    }

    /// Removes the next request. Invariant: nobody in `turns` is without a request.
    pub fn pop(&mut self) -> Option<T> {
        let name = self.turns.pop_front()?;
        let tenant = self.tenants.get_mut(&name)?;
        let user = tenant.turns.pop_front()?;
        let requests = tenant.users.get_mut(&user)?;
        let request = requests.pop_front();
        if requests.is_empty() {
            tenant.users.remove(&user);
        } else {
            tenant.turns.push_back(user);
        }
        if tenant.turns.is_empty() {
            self.tenants.remove(&name);
        } else {
            self.turns.push_back(name);
        }
        self.len -= 1;
        request
    }

    /// Every request, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.tenants.values().flat_map(|tenant| tenant.users.values().flatten())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Queues `acme/ana` and the like, and returns the order in which they are taken.
    fn taken(queued: &[&str]) -> Vec<String> {
        let mut queue = FairQueue::default();
        for (n, name) in queued.iter().enumerate() {
            let (tenant, user) = name.split_once('/').expect("two names");
            queue.push(&UserKey::new(tenant, user).expect("valid names"), format!("{name}{n}"));
        }
        assert_eq!((queue.len(), queue.iter().count()), (queued.len(), queued.len()));
        let taken: Vec<String> = std::iter::from_fn(|| queue.pop()).collect();
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
}
