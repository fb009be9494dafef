//! Files and directories that code makes when somebody looks.
//!
//! A [`Provider`] is a table: at each path stands a [`Provide`], which makes
//! a file or all of a directory. Whatever it does is done aside, with a time
//! limit, and its answer is cut off at a size: a provider that hangs, panics
//! or never stops talking is an I/O error with a reason, and nobody waits for
//! it. It may read the view it serves; asking for itself is an error.

mod aside;
mod call;
#[cfg(unix)]
mod command;
#[cfg(feature = "http")]
mod http;

pub use call::{Call, Text};
#[cfg(unix)]
pub use command::Command;
#[cfg(feature = "http")]
pub use http::HttpJson;

use super::{Ask, Item, Source, index::Index};
use crate::error::{Fault, Kind};
use crate::view::Vfs;
use aside::Aside;
use bytes::Bytes;
use fractal_model::SandboxPath;
use std::io::Read;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How far a provider may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProviderBounds {
    /// How long one answer may take.
    pub time_max: Duration,
    /// The most bytes of a file.
    pub bytes_max: u64,
    /// The most names of a directory.
    pub names_max: usize,
    /// How many answers may be late at once; further questions are refused
    /// until one of them is there.
    pub late_max: usize,
}

impl Default for ProviderBounds {
    fn default() -> ProviderBounds {
        ProviderBounds {
            time_max: Duration::from_secs(10),
            bytes_max: 64 << 20,
            names_max: 100_000,
            late_max: 8,
        }
    }
}

/// Who asks a provider, and for what.
#[derive(Clone)]
pub struct Context {
    /// The view that is read; the provider may read it too.
    pub view: Vfs,
    /// Where the entry stands in the view.
    pub path: SandboxPath,
    /// The same below the place in the table that serves it.
    pub at: SandboxPath,
    /// The name the view goes by.
    pub who: Arc<str>,
    /// When nobody waits any more.
    pub deadline: Instant,
    /// The most bytes that are taken.
    pub bytes_max: u64,
}

/// What a provider makes of a file: bytes, or something to read them from,
/// which may go on for ever and is cut off.
pub enum Made {
    /// All of it.
    Bytes(Bytes),
    /// A stream; more than [`ProviderBounds::bytes_max`] is an error.
    Stream(Box<dyn Read + Send>),
}

impl<T: Into<Bytes>> From<T> for Made {
    fn from(bytes: T) -> Made {
        Made::Bytes(bytes.into())
    }
}

/// The names of a directory, possibly without end.
pub type Names = Box<dyn Iterator<Item = Item> + Send>;

/// Makes entries on demand. An error is told to whoever looks, as the reason
/// of an I/O error.
pub trait Provide: Send + Sync + 'static {
    /// The names of a directory; a provider of one file has none.
    fn list(&self, _context: &Context) -> Result<Names, String> {
        Err("it makes a file, not a directory".to_owned())
    }

    /// The content of a file.
    fn read(&self, context: &Context) -> Result<Made, String>;

    /// One entry of a directory, for names that are not listed; see
    /// [`Provide::has_unlisted`].
    fn find(&self, _context: &Context) -> Result<Option<Item>, String> {
        Ok(None)
    }

    /// Whether there are such names. Only a live mount asks for them.
    fn has_unlisted(&self) -> bool {
        false
    }
}

/// A table of paths and what makes the entry there.
#[derive(Default)]
pub struct Provider {
    index: Index<usize>,
    dirs: Vec<(SandboxPath, usize)>,
    makers: Vec<Arc<dyn Provide>>,
    bounds: ProviderBounds,
    aside: Aside,
}

impl Provider {
    /// An empty table with other bounds than the usual ones.
    pub fn new(bounds: ProviderBounds) -> Provider {
        Provider { bounds, ..Provider::default() }
    }

    /// Makes a file at a path.
    pub fn file(self, path: impl AsRef<[u8]>, maker: impl Provide) -> Result<Provider, Fault> {
        self.put(path.as_ref(), Item::file(""), Arc::new(maker))
    }

    /// Makes all of a directory at a path, which may be the root `/`.
    pub fn dir(self, path: impl AsRef<[u8]>, maker: impl Provide) -> Result<Provider, Fault> {
        self.put(path.as_ref(), Item::dir(""), Arc::new(maker))
    }

    fn put(mut self, path: &[u8], item: Item, maker: Arc<dyn Provide>) -> Result<Provider, Fault> {
        let path = super::parse(path)?;
        if self.dirs.iter().any(|(dir, _)| path.is_within(dir)) {
            let reason = format!("{path} lies in a directory that something else makes");
            return Err(Fault::because(Kind::Invalid, reason));
        }
        let number = self.makers.len();
        self.makers.push(maker);
        match item.kind {
            super::ItemKind::Dir => {
                self.index.put(&path, item, None)?;
                self.dirs.push((path, number));
            }
            _ => self.index.put(&path, item, Some(number))?,
        }
        Ok(self)
    }

    /// What makes the directory a path lies in, and the path below it.
    fn dir_of(&self, at: &SandboxPath) -> Option<(&Arc<dyn Provide>, SandboxPath)> {
        let (dir, number) = self.dirs.iter().find(|(dir, _)| at.is_within(dir))?;
        Some((&self.makers[*number], at.moved(dir, &SandboxPath::root())?))
    }

    /// Has a maker answer, aside and in time.
    fn ask<T: Send + 'static>(
        &self,
        maker: &Arc<dyn Provide>,
        at: SandboxPath,
        ask: &Ask,
        answer: impl FnOnce(&dyn Provide, &Context, &ProviderBounds) -> Result<T, String>
        + Send
        + 'static,
    ) -> Result<T, Fault> {
        let (maker, bounds) = (maker.clone(), self.bounds);
        let context = Context {
            view: ask.view.clone(),
            path: ask.path.clone(),
            at,
            who: ask.who.into(),
            deadline: Instant::now() + bounds.time_max,
            bytes_max: bounds.bytes_max,
        };
        self.aside.run(&bounds, move || answer(&*maker, &context, &bounds))
    }
}

impl Source for Provider {
    fn kind(&self) -> &str {
        "provider"
    }

    fn describe(&self) -> String {
        format!("{} makers", self.makers.len())
    }

    fn list(&self, at: &SandboxPath, ask: &Ask) -> Result<Vec<Item>, Fault> {
        match self.dir_of(at) {
            None => self.index.list(at),
            Some((maker, below)) => self.ask(maker, below, ask, |maker, context, bounds| {
                let names: Vec<Item> = maker.list(context)?.take(bounds.names_max + 1).collect();
                match names.len() > bounds.names_max {
                    true => Err(format!("it lists more than {} names", bounds.names_max)),
                    false => Ok(names),
                }
            }),
        }
    }

    fn read(&self, at: &SandboxPath, ask: &Ask) -> Result<Bytes, Fault> {
        let (maker, below) = match self.dir_of(at) {
            Some(found) => found,
            None => (&self.makers[*self.index.file(at)?], SandboxPath::root()),
        };
        self.ask(maker, below, ask, |maker, context, bounds| {
            let made = maker.read(context)?;
            take(made, bounds.bytes_max)
        })
    }

    fn has_unlisted(&self) -> bool {
        self.dirs.iter().any(|(_, number)| self.makers[*number].has_unlisted())
    }

    fn stat(&self, at: &SandboxPath, ask: &Ask) -> Result<Option<Item>, Fault> {
        match self.dir_of(at).filter(|(maker, _)| maker.has_unlisted()) {
            None => Ok(None),
            Some((maker, below)) => {
                self.ask(maker, below, ask, |maker, context, _| maker.find(context))
            }
        }
    }
}

/// All bytes of an answer, if they are not too many.
fn take(made: Made, bytes_max: u64) -> Result<Bytes, String> {
    let bytes = match made {
        Made::Bytes(bytes) => bytes,
        Made::Stream(stream) => {
            let mut out = Vec::new();
            let read = stream.take(bytes_max + 1).read_to_end(&mut out);
            read.map_err(|error| error.to_string())?;
            out.into()
        }
    };
    match bytes.len() as u64 > bytes_max {
        true => Err(format!("it answers with more than {bytes_max} bytes")),
        false => Ok(bytes),
    }
}
