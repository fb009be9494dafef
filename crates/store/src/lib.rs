//! The state directory: what fractal remembers between two commands.
//!
//! It holds the journal and the rows of sandboxes, layers, snapshots, runs,
//! volumes and keys in one SQLite file, and the directories that layers and volumes
//! live in. It knows nothing about what a path inside a sandbox means, and
//! nothing about namespaces or processes beyond "is it still there".
//!
//! Three invariants: a record and the change it tells of land in the same
//! transaction; a layer's directory exists before its row does; nothing is
//! deleted but by `discard`, by `gc`, and never by `repair`. Many processes
//! may use one directory at once; none of them owns it.
//!
//! The bytes on disk are described in `docs/format.md`.

mod answers;
mod applies;
mod bases;
mod begun;
mod captures;
mod census;
mod error;
mod gc;
mod journal;
mod keys;
mod layers;
mod open;
mod read;
mod recover;
mod repair;
mod reserve;
mod rows;
mod schema;
mod tree;
mod tx;
mod verify;
mod volumes;

pub use applies::{ApplyRow, ApplyState, Worker};
pub use begun::Begun;
pub use captures::Captures;
pub use census::Census;
pub use error::{Result, StoreError};
pub use gc::GcReport;
pub use journal::Chain;
pub use keys::KeyRow;
pub use layers::LayerHold;
pub use open::{Store, new_id, now_ms};
pub use read::Reads;
pub use recover::{is_stopped, last_words_file, process_start};
pub use repair::Repair;
pub use rows::{LayerRow, RunRow, SandboxRow, SnapshotRow, VolumeRow};
pub use schema::FORMAT_VERSION;
pub use tx::Tx;
pub use verify::Problem;
