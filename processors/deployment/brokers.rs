//! The brokers of a process: those of a cluster, or the embedded one, which the process runs.

use super::data::DataDir;
use domain::fault::{Fault, Result, StopName};
use embedded::Embedded;
use kafka::Connection;
use settings::Config;
use std::net::SocketAddr;

/// A connection, and the embedded broker that must outlive the connection.
pub struct Brokers {
    pub connection: Connection,
    // Order matters: the broker ends before its directory is unlocked.
    pub embedded: Option<Embedded>,
    pub data: Option<DataDir>,
}

impl Brokers {
    /// Connects to the cluster of the configuration, or starts the embedded broker on the data
    /// directory.
    pub fn open(config: &Config) -> Result<Brokers> {
        if !config.kafka.is_embedded() {
            let servers = config.kafka.bootstrap_servers.clone();
            let connection = Connection { servers, options: config.kafka.client_options() };
            return Ok(Brokers { connection, embedded: None, data: None });
        }
        let data = DataDir::open(config)?;
        let secret = data.secret(config.embedded.secret || config.gateway.is_guarded())?;
        let options = settings::data_dir::options(config, secret.as_deref());
        let listen = config.embedded.address().expect("the configuration was checked");
        let mut log = embedded::EmbeddedOptions::new(data.log(), listen);
        log.secret = secret;
        let embedded = Embedded::start(log).map_err(|fault| port_taken(fault, listen))?;
        let address = embedded.address();
        data.write_address(address)?;
        let connection = Connection { servers: address.to_string(), options };
        Ok(Brokers { connection, embedded: Some(embedded), data: Some(data) })
    }

    /// The same, on a free port, for a command that needs the log while no service runs.
    pub fn without_service(config: &Config) -> Result<Brokers> {
        let mut config = config.clone();
        config.embedded.listen = "127.0.0.1:0".into();
        Brokers::open(&config)
    }
}

/// Adds to the fault how to find the process that listens on the port already.
fn port_taken(fault: Fault, listen: SocketAddr) -> Fault {
    match fault {
        Fault::Stop(stop) if stop.name == StopName::AddressTaken => {
            let what = format!(
                "embedded.listen: {listen} is in use, perhaps by a Kafka broker or by a keepsake on \
                 another directory; `ss -ltnp 'sport = :{}'` shows the process. Stop that one, or \
                 take a free port with --set embedded.listen=127.0.0.1:0",
                listen.port()
            );
            Fault::stop(StopName::AddressTaken, what)
        }
        other => other,
    }
}
