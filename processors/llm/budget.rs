//! Counts the requests of each tenant in a day (UTC), so that no tenant exceeds the daily limit.
//!
//! Limit: only the requests of this process since the start are counted.

use domain::Time;
use std::collections::HashMap;

const DAY_MS: i64 = 86_400_000;

pub struct Budget {
    /// 0: no limit.
    per_day: u64,
    day: i64,
    /// Only tenants that asked today, so the map is bounded by the requests of a day.
    used: HashMap<String, u64>,
}

impl Budget {
    pub fn new(per_day: u64) -> Budget {
        Budget { per_day, day: 0, used: HashMap::new() }
    }

    pub fn is_spent(&mut self, tenant: &str, now: Time) -> bool {
        self.turn_to(now);
        self.per_day > 0 && self.used.get(tenant).is_some_and(|used| *used >= self.per_day)
    }

    pub fn add(&mut self, tenant: &str, requests: u64, now: Time) {
        self.turn_to(now);
        if self.per_day > 0 && requests > 0 {
            *self.used.entry(tenant.to_owned()).or_default() += requests;
        }
    }

    fn turn_to(&mut self, now: Time) {
        let day = now.0.div_euclid(DAY_MS);
        if day != self.day {
            self.day = day;
            self.used.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_spends_only_its_own_budget_and_gets_it_again_the_next_day() {
        let mut budget = Budget::new(2);
        let today = Time(DAY_MS * 10);
        budget.add("acme", 1, today);
        assert!(!budget.is_spent("acme", today));
        budget.add("acme", 1, today);
        assert!(budget.is_spent("acme", today.plus_ms(DAY_MS - 1)));
        assert!(!budget.is_spent("other", today));
        assert!(!budget.is_spent("acme", today.plus_ms(DAY_MS)));
    }

    #[test]
    fn zero_is_no_limit() {
        let mut budget = Budget::new(0);
        budget.add("acme", u64::MAX, Time(0));
        assert!(!budget.is_spent("acme", Time(0)));
    }
}
