//! What all threads of plug-ins and the loop have in common. There is one in a process, since the functions that
//! plug-ins call name none.
//!
//! No lock is held while a plug-in is called or a line is written.

use std::cell::Cell;
use std::collections::VecDeque;
use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex};

use ibacm_wire::Gid;
use ibacm_wire::client::COUNTERS;

use super::handover::Handover;
use super::mads::Mads;
use super::registry::{Owner, Registry, lock};
use super::{Notice, abi};
use crate::cli;
use crate::engine::{AskId, EpId, ProviderId};

/// What was asked for is not there: an unknown question, endpoint or structure, or a wrong time for it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Refusal {
    /// The question is not open, or was answered before.
    NotOpen,
    /// The endpoint is not open at a provider.
    NoEndpoint,
    /// There is no function to tell the end to.
    NoHandler,
    /// Too many MADs, or no memory.
    NoRoom,
    /// The structure was not allocated here, or freed before.
    NoMad,
    /// The MAD is on its way.
    Sent,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Refusal::NotOpen => "the request is not open",
            Refusal::NoEndpoint => "the endpoint is not open",
            Refusal::NoHandler => "there is no handler",
            Refusal::NoRoom => "there are too many MADs",
            Refusal::NoMad => "this is no MAD that was allocated, or it was freed",
            Refusal::Sent => "the MAD is on its way",
        })
    }
}

/// See the module.
pub struct Core {
    notices: Handover<Notice>,
    waker: Mutex<Option<mio::Waker>>,
    pub(super) registry: Registry,
    pub(super) mads: Arc<Mads>,
    counts: [AtomicU64; COUNTERS],
    /// Of providers, in the order of their numbers.
    names: Mutex<Vec<String>>,
    /// Given to plug-ins, which may keep it: never freed.
    opts_file: Mutex<&'static CStr>,
}

thread_local! {
    static THREAD_OF: Cell<Option<ProviderId>> = const { Cell::new(None) };
}

/// This thread calls this provider and no other.
pub fn this_thread_is(provider: ProviderId) {
    THREAD_OF.set(Some(provider));
}

/// The process's.
pub fn core() -> &'static Core {
    static CORE: LazyLock<Core> = LazyLock::new(Core::new);
    &CORE
}

impl Core {
    pub(super) fn new() -> Core {
        Core {
            notices: Handover::new(),
            waker: Mutex::new(None),
            registry: Registry::default(),
            mads: Arc::default(),
            counts: Default::default(),
            names: Mutex::default(),
            opts_file: Mutex::new(forever(&cli::opts_file())),
        }
    }

    /// Says how the loop is woken. Until then it is not.
    pub fn set_waker(&self, waker: mio::Waker) {
        *lock(&self.waker) = Some(waker);
        // for what came before
        self.wake();
    }

    fn wake(&self) {
        if let Some(waker) = &*lock(&self.waker) {
            // It fails where the counter of wake-ups is full, and then the loop is awake anyway.
            let _ = waker.wake();
        }
    }

    /// Says which options file is in use.
    pub fn set_opts_file(&self, path: &Path) {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let mut current = lock(&self.opts_file);
        if current.to_bytes() != path.as_os_str().as_bytes() {
            *current = forever(&path);
        }
    }

    /// The options file; the default one until [`Core::set_opts_file`].
    pub fn opts_file(&self) -> &'static CStr {
        *lock(&self.opts_file)
    }

    /// Says what providers are called.
    pub fn set_names(&self, names: Vec<String>) {
        *lock(&self.names) = names;
    }

    /// A provider as the log has it; where it is not known which one, the one that this thread belongs to.
    pub fn who(&self, provider: Option<ProviderId>) -> String {
        let name = provider.or_else(|| THREAD_OF.get()).and_then(|p| lock(&self.names).get(usize::from(p.0)).cloned());
        name.map_or_else(|| "a provider".to_owned(), |name| format!("provider {name}"))
    }

    /// Whom the question was put to, if it is open or was lately; else whose thread asks.
    pub fn who_was_asked(&self, id: AskId) -> String {
        self.who(self.registry.asked(id))
    }

    /// Whose endpoint it is, or whose thread asks.
    pub fn who_has_endpoint(&self, endpoint: *const abi::Endpoint) -> String {
        self.who(self.registry.owner(endpoint.addr()).map(|owner| owner.provider))
    }

    /// Puts a notice into the loop's queue. From any thread.
    pub fn notify(&self, notice: Notice) {
        if self.notices.push(notice) {
            self.wake();
        }
    }

    /// Moves the notices behind those in `out`. For the loop.
    pub fn take_notices(&self, out: &mut VecDeque<Notice>) {
        self.notices.take(out);
    }

    /// Counts for a plug-in; an unknown counter is ignored.
    pub fn count(&self, counter: usize) {
        if let Some(count) = self.counts.get(counter) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// What was counted since the last time, if anything was. For the loop.
    pub fn take_counts(&self) -> Option<[u64; COUNTERS]> {
        let counts = self.counts.each_ref().map(|count| count.swap(0, Ordering::Relaxed));
        counts.iter().any(|&count| count > 0).then_some(counts)
    }

    /// The question is put to the provider, and may be answered from now on.
    pub fn open_ask(&self, id: AskId, provider: ProviderId) {
        self.registry.open_ask(id, provider);
    }

    /// Whether the question may be answered.
    pub fn is_open(&self, id: AskId) -> bool {
        self.registry.is_open(id)
    }

    /// The question may not be answered any more. Whether it could be until now.
    pub fn close_ask(&self, id: AskId) -> bool {
        self.registry.close_ask(id)
    }

    /// The answer to a question, which closes it.
    ///
    /// # Errors
    /// The question is not open.
    pub fn answer(&self, id: AskId, message: Box<abi::Message>) -> Result<(), Refusal> {
        if !self.close_ask(id) {
            return Err(Refusal::NotOpen);
        }
        self.notify(Notice::Answer { id, message });
        Ok(())
    }

    /// A port that a provider is shown, and its GIDs.
    pub fn add_port(&self, port: *const abi::Port, gids: Vec<Gid>) {
        self.registry.add_port(port, gids);
    }

    /// The port is not to be named any more.
    pub fn remove_port(&self, port: *const abi::Port) {
        self.registry.remove_port(port);
    }

    /// The GIDs of a port, if there is such a port.
    pub fn gids(&self, port: *const abi::Port) -> Option<Arc<[Gid]>> {
        self.registry.gids(port)
    }

    /// An endpoint that a provider is shown.
    pub fn add_endpoint(&self, endpoint: *const abi::Endpoint, ep: EpId, provider: ProviderId) {
        self.registry.add_endpoint(endpoint, Owner { ep, provider });
    }

    /// The endpoint is not to be named any more.
    pub fn remove_endpoint(&self, endpoint: *const abi::Endpoint) {
        self.registry.remove_endpoint(endpoint);
    }

    /// No endpoint of the provider is to be named any more.
    pub fn forget_endpoints_of(&self, provider: ProviderId) {
        self.registry.forget_endpoints_of(provider);
    }
}

/// A string that is never freed.
fn forever(path: &Path) -> &'static CStr {
    // A path that a file was opened by has no NUL in it.
    let text = CString::new(path.as_os_str().as_bytes()).unwrap_or_default();
    Box::leak(text.into_boxed_c_str())
}

#[cfg(test)]
#[path = "core_tests.rs"]
mod tests;
