//! The subnet managers: OpenSM, and a second one that can take over.

use std::fs;
use std::io;
use std::process::Child;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::children;
use crate::options::Options;

/// How long one may take to end.
const PATIENCE: Duration = Duration::from_secs(3);

/// Both managers, where they run.
#[derive(Debug)]
pub struct Managers {
    first: Option<Child>,
    /// Has the higher priority: while it runs it is the master.
    second: Option<Child>,
}

/// Writes their configurations.
pub fn prepare(options: &Options) -> io::Result<()> {
    let mut conf = "subnet_timeout 18\nforce_log_flush TRUE\n".to_owned();
    for line in &options.opensm {
        conf.push_str(line);
        conf.push('\n');
    }
    if options.second_manager {
        // They look after one another more often than the usual ten seconds.
        conf.push_str("sminfo_polling_timeout 500\npolling_retry_number 3\n");
        fs::create_dir_all(options.state.file("SM2"))?;
        fs::write(options.state.file("SM2/opensm.conf"), format!("{conf}sm_priority 2\n"))?;
    }
    fs::write(options.state.file("opensm.conf"), conf)
}

fn opensm(options: &Options, node: &str) -> io::Result<Child> {
    children::opensm(&options.state, node, options.partitions.as_deref())
}

impl Managers {
    /// Starts the first one.
    pub fn start(options: &Options) -> io::Result<Managers> {
        Ok(Managers { first: Some(opensm(options, "SM")?), second: None })
    }

    /// Takes note of those that have ended.
    pub fn check(&mut self) -> io::Result<()> {
        for manager in [&mut self.first, &mut self.second] {
            if let Some(child) = manager
                && let Some(status) = child.try_wait()?
            {
                eprintln!("opensm ended: {status}");
                *manager = None;
            }
        }
        Ok(())
    }

    /// Does what the words of the command `sm` say; whether hosts are to register again for it.
    pub fn command(&mut self, options: &Options, what: &str) -> io::Result<bool> {
        if matches!(what, "stop" | "restart") {
            stop(&mut self.first);
        }
        match what {
            "start" | "restart" if self.first.is_none() => {
                self.first = Some(opensm(options, "SM")?);
                return Ok(self.second.is_none());
            }
            "second" if !options.second_manager => {
                return Err(io::Error::other("this subnet has no place for a second manager"));
            }
            "second" if self.second.is_none() => self.second = Some(opensm(options, "SM2")?),
            "second-stop" => stop(&mut self.second),
            "sweep" => {
                for child in self.first.iter().chain(&self.second) {
                    kill(Pid::from_raw(child.id() as i32), Signal::SIGHUP)?;
                }
            }
            _ => {}
        }
        Ok(false)
    }

    /// Ends both.
    pub fn stop(&mut self) {
        stop(&mut self.first);
        stop(&mut self.second);
    }
}

fn stop(manager: &mut Option<Child>) {
    if let Some(mut child) = manager.take() {
        children::stop(&mut child, PATIENCE);
    }
}
