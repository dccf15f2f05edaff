//! A cache that is bounded by bytes: the least recently used entry goes first. Uses count while the
//! cache is more than half full.
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

    /// Returns an entry. In a cache that is at most half full this does not count as a use: long
    /// before anything is evicted, all that is still used will have been used again. To move an
    /// entry to the front would cost a recall, for its two hundred memories, as much as to find them.
    pub fn get(&mut self, key: &K) -> Option<&Arc<V>> {
        if self.bytes <= self.bytes_max / 2 {
            self.entries.peek(key)
        } else {
            self.entries.get(key)
        }
    }

    /// Returns an entry, which does not count as a use.
    pub fn peek(&self, key: &K) -> Option<&Arc<V>> {
        self.entries.peek(key)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_still_used_when_the_cache_is_full_stays() {
        let mut cache = ByteLru::new(4, |_: &u8| 1);
        for key in 0..4 {
            cache.put(key, Arc::new(key));
        }
        // The first entry is the oldest, and is used again.
        assert_eq!(cache.get(&0), Some(&Arc::new(0)));
        cache.put(4, Arc::new(4));
        let mut kept: Vec<u8> = cache.iter().map(|(key, _)| *key).collect();
        kept.sort_unstable();
        assert_eq!((kept, cache.bytes()), (vec![0, 2, 3, 4], 4));
    }

    #[test]
    fn a_use_of_a_half_empty_cache_moves_nothing() {
        let mut cache = ByteLru::new(4, |_: &u8| 1);
        (0..2).for_each(|key| cache.put(key, Arc::new(key)));
        assert_eq!(cache.get(&0), Some(&Arc::new(0)));
        assert_eq!(cache.iter().map(|(key, _)| *key).collect::<Vec<u8>>(), [1, 0]);
    }
}
