//! The functions that give records, counters and endpoints, and wait for them too.
#![allow(unsafe_code, reason = "the boundary to C")]

use std::ffi::{c_char, c_int};

use libibacm::{Address, Counters, Endpoint, Error, PathRecord, Request, Scope, Status};

use crate::boundary::{give, text};
use crate::ffi::ibv_ah_attr;
use crate::layout::{CAddress, CCounters, CEndpoint, CPath, DevAddr, ResolveData};
use crate::state::{answer, client, finish, plain, result};

/// `IB_ACM_CACHED`.
const CACHED: c_int = 1;

/// A request of two texts, each a name or an IP address.
///
/// # Safety
///
/// The texts end with a zero, and `src` can be NULL.
pub unsafe fn request(src: *const c_char, dest: *const c_char, flags: c_int) -> Result<Request, c_int> {
    // SAFETY: the caller's promise.
    let (source, destination) = unsafe { (text(src), text(dest).ok_or(-libc::EINVAL)?) };
    if flags & !CACHED != 0 {
        return Err(-libc::EINVAL);
    }
    Ok(Request::Resolve {
        source: source.map(Address::parse),
        destination: Address::parse(destination),
        cached_only: flags & CACHED != 0,
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn ib_acm_connect() -> c_int {
    result(answer(client().connect(), |()| 0))
}

/// # Safety
///
/// The texts end with a zero, and `src` can be NULL; `path` and `source` are NULL or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ib_acm_resolve(
    src: *const c_char,
    dest: *const c_char,
    flags: c_int,
    path: *mut CPath,
    source: *mut CAddress,
) -> c_int {
    // SAFETY: the caller's promise.
    let (origin, destination, cached) = match unsafe { request(src, dest, flags) } {
        Ok(Request::Resolve { source, destination, cached_only }) => (source, destination, cached_only),
        Ok(_) => return result(-libc::EINVAL),
        Err(e) => return result(e),
    };
    let client = client();
    let found = if cached { client.resolve_cached(origin, destination) } else { client.resolve(origin, destination) };
    finish(found, |found| {
        // SAFETY: the caller's promise.
        unsafe {
            if !path.is_null() {
                path.write_unaligned(CPath(found.record.0));
            }
            if !source.is_null() {
                source.write_unaligned(found.source.as_ref().map_or_else(|| CAddress::new(b""), CAddress::of));
            }
        }
        0
    })
}

/// # Safety
///
/// `path` is NULL or a record; each other pointer is NULL or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ib_acm_convert_from_path(
    path: *const CPath,
    dev: *mut DevAddr,
    ah: *mut ibv_ah_attr,
    data: *mut ResolveData,
) -> c_int {
    if path.is_null() {
        return plain(-libc::EINVAL);
    }
    // SAFETY: the caller's promise.
    plain(unsafe { give(&PathRecord(path.read_unaligned().0), dev, ah, data) })
}

/// # Safety
///
/// `address` is NULL or ends with a zero; `counters` is NULL or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ib_acm_query_counters(
    endpoint: c_int,
    address: *const c_char,
    counters: *mut CCounters,
) -> c_int {
    if counters.is_null() {
        return result(-libc::EINVAL);
    }
    // SAFETY: the caller's promise.
    let scope = match (unsafe { text(address) }, u8::try_from(endpoint)) {
        (None, Ok(0)) => Scope::Totals,
        (None, Ok(number)) => Scope::Endpoint(number),
        (Some(address), Ok(0)) => Scope::Address(Address::parse(address)),
        // No service can number so many.
        (None, Err(_)) if endpoint > 0 => return result(Status::Einval as c_int),
        _ => return result(-libc::EINVAL),
    };
    result(answer(client().counters(scope), |found: Counters| {
        // SAFETY: the caller's promise.
        unsafe { counters.write_unaligned(CCounters::new(&found)) };
        0
    }))
}

/// # Safety
///
/// `endpoint` is NULL or can be written to; `addresses` is NULL or has room for `count`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ib_acm_query_endpoint(
    number: c_int,
    port: c_int,
    endpoint: *mut CEndpoint,
    addresses: *mut CAddress,
    count: usize,
) -> c_int {
    let Ok(port) = u8::try_from(port) else { return result(-libc::EINVAL) };
    if number <= 0 || endpoint.is_null() || addresses.is_null() && count > 0 {
        return result(-libc::EINVAL);
    }
    let found = match u8::try_from(number) {
        Ok(number) => client().endpoint_of_port(number, port),
        // No service can number so many.
        Err(_) => Err(Error::Status(Status::Einval as u8)),
    };
    result(answer(found, |found: Endpoint| {
        // SAFETY: the caller's promise.
        unsafe {
            endpoint.write_unaligned(CEndpoint::new(&found));
            for (i, address) in found.addresses.iter().take(count).enumerate() {
                addresses.add(i).write_unaligned(CAddress::new(address.as_bytes()));
            }
        }
        0
    }))
}
