//! The quotas of tenants. Limits the requests of one tenant in a second, by token buckets that hold
//! one second's worth; events are counted in `ingest/event_rate.rs`, memories by the kernel. Each
//! process counts for itself, so a tenant whose users are spread over several processes gets the
//! sum. Time is an argument.

use settings::quota::Limits;
use std::collections::HashMap;

/// Buckets that are kept. Beyond that number the full ones go, which a new bucket equals.
const BUCKETS_MAX: usize = 10_000;

pub struct Rate {
    limits: Limits,
    buckets: HashMap<String, Bucket>,
}

#[derive(Clone, Copy)]
struct Bucket {
    tokens: f64,
    at_ms: i64,
}

impl Rate {
    pub fn new(limits: Limits) -> Rate {
        Rate { limits, buckets: HashMap::new() }
    }

    /// The tenant's limit, if there is one.
    pub fn limit(&self, tenant: &str) -> Option<f64> {
        self.limits.of(tenant)
    }

    /// Takes one token, or returns the milliseconds until there is one.
    pub fn take(&mut self, tenant: &str, now_ms: i64) -> Result<(), i64> {
        let Some(limit) = self.limits.of(tenant) else { return Ok(()) };
        let full = limit.max(1.0);
        if !self.buckets.contains_key(tenant) {
            if self.buckets.len() >= BUCKETS_MAX {
                let limits = &self.limits;
                self.buckets.retain(|name, bucket| {
                    let limit = limits.of(name).unwrap_or(0.0);
                    filled(*bucket, limit, now_ms) < limit.max(1.0)
                });
            }
            self.buckets.insert(tenant.to_owned(), Bucket { tokens: full, at_ms: now_ms });
        }
        let bucket = self.buckets.get_mut(tenant).expect("it was inserted if missing");
        let tokens = filled(*bucket, limit, now_ms);
        *bucket = Bucket { tokens, at_ms: now_ms };
        if tokens < 1.0 {
            return Err(((1.0 - tokens) * 1000.0 / limit).ceil() as i64);
        }
        bucket.tokens -= 1.0;
        Ok(())
    }
}

fn filled(bucket: Bucket, limit: f64, now_ms: i64) -> f64 {
    let passed = now_ms.saturating_sub(bucket.at_ms).max(0) as f64;
    (bucket.tokens + passed * limit / 1000.0).min(limit.max(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate() -> Rate {
        let by_tenant = [("large".to_owned(), 4.0), ("free".to_owned(), 0.0)].into();
        Rate::new(Limits { standard: 2.0, by_tenant })
    }

    /// Number of ten requests at this time that pass.
    fn passed(rate: &mut Rate, tenant: &str, now_ms: i64) -> usize {
        (0..10).filter(|_| rate.take(tenant, now_ms).is_ok()).count()
    }

    #[test]
    fn a_tenant_gets_one_second_at_once_and_then_the_rate() {
        let mut rate = rate();
        assert_eq!(passed(&mut rate, "small", 0), 2);
        assert_eq!(rate.take("small", 100), Err(400), "the time until the next one");
        assert_eq!(passed(&mut rate, "small", 500), 1);
        assert_eq!(passed(&mut rate, "small", 60_000), 2, "a quiet minute saves nothing up");
        assert_eq!(passed(&mut rate, "large", 0), 4, "each tenant for itself");
        assert_eq!(passed(&mut rate, "free", 0), 10);
    }

    #[test]
    fn tenants_that_came_once_do_not_fill_the_memory() {
        let mut rate = rate();
        for n in 0..3 * BUCKETS_MAX {
            assert!(rate.take(&format!("tenant {n}"), n as i64).is_ok());
        }
        assert!(rate.buckets.len() <= BUCKETS_MAX, "{}", rate.buckets.len());
    }
}
