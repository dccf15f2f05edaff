//! Grants and revokes rights at a real Kafka, by three requests of its
//! [protocol](https://kafka.apache.org/protocol#The_Messages_CreateAcls): the client library has
//! none for it, and Kafka's own tool starts a Java machine each time.

use super::eventually;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpStream;

const DESCRIBE: u16 = 29;
const CREATE: u16 = 30;
const DELETE: u16 = 31;

/// A connection as a super user.
pub struct Acls {
    stream: TcpStream,
}

impl Acls {
    pub fn connect(servers: &str) -> Acls {
        let stream = TcpStream::connect(servers).unwrap_or_else(|e| panic!("{servers}: {e}"));
        Acls { stream }
    }

    /// Grants a right as `keepsake topics acls --json` prints it.
    /// Grants a right as `keepsake topics acls --json` prints it. Returns once the broker knows of it.
    pub fn grant(&mut self, right: &Value) {
        self.change(CREATE, right);
        eventually("the broker knows of a right", || self.is_known(right).then_some(()));
    }

    pub fn revoke(&mut self, right: &Value) {
        self.change(DELETE, right);
        eventually("the broker forgets a right", || (!self.is_known(right)).then_some(()));
    }

    /// Takes a right away and leaves Describe, which every other operation on a topic, a group or a
    /// transactional id implies. Returns what is left, if anything.
    pub fn weaken(&mut self, right: &Value) -> Option<Value> {
        self.revoke(right);
        let implies = ["Read", "Write", "Delete", "Alter"];
        let left = implies.iter().any(|operation| right["operation"] == **operation).then(|| {
            let mut left = right.clone();
            left["operation"] = "Describe".into();
            left
        });
        left.iter().for_each(|left| self.grant(left));
        left
    }

    fn change(&mut self, request: u16, right: &Value) {
        let answer = self.asked(request, &[1_u32.to_be_bytes().to_vec(), fields(right)].concat());
        // Behind the number of the request, the throttle time and the count of results.
        assert_eq!(answer[12..14], [0, 0], "the broker refuses {right}");
    }

    /// The answer to a change comes before the broker, which follows the controller, acts on it.
    fn is_known(&mut self, right: &Value) -> bool {
        let answer = self.asked(DESCRIBE, &fields(right));
        // The error and its text, which is empty or missing, then the count of what is found.
        assert_eq!(answer[8..10], [0, 0], "the broker refuses to list {right}");
        answer[12..16] != [0; 4]
    }

    /// Sends one request in version 1 and returns the answer.
    fn asked(&mut self, request: u16, fields: &[u8]) -> Vec<u8> {
        let mut body = Vec::new();
        body.extend(request.to_be_bytes());
        body.extend(1_u16.to_be_bytes());
        body.extend(7_u32.to_be_bytes());
        string(&mut body, "test");
        body.extend(fields);
        let mut sent = (body.len() as u32).to_be_bytes().to_vec();
        sent.extend(body);
        self.stream.write_all(&sent).expect("the broker runs");
        let mut length = [0; 4];
        self.stream.read_exact(&mut length).expect("the broker answers");
        let mut answer = vec![0; u32::from_be_bytes(length) as usize];
        self.stream.read_exact(&mut answer).expect("the broker answers");
        answer
    }
}

/// A right as all three requests have it.
fn fields(right: &Value) -> Vec<u8> {
    let word = |field: &str| right[field].as_str().unwrap_or_else(|| panic!("{right}"));
    let mut fields = Vec::new();
    fields.push(match word("resource") {
        "Topic" => 2,
        "Group" => 3,
        "Cluster" => 4,
        "TransactionalId" => 5,
        other => panic!("no resource {other}"),
    });
    string(&mut fields, word("name"));
    fields.push(if right["is_prefix"] == true { 4 } else { 3 });
    string(&mut fields, word("principal"));
    string(&mut fields, "*");
    fields.push(match word("operation") {
        "Read" => 3,
        "Write" => 4,
        "Create" => 5,
        "Delete" => 6,
        "Alter" => 7,
        "Describe" => 8,
        "DescribeConfigs" => 10,
        other => panic!("no operation {other}"),
    });
    // Allowed.
    fields.push(3);
    fields
}

fn string(body: &mut Vec<u8>, text: &str) {
    body.extend((text.len() as u16).to_be_bytes());
    body.extend(text.as_bytes());
}
