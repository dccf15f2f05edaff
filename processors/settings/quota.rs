//! The limits of tenants (`[quota]`), and which of them holds for a tenant.

use std::collections::BTreeMap;

/// The limits of each quota.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Quotas {
    pub recalls_per_second: Limits,
    pub events_per_second: Limits,
    pub memories_per_partition: Limits,
}

/// A limit for every tenant; 0 is none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Limits {
    pub standard: f64,
    pub by_tenant: BTreeMap<String, f64>,
}

impl Limits {
    /// The tenant's limit, if there is one.
    pub fn of(&self, tenant: &str) -> Option<f64> {
        let limit = self.by_tenant.get(tenant).copied().unwrap_or(self.standard);
        (limit > 0.0).then_some(limit)
    }
}
