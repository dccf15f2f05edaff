//! Detects keys that earlier versions of the profile had and names the replacement of each, because
//! users' own profiles outlive the version they were written for.

/// A key that no profile has any more. Invariant: no entry is removed from [`RETIRED`], and no new
/// key takes a retired name.
struct Retired {
    table: &'static str,
    key: &'static str,
    /// The replacement, as the error names it after "is gone:".
    instead: &'static str,
}

const RETIRED: &[Retired] = &[
    Retired {
        table: "rank",
        key: "silence",
        instead: "each memory has a `relevance` and each reply a `match` now, which is `none` by \
                  the bounds in [rank.relevance]; a recall that wants only sure answers asks with \
                  `min_relevance`",
    },
    Retired {
        table: "rank",
        key: "floor_cosine",
        instead: "`floor` in [rank] leaves out what is far below the best memory, and \
                  `min_relevance` in a recall what hardly answers",
    },
];

/// Lists all retired keys of a profile at once, so that one edit repairs the profile. Returns
/// `None` if there are none.
pub fn found(profile: &toml::Table) -> Option<String> {
    let mut errors = Vec::new();
    for Retired { table, key, instead } in RETIRED {
        let keys = profile.get(*table).and_then(toml::Value::as_table);
        if keys.is_some_and(|keys| keys.contains_key(*key)) {
            errors.push(format!("{table}.{key} is gone: {instead}; remove the key"));
        }
    }
    (!errors.is_empty()).then(|| errors.join(". "))
}

#[cfg(test)]
mod tests {
    use super::super::file::load;
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
        let both = "base = \"keepsake\"\n[rank]\nfloor = 0.1\nfloor_cosine = 0.1\n\
                    silence = { doubling = 0.07, words = 1.0 }";
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
            "a misspelled key is unknown and not retired"
        );
    }

    #[test]
    fn no_built_in_profile_has_a_key_that_is_gone() {
        for (name, text, _) in policies::POLICIES {
            assert_eq!(found(&text.parse().expect("TOML")), None, "{name}");
        }
    }
}
