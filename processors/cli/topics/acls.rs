//! `keepsake topics acls`: prints the least rights of each principal, without asking the brokers.

use clap::{Args, ValueEnum};
use client::show::{self, Output};
use deployment::acls::{Acl, Role, acls};
use serde_json::{Value, json};
use settings::Config;

pub const EXAMPLES: &str = "\
Apply the lines of --format kafka-acls with Kafka's own kafka-acls.sh, as a super user. The same
principal may have several roles: it needs the rights of all of them.

Examples:
  keepsake topics acls
  keepsake topics acls --json
  keepsake topics acls --format kafka-acls --service User:keepsake --publisher User:chat \\
      --asker User:chat --bootstrap kafka:9092 --command-config admin.properties | sh";

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    Table,
    KafkaAcls,
}

#[derive(Args)]
pub struct Acls {
    /// Form of the output
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
    /// Principal of the service, as in User:keepsake; only the roles that are named are printed,
    /// and all if none is
    #[arg(long, value_name = "PRINCIPAL")]
    service: Option<String>,
    /// Principal that publishes events
    #[arg(long, value_name = "PRINCIPAL")]
    publisher: Option<String>,
    /// Principal that asks
    #[arg(long, value_name = "PRINCIPAL")]
    asker: Option<String>,
    /// Principal of `keepsake gateway` and `keepsake mcp`
    #[arg(long, value_name = "PRINCIPAL")]
    gateway: Option<String>,
    /// Principal of the people and jobs that use the other commands
    #[arg(long, value_name = "PRINCIPAL")]
    operator: Option<String>,
    /// Principal of the job that runs `keepsake backup`
    #[arg(long, value_name = "PRINCIPAL")]
    backup: Option<String>,
    /// Principal of those who run `keepsake restore` and `keepsake generation`; give it the rights
    /// for the time of the move
    #[arg(long, value_name = "PRINCIPAL")]
    mover: Option<String>,
    /// Principal of `keepsake map`, if map.topic is set
    #[arg(long, value_name = "PRINCIPAL")]
    mapper: Option<String>,
    /// Brokers in the lines for kafka-acls.sh [default: kafka.bootstrap_servers]
    #[arg(long, value_name = "SERVERS")]
    bootstrap: Option<String>,
    /// Settings file of the super user in the lines for kafka-acls.sh
    #[arg(long, value_name = "FILE")]
    command_config: Option<String>,
}

impl Acls {
    pub fn run(self, config: &Config, output: Output) {
        let shown: Vec<(Acl, String)> = acls(config)
            .into_iter()
            .filter_map(|acl| Some((acl.clone(), self.principal(acl.role)?)))
            .collect();
        match (output, self.format) {
            (Output::Json, _) => println!("{}", Value::Array(shown.iter().map(json).collect())),
            (Output::Person, Format::Table) => {
                let rows: Vec<Vec<String>> = shown.iter().map(row).collect();
                let head = ["principal", "resource", "name", "operation", "what for"];
                print!("{}", show::table(&head, &rows));
            }
            (Output::Person, Format::KafkaAcls) => {
                shown.iter().for_each(|right| println!("{}", self.line(config, right)))
            }
        }
    }

    /// The principal of a role, or `None` if other roles are named. Without any name, the name of
    /// the role stands for the principal.
    fn principal(&self, role: Role) -> Option<String> {
        let all = [
            (Role::Service, &self.service),
            (Role::Publisher, &self.publisher),
            (Role::Asker, &self.asker),
            (Role::Gateway, &self.gateway),
            (Role::Operator, &self.operator),
            (Role::Backup, &self.backup),
            (Role::Mover, &self.mover),
            (Role::Mapper, &self.mapper),
        ];
        if all.iter().all(|(_, named)| named.is_none()) {
            return Some(format!("User:{role}"));
        }
        all.into_iter().find(|(of, _)| *of == role).and_then(|(_, named)| named.clone())
    }

    fn line(&self, config: &Config, (acl, principal): &(Acl, String)) -> String {
        let servers = self.bootstrap.as_ref().unwrap_or(&config.kafka.bootstrap_servers);
        let mut words = vec!["kafka-acls.sh".to_owned()];
        let mut option = |name: &str, value: &str| words.extend([name.to_owned(), quoted(value)]);
        option("--bootstrap-server", servers);
        if let Some(file) = &self.command_config {
            option("--command-config", file);
        }
        option("--allow-principal", principal);
        option("--operation", &acl.operation.to_string());
        match acl.resource {
            deployment::acls::Resource::Topic => option("--topic", &acl.name),
            deployment::acls::Resource::Group => option("--group", &acl.name),
            deployment::acls::Resource::TransactionalId => option("--transactional-id", &acl.name),
            deployment::acls::Resource::Cluster => words.push("--cluster".to_owned()),
        }
        if acl.is_prefix {
            words.extend(["--resource-pattern-type".to_owned(), "prefixed".to_owned()]);
        }
        words.push("--add".to_owned());
        words.join(" ")
    }
}

/// A word of a shell command.
fn quoted(word: &str) -> String {
    fn is_plain(c: char) -> bool {
        c.is_ascii_alphanumeric() || "-_.:,/=".contains(c)
    }
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

fn json((acl, principal): &(Acl, String)) -> Value {
    let mut value = json!(acl);
    value["principal"] = json!(principal);
    value
}

fn row((acl, principal): &(Acl, String)) -> Vec<String> {
    let star = if acl.is_prefix { "*" } else { "" };
    vec![
        principal.clone(),
        acl.resource.to_string(),
        format!("{}{star}", acl.name),
        acl.operation.to_string(),
        acl.why.to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_quoted_where_a_shell_would_read_it_otherwise() {
        assert_eq!(quoted("User:keepsake"), "User:keepsake");
        assert_eq!(quoted("User:CN=a,O=b c"), "'User:CN=a,O=b c'");
        assert_eq!(quoted("User:o'neil"), r"'User:o'\''neil'");
    }
}
