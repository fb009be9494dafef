use crate::failure::Failure;
use crate::session::{Session, unexpected};
use crate::table::{plain, plural};
use fractal::{Action, Reply};
use serde_json::Value;

/// Check the signed attestation of a promotion
///
/// Every promotion into reality or into a stage leaves an in-toto statement of
/// what was written, from which sandbox, by which commands, under which policy
/// and with which checks, signed with the key of this state directory.
/// Verifying fails if the statement, the promotion's plan or its record in the
/// journal were changed. `--json` prints the statement.
///
/// Exit status: 0 it holds, 3 it does not, 6 there is none.
#[derive(clap::Args)]
pub struct Verify {
    /// The promotion's id or the beginning of it, or a stage: what stands there
    /// [default: the latest promotion into this directory, or into its stages]
    #[arg(value_name = "ID")]
    promotion: Option<String>,
}

impl Verify {
    pub fn call(self, session: &Session) -> Result<u8, Failure> {
        let action = Action::Verify { promotion: self.promotion };
        let Reply::Verify(reply) = session.apply(action)? else { return Err(unexpected()) };
        if session.json {
            return session.print_json(&reply);
        }
        let parameters = &reply.statement["predicate"]["buildDefinition"]["externalParameters"];
        let text = |value: &Value| value.as_str().map(plain).unwrap_or_default();
        let list = |name: &str| parameters[name].as_array().map_or(0, Vec::len);
        let stands = match reply.still_stands {
            true => "as it was promoted",
            false => "edited or taken back since",
        };
        let stage = &reply.statement["predicate"]["buildDefinition"]["internalParameters"]["stage"];
        let stage = format!("{:<10}", text(stage));
        session.print(&format!(
            "promotion  {}\nof         {}\nby         {}\nevidence   {}, {}\nkey        {}\n{stage} {stands}\n",
            reply.promotion,
            text(&parameters["name"]),
            text(&parameters["who"]),
            plural(list("runs"), "run"),
            plural(list("checks"), "check"),
            &reply.keyid[..16.min(reply.keyid.len())],
        ))?;
        session.note("the attestation holds");
        Ok(0)
    }
}
