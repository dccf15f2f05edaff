//! Projects in which hooks are on. Each has a user of its own, so that no project sees another's
//! memories, unless its person asked for that.

use super::State;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use uuid::Uuid;

/// Bytes of the directory's name in the name of the user.
const NAME_BYTES: usize = 40;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Project {
    pub dir: PathBuf,
    /// The tenant and user who has the memories of the project.
    pub user: String,
    /// Earlier messages stay out: `keepsake import` is for those.
    pub since_ms: i64,
}

/// The user of a project: readable, and another one for another directory of the same name.
pub fn user_of(owner: &str, dir: &Path) -> String {
    let name = dir.file_name().unwrap_or_default().to_string_lossy();
    let mut name: String = name.chars().filter(|c| !c.is_control() && *c != '/').collect();
    name.truncate(name.floor_char_boundary(NAME_BYTES));
    let id = Uuid::new_v5(&Uuid::NAMESPACE_URL, dir.as_os_str().as_encoded_bytes());
    format!("{owner}@{name}-{}", &id.simple().to_string()[..8])
}

impl State {
    /// The project of a directory: the innermost one around it, unless the directory is excluded.
    pub fn project_of(&self, dir: &Path) -> Option<&Project> {
        if self.excluded.iter().any(|excluded| dir.starts_with(excluded)) {
            return None;
        }
        let around = self.projects.iter().filter(|project| dir.starts_with(&project.dir));
        around.max_by_key(|project| project.dir.components().count())
    }

    /// Turns the hooks on in a project, or gives it another user.
    pub fn turn_on(&mut self, project: Project) {
        match self.projects.iter_mut().find(|known| known.dir == project.dir) {
            Some(known) => known.user = project.user,
            None => self.projects.push(project),
        }
    }

    /// Turns them off. What waits still goes out.
    pub fn turn_off(&mut self, dir: &Path) -> bool {
        let before = self.projects.len();
        self.projects.retain(|project| project.dir != dir);
        self.transcripts.retain(|transcript| transcript.project != dir);
        self.projects.len() < before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn project(dir: &str) -> Project {
        Project { dir: dir.into(), user: user_of("default/ada", Path::new(dir)), since_ms: 0 }
    }

    #[test]
    fn the_innermost_project_counts_and_an_excluded_directory_has_none() {
        let mut state = State::default();
        state.turn_on(project("/a"));
        state.turn_on(project("/a/b"));
        state.excluded.push("/a/b/secret".into());
        let of =
            |dir: &str| state.project_of(Path::new(dir)).map(|it| it.dir.display().to_string());
        assert_eq!(of("/a/b/c").as_deref(), Some("/a/b"));
        assert_eq!(of("/a/bc").as_deref(), Some("/a"), "a name is not a beginning");
        assert_eq!(of("/a/b/secret/x"), None);
        assert_eq!(of("/c"), None);
        assert!(state.turn_off(Path::new("/a")) && !state.turn_off(Path::new("/a")));
    }

    #[test]
    fn law_isolated_projects_of_the_same_name_are_two_users() {
        let [one, other] = ["/a/api", "/b/api"].map(|dir| project(dir).user);
        assert!(one.starts_with("default/ada@api-") && one != other, "{one} {other}");
        assert!(user_of("ada", &PathBuf::from("/x".repeat(90)).join("é".repeat(90))).len() < 128);
    }
}
