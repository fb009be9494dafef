//! Why something was not done, as an exception that the client raises again.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};
use std::fmt::Display;
use std::io::{self, ErrorKind};

/// The status that clients look into for an exception.
const STATUS: StatusCode = StatusCode::NETWORK_AUTHENTICATION_REQUIRED;

/// An exception: its class in Python, and what it says.
#[derive(Debug)]
pub struct Thrown {
    class: String,
    message: String,
    extra: Map<String, Value>,
}

impl Thrown {
    /// One of the client's own.
    pub fn new(class: &str, message: impl Into<String>) -> Thrown {
        Thrown::of(&format!("swerex.exceptions.{class}"), message)
    }

    /// One of any module.
    pub fn of(class: &str, message: impl Into<String>) -> Thrown {
        Thrown { class: class.to_owned(), message: message.into(), extra: Map::new() }
    }

    /// More that who catches it may want to know.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Thrown {
        self.extra.insert(name.to_owned(), value.into());
        self
    }

    /// Something took longer than it may.
    pub fn timeout(message: impl Into<String>) -> Thrown {
        Thrown::new("CommandTimeoutError", message)
    }

    /// What the system said about a path or a program, as Python says it.
    pub fn system(error: &io::Error, about: impl Display) -> Thrown {
        let class = match error.kind() {
            ErrorKind::NotFound => "FileNotFoundError",
            ErrorKind::PermissionDenied => "PermissionError",
            ErrorKind::AlreadyExists => "FileExistsError",
            ErrorKind::IsADirectory => "IsADirectoryError",
            ErrorKind::NotADirectory => "NotADirectoryError",
            ErrorKind::InvalidInput if error.raw_os_error().is_none() => "ValueError",
            _ => "OSError",
        };
        let text = error.to_string();
        let message = match error.raw_os_error() {
            Some(number) => {
                let text = text.trim_end_matches(&format!(" (os error {number})"));
                format!("[Errno {number}] {text}: '{about}'")
            }
            None => format!("{text}: '{about}'"),
        };
        Thrown::of(&format!("builtins.{class}"), message)
    }
}

impl IntoResponse for Thrown {
    fn into_response(self) -> Response {
        let body = json!({ "swerexception": {
            "message": self.message,
            "class_path": self.class,
            "traceback": "",
            "extra_info": self.extra,
        } });
        (STATUS, axum::Json(body)).into_response()
    }
}

/// Why a request was not carried out.
pub enum Refused {
    Thrown(Thrown),
    /// What was sent is no request.
    Invalid(String),
}

impl From<Thrown> for Refused {
    fn from(thrown: Thrown) -> Refused {
        Refused::Thrown(thrown)
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        match self {
            Refused::Thrown(thrown) => thrown.into_response(),
            Refused::Invalid(detail) => {
                let body = axum::Json(json!({ "detail": detail }));
                (StatusCode::UNPROCESSABLE_ENTITY, body).into_response()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_system_are_those_of_python() {
        let check = |number: i32, class: &str, message: &str| {
            let thrown = Thrown::system(&io::Error::from_raw_os_error(number), "x");
            assert_eq!((thrown.class.as_str(), thrown.message.as_str()), (class, message));
        };
        let missing = "[Errno 2] No such file or directory: 'x'";
        check(2, "builtins.FileNotFoundError", missing);
        check(13, "builtins.PermissionError", "[Errno 13] Permission denied: 'x'");
        check(21, "builtins.IsADirectoryError", "[Errno 21] Is a directory: 'x'");
        check(28, "builtins.OSError", "[Errno 28] No space left on device: 'x'");
    }
}
