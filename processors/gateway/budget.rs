//! Hands out places by key, by tenant and in all: for calls that wait, bytes of bodies and of answers,
//! look-ups, streams, and connections of one address.
//!
//! A key may hold as much as is still free, and a tenant three times as much (dynamic thresholds,
//! [Choudhury and Hahne 1998](https://doi.org/10.1109/90.664262)): a key alone gets half, two greedy
//! keys a third each, and however many are greedy, something stays free for the next one. An eighth of
//! all is for keys with the right `admin`.

use crate::keys::{Caller, Permission};
use crate::refusal::{Refusal, Result};
use crate::{IMPORT_BYTES_MAX, Options, REMEMBERED_MAX};
use axum::body::{Body, Bytes, to_bytes};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use lru::LruCache;
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap};
use std::convert::Infallible;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

/// Bytes of all bodies that are read or worked on: a key alone has 28 of a megabyte, or three imports.
/// More if the largest body is larger.
const BODY_BYTES: usize = 64 << 20;
/// Bytes of all answers that callers have not taken yet. A key alone has 28 MB: 28 pages of a list.
const ANSWER_BYTES: usize = 64 << 20;
/// Bytes of a long answer: a page of `list` ends there.
const PAGE_BYTES: usize = 1 << 20;
/// Callers that may wait for a reading of the memories topic: a key alone 14. One reading answers all.
const LOOKUPS: usize = 32;
/// The part of each budget that is for keys with the right `admin`: one of so many.
const RESERVED: usize = 8;
/// Refusals of one key in a row at full speed, and each second from then on. An import in single calls
/// with one wrong record in a hundred gets 1,000 calls a second through.
const REFUSALS: f64 = 300.0;
const REFUSALS_PER_SECOND: f64 = 10.0;
/// Bytes that are copied out of an answer at once. The last copy frees the answer and its place.
const SLICE: usize = 16 << 10;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Holder {
    Tenant(String),
    Key(String),
    Peer(IpAddr),
}

pub struct Budget {
    /// The unit, and the option or constant that limits the budget.
    name: &'static str,
    all: usize,
    used: Mutex<Used>,
}

#[derive(Default)]
struct Used {
    all: usize,
    by: HashMap<Holder, usize>,
}

/// A part of a budget, given back when dropped.
pub struct Permit {
    budget: Arc<Budget>,
    /// The holders, and how many times the free amount each may hold.
    shares: Vec<(Holder, usize)>,
    is_admin: bool,
    amount: usize,
}

impl Budget {
    pub fn new(name: &'static str, all: usize) -> Arc<Budget> {
        Arc::new(Budget { name, all, used: Mutex::default() })
    }

    /// Takes a part for a call, or refuses with the name of the budget. Callers without keys are
    /// one program's, so these may use the whole budget.
    pub fn take(self: &Arc<Self>, caller: &Caller, amount: usize) -> Result<Permit> {
        let shares = match caller.key.as_str() {
            "" => vec![],
            key => {
                vec![(Holder::Key(key.to_owned()), 1), (Holder::Tenant(caller.tenant.clone()), 3)]
            }
        };
        let is_admin = caller.may(Permission::Admin).is_ok();
        let mut place = Permit { budget: self.clone(), shares, is_admin, amount: 0 };
        place.grow(amount)?;
        Ok(place)
    }

    /// Refuses a caller whose key holds so much that so much more would find no room: the work for the
    /// answer would be for nothing. A key that holds nothing passes, since its answers may be short.
    fn check_room(self: &Arc<Self>, caller: &Caller, amount: usize) -> Result<()> {
        let holder = Holder::Key(caller.key.clone());
        let holds = self.used.lock().by.contains_key(&holder);
        if holds { self.take(caller, amount).map(drop) } else { Ok(()) }
    }

    /// Takes one place for an address, which may hold up to `times` times the free places.
    pub fn take_for(self: &Arc<Self>, peer: IpAddr, times: usize) -> Option<Permit> {
        let shares = vec![(Holder::Peer(peer), times)];
        let mut place = Permit { budget: self.clone(), shares, is_admin: true, amount: 0 };
        place.extend(1).is_ok().then_some(place)
    }
}

impl Permit {
    /// Takes more, or refuses and keeps the present amount.
    pub fn grow(&mut self, by: usize) -> Result<()> {
        self.extend(by).map_err(|holder| {
            let whose = match holder {
                Some(Holder::Key(_)) => "this key holds",
                Some(Holder::Tenant(_)) => "the keys of this tenant hold",
                _ => "all callers together hold",
            };
            Refusal::overloaded(format!(
                "{whose} as many {} as there is room for: finish some, then try again",
                self.budget.name
            ))
        })
    }

    /// Takes more; otherwise returns whose share is used up, or `None` if there is no more for anybody.
    fn extend(&mut self, by: usize) -> std::result::Result<(), Option<Holder>> {
        let Budget { all, used, .. } = &*self.budget;
        let mut used = used.lock();
        let reserved = if self.is_admin { 0 } else { all / RESERVED };
        let free = all.saturating_sub(used.all + reserved);
        if by > free {
            return Err(None);
        }
        for (holder, times) in &self.shares {
            let held = used.by.get(holder).copied().unwrap_or_default();
            if held + by > free * times {
                return Err(Some(holder.clone()));
            }
        }
        used.all += by;
        for (holder, _) in &self.shares {
            *used.by.entry(holder.clone()).or_default() += by;
        }
        self.amount += by;
        Ok(())
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut used = self.budget.used.lock();
        used.all -= self.amount;
        for (holder, _) in &self.shares {
            if let Some(held) = used.by.get_mut(holder) {
                *held -= self.amount;
                if *held == 0 {
                    used.by.remove(holder);
                }
            }
        }
    }
}

/// The budgets of the calls.
pub struct Budgets {
    /// Calls that have no answer yet.
    pub calls: Arc<Budget>,
    pub bodies: Arc<Budget>,
    pub answers: Arc<Budget>,
    pub streams: Arc<Budget>,
    pub lookups: Arc<Budget>,
    pub refusals: Refusals,
}

impl Budgets {
    pub fn new(options: &Options) -> Budgets {
        let largest = options.gateway.body_bytes_max.max(IMPORT_BYTES_MAX);
        let body_bytes = BODY_BYTES.max(8 * largest);
        Budgets {
            calls: Budget::new("calls (gateway.in_flight_max)", options.gateway.in_flight_max),
            bodies: Budget::new("bytes of bodies", body_bytes),
            answers: Budget::new("bytes of answers that were not read", ANSWER_BYTES),
            streams: Budget::new("streams (gateway.streams_max)", options.gateway.streams_max),
            lookups: Budget::new("look-ups in the memories topic", LOOKUPS),
            refusals: Refusals::default(),
        }
    }
}

/// Slows a key whose calls are refused again and again: a token bucket for each key.
#[derive(Clone)]
pub struct Refusals(Arc<Mutex<LruCache<String, (f64, Instant)>>>);

impl Default for Refusals {
    fn default() -> Refusals {
        Refusals(Arc::new(Mutex::new(LruCache::new(REMEMBERED_MAX))))
    }
}

impl Refusals {
    /// Refuses a call of a key that has no refusals left.
    pub fn check(&self, key: &str) -> Result<()> {
        let mut left = self.0.lock();
        let Some((tokens, at)) = left.get_mut(key) else { return Ok(()) };
        *tokens += at.elapsed().as_secs_f64() * REFUSALS_PER_SECOND;
        *at = Instant::now();
        let is_full = *tokens >= REFUSALS;
        if *tokens < 1.0 {
            let what = format!(
                "calls of this key were refused again and again, so it is slowed to \
                 {REFUSALS_PER_SECOND} refusals a second: correct them first"
            );
            let seconds = (1.0 - *tokens) / REFUSALS_PER_SECOND;
            return Err(Refusal::overloaded(what).after(seconds));
        }
        if is_full {
            left.pop(key);
        }
        Ok(())
    }

    /// Counts a call whose fault was the caller's. Calls without a key are not counted.
    pub fn count(&self, key: &str, status: StatusCode) {
        let is_wrong = status.is_client_error()
            && status != StatusCode::TOO_MANY_REQUESTS
            && status != StatusCode::UNAUTHORIZED;
        if is_wrong && !key.is_empty() {
            let mut left = self.0.lock();
            left.get_or_insert_mut(key.to_owned(), || (REFUSALS, Instant::now())).0 -= 1.0;
        }
    }
}

/// Answers a call within the budgets of its caller; pages without a key have none. An answer that
/// is a stream of its own has a place among the streams. A call that only reads is not carried out
/// while earlier answers to the same key are unread.
pub async fn answered(
    budgets: &Budgets,
    caller: Option<&Caller>,
    only_reads: bool,
    answer: impl Future<Output = Response>,
) -> Response {
    let place = caller.map(|caller| {
        if only_reads {
            budgets.answers.check_room(caller, PAGE_BYTES)?;
        }
        budgets.calls.take(caller, 1)
    });
    let _place = match place.transpose() {
        Ok(place) => place,
        Err(refusal) => return refusal.into_response(),
    };
    let response = answer.await;
    if let Some(caller) = caller {
        budgets.refusals.count(&caller.key, response.status());
    }
    let bytes = response.body().size_hint().exact().unwrap_or_default() as usize;
    if bytes == 0 {
        return response;
    }
    // A receipt is short and reports a change already made, so no receipt is refused here.
    let place = caller.filter(|_| bytes > SLICE).map(|caller| budgets.answers.take(caller, bytes));
    let place = match place.transpose() {
        Ok(place) => place,
        Err(refusal) => return refusal.into_response(),
    };
    let (parts, body) = response.into_parts();
    let answer = to_bytes(body, bytes).await.unwrap_or_default();
    Response::from_parts(parts, held(answer, place))
}

/// Returns a body that gives up memory and place of an answer while the caller reads. The server
/// keeps unsent bytes, so it gets copies of small slices, and holds no whole answer.
fn held(answer: Bytes, place: Option<Permit>) -> Body {
    Body::new(Held { rest: answer, _place: place })
}

struct Held {
    rest: Bytes,
    _place: Option<Permit>,
}

impl HttpBody for Held {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<Bytes>, Infallible>>> {
        let bytes = self.rest.len().min(SLICE);
        if bytes == 0 {
            return Poll::Ready(None);
        }
        let slice = self.rest.split_to(bytes);
        Poll::Ready(Some(Ok(Frame::data(Bytes::copy_from_slice(&slice)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.rest.len() as u64)
    }
}

/// The keys that import now. An import is many events, so a key has one at a time.
#[derive(Default)]
pub struct Imports(Mutex<BTreeSet<String>>);

/// The running import of a key, ended when dropped.
pub struct Importing<'a> {
    imports: &'a Imports,
    key: String,
}

impl Imports {
    pub fn begin(&self, key: &str) -> Result<Importing<'_>> {
        if !self.0.lock().insert(key.to_owned()) {
            let what =
                "an import of this key is still running: send the next one when it has ended";
            return Err(Refusal::overloaded(what));
        }
        Ok(Importing { imports: self, key: key.to_owned() })
    }
}

impl Drop for Importing<'_> {
    fn drop(&mut self) {
        self.imports.0.lock().remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(key: &str, tenant: &str, rights: &[Permission]) -> Caller {
        Caller { key: key.to_owned(), rights: rights.to_vec(), ..Caller::local(tenant) }
    }

    /// Takes places until one is refused.
    fn all_of(budget: &Arc<Budget>, caller: &Caller) -> Vec<Permit> {
        std::iter::from_fn(|| budget.take(caller, 1).ok()).collect()
    }

    #[test]
    fn whoever_takes_all_leaves_places_to_others() {
        let budget = Budget::new("places", 80);
        let read = [Permission::Read];
        let greedy = all_of(&budget, &caller("a", "acme", &read));
        assert_eq!(greedy.len(), 35, "half of what is no reserve");
        let same_tenant = all_of(&budget, &caller("b", "acme", &read));
        assert_eq!(same_tenant.len(), 18);
        let refusal = budget.take(&caller("c", "acme", &read), 1).map(drop);
        assert!(refusal.is_err_and(|it| it.message.contains("keys of this tenant")));
        assert_eq!(all_of(&budget, &caller("d", "else", &read)).len(), 9);
        assert_eq!(all_of(&budget, &caller("e", "last", &[Permission::Admin])).len(), 14);
        drop(greedy);
        assert_eq!(all_of(&budget, &caller("d", "else", &read)).len(), 26);
    }

    #[test]
    fn a_place_grows_within_the_share_of_its_key_and_gives_all_back() {
        let budget = Budget::new("bytes", 80);
        let place =
            |key| budget.take(&caller(key, "acme", &[Permission::Read]), 0).expect("nothing");
        let [mut first, mut second, mut other] = ["a", "a", "b"].map(place);
        first.grow(30).expect("free");
        let refused = second.grow(11).expect_err("more than is free");
        assert!(refused.message.contains("this key holds"), "{}", refused.message);
        second.grow(5).expect("within the share");
        other.grow(17).expect("of another key");
        drop((first, second, other));
        assert!(budget.used.lock().all == 0 && budget.used.lock().by.is_empty());
    }

    #[test]
    fn a_key_that_leaves_its_answers_unread_is_refused_before_the_work() {
        let budget = Budget::new("bytes", 80);
        let [slow, quick] = ["a", "b"].map(|key| caller(key, "acme", &[Permission::Read]));
        let unread = budget.take(&slow, 30).expect("free");
        assert!(budget.check_room(&slow, 11).is_err() && budget.check_room(&slow, 5).is_ok());
        assert!(budget.check_room(&quick, 1000).is_ok(), "its answer may be short");
        drop(unread);
        assert!(budget.check_room(&slow, 11).is_ok());
    }

    #[test]
    fn callers_without_keys_have_it_all_and_few_places_are_not_halved_to_none() {
        let budget = Budget::new("places", 80);
        assert_eq!(all_of(&budget, &Caller::local("acme")).len(), 80);
        for few in 1..4 {
            let budget = Budget::new("places", few);
            assert!(
                !all_of(&budget, &caller("a", "acme", &[Permission::Read])).is_empty(),
                "{few}"
            );
        }
    }

    #[test]
    fn a_key_that_is_refused_again_and_again_is_slowed_and_no_other() {
        let refusals = Refusals::default();
        for _ in 0..300 {
            refusals.check("eve").expect("not yet");
            refusals.count("eve", StatusCode::BAD_REQUEST);
            for status in [StatusCode::OK, StatusCode::TOO_MANY_REQUESTS, StatusCode::UNAUTHORIZED]
            {
                refusals.count("ada", status);
            }
            refusals.count("", StatusCode::BAD_REQUEST);
        }
        let why = (0..9).find_map(|_| {
            let refused = refusals.check("eve").err();
            refusals.count("eve", StatusCode::BAD_REQUEST);
            refused
        });
        assert_eq!(why.expect("slowed").status, StatusCode::TOO_MANY_REQUESTS);
        // Calls that were on their way are counted, too: three seconds' worth.
        (0..30).for_each(|_| refusals.count("eve", StatusCode::BAD_REQUEST));
        let seconds = refusals.check("eve").expect_err("slowed").retry_after;
        assert!((3..=4).contains(&seconds.unwrap_or_default()), "{seconds:?}");
        assert!(refusals.check("ada").is_ok() && refusals.check("").is_ok());
    }
}
