//! Lists English words for people around a speaker, because "my sister moved" does not revise the
//! speaker's own home.

/// A set of kinds of people, one bit for each row of [`KINDS`].
pub type People = u32;

/// Kinds of people, each with the words for that kind.
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

/// Words at the beginning of a clause among which the subject is searched.
pub const SUBJECT_WITHIN: usize = 4;
/// Pronouns that end the search for a subject: a clause that begins with one names no relative or
/// friend as its subject.
pub const PRONOUNS: [&str; 15] = [
    "i", "i'm", "i've", "i'd", "i'll", "we", "we've", "we're", "we'd", "they", "they've", "he",
    "she", "it", "it's",
];

/// Lists every word for a person with the bit of the kind.
pub fn words() -> impl Iterator<Item = (&'static str, People)> {
    KINDS
        .iter()
        .enumerate()
        .flat_map(|(place, words)| words.iter().map(move |word| (*word, 1 << place)))
}
