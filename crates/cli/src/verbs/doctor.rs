use crate::failure::Failure;
use crate::remote::Door;
use crate::session::{Session, unexpected};
use fractal::{Action, Code, Diagnosis, Reply};

/// Check what this machine offers and whether the state directory is sound
///
/// Each line is one thing looked at: ✓ it is there, ✗ runs are weaker or
/// impossible without it, with the command that mends it. The exit status is 0
/// when runs are possible.
#[derive(clap::Args)]
pub struct Doctor {
    /// Mend a damaged state directory; what cannot be read is put aside
    #[arg(long)]
    repair: bool,
}

impl Doctor {
    pub fn call(self, session: &Session) -> Result<u8, Failure> {
        if let Some(door) = session.door() {
            return inside(session, door);
        }
        // Warns of settings that cannot be read.
        session.sound_config();
        let home = session.home()?;
        let diagnosis =
            if self.repair { Diagnosis::repair(&home)? } else { Diagnosis::examine(&home) };
        let status = if diagnosis.is_able() { 0 } else { Code::Unsupported.exit_status() };
        if session.json {
            session.print_json(&diagnosis)?;
        } else {
            session.print(&(server(session, &home) + &text(&diagnosis)))?;
        }
        Ok(status)
    }
}

/// In a sandbox the machine is not ours to look at: what counts is the door.
fn inside(session: &Session, door: &Door) -> Result<u8, Failure> {
    let Reply::Show(shown) = door.apply(&Action::Show { sandbox: None })? else {
        return Err(unexpected());
    };
    let name = &shown.info.name;
    if session.json {
        return session.print_json(&serde_json::json!({ "door": true, "sandbox": name }));
    }
    session.print(&format!(
        "{}runs are possible, below `{name}`\n",
        line(true, &format!("door: it answers, you are in `{name}`"))
    ))
}

/// Whether a server is asked, where there is a socket of one.
fn server(session: &Session, home: &std::path::Path) -> String {
    if !home.join("server.sock").exists() {
        return String::new();
    }
    match session.server() {
        Ok(_) => line(true, "server: it runs, and is asked"),
        // Nothing is wrong: everything works without one.
        Err(why) => line(true, &format!("server: not asked: {why}")),
    }
}

fn text(diagnosis: &Diagnosis) -> String {
    let mut text = String::new();
    for line in &diagnosis.repaired {
        text.push_str(&format!("repaired: {line}\n"));
    }
    for probe in &diagnosis.probes {
        text.push_str(&line(probe.ok, &format!("{}: {}", probe.name, probe.found)));
        if let Some(fix) = probe.fix.as_deref().filter(|_| !probe.ok) {
            text.push_str(&indented(fix));
        }
    }
    if diagnosis.state.is_empty() {
        text.push_str(&line(true, "state directory: sound"));
    }
    for finding in &diagnosis.state {
        text.push_str(&line(false, &format!("state directory: {}", finding.text)));
        if let Some(fix) = &finding.fix {
            text.push_str(&indented(fix));
        }
    }
    let verdict = match diagnosis.tier {
        Some(tier) => format!("runs are possible, with isolation `{}`\n", tier.name()),
        None => "runs are not possible\n".to_owned(),
    };
    text + &verdict
}

fn line(ok: bool, what: &str) -> String {
    format!("{} {what}\n", if ok { '✓' } else { '✗' })
}

/// A fix may be several lines to paste, such as an AppArmor profile.
fn indented(fix: &str) -> String {
    let mut lines = fix.lines();
    let first = lines.next().unwrap_or_default();
    let mut text = format!("  fix: {first}\n");
    lines.for_each(|line| text.push_str(&format!("       {line}\n")));
    text
}
