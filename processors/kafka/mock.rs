//! Starts librdkafka's mock cluster, in which a test makes requests fail.

use crate::Connection;
use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;

/// One broker in this process, with topics of one partition.
pub struct Mock {
    pub cluster: MockCluster<'static, DefaultProducerContext>,
}

impl Mock {
    pub fn with_topics(names: &[&str]) -> Mock {
        let cluster = MockCluster::new(1).expect("a broker in this process");
        for name in names {
            cluster.create_topic(name, 1, 1).expect("makes a topic");
        }
        Mock { cluster }
    }

    pub fn connection(&self) -> Connection {
        Connection { servers: self.cluster.bootstrap_servers(), options: Vec::new() }
    }
}
