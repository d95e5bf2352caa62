//! The subnet from outside: bringing it up, sending it commands, taking it down.

use std::fmt;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::children;
use crate::options::Options;
use crate::paths::{INSIDE, StateDir};

/// More than the daemon gives itself, which says what was missing.
const PATIENCE: Duration = Duration::from_secs(180);

/// Why something did not work.
#[derive(Debug)]
pub struct Error(pub(crate) String);

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

impl From<io::Error> for Error {
    fn from(e: io::Error) -> Self {
        Error(e.to_string())
    }
}

/// Starts the daemon of a subnet and waits until the subnet is up. One that does not come up leaves nothing.
pub fn up(program: &Path, options: &Options) -> Result<(), Error> {
    let state = &options.state;
    if state.daemon().is_some() {
        return Err(Error(format!("{}: a subnet is up there", state.path().display())));
    }
    if state.path() == Path::new(INSIDE) {
        return Err(Error(format!("{INSIDE} is where hosts see their subnet: take another directory")));
    }
    if state.path().join("topology").exists() {
        // What a subnet that was killed has left.
        down(state)?;
    }
    fs::create_dir_all(state.path())?;
    start(program, options).inspect_err(|_| {
        let _ = down(state);
    })
}

fn start(program: &Path, options: &Options) -> Result<(), Error> {
    let state = &options.state;
    let log = fs::File::create(state.file("fabric.log"))?;
    let mut daemon = Command::new(program)
        .arg("serve")
        .args(options.to_args())
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()?;
    let end = Instant::now() + PATIENCE;
    while !state.ready_file().exists() {
        if let Some(status) = daemon.try_wait()? {
            let log = fs::read_to_string(state.file("fabric.log")).unwrap_or_default();
            return Err(Error(format!("the subnet's daemon ended, {status}:\n{log}")));
        }
        if Instant::now() > end {
            children::stop(&mut daemon, Duration::from_secs(5));
            return Err(Error("the subnet does not come up".into()));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Takes a subnet down and removes its directory.
pub fn down(state: &StateDir) -> Result<(), Error> {
    if let Some(pid) = state.daemon() {
        let asked = command(state, "shutdown");
        let end = Instant::now() + Duration::from_secs(20);
        // One that has ended has no command line any more, be it still a zombie.
        while asked.is_ok() && state.daemon().is_some() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(20));
        }
        if state.daemon() == Some(pid) {
            let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL);
        }
    }
    children::clear_hosts(state);
    match fs::remove_dir_all(state.path()) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e.into()),
        _ => Ok(()),
    }
}

/// Sends the daemon a command and returns its answer.
pub fn command(state: &StateDir, line: &str) -> Result<String, Error> {
    let mut stream = UnixStream::connect(state.control_socket())
        .map_err(|e| Error(format!("no subnet at {}: {e}", state.path().display())))?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    stream.write_all(line.as_bytes())?;
    stream.shutdown(std::net::Shutdown::Write)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    match answer.split_once('\n') {
        Some(("ok", text)) => Ok(text.to_owned()),
        _ => Err(Error(answer.trim_end().to_owned())),
    }
}
