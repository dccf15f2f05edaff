//! Options under the names that a policy's document gives them. A profile sets them in `[options]`,
//! and some documents also as environment variables. Each stands for an option of the profile.
//!
//! To add the options of a policy: a constant in its folder, and a line in [`of_document`].

use crate::{alma, lynkr, memory_platform, memory_spec, talome};

/// An option of a document, with the paths in the profile that take its value.
#[derive(Clone, Copy, Debug)]
pub struct DocumentOption {
    pub name: &'static str,
    /// Mostly one; a switch of the whole memory is read by the gate and by the ranking.
    pub paths: &'static [&'static str],
}

/// The options of a document.
#[derive(Clone, Copy, Debug, Default)]
pub struct DocumentOptions {
    /// The beginning of the names of its environment variables, if it has any.
    pub environment: Option<&'static str>,
    pub options: &'static [DocumentOption],
}

impl DocumentOptions {
    /// Finds an option by its name, whatever the case.
    pub fn named(&self, name: &str) -> Option<&'static DocumentOption> {
        self.options.iter().find(|option| option.name.eq_ignore_ascii_case(name))
    }

    pub fn names(&self) -> String {
        let names: Vec<&str> = self.options.iter().map(|option| option.name).collect();
        names.join(", ")
    }
}

/// The options of the document that this policy follows; empty for a policy without such names.
pub fn of_document(policy: &str) -> DocumentOptions {
    match policy {
        "alma" => alma::options::OPTIONS,
        "lynkr" => lynkr::options::OPTIONS,
        "memory-platform" => memory_platform::options::OPTIONS,
        "memory-spec" => memory_spec::options::OPTIONS,
        "talome" => talome::options::OPTIONS,
        _ => DocumentOptions::default(),
    }
}

/// True if some document has an environment variable that begins like this one.
pub fn is_of_a_document(variable: &str) -> bool {
    let prefixes = crate::POLICIES.iter().filter_map(|(name, ..)| of_document(name).environment);
    prefixes.into_iter().any(|prefix| variable.starts_with(prefix))
}
