//! Groups the commands of `keepsake --help`: the commands that a user needs first, then all others
//! by audience.

use clap::Command;

const GROUPS: [(&str, &[&str]); 3] = [
    ("Commands", &["serve", "mcp", "connect", "remember", "recall"]),
    (
        "Memories",
        &[
            "publish", "update", "forget", "feedback", "list", "get", "explain", "about", "stats",
            "export", "import", "hooks", "status",
        ],
    ),
    ("Trying and measuring", &["demo", "eval", "whatif", "bench", "model"]),
];
/// The heading of all other commands.
const OTHERS: &str = "For operators";

/// Replaces the one long list of commands by groups.
pub fn grouped(command: Command) -> Command {
    let width = command.get_subcommands().map(|it| it.get_name().len()).max().unwrap_or(0);
    let line = |it: &Command| {
        let about = it.get_about().map(ToString::to_string).unwrap_or_default();
        format!("  {:<width$}  {about}\n", it.get_name())
    };
    let shown = || command.get_subcommands().filter(|it| !it.is_hide_set());
    let mut text = String::new();
    for (heading, names) in GROUPS {
        let of_group = names.iter().filter_map(|name| shown().find(|it| it.get_name() == *name));
        text.push_str(&format!("{heading}:\n{}\n", of_group.map(line).collect::<String>()));
    }
    let others = shown()
        .filter(|it| !GROUPS.iter().any(|(_, names)| names.contains(&it.get_name())))
        .map(line)
        .collect::<String>();
    text.push_str(&format!("{OTHERS}:\n{others}"));
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{text}\nOptions:\n{{options}}\
         {{after-help}}"
    );
    command.help_template(template)
}
