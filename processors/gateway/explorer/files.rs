//! Embeds the files of the explorer into the program. A test compares the table with the directory.

macro_rules! files {
    ($($path:literal)*) => {
        &[$(($path, include_bytes!($path))),*]
    };
}

/// Each file that a browser may load, with its path below `/explorer/`.
pub const FILES: &[(&str, &[u8])] = files![
    "actions.js"
    "api.js"
    "charts.js"
    "icon.svg"
    "index.html"
    "lifetime.js"
    "main.js"
    "parts.js"
    "previews.js"
    "screens/ask.js"
    "screens/changes.js"
    "screens/decisions.js"
    "screens/export.js"
    "screens/forgotten.js"
    "screens/memories.js"
    "screens/memory.js"
    "screens/move.js"
    "screens/service.js"
    "screens/start.js"
    "screens/then.js"
    "screens/users.js"
    "style.css"
    "vendor/lit-html.js"
    "words.js"
];
