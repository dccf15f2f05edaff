//! Fills in the options whose default depends on another option or on this machine: the directories
//! of the data, the shards and the model, and how long events stay. `config show` prints the
//! result.

use super::tables::{find, put};
use std::path::{Path, PathBuf};
use toml::{Table, Value};

/// The directory of the shards on a cluster.
const STORE_OF_CLUSTER: &str = ".keepsake/data";
/// 30 days: the raw turns of one person stay on that person's disk, so they do not stay for ever.
const EMBEDDED_KEEP_MS: i64 = 30 * 86_400_000;

/// Returns the options with every default filled in. Values of a wrong type stay as they are and
/// become an error where the table is read.
pub fn derived(merged: &Table) -> Table {
    let mut table = merged.clone();
    let given = |path| match find(merged, path) {
        Some(Value::String(text)) if text.is_empty() => None,
        other => Some(other),
    };
    let data = match given("data.dir") {
        None => user_data_dir(),
        Some(dir) => absolute(Path::new(dir.and_then(Value::as_str).unwrap_or_default())),
    };
    let servers = find(merged, "kafka.bootstrap_servers");
    let is_embedded = servers.and_then(Value::as_str) == Some("embedded");
    if find(merged, "data.dir").is_some_and(Value::is_str) {
        put(&mut table, "data.dir", text(&data));
    }
    if given("store.dir").is_none() {
        let store = if is_embedded { data.join("store") } else { STORE_OF_CLUSTER.into() };
        put(&mut table, "store.dir", text(&store));
    }
    if given("embedder.model").is_none()
        && let Some(found) =
            model_directories(&data).into_iter().find(|directory| has_model(directory))
    {
        put(&mut table, "embedder.model", text(&found));
    }
    let encoder = find(&table, "embedder.model").and_then(Value::as_str).map(PathBuf::from);
    if given("conflict.model").is_none()
        && let Some(judge) =
            encoder.map(|encoder| encoder.join("judge")).filter(|one| has_model(one))
    {
        put(&mut table, "conflict.model", text(&judge));
    }
    if find(merged, "events.keep_ms").and_then(Value::as_integer) == Some(-1) {
        let keep_ms = if is_embedded { EMBEDDED_KEEP_MS } else { 0 };
        put(&mut table, "events.keep_ms", Value::Integer(keep_ms));
    }
    table
}

/// The directories in which an encoder is looked for, unless `embedder.model` names one: beside the
/// program, among the installed files, in the data directory, and where `deploy/model/setup.sh`
/// puts an encoder in a checkout.
pub fn model_directories(data: &Path) -> Vec<PathBuf> {
    // A link in a directory of programs leads to where the program was unpacked.
    let program = std::env::current_exe().and_then(std::fs::canonicalize).ok();
    let folder = program.as_deref().and_then(Path::parent);
    let beside = folder.map(|folder| folder.join("model"));
    let shared = folder.and_then(Path::parent).map(|root| root.join("share/keepsake/model"));
    let here = absolute(Path::new(".keepsake/model"));
    beside.into_iter().chain(shared).chain([data.join("model"), here]).collect()
}

fn has_model(directory: &Path) -> bool {
    directory.join("model.onnx").is_file()
}

fn user_data_dir() -> PathBuf {
    let xdg = std::env::var_os("XDG_DATA_HOME").map(PathBuf::from);
    data_dir_of(xdg, std::env::home_dir(), rustix::process::geteuid().is_root())
}

/// Follows the [XDG base directories](https://specifications.freedesktop.org/basedir-spec/latest/),
/// which ignore a relative path. Services of root keep their state in `/var/lib`.
fn data_dir_of(xdg: Option<PathBuf>, home: Option<PathBuf>, is_root: bool) -> PathBuf {
    let home = home.filter(|home| home.is_absolute());
    match (xdg.filter(|dir| dir.is_absolute()), home) {
        (Some(data), _) => data.join("keepsake"),
        (None, Some(home)) if !is_root => {
            let of_system = if cfg!(target_os = "macos") {
                "Library/Application Support"
            } else {
                ".local/share"
            };
            home.join(of_system).join("keepsake")
        }
        _ => "/var/lib/keepsake".into(),
    }
}

/// Makes a path absolute, so that errors name a directory that can be found from anywhere.
fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

fn text(path: &Path) -> Value {
    Value::String(path.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::super::Layers;
    use super::*;

    fn shown(options: &[(&str, &str)], path: &str) -> String {
        let mut layers = Layers::defaults();
        for (path, value) in options {
            layers.set(path, value, "test").expect("the value has the type of the option");
        }
        let all = layers.shown();
        all.into_iter().find(|(name, _, _)| name == path).expect("an option").1
    }

    #[test]
    fn the_data_of_a_user_lie_in_the_users_own_directory() {
        let home = || Some("/home/ada".into());
        for (xdg, home, is_root, expected) in [
            (Some("/data"), home(), false, "/data/keepsake"),
            (Some("data"), home(), false, "/home/ada/.local/share/keepsake"),
            (None, home(), false, "/home/ada/.local/share/keepsake"),
            (None, Some("/root".into()), true, "/var/lib/keepsake"),
            (None, None, false, "/var/lib/keepsake"),
        ] {
            let found = data_dir_of(xdg.map(PathBuf::from), home, is_root);
            if !cfg!(target_os = "macos") || is_root {
                assert_eq!(found, Path::new(expected));
            }
        }
    }

    #[test]
    fn the_embedded_log_has_its_shards_beside_it_and_a_cluster_has_not() {
        let data = ("data.dir", "/d");
        let cluster = ("kafka.bootstrap_servers", "localhost:9092");
        assert_eq!(shown(&[data], "store.dir"), "\"/d/store\"");
        assert_eq!(shown(&[data, ("store.dir", "/s")], "store.dir"), "\"/s\"");
        assert_eq!(shown(&[data, cluster], "store.dir"), "\".keepsake/data\"");
        let relative = shown(&[("data.dir", "d")], "data.dir");
        assert!(relative.starts_with("\"/") && relative.ends_with("/d\""), "{relative}");
    }

    #[test]
    fn events_stay_for_a_month_on_the_embedded_log_and_for_ever_on_a_cluster() {
        let cluster = ("kafka.bootstrap_servers", "localhost:9092");
        assert_eq!(shown(&[], "events.keep_ms"), "2592000000");
        assert_eq!(shown(&[cluster], "events.keep_ms"), "0");
        assert_eq!(shown(&[("events.keep_ms", "0")], "events.keep_ms"), "0");
    }

    /// Holds memory-spec 7.
    #[test]
    fn a_model_is_found_in_the_data_directory_unless_the_option_names_one() {
        let data = tempfile::tempdir().expect("a temporary directory");
        let model = data.path().join("model");
        let directories = model_directories(data.path());
        assert!(
            directories.contains(&model)
                && directories.iter().all(|directory| directory.is_absolute())
        );
        std::fs::create_dir(&model).expect("creates a directory");
        std::fs::write(model.join("model.onnx"), "").expect("writes a file");
        let dir = ("data.dir", data.path().to_str().expect("a name in UTF-8"));
        let found = shown(&[dir], "embedder.model");
        assert!(directories.iter().any(|directory| found == format!("{:?}", directory)), "{found}");
        assert_eq!(shown(&[dir, ("embedder.model", "hash")], "embedder.model"), "\"hash\"");
        assert_eq!(shown(&[dir], "conflict.model"), "\"\"");
        let judge = model.join("judge");
        std::fs::create_dir(&judge).expect("a directory of the test's own");
        std::fs::write(judge.join("model.onnx"), "").expect("a file of the test's own");
        assert_eq!(shown(&[dir], "conflict.model"), format!("{:?}", judge.display().to_string()));
        assert_eq!(shown(&[dir, ("conflict.model", "off")], "conflict.model"), "\"off\"");
    }
}
