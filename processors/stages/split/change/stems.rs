//! A small set of stems: those of one statement.

/// A handful of words or stems: looked through sooner than hashed.
#[derive(Clone, Default)]
pub struct Stems(Vec<String>);

impl Stems {
    pub fn insert(&mut self, stem: String) {
        if !self.contains(&stem) {
            self.0.push(stem);
        }
    }

    pub fn extend(&mut self, stems: impl Iterator<Item = String>) {
        stems.for_each(|stem| self.insert(stem));
    }

    pub fn contains(&self, stem: &str) -> bool {
        self.0.iter().any(|known| known == stem)
    }

    pub fn into_iter(self) -> impl Iterator<Item = String> {
        self.0.into_iter()
    }

    pub fn iter(&self) -> std::slice::Iter<'_, String> {
        self.0.iter()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn is_disjoint(&self, other: &Stems) -> bool {
        !self.iter().any(|stem| other.contains(stem))
    }

    pub fn is_within(&self, other: &Stems) -> bool {
        self.iter().all(|stem| other.contains(stem))
    }
}
