//! Links between memories of one user: `slots` (one value at a time), `revisions` (probably another
//! value) and `conflicts` (probably a contradiction). Each file finds the earlier memories and sets
//! the link. Only a slot closes an older memory, and only one that states nothing else.

pub mod conflicts;
pub mod revisions;
pub mod slots;
