//! An OAuth issuer for tests: metadata, a set of freshly made keys over HTTP, and tokens that OpenSSL signs
//! itself, so that the library that verifies them has no part in making them.

use super::http_server::{self, Request};
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use openssl::bn::{BigNum, BigNumContext};
use openssl::ec::{EcGroup, EcKey};
use openssl::ecdsa::EcdsaSig;
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{PKey, Private};
use openssl::rsa::{Padding, Rsa};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::net::TcpStream;
use std::sync::Arc;

pub const RESOURCE: &str = "https://memory.example.com/mcp";

pub fn base64(bytes: &[u8]) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}

/// A key of the issuer, or of somebody else.
pub struct SigningKey {
    pub id: &'static str,
    pub algorithm: &'static str,
    pub key: PKey<Private>,
}

impl SigningKey {
    pub fn rsa(id: &'static str, bits: u32) -> SigningKey {
        let key = Rsa::generate(bits).and_then(PKey::from_rsa).expect("OpenSSL makes a key");
        SigningKey { id, algorithm: "RS256", key }
    }

    pub fn ec(id: &'static str) -> SigningKey {
        let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).expect("P-256");
        let key = EcKey::generate(&group).and_then(PKey::from_ec_key).expect("OpenSSL makes a key");
        SigningKey { id, algorithm: "ES256", key }
    }

    pub fn ed(id: &'static str) -> SigningKey {
        let key = PKey::generate_ed25519().expect("OpenSSL makes a key");
        SigningKey { id, algorithm: "EdDSA", key }
    }

    /// The public half as the issuer shows it.
    pub fn jwk(&self) -> Value {
        let mut jwk = match self.algorithm {
            "ES256" => {
                let key = self.key.ec_key().expect("its kind");
                let number = || BigNum::new().expect("memory");
                let (mut x, mut y) = (number(), number());
                let mut context = BigNumContext::new().expect("memory");
                let point = key.public_key();
                point
                    .affine_coordinates(key.group(), &mut x, &mut y, &mut context)
                    .expect("a point");
                let [x, y] = [x, y].map(|it| base64(&it.to_vec_padded(32).expect("32 bytes")));
                json!({"kty": "EC", "crv": "P-256", "x": x, "y": y})
            }
            "EdDSA" => {
                let x = base64(&self.key.raw_public_key().expect("its kind"));
                json!({"kty": "OKP", "crv": "Ed25519", "x": x})
            }
            _ => {
                let key = self.key.rsa().expect("its kind");
                let [n, e] = [key.n(), key.e()].map(|it| base64(&it.to_vec()));
                json!({"kty": "RSA", "n": n, "e": e})
            }
        };
        jwk["kid"] = self.id.into();
        jwk["use"] = "sig".into();
        jwk
    }

    pub fn token(&self, claims: &Value) -> String {
        let head = json!({"alg": self.algorithm, "kid": self.id, "typ": "at+jwt"});
        self.signed(&head, claims)
    }

    /// A token with this head, whatever it says.
    pub fn signed(&self, head: &Value, claims: &Value) -> String {
        let text = unsigned(head, claims);
        let mut signer = match self.algorithm {
            "EdDSA" => openssl::sign::Signer::new_without_digest(&self.key),
            _ => openssl::sign::Signer::new(MessageDigest::sha256(), &self.key),
        }
        .expect("OpenSSL signs");
        if self.algorithm == "PS256" {
            signer.set_rsa_padding(Padding::PKCS1_PSS).expect("an RSA key");
        }
        let mut signature = signer.sign_oneshot_to_vec(text.as_bytes()).expect("OpenSSL signs");
        if self.algorithm == "ES256" {
            let pair = EcdsaSig::from_der(&signature).expect("a pair of numbers");
            let number = |it: &openssl::bn::BigNumRef| it.to_vec_padded(32).expect("32 bytes");
            signature = [number(pair.r()), number(pair.s())].concat();
        }
        format!("{text}.{}", base64(&signature))
    }
}

/// The part of a token that is signed.
pub fn unsigned(head: &Value, claims: &Value) -> String {
    format!("{}.{}", base64(head.to_string().as_bytes()), base64(claims.to_string().as_bytes()))
}

/// A token by a shared secret, which a public key may pose as.
pub fn by_secret(secret: &[u8], head: &Value, claims: &Value) -> String {
    let text = unsigned(head, claims);
    let key = PKey::hmac(secret).expect("bytes");
    let mut signer = openssl::sign::Signer::new(MessageDigest::sha256(), &key).expect("a signer");
    let signature = signer.sign_oneshot_to_vec(text.as_bytes()).expect("OpenSSL signs");
    format!("{text}.{}", base64(&signature))
}

pub struct Issuer {
    pub url: String,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    is_away: bool,
    keys: String,
    asked: Vec<String>,
}

impl Issuer {
    pub fn start(keys: &[&SigningKey]) -> Issuer {
        let state: Arc<Mutex<State>> = Arc::default();
        let shared = state.clone();
        let address = http_server::start(move |request, stream| serve(request, stream, &shared));
        let issuer = Issuer { url: format!("http://{address}"), state };
        issuer.show(keys);
        issuer
    }

    /// Shows these keys from now on, and no others.
    pub fn show(&self, keys: &[&SigningKey]) {
        let keys: Vec<Value> = keys.iter().map(|key| key.jwk()).collect();
        self.answer_keys(json!({"keys": keys}).to_string());
    }

    pub fn answer_keys(&self, text: String) {
        self.state.lock().keys = text;
    }

    pub fn turn_away(&self, is_away: bool) {
        self.state.lock().is_away = is_away;
    }

    /// How often the keys were asked for.
    pub fn asked(&self) -> usize {
        self.state.lock().asked.iter().filter(|path| *path == "/keys").count()
    }

    /// The claims of a token that is good for five minutes.
    pub fn claims(&self, user: &str) -> Value {
        let now = jiff::Timestamp::now().as_second();
        json!({"iss": self.url, "aud": RESOURCE, "sub": user, "iat": now, "exp": now + 300,
            "scope": "openid memories:read memories:write memories:forget"})
    }
}

fn serve(request: &Request, stream: &mut TcpStream, state: &Mutex<State>) -> Option<()> {
    let mut state = state.lock();
    state.asked.push(request.path.clone());
    let host = request.header("host").unwrap_or_default();
    let (status, body) = match request.path.as_str() {
        _ if state.is_away => (503, "away".to_owned()),
        "/.well-known/openid-configuration" => {
            let issuer = format!("http://{host}");
            (200, json!({"issuer": issuer, "jwks_uri": format!("{issuer}/keys")}).to_string())
        }
        "/keys" => (200, state.keys.clone()),
        _ => (404, String::new()),
    };
    http_server::answer(stream, status, "content-type: application/json\r\n", &body)
}
