//! Signs a record with the key of a tenant, and verifies the signature. A tenant with a key is safe
//! from everybody else who may write to the topics.
//!
//! ```text
//! header   keepsake-tenant-signature: <time>:<signature>
//! time     epoch milliseconds at which the sender signed
//! signed   HMAC-SHA256 in hex over these parts, each as "<length in bytes>:<bytes>":
//!          "keepsake tenant 1", topic, time, key, value, then name and value of each header
//!          of [`SIGNED_HEADERS`] that the record has, ordered by name
//! ```
//!
//! An absent key or value is signed as an empty one. Headers that Keepsake does not read are not
//! signed, because tracing libraries add them later.
//!
//! Limit: a copy of a signed record is as valid as the record, until [`AGE_MS_MAX`] is over by the
//! record's timestamp, which the writer of the copy may set. So the kernel also compares the time
//! of signing with that of the user's other events (`kernel/signed.rs`).

use crate::fault::{Reject, RejectCode};
use crate::signature::{SignedParts, SigningKey};
use crate::{SENDER_LIMITS, Time};
use std::collections::BTreeMap;

pub const TENANT_SIGNATURE: &str = "keepsake-tenant-signature";

/// Header with the number of times that a dead letter was sent again. Such a record keeps its
/// timestamp and may be signed later.
pub const REDRIVEN: &str = "keepsake-redriven";

/// The headers that change how Keepsake handles a record.
pub const SIGNED_HEADERS: [&str; 12] = [
    "ce_id",
    "ce_time",
    "ce_type",
    "content-type",
    "correlation-id",
    "kafka_correlationId",
    "kafka_replyPartition",
    "kafka_replyTopic",
    "keepsake-deadline",
    "keepsake-min-offset",
    SENDER_LIMITS,
    "reply-topic",
];

/// First of the signed parts, so that a later layout cannot be mistaken for this one.
const VERSION: &str = "keepsake tenant 1";

/// Milliseconds between the time of a signature and the timestamp of its record: five minutes, for
/// clocks that differ and producers that retry. An event may be signed as long before an earlier
/// event of its user. A longer time lets copies of older events in, a shorter one forbids events of
/// senders whose clocks differ.
pub const AGE_MS_MAX: i64 = 300_000;

/// The keys of the tenants, and the rule for tenants without one.
#[derive(Clone, Debug)]
pub struct TenantKeys {
    pub by_tenant: BTreeMap<String, SigningKey>,
    /// Tenants without a key may send unsigned records.
    pub others: bool,
}

impl TenantKeys {
    /// Returns true if this tenant's records are verified.
    pub fn judge(&self, tenant: &str) -> bool {
        !self.others || self.by_tenant.contains_key(tenant)
    }

    /// Returns the value of the header for a record, or `None` for a tenant without a key. The
    /// partition is not signed.
    pub fn sign(&self, tenant: &str, record: &SignedParts<'_>, now_ms: i64) -> Option<String> {
        let key = self.by_tenant.get(tenant)?;
        Some(format!("{now_ms}:{}", key.sign_bytes(&signed_bytes(record, now_ms))))
    }

    /// Verifies that a record comes from `tenant`, and returns the time of the signature; `None`
    /// for a tenant without a key. `header` is the value of [`TENANT_SIGNATURE`].
    pub fn verify(
        &self,
        tenant: &str,
        record: &SignedParts<'_>,
        header: Option<&[u8]>,
        at_ms: i64,
    ) -> Result<Option<Time>, Reject> {
        let Some(key) = self.by_tenant.get(tenant) else {
            if self.others {
                return Ok(None);
            }
            let what = "this tenant has no key in auth.tenants, and auth.others is false";
            return Err(forbidden(what.to_owned()));
        };
        let Some(header) = header else {
            return Err(forbidden(format!(
                "records of this tenant must be signed, and the header {TENANT_SIGNATURE} is missing"
            )));
        };
        let Some((signed_ms, signature)) = parsed(header) else {
            return Err(forbidden(format!("{TENANT_SIGNATURE} is not <milliseconds>:<hex>")));
        };
        if !key.fits_bytes(signature, &signed_bytes(record, signed_ms)) {
            return Err(forbidden(format!(
                "{TENANT_SIGNATURE} was made with another key or over another record"
            )));
        }
        let is_redriven = record.headers.iter().any(|(name, _)| name == REDRIVEN);
        let latest_ms = if is_redriven { at_ms.max(signed_ms) } else { at_ms };
        let age_ms = latest_ms.saturating_sub(signed_ms).saturating_abs();
        if age_ms > AGE_MS_MAX {
            return Err(forbidden(format!(
                "signed {age_ms} ms away from the time of the record, and {AGE_MS_MAX} ms are allowed"
            )));
        }
        Ok(Some(Time(signed_ms)))
    }
}

fn forbidden(message: String) -> Reject {
    Reject::new(RejectCode::Forbidden, message)
}

fn parsed(header: &[u8]) -> Option<(i64, &[u8])> {
    let colon = header.iter().position(|byte| *byte == b':')?;
    let signed_ms = std::str::from_utf8(&header[..colon]).ok()?.parse().ok()?;
    Some((signed_ms, &header[colon + 1..]))
}

fn signed_bytes(record: &SignedParts<'_>, signed_ms: i64) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut part = |part: &[u8]| {
        bytes.extend_from_slice(part.len().to_string().as_bytes());
        bytes.push(b':');
        bytes.extend_from_slice(part);
    };
    part(VERSION.as_bytes());
    part(record.topic.as_bytes());
    part(signed_ms.to_string().as_bytes());
    part(record.key.unwrap_or_default());
    part(record.value.unwrap_or_default());
    for signed in SIGNED_HEADERS {
        for (name, value) in record.headers.iter().filter(|(name, _)| name == signed) {
            part(name.as_bytes());
            part(value);
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "a key of at least thirty-two bytes";

    fn keys(others: bool) -> TenantKeys {
        let by_tenant = BTreeMap::from([("acme".to_owned(), SigningKey::of(KEY))]);
        TenantKeys { by_tenant, others }
    }

    fn headers(all: &[(&str, &str)]) -> Vec<(String, Vec<u8>)> {
        all.iter().map(|(name, value)| ((*name).to_owned(), value.as_bytes().to_vec())).collect()
    }

    /// `schemas/README.md` has the same example, with a function in Python that computes the
    /// signature.
    #[test]
    fn a_signature_is_the_documented_one() {
        let record = SignedParts {
            topic: "keepsake.events",
            partition: 0,
            key: Some(b"acme/zoe"),
            value: Some(
                br#"{"type":"turn","tenant":"acme","user":"zoe","content":"I live in Rome."}"#,
            ),
            headers: &headers(&[("reply-topic", "keepsake.replies"), ("traceparent", "00-1")]),
        };
        let documented = include_str!("../../schemas/README.md");
        let documented =
            documented.lines().find_map(|line| line.strip_prefix("    1700000000000:"));
        let signed = documented.map(|signature| format!("1700000000000:{signature}"));
        assert_eq!(keys(true).sign("acme", &record, 1_700_000_000_000), signed);
    }

    #[test]
    fn law_isolated_since_a_signature_is_valid_for_one_tenant_one_record_and_a_short_time() {
        let keys = keys(true);
        let own = headers(&[("ce_type", "keepsake.turn.v1"), ("traceparent", "00-1")]);
        let record = SignedParts {
            topic: "events",
            partition: 2,
            key: Some(b"acme/zoe"),
            value: Some(b"{}"),
            headers: &own,
        };
        let signature = keys.sign("acme", &record, 5_000).expect("acme has a key");
        let verify = |record: &SignedParts<'_>, at_ms| {
            keys.verify("acme", record, Some(signature.as_bytes()), at_ms).is_ok()
        };
        let traced = headers(&[("x", "y"), ("ce_type", "keepsake.turn.v1")]);
        let (latest, earliest) = (5_000 + AGE_MS_MAX, 5_000 - AGE_MS_MAX);
        assert!(verify(&record, 5_000) && verify(&record, latest) && verify(&record, earliest));
        assert!(verify(&SignedParts { partition: 3, headers: &traced, ..record }, 5_000));
        for at_ms in [latest + 1, earliest - 1, i64::MIN] {
            assert!(!verify(&record, at_ms), "{at_ms}");
        }
        let other_type = headers(&[("ce_type", "keepsake.remember.v1")]);
        let more = headers(&[("ce_type", "keepsake.turn.v1"), ("reply-topic", "mine")]);
        for other in [
            SignedParts { topic: "event", ..record },
            SignedParts { key: Some(b"acme/zo"), ..record },
            SignedParts { key: None, ..record },
            SignedParts { value: Some(b"{} "), ..record },
            SignedParts { headers: &other_type, ..record },
            SignedParts { headers: &more, ..record },
            SignedParts { headers: &[], ..record },
        ] {
            assert!(!verify(&other, 5_000));
        }
        for forged in ["", ":", "5000", "5000:", "x:00", "5000:00", "5001:ab", "-1:zz"] {
            let refused = keys.verify("acme", &record, Some(forged.as_bytes()), 5_000);
            assert_eq!(refused.expect_err(forged).code, RejectCode::Forbidden);
        }
        assert!(keys.verify("acme", &record, None, 5_000).is_err());
    }

    #[test]
    fn a_dead_letter_that_is_sent_again_keeps_its_time_and_is_signed_later() {
        let keys = keys(true);
        let verify = |headers: &[(String, Vec<u8>)], at_ms| {
            let record =
                SignedParts { topic: "events", partition: 0, key: None, value: None, headers };
            let signature = keys.sign("acme", &record, 900_000).expect("acme has a key");
            keys.verify("acme", &record, Some(signature.as_bytes()), at_ms).ok()
        };
        let redriven = headers(&[(REDRIVEN, "1")]);
        assert_eq!(verify(&redriven, 100_000), Some(Some(Time(900_000))));
        assert_eq!(verify(&redriven, 1_200_001), None, "a copy of it is as old as any other");
        assert_eq!(verify(&[], 100_000), None);
    }

    #[test]
    fn tenants_without_a_key_send_unsigned_unless_others_are_off() {
        let record =
            SignedParts { topic: "events", partition: 0, key: None, value: None, headers: &[] };
        assert!(keys(true).verify("other", &record, None, 0).is_ok());
        assert!(!keys(true).judge("other") && keys(false).judge("other"));
        assert!(keys(false).verify("other", &record, None, 0).is_err());
        assert_eq!(keys(false).sign("other", &record, 0), None);
    }
}
