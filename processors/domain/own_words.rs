//! How often a user has said a word: what is rare in the language may be a commonplace of this user. A sketch of fixed size, not a list of
//! words: nothing in it can be read.

/// Half a kilobyte, rewritten with every turn. Against exact counts, what is worth keeping is told from the rest with an AUC lower by
/// .0015; with 512 places by .0025, with four times as many by .0009.
const PLACES: usize = 1024;
/// From here on all counts are halved, as TinyLFU does it: more words would share a place with others, and old habits count less.
const FULL: usize = PLACES / 2;
/// Whoever says the same few words for ever is halved too: counts stop at 15, and the total must not run away from them.
const TOTAL_MAX: u32 = 8 * PLACES as u32;
const COUNT_MAX: u8 = 15;
const BYTES: usize = PLACES / 2;

/// Two counts of four bits in a byte.
#[derive(Clone, PartialEq)]
pub struct OwnWords {
    counts: [u8; BYTES],
    /// Places that are not 0.
    used: usize,
    /// All words, repetitions included.
    total: u32,
}

impl Default for OwnWords {
    fn default() -> OwnWords {
        OwnWords { counts: [0; BYTES], used: 0, total: 0 }
    }
}

impl std::fmt::Debug for OwnWords {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} words in {} places", self.total, self.used)
    }
}

impl OwnWords {
    /// At most 15, and more than was said if another word has the same place.
    pub fn count(&self, stem: &str) -> u32 {
        u32::from(self.at(place(stem)))
    }

    pub fn total(&self) -> u32 {
        self.total
    }

    pub fn add(&mut self, stem: &str) {
        let place = place(stem);
        let count = self.at(place);
        self.used += usize::from(count == 0);
        self.set(place, (count + 1).min(COUNT_MAX));
        self.total += 1;
        if self.used > FULL || self.total > TOTAL_MAX {
            self.halve();
        }
    }

    fn halve(&mut self) {
        // Both halves of the byte at once; the bit that would cross from the upper to the lower one is masked.
        self.counts.iter_mut().for_each(|pair| *pair = (*pair >> 1) & 0x77);
        self.total /= 2;
        self.used = self.count_used();
    }

    fn at(&self, place: usize) -> u8 {
        self.counts[place / 2] >> (4 * (place % 2)) & 0xf
    }

    fn set(&mut self, place: usize, count: u8) {
        let shift = 4 * (place % 2);
        let pair = &mut self.counts[place / 2];
        *pair = *pair & !(0xf << shift) | count << shift;
    }

    /// Without a branch, so that many bytes are looked at together.
    fn count_used(&self) -> usize {
        self.counts
            .iter()
            .map(|pair| u16::from(pair & 0xf != 0) + u16::from(pair >> 4 != 0))
            .sum::<u16>()
            .into()
    }

    // ---------------------------------------------------------------- to and from bytes

    /// As few as say it: two bytes for each place in use, or all places. The length tells which.
    pub fn packed(&self) -> Vec<u8> {
        if 2 * self.used >= BYTES {
            return self.counts.to_vec();
        }
        let mut bytes = Vec::with_capacity(2 * self.used);
        // Sixteen places at a time, from one that is in use to the next.
        for (n, counts) in self.counts.as_chunks().0.iter().enumerate() {
            let mut counts = u64::from_le_bytes(*counts);
            while counts != 0 {
                let next = counts.trailing_zeros() / 4;
                let (place, count) =
                    (16 * n as u16 + next as u16, (counts >> (4 * next)) as u16 & 0xf);
                bytes.extend((place << 4 | count).to_le_bytes());
                counts &= !(0xf << (4 * next));
            }
        }
        bytes
    }

    /// None: no bytes of ours.
    pub fn unpacked(total: u32, bytes: &[u8]) -> Option<OwnWords> {
        let mut words = OwnWords { total, ..OwnWords::default() };
        if let Ok(counts) = bytes.try_into() {
            words.counts = counts;
        } else {
            let (pairs, []) = bytes.as_chunks::<2>() else { return None };
            for pair in pairs {
                let pair = u16::from_le_bytes(*pair);
                let place = Some(usize::from(pair >> 4)).filter(|place| *place < PLACES)?;
                words.set(place, (pair & 0xf) as u8);
            }
        }
        words.used = words.count_used();
        Some(words)
    }
}

/// FNV-1a of 64 bits, folded: fixed for ever, since what is stored means nothing under another one.
fn place(stem: &str) -> usize {
    let hash = stem.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    (hash ^ hash >> 32) as usize % PLACES
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(stems: impl IntoIterator<Item = String>) -> OwnWords {
        let mut words = OwnWords::default();
        stems.into_iter().for_each(|stem| words.add(&stem));
        words
    }

    fn came_back(words: &OwnWords) -> Option<OwnWords> {
        OwnWords::unpacked(words.total(), &words.packed())
    }

    #[test]
    fn a_word_counts_as_often_as_it_was_said_and_at_most_15() {
        let words = after(["boat", "tea", "boat"].map(String::from));
        assert_eq!(
            (words.count("boat"), words.count("tea"), words.count("harbour"), words.total()),
            (2, 1, 0, 3)
        );
        assert_eq!(after(vec!["boat".to_owned(); 100]).count("boat"), 15);
    }

    #[test]
    fn where_a_word_lies_is_fixed_for_ever() {
        assert_eq!(["boat", "tea", "lisbon", "東京"].map(place), [992, 848, 546, 350]);
    }

    #[test]
    fn many_words_are_halved_and_what_was_said_often_outlives_it() {
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
    fn bytes_come_back_as_they_were_and_stay_few() {
        for count in [0, 1, 7, 250, 300, 500, 3000] {
            let words = after((0..count).map(|n| format!("word{n}")));
            assert_eq!(came_back(&words), Some(words.clone()), "{count}");
            assert!(words.packed().len() <= BYTES.min(2 * count), "{count}");
        }
    }

    #[test]
    fn few_places_are_packed_one_after_the_other() {
        let words = after((0..200).map(|n| format!("word{}", n * n % 150)));
        let in_use = (0..PLACES).filter(|place| words.at(*place) > 0);
        let plain: Vec<u8> = in_use
            .flat_map(|place| ((place as u16) << 4 | u16::from(words.at(place))).to_le_bytes())
            .collect();
        assert_eq!((words.packed(), words.used), (plain.clone(), plain.len() / 2));
        assert_eq!(words.count_used(), words.used);
    }

    #[test]
    fn what_is_no_sketch_is_not_read() {
        for bytes in [&[1][..], &[0xff, 0xff], &[0; BYTES + 1]] {
            assert_eq!(OwnWords::unpacked(1, bytes), None);
        }
    }
}
