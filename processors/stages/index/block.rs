//! One user's vectors side by side, scanned exactly: how near each is to a question, and their sum. Whose they are is not known here.

use crate::domain::{MemoryId, Vector, dot, for_this_processor, product};
use foldhash::fast::RandomState;
use std::collections::HashMap;

/// Places of a block that are read in turn. More bring nothing.
const READ_AT_ONCE: usize = 8;

/// One user's vectors, one after the other. Invariant: `ids`, `scales` and the vectors in `values` stand in the same order.
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

    /// A vector of another width than the others came from another model and compares with nothing: it is left out.
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

    /// By an eighth at a time: a large block that doubled would be over the limit long before it is full.
    fn grow(&mut self) {
        if self.ids.len() == self.ids.capacity() {
            let more = (self.ids.len() / 8).max(8);
            self.ids.reserve_exact(more);
            self.scales.reserve_exact(more);
            self.values.reserve_exact(more * self.width);
        }
    }

    /// The last one takes the place of the one that goes.
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

    /// Not one after the other: then the rows of a large block would each wait for memory alone, and take nearly twice as long.
    pub fn each_cosine(&self, query: &Vector, mut each: impl FnMut(&MemoryId, f32)) {
        if !self.compares_with(query) {
            return;
        }
        let apart = self.ids.len().div_ceil(READ_AT_ONCE);
        let values: Vec<i16> = query.values.iter().map(|value| i16::from(*value)).collect();
        for_this_processor(
            #[inline(always)]
            || {
                for first in 0..apart {
                    for row in (first..self.ids.len()).step_by(apart) {
                        each(
                            &self.ids[row],
                            product(self.vector(row), &values) as f32
                                * (self.scales[row] * query.scale),
                        );
                    }
                }
            },
        );
    }

    pub fn cosine(&self, id: MemoryId, query: &Vector) -> Option<f32> {
        let row = *self.rows.get(&id).filter(|_| self.compares_with(query))?;
        Some(dot(self.vector(row), &query.values) as f32 * (self.scales[row] * query.scale))
    }

    #[inline(always)]
    fn vector(&self, row: usize) -> &[i8] {
        &self.values[row * self.width..][..self.width]
    }

    pub fn add_to(&self, sum: &mut Sum, is_meant: impl Fn(&MemoryId) -> bool) {
        for (row, _) in self.ids.iter().enumerate().filter(|(_, id)| is_meant(id)) {
            sum.add(self.vector(row), self.scales[row]);
        }
    }

    fn compares_with(&self, query: &Vector) -> bool {
        self.width > 0 && query.values.len() == self.width
    }

    /// What it takes, not what it uses. A place in the map is an id, a row and a byte, of which seven in eight are used.
    pub fn bytes(&self) -> usize {
        let row_bytes =
            size_of::<f32>() * self.scales.capacity() + size_of::<MemoryId>() * self.ids.capacity();
        let map_bytes = (size_of::<(MemoryId, usize)>() + 1) * self.rows.capacity() * 8 / 7;
        size_of::<Block>() + self.values.capacity() + row_bytes + map_bytes
    }
}

/// The sum of vectors, from which follows the cosine to their centroid. Invariant: in whatever order they are added the same to the bit,
/// so a score does not depend on where a batch ended; therefore whole numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    parts: Vec<i64>,
}

/// Parts of one: enough for eight digits, and for 2^31 vectors.
const PARTS_OF_ONE: f64 = (1u64 << 32) as f64;

impl Sum {
    pub fn add(&mut self, values: &[i8], scale: f32) {
        self.parts.resize(values.len().max(self.parts.len()), 0);
        for (part, value) in self.parts.iter_mut().zip(values) {
            *part += (f64::from(*value) * f64::from(scale) * PARTS_OF_ONE) as i64;
        }
    }

    /// None where there is nothing to compare with.
    pub fn cosine(&self, vector: &Vector) -> Option<f32> {
        let parts = || self.parts.iter().map(|part| *part as f64 / PARTS_OF_ONE);
        let length = parts().map(|part| part * part).sum::<f64>().sqrt();
        if length == 0.0 || vector.values.len() != self.parts.len() {
            return None;
        }
        let product: f64 =
            parts().zip(vector.values.iter()).map(|(part, value)| part * f64::from(*value)).sum();
        Some((product * f64::from(vector.scale) / length) as f32)
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::domain::Position;

    const WIDTH: usize = 24;

    pub fn id(n: usize) -> MemoryId {
        MemoryId::of(&Position { topic: "events".into(), partition: 0, offset: n as i64 }, 0)
    }

    pub fn vector(seed: usize) -> Vector {
        Vector::of(&(0..WIDTH).map(|n| ((seed * 31 + n * 7) as f32).sin()).collect::<Vec<_>>())
    }

    #[test]
    fn the_sum_in_any_order_is_the_same_and_tells_the_cosine_to_the_centroid() {
        let (mut forth, mut back) = (Sum::default(), Sum::default());
        let all: Vec<Vector> = (0..50).map(vector).collect();
        all.iter().for_each(|vector| forth.add(&vector.values, vector.scale));
        all.iter().rev().for_each(|vector| back.add(&vector.values, vector.scale));
        assert_eq!(forth, back);
        let exact = |vector: &Vector| {
            vector.values.iter().map(|x| f32::from(*x) * vector.scale).collect::<Vec<f32>>()
        };
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
        let sum_without = |out: Option<MemoryId>| {
            let mut sum = Sum::default();
            block.add_to(&mut sum, |id| Some(*id) != out);
            sum
        };
        assert_eq!(sum_without(None), forth);
        assert_ne!(sum_without(Some(id(3))), forth);
    }

    #[test]
    fn a_block_that_grows_takes_little_more_than_it_uses() {
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
    fn a_cosine_is_the_same_to_the_bit_in_a_block_and_out_of_it() {
        for n in 1..500 {
            let turned = |m: usize| {
                Vector::of(
                    &(0..WIDTH).map(|k| ((n * m * (k + 1)) as f32).sin()).collect::<Vec<_>>(),
                )
            };
            let (said, asked) = (turned(3), turned(7));
            let block = Block::of(vec![(id(n), said.clone())]);
            let expected = said.cosine(&asked).to_bits();
            assert_eq!(asked.cosine(&said).to_bits(), expected);
            assert_eq!(block.cosine(id(n), &asked).unwrap().to_bits(), expected);
            let mut all = Vec::new();
            block.each_cosine(&asked, |_, cosine| all.push(cosine.to_bits()));
            assert_eq!(all, [expected]);
        }
    }
}
