//! Failures, in the words of the C library that scripts may know, and what can be done about them.

use std::io;

use libibacm::{Error, Status};

use crate::json::Json;

/// Why something has no answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// The `errno` that says it.
    pub errno: i32,
    /// The status with which the service has answered, if it has: `ACM_STATUS_*`.
    pub status: Option<u8>,
    /// In words.
    pub text: String,
    /// What to do about it.
    pub advice: String,
}

impl Fault {
    /// Something that never was asked.
    pub fn local(errno: i32, text: &str, advice: &str) -> Fault {
        Fault { errno, status: None, text: text.to_owned(), advice: advice.to_owned() }
    }

    /// A failure of a request.
    pub fn of(error: &Error) -> Fault {
        let (errno, status) = match error {
            Error::Status(number) => (status_errno(error.status()), Some(*number)),
            other => (other.errno().unwrap_or(libc::EIO), None),
        };
        let text = error.to_string();
        let advice = error.advice();
        // The advice is also the end of the text, in brackets.
        let text = text.strip_suffix(&format!(" ({advice})")).unwrap_or(&text).to_owned();
        Fault { errno, status, text, advice: advice.to_owned() }
    }

    /// The same with other advice.
    pub fn advising(self, advice: String) -> Fault {
        Fault { advice, ..self }
    }

    /// What `strerror` says of it.
    pub fn strerror(&self) -> String {
        strerror(self.errno)
    }

    /// For documents.
    pub fn json(&self) -> Json {
        Json::Object(vec![
            ("status", self.status.into()),
            ("errno", Json::Number(self.errno.unsigned_abs().into())),
            ("text", self.text.as_str().into()),
            ("advice", self.advice.as_str().into()),
        ])
    }
}

/// The words for an `errno`.
pub fn strerror(errno: i32) -> String {
    let text = io::Error::from_raw_os_error(errno).to_string();
    text.strip_suffix(&format!(" (os error {errno})")).unwrap_or(&text).to_owned()
}

fn status_errno(status: Option<Status>) -> i32 {
    match status {
        Some(Status::Enomem) => libc::ENOMEM,
        Some(Status::Enodata) => libc::ENODATA,
        Some(Status::Enotconn) => libc::ENOTCONN,
        Some(Status::Etimedout) => libc::ETIMEDOUT,
        Some(Status::Esrcaddr | Status::Edestaddr) => libc::EADDRNOTAVAIL,
        _ => libc::EINVAL,
    }
}

/// An exit status as the last line shows it, of which the system keeps the lowest byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outcome(pub i32);

impl Outcome {
    /// All went well.
    pub const GOOD: Outcome = Outcome(0);
    /// Something failed that has no number.
    pub const FAILED: Outcome = Outcome(-1);

    /// This, and then that: a later success does not undo a failure.
    pub fn then(self, later: Outcome) -> Outcome {
        if later == Outcome::GOOD { self } else { later }
    }
}
