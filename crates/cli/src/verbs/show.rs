use super::run::staleness;
use crate::failure::Failure;
use crate::session::{Session, unexpected};
use crate::table::{columns, plain, plural};
use crate::time::distance;
use fractal::model::{
    BaseKind, Limits, Mount, MountAccess, MountSource, Network, ShowReply, format_bytes,
    format_duration_ms,
};
use fractal::{Action, Reply};

/// Show one sandbox: policy, mounts, snapshots, children
#[derive(clap::Args)]
pub struct Show {
    /// The sandbox [default: the latest one of this directory]
    #[arg(value_name = "S")]
    sandbox: Option<String>,
}

impl Show {
    pub fn call(self, session: &Session) -> Result<u8, Failure> {
        let Reply::Show(reply) = session.apply(Action::Show { sandbox: self.sandbox })? else {
            return Err(unexpected());
        };
        if session.json {
            return session.print_json(&reply);
        }
        session.print(&columns(&rows(&reply)))
    }
}

fn rows(reply: &ShowReply) -> Vec<Vec<String>> {
    let info = &reply.info;
    let mut rows = Vec::new();
    let mut row = |name: &str, value: String| rows.push(vec![name.to_owned(), value]);
    row("name", info.name.clone());
    row("id", info.id.to_string());
    row("parent", info.parent.clone().unwrap_or_else(|| "reality".to_owned()));
    row("base", base(reply.base_kind).to_owned());
    row("state", info.state.clone());
    row("created", format!("{} ago", distance(&info.created)));
    if let Some(expires) = &info.expires {
        row("expires", format!("in {}", distance(expires)));
    }
    row("directory", plain(&info.directory));
    row("template", info.template.clone());
    row("holds", format!("{}, {}", plural(reply.changes, "change"), format_bytes(info.size_bytes)));
    row("network", network(&info.policy.network));
    row("limits", limits(&info.policy.limits));
    for path in &info.policy.read_only {
        row("read-only", plain(path));
    }
    for item in &reply.mounts {
        row("mount", mount(item));
    }
    for snapshot in &reply.snapshots {
        row("snapshot", format!("{} ({} ago)", snapshot.name, distance(&snapshot.created)));
    }
    if !reply.children.is_empty() {
        row("children", reply.children.join(", "));
    }
    if let Some(stale) = &reply.stale {
        row("stale", staleness(stale));
    }
    rows
}

fn base(kind: BaseKind) -> &'static str {
    match kind {
        BaseKind::Live => "live (the directory as it is)",
        BaseKind::Frozen => "frozen (the directory as it was)",
    }
}

fn network(rule: &Network) -> String {
    match rule {
        Network::None => "none".to_owned(),
        Network::Host => "host".to_owned(),
        Network::Allow(hosts) => hosts.iter().cloned().collect::<Vec<_>>().join(", "),
    }
}

fn limits(limits: &Limits) -> String {
    let cpus = |milli: u64| format!("{} cpus", milli as f64 / 1000.0);
    let list = [
        limits.cpu_milli.map(cpus),
        limits.memory_bytes.map(|bytes| format!("memory {}", format_bytes(bytes))),
        limits.pids.map(|count| format!("{count} pids")),
        limits.disk_bytes.map(|bytes| format!("disk {}", format_bytes(bytes))),
        limits.time_ms.map(|ms| format!("time {}", format_duration_ms(ms))),
        limits.output_bytes.map(|bytes| format!("output {}", format_bytes(bytes))),
    ];
    let list: Vec<String> = list.into_iter().flatten().collect();
    if list.is_empty() { "none".to_owned() } else { list.join(", ") }
}

fn mount(mount: &Mount) -> String {
    let source = match &mount.source {
        MountSource::Volume(name) => format!("volume {name}"),
        MountSource::Host(path) => plain(path),
        MountSource::Scratch => "scratch".to_owned(),
    };
    let access = match mount.access {
        MountAccess::Read => "read",
        MountAccess::Write => "write",
    };
    format!("{} ← {source} ({access})", plain(&mount.at))
}
