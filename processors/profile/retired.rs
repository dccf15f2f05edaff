//! Names the keys that profiles once had, with what takes the place of each: somebody's own profile
//! outlives the version it was written for.

/// A key that no profile has any more. It is never taken away from this table, and no new key has
/// its name.
struct Retired {
    table: &'static str,
    key: &'static str,
    /// The cure, as the error gives it after "is gone:".
    instead: &'static str,
}

const RETIRED: &[Retired] = &[
    Retired {
        table: "rank",
        key: "silence",
        instead: "each memory has a `relevance` and each reply a `match` now, which is `none` by the bounds in [rank.relevance]; \
                  a recall that wants only sure answers asks with `min_relevance`",
    },
    Retired {
        table: "rank",
        key: "floor_cosine",
        instead: "`floor` in [rank] leaves out what is far below the best memory, and `min_relevance` in a recall what hardly answers",
    },
];

/// All of them at once, so that a profile is mended in one go. None: the profile has no such key.
pub fn found(profile: &toml::Table) -> Option<String> {
    let is_there = |retired: &&Retired| {
        profile
            .get(retired.table)
            .and_then(toml::Value::as_table)
            .is_some_and(|table| table.contains_key(retired.key))
    };
    let said = |retired: &Retired| {
        format!("{}.{} is gone: {}; remove the key", retired.table, retired.key, retired.instead)
    };
    let all: Vec<String> = RETIRED.iter().filter(is_there).map(said).collect();
    (!all.is_empty()).then(|| all.join(". "))
}

#[cfg(test)]
mod tests {
    use super::super::file::{BUILT_IN, load};
    use super::*;

    fn error(profile: &str) -> String {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("mine.toml");
        std::fs::write(&file, profile).expect("a disk");
        load(file.to_str().expect("a plain name"))
            .err()
            .expect("it has a key that is gone")
            .to_string()
    }

    #[test]
    fn a_key_of_an_older_version_is_named_with_what_takes_its_place() {
        let both = "base = \"keepsake\"\n[rank]\nfloor = 0.1\nfloor_cosine = 0.1\nsilence = { doubling = 0.07, words = 1.0 }";
        let without_base = "[rank]\nsilence = { doubling = 0.07, words = 1.0 }";
        for part in [
            "mine.toml",
            "rank.silence is gone",
            "`match`",
            "`relevance`",
            "rank.floor_cosine is gone",
            "`floor` in [rank]",
        ] {
            assert!(error(both).contains(part), "{part}: {}", error(both));
        }
        assert!(error(without_base).contains("rank.silence is gone"), "{}", error(without_base));
        assert!(!error(without_base).contains("floor_cosine"));
        assert!(
            !error("base = \"keepsake\"\n[rank]\nsilense = 1.0").contains("is gone"),
            "a word that never was is still unknown"
        );
    }

    #[test]
    fn no_built_in_profile_has_a_key_that_is_gone() {
        for (name, text) in BUILT_IN {
            assert_eq!(found(&text.parse().expect("TOML")), None, "{name}");
        }
    }
}
