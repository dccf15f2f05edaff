//! Grants and revokes rights at a real Kafka, by two requests of its
//! [protocol](https://kafka.apache.org/protocol#The_Messages_CreateAcls): the client library has
//! none for it, and Kafka's own tool starts a Java machine each time.

use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpStream;

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
    pub fn grant(&mut self, right: &Value) {
        self.request(CREATE, right);
    }

    pub fn revoke(&mut self, right: &Value) {
        self.request(DELETE, right);
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

    /// Sends one right in version 1 of the request. Both requests have the same fields.
    fn request(&mut self, request: u16, right: &Value) {
        let word = |field: &str| right[field].as_str().unwrap_or_else(|| panic!("{right}"));
        let mut body = Vec::new();
        body.extend(request.to_be_bytes());
        body.extend(1_u16.to_be_bytes());
        body.extend(7_u32.to_be_bytes());
        string(&mut body, "test");
        body.extend(1_u32.to_be_bytes());
        body.push(match word("resource") {
            "Topic" => 2,
            "Group" => 3,
            "Cluster" => 4,
            "TransactionalId" => 5,
            other => panic!("no resource {other}"),
        });
        string(&mut body, word("name"));
        body.push(if right["is_prefix"] == true { 4 } else { 3 });
        string(&mut body, word("principal"));
        string(&mut body, "*");
        body.push(match word("operation") {
            "Read" => 3,
            "Write" => 4,
            "Create" => 5,
            "Delete" => 6,
            "Alter" => 7,
            "Describe" => 8,
            "DescribeConfigs" => 10,
            other => panic!("no operation {other}"),
        });
        body.push(3);
        let mut sent = (body.len() as u32).to_be_bytes().to_vec();
        sent.extend(body);
        self.stream.write_all(&sent).expect("the broker runs");
        let mut length = [0; 4];
        self.stream.read_exact(&mut length).expect("the broker answers");
        let mut answer = vec![0; u32::from_be_bytes(length) as usize];
        self.stream.read_exact(&mut answer).expect("the broker answers");
        // Behind the number of the request, the throttle time and the count of results.
        assert_eq!(answer[12..14], [0, 0], "the broker refuses {right}");
    }
}

fn string(body: &mut Vec<u8>, text: &str) {
    body.extend((text.len() as u16).to_be_bytes());
    body.extend(text.as_bytes());
}
