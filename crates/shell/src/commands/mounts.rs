//! `mounts`: which sources are shown where.

use crate::command::{Call, Output};
use fractal_fs::{Access, Freshness};

pub(super) fn call(call: &Call) -> Output {
    let mut out = String::new();
    for mount in call.view.mounts() {
        let access = match mount.access {
            Access::Hidden => "hidden",
            Access::ReadOnly => "read-only",
            Access::AppendOnly => "append-only",
            Access::Writable => "writable",
        };
        let fresh = match mount.freshness {
            Freshness::Frozen => "frozen",
            Freshness::Live(_) => "live",
        };
        let source = &mount.source;
        let line =
            format!("{}\t{access}\t{fresh}\t{} {}", mount.path, source.kind(), source.describe());
        out.push_str(line.trim_end());
        out.push('\n');
    }
    Output::ok(out)
}
