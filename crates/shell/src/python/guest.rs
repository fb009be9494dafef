//! One program in its WebAssembly instance: what it was given and what it
//! has said.

use super::abi::{Done, Errno};
use super::clock::Clock;
use super::files::Files;
use super::imports;
use crate::adapter::cpython;
use std::sync::OnceLock;
use wasmtime::{Engine, InstancePre, Linker, StoreLimits, StoreLimitsBuilder};

/// What the interpreter may go down in its own calls. Functions of Python
/// meet Python's limit before this one; data within data that C walks through
/// meets this one first, and well before the end of the stack that the guest
/// keeps in its own memory.
const GUEST_STACK_BYTES: usize = 4 << 20;

/// The same and room for the host's part of a call.
const STACK_BYTES: usize = GUEST_STACK_BYTES + (4 << 20);

/// Everything that the instance can reach.
pub(super) struct Guest {
    pub(super) args: Vec<Vec<u8>>,
    pub(super) env: Vec<Vec<u8>>,
    pub(super) stdin: Vec<u8>,
    pub(super) stdin_at: usize,
    pub(super) said: Said,
    pub(super) files: Files,
    pub(super) clock: Clock,
    pub(super) limits: StoreLimits,
    /// What the guest fetches next as the answer to a request for the
    /// network.
    pub(super) refusal: Option<&'static [u8]>,
    /// Why it ends now.
    pub(super) end: Option<End>,
}

/// An end that the host brings about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum End {
    #[error("exit {0}")]
    Exit(i32),
    #[error("more output than may be kept")]
    Output,
}

/// What it wrote to standard output and standard error.
#[derive(Default)]
pub(super) struct Said {
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: Vec<u8>,
    pub(super) bytes_max: usize,
}

impl Guest {
    /// Takes what fits, and ends a program that says more.
    pub(super) fn say(&mut self, to_stdout: bool, bytes: &[u8]) -> Done {
        let said = &mut self.said;
        let room = said.bytes_max.saturating_sub(said.stdout.len() + said.stderr.len());
        let sink = if to_stdout { &mut said.stdout } else { &mut said.stderr };
        sink.extend_from_slice(&bytes[..bytes.len().min(room)]);
        if bytes.len() <= room {
            return Ok(());
        }
        self.end = Some(End::Output);
        Err(Errno::IO)
    }

    pub(super) fn read_input(&mut self, most: usize) -> Vec<u8> {
        let rest = &self.stdin[self.stdin_at..];
        let piece = rest[..rest.len().min(most)].to_vec();
        self.stdin_at += piece.len();
        piece
    }
}

/// Memory for the guest, and one instance of everything else.
pub(super) fn limits(memory_bytes_max: usize) -> StoreLimits {
    let limits = StoreLimitsBuilder::new().memory_size(memory_bytes_max);
    limits.instances(1).memories(1).tables(4).build()
}

/// The interpreter, ready to be instantiated; the same for all programs of
/// this process.
pub(super) struct Interpreter {
    pub(super) engine: Engine,
    pub(super) start: InstancePre<Guest>,
    /// What an instance takes before it does anything.
    pub(super) memory_bytes_min: usize,
}

pub(super) fn interpreter() -> Result<&'static Interpreter, &'static str> {
    static READY: OnceLock<Result<Interpreter, String>> = OnceLock::new();
    let ready = READY.get_or_init(|| load().map_err(|error| format!("{error:#}")));
    ready.as_ref().map_err(String::as_str)
}

fn load() -> wasmtime::Result<Interpreter> {
    let mut config = cpython::engine_config();
    config.max_wasm_stack(GUEST_STACK_BYTES);
    config.async_stack_size(STACK_BYTES);
    let engine = Engine::new(&config)?;
    let module = cpython::load_module(&engine)?;
    let mut linker = Linker::new(&engine);
    imports::link(&mut linker)?;
    let start = linker.instantiate_pre(&module)?;
    let memories = module.exports().filter_map(|export| export.ty().memory().cloned());
    let pages: u64 = memories.map(|memory| memory.minimum()).sum();
    Ok(Interpreter { engine, start, memory_bytes_min: (pages << 16) as usize })
}
