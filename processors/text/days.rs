//! Finds the days that a text names: "on 12 May", "last week", "two weeks ago", "between March and
//! May", "before Christmas".
//!
//! 1. Each place in the words is tried as a day, a month, a season, a year, or a time relative to the
//!    day of the text.
//! 2. The words before it make a bound of it: "before", "after", "since", "between … and …".
//!
//! A day without a year is the nearest one; in a question, the last one.
//!
//! Limit: the words are English, days are of UTC, and seasons are the northern ones.

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
    /// Asks about what has been: no day lies after the day of the text, if a former one is possible.
    Asks,
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
    let reader = Reader { words: text_words(text), today: today.first, mood };
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

    /// The days at a place with the bound that the words before them make: none for "every Monday".
    fn bounded(&self, place: usize) -> Option<(Option<Days>, usize)> {
        let (days, behind) = self.days(place)?;
        let bound = match self.before(place) {
            "the" | "on" | "in" if place > 1 => self.before(place - 1),
            before => before,
        };
        let bounded = match bound {
            "every" | "each" => return Some((None, behind)),
            "before" | "until" | "till" if self.mood == Mood::Asks => {
                Days { first: Date::MIN, until: days.first }
            }
            "after" if self.mood == Mood::Asks => Days { first: days.until, until: Date::MAX },
            "since" if self.mood == Mood::Asks => Days { first: days.first, until: Date::MAX },
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
        let (count, mut unit) = match self.word(place) {
            "couple" => (2, place + 1),
            "few" => (3, place + 1),
            word => (number(word)?, place + 1),
        };
        if self.word(unit) == "of" {
            unit += 1;
        }
        if self.word(unit + 1) != "ago" {
            return None;
        }
        let (span, around) = match self.word(unit).trim_end_matches('s') {
            "day" => (count.days(), 0),
            "week" => (count.weeks(), 3),
            "month" => (count.months(), 15),
            "year" => (count.years(), 180),
            _ => return None,
        };
        Some((Days::around(self.today.checked_sub(span).ok()?, around), unit + 2))
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
        let since = (i64::from(self.today.weekday().to_monday_zero_offset())
            - i64::from(weekday.to_monday_zero_offset()))
        .rem_euclid(7);
        let day = moved(self.today, (-since).days());
        (self.mood == Mood::Asks).then(|| (Days::one(day), place + 1))
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

    /// The days of this year or of a neighbouring one: the last that have begun if the text asks,
    /// else the nearest.
    fn nearest(&self, of_year: impl Fn(i16) -> Option<Days>) -> Option<Days> {
        let year = self.today.year();
        let mut years = (year - 1..=year + 1).filter_map(of_year);
        match self.mood {
            Mood::Asks => years.rfind(|days| days.first <= self.today),
            Mood::Tells => years.min_by_key(|days| {
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
    fn days_meet_if_they_share_one() {
        let of = |question: &str| days_asked_for(question, time(ASKED))[0];
        assert!(of("in May").meet(&of("12 May")) && of("31 May").meet(&of("in May")));
        assert!(!of("in May").meet(&of("1 June")) && !of("yesterday").meet(&of("today")));
        let of_time = Days::of(time(ASKED)).expect("in the calendar");
        assert!(of("this week").meet(&of_time) && Days::of(Time(i64::MAX)).is_none());
    }
}
