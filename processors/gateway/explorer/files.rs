//! Embeds the files of the explorer into the program. A test compares the table with the directory.

macro_rules! files {
    ($($path:literal)*) => {
        &[$(($path, include_bytes!($path))),*]
    };
}

/// Each file that a browser may load, with its path below `/explorer/`.
pub const FILES: &[(&str, &[u8])] = files!["index.html"];
