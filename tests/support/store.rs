//! A store without an index, for tests that write records by themselves.

use domain::fault::Result;
use domain::{MemoryId, UserKey, Vector};
use kernel::Neighbours;
use kernel::reads::StagedVectors;

pub struct NoIndex;

impl Neighbours for NoIndex {
    fn nearest(
        &self,
        _: &UserKey,
        _: &Vector,
        _: usize,
        _: &StagedVectors,
    ) -> Result<Vec<(MemoryId, f32)>> {
        unreachable!("a test that writes records asks no index")
    }

    fn cosine_to_all(&self, _: &UserKey, _: &Vector, _: &StagedVectors) -> Result<Option<f32>> {
        unreachable!("a test that writes records asks no index")
    }
}
