//! The InfiniBand ports of this host, through libibverbs. Where the devices are is asked of the library, because a
//! program's devices are what that library opens for it.
//!
//! Devices are open only while they are asked, so that nothing of them is inherited by a forked process.
#![allow(unsafe_code, reason = "calls libibverbs")]

use std::ffi::c_int;
use std::mem;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use libibacm::{Gid, PerProcess, Uncancelled, inherited};

use crate::{ffi, fork};

/// How long what was asked is taken for true, unless something is missing from it.
const FRESH: Duration = Duration::from_secs(5);

/// A port.
#[derive(Clone)]
pub struct Port {
    /// Of the device, host order.
    pub guid: u64,
    pub number: u8,
    pub lid: u16,
    pub lmc: u8,
    pub gids: Vec<Gid>,
    /// Host order; the index is that of the port's table.
    pub pkeys: Vec<u16>,
    pub init_depth: u8,
    pub resp_resources: u8,
}

impl Port {
    /// The bits of a LID that choose among the port's paths.
    pub fn path_mask(&self) -> u16 {
        (1 << self.lmc.min(7)) - 1
    }

    fn owns(&self, lid: u16) -> bool {
        self.lid != 0 && lid & !self.path_mask() == self.lid & !self.path_mask()
    }
}

/// The ports, and when they were asked. They belong to no process: what a parent knew is true in its child.
type Known = Option<(Instant, Arc<Vec<Port>>)>;

/// What is known. The lock is held for moments only.
fn known() -> &'static Mutex<Known> {
    static KNOWN: PerProcess<Mutex<Known>> = PerProcess::new();
    KNOWN.get(|parent| Mutex::new(parent.and_then(|p| inherited(p)?.clone())))
}

/// Whether libibverbs can be asked. A thread has the lock while it asks, because libibverbs has locks of its own: a
/// process that was forked in the middle of that, in spite of [`fork`], cannot ask any more.
fn asking() -> &'static Mutex<bool> {
    static ASKING: PerProcess<Mutex<bool>> = PerProcess::new();
    ASKING.get(|parent| Mutex::new(parent.is_none_or(|p| inherited(p).is_some_and(|possible| *possible))))
}

/// The lock of whoever asks, if nobody does. Whoever forks takes it.
pub fn try_lock() -> Option<MutexGuard<'static, bool>> {
    match asking().try_lock() {
        Ok(asking) => Some(asking),
        Err(TryLockError::Poisoned(e)) => Some(e.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// The first port for which `wanted`. Devices are asked if what is known is old, or the port is not in it.
pub fn find(wanted: impl Fn(&Port) -> bool) -> Option<Port> {
    let _whole = Uncancelled::new();
    let begin = Instant::now();
    let look = |since: Option<Instant>| {
        let known = known().lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (at, ports) = known.filter(|(at, _)| since.is_none_or(|since| since <= *at))?;
        let port = ports.iter().find(|p| wanted(p)).cloned();
        Some((at, port))
    };
    if let Some((_, port @ Some(_))) = look(begin.checked_sub(FRESH)) {
        return port;
    }
    fork::prepare();
    let possible = asking().lock().unwrap_or_else(PoisonError::into_inner);
    if !*possible {
        return look(None).and_then(|(_, port)| port);
    }
    // Another thread may have asked just now.
    if let Some((_, port)) = look(Some(begin)) {
        return port;
    }
    let at = Instant::now();
    let ports = Arc::new(ask());
    *known().lock().unwrap_or_else(PoisonError::into_inner) = Some((at, ports.clone()));
    ports.iter().find(|p| wanted(p)).cloned()
}

/// The port that a path starts at.
pub fn source(sgid: Gid, slid: u16) -> Option<Port> {
    find(|p| if sgid.is_zero() { p.owns(slid) } else { p.gids.contains(&sgid) })
}

/// Every InfiniBand port of every device that can be opened.
fn ask() -> Vec<Port> {
    let mut ports = Vec::new();
    let mut count: c_int = 0;
    // SAFETY: the count is a live variable; the list is null or has that many devices, until it is freed below.
    let list = unsafe { ffi::ibv_get_device_list(&raw mut count) };
    if list.is_null() {
        return ports;
    }
    for i in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: `i` is within the list, whose devices live until it is freed.
        unsafe {
            let device = *list.add(i);
            let context = ffi::ibv_open_device(device);
            if !context.is_null() {
                let guid = u64::from_be(ffi::ibv_get_device_guid(device));
                ask_device(context, guid, &mut ports);
                ffi::ibv_close_device(context);
            }
        }
    }
    // SAFETY: the list is the one from above, and nothing of it is used any more.
    unsafe { ffi::ibv_free_device_list(list) };
    ports
}

/// Appends the ports of an open device.
///
/// # Safety
///
/// `context` is a device that is open.
unsafe fn ask_device(context: *mut ffi::ibv_context, guid: u64, ports: &mut Vec<Port>) {
    // SAFETY: a structure of integers, for which zero is a value.
    let mut device: ffi::ibv_device_attr = unsafe { mem::zeroed() };
    // SAFETY: the device is open, the structure is live.
    if unsafe { ffi::ibv_query_device(context, &raw mut device) } != 0 {
        return;
    }
    let depth = |n: c_int| u8::try_from(n.max(0)).unwrap_or(u8::MAX);
    for number in 1..=device.phys_port_cnt {
        // SAFETY: as above.
        let mut port: ffi::ibv_port_attr = unsafe { mem::zeroed() };
        // SAFETY: the plain function fills the first part of this structure, which is the older one.
        let failed = unsafe { ffi::ibv_query_port(context, number, ptr::from_mut(&mut port).cast()) } != 0;
        if failed || u32::from(port.link_layer) == ffi::IBV_LINK_LAYER_ETHERNET {
            continue;
        }
        let mut gids = Vec::new();
        for index in 0..port.gid_tbl_len.min(1024) {
            let mut gid = ffi::ibv_gid { raw: [0; 16] };
            // SAFETY: the device is open, the GID is live; an index without an entry is an error or zero.
            let failed = unsafe { ffi::ibv_query_gid(context, number, index, &raw mut gid) } != 0;
            // SAFETY: every bit pattern is a GID.
            gids.push(if failed { Gid::ZERO } else { Gid(unsafe { gid.raw }) });
        }
        let mut pkeys = Vec::new();
        for index in 0..port.pkey_tbl_len {
            let mut key = 0;
            // SAFETY: as for the GIDs.
            let failed = unsafe { ffi::ibv_query_pkey(context, number, c_int::from(index), &raw mut key) } != 0;
            pkeys.push(if failed { 0 } else { u16::from_be(key) });
        }
        ports.push(Port {
            guid,
            number,
            lid: port.lid,
            lmc: port.lmc,
            gids,
            pkeys,
            init_depth: depth(device.max_qp_init_rd_atom),
            resp_resources: depth(device.max_qp_rd_atom),
        });
    }
}
