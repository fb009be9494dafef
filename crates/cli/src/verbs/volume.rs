use crate::failure::Failure;
use crate::session::{Session, unexpected};
use crate::table::columns;
use crate::time::distance;
use fractal::model::{VolumeInfo, VolumeVerb, format_bytes};
use fractal::{Action, Reply};

/// Make, list and fill volumes
///
/// A volume is a directory that outlives sandboxes. Templates mount it; two
/// sandboxes may mount the same one at once.
#[derive(clap::Args)]
pub struct Volume {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(clap::Subcommand)]
enum Verb {
    /// Make an empty volume
    Create {
        /// Its name
        name: String,
    },
    /// List volumes
    #[command(visible_alias = "ls")]
    List,
    /// Show one volume
    Show {
        /// Its name
        name: String,
    },
    /// Remove a volume and what it holds
    Rm {
        /// Its name
        name: String,
    },
    /// Copy a directory of this machine into a volume
    Import {
        /// Its name; it is made if need be
        name: String,
        /// The directory
        #[arg(value_name = "DIR")]
        from: String,
    },
}

impl Volume {
    pub fn call(self, session: &Session) -> Result<u8, Failure> {
        let verb = match self.verb {
            Verb::Create { name } => VolumeVerb::Create { name },
            Verb::List => VolumeVerb::List,
            Verb::Show { name } => VolumeVerb::Show { name },
            Verb::Rm { name } => VolumeVerb::Rm { name },
            Verb::Import { name, from } => {
                VolumeVerb::Import { name, from: session.absolute(&from)? }
            }
        };
        let is_show = matches!(verb, VolumeVerb::Show { .. });
        let reply = session.apply(Action::Volume(verb))?;
        if session.json {
            return session.print_json(&reply);
        }
        match reply {
            Reply::Volumes { volumes } if volumes.is_empty() => {
                session.note("there are no volumes (fractal volume create NAME makes one)");
                Ok(0)
            }
            Reply::Volumes { volumes } => session.print(&columns(&list(&volumes))),
            Reply::Volume(volume) if is_show => session.print(&columns(&details(&volume))),
            Reply::Volume(volume) => session.print(&format!("{}\n", volume.name)),
            Reply::Done { dropped } => {
                session.note(&format!("removed {}", dropped.join(", ")));
                Ok(0)
            }
            _ => Err(unexpected()),
        }
    }
}

fn list(volumes: &[VolumeInfo]) -> Vec<Vec<String>> {
    let head = ["NAME", "AGE", "SIZE", "USED BY"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(volumes.iter().map(|volume| {
        vec![
            volume.name.clone(),
            distance(&volume.created),
            format_bytes(volume.size_bytes),
            volume.used_by.join(", "),
        ]
    }));
    rows
}

fn details(volume: &VolumeInfo) -> Vec<Vec<String>> {
    let row = |name: &str, value: String| vec![name.to_owned(), value];
    let used_by = match volume.used_by.is_empty() {
        true => "nothing".to_owned(),
        false => volume.used_by.join(", "),
    };
    vec![
        row("name", volume.name.clone()),
        row("created", format!("{} ago", distance(&volume.created))),
        row("size", format_bytes(volume.size_bytes)),
        row("used by", used_by),
    ]
}
