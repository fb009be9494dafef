use crate::failure::Failure;
use crate::session::{Session, unexpected};
use crate::table::{columns, plain, tree};
use crate::time::distance;
use fractal::model::{SandboxInfo, format_bytes};
use fractal::{Action, Reply};

/// List sandboxes as a tree
///
/// Children stand below their parents. SIZE is what the sandbox's own layers
/// hold, AGE is the time since it was made.
#[derive(clap::Args)]
pub struct List {
    /// Only those made in this directory or below it
    #[arg(long)]
    here: bool,
}

impl List {
    pub fn call(self, session: &Session) -> Result<u8, Failure> {
        let Reply::List(mut reply) = session.apply(Action::List)? else {
            return Err(unexpected());
        };
        if self.here {
            let here = session.directory();
            reply.sandboxes.retain(|info| std::path::Path::new(&info.directory).starts_with(here));
        }
        if session.json {
            return session.print_json(&reply);
        }
        if reply.sandboxes.is_empty() {
            session.note("there are no sandboxes (fractal run -- CMD makes one)");
            return Ok(0);
        }
        session.print(&columns(&rows(&reply.sandboxes)))
    }
}

fn rows(sandboxes: &[SandboxInfo]) -> Vec<Vec<String>> {
    let head = ["NAME", "STATE", "AGE", "SIZE", "DIRECTORY"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for (branch, info) in tree(sandboxes, |info| &info.name, |info| info.parent.as_deref()) {
        rows.push(vec![
            format!("{branch}{}", info.name),
            info.state.clone(),
            distance(&info.created),
            format_bytes(info.size_bytes),
            plain(&info.directory),
        ]);
    }
    rows
}
