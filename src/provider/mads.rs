//! The MADs that plug-ins have allocated. A plug-in holds a pointer to each and says when it is sent and freed; what it
//! says is held against the table before anything is touched.

#![allow(unsafe_code)] // The structures are C's: allocated here, written by plug-ins, and their handlers are called.

use std::alloc::{Layout, alloc_zeroed};
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

use ibacm_wire::sa;

use super::abi;
use super::core::{Core, Refusal};
use super::registry::{Owner, lock};
use super::{MadToken, Notice};
use crate::engine::{EpId, ProviderId};
use crate::ffi;
use crate::map::Map;

/// Structures that are live at once.
const MAX_MADS: usize = 65_536;

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// The plug-in's to fill in and to send.
    Idle,
    /// Sent, and not ended.
    Sent(MadToken),
    /// Ended, but the plug-in has not been told yet.
    Ended(MadToken),
}

struct Entry {
    mad: NonNull<abi::SaMad>,
    handler: abi::SaHandler,
    endpoint: usize,
    owner: Owner,
    state: State,
}

// SAFETY: the structure belongs to the table, which is behind a lock, and to the plug-in, which may use it from any
// thread by the interface; a function can be called from any.
unsafe impl Send for Entry {}

#[derive(Default)]
struct Table {
    /// By address.
    live: Map<usize, Entry>,
    /// Addresses of those on their way.
    sent: Map<u64, usize>,
    last: u64,
}

/// The table.
#[derive(Default)]
pub(super) struct Mads(Mutex<Table>);

impl Mads {
    fn alloc(
        &self,
        (endpoint, owner): (usize, Owner),
        context: *mut c_void,
        handler: abi::SaHandler,
    ) -> Result<NonNull<abi::SaMad>, Refusal> {
        let mut table = lock(&self.0);
        if table.live.len() >= MAX_MADS {
            return Err(Refusal::NoRoom);
        }
        // SAFETY: the layout is that of a type with a size.
        let mad = unsafe { alloc_zeroed(Layout::new::<abi::SaMad>()) };
        let mad = NonNull::new(mad.cast::<abi::SaMad>()).ok_or(Refusal::NoRoom)?;
        // SAFETY: just allocated for this type, for which zeroes are valid, and nobody else knows it.
        unsafe { (&raw mut (*mad.as_ptr()).context).write(context) };
        table.live.insert(mad.addr().get(), Entry { mad, handler, endpoint, owner, state: State::Idle });
        Ok(mad)
    }

    fn free(&self, mad: *const abi::SaMad) -> Result<(), Refusal> {
        let mut table = lock(&self.0);
        let entry = table.live.remove(&mad.addr()).ok_or(Refusal::NoMad)?;
        if let State::Sent(token) = entry.state {
            table.sent.remove(&token.0);
        }
        // SAFETY: allocated by the global allocator with the layout of this type, and out of the table: freed once.
        drop(unsafe { Box::from_raw(entry.mad.as_ptr()) });
        Ok(())
    }

    /// Takes the question out of a structure and marks it as sent.
    fn send(
        &self,
        mad: *const abi::SaMad,
        owner_of: impl Fn(usize) -> Option<Owner>,
    ) -> Result<(MadToken, EpId, Box<sa::SaMad>), Refusal> {
        let mut table = lock(&self.0);
        let Table { live, sent, last } = &mut *table;
        let entry = live.get_mut(&mad.addr()).ok_or(Refusal::NoMad)?;
        if entry.state != State::Idle {
            return Err(Refusal::Sent);
        }
        if owner_of(entry.endpoint) != Some(entry.owner) {
            return Err(Refusal::NoEndpoint);
        }
        *last += 1;
        let token = MadToken(*last);
        entry.state = State::Sent(token);
        sent.insert(token.0, mad.addr());
        let mad = entry.mad.as_ptr();
        // SAFETY: in the table, so not freed; it is freed under the same lock.
        let bytes = unsafe {
            // As far as it is known here. The rest is the loop's: the SA may move before the question is sent.
            let umad = &raw mut (*mad).umad;
            (&raw mut (*umad).status).write(0);
            (&raw mut (*umad).length).write(size_of::<ffi::ib_user_mad>() as u32 + sa::LEN as u32);
            (&raw mut (*umad).addr.qpn).write(sa::QPN.to_be());
            (&raw mut (*umad).addr.qkey).write(sa::QKEY.to_be());
            (&raw const (*mad).mad).read()
        };
        Ok((token, entry.owner.ep, Box::new(sa::SaMad(bytes))))
    }

    fn owner(&self, mad: *const abi::SaMad) -> Option<ProviderId> {
        lock(&self.0).live.get(&mad.addr()).map(|entry| entry.owner.provider)
    }

    fn provider(&self, token: MadToken) -> Option<ProviderId> {
        let table = lock(&self.0);
        let address = table.sent.get(&token.0)?;
        table.live.get(address).map(|entry| entry.owner.provider)
    }

    /// Writes the end of a question into its structure: its address, if it is still there.
    fn done(&self, token: MadToken, result: Result<Box<sa::SaMad>, i32>) -> Option<usize> {
        let mut table = lock(&self.0);
        let address = table.sent.remove(&token.0)?;
        let entry = table.live.get_mut(&address)?;
        entry.state = State::Ended(token);
        let status = match &result {
            Ok(_) => 0,
            Err(errno) => u32::try_from(*errno).ok().filter(|&e| e != 0).unwrap_or(libc::EIO.cast_unsigned()),
        };
        let mad = entry.mad.as_ptr();
        // SAFETY: in the table, so not freed; it is freed under the same lock.
        unsafe {
            (&raw mut (*mad).umad.status).write(status);
            if let Ok(answer) = result {
                (&raw mut (*mad).mad).write(answer.0);
            }
        }
        Some(address)
    }

    /// What to call at the end of a question: none if the structure has been freed.
    fn told(&self, token: MadToken, address: usize) -> Option<(abi::SaHandler, NonNull<abi::SaMad>)> {
        let mut table = lock(&self.0);
        let entry = table.live.get_mut(&address).filter(|entry| entry.state == State::Ended(token))?;
        entry.state = State::Idle;
        Some((entry.handler, entry.mad))
    }
}

/// The end of a question, which the plug-in is to be told.
pub struct Delivery {
    mads: Arc<Mads>,
    token: MadToken,
    address: usize,
}

impl Delivery {
    /// Calls the plug-in's handler, unless the plug-in has freed the MAD meanwhile. Takes as long as the plug-in likes.
    pub fn deliver(self) {
        if let Some((handler, mad)) = self.mads.told(self.token, self.address) {
            // SAFETY: the plug-in gave this function for this structure, which it has not freed.
            unsafe { handler(mad.as_ptr()) };
        }
    }
}

impl Core {
    /// A zeroed MAD for questions to the SA of the endpoint's port.
    ///
    /// # Errors
    /// No such endpoint, no handler, or no room.
    pub fn alloc_mad(
        &self,
        endpoint: *const abi::Endpoint,
        context: *mut c_void,
        handler: Option<abi::SaHandler>,
    ) -> Result<NonNull<abi::SaMad>, Refusal> {
        let owner = self.registry.owner(endpoint.addr()).ok_or(Refusal::NoEndpoint)?;
        self.mads.alloc((endpoint.addr(), owner), context, handler.ok_or(Refusal::NoHandler)?)
    }

    /// Frees a MAD. If it is on its way, its handler is not called any more.
    ///
    /// # Errors
    /// There is no such MAD.
    pub fn free_mad(&self, mad: *const abi::SaMad) -> Result<(), Refusal> {
        self.mads.free(mad)
    }

    /// Sends a MAD.
    ///
    /// # Errors
    /// There is no such MAD, it is on its way, or its endpoint is gone.
    pub fn send_mad(&self, mad: *const abi::SaMad) -> Result<(), Refusal> {
        let (token, ep, mad) = self.mads.send(mad, |endpoint| self.registry.owner(endpoint))?;
        self.notify(Notice::Mad { token, ep, mad });
        Ok(())
    }

    /// Whose MAD it is, or whose thread asks.
    pub fn who_has(&self, mad: *const abi::SaMad) -> String {
        self.who(self.mads.owner(mad))
    }

    /// Whose MAD it is that is on its way.
    pub fn mad_provider(&self, token: MadToken) -> Option<ProviderId> {
        self.mads.provider(token)
    }

    /// The end of a sent MAD: writes status and answer into the structure. None if the plug-in has freed it meanwhile.
    pub fn mad_done(&self, token: MadToken, result: Result<Box<sa::SaMad>, i32>) -> Option<Delivery> {
        let address = self.mads.done(token, result)?;
        Some(Delivery { mads: Arc::clone(&self.mads), token, address })
    }
}

#[cfg(test)]
#[path = "mads_tests.rs"]
mod tests;
