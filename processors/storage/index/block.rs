//! Keeps one user's vectors side by side and scans them exactly: the cosine of each to a query, and
//! the sum of all. A scan visits every vector; there is no approximate index. A `Block` does not
//! hold the name of the user.

use domain::{MemoryId, Vector, dot, for_this_processor, product};
use foldhash::fast::RandomState;
use std::collections::HashMap;

/// Positions of a block that `cosines` reads in turn. More positions gain nothing.
const STREAMS: usize = 8;

/// One user's vectors as rows of a matrix.
///
/// Invariant: `ids`, `scales` and the vectors in `values` stand in the same order.
#[derive(Clone, Default)]
pub struct Block {
    width: usize,
    values: Vec<i8>,
    scales: Vec<f32>,
    ids: Vec<MemoryId>,
    rows: HashMap<MemoryId, usize, RandomState>,
}

impl Block {
    pub fn of(vectors: Vec<(MemoryId, Vector)>) -> Block {
        let width = vectors.first().map_or(0, |(_, vector)| vector.values.len());
        let mut block = Block {
            width,
            values: Vec::with_capacity(width * vectors.len()),
            scales: Vec::with_capacity(vectors.len()),
            ids: Vec::with_capacity(vectors.len()),
            rows: HashMap::with_capacity_and_hasher(vectors.len(), RandomState::default()),
        };
        for (id, vector) in &vectors {
            block.put(*id, vector);
        }
        block
    }

    /// No two rows have one id.
    pub fn of_parts(width: usize, ids: Vec<MemoryId>, scales: Vec<f32>, values: Vec<i8>) -> Block {
        let rows = ids.iter().copied().zip(0..).collect();
        Block { width, values, scales, ids, rows }
    }

    /// The ids, the scales and the vectors, in one order.
    pub fn parts(&self) -> (&[MemoryId], &[f32], &[i8]) {
        (&self.ids, &self.scales, &self.values)
    }

    /// Adds or replaces a vector. A vector of another width than the others comes from another
    /// encoder and compares with none of them: the block leaves such a vector out.
    pub fn put(&mut self, id: MemoryId, vector: &Vector) {
        self.remove(id);
        if self.ids.is_empty() {
            self.width = vector.values.len();
        }
        if vector.is_empty() || vector.values.len() != self.width {
            return;
        }
        self.grow();
        self.rows.insert(id, self.ids.len());
        self.ids.push(id);
        self.scales.push(vector.scale);
        self.values.extend_from_slice(&vector.values);
    }

    /// Grows by an eighth: a large block that doubled would exceed the limit of the cache long
    /// before the block is full.
    fn grow(&mut self) {
        if self.ids.len() == self.ids.capacity() {
            let more = (self.ids.len() / 8).max(8);
            self.ids.reserve_exact(more);
            self.scales.reserve_exact(more);
            self.values.reserve_exact(more * self.width);
        }
    }

    /// Removes a vector; the last row moves into the gap.
    pub fn remove(&mut self, id: MemoryId) {
        let Some(row) = self.rows.remove(&id) else { return };
        let last = self.ids.len() - 1;
        self.values.copy_within(last * self.width.., row * self.width);
        self.values.truncate(last * self.width);
        self.scales.swap_remove(row);
        self.ids.swap_remove(row);
        if let Some(moved) = self.ids.get(row) {
            self.rows.insert(*moved, row);
        }
    }

    /// Computes the cosine of every vector to the query, by row; none for a query of another width.
    /// Rows are read from [`STREAMS`] positions in turn: read one after the other, each row of a
    /// large block would wait for memory alone, and the scan would take nearly twice as long.
    pub fn cosines(&self, query: &Vector) -> Vec<f32> {
        if !self.compares_with(query) {
            return Vec::new();
        }
        let mut cosines = vec![0.0; self.ids.len()];
        let stride = self.ids.len().div_ceil(STREAMS);
        let values: Vec<i16> = query.values.iter().map(|value| i16::from(*value)).collect();
        for_this_processor(
            #[inline(always)]
            || {
                for first in 0..stride {
                    for row in (first..self.ids.len()).step_by(stride) {
                        cosines[row] = product(self.vector(row), &values) as f32
                            * (self.scales[row] * query.scale);
                    }
                }
            },
        );
        cosines
    }

    pub fn ids(&self) -> &[MemoryId] {
        &self.ids
    }

    pub fn row(&self, id: MemoryId) -> Option<usize> {
        self.rows.get(&id).copied()
    }

    /// `None` for a query of another width.
    pub fn cosine(&self, row: usize, query: &Vector) -> Option<f32> {
        self.compares_with(query)
            .then(|| dot(self.vector(row), &query.values) as f32 * (self.scales[row] * query.scale))
    }

    #[inline(always)]
    fn vector(&self, row: usize) -> &[i8] {
        &self.values[row * self.width..][..self.width]
    }

    pub fn add_to(&self, sum: &mut Sum, is_counted: impl Fn(&MemoryId) -> bool) {
        for (row, _) in self.ids.iter().enumerate().filter(|(_, id)| is_counted(id)) {
            sum.add(self.vector(row), self.scales[row]);
        }
    }

    fn compares_with(&self, query: &Vector) -> bool {
        self.width > 0 && query.values.len() == self.width
    }

    /// Allocated bytes, used or not. A slot of the map takes an id, a row number and one byte, and
    /// the map fills at most seven of eight slots.
    pub fn bytes(&self) -> usize {
        let row_bytes =
            size_of::<f32>() * self.scales.capacity() + size_of::<MemoryId>() * self.ids.capacity();
        let map_bytes = (size_of::<(MemoryId, usize)>() + 1) * self.rows.capacity() * 8 / 7;
        size_of::<Block>() + self.values.capacity() + row_bytes + map_bytes
    }
}

/// The sum of vectors; the cosine to the sum is the cosine to the centroid.
///
/// Invariant: the sum has the same bits in whatever order the vectors are added, so that a score
/// does not depend on the end of a batch. Therefore the parts are fixed-point integers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    parts: Vec<i64>,
}

/// Fixed-point unit: enough for eight digits, and for the sum of 2^31 vectors.
const PARTS_OF_ONE: f64 = (1u64 << 32) as f64;

impl Sum {
    pub fn add(&mut self, values: &[i8], scale: f32) {
        self.parts.resize(values.len().max(self.parts.len()), 0);
        for (part, value) in self.parts.iter_mut().zip(values) {
            *part += (f64::from(*value) * f64::from(scale) * PARTS_OF_ONE) as i64;
        }
    }

    /// `None` if the sum is zero or the vector has another width.
    pub fn cosine(&self, vector: &Vector) -> Option<f32> {
        let length = self.parts().map(|part| part * part).sum::<f64>().sqrt();
        if length == 0.0 || vector.values.len() != self.parts.len() {
            return None;
        }
        let product: f64 = self
            .parts()
            .zip(vector.values.iter())
            .map(|(part, value)| part * f64::from(*value))
            .sum();
        Some((product * f64::from(vector.scale) / length) as f32)
    }

    fn parts(&self) -> impl Iterator<Item = f64> {
        self.parts.iter().map(|part| *part as f64 / PARTS_OF_ONE)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use domain::Position;

    const WIDTH: usize = 24;

    pub fn id(n: usize) -> MemoryId {
        MemoryId::of(&Position { topic: "events".into(), partition: 0, offset: n as i64 }, 0)
    }

    pub fn vector(seed: usize) -> Vector {
        Vector::of(&(0..WIDTH).map(|n| ((seed * 31 + n * 7) as f32).sin()).collect::<Vec<_>>())
    }

    #[test]
    fn the_sum_is_the_same_in_any_order_and_gives_the_cosine_to_the_centroid() {
        let mut forth = Sum::default();
        let mut back = Sum::default();
        let all: Vec<Vector> = (0..50).map(vector).collect();
        all.iter().for_each(|vector| forth.add(&vector.values, vector.scale));
        all.iter().rev().for_each(|vector| back.add(&vector.values, vector.scale));
        assert_eq!(forth, back);
        let centroid = (0..WIDTH)
            .map(|n| all.iter().map(|vector| exact(vector)[n]).sum::<f32>() / 50.0)
            .collect::<Vec<f32>>();
        let product: f32 = centroid.iter().zip(exact(&vector(999))).map(|(x, y)| x * y).sum();
        let expected = product / centroid.iter().map(|x| x * x).sum::<f32>().sqrt();
        let cosine = forth.cosine(&vector(999)).expect("there are vectors");
        assert!((cosine - expected).abs() < 1e-4, "{cosine}, not {expected}");
        assert_eq!(
            (Sum::default().cosine(&vector(1)), forth.cosine(&Vector::default())),
            (None, None)
        );
        let block =
            Block::of(all.into_iter().enumerate().map(|(n, vector)| (id(n), vector)).collect());
        assert_eq!(sum_without(&block, None), forth);
        assert_ne!(sum_without(&block, Some(id(3))), forth);
    }

    fn exact(vector: &Vector) -> Vec<f32> {
        vector.values.iter().map(|x| f32::from(*x) * vector.scale).collect()
    }

    fn sum_without(block: &Block, left_out: Option<MemoryId>) -> Sum {
        let mut sum = Sum::default();
        block.add_to(&mut sum, |id| Some(*id) != left_out);
        sum
    }

    #[test]
    fn a_growing_block_allocates_little_more_than_it_uses() {
        let mut block = Block::default();
        for n in 0..2_000 {
            block.put(id(n), &vector(n));
            assert!(
                n < 100 || block.values.capacity() < block.values.len() * 9 / 8 + 10 * WIDTH,
                "{n}"
            );
        }
    }

    #[test]
    fn a_cosine_has_the_same_bits_in_a_block_and_between_two_vectors() {
        for n in 1..500 {
            let stored = a_wave(3 * n);
            let query = a_wave(7 * n);
            let block = Block::of(vec![(id(n), stored.clone())]);
            let expected = stored.cosine(&query).to_bits();
            assert_eq!(query.cosine(&stored).to_bits(), expected);
            assert_eq!(block.cosine(0, &query).unwrap().to_bits(), expected);
            assert_eq!(block.cosines(&query)[0].to_bits(), expected);
        }
    }

    fn a_wave(step: usize) -> Vector {
        Vector::of(&(0..WIDTH).map(|k| ((step * (k + 1)) as f32).sin()).collect::<Vec<_>>())
    }
}
