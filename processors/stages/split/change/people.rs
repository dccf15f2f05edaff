//! Lists the words for people around a speaker: "my sister moved" says nothing of the speaker's home.

/// A set of kinds of people, a bit each.
pub type People = u32;

/// Words for one kind of person stand in one row.
const KINDS: [&[&str]; 20] = [
    &["mother", "mom", "mum", "mama"],
    &["father", "dad", "papa"],
    &["parents", "parent"],
    &["sister", "sisters"],
    &["brother", "brothers", "siblings"],
    &["son", "sons"],
    &["daughter", "daughters"],
    &["child", "children", "kid", "kids", "twin", "twins"],
    &["wife", "husband", "partner", "boyfriend", "girlfriend", "fiance", "fiancee"],
    &["friend", "friends", "buddy", "mate"],
    &["flatmate", "flatmates", "roommate", "roommates", "housemate", "housemates"],
    &["colleague", "colleagues", "coworker"],
    &["neighbour", "neighbours", "neighbor", "neighbors"],
    &["uncle", "aunt", "cousin"],
    &["grandmother", "grandma", "granny"],
    &["grandfather", "grandpa"],
    &["niece", "nephew"],
    &["boss"],
    &["client", "clients"],
    &["ex"],
];

/// A clause's subject stands among its first words.
pub const SUBJECT_WITHIN: usize = 4;
/// Words for the speaker and for things: a clause that begins with one is not about somebody else.
pub const SPEAKER: [&str; 15] = [
    "i", "i'm", "i've", "i'd", "i'll", "we", "we've", "we're", "we'd", "they", "they've", "he",
    "she", "it", "it's",
];

/// Each word for a person, with its kind.
pub fn words() -> impl Iterator<Item = (&'static str, People)> {
    KINDS
        .iter()
        .enumerate()
        .flat_map(|(place, words)| words.iter().map(move |word| (*word, 1 << place)))
}
