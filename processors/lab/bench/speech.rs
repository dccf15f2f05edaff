//! Generates chat for benchmarks: statements about a life, and questions about them, from
//! templates and word lists. The same seed gives the same texts in every run.

/// Generator of texts.
pub struct ChatGenerator {
    state: u64,
}

impl ChatGenerator {
    pub fn new(seed: u64) -> ChatGenerator {
        ChatGenerator { state: seed }
    }

    /// Returns one statement of about 12 words.
    pub fn statement(&mut self) -> String {
        let template = self.pick(STATEMENTS);
        self.filled(template)
    }

    /// Returns about 25 words, as long as a turn of a chat between friends.
    pub fn turn(&mut self) -> String {
        let template = self.pick(REMARKS);
        format!("{} {}", self.statement(), self.filled(template))
    }

    pub fn question(&mut self) -> String {
        let template = self.pick(QUESTIONS);
        self.filled(template)
    }

    /// Replaces each `{class}` of a template by a random word of that class.
    fn filled(&mut self, template: &str) -> String {
        let mut text = String::new();
        let mut rest = template;
        while let Some((before, (name, after))) =
            rest.split_once('{').and_then(|(before, rest)| Some((before, rest.split_once('}')?)))
        {
            text.push_str(before);
            let words =
                WORDS.iter().find(|(class, _)| *class == name).map_or(&[][..], |(_, words)| words);
            text.push_str(self.pick(words));
            rest = after;
        }
        text + rest
    }

    fn pick(&mut self, from: &[&'static str]) -> &'static str {
        from.get(self.next() as usize % from.len().max(1)).copied().unwrap_or_default()
    }

    /// Returns the next number of [SplitMix64](https://prng.di.unimi.it/splitmix64.c).
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
}

const STATEMENTS: &[&str] = &[
    "My {relative} {person} moved to {city} in {month} and now works there as a {job}.",
    "I have been learning {skill} since {month}, mostly on {day} evenings after work.",
    "We booked a table for {number} at the {food} place near the {place} for {day}.",
    "I am allergic to {food}, so {person} always cooks something else when I visit.",
    "{person} and I are planning a trip to {city} in {month} to see the {place}.",
    "My favourite way to spend a {day} is {activity} with my {relative} by the {place}.",
    "The doctor told my {relative} to stop eating {food} until the end of {month}.",
    "I bought a {colour} {thing} for {number} euros from a shop in {city} last {day}.",
    "{person} started a new job as a {job} in {city} and already misses {activity}.",
    "I prefer {food} over {food}, but {person} would never agree with me on that.",
    "On {day} I have an appointment with the {job} at {number} past nine near the {place}.",
    "My {relative} adopted a {colour} {animal} called {person} and it hates the {thing}.",
    "We painted the kitchen {colour} in {month}, and {person} says it looks like a {place}.",
    "I quit {activity} because of my knee and took up {skill} together with {person}.",
    "{person} lent me a {thing} in {month} and I still have to give it back.",
    "I never work on a {day}, that is when I take my {animal} to the {place}.",
    "Our anniversary is on the {number}th of {month}, and we always go to {city}.",
    "The {thing} that {person} gave me broke while I was {activity} in {city}.",
    "I decided to sell the {colour} {thing} and put the money aside for {city}.",
    "My {relative} turns {number} in {month} and wishes for nothing but a {thing}.",
];

const REMARKS: &[&str] = &[
    "It took us {number} days to decide, and honestly I am still not sure about it.",
    "{person} thinks it is a good idea, but you know how my {relative} is about such things.",
    "I will tell you more about it once I am back from the {place} on {day}.",
    "That reminds me of the time we went {activity} in {city} with the {animal}.",
    "Next time I would rather do some {skill}, it is so much more relaxing for me.",
    "By the way, did I tell you that {person} finally finished the course on {skill}?",
    "It is a lot to take in, but it has made me really happy since {month}.",
    "If it works out I am going to celebrate with {food} and a long walk to the {place}.",
    "Everyone at home laughed when the {animal} ran off with the {colour} {thing} again.",
    "I should probably write it down before I forget it like I did in {month}.",
];

const QUESTIONS: &[&str] = &[
    "Where does my {relative} work now?",
    "What did {person} give me in {month}?",
    "Who am I going to {city} with?",
    "What am I allergic to, and does {person} know about it?",
    "What did I buy in {city}?",
    "When is the appointment with the {job}?",
    "Which colour did we paint the kitchen?",
    "What is the name of the {animal} of my {relative}?",
    "How do I like to spend a {day}?",
    "Why did I stop {activity}?",
    "Since when have I been learning {skill}?",
    "Do I prefer {food} or something else?",
    "What happened to the {thing} while I was in {city}?",
    "What should my {relative} not eat any more?",
    "What are our plans for {month} near the {place}?",
];

const WORDS: &[(&str, &[&str])] = &[
    (
        "relative",
        &[
            "sister",
            "brother",
            "mother",
            "father",
            "aunt",
            "uncle",
            "cousin",
            "grandmother",
            "nephew",
            "daughter",
            "son",
            "wife",
        ],
    ),
    (
        "person",
        &[
            "Anna", "Boris", "Carla", "Dmitri", "Elena", "Farid", "Greta", "Hassan", "Ines",
            "Jonas", "Keiko", "Liam", "Mona", "Noah", "Olga", "Pedro", "Quinn", "Rosa", "Samir",
            "Tilda", "Umar", "Vera", "Wanda", "Yusuf",
        ],
    ),
    (
        "city",
        &[
            "Lisbon", "Berlin", "Kyoto", "Oslo", "Montreal", "Nairobi", "Porto", "Vienna", "Seoul",
            "Lima", "Dublin", "Tallinn", "Naples", "Cairo", "Boston", "Krakow", "Bergen", "Hanoi",
            "Quito", "Zagreb",
        ],
    ),
    (
        "month",
        &[
            "January",
            "February",
            "March",
            "April",
            "May",
            "June",
            "July",
            "August",
            "September",
            "October",
            "November",
            "December",
        ],
    ),
    ("day", &["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]),
    (
        "job",
        &[
            "nurse",
            "carpenter",
            "pilot",
            "teacher",
            "baker",
            "dentist",
            "gardener",
            "lawyer",
            "librarian",
            "plumber",
            "chemist",
            "translator",
        ],
    ),
    (
        "skill",
        &[
            "Portuguese",
            "pottery",
            "chess",
            "the cello",
            "woodworking",
            "calligraphy",
            "Rust",
            "juggling",
            "sign language",
            "beekeeping",
            "photography",
            "origami",
        ],
    ),
    (
        "food",
        &[
            "peanuts",
            "sushi",
            "lasagna",
            "mushrooms",
            "pancakes",
            "curry",
            "falafel",
            "oysters",
            "dumplings",
            "strawberries",
            "goulash",
            "tofu",
            "rye bread",
            "blue cheese",
        ],
    ),
    (
        "place",
        &[
            "harbour",
            "old castle",
            "botanical garden",
            "library",
            "railway station",
            "lighthouse",
            "river",
            "market hall",
            "observatory",
            "stadium",
            "opera",
            "cemetery",
        ],
    ),
    (
        "activity",
        &[
            "climbing",
            "sailing",
            "running",
            "camping",
            "skiing",
            "dancing",
            "fishing",
            "cycling",
            "swimming",
            "bird watching",
            "bowling",
            "surfing",
        ],
    ),
    (
        "colour",
        &[
            "red",
            "green",
            "dark blue",
            "yellow",
            "purple",
            "orange",
            "grey",
            "turquoise",
            "black",
            "white",
        ],
    ),
    (
        "thing",
        &[
            "bicycle",
            "tent",
            "violin",
            "coffee grinder",
            "telescope",
            "typewriter",
            "lamp",
            "raincoat",
            "drill",
            "suitcase",
            "record player",
            "sofa",
            "kettle",
            "guitar",
        ],
    ),
    ("animal", &["cat", "dog", "parrot", "rabbit", "tortoise", "hamster", "goat", "canary"]),
    (
        "number",
        &["2", "4", "5", "6", "7", "8", "9", "11", "12", "14", "15", "18", "21", "23", "26"],
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_seed_gives_the_same_texts_again_and_hardly_repeats_one() {
        assert_eq!(turns(1), turns(1));
        assert_ne!(turns(1), turns(2));
        assert!(turns(1).iter().collect::<BTreeSet<_>>().len() > 990);
    }

    fn turns(seed: u64) -> Vec<String> {
        let mut speech = ChatGenerator::new(seed);
        (0..1000).map(|_| speech.turn()).collect()
    }

    #[test]
    fn every_gap_is_filled_and_a_turn_has_about_25_words() {
        let mut speech = ChatGenerator::new(7);
        let mut words = 0;
        for _ in 0..1000 {
            let turn = speech.turn();
            let text = format!("{turn} {}", speech.question());
            assert!(!text.contains(['{', '}']) && !text.contains("  "), "{text}");
            words += turn.split(' ').count();
        }
        assert!((25..=32).contains(&(words / 1000)), "{}", words / 1000);
    }
}
