//! Stops a configuration that asks for a part which this build lacks. A part is a cargo feature of the
//! program; `Cargo.toml` lists them.

use super::config::Config;
use domain::fault::lacking;

/// Returns whether this build has a part that options can ask for.
pub fn is_built(part: &str) -> bool {
    match part {
        "llm" => cfg!(feature = "llm"),
        "oauth" => cfg!(feature = "oauth"),
        "registry" => cfg!(feature = "registry"),
        "spans" => cfg!(feature = "spans"),
        other => unreachable!("no option asks for the part {other}"),
    }
}

/// Names the first option that asks for a part which `is_built` denies.
pub fn check(config: &Config, is_built: impl Fn(&str) -> bool) -> Result<(), String> {
    let asked = [
        ("llm.url", config.llm.is_on(), "llm"),
        ("gateway.oauth.issuer", config.gateway.oauth.is_on(), "oauth"),
        ("schemas.registry", config.schemas.is_on(), "registry"),
        ("tracing.endpoint", config.tracing.is_on(), "spans"),
    ];
    match asked.iter().find(|(_, is_on, part)| *is_on && !is_built(part)) {
        Some((option, _, part)) => Err(lacking(option, part)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Layers;

    #[test]
    fn an_option_that_asks_for_a_part_which_the_build_lacks_stops_by_name() {
        for (option, part) in [
            ("llm.url", "llm"),
            ("gateway.oauth.issuer", "oauth"),
            ("schemas.registry", "registry"),
            ("tracing.endpoint", "spans"),
        ] {
            let mut layers = Layers::load(None, std::iter::empty()).expect("the defaults are read");
            layers.set("llm.model", "any", "--set").expect("the option exists");
            if part == "oauth" {
                let resource = "http://localhost:1/mcp";
                layers.set("gateway.oauth.resource", resource, "--set").expect("the option exists");
            }
            layers.set(option, "http://localhost:1", "--set").expect("the option exists");
            // A build with all parts takes what one without this part must not ignore.
            match layers.checked() {
                Ok(config) => {
                    let why = check(&config, |other| other != part).expect_err(option);
                    assert_eq!(why, lacking(option, part));
                    assert_eq!(check(&config, |other| other == part), Ok(()));
                }
                Err(fault) => {
                    assert!(!is_built(part), "{fault}");
                    assert!(fault.to_string().contains(&lacking(option, part)), "{fault}");
                }
            }
        }
    }
}
