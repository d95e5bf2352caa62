//! Protection domains, completion channels and queues, memory regions, address handles.

use std::cell::RefCell;
use std::ffi::c_void;
use std::os::fd::RawFd;
use std::ptr::{self, NonNull};
use std::rc::Rc;
use std::{io, mem};

use super::Context;
use super::error::{check, destroyed, errno_from, failed, last_errno, non_null, set_nonblocking};
use crate::ffi;
use crate::map::Map;
use crate::ud::Av;

/// A protection domain.
pub struct Pd {
    pub(super) raw: NonNull<ffi::ibv_pd>,
    context: Rc<Context>,
}

impl Pd {
    /// Allocates a domain on the device.
    pub fn new(context: Rc<Context>) -> io::Result<Rc<Pd>> {
        // SAFETY: the context is open.
        let raw = unsafe { ffi::ibv_alloc_pd(context.raw.as_ptr()) };
        let raw = non_null(raw, || format!("ibv_alloc_pd on {}", context.name()))?;
        Ok(Rc::new(Pd { raw, context }))
    }

    /// The device.
    pub fn context(&self) -> &Rc<Context> {
        &self.context
    }
}

impl Drop for Pd {
    fn drop(&mut self) {
        // SAFETY: allocated in `new`, freed once; everything made in it held it and is gone.
        destroyed(unsafe { ffi::ibv_dealloc_pd(self.raw.as_ptr()) });
    }
}

/// A completion channel: one descriptor that tells of completions on any of its queues.
pub struct CompChannel {
    raw: NonNull<ffi::ibv_comp_channel>,
    context: Rc<Context>,
    /// The queues (their places) that were armed and whose event was not taken: each makes one event at most.
    armed: RefCell<Map<usize, ()>>,
}

impl CompChannel {
    /// Makes a channel with a non-blocking descriptor.
    pub fn new(context: Rc<Context>) -> io::Result<Rc<CompChannel>> {
        // SAFETY: the context is open.
        let raw = unsafe { ffi::ibv_create_comp_channel(context.raw.as_ptr()) };
        let raw = non_null(raw, || format!("ibv_create_comp_channel on {}", context.name()))?;
        let channel = CompChannel { raw, context, armed: RefCell::default() };
        set_nonblocking(channel.fd(), &format!("the completion channel of {}", channel.context.name()))?;
        Ok(Rc::new(channel))
    }

    /// The descriptor that gets readable with an event; owned by this channel.
    pub fn fd(&self) -> RawFd {
        // SAFETY: the channel is alive.
        unsafe { self.raw.as_ref() }.fd
    }

    /// Whether there may be an event: some queue was armed, and its event was not taken yet.
    pub fn expects_event(&self) -> bool {
        !self.armed.borrow().is_empty()
    }

    /// Takes one event and gives the cookie of the queue it is about; none if there is no event.
    ///
    /// It is acknowledged at once, one acknowledgement an event, so that destroying a queue never
    /// waits. An error (EIO) means that the device has vanished.
    pub fn next_event(&self) -> io::Result<Option<u64>> {
        let mut cq = ptr::null_mut();
        let mut cookie: *mut c_void = ptr::null_mut();
        // SAFETY: the channel is alive, both places are valid, the descriptor doesn't block.
        while unsafe { ffi::ibv_get_cq_event(self.raw.as_ptr(), &mut cq, &mut cookie) } != 0 {
            match io::Error::last_os_error().kind() {
                io::ErrorKind::WouldBlock => return Ok(None),
                io::ErrorKind::Interrupted => {}
                _ => return Err(failed(format!("ibv_get_cq_event on {}", self.context.name()), last_errno())),
            }
        }
        self.armed.borrow_mut().remove(&cq.addr());
        // SAFETY: the library gave this queue with the event; a queue that is destroyed takes its
        // events out of the channel, so this one is alive.
        unsafe { ffi::ibv_ack_cq_events(cq, 1) };
        Ok(Some(cookie.addr() as u64))
    }
}

impl Drop for CompChannel {
    fn drop(&mut self) {
        // SAFETY: made in `new`, destroyed once; all its queues held it and are gone.
        destroyed(unsafe { ffi::ibv_destroy_comp_channel(self.raw.as_ptr()) });
    }
}

/// A completion queue.
pub struct Cq {
    pub(super) raw: NonNull<ffi::ibv_cq>,
    channel: Rc<CompChannel>,
}

impl Cq {
    /// Makes a queue for at least `entries` completions whose events carry `cookie`.
    ///
    /// A cookie must fit a pointer of this machine (EINVAL).
    pub fn new(channel: Rc<CompChannel>, cookie: u64, entries: u32) -> io::Result<Rc<Cq>> {
        let context = &channel.context;
        let what = || format!("ibv_create_cq on {} for {entries} completions", context.name());
        let cookie = usize::try_from(cookie).map_err(|_| failed(what(), libc::EINVAL))?;
        let count = i32::try_from(entries).map_err(|_| failed(what(), libc::EINVAL))?;
        // SAFETY: context and channel are alive; the cookie is a number, never followed.
        let raw = unsafe {
            ffi::ibv_create_cq(
                context.raw.as_ptr(),
                count,
                ptr::without_provenance_mut(cookie),
                channel.raw.as_ptr(),
                0,
            )
        };
        let raw = non_null(raw, what)?;
        Ok(Rc::new(Cq { raw, channel }))
    }

    /// Has the next completion make an event; it is used up by that event.
    ///
    /// Nothing is to be done while an event of before is not taken: it comes, or is there already.
    pub fn arm(&self) -> io::Result<()> {
        let place = self.raw.addr().get();
        if self.channel.armed.borrow_mut().insert(place, ()).is_some() {
            return Ok(());
        }
        // SAFETY: the queue is alive.
        let result = unsafe { ffi::ibv_req_notify_cq(self.raw.as_ptr(), 0) };
        let armed = check(result, || format!("ibv_req_notify_cq on {}", self.channel.context.name()));
        armed.inspect_err(|_| {
            self.channel.armed.borrow_mut().remove(&place);
        })
    }

    /// Takes up to `room.len()` completions; how many there were.
    pub(crate) fn poll(&self, room: &mut [ffi::ibv_wc]) -> io::Result<usize> {
        let count = i32::try_from(room.len()).unwrap_or(i32::MAX);
        // SAFETY: the queue is alive and `room` has `count` places.
        let found = unsafe { ffi::ibv_poll_cq(self.raw.as_ptr(), count, room.as_mut_ptr()) };
        usize::try_from(found)
            .map(|n| n.min(room.len()))
            .map_err(|_| failed(format!("ibv_poll_cq on {}", self.channel.context.name()), errno_from(found)))
    }
}

impl Drop for Cq {
    fn drop(&mut self) {
        // Its events go with it.
        self.channel.armed.borrow_mut().remove(&self.raw.addr().get());
        // SAFETY: made in `new`, destroyed once; no QP uses it any more and no event is
        // unacknowledged (see `next_event`).
        destroyed(unsafe { ffi::ibv_destroy_cq(self.raw.as_ptr()) });
    }
}

const PAGE: usize = 4096;

/// A registered buffer that starts on a page, zeroed at first.
pub struct Mr {
    raw: NonNull<ffi::ibv_mr>,
    buffer: NonNull<u8>,
    size: usize,
    _pd: Rc<Pd>,
}

impl Mr {
    /// Allocates and registers `length` bytes (rounded up to whole pages) for local use.
    pub fn new(pd: Rc<Pd>, length: usize) -> io::Result<Mr> {
        let what = || format!("ibv_reg_mr of {length} bytes on {}", pd.context.name());
        let size = length.max(1).checked_next_multiple_of(PAGE).ok_or_else(|| failed(what(), libc::EINVAL))?;
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // Pages of the system's, which are zero without being written: the allocator would touch them all.
        // SAFETY: new memory, which is nobody else's.
        let buffer = unsafe { libc::mmap(ptr::null_mut(), size, protection, flags, -1, 0) };
        if buffer == libc::MAP_FAILED {
            return Err(failed(format!("mmap of {size} bytes"), last_errno()));
        }
        let buffer = non_null(buffer.cast::<u8>(), what)?;
        let access = ffi::IBV_ACCESS_LOCAL_WRITE.cast_signed();
        // SAFETY: the buffer has `size` bytes and lives until the region is given back.
        let raw = unsafe { ffi::ibv_reg_mr(pd.raw.as_ptr(), buffer.as_ptr().cast(), size, access) };
        match non_null(raw, what) {
            Ok(raw) => Ok(Mr { raw, buffer, size, _pd: pd }),
            Err(e) => {
                // SAFETY: mapped above with this size; nobody else knows of it.
                unsafe { libc::munmap(buffer.as_ptr().cast(), size) };
                Err(e)
            }
        }
    }

    /// The buffer's address at `offset`, if `length` bytes follow there.
    pub(super) fn place(&self, offset: usize, length: usize) -> Option<*mut u8> {
        let end = offset.checked_add(length)?;
        // SAFETY: within the allocation.
        (end <= self.size).then(|| unsafe { self.buffer.as_ptr().add(offset) })
    }

    /// The scatter/gather entry of these bytes.
    pub(super) fn sge(&self, offset: usize, length: usize) -> Option<ffi::ibv_sge> {
        let place = self.place(offset, length)?;
        // SAFETY: the region is alive.
        let lkey = unsafe { self.raw.as_ref() }.lkey;
        Some(ffi::ibv_sge { addr: place.addr() as u64, length: u32::try_from(length).ok()?, lkey })
    }
}

impl Drop for Mr {
    fn drop(&mut self) {
        // SAFETY: registered in `new`, given back once.
        if destroyed(unsafe { ffi::ibv_dereg_mr(self.raw.as_ptr()) }) {
            // SAFETY: mapped in `new` with this size, and the device has let go of it.
            unsafe { libc::munmap(self.buffer.as_ptr().cast(), self.size) };
        }
        // Otherwise the device may still write there: the memory is leaked.
    }
}

/// An address handle.
pub struct Ah {
    pub(super) raw: NonNull<ffi::ibv_ah>,
    _pd: Rc<Pd>,
}

impl Ah {
    /// Makes a handle for sending to `to` through `port`.
    pub fn new(pd: Rc<Pd>, port: u8, to: &Av) -> io::Result<Ah> {
        // SAFETY: a structure of plain integers, for which zero is valid.
        let mut attr: ffi::ibv_ah_attr = unsafe { mem::zeroed() };
        attr.dlid = to.dlid;
        attr.sl = to.sl;
        attr.src_path_bits = to.src_path_bits;
        attr.static_rate = to.static_rate;
        attr.port_num = port;
        if let Some(grh) = &to.grh {
            attr.is_global = 1;
            attr.grh.dgid = ffi::ibv_gid { raw: grh.dgid };
            attr.grh.sgid_index = grh.sgid_index;
            attr.grh.flow_label = grh.flow_label & 0x000f_ffff;
            attr.grh.hop_limit = grh.hop_limit;
            attr.grh.traffic_class = grh.traffic_class;
        }
        // SAFETY: the domain is alive and `attr` is complete; the library copies it.
        let raw = unsafe { ffi::ibv_create_ah(pd.raw.as_ptr(), &mut attr) };
        let raw = non_null(raw, || format!("ibv_create_ah on {}:{port} to LID {:#x}", pd.context.name(), to.dlid))?;
        Ok(Ah { raw, _pd: pd })
    }
}

impl Drop for Ah {
    fn drop(&mut self) {
        // SAFETY: made in `new`, destroyed once.
        destroyed(unsafe { ffi::ibv_destroy_ah(self.raw.as_ptr()) });
    }
}
