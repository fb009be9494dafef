//! The virtual runner's shell: bash over a tree in memory.
//!
//! A [`Shell`] runs scripts in this process. It sees the files of one
//! [`fractal_fs::Vfs`] and nothing else: no file, process, variable or
//! network of the host. The language and most commands come from the crate
//! `bashkit`, which one module here knows; commands that must see what our
//! tree knows (hard links, owners, inodes, mounts, changes) are our own.
//!
//! ```
//! use fractal_shell::{Output, Settings, Shell};
//!
//! let view = fractal_fs::Vfs::default();
//! let mut shell = Shell::new(view.clone(), Settings::default());
//! shell.register("greet", |call: &fractal_shell::Call| {
//!     Output::ok(format!("hello, {}\n", call.args.join(" ")))
//! });
//! let outcome = shell.run("mkdir notes && cd notes && greet world | tee a.txt", b"");
//! assert_eq!(outcome.stdout, b"hello, world\n");
//! assert_eq!(view.read("/notes/a.txt").unwrap(), "hello, world\n");
//! assert_eq!(shell.cwd(), "/notes");
//! ```
//!
//! The rest of the world stays out: there is no `tokio`, no `bashkit` and no
//! async in this interface. Time, output and memory of a run are limited by
//! [`Settings`]; what cannot be raised is listed in `docs/guide/shell.md`.

mod adapter;
mod command;
mod commands;
pub mod name;
mod outcome;
mod own;
#[cfg(feature = "python")]
mod python;
mod settings;
mod shell;

pub use command::{Call, Command, Output};
pub use outcome::{Ended, Outcome};
pub use settings::Settings;
pub use shell::{Canceller, Shell};
