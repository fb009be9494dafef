//! From a token that holds to a key: who it is, what it may, what it sees.
//!
//! Names and tenants are made from the issuer and the subject by a hash with
//! borders between them, so two issuers never meet and no token can be
//! somebody that its issuer has not called so. A tenant is always there: a
//! token never sees everything.

use super::file::{Issuer, ScopeRule};
use super::jwt::Token;
use fractal::model::{Id, Key, Name, Role, Scope, Verb};
use fractal::{Config, Error, Result, fingerprint};

/// Hexadecimal digits: as many as nobody finds a second subject for.
const TENANT_DIGITS: usize = 40;
const NAME_DIGITS: usize = 16;
const NAME_CHARS_MAX: usize = 40;

/// The key that a token stands for. Its signature was checked before.
pub fn key(token: &Token<'_>, issuer: &Issuer, config: &Config, now_ms: u64) -> Result<Key> {
    let expires_ms = token.check_time(now_ms, issuer.leeway_ms)?;
    if !token.texts("aud").iter().any(|name| issuer.audience.contains(*name)) {
        return Err(Error::denied("it is for another audience"));
    }
    let subject = token.text("sub")?;
    let role = find_role(role_name(token, issuer)?, config)?;
    let scope = scope(token, issuer)?;
    let of_tenant = token.text(&issuer.tenant_claim)?;
    let tenant = mark(&[
        b"tenant",
        issuer.name.as_bytes(),
        issuer.tenant_claim.as_bytes(),
        of_tenant.as_bytes(),
    ]);
    let who = mark(&[b"who", issuer.name.as_bytes(), subject.as_bytes()]);
    // What is counted and kept by id belongs to somebody *as* something:
    // answers of a wider role are not for a narrower one.
    let id = mark(&[
        b"key",
        who.as_bytes(),
        tenant.as_bytes(),
        role.name.as_bytes(),
        scope.to_string().as_bytes(),
    ]);
    Ok(Key {
        id: id_of(&id),
        name: name_of(subject, &who),
        role: role.name,
        policy: role.policy,
        tenant: Some(format!("token-{}", &tenant[..TENANT_DIGITS])),
        scope,
        rate_per_minute: issuer.rate_per_minute,
        concurrent: issuer.concurrent,
        created_ms: now_ms,
        expires_ms: Some(expires_ms),
        revoked_ms: None,
    })
}

fn mark(pieces: &[&[u8]]) -> String {
    fingerprint(pieces)
}

/// The first line of the file's table whose value the token has.
fn role_name<'a>(token: &Token<'_>, issuer: &'a Issuer) -> Result<&'a str> {
    let values = issuer.role_claim.as_deref().map(|name| token.texts(name)).unwrap_or_default();
    let first = issuer.roles.iter().find(|(value, _)| values.contains(&value.as_str()));
    let found = first.map(|(_, role)| role).or(issuer.role.as_ref());
    found.map(String::as_str).ok_or_else(|| Error::denied("no value of its role claim has a role"))
}

/// A role as the settings have it now. One that makes keys is refused: they
/// would outlive the token.
pub fn find_role(name: &str, config: &Config) -> Result<Role> {
    let roles = config.roles()?;
    let may = |role: &Role| !role.policy.allows(Verb::Key);
    let found = roles.iter().find(|role| role.name == name);
    if let Some(role) = found.filter(|role| may(role)) {
        return Ok(role.clone());
    }
    let names: Vec<&str> =
        roles.iter().filter(|role| may(role)).map(|role| role.name.as_str()).collect();
    let why = match found {
        Some(_) => format!("the role `{name}` makes keys, which would outlive the token"),
        None => format!("there is no role `{}`", name.escape_debug()),
    };
    Err(Error::invalid(why).hint(format!("a token can have: {}", names.join(", "))))
}

fn scope(token: &Token<'_>, issuer: &Issuer) -> Result<Scope> {
    match &issuer.scope {
        ScopeRule::Fixed(scope) => Ok(scope.clone()),
        // A token that does not say is not one for everything.
        ScopeRule::Claim(name) => read_scope(token.text(name)?),
    }
}

/// `*`, `template:NAME`, or the id of a sandbox: names are not unique, and a
/// token may be read long after it was written.
pub fn read_scope(text: &str) -> Result<Scope> {
    if text == "*" {
        return Ok(Scope::All);
    }
    match text.strip_prefix("template:") {
        Some(name) => Ok(Scope::Template(Name::parse(name)?.to_string())),
        None => Id::parse(text).map(Scope::Sandbox).map_err(|_| {
            Error::invalid(format!(
                "`{}` is none of: *, template:NAME, the id of a sandbox",
                text.escape_debug()
            ))
        }),
    }
}

/// What the journal and votes call somebody: as much of the subject as is fit
/// for a name, to be read, and a mark of all of it, to be told apart.
fn name_of(subject: &str, who: &str) -> String {
    let fit = |char: char| if char.is_ascii_alphanumeric() { char } else { '-' };
    let readable: String = subject.chars().take(NAME_CHARS_MAX).map(fit).collect();
    let readable = readable.trim_matches('-');
    let separator = if readable.is_empty() { "" } else { "-" };
    format!("{readable}{separator}{}", &who[..NAME_DIGITS])
}

/// 128 bits of a mark as an id.
fn id_of(mark: &str) -> Id {
    let byte = |at: usize| u8::from_str_radix(&mark[2 * at..2 * at + 2], 16).unwrap_or_default();
    let time = (0..6).fold(0, |sum, at| (sum << 8) | u64::from(byte(at)));
    Id::from_parts(time, std::array::from_fn(|at| byte(6 + at)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_fit_and_nobody_is_the_owner() {
        let mark = "0123456789abcdef0123";
        for (subject, name) in [
            ("owner", "owner-0123456789abcdef"),
            ("auth0|5f7c", "auth0-5f7c-0123456789abcdef"),
            ("../../é", "0123456789abcdef"),
            (&"x".repeat(500), &format!("{}-0123456789abcdef", "x".repeat(40))),
        ] {
            assert_eq!(name_of(subject, mark), name);
            assert!(Name::parse(&name_of(subject, mark)).is_ok());
        }
    }

    #[test]
    fn a_scope_is_read_strictly() {
        assert_eq!(read_scope("*"), Ok(Scope::All));
        assert_eq!(read_scope("template:x"), Ok(Scope::Template("x".to_owned())));
        for bad in ["", "all", "template:", "template:*", "mybox", "* "] {
            assert!(read_scope(bad).is_err(), "{bad}");
        }
    }
}
