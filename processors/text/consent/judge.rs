//! Scores a turn by two linear functions: is the turn a wish, and does the wish concern earlier
//! words?
//!
//! The features are the word classes of each clause in pairs, the verdict of the grammar, the form
//! of the turn, words in pairs, and character n-grams, which also know words that are in no list.
//! Each is hashed to one weight ([feature hashing](https://arxiv.org/abs/0902.2206)). `make wishes`
//! trains the weights in `judge.weights` from `tests/data/wishes/`.

use super::clause::Reading;
use super::pasted::PASSAGE;
use crate::is_unspaced;
use crate::wordings::WishPart;

/// Trained weights: two scales as `f32`, then one `i8` for each function and bucket.
static WEIGHTS: &[u8] = include_bytes!("judge.weights");
/// Buckets of features. About 60,000 features share 65,536 weights.
const BUCKETS: usize = 1 << 16;
const HEADER_BYTES: usize = 8;
/// Bytes of a turn that are read. Longer turns are pastes and stories: only the grammar reads on.
const BYTES_MAX: usize = 2_000;
/// Lengths of the character n-grams within a word.
const NGRAMS: [usize; 3] = [3, 4, 5];
/// The same for scripts without spaces.
const NGRAMS_UNSPACED: [usize; 4] = [1, 2, 3, 4];

/// Word classes whose absence is a feature of a clause with a verb of keeping or removing.
const ASKING: [WishPart; 9] = {
    use WishPart::*;
    [This, Said, Please, Not, Subject, Others, Thing, Later, Next]
};

/// Log-odds.
#[derive(Clone, Copy, Debug)]
pub struct Scores {
    /// The turn is a wish.
    pub wish: f32,
    /// The wish concerns earlier words, and not this turn.
    pub before: f32,
}

/// The buckets of a turn's features.
#[derive(Clone, Debug, Default)]
pub struct Features {
    /// Words and n-grams. A long turn has many, so they are weighed together.
    words: Vec<u16>,
    /// Word classes and form.
    classes: Vec<u16>,
}

impl Features {
    /// Collects the features of a folded turn. `verdict` is that of the grammar alone.
    pub fn of(text: &str, readings: &[Reading], verdict: &str) -> Features {
        let mut features = Features::default();
        features.read_words(&text[..text.floor_char_boundary(BYTES_MAX)]);
        features.read_form(text);
        features.read_classes(readings, verdict);
        for list in [&mut features.words, &mut features.classes] {
            list.sort_unstable();
            list.dedup();
        }
        features
    }

    fn read_words(&mut self, text: &str) {
        let mut before = "^";
        for token in tokens(text) {
            let token = if token.starts_with(|c: char| c.is_ascii_digit()) { "0" } else { token };
            self.words.push(bucket('b', before, token));
            before = token;
            let boundary = if is_unspaced(token) { "" } else { "_" };
            let lengths = if is_unspaced(token) { &NGRAMS_UNSPACED[..] } else { &NGRAMS };
            if token.starts_with(char::is_alphanumeric) {
                self.words.push(bucket('w', token, ""));
                let padded = format!("{boundary}{token}{boundary}");
                let ends = padded.char_indices().map(|(at, _)| at).chain([padded.len()]);
                let ends: Vec<usize> = ends.collect();
                for length in lengths {
                    let ngrams = ends.windows(length + 1).map(|at| &padded[at[0]..at[*length]]);
                    self.words.extend(ngrams.map(|ngram| bucket('c', ngram, "")));
                }
            }
        }
        self.words.push(bucket('b', before, "$"));
    }

    fn read_form(&mut self, text: &str) {
        let count = crate::count_words(text);
        let sentences = text.split(['.', '!', '?', ';', '…', '\n']);
        let sentences = sentences.filter(|one| !one.trim().is_empty()).count();
        let lengths = [4, 8, 12, 20, 40].into_iter().filter(|most| count <= *most);
        self.classes.extend(lengths.map(|most| bucket('f', "words", &most.to_string())));
        self.classes.push(bucket('f', "sentences", &sentences.min(3).to_string()));
        let signs = ['?', PASSAGE, '"', '\n', ':'].into_iter().filter(|sign| text.contains(*sign));
        self.classes.extend(signs.map(|sign| bucket('f', "has", sign.encode_utf8(&mut [0; 4]))));
        if text.contains(|c: char| c.is_ascii_digit()) {
            self.classes.push(bucket('f', "has", "digit"));
        }
        if text.trim_end().ends_with('?') {
            self.classes.push(bucket('f', "ends", "?"));
        }
    }

    fn read_classes(&mut self, readings: &[Reading], verdict: &str) {
        let mut add =
            |tag: char, one: &str, other: &str| self.classes.push(bucket(tag, one, other));
        add('v', verdict, "");
        let mut unknown_beside = 0;
        for reading in readings {
            let unknown = reading.unknown.min(4).to_string();
            let parts: Vec<String> =
                reading.parts.places().map(|place| place.to_string()).collect();
            if let Some(kind) = reading.kind {
                add('k', &format!("{kind:?}"), "");
                add('k', &format!("{kind:?}"), &unknown);
            }
            for (at, part) in parts.iter().enumerate() {
                add('p', part, "");
                parts[at + 1..].iter().for_each(|other| add('p', part, other));
            }
            if reading.parts.has_verb() {
                add('u', &unknown, "");
                let missing = ASKING.iter().filter(|part| !reading.parts.has(**part));
                missing.for_each(|part| add('n', &(*part as u32).to_string(), ""));
            } else {
                unknown_beside += reading.unknown;
                let flags = [reading.is_content, reading.is_new, reading.asks_to_keep];
                let flags = flags.into_iter().zip(["content", "new", "keep"]);
                flags.filter(|(is, _)| *is).for_each(|(_, name)| add('s', name, ""));
            }
        }
        add('a', &unknown_beside.min(6).to_string(), "");
        add('r', &readings.len().min(5).to_string(), "");
    }

    pub fn scores(&self) -> Scores {
        self.scores_by(WEIGHTS)
    }

    fn scores_by(&self, trained: &[u8]) -> Scores {
        let scale = |at: usize| f32::from_le_bytes(trained[at..at + 4].try_into().expect("four"));
        let score = |function: usize| {
            let weights = &trained[HEADER_BYTES + function * BUCKETS..][..BUCKETS];
            let sum = |list: &[u16]| -> i32 {
                list.iter().map(|at| i32::from(weights[usize::from(*at)].cast_signed())).sum()
            };
            let words = sum(&self.words) as f32 * self.weight_of_words();
            scale(4 * function) * (words + sum(&self.classes) as f32)
        };
        Scores { wish: score(0), before: score(1) }
    }

    /// Five classes weigh as much as all words of a short turn.
    fn weight_of_words(&self) -> f32 {
        5.0 / (self.words.len() as f32 + 20.0).sqrt()
    }
}

/// Cuts a folded text into words, numbers and those signs that say something about its form.
fn tokens(text: &str) -> impl Iterator<Item = &str> {
    let is_voiced = |c| matches!(c, '\u{3099}' | '\u{309a}');
    let is_word = move |c: char| c.is_alphanumeric() || c == '\'' || is_voiced(c);
    let mut rest = text;
    std::iter::from_fn(move || {
        rest = &rest[rest.find(|c| is_word(c) || "?!\":,.\u{fffc}".contains(c))?..];
        let first = rest.chars().next()?;
        let end = match is_word(first) {
            true => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
            false => first.len_utf8(),
        };
        let (token, after) = rest.split_at(end);
        rest = after;
        Some(token)
    })
}

/// [FNV-1a](http://www.isthe.com/chongo/tech/comp/fnv/), its halves xored.
fn bucket(tag: char, one: &str, other: &str) -> u16 {
    let parts =
        [tag.encode_utf8(&mut [0; 4]).as_bytes(), one.as_bytes(), b" ", other.as_bytes()].concat();
    let hash = parts.iter().fold(0x811c_9dc5, |hash: u32, byte: &u8| {
        (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
    });
    (hash ^ hash >> 16) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::consent::{Turn, Wish, by_rules};
    use crate::wordings::fold;
    use serde_json::Value;

    const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/wishes");
    const EPOCHS: usize = 60;
    const L2: f32 = 1e-5;
    /// Ordinary statements are many and easy.
    const WEIGHT_OF_STATEMENTS: f32 = 0.15;

    struct Example {
        hand: String,
        class: String,
        rule: Option<Wish>,
        is_short: bool,
        is_plain: bool,
        /// With the word classes and without, so that the words learn to do without them.
        features: [Features; 2],
    }

    fn example(hand: &str, class: &str, text: &str) -> Example {
        let turn = Turn::of(text);
        let rule = by_rules(&turn);
        let blank = Features { classes: Vec::new(), ..turn.features(rule.as_ref()) };
        let mut form = Features::default();
        form.read_form(&fold(text));
        let features = [turn.features(rule.as_ref()), Features { classes: form.classes, ..blank }];
        Example {
            hand: hand.to_owned(),
            class: class.to_owned(),
            rule,
            is_short: turn.is_short(),
            is_plain: turn.is_plain(),
            features,
        }
    }

    fn examples() -> Vec<Example> {
        let mut files: Vec<_> = std::fs::read_dir(FOLDER).expect("a folder").flatten().collect();
        files.sort_by_key(std::fs::DirEntry::path);
        let mut examples = Vec::new();
        for file in files {
            let lines = std::fs::read_to_string(file.path()).expect("a file");
            let name = file.file_name().into_string().expect("a name");
            for line in lines.lines() {
                let line: Value = serde_json::from_str(line).expect("JSON");
                let field = |name: &str| line[name].as_str().unwrap_or_default();
                let hand = if field("file").is_empty() { &name[..1] } else { field("file") };
                examples.push(example(hand, field("class"), field("text")));
                if !field("before").is_empty() {
                    examples.push(example(hand, "statement", field("before")));
                }
            }
        }
        examples
    }

    /// Fits one logistic function by stochastic gradient descent. The order is fixed.
    fn fit(examples: &[(&Features, bool, f32)]) -> Vec<f32> {
        let mut weights = vec![0.0_f32; BUCKETS];
        let mut state = 1_u64;
        let mut order: Vec<usize> = (0..examples.len()).collect();
        for epoch in 0..EPOCHS {
            for at in (1..order.len()).rev() {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                order.swap(at, (state >> 33) as usize % (at + 1));
            }
            let rate = 0.05 / (1.0 + epoch as f32 / 10.0);
            for at in &order {
                let (features, is_positive, weight) = examples[*at];
                let of_words = features.weight_of_words();
                let sum =
                    |list: &[u16]| -> f32 { list.iter().map(|at| weights[usize::from(*at)]).sum() };
                let score = sum(&features.words) * of_words + sum(&features.classes);
                let error = f32::from(is_positive) - 1.0 / (1.0 + (-score).exp());
                let step = rate * weight * error;
                features.words.iter().for_each(|at| weights[usize::from(*at)] += step * of_words);
                features.classes.iter().for_each(|at| weights[usize::from(*at)] += step);
            }
            let decay = 1.0 - rate * L2 * examples.len() as f32;
            weights.iter_mut().for_each(|weight| *weight *= decay);
        }
        weights
    }

    fn train(examples: &[&Example]) -> [Vec<f32>; 2] {
        let weight =
            |one: &Example| if one.class == "statement" { WEIGHT_OF_STATEMENTS } else { 1.0 };
        let rows = |one: &'_ &'_ Example| {
            [(0, 1.0), (1, 0.5)].map(|(at, share)| (at, share * weight(one)))
        };
        let of = |kept: fn(&Example) -> bool, is: fn(&Example) -> bool| {
            let kept = examples.iter().filter(|one| kept(one));
            let rows: Vec<_> = kept
                .flat_map(|one| rows(one).map(|(at, weight)| (&one.features[at], is(one), weight)))
                .collect();
            fit(&rows)
        };
        [
            of(|_| true, |one| one.class == "forget" || one.class == "off"),
            of(|one| one.class == "forget" || one.class == "off", |one| one.class == "forget"),
        ]
    }

    fn quantised(functions: &[Vec<f32>; 2]) -> Vec<u8> {
        let scales = functions.each_ref().map(|weights| {
            weights.iter().fold(0.0_f32, |most, weight| most.max(weight.abs())) / 127.0
        });
        let mut bytes: Vec<u8> = scales.iter().flat_map(|scale| scale.to_le_bytes()).collect();
        for (weights, scale) in functions.iter().zip(scales) {
            bytes.extend(
                weights.iter().map(|weight| ((weight / scale).round() as i8).cast_unsigned()),
            );
        }
        bytes
    }

    /// Counts the lines of a writer that the rule and the judge read rightly if trained on the
    /// others: wishes to forget, off the record, and nothing; each with the number of all lines.
    fn found(examples: &[Example], hand: &str) -> [(usize, usize); 3] {
        let (out, rest): (Vec<_>, Vec<_>) = examples.iter().partition(|one| one.hand == hand);
        let weights = quantised(&train(&rest));
        [("forget", Some(true)), ("off", Some(false)), ("inside", None)].map(|(class, wish)| {
            let lines = || out.iter().filter(|one| one.class == class);
            (
                lines()
                    .filter(|one| {
                        let scores = one.features[0].scores_by(&weights);
                        super::super::decide(one.rule.as_ref(), scores, one.is_short, one.is_plain)
                            == wish
                    })
                    .count(),
                lines().count(),
            )
        })
    }

    /// `make wishes` prints each writer and writes the weights, by `KEEPSAKE_WISHES=abcdeftuv`.
    #[test]
    fn a_writer_that_it_was_not_trained_on_is_read_too() {
        let examples = examples();
        let wanted = std::env::var("KEEPSAKE_WISHES").ok();
        for hand in wanted.as_deref().unwrap_or("u").chars().map(String::from) {
            let [forget, off, inside] = found(&examples, &hand);
            println!("{hand}: forget {forget:?}, off the record {off:?}, kept {inside:?}");
            let is_most = |(found, of): (usize, usize), percent| found * 100 >= of * percent;
            assert!(wanted.is_some() || is_most(forget, 70) && is_most(off, 70), "{hand}");
            assert!(is_most(inside, 90), "{hand}");
        }
        if wanted.is_some() {
            let weights = quantised(&train(&examples.iter().collect::<Vec<_>>()));
            std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/consent/judge.weights"), weights)
                .expect("a disk");
        }
    }
}
