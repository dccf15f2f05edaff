//! Options under the names that a policy's document gives them. A profile sets them in `[options]`,
//! and some documents also as environment variables. Each stands for an option of the profile.

/// An option of a document, with the paths in the profile that take its value.
#[derive(Clone, Copy, Debug)]
pub struct DocumentOption {
    pub name: &'static str,
    /// Mostly one; a switch of the whole memory is read by the gate and by the ranking.
    pub paths: &'static [&'static str],
}

pub const fn of(name: &'static str, paths: &'static [&'static str]) -> DocumentOption {
    DocumentOption { name, paths }
}

/// The options of a document.
#[derive(Clone, Copy, Debug)]
pub struct DocumentOptions {
    /// The beginning of the names of its environment variables, if it has any.
    pub environment: Option<&'static str>,
    pub options: &'static [DocumentOption],
}

impl DocumentOptions {
    /// For a policy without such names.
    pub const NONE: DocumentOptions = DocumentOptions { environment: None, options: &[] };

    /// Finds an option by its name, whatever the case.
    pub fn named(&self, name: &str) -> Option<&'static DocumentOption> {
        self.options.iter().find(|option| option.name.eq_ignore_ascii_case(name))
    }

    pub fn names(&self) -> String {
        let names: Vec<&str> = self.options.iter().map(|option| option.name).collect();
        names.join(", ")
    }
}
