//! Certificates for the tests of TLS, made with the `openssl` command: an authority of the test's
//! own, and certificates that it has signed.

use std::path::{Path, PathBuf};
use std::process::Command;

/// An authority in a directory of its own.
pub struct Authority {
    dir: PathBuf,
}

/// For whom a certificate is made.
pub struct Subject<'a> {
    /// File name, and common name of the certificate.
    pub name: &'a str,
    /// Host for which it is valid, as in `IP:127.0.0.1`.
    pub host: &'a str,
    /// -1: expired since yesterday.
    pub days: i32,
}

impl Authority {
    pub fn new(dir: &Path) -> Authority {
        std::fs::create_dir_all(dir).unwrap_or_else(|e| panic!("makes {}: {e}", dir.display()));
        let authority = Authority { dir: dir.to_owned() };
        let key = authority.path("ca.key");
        let mut make = new_key("-x509", &key);
        must(make.args(["-subj", "/CN=test authority", "-days", "2", "-out", &authority.ca()]));
        authority
    }

    /// Path of the authority's own certificate.
    pub fn ca(&self) -> String {
        self.path("ca.pem")
    }

    pub fn path(&self, file: &str) -> String {
        self.dir.join(file).display().to_string()
    }

    /// Makes NAME.key and NAME.pem, and both in one file NAME.both.pem, as Kafka takes them.
    pub fn sign(&self, subject: &Subject<'_>) {
        let file = |end: &str| self.path(&format!("{}.{end}", subject.name));
        let names = [format!("/CN={}", subject.name), format!("subjectAltName={}", subject.host)];
        let mut ask = new_key("-new", &file("key"));
        must(ask.args(["-subj", &names[0], "-addext", &names[1], "-out", &file("csr")]));
        let mut sign = openssl("x509");
        sign.args(["-req", "-copy_extensions", "copy", "-in", &file("csr"), "-CA", &self.ca()]);
        sign.args(["-CAkey", &self.path("ca.key"), "-days", &subject.days.to_string()]);
        must(sign.args(["-out", &file("pem")]));
        let both = super::read(Path::new(&file("key"))) + &super::read(Path::new(&file("pem")));
        std::fs::write(file("both.pem"), both).expect("the directory is ours");
    }

    /// Encrypts NAME.key with a password, as NAME.locked.key.
    pub fn lock(&self, name: &str, password: &str) -> String {
        let locked = self.path(&format!("{name}.locked.key"));
        let mut lock = openssl("pkcs8");
        lock.args(["-topk8", "-in", &self.path(&format!("{name}.key")), "-out", &locked]);
        must(lock.args(["-passout", &format!("pass:{password}")]));
        locked
    }
}

fn openssl(command: &str) -> Command {
    let mut openssl = Command::new("openssl");
    openssl.arg(command);
    openssl
}

fn new_key(kind: &str, key: &str) -> Command {
    let mut make = openssl("req");
    make.args([kind, "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]);
    make.args(["-keyout", key]);
    make
}

fn must(command: &mut Command) {
    let output = command
        .output()
        .unwrap_or_else(|e| panic!("runs openssl: {e}; on Debian: apt-get install openssl"));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {stderr}");
}
