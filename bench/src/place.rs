//! Who runs on which processor, and how many descriptors there may be.
//!
//! The service has the first processor to itself or shares it with the client; the subnet's own programs have the
//! others. Children inherit what the thread that starts them has.

use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::Pid;

use crate::{Outcome, machine};

/// Descriptors that this process and what it starts may have.
const DESCRIPTORS: u64 = 65_536;

/// Descriptors that are not for connections.
const SPARE: usize = 150;

/// A set of processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Where services run.
    Service,
    /// Every other processor, where there is one.
    Others,
}

/// The calling thread, and what it starts from now on, runs there.
pub fn pin(place: Place) -> Outcome<()> {
    let count = machine::processors();
    let mut set = CpuSet::new();
    match place {
        Place::Others if count > 1 => (1..count).try_for_each(|cpu| set.set(cpu))?,
        _ => set.set(0)?,
    }
    sched_setaffinity(Pid::from_raw(0), &set)?;
    Ok(())
}

/// Runs something pinned there; the thread is with the others afterwards.
pub fn pinned<T>(place: Place, what: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
    pin(place)?;
    let outcome = what();
    pin(Place::Others)?;
    outcome
}

/// Raises the limits of descriptors, the hard one too where that is allowed.
pub fn many_descriptors() -> Outcome<()> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    let raised = setrlimit(Resource::RLIMIT_NOFILE, DESCRIPTORS, hard.max(DESCRIPTORS));
    Ok(raised.or_else(|_| setrlimit(Resource::RLIMIT_NOFILE, hard, hard))?)
}

/// Connections that this process and a service may have.
pub fn connections() -> Outcome<usize> {
    let (soft, _) = getrlimit(Resource::RLIMIT_NOFILE)?;
    // Each has some descriptors for other things.
    Ok(usize::try_from(soft)?.saturating_sub(SPARE))
}
