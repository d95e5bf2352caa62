//! The functions that wait for their answers.
#![allow(unsafe_code, reason = "the boundary to C")]

use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use libibacm::{Address, DEFAULT_PORT, Gid, PathRecord, Target, status_text};

use crate::devices;
use crate::ffi::ibv_ah_attr;
use crate::layout::{CPath, DevAddr, ResolveData, address_handle, dev_addr, resolve_data, to_path};
use crate::state::{client, fail, finish, last, number, plain, result, set_limit, set_target};

pub fn set_errno(errno: c_int) {
    // SAFETY: the pointer is to this thread's errno, which lives as long as the thread.
    unsafe { *libc::__errno_location() = errno };
}

/// A text of the caller's, which need not be UTF-8; `None` for NULL.
///
/// # Safety
///
/// `text` is NULL or ends with a zero.
pub unsafe fn text<'a>(text: *const c_char) -> Option<&'a [u8]> {
    // SAFETY: the caller's promise.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_bytes())
}

/// An address of the caller's, likewise.
///
/// # Safety
///
/// `address` is NULL or is as long as its family says.
pub unsafe fn ip(address: *const libc::sockaddr) -> Result<Option<IpAddr>, c_int> {
    if address.is_null() {
        return Ok(None);
    }
    // SAFETY: every address has its family first; callers need not align it.
    match c_int::from(unsafe { (&raw const (*address).sa_family).read_unaligned() }) {
        libc::AF_INET => {
            // SAFETY: the caller's promise for this family.
            let v4 = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
            Ok(Some(IpAddr::from(v4.sin_addr.s_addr.to_ne_bytes())))
        }
        libc::AF_INET6 => {
            // SAFETY: likewise.
            let v6 = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
            Ok(Some(IpAddr::from(Ipv6Addr::from(v6.sin6_addr.s6_addr))))
        }
        _ => Err(-libc::EAFNOSUPPORT),
    }
}

/// Gives what the caller wants of a path. As everywhere, what is the caller's need not be aligned.
///
/// # Safety
///
/// Each pointer is NULL or can be written to.
pub unsafe fn give(record: &PathRecord, dev: *mut DevAddr, ah: *mut ibv_ah_attr, data: *mut ResolveData) -> c_int {
    if dev.is_null() && ah.is_null() && data.is_null() {
        return 0;
    }
    let Some(port) = devices::source(record.sgid(), record.slid()) else { return -libc::ENODEV };
    let Some(found) = dev_addr(record, &port) else { return -libc::ENODEV };
    // SAFETY: the caller's promise.
    unsafe {
        if !dev.is_null() {
            dev.write_unaligned(found);
        }
        if !ah.is_null() {
            ah.write_unaligned(address_handle(record, &port));
        }
        if !data.is_null() {
            data.write_unaligned(resolve_data(record, &port));
        }
    }
    0
}

/// # Safety
///
/// The pointers are as `infiniband/ib_acm.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ib_acm_resolve_name(
    src: *mut c_char,
    dest: *mut c_char,
    dev: *mut DevAddr,
    ah: *mut ibv_ah_attr,
    data: *mut ResolveData,
) -> c_int {
    // SAFETY: the caller's promise.
    let (src, Some(dest)) = (unsafe { (text(src), text(dest)) }) else { return result(-libc::EINVAL) };
    let name = |n: &[u8]| Address::Name(n.into());
    // SAFETY: the caller's promise.
    finish(client().resolve(src.map(name), name(dest)), |path| unsafe { give(&path.record, dev, ah, data) })
}

/// # Safety
///
/// The pointers are as `infiniband/ib_acm.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ib_acm_resolve_ip(
    src: *mut libc::sockaddr,
    dest: *mut libc::sockaddr,
    dev: *mut DevAddr,
    ah: *mut ibv_ah_attr,
    data: *mut ResolveData,
) -> c_int {
    // SAFETY: the caller's promise.
    let (src, dest) = match unsafe { (ip(src), ip(dest)) } {
        (Ok(src), Ok(Some(dest))) => (src, dest),
        (Err(e), _) | (_, Err(e)) => return result(e),
        _ => return result(-libc::EINVAL),
    };
    // SAFETY: the caller's promise.
    finish(client().resolve_ip(src, dest), |path| unsafe { give(&path.record, dev, ah, data) })
}

/// # Safety
///
/// `path` is NULL or a record.
unsafe fn complete(path: *mut CPath, query_sa: bool) -> c_int {
    if path.is_null() {
        return result(-libc::EINVAL);
    }
    // SAFETY: the caller's promise; a record may be part of something that is not aligned.
    let record = PathRecord(unsafe { path.read_unaligned() }.0);
    let client = client();
    let answer = if query_sa { client.query_path(&record) } else { client.resolve_path(&record) };
    finish(answer, |found| {
        // SAFETY: the caller's promise.
        unsafe { path.write_unaligned(CPath(found.record.0)) };
        0
    })
}

/// # Safety
///
/// `path` is NULL or a record.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ib_acm_resolve_path(path: *mut CPath) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { complete(path, false) }
}

/// # Safety
///
/// `path` is NULL or a record.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ib_acm_query_path(path: *mut CPath) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { complete(path, true) }
}

/// # Safety
///
/// Each pointer is NULL or to a structure of its type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ib_acm_convert_to_path(
    dev: *mut DevAddr,
    ah: *mut ibv_ah_attr,
    data: *mut ResolveData,
    path: *mut CPath,
) -> c_int {
    if dev.is_null() || ah.is_null() || data.is_null() || path.is_null() {
        return plain(-libc::EINVAL);
    }
    // SAFETY: the caller's promise.
    let (dev, ah, data) = unsafe { (dev.read_unaligned(), ah.read_unaligned(), data.read_unaligned()) };
    // SAFETY: every bit pattern is a GID.
    let dgid = (ah.is_global != 0).then_some(Gid(unsafe { ah.grh.dgid.raw }));
    let guid = u64::from_be(dev.guid);
    let Some(port) = devices::find(|p| p.guid == guid && p.number == dev.port_num) else {
        return plain(-libc::ENODEV);
    };
    let Some(record) = to_path(&port, &dev, &ah, dgid, &data) else { return plain(-libc::EINVAL) };
    // SAFETY: the caller's promise.
    unsafe { path.write_unaligned(CPath(record.0)) };
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn ib_acm_last_status() -> c_int {
    last()
}

/// The words for each status and, as the last, for any other number. They end with a zero.
static TEXTS: [[u8; 64]; 12] = {
    let mut texts = [[0; 64]; 12];
    let mut n = 0;
    while n < texts.len() {
        let text = status_text(n as u8).as_bytes();
        assert!(text.len() < texts[n].len());
        let mut i = 0;
        while i < text.len() {
            texts[n][i] = text[i];
            i += 1;
        }
        n += 1;
    }
    texts
};

#[unsafe(no_mangle)]
pub extern "C" fn ib_acm_status_str(status: c_int) -> *const c_char {
    let known = usize::try_from(status).ok().and_then(|n| TEXTS.get(n)).or(TEXTS.last());
    known.map_or(c"".as_ptr(), |t| t.as_ptr().cast())
}

/// The service that a text names, which is found within the time limit of calls.
///
/// # Safety
///
/// `server` is NULL or ends with a zero.
pub unsafe fn target(server: *const c_char) -> Result<Target, c_int> {
    // SAFETY: the caller's promise.
    let Some(server) = (unsafe { text(server) }) else { return Ok(Target::Published) };
    if server.contains(&b'/') {
        return Ok(Target::Unix(OsStr::from_bytes(server).into()));
    }
    let server = str::from_utf8(server).map_err(|_| -libc::EINVAL)?;
    Target::parse_within(server, DEFAULT_PORT, client().limit()).map_err(|e| {
        -e.raw_os_error().unwrap_or(match e.kind() {
            io::ErrorKind::InvalidInput => libc::EINVAL,
            io::ErrorKind::TimedOut => libc::ETIMEDOUT,
            // What else the resolver says has no number.
            _ => libc::EHOSTUNREACH,
        })
    })
}

/// # Safety
///
/// `server` is NULL or ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ib_acm_set_server(server: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    match unsafe { target(server) } {
        Ok(target) => {
            set_target(target);
            0
        }
        Err(e) => fail(-e),
    }
}

/// The time that a caller gives.
pub fn limit(milliseconds: c_int) -> Option<Duration> {
    u64::try_from(milliseconds).ok().filter(|n| *n > 0).map(Duration::from_millis)
}

#[unsafe(no_mangle)]
pub extern "C" fn ib_acm_set_timeout(milliseconds: c_int) -> c_int {
    let Some(limit) = limit(milliseconds) else { return fail(libc::EINVAL) };
    set_limit(limit);
    0
}

/// `ib_acm_result_fn`.
pub type ResultFn = extern "C" fn(*mut c_void, usize, c_int, *const CPath);

/// # Safety
///
/// `dests` is an array of `count` texts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ib_acm_resolve_many(
    src: *const c_char,
    dests: *const *const c_char,
    count: usize,
    function: Option<ResultFn>,
    context: *mut c_void,
) -> c_int {
    let Some(function) = function.filter(|_| count == 0 || !dests.is_null()) else { return result(-libc::EINVAL) };
    // SAFETY: the caller's promise.
    let src = unsafe { text(src) }.map(Address::parse);
    let mut addresses = Vec::new();
    for i in 0..count {
        // SAFETY: the caller's promise.
        match unsafe { text(dests.add(i).read_unaligned()) } {
            Some(dest) => addresses.push(Address::parse(dest)),
            None => return result(-libc::EINVAL),
        }
    }
    let mut failed: c_int = 0;
    client().resolve_many(src.as_ref(), &addresses, |i, answer| match answer {
        Ok(path) => {
            let record = CPath(path.record.0);
            function(context, i, 0, &raw const record);
        }
        Err(e) => {
            failed = failed.saturating_add(1);
            function(context, i, number(&e), std::ptr::null());
        }
    });
    result(failed)
}
