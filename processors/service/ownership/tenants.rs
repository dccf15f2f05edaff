//! Where the memories of a tenant are read: in the shard of their home if it is open here, or else
//! in the copy of the tenants topic that this process follows.
//!
//! A process follows the topic while it owns some shards and not all. The copy is a shard of its
//! own, made from the topic alone: what does not fit is thrown away, and read again.

use super::ShardRegistry;
use broker::Log;
use domain::UserKey;
use domain::fault::{Fault, Result, StopName};
use std::sync::Arc;
use storage::changelog::tenants;
use storage::home::Home;
use storage::restore::{self, RestoreOptions};
use storage::shard::Shard;
use storage::store::Identity;

/// A shard that has the memories of a tenant.
pub struct TenantShard {
    pub shard: Arc<Shard>,
    is_home: bool,
    /// A copy that could not be followed for a while: the answer may lack changes.
    pub is_old: bool,
}

/// Time without a successful look at the topic after which answers say that they are partial.
const FOLLOWED_WITHIN_MS: i64 = 10_000;

/// The topic to follow, and how long its tombstones are kept.
pub struct Followed {
    pub log: Arc<dyn Log>,
    pub topic: String,
    pub id: u128,
    pub options: RestoreOptions,
}

impl ShardRegistry {
    /// Returns the shard that has the tenant's memories. `None` if it is elsewhere, and the copy here
    /// has not all of them yet.
    pub fn tenants_of(&self, key: &UserKey) -> Option<TenantShard> {
        let home = key.tenant_key().partition(self.partitions());
        if let Some(shard) = self.get(home) {
            return Some(TenantShard { shard, is_home: true, is_old: false });
        }
        let shard = self.tenants.read().clone()?;
        // A copy that cannot be read is as good as none.
        let has_home = shard.store.has_home(home).unwrap_or(false);
        let age_ms = self.clock.wall().ms_since(shard.store.read_at());
        has_home.then(|| TenantShard { shard, is_home: false, is_old: age_ms > FOLLOWED_WITHIN_MS })
    }

    /// Returns whether readers see every change that this user made up to this offset of the
    /// user's partition. A change of a tenant memory is made by the tenant's home, so it comes later.
    pub fn has_applied(&self, shard: &Shard, key: &UserKey, offset: i64) -> bool {
        let has_all = || -> Result<bool> {
            let Some(sent) = shard.sent_on(key, offset)? else { return Ok(true) };
            let Some(tenants) = self.tenants_of(key) else { return Ok(false) };
            let home = key.tenant_key().partition(self.partitions());
            Ok(tenants.applied(home, shard.partition)?.is_some_and(|applied| applied >= sent))
        };
        shard.has_applied(key, offset) && has_all().unwrap_or(false)
    }

    /// Returns whether some tenant's home may be elsewhere.
    pub fn follows_tenants(&self) -> bool {
        (1..self.partitions() as usize).contains(&self.owned().len())
    }

    /// Returns whether tenants' memories can be read, as far as users of this process need them.
    pub fn has_tenants(&self) -> bool {
        if !self.follows_tenants() {
            return true;
        }
        let copy = self.tenants.read().clone();
        let has =
            |home: i32| copy.as_ref().is_some_and(|it| it.store.has_home(home).unwrap_or(false));
        self.of_others().into_iter().all(has)
    }

    /// Opens the copy if it is closed, and applies what the topic has by now. Recalls read the copy
    /// from the first time on that it is up to date.
    pub fn follow_tenants(&self, from: &Followed, goes_on: &dyn Fn() -> bool) -> Result<()> {
        let now = self.clock.wall();
        let is_old = self.tenants.read().as_ref().is_some_and(|shard| {
            now.ms_since(shard.store.read_at()).abs() > from.options.away_ms_max / 2
        });
        if is_old {
            // The topic may have lost tombstones since.
            self.close_tenants()?;
        }
        let open = self.tenants.read().clone();
        let shard = match &open {
            Some(shard) => shard.clone(),
            None => Arc::new(self.open_copy(from)?),
        };
        let followed = shard.follow(&*from.log, now, goes_on)?;
        if let (None, Some(records)) = (open, followed) {
            tracing::info!(records, "follows the memories of tenants of other processes");
            *self.tenants_files.write() = shard.files();
            *self.tenants.write() = Some(shard);
        }
        Ok(())
    }

    /// Flushes the copy, and removes what was forgotten at least `rewrite_after_ms` ago from disk.
    pub fn tend_tenants(&self, rewrite_after_ms: i64, goes_on: &dyn Fn() -> bool) -> Result<()> {
        let Some(shard) = self.tenants.read().clone() else { return Ok(()) };
        shard.flush()?;
        let is_due = shard.is_rewrite_due(self.clock.wall(), rewrite_after_ms);
        if is_due && self.has_room_for(&shard) {
            let is_kept = || self.tenants.read().as_ref().is_some_and(|it| Arc::ptr_eq(it, &shard));
            match shard.rewrite(&|| goes_on() && is_kept()) {
                Ok(_) | Err(Fault::Retry(_)) => {} // tried again the next time
                Err(fault) => return Err(fault),
            }
        }
        Ok(())
    }

    /// Closes the copy, and removes its files: nobody needs them.
    pub fn remove_tenants(&self, from: &Followed) -> Result<()> {
        self.close_tenants()?;
        let identity = self.identity_of_copy(from);
        let is_open = self.tenants_files.read().strong_count() > 0;
        if is_open || !self.deployment.home.has_files(&identity) {
            return Ok(()); // a reader or a merge may still be at work
        }
        tracing::info!(
            "removes the copy of tenants' memories: their homes are all here, or none is"
        );
        self.deployment.home.wipe(&identity)
    }

    /// Closes the copy, and waits for its readers.
    pub fn close_tenants(&self) -> Result<()> {
        let Some(shard) = self.tenants.write().take() else { return Ok(()) };
        let files = shard.files();
        shard.flush()?;
        shard.store.flush()?;
        match self.deployment.home {
            Home::Directory(_) => self.drop_elsewhere(shard),
            Home::Memory(_) => drop(shard),
        }
        for _ in 0..super::READERS_TRIES {
            if files.strong_count() == 0 {
                break;
            }
            self.clock.sleep(super::READERS_PAUSE);
        }
        Ok(())
    }

    fn identity_of_copy(&self, from: &Followed) -> Identity {
        Identity {
            cluster: format!("{}/{:032x}", self.deployment.cluster, from.id),
            topic: from.topic.clone(),
            partitions: 1,
            ..self.deployment.identity(tenants::PARTITION)
        }
    }

    fn open_copy(&self, from: &Followed) -> Result<Shard> {
        let identity = self.identity_of_copy(from);
        let home = &self.deployment.home;
        let open = || Shard::open(home, &self.options, &identity, self.clock.wall(), None);
        let why = match open() {
            Ok((shard, _)) => {
                let now = self.clock.wall().0;
                // Forgotten or not, the words in a store that was set aside must not stay on disk.
                home.remove_set_aside(&identity, now)?;
                match restore::outdated(&shard.store, &*from.log, now, &from.options)? {
                    None => return Ok(shard),
                    Some(why) => why.to_owned(),
                }
            }
            // A reader or a merge still has its files open.
            Err(Fault::Stop(stop)) if stop.name == StopName::StoreLocked => {
                return Err(Fault::retry(stop.what));
            }
            // Made from another topic, with another encoder, or by another version.
            Err(Fault::Stop(stop)) if stop.name != StopName::StoreUnwritable => stop.what,
            Err(fault) => return Err(fault),
        };
        tracing::info!(why, "reads the memories of tenants again");
        home.wipe(&identity)?;
        Ok(open()?.0)
    }
}

impl TenantShard {
    /// Up to which offset of this partition the home had applied what was sent on to it.
    fn applied(&self, home: i32, partition: i32) -> Result<Option<i64>> {
        match self.is_home {
            true => kernel::Reads::via(&self.shard.store, partition),
            false => self.shard.store.home_via(home, partition),
        }
    }
}
