//! The table of policies by name: Keepsake's own and, with the cargo feature `published-policies`,
//! those of published documents. A build without the feature refuses their names, so that no other
//! policy ever stands in for them.

use domain::fault::lacking;
use policies::{Entry, KEEPSAKE};
#[cfg(feature = "published-policies")]
use published::POLICIES as PUBLISHED;

#[cfg(not(feature = "published-policies"))]
static PUBLISHED: [Entry; 0] = [];

/// The names of the feature's policies, which a build without them refuses.
const OF_THE_FEATURE: [&str; 5] = ["alma", "lynkr", "memory-spec", "memory-platform", "talome"];

/// Finds a policy of this build. Fails for one that only a build with the feature has.
pub fn find(name: &str) -> Result<Option<&'static Entry>, String> {
    let found = all().find(|entry| entry.name == name);
    if found.is_none() && OF_THE_FEATURE.contains(&name) {
        return Err(lacking(&format!("policy \"{name}\""), "published-policies"));
    }
    Ok(found)
}

/// The names of the policies of this build, and of their built-in profiles.
pub fn names() -> Vec<&'static str> {
    all().map(|entry| entry.name).collect()
}

fn all() -> impl Iterator<Item = &'static Entry> {
    std::iter::once(&KEEPSAKE).chain(&PUBLISHED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_policy_of_the_feature_is_found_or_refused_by_name() {
        for name in OF_THE_FEATURE {
            match find(name) {
                Ok(entry) => assert_eq!(entry.expect("it is in the table").name, name),
                Err(why) => {
                    assert!(PUBLISHED.is_empty() && why.contains("published-policies"), "{why}");
                }
            }
        }
        assert!(PUBLISHED.iter().all(|entry| OF_THE_FEATURE.contains(&entry.name)));
        assert!(find("nobody").expect("no build has it").is_none());
    }
}
