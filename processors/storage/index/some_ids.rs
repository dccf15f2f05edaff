//! Tells soon that an id is not among some: one bit in a small table, before a look into a map.

use domain::MemoryId;

/// Bits that ids share. With a few hundred ids, nearly every other falls on an empty one.
const BITS: usize = 1 << 14;

pub struct SomeIds([u64; BITS / 64]);

impl SomeIds {
    pub fn of(ids: impl Iterator<Item = MemoryId>) -> SomeIds {
        let mut bits = [0; BITS / 64];
        for bit in ids.map(bit) {
            bits[bit / 64] |= 1 << (bit % 64);
        }
        SomeIds(bits)
    }

    /// True for each of the ids, and for a few others.
    #[inline]
    pub fn may_have(&self, id: MemoryId) -> bool {
        let bit = bit(id);
        self.0[bit / 64] >> (bit % 64) & 1 == 1
    }
}

fn bit(id: MemoryId) -> usize {
    id.0.as_u128() as usize % BITS
}
