//! What this program is inside of sandboxes in which clients of a server work:
//! it is started there under words that no person types.

use std::process::ExitCode;

/// Does what one of these words asks for; `None` for every other command line.
#[cfg(feature = "server")]
pub fn serve() -> Option<ExitCode> {
    let mut words = std::env::args_os().skip(1);
    let first = words.next()?;
    let ended = if first == fractal_server::ENVD {
        fractal_envd::serve().err()?
    } else if first == fractal_server::REXD {
        fractal_envd::rex::serve().err()?
    } else if first == fractal_envd::TAKE_TERMINAL {
        fractal_envd::take_terminal(words.collect())
    } else {
        return None;
    };
    // Whoever started it reads this.
    eprintln!("{ended}");
    Some(ExitCode::from(126))
}

#[cfg(not(feature = "server"))]
pub fn serve() -> Option<ExitCode> {
    None
}
