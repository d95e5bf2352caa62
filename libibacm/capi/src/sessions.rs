//! The functions that do not wait.
#![allow(unsafe_code, reason = "the boundary to C")]

use std::ffi::{c_char, c_int, c_short};
use std::time::Instant;

use libibacm::{Address, PathRecord, Reply, Request, Session, Uncancelled};

use crate::boundary::{ip, limit, target, text};
use crate::layout::{CPath, CResult};
use crate::queries::request;
use crate::state::{fail, number};

/// # Safety
///
/// `server` is NULL or ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ib_acm_session_open(server: *const c_char) -> *mut Session {
    // SAFETY: the caller's promise.
    match unsafe { target(server) } {
        Ok(target) => Box::into_raw(Box::new(Session::new(target))),
        Err(e) => {
            fail(-e);
            std::ptr::null_mut()
        }
    }
}

/// # Safety
///
/// `session` is NULL or open, and not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ib_acm_session_close(session: *mut Session) {
    if !session.is_null() {
        let _whole = Uncancelled::new();
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(session) });
    }
}

/// # Safety
///
/// `session` is NULL or open, and used by this thread only; `ticket` is NULL or can be written to.
unsafe fn submit(session: *mut Session, request: Request, milliseconds: c_int, ticket: *mut u64) -> c_int {
    // SAFETY: the caller's promise.
    let Some(session) = (unsafe { session.as_mut() }) else { return fail(libc::EINVAL) };
    let Some(limit) = limit(milliseconds) else { return fail(libc::EINVAL) };
    let _whole = Uncancelled::new();
    match session.submit(request, Instant::now() + limit) {
        Ok(number) => {
            if !ticket.is_null() {
                // SAFETY: the caller's promise.
                unsafe { ticket.write_unaligned(number.0) };
            }
            0
        }
        Err(e) => fail(e.errno().unwrap_or(libc::EINVAL)),
    }
}

/// # Safety
///
/// As for `submit`; the texts end with a zero, and `src` can be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ib_acm_submit(
    session: *mut Session,
    src: *const c_char,
    dest: *const c_char,
    flags: c_int,
    milliseconds: c_int,
    ticket: *mut u64,
) -> c_int {
    // SAFETY: the caller's promise.
    match unsafe { request(src, dest, flags) } {
        // SAFETY: the caller's promise.
        Ok(request) => unsafe { submit(session, request, milliseconds, ticket) },
        Err(e) => fail(-e),
    }
}

/// # Safety
///
/// As for `submit`; the texts end with a zero, and `src` can be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ib_acm_submit_name(
    session: *mut Session,
    src: *const c_char,
    dest: *const c_char,
    milliseconds: c_int,
    ticket: *mut u64,
) -> c_int {
    // SAFETY: the caller's promise.
    let (source, Some(dest)) = (unsafe { (text(src), text(dest)) }) else { return fail(libc::EINVAL) };
    let name = |n: &[u8]| Address::Name(n.into());
    let request = Request::Resolve { source: source.map(name), destination: name(dest), cached_only: false };
    // SAFETY: the caller's promise.
    unsafe { submit(session, request, milliseconds, ticket) }
}

/// # Safety
///
/// As for `submit`; the addresses are as long as their families say, and `src` can be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ib_acm_submit_ip(
    session: *mut Session,
    src: *const libc::sockaddr,
    dest: *const libc::sockaddr,
    milliseconds: c_int,
    ticket: *mut u64,
) -> c_int {
    // SAFETY: the caller's promise.
    let (source, dest) = match unsafe { (ip(src), ip(dest)) } {
        (Ok(source), Ok(Some(dest))) => (source, dest),
        (Err(e), _) | (_, Err(e)) => return fail(-e),
        _ => return fail(libc::EINVAL),
    };
    let request =
        Request::Resolve { source: source.map(Address::Ip), destination: Address::Ip(dest), cached_only: false };
    // SAFETY: the caller's promise.
    unsafe { submit(session, request, milliseconds, ticket) }
}

/// # Safety
///
/// As for `submit`; `path` is NULL or a record.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ib_acm_submit_path(
    session: *mut Session,
    path: *const CPath,
    query_sa: c_int,
    milliseconds: c_int,
    ticket: *mut u64,
) -> c_int {
    if path.is_null() {
        return fail(libc::EINVAL);
    }
    // SAFETY: the caller's promise.
    let record = PathRecord(unsafe { path.read_unaligned() }.0);
    // SAFETY: the caller's promise.
    unsafe {
        submit(session, Request::Path { record, query_sa: query_sa != 0, cached_only: false }, milliseconds, ticket)
    }
}

/// # Safety
///
/// `session` is NULL or open, and used by this thread only.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ib_acm_session_fd(session: *const Session) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { session.as_ref() }.and_then(Session::fd).unwrap_or(-1)
}

/// # Safety
///
/// `session` is NULL or open, and used by this thread only.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ib_acm_session_events(session: *const Session) -> c_short {
    // SAFETY: the caller's promise.
    match unsafe { session.as_ref() } {
        Some(session) if session.wants_write() => libc::POLLIN | libc::POLLOUT,
        _ => libc::POLLIN,
    }
}

/// # Safety
///
/// `session` is NULL or open, and used by this thread only.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ib_acm_session_timeout(session: *const Session) -> c_int {
    // SAFETY: the caller's promise.
    let deadline = unsafe { session.as_ref() }.and_then(Session::deadline);
    let micros = deadline.map(|at| at.saturating_duration_since(Instant::now()).as_micros());
    micros.map_or(-1, |n| c_int::try_from(n.div_ceil(1000)).unwrap_or(c_int::MAX))
}

/// # Safety
///
/// `session` is NULL or open, and used by this thread only.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ib_acm_session_ready(session: *mut Session) -> c_int {
    // SAFETY: the caller's promise.
    let Some(session) = (unsafe { session.as_mut() }) else { return fail(libc::EINVAL) };
    let _whole = Uncancelled::new();
    session.on_ready();
    c_int::try_from(session.pending()).unwrap_or(c_int::MAX)
}

/// # Safety
///
/// `session` is NULL or open, and used by this thread only; `result` is NULL or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ib_acm_session_result(session: *mut Session, result: *mut CResult) -> c_int {
    // SAFETY: the caller's promise.
    let Some(session) = (unsafe { session.as_mut() }).filter(|_| !result.is_null()) else { return fail(libc::EINVAL) };
    let _whole = Uncancelled::new();
    let Some((ticket, answer)) = session.next_result() else { return 0 };
    let (flags, record, number) = match answer {
        Ok(Reply::Path(path)) => (path.flags, path.record, 0),
        // Nothing else can be submitted here.
        Ok(_) => (0, PathRecord::default(), -libc::EPROTO),
        Err(e) => (0, PathRecord::default(), number(&e)),
    };
    // SAFETY: the caller's promise.
    unsafe { result.write_unaligned(CResult { ticket: ticket.0, result: number, flags, path: CPath(record.0) }) };
    1
}
