//! Finds the days that a text names: "on 12 May", "last week", "two weeks ago", "between March and
//! May", "before Christmas".
//!
//! 1. `days_in_languages` rewrites the days of a text in another language into English.
//! 2. Each place in the words is tried as a day, a month, a season, a year, or a time relative to
//!    the day of the text.
//! 3. The words before it make a bound of it: "before", "after", "since", "between … and …".
//!
//! A day without a year is the nearest one; in a question, the last one, unless the question asks
//! for plans.
//!
//! Limit: the languages are English and those with rewrites, as `config/languages/` lists them. A
//! season of a named year is read as the whole year in those, and as the nearest in English. Days
//! are of UTC, and seasons are the northern ones.

use crate::days_in_languages::in_english;
use crate::split::MONTHS;
use domain::Time;
use jiff::civil::{Date, Weekday};
use jiff::tz::TimeZone;
use jiff::{Span, ToSpan};

/// Days from `first` up to, and without, `until`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Days {
    first: Date,
    until: Date,
}

/// How the text relates to its day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mood {
    /// Asks about what has been: no day lies after the day of the text, if a former one is
    /// possible.
    Asks,
    /// Asks for plans: the nearest day, and the next weekday.
    Plans,
    /// Tells what has been or will be.
    Tells,
}

impl Days {
    /// Returns the day of a time. `None` for a time out of the calendar's range.
    pub fn of(time: Time) -> Option<Days> {
        let at = jiff::Timestamp::from_millisecond(time.0).ok()?;
        Some(Days::one(at.to_zoned(TimeZone::UTC).date()))
    }

    pub fn first_time(&self) -> Time {
        midnight(self.first)
    }

    pub fn last_time(&self) -> Time {
        midnight(self.until).plus_ms(-1)
    }

    pub fn meet(&self, other: &Days) -> bool {
        self.first < other.until && other.first < self.until
    }

    fn one(day: Date) -> Days {
        Days { first: day, until: moved(day, 1.day()) }
    }

    fn around(day: Date, days: i64) -> Days {
        Days { first: moved(day, (-days).days()), until: moved(day, (days + 1).days()) }
    }

    fn month(first: Date) -> Days {
        Days { first, until: moved(first, 1.month()) }
    }

    fn year(year: i16) -> Option<Days> {
        let first = Date::new(year, 1, 1).ok()?;
        Some(Days { first, until: moved(first, 1.year()) })
    }
}

/// Returns the days that a question names, asked at `at`.
pub fn days_asked_for(question: &str, at: Time) -> Vec<Days> {
    named(question, at, Mood::Asks)
}

/// Returns the days that a statement names, made at `at`.
pub fn days_spoken_of(statement: &str, at: Time) -> Vec<Days> {
    named(statement, at, Mood::Tells)
}

fn named(text: &str, at: Time, mood: Mood) -> Vec<Days> {
    let Some(today) = Days::of(at) else { return Vec::new() };
    let mut words = text_words(text);
    if let Some(english) = in_english(text, words.iter().map(|word| word.lower.as_str())) {
        words = text_words(&english);
    }
    let mut reader = Reader { words, today: today.first, mood };
    if mood == Mood::Asks && reader.asks_for_plans() {
        reader.mood = Mood::Plans;
    }
    let mut found = Vec::new();
    let mut place = 0;
    while place < reader.words.len() {
        place = match reader.bounded(place) {
            Some((days, behind)) => {
                found.extend(days);
                behind
            }
            None => place + 1,
        };
    }
    found
}

/// Words of a text that are read. A longer text names its days at the beginning, or is a paste.
const WORDS_MAX: usize = 200;

struct Word {
    lower: String,
    is_capital: bool,
}

fn text_words(text: &str) -> Vec<Word> {
    text.split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .take(WORDS_MAX)
        .map(|word| Word {
            lower: word.to_lowercase(),
            is_capital: word.starts_with(char::is_uppercase),
        })
        .collect()
}

/// Days that begin at a word, and the place of the word behind them.
type Found = (Days, usize);

struct Reader {
    words: Vec<Word>,
    today: Date,
    mood: Mood,
}

impl Reader {
    fn word(&self, place: usize) -> &str {
        self.words.get(place).map_or("", |word| word.lower.as_str())
    }

    fn before(&self, place: usize) -> &str {
        place.checked_sub(1).map_or("", |place| self.word(place))
    }

    /// True for "What do I have on 12 May?", which has a word of plans and none of the past.
    fn asks_for_plans(&self) -> bool {
        let is_of_plans = |at| {
            matches!(
                (self.word(at), self.word(at + 1), self.word(at + 2)),
                ("will" | "upcoming" | "planned" | "scheduled", ..)
                    | ("going", "to", _)
                    | ("is", "on", _)
                    | ("when", "is" | "s", _)
                    | ("what", "s", "on")
                    | ("am", "i", "doing")
                    | ("are", "we", "doing")
                    | ("do", "i" | "we", "have")
            )
        };
        let is_next = |at| self.word(at) == "next" && self.word(at + 1) != "to";
        (0..self.words.len()).any(|at| is_of_plans(at) || is_next(at)) && !self.is_past()
    }

    /// True for a text in the past tense, or about time gone by. Regular past tenses end in "ed",
    /// as do "need" and "bed": rather the last day, as without plans, than a wrong one to come.
    fn is_past(&self) -> bool {
        self.words.iter().any(|word| match word.lower.as_str() {
            "planned" | "scheduled" => false,
            "did" | "didn" | "was" | "wasn" | "were" | "weren" | "had" | "hadn" | "been"
            | "went" | "said" | "told" | "ate" | "came" | "got" | "made" | "saw" | "bought"
            | "met" | "gave" | "took" | "left" | "thought" | "felt" | "ran" | "read" | "ago"
            | "since" | "last" | "past" | "yesterday" => true,
            word => word.ends_with("ed"),
        })
    }

    /// The days at a place with the bound that the words before them make: none for "every Monday".
    fn bounded(&self, place: usize) -> Option<(Option<Days>, usize)> {
        let (days, behind) = self.days(place)?;
        let bound = match self.before(place) {
            "the" | "on" | "in" if place > 1 => self.before(place - 1),
            before => before,
        };
        let bounded = match bound {
            "every" | "each" => return Some((None, behind)),
            "before" | "until" | "till" if self.mood != Mood::Tells => {
                Days { first: Date::MIN, until: days.first }
            }
            "after" if self.mood != Mood::Tells => Days { first: days.until, until: Date::MAX },
            "since" if self.mood != Mood::Tells => Days { first: days.first, until: Date::MAX },
            "between" | "from" if matches!(self.word(behind), "and" | "to" | "until" | "till") => {
                let (last, behind) = self.days(behind + 1).unwrap_or((days, behind));
                // "From November to February" goes on into the next year.
                let is_of_last_year = days.first > last.first;
                let years = if is_of_last_year { (-1).years() } else { 0.years() };
                let first = moved(days.first, years);
                return Some((Some(Days { first, until: last.until }), behind));
            }
            _ => days,
        };
        Some((Some(bounded), behind))
    }

    fn days(&self, place: usize) -> Option<Found> {
        self.relative(place)
            .or_else(|| self.ago(place))
            .or_else(|| self.ahead(place))
            .or_else(|| self.iso(place))
            .or_else(|| self.day_of_month(place))
            .or_else(|| self.feast(place))
            .or_else(|| self.month(place))
            .or_else(|| self.season(place, 0))
            .or_else(|| self.year(place))
            .or_else(|| self.weekday(place))
    }

    /// "Yesterday", "last week", "this summer".
    fn relative(&self, place: usize) -> Option<Found> {
        let today = self.today;
        let day = |days: i64| Days::one(moved(today, days.days()));
        let turn = match (self.word(place), self.word(place + 1)) {
            ("day", "before") if self.word(place + 2) == "yesterday" => {
                return Some((day(-2), place + 3));
            }
            ("day", "after") if self.word(place + 2) == "tomorrow" => {
                return Some((day(2), place + 3));
            }
            ("today" | "tonight", _) => return Some((day(0), place + 1)),
            ("this", "morning" | "afternoon" | "evening") => return Some((day(0), place + 2)),
            ("yesterday", _) => return Some((day(-1), place + 1)),
            ("last", "night") => return Some((day(-1), place + 2)),
            ("tomorrow", _) => return Some((day(1), place + 1)),
            ("last" | "past", _) => -1,
            ("this", _) => 0,
            ("next", _) => 1,
            _ => return None,
        };
        let unit = place + 1;
        let days = match self.word(unit) {
            "week" => {
                let first = moved(monday(today), (7 * turn).days());
                Days { first, until: moved(first, 7.days()) }
            }
            "weekend" => {
                let this = moved(monday(today), 5.days());
                // "Last weekend" on a Tuesday is the one that was three days ago.
                let first = moved(this, (7 * turn).days());
                Days { first, until: moved(first, 2.days()) }
            }
            "month" => Days::month(moved(today.first_of_month(), turn.months())),
            "year" => Days::year(today.year() + i16::try_from(turn).ok()?)?,
            _ => {
                return self
                    .season(unit, turn)
                    .or_else(|| self.month_turned(unit, turn))
                    .or_else(|| self.weekday_turned(unit, turn));
            }
        };
        Some((days, unit + 1))
    }

    /// "Three days ago", "a couple of weeks ago". The longer ago, the less exactly it is meant.
    fn ago(&self, place: usize) -> Option<Found> {
        let (span, around, behind) = self.span(place)?;
        let day = self.today.checked_sub(span).ok()?;
        (self.word(behind) == "ago").then(|| (Days::around(day, around), behind + 1))
    }

    /// "In three days", "in a few weeks". "In a week" and "twice in two weeks" are how often, and
    /// "I read it in two weeks" is how long.
    fn ahead(&self, place: usize) -> Option<Found> {
        if self.word(place) != "in" || matches!(self.before(place), "once" | "twice" | "times") {
            return None;
        }
        let is_few = matches!(self.word(place + 2), "couple" | "few");
        let count = place + 1 + usize::from(self.word(place + 1) == "a" && is_few);
        if matches!(self.word(count), "a" | "an" | "one") {
            return None;
        }
        let (span, around, behind) = self.span(count)?;
        let is_length = self.word(behind) == "ago" || self.is_past();
        if is_length || self.words.iter().any(|word| word.lower == "how") {
            return None;
        }
        Some((Days::around(self.today.checked_add(span).ok()?, around), behind))
    }

    /// "A couple of weeks", with the days around that it may mean, and the place behind it.
    fn span(&self, place: usize) -> Option<(Span, i64, usize)> {
        let (count, mut unit) = match self.word(place) {
            "couple" => (2, place + 1),
            "few" => (3, place + 1),
            word => (number(word)?, place + 1),
        };
        if self.word(unit) == "of" {
            unit += 1;
        }
        let (span, around) = match self.word(unit).trim_end_matches('s') {
            "day" => (count.days(), 0),
            "week" => (count.weeks(), 3),
            "month" => (count.months(), 15),
            "year" => (count.years(), 180),
            _ => return None,
        };
        Some((span, around, unit + 1))
    }

    /// "2024-05-12"
    fn iso(&self, place: usize) -> Option<Found> {
        let year = year(self.word(place))?;
        let [month, day] = [1, 2].map(|next| two_digits(self.word(place + next)));
        Some((Days::one(Date::new(year, month?, day?).ok()?), place + 3))
    }

    /// "12 May", "the 12th of May 2024", "May 12, 2024".
    fn day_of_month(&self, place: usize) -> Option<Found> {
        let of = usize::from(self.word(place + 1) == "of");
        let day_first = ordinal(self.word(place)).zip(month(self.word(place + 1 + of)));
        let (day, month, behind) = match day_first {
            Some((day, month)) => (day, month, place + 2 + of),
            None => (ordinal(self.word(place + 1))?, month(self.word(place))?, place + 2),
        };
        if let Some(year) = year(self.word(behind)) {
            return Some((Days::one(Date::new(year, month, day).ok()?), behind + 1));
        }
        let of_year = |year| Date::new(year, month, day).ok().map(Days::one);
        Some((self.nearest(of_year)?, behind))
    }

    /// "In May", "May 2024".
    fn month(&self, place: usize) -> Option<Found> {
        let month = month(self.word(place))?;
        if let Some(year) = year(self.word(place + 1)) {
            return Some((Days::month(Date::new(year, month, 1).ok()?), place + 2));
        }
        // "May" and "march" are verbs, too: "to march", but "from March to May".
        let ends_a_range = || place > 2 && matches!(self.word(place - 3), "between" | "from");
        let is_name = (place > 0 && self.words[place].is_capital)
            || match self.before(place) {
                "in" | "since" | "between" | "from" => true,
                "and" | "to" => ends_a_range(),
                _ => false,
            };
        if !is_name {
            return None;
        }
        let of_year = |year| Date::new(year, month, 1).ok().map(Days::month);
        Some((self.nearest(of_year)?, place + 1))
    }

    /// "Last May" is the one that has ended, "next May" the one to come.
    fn month_turned(&self, place: usize, turn: i64) -> Option<Found> {
        let month = month(self.word(place))?;
        let of_year = |year| Date::new(year, month, 1).ok().map(Days::month);
        Some((self.turned(turn, of_year)?, place + 1))
    }

    fn season(&self, place: usize, turn: i64) -> Option<Found> {
        let first = match self.word(place) {
            "spring" => 3,
            "summer" => 6,
            "autumn" | "fall" => 9,
            "winter" => 12,
            _ => return None,
        };
        let is_named = turn != 0
            || matches!(self.before(place), "in" | "the" | "this" | "since" | "over" | "during");
        if !is_named || self.word(place) == "fall" && turn == 0 && self.before(place) == "the" {
            return None;
        }
        let of_year = |year| {
            let first = Date::new(year, first, 1).ok()?;
            Some(Days { first, until: moved(first, 3.months()) })
        };
        Some((self.turned(turn, of_year)?, place + 1))
    }

    /// "In 2023"
    fn year(&self, place: usize) -> Option<Found> {
        let is_named =
            matches!(self.before(place), "in" | "of" | "during" | "since" | "before" | "after");
        let year = year(self.word(place)).filter(|_| is_named)?;
        Some((Days::year(year)?, place + 1))
    }

    /// "On Tuesday", in a question. A statement may mean the next one, or each.
    fn weekday(&self, place: usize) -> Option<Found> {
        let weekday = weekday(self.word(place))?;
        let since = i64::from(self.today.weekday().to_monday_zero_offset())
            - i64::from(weekday.to_monday_zero_offset());
        let days = match self.mood {
            Mood::Asks => -since.rem_euclid(7),
            Mood::Plans => (-since).rem_euclid(7),
            Mood::Tells => return None,
        };
        Some((Days::one(moved(self.today, days.days())), place + 1))
    }

    /// "Last Tuesday" is in the last seven days, "next Tuesday" in the seven to come.
    fn weekday_turned(&self, place: usize, turn: i64) -> Option<Found> {
        let weekday = weekday(self.word(place))?;
        let nth = if turn == 0 { return self.weekday(place) } else { turn as i32 };
        Some((Days::one(self.today.nth_weekday(nth, weekday).ok()?), place + 1))
    }

    /// "Christmas Eve", "Halloween".
    fn feast(&self, place: usize) -> Option<Found> {
        let eve = usize::from(self.word(place + 1) == "eve");
        let (month, day, words) = match (self.word(place), self.word(place + 1)) {
            ("christmas" | "xmas", "eve") => (12, 24, 2),
            ("christmas" | "xmas", _) => (12, 25, 1),
            ("boxing", "day") => (12, 26, 2),
            ("new", "year" | "years") => {
                let s = usize::from(self.word(place + 2) == "s");
                match self.word(place + 2 + s) {
                    "eve" => (12, 31, 3 + s),
                    "day" => (1, 1, 3 + s),
                    _ => return None,
                }
            }
            ("valentine" | "valentines", _) => (2, 14, 1),
            ("halloween", _) => (10, 31, 1),
            _ => return None,
        };
        let of_year = |year| Date::new(year, month, day).ok().map(Days::one);
        Some((self.nearest(of_year)?, place + words.max(1 + eve)))
    }

    /// The days of this year or of a neighbouring one: the last that have begun if the text asks
    /// for what has been, else the nearest.
    fn nearest(&self, of_year: impl Fn(i16) -> Option<Days>) -> Option<Days> {
        let year = self.today.year();
        let mut years = (year - 1..=year + 1).filter_map(of_year);
        match self.mood {
            Mood::Asks => years.rfind(|days| days.first <= self.today),
            Mood::Plans | Mood::Tells => years.min_by_key(|days| {
                let since_first = (self.today - days.first).get_days().abs();
                let is_now = days.first <= self.today && self.today < days.until;
                if is_now { 0 } else { since_first }
            }),
        }
    }

    /// The last days that have ended, or the next that have not begun.
    fn turned(&self, turn: i64, of_year: impl Fn(i16) -> Option<Days>) -> Option<Days> {
        if turn == 0 {
            return self.nearest(of_year);
        }
        let year = self.today.year();
        let mut years = (year - 2..=year + 1).filter_map(of_year);
        if turn < 0 {
            years.rfind(|days| days.until <= self.today)
        } else {
            years.find(|days| days.first > self.today)
        }
    }
}

fn midnight(day: Date) -> Time {
    const DAY_MS: i64 = 86_400_000;
    let since = day - Date::constant(1970, 1, 1);
    Time(i64::from(since.get_days()) * DAY_MS)
}

fn moved(day: Date, by: Span) -> Date {
    day.saturating_add(by)
}

fn monday(day: Date) -> Date {
    moved(day, (-i64::from(day.weekday().to_monday_zero_offset())).days())
}

fn month(word: &str) -> Option<i8> {
    let word = if word == "sept" { "sep" } else { word };
    let is_named = |name: &&str| {
        name.eq_ignore_ascii_case(word) || (word.len() == 3 && name[..3].eq_ignore_ascii_case(word))
    };
    Some(MONTHS.iter().position(|name| is_named(&&**name))? as i8 + 1)
}

fn weekday(word: &str) -> Option<Weekday> {
    Some(match word {
        "monday" => Weekday::Monday,
        "tuesday" => Weekday::Tuesday,
        "wednesday" => Weekday::Wednesday,
        "thursday" => Weekday::Thursday,
        "friday" => Weekday::Friday,
        "saturday" => Weekday::Saturday,
        "sunday" => Weekday::Sunday,
        _ => return None,
    })
}

fn year(word: &str) -> Option<i16> {
    word.parse().ok().filter(|year| word.len() == 4 && (1900..=2100).contains(year))
}

/// "12", "12th"
fn ordinal(word: &str) -> Option<i8> {
    let digits = word.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let is_day = matches!(&word[digits.len()..], "" | "st" | "nd" | "rd" | "th");
    digits.parse().ok().filter(|day| is_day && (1..=31).contains(day))
}

fn two_digits(word: &str) -> Option<i8> {
    word.parse().ok().filter(|_| word.len() <= 2)
}

fn number(word: &str) -> Option<i64> {
    const NUMBERS: [&str; 12] = [
        "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven",
        "twelve",
    ];
    match word {
        "a" | "an" => Some(1),
        _ => NUMBERS
            .iter()
            .position(|name| *name == word)
            .map(|place| place as i64 + 1)
            .or_else(|| word.parse().ok().filter(|number| *number < 1000)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A Wednesday.
    const ASKED: &str = "2025-03-12T10:00:00Z";

    fn time(at: &str) -> Time {
        Time(at.parse::<jiff::Timestamp>().expect("a time").as_millisecond())
    }

    fn shown(days: &[Days]) -> Vec<String> {
        days.iter().map(|days| format!("{} {}", days.first, days.until)).collect()
    }

    fn asks(question: &str, first: &str, until: &str) {
        let found = shown(&days_asked_for(question, time(ASKED)));
        assert_eq!(found, [format!("{first} {until}")], "{question}");
    }

    #[test]
    fn a_question_names_a_day() {
        asks("What did I eat on 12 May?", "2024-05-12", "2024-05-13");
        asks("what was on the 3rd of March", "2025-03-03", "2025-03-04");
        asks("Who came on May 12th, 2023?", "2023-05-12", "2023-05-13");
        asks("what broke on 2024-12-01?", "2024-12-01", "2024-12-02");
        asks("What did we sing on Christmas Eve?", "2024-12-24", "2024-12-25");
        asks("Where was I on New Year's Day?", "2025-01-01", "2025-01-02");
        asks("and on Valentine's Day?", "2025-02-14", "2025-02-15");
        asks("What did I do yesterday?", "2025-03-11", "2025-03-12");
        asks("what happened last night", "2025-03-11", "2025-03-12");
        asks("whom did I see on Monday?", "2025-03-10", "2025-03-11");
        asks("whom did I see last Wednesday?", "2025-03-05", "2025-03-06");
        asks("three days ago?", "2025-03-09", "2025-03-10");
    }

    #[test]
    fn a_question_names_a_range() {
        asks("What did I plan last week?", "2025-03-03", "2025-03-10");
        asks("where did I ride last weekend?", "2025-03-08", "2025-03-10");
        asks("what have I read this month", "2025-03-01", "2025-04-01");
        asks("what did I spend last month", "2025-02-01", "2025-03-01");
        asks("How was it in May?", "2024-05-01", "2024-06-01");
        asks("How was it in July 2023?", "2023-07-01", "2023-08-01");
        asks("whom did I meet last summer?", "2024-06-01", "2024-09-01");
        asks("what was ill in winter?", "2024-12-01", "2025-03-01");
        asks("this spring", "2025-03-01", "2025-06-01");
        asks("Who left in 2023?", "2023-01-01", "2024-01-01");
        asks("two weeks ago", "2025-02-23", "2025-03-02");
        asks("a couple of months ago?", "2024-12-28", "2025-01-28");
        asks("between March and May", "2024-03-01", "2024-06-01");
        asks("from November to February", "2024-11-01", "2025-03-01");
        asks("between march and may", "2024-03-01", "2024-06-01");
        asks("what did I eat before Christmas", "-009999-01-01", "2024-12-25");
        asks("what do I eat since January", "2025-01-01", "9999-12-31");
        asks("after 3 March", "2025-03-04", "9999-12-31");
        let two = days_asked_for("in May 2022 or in June?", time(ASKED));
        assert_eq!(shown(&two), ["2022-05-01 2022-06-01", "2024-06-01 2024-07-01"]);
    }

    #[test]
    fn other_questions_name_none() {
        for question in [
            "May I ask what I like?",
            "how do I march in step",
            "did I want to march, and may I?",
            "What do I do every Monday?",
            "Which street number is 2025?",
            "how many days are there",
            "did the tree fall?",
            "What happened before the move?",
            "",
        ] {
            assert_eq!(days_asked_for(question, time(ASKED)), [], "{question}");
        }
    }

    #[test]
    fn a_statement_names_its_day() {
        fn tells(statement: &str, first: &str, until: &str) {
            let found = shown(&days_spoken_of(statement, time(ASKED)));
            assert_eq!(found, [format!("{first} {until}")], "{statement}");
        }
        tells("The launch is on 3 May.", "2025-05-03", "2025-05-04");
        tells("we sang in December, at the abbey", "2024-12-01", "2025-01-01");
        tells("saw the dentist yesterday", "2025-03-11", "2025-03-12");
        tells("next week I am away", "2025-03-17", "2025-03-24");
        tells("back in October 2023 it was", "2023-10-01", "2023-11-01");
        for none in ["I swim every Monday", "See you on Tuesday", "I may march before lunch"] {
            assert_eq!(days_spoken_of(none, time(ASKED)), [], "{none}");
        }
    }

    #[test]
    fn a_question_about_plans_means_days_to_come() {
        asks("What is on 12 May?", "2025-05-12", "2025-05-13");
        asks("What do I have on Monday?", "2025-03-17", "2025-03-18");
        asks("What am I doing this Wednesday?", "2025-03-12", "2025-03-13");
        asks("What have I planned for July?", "2025-07-01", "2025-08-01");
        asks("What's on tomorrow?", "2025-03-13", "2025-03-14");
        asks("When is the next match in May?", "2025-05-01", "2025-06-01");
        asks("Where will I be in two weeks?", "2025-03-23", "2025-03-30");
        asks("where am I in 3 days", "2025-03-15", "2025-03-16");
        asks("the day after tomorrow?", "2025-03-14", "2025-03-15");
        // The past tense, or no word of plans.
        asks("What had I planned for July?", "2024-07-01", "2024-08-01");
        asks("What did Will eat on Monday?", "2025-03-10", "2025-03-11");
        asks("Will said what on 12 May?", "2024-05-12", "2024-05-13");
        asks("What do I eat in July?", "2024-07-01", "2024-08-01");
        for none in ["How far do I run in 3 weeks?", "what did I learn in two weeks", "in a week?"]
        {
            assert_eq!(days_asked_for(none, time(ASKED)), [], "{none}");
        }
        assert_eq!(
            shown(&days_spoken_of("I fly in 3 days", time(ASKED))),
            ["2025-03-15 2025-03-16"]
        );
        assert_eq!(days_spoken_of("I finished it in 3 days", time(ASKED)), []);
    }

    fn asks_none(questions: &[&str]) {
        for question in questions {
            assert_eq!(days_asked_for(question, time(ASKED)), [], "{question}");
        }
    }

    #[test]
    fn german_days() {
        asks("Was habe ich gestern gegessen?", "2025-03-11", "2025-03-12");
        asks("was war vorgestern los", "2025-03-10", "2025-03-11");
        asks("Was habe ich letzte Woche gekauft?", "2025-03-03", "2025-03-10");
        asks("wo war ich letztes wochenende", "2025-03-08", "2025-03-10");
        asks("Wen habe ich vor zwei Wochen getroffen?", "2025-02-23", "2025-03-02");
        asks("was habe ich vor einem Tag gesagt", "2025-03-11", "2025-03-12");
        asks("Was war vor ein paar Monaten?", "2024-11-27", "2024-12-28");
        asks("Was habe ich am 12. Mai gemacht?", "2024-05-12", "2024-05-13");
        asks("was war am Montag, den 12. Mai", "2024-05-12", "2024-05-13");
        asks("was war am 3.12.2024", "2024-12-03", "2024-12-04");
        asks("Wohin bin ich im Mai gefahren?", "2024-05-01", "2024-06-01");
        asks("Was war Ende Juli 2023?", "2023-07-01", "2023-08-01");
        asks("Wer ist im Jahr 2023 gegangen?", "2023-01-01", "2024-01-01");
        asks("wo war ich im sommer 2022", "2022-01-01", "2023-01-01");
        asks("wo war ich letzten Sommer", "2024-06-01", "2024-09-01");
        asks("was war im mai letzten jahres", "2024-01-01", "2025-01-01");
        asks("was war zwischen März und Mai", "2024-03-01", "2024-06-01");
        asks("was war vom 3. bis 5. Februar", "2025-02-03", "2025-02-06");
        asks("Was habe ich vor Weihnachten gekauft?", "-009999-01-01", "2024-12-25");
        asks("was esse ich seit Januar", "2025-01-01", "9999-12-31");
        asks("was habe ich nach dem 3. März gegessen", "2025-03-04", "9999-12-31");
        asks("wen habe ich am Montagabend gesehen", "2025-03-10", "2025-03-11");
        asks("was war letzten Mittwoch", "2025-03-05", "2025-03-06");
        asks("was war an Weihnachten 2023", "2023-12-25", "2023-12-26");
        asks("was war letzte woche montag", "2025-03-03", "2025-03-10");
        asks("wann ist die Besprechung am Donnerstag", "2025-03-13", "2025-03-14");
        asks("Was habe ich heute Morgen gegessen?", "2025-03-12", "2025-03-13");
        asks("Was mache ich morgen?", "2025-03-13", "2025-03-14");
        asks("was mache ich übermorgen", "2025-03-14", "2025-03-15");
        asks("Wo werde ich am 12. Mai sein?", "2025-05-12", "2025-05-13");
        asks("Was steht am Montag an?", "2025-03-17", "2025-03-18");
        asks("Was habe ich am 12. Mai vor?", "2025-05-12", "2025-05-13");
        asks("was ist in drei Tagen", "2025-03-15", "2025-03-16");
        asks_none(&[
            "Guten Morgen, wie geht es dir?",
            "Was esse ich am Morgen?",
            "Was mache ich montags?",
            "Was mache ich jeden Montag?",
            "In welchem Fall ist das so?",
            "Was habe ich in drei Tagen gelesen?",
            "was war vorletzte Woche",
            "Wie heißt meine Tochter Mai?",
            "Was macht mir seit Jan am meisten Freude?",
            "Warum mag ich den Sommer?",
            "Arbeite ich von Montag bis Freitag?",
        ]);
    }

    #[test]
    fn spanish_days() {
        asks("¿Qué comí ayer?", "2025-03-11", "2025-03-12");
        asks("¿Qué comí la semana pasada?", "2025-03-03", "2025-03-10");
        asks("que hice anteayer", "2025-03-10", "2025-03-11");
        asks("¿A quién vi hace dos semanas?", "2025-02-23", "2025-03-02");
        asks("que compré hace tres días", "2025-03-09", "2025-03-10");
        asks("¿Qué hice el 12 de mayo?", "2024-05-12", "2024-05-13");
        asks("qué hice el 12 de mayo de 2023", "2023-05-12", "2023-05-13");
        asks("dónde estuve en mayo", "2024-05-01", "2024-06-01");
        asks("quién se fue en 2023", "2023-01-01", "2024-01-01");
        asks("dónde estuve el verano pasado", "2024-06-01", "2024-09-01");
        asks("dónde estuve en el verano del año pasado", "2024-01-01", "2025-01-01");
        asks("qué hice entre marzo y mayo", "2024-03-01", "2024-06-01");
        asks("qué hice del 3 al 5 de febrero", "2025-02-03", "2025-02-06");
        asks("qué compré antes de Navidad", "-009999-01-01", "2024-12-25");
        asks("qué como desde enero", "2025-01-01", "9999-12-31");
        asks("¿a quién vi el lunes?", "2025-03-10", "2025-03-11");
        asks("¿Qué voy a hacer mañana por la mañana?", "2025-03-13", "2025-03-14");
        asks("¿Qué tengo el 12 de mayo?", "2025-05-12", "2025-05-13");
        asks("qué voy a hacer dentro de tres días", "2025-03-15", "2025-03-16");
        asks_none(&[
            "¿Qué como por la mañana?",
            "¿Qué hago los lunes?",
            "¿qué hago todos los sábados?",
            "¿Es tarde para comer?",
            "¿Quién vive en el mar?",
        ]);
    }

    #[test]
    fn french_days() {
        asks("Qu'est-ce que j'ai mangé hier ?", "2025-03-11", "2025-03-12");
        asks("qu'est-ce que j'ai fait avant-hier", "2025-03-10", "2025-03-11");
        asks("Qu’ai-je acheté la semaine dernière ?", "2025-03-03", "2025-03-10");
        asks("qui ai-je vu il y a deux semaines", "2025-02-23", "2025-03-02");
        asks("qui ai-je vu il y a six jours", "2025-03-06", "2025-03-07");
        asks("qui ai-je vu il y a deux mois", "2024-12-28", "2025-01-28");
        asks("qu'est-ce que j'ai fait le 12 mai ?", "2024-05-12", "2024-05-13");
        asks("où étais-je le 1er mai 2023", "2023-05-01", "2023-05-02");
        asks("où étais-je en mars", "2025-03-01", "2025-04-01");
        asks("où étais-je en 2023 ?", "2023-01-01", "2024-01-01");
        asks("où étais-je l'été dernier", "2024-06-01", "2024-09-01");
        asks("où étais-je en été", "2024-06-01", "2024-09-01");
        asks("où étais-je l'an dernier", "2024-01-01", "2025-01-01");
        asks("qu'est-ce que j'ai fait entre mars et mai", "2024-03-01", "2024-06-01");
        asks("qu'ai-je fait du 3 au 5 février", "2025-02-03", "2025-02-06");
        asks("qu'est-ce que j'ai acheté avant Noël", "-009999-01-01", "2024-12-25");
        asks("qu'est-ce que je mange depuis janvier", "2025-01-01", "9999-12-31");
        asks("qui ai-je vu lundi dernier", "2025-03-10", "2025-03-11");
        asks("qui ai-je vu le lundi dernier", "2025-03-10", "2025-03-11");
        asks("qu'est-ce que je vais faire le 12 mai", "2025-05-12", "2025-05-13");
        asks("qu'est-ce que je fais dans trois jours", "2025-03-15", "2025-03-16");
        asks_none(&[
            "Où a été la voiture ?",
            "Qu'est-ce que je fais le lundi ?",
            "Que fais-je tous les lundis ?",
            "Y a-t-il de la vie sur Mars ?",
            "Qu'est-ce que je n'ai jamais mangé, mais aime ?",
        ]);
    }

    #[test]
    fn italian_days() {
        asks("Cosa ho mangiato ieri?", "2025-03-11", "2025-03-12");
        asks("cosa ho fatto l'altro ieri", "2025-03-10", "2025-03-11");
        asks("Che cosa ho comprato la settimana scorsa?", "2025-03-03", "2025-03-10");
        asks("chi ho visto tre settimane fa", "2025-02-16", "2025-02-23");
        asks("Cosa ho fatto il 12 maggio?", "2024-05-12", "2024-05-13");
        asks("dove ero nel 2023", "2023-01-01", "2024-01-01");
        asks("dove sono stato a maggio", "2024-05-01", "2024-06-01");
        asks("dove ero l'estate scorsa", "2024-06-01", "2024-09-01");
        asks("cosa ho fatto tra marzo e maggio", "2024-03-01", "2024-06-01");
        asks("cosa ho fatto dal 3 al 5 febbraio", "2025-02-03", "2025-02-06");
        asks("cosa ho comprato prima di Natale", "-009999-01-01", "2024-12-25");
        asks("cosa mangio da gennaio", "2025-01-01", "9999-12-31");
        asks("chi ho visto sabato?", "2025-03-08", "2025-03-09");
        asks("cosa farò il 12 maggio", "2025-05-12", "2025-05-13");
        asks("cosa faccio fra tre giorni", "2025-03-15", "2025-03-16");
        asks_none(&[
            "Cosa faccio ogni lunedì?",
            "cosa faccio il sabato",
            "Che cosa ho letto in tre giorni?",
            "Chi è andato in mar aperto?",
        ]);
    }

    #[test]
    fn portuguese_days() {
        asks("O que eu comi ontem?", "2025-03-11", "2025-03-12");
        asks("o que fiz anteontem", "2025-03-10", "2025-03-11");
        asks("O que eu comprei na semana passada?", "2025-03-03", "2025-03-10");
        asks("quem eu vi há três semanas?", "2025-02-16", "2025-02-23");
        asks("quem eu vi três semanas atrás?", "2025-02-16", "2025-02-23");
        asks("o que eu fiz em maio deste ano", "2025-01-01", "2026-01-01");
        asks("O que eu fiz em 12 de maio?", "2024-05-12", "2024-05-13");
        asks("onde eu estava em maio de 2023", "2023-05-01", "2023-06-01");
        asks("onde eu estava em 2023", "2023-01-01", "2024-01-01");
        asks("onde eu estava no verão passado", "2024-06-01", "2024-09-01");
        asks("o que fiz entre março e maio", "2024-03-01", "2024-06-01");
        asks("o que eu fiz de 3 a 5 de fevereiro", "2025-02-03", "2025-02-06");
        asks("o que comprei antes do Natal", "-009999-01-01", "2024-12-25");
        asks("O que eu fiz no sábado?", "2025-03-08", "2025-03-09");
        asks("o que eu fiz na sexta?", "2025-03-07", "2025-03-08");
        asks("o que vou fazer amanhã de manhã", "2025-03-13", "2025-03-14");
        asks("o que eu vou fazer no sábado", "2025-03-15", "2025-03-16");
        asks("o que eu faço daqui a três dias", "2025-03-15", "2025-03-16");
        asks_none(&[
            "O que eu como de manhã?",
            "o que eu disse na segunda vez?",
            "O que eu faço todo sábado?",
            "o que eu faço todas as segundas-feiras?",
        ]);
    }

    #[test]
    fn dutch_days() {
        asks("Wat heb ik gisteren gegeten?", "2025-03-11", "2025-03-12");
        asks("wat deed ik eergisteren", "2025-03-10", "2025-03-11");
        asks("wat deed ik vorige week", "2025-03-03", "2025-03-10");
        asks("waar was ik afgelopen weekend", "2025-03-08", "2025-03-10");
        asks("wie zag ik drie weken geleden", "2025-02-16", "2025-02-23");
        asks("Wat deed ik op 12 mei?", "2024-05-12", "2024-05-13");
        asks("waar was ik in mei", "2024-05-01", "2024-06-01");
        asks("waar was ik in 2023", "2023-01-01", "2024-01-01");
        asks("waar was ik afgelopen zomer", "2024-06-01", "2024-09-01");
        asks("wat deed ik tussen maart en mei", "2024-03-01", "2024-06-01");
        asks("wat deed ik van 3 tot 5 februari", "2025-02-03", "2025-02-06");
        asks("wat eet ik sinds januari", "2025-01-01", "9999-12-31");
        asks("wie zag ik maandagavond?", "2025-03-10", "2025-03-11");
        asks("wat ga ik morgen doen", "2025-03-13", "2025-03-14");
        asks("wat ga ik doen op 12 mei", "2025-05-12", "2025-05-13");
        asks("wat ga ik met Anna doen op 3 mei?", "2025-05-03", "2025-05-04");
        asks("waar ben ik over drie dagen", "2025-03-15", "2025-03-16");
        asks_none(&[
            "Wat doe ik elke maandag?",
            "Waar heb ik last van?",
            "wat doe ik in de morgen",
            "Wat heb ik in drie dagen gelezen?",
        ]);
    }

    #[test]
    fn japanese_days() {
        asks("昨日何を食べた？", "2025-03-11", "2025-03-12");
        asks("一昨日は何をした？", "2025-03-10", "2025-03-11");
        asks("先週何を買った？", "2025-03-03", "2025-03-10");
        asks("先週の月曜日に会ったのは誰？", "2025-03-03", "2025-03-10");
        asks("3週間前に誰に会った？", "2025-02-16", "2025-02-23");
        asks("2023年のクリスマスに何をした？", "2023-12-25", "2023-12-26");
        asks("三日前に食べたものは？", "2025-03-09", "2025-03-10");
        asks("5月12日に何をした？", "2024-05-12", "2024-05-13");
        asks("五月十二日に何をした？", "2024-05-12", "2024-05-13");
        asks("2023年5月12日（金曜日）に何をした？", "2023-05-12", "2023-05-13");
        asks("2023年に何をした？", "2023-01-01", "2024-01-01");
        asks("５月はどこにいた？", "2024-05-01", "2024-06-01");
        asks("去年の夏はどこにいた？", "2024-01-01", "2025-01-01");
        asks("3月から5月まで何をした？", "2024-03-01", "2024-06-01");
        asks("2月3日から5日まで何をした？", "2025-02-03", "2025-02-06");
        asks("クリスマスの前に何を買った？", "-009999-01-01", "2024-12-25");
        asks("月曜日に誰に会った？", "2025-03-10", "2025-03-11");
        asks("明日は何をする？", "2025-03-13", "2025-03-14");
        asks("5月12日の予定は？", "2025-05-12", "2025-05-13");
        asks_none(&[
            "毎週月曜日に何をする？",
            "明日香さんの猫の名前は？",
            "再来週は何がある？",
            "5か月の子犬は何を食べる？",
        ]);
    }

    #[test]
    fn chinese_days() {
        asks("昨天我吃了什么？", "2025-03-11", "2025-03-12");
        asks("前天我做了什么", "2025-03-10", "2025-03-11");
        asks("上周我买了什么？", "2025-03-03", "2025-03-10");
        asks("上周一我见了谁？", "2025-03-03", "2025-03-10");
        asks("我三周前见了谁？", "2025-02-16", "2025-02-23");
        asks("今年五月我要做什么", "2025-01-01", "2026-01-01");
        asks("两天前天气怎么样", "2025-03-10", "2025-03-11");
        asks("5月12日我做了什么？", "2024-05-12", "2024-05-13");
        asks("五月十二号我做了什么？", "2024-05-12", "2024-05-13");
        asks("2023年我在哪里？", "2023-01-01", "2024-01-01");
        asks("去年夏天我在哪里？", "2024-01-01", "2025-01-01");
        asks("三月到五月我在哪里", "2024-03-01", "2024-06-01");
        asks("2月3号到5号我在哪里", "2025-02-03", "2025-02-06");
        asks("圣诞节之前我买了什么", "-009999-01-01", "2024-12-25");
        asks("周一我见了谁？", "2025-03-10", "2025-03-11");
        asks("明天我做什么？", "2025-03-13", "2025-03-14");
        asks("5月12日有什么安排？", "2025-05-12", "2025-05-13");
        asks_none(&[
            "我每周一做什么？",
            "之前天气怎么样？",
            "日本周边有什么？",
            "晚上周杰伦唱了什么？",
            "我一周五天上班，两周一次游泳吗",
            "五月天是什么乐队？",
            "上上周我在哪里",
            "他说明天气不好了吗",
        ]);
    }

    #[test]
    fn a_statement_in_another_language_names_its_day() {
        for (statement, first) in [
            ("Gestern war ich beim Zahnarzt", "2025-03-11"),
            ("Der Start ist am 3. Mai", "2025-05-03"),
            ("Ich fliege in drei Tagen nach Rom", "2025-03-15"),
            ("La boda es el 3 de mayo", "2025-05-03"),
            ("Le mariage est le 3 mai, chez nous", "2025-05-03"),
            ("Il matrimonio è il 3 maggio", "2025-05-03"),
            ("O casamento é em 3 de maio", "2025-05-03"),
            ("De bruiloft is op 3 mei", "2025-05-03"),
            ("結婚式は5月3日です", "2025-05-03"),
            ("婚礼在5月3日", "2025-05-03"),
        ] {
            let found = days_spoken_of(statement, time(ASKED));
            assert_eq!(found.len(), 1, "{statement}");
            assert_eq!(found[0].first.to_string(), first, "{statement}");
        }
        for none in ["Ich schwimme montags", "Nado los lunes", "Bis Dienstag!", "J'ai été malade"]
        {
            assert_eq!(days_spoken_of(none, time(ASKED)), [], "{none}");
        }
    }

    #[test]
    fn days_meet_if_they_share_one() {
        let of = |question: &str| days_asked_for(question, time(ASKED))[0];
        assert!(of("in May").meet(&of("12 May")) && of("31 May").meet(&of("in May")));
        assert!(!of("in May").meet(&of("1 June")) && !of("yesterday").meet(&of("today")));
        let of_time = Days::of(time(ASKED)).expect("in the calendar");
        assert!(of("this week").meet(&of_time) && Days::of(Time(i64::MAX)).is_none());
    }
}
