//! Counts the words of a user in a sketch of fixed size: a word that is rare in the language may be
//! common for this user.
//!
//! The sketch is an array of `COUNTERS` counters of four bits. A word counts in the counter of its
//! hash, so words may share a counter and a count may then be too high. The array holds no words:
//! nobody can read a user's words from the counts. As in
//! [TinyLFU](https://arxiv.org/abs/1512.00727), counters age: when the sketch is full, all counts
//! are halved.
//!
//! The packed bytes and the hash are a store format and must not change.

/// Number of counters: half a kilobyte, rewritten with every turn. Compared with exact counts, the
/// AUC of separating memories worth keeping from the rest is lower by .0015; with 512 counters by
/// .0025, with four times as many counters by .0009.
const COUNTERS: usize = 1024;
/// Number of used counters above which all counts are halved. With more, words would share counters
/// with others; halving also makes old habits count less.
const FULL: usize = COUNTERS / 2;
/// Total above which all counts are halved even if few counters are used. For a user who repeats
/// the same few words, the counts stop at 15 and the total must stay in proportion to them.
const TOTAL_MAX: u32 = 8 * COUNTERS as u32;
const COUNT_MAX: u8 = 15;
const BYTES: usize = COUNTERS / 2;

/// Counts of words, two in each byte.
#[derive(Clone, PartialEq)]
pub struct UserWordCounts {
    counts: [u8; BYTES],
    /// Number of counters that are not 0.
    used: usize,
    /// Number of words counted, repetitions included.
    total: u32,
}

impl Default for UserWordCounts {
    fn default() -> UserWordCounts {
        UserWordCounts { counts: [0; BYTES], used: 0, total: 0 }
    }
}

impl std::fmt::Debug for UserWordCounts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} words in {} counters", self.total, self.used)
    }
}

impl UserWordCounts {
    /// Returns the count of a word: at most 15, and too high if another word has the same counter.
    pub fn count(&self, stem: &str) -> u32 {
        u32::from(self.at(counter(stem)))
    }

    pub fn total(&self) -> u32 {
        self.total
    }

    pub fn add(&mut self, stem: &str) {
        let counter = counter(stem);
        let count = self.at(counter);
        self.used += usize::from(count == 0);
        self.set(counter, (count + 1).min(COUNT_MAX));
        self.total += 1;
        if self.used > FULL || self.total > TOTAL_MAX {
            self.halve();
        }
    }

    /// Takes back one `add`. Words that share the counter then count one less, too.
    pub fn remove(&mut self, stem: &str) {
        let counter = counter(stem);
        let count = self.at(counter);
        if count > 0 {
            self.set(counter, count - 1);
            self.used -= usize::from(count == 1);
            self.total = self.total.saturating_sub(1);
        }
    }

    fn halve(&mut self) {
        // Shifts both counters of a byte at once; the mask removes the bit that would cross from
        // the upper counter into the lower one.
        self.counts.iter_mut().for_each(|pair| *pair = (*pair >> 1) & 0x77);
        self.total /= 2;
        self.used = self.count_used();
    }

    fn at(&self, counter: usize) -> u8 {
        self.counts[counter / 2] >> (4 * (counter % 2)) & 0xf
    }

    fn set(&mut self, counter: usize, count: u8) {
        let shift = 4 * (counter % 2);
        let pair = &mut self.counts[counter / 2];
        *pair = *pair & !(0xf << shift) | count << shift;
    }

    fn count_used(&self) -> usize {
        self.counts
            .iter()
            .map(|pair| usize::from(pair & 0xf != 0) + usize::from(pair >> 4 != 0))
            .sum()
    }

    // ---------------------------------------------------------------- to and from bytes

    /// Packs the counts into two bytes for each used counter, or all counters if that is shorter.
    /// The length identifies the form.
    pub fn packed(&self) -> Vec<u8> {
        if 2 * self.used >= BYTES {
            return self.counts.to_vec();
        }
        (0..COUNTERS)
            .map(|counter| (counter as u16, u16::from(self.at(counter))))
            .filter(|(_, count)| *count > 0)
            .flat_map(|(counter, count)| (counter << 4 | count).to_le_bytes())
            .collect()
    }

    /// Reads packed counts, or returns `None` if the bytes have another format.
    pub fn unpacked(total: u32, bytes: &[u8]) -> Option<UserWordCounts> {
        let mut words = UserWordCounts { total, ..UserWordCounts::default() };
        if let Ok(counts) = bytes.try_into() {
            words.counts = counts;
        } else {
            let (pairs, []) = bytes.as_chunks::<2>() else { return None };
            for pair in pairs {
                let pair = u16::from_le_bytes(*pair);
                let counter = Some(usize::from(pair >> 4)).filter(|counter| *counter < COUNTERS)?;
                words.set(counter, (pair & 0xf) as u8);
            }
        }
        words.used = words.count_used();
        Some(words)
    }
}

/// Returns the counter of a word: [FNV-1a](https://www.rfc-editor.org/rfc/rfc9923) of 64 bits,
/// folded. Invariant: the hash never changes, since stored counts would then belong to other words.
fn counter(stem: &str) -> usize {
    let hash = stem.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    (hash ^ hash >> 32) as usize % COUNTERS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(stems: impl IntoIterator<Item = String>) -> UserWordCounts {
        let mut words = UserWordCounts::default();
        stems.into_iter().for_each(|stem| words.add(&stem));
        words
    }

    fn round_trip(words: &UserWordCounts) -> Option<UserWordCounts> {
        UserWordCounts::unpacked(words.total(), &words.packed())
    }

    #[test]
    fn a_word_is_counted_up_to_15() {
        let words = after(["boat", "tea", "boat"].map(String::from));
        assert_eq!(
            (words.count("boat"), words.count("tea"), words.count("harbour"), words.total()),
            (2, 1, 0, 3)
        );
        assert_eq!(after(vec!["boat".to_owned(); 100]).count("boat"), 15);
    }

    #[test]
    fn the_counter_of_a_word_never_changes() {
        assert_eq!(["boat", "tea", "lisbon", "東京"].map(counter), [992, 848, 546, 350]);
    }

    #[test]
    fn many_words_are_halved_and_frequent_words_survive() {
        let mut words =
            after((0..600).map(|n| format!("word{n}")).chain(vec!["boat".to_owned(); 15]));
        let before = words.count("boat");
        (600..2400).for_each(|n| words.add(&format!("word{n}")));
        assert!(words.used <= FULL && words.total < 2415, "{words:?}");
        assert!((1..before).contains(&words.count("boat")), "{}", words.count("boat"));
        let few = after((0..100_000).map(|n| format!("word{}", n % 9)));
        assert!(few.total <= TOTAL_MAX && few.count("word3") > 0);
    }

    #[test]
    fn packed_bytes_are_few_and_unpack_to_the_same_counts() {
        for count in [0, 1, 7, 250, 300, 500, 3000] {
            let words = after((0..count).map(|n| format!("word{n}")));
            assert_eq!(round_trip(&words), Some(words.clone()), "{count}");
            assert!(words.packed().len() <= BYTES.min(2 * count), "{count}");
        }
    }

    #[test]
    fn few_counters_are_packed_one_after_the_other() {
        let words = after((0..200).map(|n| format!("word{}", n * n % 150)));
        let in_use = (0..COUNTERS).filter(|counter| words.at(*counter) > 0);
        let plain: Vec<u8> = in_use
            .flat_map(|counter| {
                ((counter as u16) << 4 | u16::from(words.at(counter))).to_le_bytes()
            })
            .collect();
        assert_eq!((words.packed(), words.used), (plain.clone(), plain.len() / 2));
        assert_eq!(words.count_used(), words.used);
    }

    #[test]
    fn bytes_of_another_format_are_refused() {
        for bytes in [&[1][..], &[0xff, 0xff], &[0; BYTES + 1]] {
            assert_eq!(UserWordCounts::unpacked(1, bytes), None);
        }
    }
}
