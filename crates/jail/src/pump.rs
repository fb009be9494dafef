//! Moves input and output of a run, within bounds.
//!
//! The program never gets a descriptor of a host file or terminal: through
//! `/proc/self/fd` it could open that file again with other rights. Pipes and
//! sockets are handed in as they are; everything else is copied through pipes
//! or a terminal made inside.

use crate::JailError;
use crate::run::{Running, Why, own};
use crate::spec::{Spec, Top};
use crate::sys::{fd, socket};
use crate::terminal::{FarEnd, Heard, Signals, Terminal};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

/// Where a program's input comes from.
#[derive(Debug)]
pub enum Input {
    /// Nothing.
    Null,
    /// These bytes.
    Bytes(Vec<u8>),
    /// A descriptor of the caller.
    Descriptor(OwnedFd),
    /// Somebody who is no terminal of this machine, for a run that has one.
    Far(FarEnd),
}

/// Where a program's output goes.
#[derive(Debug)]
pub enum Output {
    /// Into memory, at most so many bytes of it.
    Capture(usize),
    /// To a descriptor of the caller.
    Descriptor(OwnedFd),
    /// To a descriptor of the caller, and the last so many bytes of it into
    /// memory.
    Copied(OwnedFd, usize),
}

impl Output {
    fn descriptor(&self) -> Option<&OwnedFd> {
        match self {
            Output::Capture(_) => None,
            Output::Descriptor(to) | Output::Copied(to, _) => Some(to),
        }
    }
}

/// Input and output of a run.
#[derive(Debug)]
pub struct Streams {
    /// Standard input.
    pub stdin: Input,
    /// Standard output.
    pub stdout: Output,
    /// Standard error.
    pub stderr: Output,
    /// Forward interrupts and window changes, and put the caller's terminal
    /// into raw mode if the run has one. For command lines.
    pub interactive: bool,
    /// A connection to the caller, where that is another process: each byte
    /// that comes is a signal for the program, and its end ends the run.
    pub caller: Option<OwnedFd>,
}

/// Begins to serve a door, until what it returns is dropped.
pub type OpenDoor = Box<dyn FnOnce(OwnedFd) -> Box<dyn std::any::Any>>;

/// Captured bytes of one stream.
#[derive(Debug, Default)]
pub struct Captured {
    /// What was kept.
    pub bytes: Vec<u8>,
    /// How much there was.
    pub total_bytes: u64,
}

impl Captured {
    /// Takes more, and forgets the beginning of what is too much.
    pub fn keep_end(&mut self, bytes: &[u8], most: usize) {
        self.total_bytes += bytes.len() as u64;
        self.bytes.extend_from_slice(&bytes[bytes.len().saturating_sub(most)..]);
        let too_many = self.bytes.len().saturating_sub(most);
        // Moved now and then only, so that many small pieces cost little.
        if too_many > most {
            self.bytes.drain(..too_many);
        }
    }

    /// Whether something was left out.
    pub fn is_truncated(&self) -> bool {
        self.total_bytes > self.bytes.len() as u64
    }
}

const CHUNK_BYTES: usize = 64 * 1024;
/// How long programs may go on after their terminal was hung up.
const HANG_UP_GRACE: Duration = Duration::from_secs(5);

/// One output stream on its way.
struct Flow {
    from: Option<OwnedFd>,
    to: Output,
    captured: Captured,
    /// Bytes that passed, kept or not.
    moved_bytes: u64,
    /// Why what came could not be passed on.
    write_errno: Option<i32>,
}

/// The state of all streams of a run.
pub struct Pump {
    source: Option<OwnedFd>,
    pending: Vec<u8>,
    input: Option<OwnedFd>,
    flows: Vec<Flow>,
    /// Room for one chunk. Zeroed by the kernel, page by page as it is used.
    chunk: Vec<u8>,
    output_bytes_max: Option<u64>,
    disk: Option<DiskWatch>,
    far: Option<FarEnd>,
    /// When a run whose terminal was hung up is ended.
    hung_up: Option<Instant>,
    interactive: bool,
    caller: Option<OwnedFd>,
    terminal: bool,
    /// Who serves the run's door, once there is one.
    pub door: Option<OpenDoor>,
    /// The limit that we stopped the run for. The program may end of a closed
    /// pipe before the monitor comes to it.
    pub stopped: Option<Why>,
}

impl Pump {
    /// A pump for runs whose descriptors were handed over whole.
    pub fn idle() -> Pump {
        Pump {
            source: None,
            pending: Vec::new(),
            input: None,
            flows: Vec::new(),
            chunk: Vec::new(),
            output_bytes_max: None,
            disk: None,
            far: None,
            hung_up: None,
            interactive: false,
            caller: None,
            terminal: false,
            door: None,
            stopped: None,
        }
    }

    /// Makes the pipes; also returns the program's ends (none: a terminal).
    pub fn new(streams: Streams, spec: &Spec) -> Result<(Pump, Option<[OwnedFd; 3]>), JailError> {
        let mut pump = Pump::idle();
        pump.chunk = vec![0; CHUNK_BYTES];
        pump.output_bytes_max = spec.limits.output_bytes;
        pump.interactive = streams.interactive;
        pump.caller = streams.caller;
        pump.disk = DiskWatch::new(spec);
        if spec.terminal {
            pump.terminal = true;
            match streams.stdin {
                Input::Descriptor(fd) => pump.source = Some(fd),
                Input::Far(far) => {
                    pump.source = far.typed()?;
                    pump.far = Some(far);
                }
                Input::Null | Input::Bytes(_) => {}
            }
            pump.flows.push(Flow::new(None, streams.stdout));
            return Ok((pump, None));
        }
        let stdin = pump.open_input(streams.stdin)?;
        let one_place = leads_to_one_place(&streams.stdout, &streams.stderr);
        let stdout = pump.open_output(streams.stdout)?;
        // Two pipes would not keep the order of what is written to them.
        let stderr = if one_place { copy_of(&stdout)? } else { pump.open_output(streams.stderr)? };
        Ok((pump, Some([stdin, stdout, stderr])))
    }

    /// The program's end of a new stream.
    fn open_output(&mut self, to: Output) -> Result<OwnedFd, JailError> {
        let (read_end, write_end) = pipe()?;
        self.flows.push(Flow::new(Some(read_end), to));
        Ok(write_end)
    }

    /// The caller's terminal, if it will be put into raw mode.
    pub fn screen(&self) -> Option<OwnedFd> {
        let source = self.source.as_ref().filter(|_| self.terminal && self.interactive)?;
        if !fd::is_terminal(source.as_raw_fd()) {
            return None;
        }
        fd::dup_above(source.as_raw_fd(), 10).ok().map(own)
    }

    fn open_input(&mut self, input: Input) -> Result<OwnedFd, JailError> {
        match input {
            Input::Null | Input::Far(_) => null(),
            Input::Bytes(bytes) => {
                self.pending = bytes;
                self.input_pipe()
            }
            Input::Descriptor(descriptor) => {
                let raw = descriptor.as_raw_fd();
                if socket::is_pipe_or_socket(raw) {
                    return Ok(descriptor);
                }
                if fd::is_terminal(raw) && !fd::is_foreground(raw) {
                    // Reading would stop us like any background job.
                    return null();
                }
                self.source = Some(descriptor);
                self.input_pipe()
            }
        }
    }

    fn input_pipe(&mut self) -> Result<OwnedFd, JailError> {
        let (read_end, write_end) = pipe()?;
        let _ = fd::set_nonblocking(write_end.as_raw_fd());
        self.input = Some(write_end);
        Ok(read_end)
    }

    /// Moves data until the run is over and all output has arrived.
    pub fn follow(&mut self, running: &mut Running) -> Result<(), JailError> {
        let signals = self.interactive.then(Signals::take).flatten();
        let mut screen: Option<Terminal> = None;
        let mut proxy = None;
        let mut door = None;
        let mut over = false;
        while !over || self.flows.iter().any(|flow| flow.from.is_some()) {
            let wait_ms = if over { 200 } else { self.wait_ms() };
            let polled = self.wait(running, over, signals.as_ref(), wait_ms)?;
            if polled.control && !over {
                over = !running.absorb();
                self.adopt_terminal(running, &mut screen);
                if let Some(listener) = running.state.proxy.take() {
                    proxy = Some(crate::proxy::serve(listener, running.allowed.clone()));
                }
                if let Some(listener) = running.state.door.take() {
                    door = self.door.take().map(|open| open(listener));
                }
            }
            if polled.signal {
                match &signals {
                    Some(signals) => signals.forward(running, screen.as_ref()),
                    None => self.hear(running),
                }
            }
            if polled.far {
                self.listen();
            }
            if polled.input {
                self.feed();
            }
            for (index, ready) in polled.flows.into_iter().enumerate() {
                if ready {
                    let left = self.output_left();
                    self.flows[index].drain(&mut self.chunk, left);
                }
            }
            if over && polled.none {
                // Somebody outside still holds the other end; all inside are
                // dead, so nothing more can come.
                self.flows.iter_mut().for_each(|flow| flow.from = None);
            }
            self.enforce(running);
        }
        drop((proxy, door));
        Ok(())
    }

    fn listened(&self) -> RawFd {
        self.caller.as_ref().map_or(-1, AsRawFd::as_raw_fd)
    }

    /// Does what the caller in another process says. One that is gone wants
    /// nothing any more, as if it had been the one who supervises.
    fn hear(&mut self, running: &Running) {
        let mut said = [0u8];
        match fd::read(self.listened(), &mut said) {
            Ok(1) => running.signal(i32::from(said[0])),
            Err(libc::EAGAIN | libc::EINTR) => {}
            _ => {
                self.caller = None;
                running.stop(Why::Asked);
            }
        }
    }

    fn adopt_terminal(&mut self, running: &mut Running, screen: &mut Option<Terminal>) {
        let Some(master) = running.state.terminal.take() else { return };
        if self.hung_up.is_some() {
            return;
        }
        if let Ok(copy) = master.try_clone() {
            if self.interactive {
                *screen = Terminal::attach(self.source.as_ref().map(AsRawFd::as_raw_fd), &copy);
            }
            let _ = fd::set_nonblocking(copy.as_raw_fd());
            if let Some(far) = &mut self.far {
                far.attach(&copy);
            }
            self.input = Some(copy);
        }
        self.flows[0].from = Some(master);
    }

    /// Takes in what the far end says. When it is gone the terminal goes, too:
    /// the kernel tells the programs on it.
    fn listen(&mut self) {
        let Some(far) = &mut self.far else { return };
        if far.hear() == Heard::Gone {
            self.far = None;
            self.source = None;
            self.input = None;
            self.pending.clear();
            self.flows[0].from = None;
            self.hung_up = Some(Instant::now() + HANG_UP_GRACE);
        }
    }

    /// Until there is something to look after, in milliseconds.
    fn wait_ms(&self) -> i32 {
        let disk = self.disk.as_ref().map(DiskWatch::wait_ms);
        let left = |at: &Instant| at.saturating_duration_since(Instant::now()).as_millis() as i32;
        let hung_up = self.hung_up.as_ref().map(|at| left(at) + 1);
        disk.into_iter().chain(hung_up).min().unwrap_or(-1)
    }

    fn moved_bytes(&self) -> u64 {
        self.flows.iter().map(|flow| flow.moved_bytes).sum()
    }

    /// How much may still be passed on.
    fn output_left(&self) -> u64 {
        self.output_bytes_max.map_or(u64::MAX, |max| max.saturating_sub(self.moved_bytes()))
    }

    /// Stops a run that passes its output or disk limit.
    fn enforce(&mut self, running: &Running) {
        if self.output_bytes_max.is_some_and(|max| self.moved_bytes() > max) {
            self.output_bytes_max = None;
            running.stop(Why::Output);
            self.stopped = Some(Why::Output);
            // What is still in the pipes is over the limit too.
            self.flows.iter_mut().for_each(|flow| flow.from = None);
        }
        if self.hung_up.is_some_and(|at| at <= Instant::now()) {
            self.hung_up = None;
            running.stop(Why::Asked);
        }
        if self.disk.as_mut().is_some_and(DiskWatch::is_exceeded) {
            self.disk = None;
            running.stop(Why::Disk);
            self.stopped = Some(Why::Disk);
        }
    }

    fn wait(
        &self,
        running: &Running,
        over: bool,
        signals: Option<&Signals>,
        wait_ms: i32,
    ) -> Result<Polled, JailError> {
        let entry = |fd: RawFd, events: i16| libc::pollfd { fd, events, revents: 0 };
        let control = if over { -1 } else { running.control.as_raw_fd() };
        let (input, input_events) = self.input_interest();
        let mut fds = vec![
            entry(control, libc::POLLIN),
            entry(signals.map_or(self.listened(), Signals::descriptor), libc::POLLIN),
            entry(input, input_events),
            // Before there is a terminal there is nothing to say to it.
            entry(self.far.as_ref().map_or(-1, FarEnd::descriptor), libc::POLLIN),
        ];
        let flow_fd = |flow: &Flow| flow.from.as_ref().map_or(-1, AsRawFd::as_raw_fd);
        fds.extend(self.flows.iter().map(|flow| entry(flow_fd(flow), libc::POLLIN)));
        let count = fd::poll(&mut fds, wait_ms)
            .map_err(|errno| JailError::System { what: "wait for the run".into(), errno })?;
        Ok(Polled {
            none: count == 0,
            control: fds[0].revents != 0,
            signal: fds[1].revents != 0,
            input: fds[2].revents != 0,
            far: fds[3].revents != 0,
            flows: fds[4..].iter().map(|fd| fd.revents != 0).collect(),
        })
    }

    /// Either we have bytes to write, or want some to read, or neither.
    fn input_interest(&self) -> (RawFd, i16) {
        match (&self.input, &self.source) {
            (None, _) => (-1, 0),
            (Some(input), _) if !self.pending.is_empty() => (input.as_raw_fd(), libc::POLLOUT),
            (Some(_), Some(source)) => (source.as_raw_fd(), libc::POLLIN),
            (Some(input), None) if !self.terminal => (input.as_raw_fd(), libc::POLLOUT),
            (Some(_), None) => (-1, 0),
        }
    }

    fn feed(&mut self) {
        if self.pending.is_empty() {
            let source = self.source.as_ref().map(AsRawFd::as_raw_fd);
            match source.map(|source| fd::read(source, &mut self.chunk)) {
                Some(Ok(count)) if count > 0 => self.pending.extend(&self.chunk[..count]),
                // End of input: close the pipe so that the program sees it. A
                // terminal is told by the end-of-file character instead.
                _ => {
                    self.source = None;
                    if self.terminal { self.pending = vec![4] } else { self.input = None }
                }
            }
            return;
        }
        let Some(input) = &self.input else { return };
        match fd::write(input.as_raw_fd(), &self.pending) {
            Ok(count) => drop(self.pending.drain(..count)),
            Err(libc::EAGAIN) => {}
            Err(_) => {
                // The program closed its input; what is left has no reader.
                self.input = None;
                self.pending.clear();
            }
        }
    }

    /// Whether a writer has met the end of the room for files, in the layer
    /// that was watched or in memory.
    pub fn is_disk_full(&self, memory_top: Option<&OwnedFd>) -> bool {
        let watched = self.disk.as_ref().is_some_and(|disk| is_full(disk.used(), disk.limit_bytes));
        let room = memory_top.and_then(|top| rustix::fs::fstatvfs(top).ok());
        let in_memory = room.is_some_and(|room| {
            let used_bytes = room.f_blocks.saturating_sub(room.f_bfree) * room.f_frsize;
            is_full(used_bytes, room.f_blocks * room.f_frsize) || room.f_ffree == 0
        });
        watched || in_memory || self.stopped == Some(Why::Disk)
    }

    /// Why output of the program was lost on its way to the caller. A reader
    /// that left had enough, and nothing is lost.
    pub fn write_errno(&self) -> Option<i32> {
        let mut errnos = self.flows.iter().filter_map(|flow| flow.write_errno);
        errnos.find(|errno| *errno != libc::EPIPE)
    }

    /// What was captured: output, errors.
    pub fn into_captured(mut self) -> (Captured, Captured) {
        let mut flows = self.flows.drain(..).map(|flow| flow.captured);
        (flows.next().unwrap_or_default(), flows.next().unwrap_or_default())
    }
}

impl Flow {
    fn new(from: Option<OwnedFd>, to: Output) -> Flow {
        Flow { from, to, captured: Captured::default(), moved_bytes: 0, write_errno: None }
    }

    /// Takes what has come and passes on at most `left` bytes of it.
    fn drain(&mut self, buffer: &mut [u8], left: u64) {
        let Some(from) = &self.from else { return };
        let count = match fd::read(from.as_raw_fd(), buffer) {
            Err(libc::EAGAIN) => return,
            // A terminal whose last user is gone answers EIO.
            Ok(0) | Err(_) => {
                self.from = None;
                return;
            }
            Ok(count) => count,
        };
        self.moved_bytes += count as u64;
        let passed = count.min(usize::try_from(left).unwrap_or(usize::MAX));
        match &self.to {
            Output::Capture(max) => {
                self.captured.total_bytes += count as u64;
                let room = max.saturating_sub(self.captured.bytes.len()).min(passed);
                self.captured.bytes.extend_from_slice(&buffer[..room]);
            }
            Output::Descriptor(to) | Output::Copied(to, _) => {
                if let Output::Copied(_, most) = &self.to {
                    self.captured.keep_end(&buffer[..passed], *most);
                }
                if let Err(errno) = write_all(to.as_raw_fd(), &buffer[..passed]) {
                    // Nobody reads any more: let the program see it too.
                    self.from = None;
                    self.write_errno = Some(errno);
                }
            }
        }
    }
}

fn write_all(to: RawFd, mut bytes: &[u8]) -> Result<(), i32> {
    while !bytes.is_empty() {
        match fd::write(to, bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(libc::EAGAIN) => {
                let mut ready = [libc::pollfd { fd: to, events: libc::POLLOUT, revents: 0 }];
                fd::poll(&mut ready, 1000)?;
            }
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

struct Polled {
    none: bool,
    control: bool,
    signal: bool,
    input: bool,
    far: bool,
    flows: Vec<bool>,
}

/// What does not fit is not written, so a little may be left free.
fn is_full(used_bytes: u64, limit_bytes: u64) -> bool {
    used_bytes.saturating_add((64 << 10).min(limit_bytes / 16)) > limit_bytes
}

/// Adds up a layer's bytes now and then, and never spends more than a small
/// share of the time on it.
struct DiskWatch {
    /// The layer's tree, and scratch space that lies beside it.
    dirs: Vec<std::path::PathBuf>,
    limit_bytes: u64,
    next: Instant,
}

impl DiskWatch {
    const PAUSE: Duration = Duration::from_millis(100);

    /// A memory top is bounded by its size already.
    fn new(spec: &Spec) -> Option<DiskWatch> {
        let Top::Disk(name) = &spec.stack.top else { return None };
        let mut dirs = vec![spec.stack.layers_dir.join(name).join("tree")];
        if spec.tier == fractal_model::Tier::Copied {
            dirs.extend(crate::copied::scratch(spec));
        }
        Some(DiskWatch {
            dirs,
            limit_bytes: spec.limits.disk_bytes?,
            next: Instant::now() + Self::PAUSE,
        })
    }

    fn wait_ms(&self) -> i32 {
        self.next.saturating_duration_since(Instant::now()).as_millis() as i32 + 1
    }

    fn is_exceeded(&mut self) -> bool {
        let start = Instant::now();
        if start < self.next {
            return false;
        }
        let used = self.used();
        self.next = Instant::now() + Self::PAUSE.max(start.elapsed() * 10);
        used > self.limit_bytes
    }

    fn used(&self) -> u64 {
        let measure = |dir: &std::path::PathBuf| {
            let usage = crate::layer::Layer::open(dir).and_then(|layer| {
                crate::layer::disk_usage(&layer, &crate::layer::Bounds::default())
            });
            // What lies too deep, or among too many others, to be counted is
            // too much: otherwise depth would be a way around the limit.
            usage.map_or(0, |usage| if usage.truncated { u64::MAX } else { usage.bytes })
        };
        self.dirs.iter().map(measure).fold(0, u64::saturating_add)
    }
}

/// Whether output and errors of the caller's end up in one stream, whose order
/// people and logs rely on. Two openings of one ordinary file have a position
/// each and write over one another, unless both only append.
fn leads_to_one_place(stdout: &Output, stderr: &Output) -> bool {
    use rustix::fs::{FileType, OFlags, fcntl_getfl, fstat};
    let (Some(out), Some(err)) = (stdout.descriptor(), stderr.descriptor()) else { return false };
    let (Ok(a), Ok(b)) = (fstat(out), fstat(err)) else { return false };
    if (a.st_dev, a.st_ino) != (b.st_dev, b.st_ino) {
        return false;
    }
    let appends = |fd: &OwnedFd| fcntl_getfl(fd).is_ok_and(|flags| flags.contains(OFlags::APPEND));
    FileType::from_raw_mode(a.st_mode) != FileType::RegularFile
        || (appends(out) && appends(err))
        || fd::is_same_opening(out.as_raw_fd(), err.as_raw_fd()) == Ok(true)
}

fn copy_of(descriptor: &OwnedFd) -> Result<OwnedFd, JailError> {
    descriptor.try_clone().map_err(|error| JailError::System {
        what: "copy a descriptor".into(),
        errno: error.raw_os_error().unwrap_or(0),
    })
}

fn pipe() -> Result<(OwnedFd, OwnedFd), JailError> {
    let ends =
        fd::pipe().map_err(|errno| JailError::System { what: "make a pipe".into(), errno })?;
    Ok((own(ends.0), own(ends.1)))
}

fn null() -> Result<OwnedFd, JailError> {
    fd::open(c"/dev/null", libc::O_RDWR, 0)
        .map(own)
        .map_err(|errno| JailError::System { what: "open /dev/null".into(), errno })
}
