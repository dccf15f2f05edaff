//! A cache that is bounded by bytes: the least recently used entry goes first.
//!
//! Invariant: `bytes` is the sum of `size` over the entries, and at most `bytes_max`.

use foldhash::fast::RandomState;
use lru::LruCache;
use std::hash::Hash;
use std::sync::Arc;

pub struct ByteLru<K, V> {
    entries: LruCache<K, Arc<V>, RandomState>,
    bytes: usize,
    bytes_max: usize,
    size: fn(&V) -> usize,
}

impl<K: Hash + Eq, V> ByteLru<K, V> {
    pub fn new(bytes_max: usize, size: fn(&V) -> usize) -> ByteLru<K, V> {
        let entries = LruCache::unbounded_with_hasher(RandomState::default());
        ByteLru { entries, bytes: 0, bytes_max, size }
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&K, &Arc<V>)> {
        self.entries.iter()
    }

    pub fn get(&mut self, key: &K) -> Option<&Arc<V>> {
        self.entries.get(key)
    }

    /// Keeps an entry, and evicts one entry at a time until the limit holds. Does not keep an entry
    /// that exceeds the limit alone: that entry would push out all others and then itself.
    pub fn put(&mut self, key: K, value: Arc<V>) {
        self.remove(&key);
        let bytes = (self.size)(&value);
        if bytes > self.bytes_max {
            return;
        }
        self.bytes += bytes;
        self.entries.put(key, value);
        self.shrink();
    }

    /// Changes an entry in place, which does not count as a use.
    pub fn change(&mut self, key: &K, change: impl FnOnce(&mut Arc<V>)) {
        let Some(value) = self.entries.peek_mut(key) else { return };
        self.bytes -= (self.size)(value);
        change(value);
        let bytes = (self.size)(value);
        self.bytes += bytes;
        if bytes > self.bytes_max {
            self.remove(key);
        }
        self.shrink();
    }

    fn shrink(&mut self) {
        while self.bytes > self.bytes_max
            && let Some((_, evicted)) = self.entries.pop_lru()
        {
            self.bytes -= (self.size)(&evicted);
        }
    }

    pub fn remove(&mut self, key: &K) {
        if let Some(removed) = self.entries.pop(key) {
            self.bytes -= (self.size)(&removed);
        }
    }
}
