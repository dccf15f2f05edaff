//! Tokens of an OAuth issuer: verifies a JWT, turns its claims into a [`Caller`], and tells clients where
//! they get a token.
//!
//! The gateway is a resource server as in
//! [MCP's authorization](https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization): it
//! gives out no tokens and knows no passwords. Each refusal has a name, and none shows a part of the token.

use crate::jwks::{Jwks, Missing, find};
use crate::keys::{Caller, Permission, Scopes, Token};
use crate::refusal::{INSUFFICIENT_SCOPE, Refusal, Result};
use crate::state::Gateway;
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use domain::UserKey;
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, Validation, decode};
use prometheus::IntCounterVec;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use settings::Oauth;
use std::sync::Arc;

/// Bytes of a token. Those with a hundred groups have 5 KiB; the head of a request has 32 KiB.
const TOKEN_BYTES_MAX: usize = 8 << 10;
/// Seconds by which the clocks of issuer and gateway may differ.
const LEEWAY: u64 = 30;
/// Signatures by a public key only: with HS256 whoever can verify could sign, and `none` signs nothing.
const ALGORITHMS: [Algorithm; 9] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
    Algorithm::ES256,
    Algorithm::ES384,
    Algorithm::EdDSA,
];
/// Kinds of access tokens ([RFC 9068](https://www.rfc-editor.org/rfc/rfc9068#section-2.1)). A token for
/// another purpose, such as a log-out, opens nothing.
const TYPES: [&str; 3] = ["JWT", "at+jwt", "application/at+jwt"];
const METADATA: &str = "/.well-known/oauth-protected-resource";

/// Accepts the tokens of one issuer.
pub struct Tokens {
    options: Oauth,
    /// The tenant of tokens without one.
    tenant: String,
    scopes: Arc<Scopes>,
    jwks: Arc<Jwks>,
    outcomes: IntCounterVec,
}

/// The head of a token. Other fields, such as `jku` and `jwk`, would let the token name its own key.
#[derive(Deserialize)]
struct Head {
    alg: String,
    kid: Option<String>,
    typ: Option<String>,
    crit: Option<Value>,
}

impl Tokens {
    /// Returns nothing without an issuer.
    pub fn of(options: &settings::Gateway, outcomes: IntCounterVec) -> Option<Tokens> {
        if !options.oauth.is_on() {
            return None;
        }
        // Fails only if it was installed before.
        let _ = jsonwebtoken_openssl::install_default();
        let oauth = options.oauth.clone();
        let scopes = [
            (Permission::Read, &oauth.read_scope),
            (Permission::Write, &oauth.write_scope),
            (Permission::Forget, &oauth.forget_scope),
        ];
        let scopes = scopes.into_iter().filter(|(_, scope)| !scope.is_empty());
        Some(Tokens {
            tenant: options.tenant.clone(),
            scopes: Arc::new(scopes.map(|(right, scope)| (right, scope.clone())).collect()),
            jwks: Jwks::new(oauth.clone()),
            options: oauth,
            outcomes,
        })
    }

    /// Fetches the issuer's keys, so that the first caller need not wait.
    pub async fn prepare(&self) {
        let _ = self.jwks.keys("").await;
    }

    /// Returns who has this token, and counts the outcome.
    pub async fn caller(&self, token: &str) -> Result<Caller> {
        let verified = self.verified(token).await;
        let outcome =
            verified.as_ref().map_or_else(|refusal| refusal.code.as_str(), |_| "accepted");
        self.outcomes.with_label_values(&[outcome]).inc();
        verified
    }

    async fn verified(&self, token: &str) -> Result<Caller> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(refused("token_too_long", "the token has more than 8 KiB"));
        }
        let head = head(token).ok_or_else(malformed)?;
        let Some(algorithm) = ALGORITHMS.into_iter().find(|it| format!("{it:?}") == head.alg)
        else {
            let what = "the token is not signed by a public key with RS, PS, ES or EdDSA";
            return Err(refused("alg_refused", what));
        };
        if head.crit.is_some() {
            return Err(refused("crit_refused", "the token asks for extensions (crit)"));
        }
        if head.typ.is_some_and(|typ| !TYPES.iter().any(|it| it.eq_ignore_ascii_case(&typ))) {
            return Err(refused("typ_refused", "the token is no access token (typ)"));
        }
        let Some(id) = head.kid else {
            return Err(refused("kid_missing", "the token does not name its key (kid)"));
        };
        let keys = self.jwks.keys(&id).await.map_err(missing)?;
        let key = find(&keys, &id, algorithm).ok_or_else(|| missing(Missing::Unknown))?;
        if key.is_weak {
            return Err(refused(
                "key_weak",
                "the issuer's key is too short, or too long to verify",
            ));
        }
        if !key.algorithms.contains(&algorithm) {
            return Err(refused("alg_unfit", "the issuer's key is not for this algorithm"));
        }
        let mut validation = Validation::new(algorithm);
        validation.leeway = LEEWAY;
        validation.validate_nbf = true;
        validation.set_issuer(&[&self.options.issuer]);
        validation.set_audience(&[self.options.audience()]);
        validation.set_required_spec_claims(&["exp", "iss", "aud"]);
        let decoded = decode::<Map<String, Value>>(token, &key.decoding, &validation);
        self.of_claims(&decoded.map_err(|error| flaw(error.kind()))?.claims)
    }

    fn of_claims(&self, claims: &Map<String, Value>) -> Result<Caller> {
        // The library accepts a list with the issuer among others.
        if claims.get("iss").and_then(Value::as_str) != Some(self.options.issuer.as_str()) {
            return Err(flaw(&ErrorKind::InvalidIssuer));
        }
        // https://www.rfc-editor.org/rfc/rfc9449#section-7.2
        if claims.contains_key("cnf") {
            let what = "the token is bound to a key of its holder, which the gateway cannot verify";
            return Err(refused("token_bound", what));
        }
        let until = claims.get("exp").and_then(Value::as_f64).unwrap_or_default();
        let text = |claim: &str, missing: &str, what: &str| match claims.get(claim) {
            None | Some(Value::Null) => Err(refused(missing, what)),
            Some(value) => Ok(value.as_str().unwrap_or_default()),
        };
        let (user, tenant) = (&self.options.user_claim, &self.options.tenant_claim);
        let user = text(user, "user_missing", "the token has no gateway.oauth.user_claim")?;
        let tenant = match tenant.as_str() {
            "" => self.tenant.as_str(),
            of => text(of, "tenant_missing", "the token has no gateway.oauth.tenant_claim")?,
        };
        UserKey::new(tenant, user).map_err(|e| match e.field {
            "tenant" => refused("tenant_refused", "the tenant in the token is no name of a tenant"),
            _ => refused("user_refused", "the user in the token is no name of a user"),
        })?;
        let granted = granted(claims);
        let rights: Vec<Permission> = self
            .scopes
            .iter()
            .filter(|(_, scope)| granted.contains(&scope.as_str()))
            .map(|(right, _)| *right)
            .collect();
        if rights.is_empty() {
            let what = "the token has none of the scopes that give a right";
            let refusal = Refusal::new(StatusCode::FORBIDDEN, INSUFFICIENT_SCOPE, what);
            return Err(Refusal { scope: Some(self.all_scopes()), ..refusal });
        }
        Ok(Caller {
            // The tenant has no slash, so no two users share places, and no id of a key has a colon.
            key: format!("token:{tenant}/{user}"),
            tenant: tenant.to_owned(),
            user: Some(user.to_owned()),
            rights,
            token: Some(Token {
                until: (until as i64).saturating_add(LEEWAY as i64),
                scopes: self.scopes.clone(),
            }),
        })
    }

    fn all_scopes(&self) -> String {
        let scopes: Vec<&str> = self.scopes.iter().map(|(_, scope)| scope.as_str()).collect();
        scopes.join(" ")
    }

    /// Tells the client of a refused call where it gets a token, and for which scopes.
    pub fn challenge(&self, response: &mut Response) {
        let Some(refusal) = response.extensions().get::<Refusal>() else { return };
        let (error, scope) = match refusal.code.as_str() {
            INSUFFICIENT_SCOPE => (Some("insufficient_scope"), refusal.scope.clone()),
            _ if refusal.status != StatusCode::UNAUTHORIZED => return,
            // A call without a token has no error (https://www.rfc-editor.org/rfc/rfc6750#section-3.1).
            "unauthorized" => (None, None),
            _ => (Some("invalid_token"), None),
        };
        let mut value = format!("Bearer resource_metadata=\"{}\"", self.metadata_url());
        if let Some(error) = error {
            let why = format!("{}: {}", refusal.code, refusal.message).replace(['"', '\\'], "'");
            value += &format!(", error=\"{error}\", error_description=\"{why}\"");
        }
        value += &format!(", scope=\"{}\"", scope.unwrap_or_else(|| self.all_scopes()));
        if let Ok(value) = HeaderValue::try_from(value) {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, value);
        }
    }

    /// The address of the metadata of the resource: the path of the resource comes behind
    /// ([RFC 9728](https://www.rfc-editor.org/rfc/rfc9728#section-3.1)).
    fn metadata_url(&self) -> String {
        let resource = self.options.resource.trim_end_matches('/');
        let host = resource.find("://").map_or(0, |at| at + 3);
        let path = resource[host..].find('/').map_or(resource.len(), |at| host + at);
        format!("{}{METADATA}{}", &resource[..path], &resource[path..])
    }
}

/// `GET /.well-known/oauth-protected-resource`, with any path behind it: which issuer gives tokens.
pub async fn metadata(State(gateway): State<Arc<Gateway>>) -> Result<Json<Value>> {
    let Some(tokens) = &gateway.tokens else {
        return Err(Refusal::not_found(
            "the gateway accepts no tokens: it asks for keys, or for nothing",
        ));
    };
    let scopes: Vec<&str> = tokens.scopes.iter().map(|(_, scope)| scope.as_str()).collect();
    Ok(Json(json!({
        "resource": tokens.options.resource,
        "authorization_servers": [tokens.options.issuer],
        "scopes_supported": scopes,
        "bearer_methods_supported": ["header"],
        "resource_name": "Keepsake",
    })))
}

fn head(token: &str) -> Option<Head> {
    let (head, rest) = token.split_once('.')?;
    let (_, signature) = rest.split_once('.')?;
    if signature.contains('.') {
        return None;
    }
    serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(head).ok()?).ok()
}

/// The scopes of a token: words in `scope` ([RFC 9068](https://www.rfc-editor.org/rfc/rfc9068#section-2.2.3)),
/// or in `scp`, words or a list, as some issuers write them.
fn granted(claims: &Map<String, Value>) -> Vec<&str> {
    match claims.get("scope").or_else(|| claims.get("scp")) {
        Some(Value::String(words)) => words.split(' ').collect(),
        Some(Value::Array(words)) => words.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

fn refused(name: &str, what: &str) -> Refusal {
    Refusal::new(StatusCode::UNAUTHORIZED, name, what)
}

fn malformed() -> Refusal {
    refused("token_malformed", "the token is no signed JWT")
}

fn flaw(kind: &ErrorKind) -> Refusal {
    match kind {
        ErrorKind::InvalidSignature | ErrorKind::Base64(_) => {
            refused("signature_wrong", "the token is not signed by the key that it names")
        }
        ErrorKind::ExpiredSignature => refused("token_expired", "the token has expired"),
        ErrorKind::ImmatureSignature => refused("token_early", "the token is not valid yet (nbf)"),
        ErrorKind::InvalidIssuer => refused("iss_wrong", "the token is of another issuer"),
        ErrorKind::InvalidAudience => {
            refused("aud_wrong", "the token is for another resource than gateway.oauth.audience")
        }
        ErrorKind::MissingRequiredClaim(claim) => match claim.as_str() {
            "exp" => refused("exp_missing", "the token does not say until when it is valid (exp)"),
            "iss" => refused("iss_missing", "the token does not say who issued it (iss)"),
            _ => refused("aud_missing", "the token does not say for which resource it is (aud)"),
        },
        ErrorKind::InvalidClaimFormat(_) => {
            refused("time_malformed", "a time in the token is no number (exp, nbf)")
        }
        _ => malformed(),
    }
}

fn missing(missing: Missing) -> Refusal {
    let unavailable =
        |name, what| Refusal::new(StatusCode::SERVICE_UNAVAILABLE, name, what).after(1.0);
    match missing {
        Missing::Unknown => refused("kid_unknown", "the issuer has no key of this name (kid)"),
        Missing::Pending => {
            unavailable("issuer_pending", "the issuer's keys are being fetched: try again")
        }
        Missing::Away => unavailable(
            "issuer_away",
            "the issuer's keys cannot be fetched: the operator finds why in the log of the gateway",
        ),
        Missing::Refused => unavailable(
            "issuer_refused",
            "the issuer's keys are not acceptable: the operator finds why in the log of the gateway",
        ),
    }
}
