//! Reaches the cluster for the first time, and names the reason if nothing answers: the broker is
//! away, the log-in is refused, or the two sides cannot agree on TLS.
//!
//! A broker that is away may come back, so the caller waits. A refused log-in or certificate does
//! not heal by itself, but is tried for [`CONFIRMED`]: a broker that has just started may not have
//! read its users yet.

use super::connection::{Connection, UNDECIDED};
use super::reported::{QUIET, Refused, Reported};
use domain::fault::{Fault, Result, StopName};
use rdkafka::consumer::Consumer as _;
use std::time::{Duration, Instant};

/// Time for which a refusal must last to become a stop.
const CONFIRMED: Duration = Duration::from_secs(3);
/// Wait for an answer between two looks at the reports of the client.
const LOOK: Duration = Duration::from_millis(500);
/// Nothing was reported: the broker takes the bytes for TLS and waits for more.
const SILENCE: &str = "a listener that speaks TLS is silent to a client that does not: see \
                       security.protocol under kafka.librdkafka";

impl Connection {
    /// Returns the id of the cluster as soon as a broker answers.
    pub fn cluster_id(&self, within: Duration) -> Result<String> {
        self.cluster_id_unless_away(within, within)
    }

    /// The same, and gives up after `away_max` if each broker refuses the connection or has no address. A
    /// connection that is slow has `within`.
    pub fn cluster_id_unless_away(&self, within: Duration, away_max: Duration) -> Result<String> {
        let probe = self.probe(UNDECIDED)?;
        let began = Instant::now();
        let give_up = began + within;
        let mut refused: Option<Refused> = None;
        loop {
            if let Some(id) = probe.client().fetch_cluster_id(LOOK) {
                return Ok(id);
            }
            while probe.poll(QUIET).is_some() {}
            let reported = probe.context().reported();
            if let Some(reported) = &reported {
                refused = reported.refused(refused);
            }
            let now = Instant::now();
            let is_away =
                probe.context().all_down() && reported.as_ref().is_some_and(Reported::is_away);
            if let Some(Refused { since, name, what }) = &refused
                && (now >= *since + CONFIRMED || now >= give_up)
            {
                return Err(Fault::stop(*name, format!("no log-in at {}: {what}", self.servers)));
            }
            if now >= give_up || is_away && now >= began + away_max {
                let reason = reported.map_or_else(|| SILENCE.to_owned(), |found| found.reason);
                let what = format!(
                    "no broker answers at {} within {} s: is it running? ({reason})",
                    self.servers,
                    (now - began).as_secs()
                );
                return Err(Fault::stop(StopName::BrokerUnreachable, what));
            }
        }
    }
}
