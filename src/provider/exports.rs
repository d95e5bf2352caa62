//! The functions that plug-ins call, under the names of `infiniband/acm_prov.h`. Part of the program and not of the
//! library, since no other program is to export them; `build.rs` has the linker put them into its table of symbols.
//!
//! All may be called from any thread, at any time: from the start of the process, as a shared object's constructor does,
//! to its end. No pointer is followed that need not be, and none beyond what a plug-in says is behind it. No panic gets
//! out: C could not go on.

#![allow(unsafe_code)] // Called by C, with its pointers.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::io::Write;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use ibacm::engine::{AskId, MESSAGE};
use ibacm::provider::abi;
use ibacm::provider::cancel::Uncancelled;
use ibacm::provider::core::{Refusal, core};
use ibacm::provider::netdev;
use ibacm::{log, log_keyed, rates};
use ibacm_wire::client::{HDR_LEN, Status, TYPE_GID, TYPE_IP, TYPE_IP6, TYPE_LID, TYPE_NAME, TYPE_PATH};
use ibacm_wire::{Gid, PathRecord, path};

/// The bytes of `union ibv_gid`.
type RawGid = [u8; 16];

/// `IBV_RATE_MAX`: as fast as can be, or not known.
const RATE_MAX: u32 = 0;

unsafe extern "C" {
    // write.c
    fn acm_write(level: c_int, format: *const c_char, ...);
}

/// Nobody here calls it, so that the linker would leave it out.
#[used]
static ACM_WRITE: unsafe extern "C" fn(c_int, *const c_char, ...) = acm_write;

/// What `run` gives, or `otherwise` if it panics. The thread is not cancelled meanwhile.
fn guard<T>(otherwise: T, run: impl FnOnce() -> T) -> T {
    let _uncancelled = Uncancelled::new();
    catch_unwind(AssertUnwindSafe(run)).unwrap_or(otherwise)
}

/// The log's level for a level of C's; None for what is never written. What is below 0 is always.
fn level_of(level: c_int) -> Option<u8> {
    u8::try_from(level.max(0)).ok()
}

fn enabled(level: c_int) -> bool {
    level_of(level).is_some_and(log::enabled)
}

/// For write.c: whether lines of the level are written.
#[unsafe(no_mangle)]
extern "C" fn ibacm_log_enabled(level: c_int) -> c_int {
    guard(0, || enabled(level).into())
}

/// For write.c: writes a line.
///
/// # Safety
/// `text` is `length` bytes long.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibacm_log_write(level: c_int, text: *const c_char, length: usize) {
    guard((), || {
        // SAFETY: the caller's promise.
        let text = unsafe { std::slice::from_raw_parts(text.cast::<u8>(), length) };
        if let Some(level) = level_of(level) {
            log::write_foreign(level, text);
        }
    });
}

/// Says that a call was refused: a few times a second for each provider, function and reason.
fn complain(who: &str, function: &str, why: impl std::fmt::Display + std::hash::Hash) {
    log_keyed!(0, (who, function, &why), "{who}: {function}: {why}");
}

/// The `N` bytes at `from`; None if it is NULL. It need not be aligned.
///
/// # Safety
/// `from` is NULL, or `N` bytes can be read there.
unsafe fn read<const N: usize>(from: *const u8) -> Option<[u8; N]> {
    // SAFETY: the caller's promise; bytes need no alignment.
    (!from.is_null()).then(|| unsafe { from.cast::<[u8; N]>().read_unaligned() })
}

/// Writes an address as text into `name`, at most `name_size` bytes with the NUL, if lines of `level` are written.
///
/// # Safety
/// `name` is NULL or has room for `name_size` bytes, `addr` is NULL or `addr_size` bytes long.
#[unsafe(no_mangle)]
unsafe extern "C" fn acm_format_name(
    level: c_int,
    name: *mut c_char,
    name_size: usize,
    addr_type: u8,
    addr: *const u8,
    addr_size: usize,
) {
    guard((), || {
        if name.is_null() || name_size == 0 || !enabled(level) {
            return;
        }
        let addr = match addr.is_null() {
            true => &[][..],
            // SAFETY: the caller's promise; no address is longer than a path record, and that is all that is read.
            false => unsafe { std::slice::from_raw_parts(addr, addr_size.min(path::LEN)) },
        };
        let mut text = [0; 64];
        let length = format_address(addr_type, addr, &mut text).min(name_size - 1);
        // SAFETY: `name_size` bytes can be written, of which `length` and one are.
        unsafe {
            ptr::copy_nonoverlapping(text.as_ptr().cast(), name, length);
            name.add(length).write(0);
        }
    });
}

/// How an address of the type is shown: puts it into `text`, and says how long it is.
fn format_address(addr_type: u8, addr: &[u8], text: &mut [u8; 64]) -> usize {
    let mut left = &mut text[..];
    let gid = |b: &RawGid| Ipv6Addr::from(*b);
    // What is too long for the text is cut.
    let _ = match u16::from(addr_type) {
        TYPE_NAME if !addr.is_empty() => left.write(&addr[..memchr::memchr(0, addr).unwrap_or(addr.len())]).map(drop),
        TYPE_IP if let Some(b) = addr.first_chunk::<4>() => write!(left, "{}", Ipv4Addr::from(*b)),
        TYPE_IP6 | TYPE_GID if let Some(b) = addr.first_chunk() => write!(left, "{}", gid(b)),
        TYPE_LID if let Some(b) = addr.first_chunk() => write!(left, "LID({})", u16::from_be_bytes(*b)),
        TYPE_PATH if let Some(b) = addr.first_chunk() => {
            let path = PathRecord(*b);
            match path.dlid() {
                0 => write!(left, "{}", gid(&path.dgid().0)),
                dlid => write!(left, "SLID({}) DLID({dlid})", path.slid()),
            }
        }
        _ => write!(left, "Unknown"),
    };
    64 - left.len()
}

/// Whether the GID is zero; none at all is.
///
/// # Safety
/// `gid` is NULL or a GID.
#[unsafe(no_mangle)]
unsafe extern "C" fn ib_any_gid(gid: *const RawGid) -> c_int {
    // SAFETY: the caller's promise.
    let gid = unsafe { read(gid.cast()) }.map(Gid);
    gid.is_none_or(|gid| gid.is_zero()).into()
}

/// The GID's index in the port's table; their number (255 at most) if it is not in there.
///
/// # Safety
/// `gid` is NULL or a GID.
#[unsafe(no_mangle)]
unsafe extern "C" fn acm_gid_index(port: *const abi::Port, gid: *const RawGid) -> u8 {
    guard(0, || {
        // SAFETY: the caller's promise.
        let gid = unsafe { read(gid.cast()) }.map(Gid);
        let Some(gids) = core().gids(port) else {
            complain(&core().who(None), "acm_gid_index", "the port is not open");
            return 0;
        };
        let at = gids.iter().position(|&g| Some(g) == gid).unwrap_or(gids.len());
        u8::try_from(at).unwrap_or(u8::MAX)
    })
}

/// Copies the GID at `index` of the port's table: 0, or -1 if there is none.
///
/// # Safety
/// `gid` is NULL, or a GID can be written there.
#[unsafe(no_mangle)]
unsafe extern "C" fn acm_get_gid(port: *const abi::Port, index: c_int, gid: *mut RawGid) -> c_int {
    guard(-1, || {
        let Some(gids) = core().gids(port) else {
            complain(&core().who(None), "acm_get_gid", "the port is not open");
            return -1;
        };
        match usize::try_from(index).ok().and_then(|index| gids.get(index)) {
            Some(found) if !gid.is_null() => {
                // SAFETY: the caller's promise; it need not be aligned.
                unsafe { gid.write_unaligned(found.0) };
                0
            }
            _ => -1,
        }
    })
}

/// The components of a path record that are given, in network order.
///
/// # Safety
/// `path` is NULL or a path record.
#[unsafe(no_mangle)]
unsafe extern "C" fn acm_path_comp_mask(path: *const [u8; path::LEN]) -> u64 {
    // SAFETY: the caller's promise.
    let path = unsafe { read(path.cast()) }.map(PathRecord);
    path.map_or(0, |path| path.component_mask().to_be())
}

/// Answers a request that `resolve` was called with.
///
/// # Safety
/// `msg` is NULL, or a message as long as its header says.
#[unsafe(no_mangle)]
unsafe extern "C" fn acm_resolve_response(id: u64, msg: *const abi::Message) -> c_int {
    // SAFETY: the caller's promise.
    guard(Status::Enomem as c_int, || unsafe { respond("acm_resolve_response", id, msg) })
}

/// Answers a request that `query` was called with.
///
/// # Safety
/// `msg` is NULL, or a message as long as its header says.
#[unsafe(no_mangle)]
unsafe extern "C" fn acm_query_response(id: u64, msg: *const abi::Message) -> c_int {
    // SAFETY: the caller's promise.
    guard(Status::Enomem as c_int, || unsafe { respond("acm_query_response", id, msg) })
}

/// # Safety
/// `msg` is NULL, or a message as long as its header says.
unsafe fn respond(function: &str, id: u64, msg: *const abi::Message) -> c_int {
    // SAFETY: the caller's promise.
    let Some(header) = (unsafe { read::<HDR_LEN>(msg.cast()) }) else {
        complain(&core().who_was_asked(AskId(id)), function, "there is no message");
        return Status::Einval as c_int;
    };
    // The length is in host order, whatever the operation: the engine judges it.
    let length = u16::from_ne_bytes([header[6], header[7]]);
    let mut message = Box::new(abi::Message([0; MESSAGE]));
    message.0[..HDR_LEN].copy_from_slice(&header);
    if let length @ HDR_LEN..=MESSAGE = usize::from(length) {
        // SAFETY: the message is as long as its header says, which is no more than there is room for.
        unsafe { ptr::copy_nonoverlapping(msg.cast(), message.0.as_mut_ptr(), length) };
    }
    match core().answer(AskId(id), message) {
        Ok(()) => 0,
        Err(why) => {
            complain(&core().who_was_asked(AskId(id)), function, why);
            Status::Enotconn as c_int
        }
    }
}

/// The rate of a port with this width and speed (in the encodings of `struct ibv_port_attr`), `IBV_RATE_MAX` if one of
/// them is not known.
#[unsafe(no_mangle)]
extern "C" fn acm_get_rate(width: u8, speed: u8) -> u32 {
    match rates::port_rate(width, speed.into()) {
        // That is what is given for what is not known, too.
        rates::RATE_2_5 if (width, speed) != (1, 1) => RATE_MAX,
        rate => rate.into(),
    }
}

/// The code of an MTU, that of 2048 bytes if there is none.
#[unsafe(no_mangle)]
extern "C" fn acm_convert_mtu(mtu: c_int) -> u32 {
    u32::try_from(mtu).ok().and_then(rates::mtu_code).unwrap_or(rates::MTU_2048).into()
}

/// The code of a rate in whole Gb/s, that of 10 Gb/s if there is none.
#[unsafe(no_mangle)]
extern "C" fn acm_convert_rate(rate: c_int) -> u32 {
    u32::try_from(rate).ok().and_then(rates::rate_code).unwrap_or(rates::RATE_10).into()
}

/// A zeroed MAD for questions to the SA of the endpoint's port; NULL if there cannot be one.
#[unsafe(no_mangle)]
extern "C" fn acm_alloc_sa_mad(
    endpoint: *const abi::Endpoint,
    context: *mut c_void,
    handler: Option<abi::SaHandler>,
) -> *mut abi::SaMad {
    guard(ptr::null_mut(), || match core().alloc_mad(endpoint, context, handler) {
        Ok(mad) => mad.as_ptr(),
        Err(why) => {
            complain(&core().who_has_endpoint(endpoint), "acm_alloc_sa_mad", why);
            ptr::null_mut()
        }
    })
}

/// Frees a MAD; NULL is none. Its handler is not called any more.
#[unsafe(no_mangle)]
extern "C" fn acm_free_sa_mad(mad: *mut abi::SaMad) {
    guard((), || {
        if !mad.is_null()
            && let Err(why) = core().free_mad(mad)
        {
            complain(&core().who_has(mad), "acm_free_sa_mad", why);
        }
    });
}

/// Sends a MAD; its handler is called once, when there is an answer or will be none. 0, or a negative errno.
#[unsafe(no_mangle)]
extern "C" fn acm_send_sa_mad(mad: *mut abi::SaMad) -> c_int {
    guard(-libc::ENOMEM, || match core().send_mad(mad) {
        Ok(()) => 0,
        Err(why) => {
            complain(&core().who_has(mad), "acm_send_sa_mad", why);
            match why {
                Refusal::Sent => -libc::EBUSY,
                Refusal::NoEndpoint => -libc::ENETDOWN,
                _ => -libc::EINVAL,
            }
        }
    })
}

/// The name of the options file in use. It may be kept.
#[unsafe(no_mangle)]
extern "C" fn acm_get_opts_file() -> *const c_char {
    guard(c"".as_ptr(), || core().opts_file().as_ptr())
}

/// Counts one of `ACM_CNTR_*`; what is no counter is ignored.
#[unsafe(no_mangle)]
extern "C" fn acm_increment_counter(counter: c_int) {
    guard((), || {
        if let Ok(counter) = usize::try_from(counter) {
            core().count(counter);
        }
    });
}

/// The GID of an interface: 0, or -1 if it is no InfiniBand interface.
///
/// # Safety
/// `ifname` is NULL, or ends in a NUL or is as long as the longest name; `sgid` is NULL, or a GID can be written there.
#[unsafe(no_mangle)]
unsafe extern "C" fn acm_if_get_sgid(ifname: *const c_char, sgid: *mut RawGid) -> c_int {
    guard(-1, || {
        if ifname.is_null() || sgid.is_null() {
            return -1;
        }
        let mut name = [0; libc::IFNAMSIZ];
        for (at, byte) in name.iter_mut().enumerate() {
            // SAFETY: the caller's promise; what is behind a NUL is not read.
            *byte = unsafe { ifname.add(at).read() }.cast_unsigned();
            if *byte == 0 {
                break;
            }
        }
        let name = CStr::from_bytes_until_nul(&name).ok();
        let Some(gid) = name.and_then(|name| netdev::gid(name.to_bytes())) else {
            let why = format!("{} is no InfiniBand interface", ShownName(name));
            log_keyed!(0, "acm_if_get_sgid", "{}: acm_if_get_sgid: {why}", core().who(None));
            return -1;
        };
        // SAFETY: the caller's promise; it need not be aligned.
        unsafe { sgid.write_unaligned(gid.0) };
        0
    })
}

/// An interface's name, if it is one.
struct ShownName<'a>(Option<&'a CStr>);

impl std::fmt::Display for ShownName<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(name) => write!(f, "{}", name.to_bytes().escape_ascii()),
            None => f.write_str("a name that is too long"),
        }
    }
}

#[cfg(test)]
#[path = "exports_tests.rs"]
mod tests;
