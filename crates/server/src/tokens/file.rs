//! The file of issuers: TOML, read strictly, with the line of what is wrong.

use super::grant;
use super::jwks::{Algorithm, Keys};
use super::jwt::Token;
use fractal::model::{Scope, parse_duration_ms};
use fractal::{Code, Config, Error, Result};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::{Path, PathBuf};
use toml::Spanned;

const FILE_BYTES_MAX: u64 = 1 << 20;
const ISSUERS_MAX: usize = 32;
/// Clocks that are further apart want mending.
const LEEWAY_MS_MAX: u64 = 5 * 60_000;
const LEEWAY_MS: u64 = 30_000;

/// Whose tokens are taken.
#[derive(Debug)]
pub struct Issuers(Vec<Issuer>);

/// Values of a claim and the role of each.
type RoleTable = Vec<(String, String)>;

/// One of them, and what its tokens are good for.
#[derive(Debug)]
pub struct Issuer {
    /// Its `iss`, letter by letter.
    pub name: String,
    pub audience: BTreeSet<String>,
    pub algorithms: BTreeSet<Algorithm>,
    pub leeway_ms: u64,
    pub tenant_claim: String,
    pub role_claim: Option<String>,
    /// Values of that claim and their roles, in the order of the file.
    pub roles: RoleTable,
    /// The role of everybody else.
    pub role: Option<String>,
    pub scope: ScopeRule,
    pub rate_per_minute: Option<u32>,
    pub concurrent: Option<u32>,
    pub keys: Keys,
    jwks: PathBuf,
}

#[derive(Debug)]
pub enum ScopeRule {
    Fixed(Scope),
    Claim(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    issuer: Vec<Spanned<IssuerFile>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct IssuerFile {
    iss: Spanned<String>,
    audience: Spanned<BTreeSet<String>>,
    jwks: Spanned<PathBuf>,
    algorithms: Option<Vec<Spanned<String>>>,
    leeway: Option<Spanned<String>>,
    tenant_claim: Option<String>,
    role_claim: Option<Spanned<String>>,
    #[serde(default)]
    roles: BTreeMap<String, Spanned<String>>,
    role: Option<Spanned<String>>,
    scope: Option<Spanned<String>>,
    scope_claim: Option<Spanned<String>>,
    rate_per_minute: Option<u32>,
    concurrent: Option<u32>,
}

impl Issuers {
    /// Reads a file, and the keys beside it.
    pub fn load(path: &Path, config: &Config) -> Result<Issuers> {
        let bytes = read(path, "name it with `--tokens FILE`")?;
        let text = String::from_utf8(bytes)
            .map_err(|_| Error::invalid(format!("{}: it is no text", path.display())))?;
        Reading { path, text: &text, config }.issuers()
    }

    /// The issuer that a token claims.
    pub fn find(&self, token: &Token<'_>) -> Result<&Issuer> {
        let name = token.text("iss")?;
        let found = self.0.iter().find(|issuer| issuer.name == name);
        found.ok_or_else(|| Error::denied("its issuer is none of those there are"))
    }

    /// The files of keys.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.0.iter().map(|issuer| issuer.jwks.as_path())
    }
}

struct Reading<'a> {
    path: &'a Path,
    text: &'a str,
    config: &'a Config,
}

impl Reading<'_> {
    fn issuers(&self) -> Result<Issuers> {
        let file: File = toml::from_str(self.text).map_err(|error| {
            let reason = error.message().lines().next().unwrap_or("not valid TOML").to_owned();
            self.bad(error.span().map_or(0, |span| span.start), reason)
        })?;
        if file.issuer.is_empty() || file.issuer.len() > ISSUERS_MAX {
            return Err(self.bad(0, format!("there are 1 to {ISSUERS_MAX} issuers")));
        }
        let mut issuers: Vec<Issuer> = Vec::new();
        for entry in file.issuer {
            let at = entry.get_ref().iss.span().start;
            let issuer = self.issuer(entry.into_inner())?;
            if issuers.iter().any(|other| other.name == issuer.name) {
                let name = issuer.name.escape_debug();
                return Err(self.bad(at, format!("the issuer `{name}` is there twice")));
            }
            issuers.push(issuer);
        }
        Ok(Issuers(issuers))
    }

    fn issuer(&self, file: IssuerFile) -> Result<Issuer> {
        if file.iss.get_ref().is_empty() {
            return Err(self.bad(file.iss.span().start, "`iss` is empty".to_owned()));
        }
        let audience = file.audience.get_ref();
        if audience.is_empty() || audience.contains("") {
            let why = "`audience` is a list of at least one name".to_owned();
            return Err(self.bad(file.audience.span().start, why));
        }
        let jwks = self.path.parent().unwrap_or(Path::new("")).join(file.jwks.get_ref());
        let keys = read(&jwks, "`jwks` is a file beside this one")
            .and_then(|text| Keys::read(&jwks, &text))
            .map_err(|error| self.at(&file.jwks, &error))?;
        let (roles, role) = self.roles(&file)?;
        Ok(Issuer {
            algorithms: self.algorithms(file.algorithms)?,
            leeway_ms: self.leeway(file.leeway)?,
            tenant_claim: file.tenant_claim.unwrap_or_else(|| "sub".to_owned()),
            role_claim: file.role_claim.map(Spanned::into_inner),
            roles,
            role,
            scope: self.scope(file.scope, file.scope_claim)?,
            rate_per_minute: file.rate_per_minute,
            concurrent: file.concurrent,
            audience: file.audience.into_inner(),
            name: file.iss.into_inner(),
            keys,
            jwks,
        })
    }

    fn algorithms(&self, named: Option<Vec<Spanned<String>>>) -> Result<BTreeSet<Algorithm>> {
        let Some(named) = named else { return Ok(Algorithm::ALL.into()) };
        let read = |name: Spanned<String>| {
            Algorithm::parse(name.get_ref()).ok_or_else(|| {
                let names = Algorithm::ALL.map(Algorithm::name).join(", ");
                let why = format!("`{}` is none of: {names}", name.get_ref().escape_debug());
                self.bad(name.span().start, why)
            })
        };
        named.into_iter().map(read).collect()
    }

    fn leeway(&self, text: Option<Spanned<String>>) -> Result<u64> {
        let Some(text) = text else { return Ok(LEEWAY_MS) };
        let leeway = parse_duration_ms(text.get_ref()).map_err(|error| self.at(&text, &error))?;
        match leeway <= LEEWAY_MS_MAX {
            true => Ok(leeway),
            false => Err(self.bad(text.span().start, "`leeway` is at most 5m".to_owned())),
        }
    }

    /// The table in the order of the file, and the role of everybody else.
    fn roles(&self, file: &IssuerFile) -> Result<(RoleTable, Option<String>)> {
        if file.role.is_none() && file.roles.is_empty() {
            let why = "an issuer needs `role`, or `role-claim` and `roles`".to_owned();
            return Err(self.bad(file.iss.span().start, why));
        }
        if file.role_claim.is_none() != file.roles.is_empty() {
            let why = "`role-claim` and `roles` belong together".to_owned();
            return Err(self.bad(file.iss.span().start, why));
        }
        let mut table: Vec<(&String, &Spanned<String>)> = file.roles.iter().collect();
        table.sort_by_key(|(_, role)| role.span().start);
        for role in table.iter().map(|(_, role)| *role).chain(&file.role) {
            let found = grant::find_role(role.get_ref(), self.config);
            found.map_err(|error| self.at(role, &error))?;
        }
        let table = table.into_iter();
        let table = table.map(|(value, role)| (value.clone(), role.get_ref().clone())).collect();
        Ok((table, file.role.as_ref().map(|role| role.get_ref().clone())))
    }

    fn scope(
        &self,
        fixed: Option<Spanned<String>>,
        claim: Option<Spanned<String>>,
    ) -> Result<ScopeRule> {
        match (fixed, claim) {
            (None, None) => Ok(ScopeRule::Fixed(Scope::All)),
            (Some(text), None) => grant::read_scope(text.get_ref())
                .map(ScopeRule::Fixed)
                .map_err(|error| self.at(&text, &error)),
            (None, Some(claim)) => Ok(ScopeRule::Claim(claim.into_inner())),
            (Some(_), Some(claim)) => {
                let why = "`scope` and `scope-claim` exclude each other".to_owned();
                Err(self.bad(claim.span().start, why))
            }
        }
    }

    fn at<T>(&self, place: &Spanned<T>, error: &Error) -> Error {
        let bad = self.bad(place.span().start, error.message.clone());
        match &error.hint {
            Some(hint) => bad.hint(hint.clone()),
            None => bad,
        }
    }

    fn bad(&self, at: usize, why: String) -> Error {
        let before = &self.text.as_bytes()[..at.min(self.text.len())];
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        Error::invalid(format!("{}:{line}: {why}", self.path.display()))
            .hint("docs/guide/tokens.md tells what stands in this file")
    }
}

fn read(path: &Path, hint: &str) -> Result<Vec<u8>> {
    let cannot = |why: String| {
        Error::new(Code::NotFound, format!("cannot read {}: {why}", path.display())).hint(hint)
    };
    let mut bytes = Vec::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes))
        .map_err(|error| cannot(error.to_string()))?;
    match bytes.len() as u64 <= FILE_BYTES_MAX {
        true => Ok(bytes),
        false => Err(cannot(format!("it has more than {FILE_BYTES_MAX} bytes"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: &str = r#"{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"a",
        "x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;

    fn load(text: &str, keys: &str) -> Result<Issuers> {
        let dir = std::env::temp_dir().join(format!("fractal-{}", fractal::new_name()));
        std::fs::create_dir(&dir).expect("a directory");
        std::fs::write(dir.join("keys.json"), keys).expect("it is written");
        std::fs::write(dir.join("tokens.toml"), text).expect("it is written");
        let loaded = Issuers::load(&dir.join("tokens.toml"), &Config::default());
        std::fs::remove_dir_all(&dir).expect("it is removed");
        loaded
    }

    const HEAD: &str = "[[issuer]]\niss = \"i\"\naudience = [\"a\"]\njwks = \"keys.json\"\n";

    #[test]
    fn what_is_wrong_with_a_file_is_said_with_its_line() {
        let check = |more: &str, expect: &str| {
            let error = load(&format!("{HEAD}{more}"), KEYS).expect_err(more);
            assert!(error.message.contains(expect), "{error:?}");
        };
        check("", "tokens.toml:2: an issuer needs `role`");
        check("role = \"boss\"\n", "tokens.toml:5: there is no role `boss`");
        check("role = \"admin\"\n", "tokens.toml:5: the role `admin` makes keys");
        check("rolle = \"viewer\"\n", "tokens.toml:5: unknown field `rolle`");
        check("role-claim = \"g\"\nrole = \"viewer\"\n", "belong together");
        check("roles = { a = \"viewer\" }\n", "belong together");
        check(
            "role = \"viewer\"\nalgorithms = [\"HS256\"]\n",
            "tokens.toml:6: `HS256` is none of: RS256, ES256, EdDSA",
        );
        check("role = \"viewer\"\nalgorithms = [\"none\"]\n", "`none` is none of");
        check("role = \"viewer\"\nleeway = \"1h\"\n", "tokens.toml:6: `leeway` is at most 5m");
        check("role = \"viewer\"\nscope = \"mybox\"\n", "`mybox` is none of: *, template:NAME");
        check("role = \"viewer\"\nscope = \"*\"\nscope-claim = \"s\"\n", "exclude each other");
        check(
            &format!("role = \"viewer\"\n{HEAD}role = \"viewer\"\n"),
            ":7: the issuer `i` is there twice",
        );
        let error = load("", KEYS).expect_err("no issuer");
        assert!(error.message.contains("missing field `issuer`"), "{error:?}");
        let absent = HEAD.replace("keys.json", "absent.json") + "role = \"viewer\"\n";
        let error = load(&absent, KEYS).expect_err("no keys");
        assert!(error.message.contains("tokens.toml:4: cannot read"), "{error:?}");
    }

    #[test]
    fn keys_that_prove_nothing_are_refused() {
        let check = |keys: &str, expect: &str| {
            let error = load(&format!("{HEAD}role = \"viewer\"\n"), keys).expect_err(keys);
            assert!(error.message.contains(expect), "{error:?}");
        };
        check("[]", "no JSON object");
        check("{}", "no list `keys`");
        check(r#"{"keys":[]}"#, "none of its keys");
        check(r#"{"keys":[],"keys":[]}"#, "says something twice");
        check(r#"{"keys":[{"kty":"oct","k":"c2VjcmV0"}]}"#, "key 1: it is a secret");
        check(r#"{"keys":[{"kty":"OKP","crv":"Ed25519","x":"AA","d":"AA"}]}"#, "private half");
        check(r#"{"keys":[{"kty":"OKP","crv":"Ed25519","x":"AA"}]}"#, "another curve");
        check(r#"{"keys":[{"kty":"RSA","n":"AQAB","e":"AQAB"}]}"#, "2048 to 8192 bits");
        check(r#"{"keys":[{"kty":"EC","crv":"P-384","x":"AA","y":"AA"}]}"#, "none of its keys");
        check(&KEYS.replace("\"kid\"", "\"use\":\"enc\",\"kid\""), "none of its keys");
        check(&KEYS.replace("\"kid\"", "\"alg\":\"RS256\",\"kid\""), "none of its keys");
        let one = KEYS.trim_start_matches(r#"{"keys":["#).trim_end_matches("]}");
        check(&format!(r#"{{"keys":[{one},{one}]}}"#), "two keys have the kid `a`");
    }

    #[test]
    fn the_table_of_roles_keeps_the_order_of_the_file() {
        let more = "role-claim = \"g\"\n[issuer.roles]\nz = \"runner\"\na = \"viewer\"\n";
        let issuers = load(&format!("{HEAD}{more}"), KEYS).expect("it is read");
        let roles: Vec<&str> = issuers.0[0].roles.iter().map(|(value, _)| value.as_str()).collect();
        assert_eq!(roles, ["z", "a"]);
    }
}
