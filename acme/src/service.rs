//! Services by the names that `-S` gives them.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ibacm::dirs;
use libibacm::{ACME_PORT_FILE, Client, DEFAULT_PORT, Error, Target, published_port_in};

use crate::fault::{Fault, strerror};

/// The socket file of this host's service.
pub fn default_socket() -> PathBuf {
    Path::new(dirs::RUN).join("ibacm-unix.sock")
}

/// Whether the file that should have the port's number has something else, where a host is asked.
pub fn has_unreadable_port(name: &str) -> bool {
    // As fscanf(3) reads a number.
    let number =
        |text: &str| text.trim_start().trim_start_matches(['+', '-']).starts_with(|c: char| c.is_ascii_digit());
    !name.starts_with('/') && std::fs::read(ACME_PORT_FILE).is_ok_and(|text| !number(&String::from_utf8_lossy(&text)))
}

/// Connects to a service: the path of a socket file, or a host.
///
/// The error is the exit status and why.
pub fn connect(name: &str, limit: Duration) -> Result<Client, (i32, Fault)> {
    let target = if name.starts_with('/') {
        Target::Unix(name.into())
    } else {
        // The number is the one of this host's service, whichever host is asked: where nothing else is said the
        // hosts of a cluster are configured alike.
        let port = published_port_in(Path::new(ACME_PORT_FILE)).unwrap_or(DEFAULT_PORT);
        Target::parse_within(name, port, limit).map_err(|e| unknown_host(name, &e))?
    };
    let is_file = matches!(target, Target::Unix(_));
    let client = Client::new(target).with_limit(limit);
    match client.connect() {
        Ok(()) => Ok(client),
        Err(e) => {
            let fault = unreachable(name, is_file, &e);
            // What a script may know: a socket file's errno, and -1 for a host.
            Err((if is_file { fault.errno } else { -1 }, fault))
        }
    }
}

fn unknown_host(name: &str, e: &io::Error) -> (i32, Fault) {
    let errno = if e.kind() == io::ErrorKind::TimedOut { libc::ETIMEDOUT } else { libc::EADDRNOTAVAIL };
    let fault = Fault::local(
        errno,
        &format!("no address for '{name}': {e}"),
        "a service is the path of its socket file, with a '/' in it, or a host that this one knows",
    );
    // The number of EAI_NONAME.
    (-2, fault)
}

fn unreachable(name: &str, is_file: bool, e: &Error) -> Fault {
    let fault = Fault::of(e);
    let advice = match fault.errno {
        libc::ENOENT if is_file => format!(
            "no daemon at {name}: is it running? Start it (systemctl start ibacm, or ibacm), or name its socket with -S"
        ),
        libc::ECONNREFUSED if is_file => {
            format!("{name} is what a daemon has left behind that is gone: start it (systemctl start ibacm, or ibacm)")
        }
        libc::ECONNREFUSED => format!(
            "nobody listens at {name}: is ibacm running there, with server_mode loop (for this host) or open, and the \
             same server_port?"
        ),
        libc::EACCES | libc::EPERM => format!("you may not use {name}: look at its permissions, or be root"),
        libc::ETIMEDOUT => format!("{name} does not answer: is the host up, and no firewall between?"),
        libc::ENAMETOOLONG | libc::EINVAL if is_file => format!("{name} is no path that a socket can have"),
        _ => fault.advice.clone(),
    };
    fault.advising(advice)
}

/// The line that scripts may know.
pub fn complaint(name: &str, fault: &Fault) -> String {
    // A resolver's failure is no errno.
    let why = if fault.text.starts_with("no address") { fault.text.clone() } else { strerror(fault.errno) };
    format!("{name},unable to contact service: {why}")
}
