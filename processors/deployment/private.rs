//! Keeps files for this account alone: sets the mask before the first file, and takes the rights of
//! others away from files that were there before.

use rustix::fs::Mode;
use settings::Config;
use std::fs::{self, Metadata, Permissions};
use std::io::Result;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

/// Who may read an entry beside this account.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Readers {
    Nobody,
    /// The group, if `data.group_may_read` is set.
    Group,
}

/// Keeps all further files of this process unreadable for others.
pub fn keep_private() {
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
}

/// Lets the group read too, if `data.group_may_read` is set.
pub fn keep_as_configured(config: &Config) {
    if config.data.group_may_read {
        rustix::process::umask(Mode::WGRP | Mode::RWXO);
    }
}

/// Gives this program's entries in a directory the rights that new ones get, and the directory too
/// if there are no other entries. `readers` knows the names that this program uses. An entry of
/// another account is logged with the command to run.
///
/// Order matters: a directory is changed after all entries, so that an interrupted repair goes on
/// at the next call. A directory with the right mode is not walked again.
pub fn make_private(dir: &Path, config: &Config, readers: &dyn Fn(&str) -> Option<Readers>) {
    let group = config.data.group_may_read;
    let mut holds_others = false;
    let mut failed = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        match entry.file_name().to_str().and_then(readers) {
            Some(readers) => {
                let group = group && readers == Readers::Group;
                let closed = close(&entry.path(), group);
                failed.extend(closed.err().map(|error| (entry.path(), error)));
            }
            None => holds_others = true,
        }
    }
    if !holds_others {
        // May fail where another account owns a volume: the entries are closed by now.
        let _ = set_rights(dir, group);
    }
    for (path, error) in failed {
        let path = path.display();
        tracing::warn!(
            %error,
            "other accounts may read {path}, and this account may not change that: run \
             `chmod -R go-rwx {path}` as its owner"
        );
    }
}

fn close(path: &Path, group: bool) -> Result<()> {
    let metadata = fs::symlink_metadata(path)?;
    if metadata.is_symlink() || metadata.mode() == wanted(&metadata, group) {
        return Ok(());
    }
    if metadata.is_dir() {
        for entry in fs::read_dir(path)? {
            close(&entry?.path(), group)?;
        }
    }
    set_rights(path, group)
}

fn set_rights(path: &Path, group: bool) -> Result<()> {
    let metadata = fs::metadata(path)?;
    match wanted(&metadata, group) {
        mode if mode == metadata.mode() => Ok(()),
        mode => fs::set_permissions(path, Permissions::from_mode(mode)),
    }
}

fn wanted(metadata: &Metadata, group: bool) -> u32 {
    let of_group = match (group, metadata.is_dir()) {
        (true, true) => 0o050,
        (true, false) => 0o040,
        (false, _) => 0,
    };
    metadata.mode() & !0o077 | of_group
}

#[cfg(test)]
mod tests {
    use super::*;
    use settings::Layers;

    fn config(group_may_read: &str) -> Config {
        let mut layers = Layers::defaults();
        layers.set("data.group_may_read", group_may_read, "test").expect("an option");
        layers.checked().expect("valid")
    }

    #[test]
    fn what_an_earlier_version_made_is_closed_and_what_others_made_is_not() {
        for (group_may_read, with_others, expected) in [
            ("false", false, [0o700, 0o700, 0o600, 0o600]),
            ("true", false, [0o750, 0o750, 0o640, 0o600]),
            ("false", true, [0o755, 0o700, 0o600, 0o600]),
        ] {
            let scratch = tempfile::tempdir().expect("a temporary directory");
            let root = scratch.path().join("store");
            let shard = root.join("keepsake.events-3");
            let (file, lock) = (shard.join("db"), root.join("LOCK"));
            fs::create_dir_all(&shard).expect("a new directory");
            let photo = root.join("photo.jpg");
            let mut made = vec![(&root, 0o755), (&shard, 0o755), (&file, 0o644), (&lock, 0o644)];
            made.extend(with_others.then_some((&photo, 0o644)));
            for (path, mode) in &made {
                if !path.is_dir() {
                    fs::write(path, "x").expect("writes");
                }
                fs::set_permissions(path, Permissions::from_mode(*mode)).expect("sets the mode");
            }
            let elsewhere = scratch.path().join("elsewhere");
            fs::write(&elsewhere, "x").expect("writes");
            fs::set_permissions(&elsewhere, Permissions::from_mode(0o644)).expect("sets the mode");
            std::os::unix::fs::symlink(&elsewhere, shard.join("link")).expect("a link");
            let readers = |name: &str| match name {
                "LOCK" => Some(Readers::Nobody),
                _ => name.starts_with("keepsake.").then_some(Readers::Group),
            };
            make_private(&root, &config(group_may_read), &readers);
            let mode = |path: &Path| fs::metadata(path).expect("there").mode() & 0o777;
            assert_eq!([&root, &shard, &file, &lock].map(|path| mode(path)), expected);
            assert_eq!(mode(&elsewhere), 0o644, "a link is not followed");
            if with_others {
                assert_eq!(mode(&photo), 0o644);
            }
        }
    }
}
