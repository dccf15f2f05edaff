//! A TCP proxy in front of a broker, which can cut the connection in one direction.
//!
//! A cut keeps the bytes back and lets them through later, as TCP does when packets were lost for a
//! while: the sender repeats them, and neither side is told.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

/// The direction in which nothing passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    None,
    /// Requests do not arrive.
    ToBroker,
    /// Requests arrive, their answers do not.
    FromBroker,
}

pub struct Proxy {
    pub port: u16,
    target: Arc<OnceLock<String>>,
    cut: Arc<AtomicU8>,
}

impl Proxy {
    /// Listens on a free port. Connections are closed until there is a target.
    pub fn new() -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has free ports");
        let port = listener.local_addr().expect("it is bound").port();
        let proxy = Proxy { port, target: Arc::default(), cut: Arc::new(AtomicU8::new(0)) };
        let (target, cut) = (proxy.target.clone(), proxy.cut.clone());
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let broker = target.get().and_then(|target| TcpStream::connect(target).ok());
                let Some(broker) = broker else { continue };
                pipe(&client, &broker, cut.clone(), Cut::ToBroker);
                pipe(&broker, &client, cut.clone(), Cut::FromBroker);
            }
        });
        proxy
    }

    /// Sets the address of the broker, once.
    pub fn lead_to(&self, target: &str) {
        self.target.set(target.to_owned()).expect("a proxy has one target");
    }

    pub fn cut(&self, cut: Cut) {
        self.cut.store(cut as u8, Ordering::Relaxed);
    }
}

/// Copies bytes until either side ends, on a thread of its own.
fn pipe(from: &TcpStream, to: &TcpStream, cut: Arc<AtomicU8>, blocked_by: Cut) {
    let (Ok(mut from), Ok(mut to)) = (from.try_clone(), to.try_clone()) else { return };
    std::thread::spawn(move || {
        let mut bytes = [0; 65_536];
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            while cut.load(Ordering::Relaxed) == blocked_by as u8 {
                std::thread::sleep(Duration::from_millis(10));
            }
            if to.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        // A side that is closed already needs no second end.
        let _ = from.shutdown(Shutdown::Both);
        let _ = to.shutdown(Shutdown::Both);
    });
}
