//! Owned, safe types over libibverbs: devices, their ports and their asynchronous events.
//!
//! One type owns one object of the library, and a child holds its parents ([`Rc`]), so that the
//! order of destruction follows from the types. Dropping never panics and never writes a log
//! line: a destroy call that fails is counted, see [`drop_failures`].
//!
//! Every error of a call names the call and the object, and keeps the system's error number:
//! [`errno_of`] gives it back.

// The calls into libibverbs; each block says why it is sound.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::os::fd::RawFd;
use std::ptr::NonNull;
use std::rc::Rc;
use std::{fmt, io, mem};

use crate::ffi;

#[path = "verbs_error.rs"]
mod error;
#[path = "verbs_objects.rs"]
mod objects;
#[path = "verbs_qp.rs"]
mod qp;

pub use error::{drop_failures, errno_of};
pub(crate) use error::{failed, set_nonblocking};
pub use objects::{Ah, CompChannel, Cq, Mr, Pd};
pub use qp::{Qp, QpSetup};

use error::{check, destroyed, last_errno, non_null};

/// Port states, as [`PortAttr::state`] holds them (IBA 14.2.5.6, PortState).
pub const PORT_DOWN: u32 = ffi::IBV_PORT_DOWN;
/// The port has a link, and waits for the subnet manager.
pub const PORT_INIT: u32 = ffi::IBV_PORT_INIT;
/// The subnet manager has set the port up, data can't be sent yet.
pub const PORT_ARMED: u32 = ffi::IBV_PORT_ARMED;
/// The port sends and receives.
pub const PORT_ACTIVE: u32 = ffi::IBV_PORT_ACTIVE;

/// Link layers, as [`PortAttr::link_layer`] holds them; drivers of old leave InfiniBand ports
/// "unspecified".
pub const LINK_LAYER_UNSPECIFIED: u8 = ffi::IBV_LINK_LAYER_UNSPECIFIED as u8;
/// An InfiniBand port.
pub const LINK_LAYER_INFINIBAND: u8 = ffi::IBV_LINK_LAYER_INFINIBAND as u8;
/// An Ethernet port (RoCE, iWARP).
pub const LINK_LAYER_ETHERNET: u8 = ffi::IBV_LINK_LAYER_ETHERNET as u8;

/// Kinds of [`AsyncEvent`] (`enum ibv_event_type`): a QP is beyond use.
pub const EVENT_QP_FATAL: u32 = ffi::IBV_EVENT_QP_FATAL;
/// The device is beyond use.
pub const EVENT_DEVICE_FATAL: u32 = ffi::IBV_EVENT_DEVICE_FATAL;
/// A port became active.
pub const EVENT_PORT_ACTIVE: u32 = ffi::IBV_EVENT_PORT_ACTIVE;
/// A port is no longer active.
pub const EVENT_PORT_ERR: u32 = ffi::IBV_EVENT_PORT_ERR;
/// A port's LID changed.
pub const EVENT_LID_CHANGE: u32 = ffi::IBV_EVENT_LID_CHANGE;
/// A port's table of partition keys changed.
pub const EVENT_PKEY_CHANGE: u32 = ffi::IBV_EVENT_PKEY_CHANGE;
/// A port's subnet manager changed.
pub const EVENT_SM_CHANGE: u32 = ffi::IBV_EVENT_SM_CHANGE;
/// The subnet manager asks for all registrations (groups, notices) once more.
pub const EVENT_CLIENT_REREGISTER: u32 = ffi::IBV_EVENT_CLIENT_REREGISTER;
/// A port's table of GIDs changed.
pub const EVENT_GID_CHANGE: u32 = ffi::IBV_EVENT_GID_CHANGE;

/// What a kind of event is called in libibverbs, without its prefix.
pub fn event_name(kind: u32) -> std::borrow::Cow<'static, str> {
    // in the order of the numbers
    const NAMES: [&str; 20] = [
        "CQ_ERR",
        "QP_FATAL",
        "QP_REQ_ERR",
        "QP_ACCESS_ERR",
        "COMM_EST",
        "SQ_DRAINED",
        "PATH_MIG",
        "PATH_MIG_ERR",
        "DEVICE_FATAL",
        "PORT_ACTIVE",
        "PORT_ERR",
        "LID_CHANGE",
        "PKEY_CHANGE",
        "SM_CHANGE",
        "SRQ_ERR",
        "SRQ_LIMIT_REACHED",
        "QP_LAST_WQE_REACHED",
        "CLIENT_REREGISTER",
        "GID_CHANGE",
        "WQ_FATAL",
    ];
    NAMES.get(kind as usize).map_or_else(|| format!("number {kind}").into(), |name| (*name).into())
}

/// The list that `ibv_get_device_list` made; its devices live as long as it.
struct DeviceList(NonNull<*mut ffi::ibv_device>);

impl Drop for DeviceList {
    fn drop(&mut self) {
        // SAFETY: the pointer came from ibv_get_device_list and is freed once, here.
        unsafe { ffi::ibv_free_device_list(self.0.as_ptr()) }
    }
}

/// A device that is present, not opened yet.
pub struct DeviceHandle {
    device: NonNull<ffi::ibv_device>,
    name: String,
    guid: u64,
    _list: Rc<DeviceList>,
}

impl fmt::Debug for DeviceHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceHandle({}, {:#018x})", self.name, self.guid)
    }
}

/// The RDMA devices of this machine, of every kind. Can be called again to see new ones.
pub fn devices() -> io::Result<Vec<DeviceHandle>> {
    match known_devices() {
        // the kernel's side of verbs (ib_uverbs) is not loaded: there is no device that could be used
        Err(e) if errno_of(&e) == Some(libc::ENOSYS) => Ok(Vec::new()),
        known => known,
    }
}

/// The same, with an error (ENOSYS) where the kernel has no RDMA support at all.
pub fn known_devices() -> io::Result<Vec<DeviceHandle>> {
    let mut count = 0;
    // SAFETY: `count` is a valid place for the result.
    let list = unsafe { ffi::ibv_get_device_list(&mut count) };
    let list = non_null(list, || "ibv_get_device_list".to_owned())?;
    let owner = Rc::new(DeviceList(list));
    let mut found = Vec::new();
    for index in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: the list has `count` entries.
        let Some(device) = NonNull::new(unsafe { *list.as_ptr().add(index) }) else { break };
        // SAFETY: the device is alive (`owner`), and a name ends with a NUL.
        let name = unsafe { CStr::from_ptr(ffi::ibv_get_device_name(device.as_ptr())) };
        // SAFETY: the device is alive.
        let guid = u64::from_be(unsafe { ffi::ibv_get_device_guid(device.as_ptr()) });
        let name = name.to_string_lossy().into_owned();
        found.push(DeviceHandle { device, name, guid, _list: Rc::clone(&owner) });
    }
    Ok(found)
}

impl DeviceHandle {
    /// The device's name (`mlx5_0`): what tells devices apart, for node GUIDs may repeat.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The node GUID, host byte order.
    pub fn guid(&self) -> u64 {
        self.guid
    }

    /// Whether its transport is InfiniBand (RoCE too: look at each port's link layer).
    pub fn is_infiniband_transport(&self) -> bool {
        // SAFETY: the list keeps the device alive.
        unsafe { self.device.as_ref() }.transport_type == ffi::IBV_TRANSPORT_IB
    }

    /// Opens the device.
    pub fn open(&self) -> io::Result<Rc<Context>> {
        // SAFETY: the list keeps the device alive.
        let raw = unsafe { ffi::ibv_open_device(self.device.as_ptr()) };
        let raw = non_null(raw, || format!("ibv_open_device of {}", self.name))?;
        // The attributes are filled below; from here on the context is closed on any error.
        let mut context = Context {
            raw,
            name: self.name.clone(),
            guid: self.guid,
            // SAFETY: a structure of plain integers, for which zero is valid.
            attr: unsafe { mem::zeroed() },
        };
        // SAFETY: the context is open and the attributes are a valid place for the result.
        let result = unsafe { ffi::ibv_query_device(raw.as_ptr(), &mut context.attr) };
        check(result, || format!("ibv_query_device of {}", self.name))?;
        set_nonblocking(context.async_fd(), &format!("the event descriptor of {}", self.name))?;
        Ok(Rc::new(context))
    }
}

/// What [`Context::query_port`] tells of a port, integers in host byte order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortAttr {
    /// Logical state, [`PORT_DOWN`] to [`PORT_ACTIVE`].
    pub state: u32,
    /// The port's (base) LID.
    pub lid: u16,
    /// LID mask count: the port answers to 2^lmc LIDs.
    pub lmc: u8,
    /// LID of the subnet manager (and SA).
    pub sm_lid: u16,
    /// Service level towards it.
    pub sm_sl: u8,
    /// Largest MTU the port can have, IBA encoding (1: 256 bytes .. 5: 4096).
    pub max_mtu: u8,
    /// MTU the port has, IBA encoding.
    pub active_mtu: u8,
    /// Link width, IBA encoding (1: 1x, 2: 4x, 4: 8x, 8: 12x, 16: 2x).
    pub active_width: u8,
    /// Link speed, IBA encoding (1: 2.5 Gb/s, 2: 5, 4: 10, 8: FDR10, 16: 14, 32: 25, 64: 50, ...).
    pub active_speed: u8,
    /// Entries of the GID table.
    pub gid_tbl_len: u32,
    /// Entries of the table of partition keys.
    pub pkey_tbl_len: u16,
    /// Time a packet may take through the subnet: 4.096 us * 2^n.
    pub subnet_timeout: u8,
    /// [`LINK_LAYER_INFINIBAND`] and its like.
    pub link_layer: u8,
}

/// What happened to a device, a port or a QP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AsyncEvent {
    /// `EVENT_*`; kinds that this crate doesn't name are passed on too.
    pub kind: u32,
    /// Port number, 0 for events that aren't a port's.
    pub port: u8,
    /// QP number, 0 for events that aren't a QP's.
    pub qpn: u32,
}

/// An open device.
pub struct Context {
    raw: NonNull<ffi::ibv_context>,
    name: String,
    guid: u64,
    attr: ffi::ibv_device_attr,
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: opened by ibv_open_device, closed once; all children held this and are gone.
        destroyed(unsafe { ffi::ibv_close_device(self.raw.as_ptr()) });
    }
}

impl Context {
    /// The library's structure, for plug-ins; it is closed with this.
    pub fn as_ptr(&self) -> *mut ffi::ibv_context {
        self.raw.as_ptr()
    }

    /// The device's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The node GUID, host byte order.
    pub fn guid(&self) -> u64 {
        self.guid
    }

    /// Number of ports; they count from 1.
    pub fn phys_port_cnt(&self) -> u8 {
        self.attr.phys_port_cnt
    }

    /// Most work requests that a queue of a QP can hold.
    pub fn max_qp_wr(&self) -> u32 {
        u32::try_from(self.attr.max_qp_wr).unwrap_or(0)
    }

    /// Most entries that a completion queue can hold.
    pub fn max_cqe(&self) -> u32 {
        u32::try_from(self.attr.max_cqe).unwrap_or(0)
    }

    /// The state of port `port`. An error (EIO, ENODEV) once the device has vanished.
    pub fn query_port(&self, port: u8) -> io::Result<PortAttr> {
        // SAFETY: a structure of plain integers, for which zero is valid.
        let mut attr: ffi::ibv_port_attr = unsafe { mem::zeroed() };
        // SAFETY: the context is open; the inline version knows the structure's full length.
        let result = unsafe { ffi::___ibv_query_port(self.raw.as_ptr(), port, &mut attr) };
        check(result, || format!("ibv_query_port of {}:{port}", self.name))?;
        Ok(PortAttr {
            state: attr.state,
            lid: attr.lid,
            lmc: attr.lmc,
            sm_lid: attr.sm_lid,
            sm_sl: attr.sm_sl,
            max_mtu: u8::try_from(attr.max_mtu).unwrap_or(0),
            active_mtu: u8::try_from(attr.active_mtu).unwrap_or(0),
            active_width: attr.active_width,
            active_speed: attr.active_speed,
            gid_tbl_len: u32::try_from(attr.gid_tbl_len).unwrap_or(0),
            pkey_tbl_len: attr.pkey_tbl_len,
            subnet_timeout: attr.subnet_timeout,
            link_layer: attr.link_layer,
        })
    }

    /// Entry `index` of the port's GID table, as it stands on the wire.
    pub fn query_gid(&self, port: u8, index: u32) -> io::Result<[u8; 16]> {
        let mut gid = ffi::ibv_gid { raw: [0; 16] };
        let what = || format!("ibv_query_gid of {}:{port}, index {index}", self.name);
        let number = i32::try_from(index).map_err(|_| failed(what(), libc::EINVAL))?;
        // SAFETY: the context is open and `gid` a valid place for the result.
        let result = unsafe { ffi::ibv_query_gid(self.raw.as_ptr(), port, number, &mut gid) };
        check(result, what)?;
        // SAFETY: every view of the union is 16 plain bytes.
        Ok(unsafe { gid.raw })
    }

    /// Entry `index` of the port's table of partition keys, host byte order, with the membership bit.
    pub fn query_pkey(&self, port: u8, index: u16) -> io::Result<u16> {
        let mut pkey = 0;
        // SAFETY: the context is open and `pkey` a valid place for the result.
        let result = unsafe { ffi::ibv_query_pkey(self.raw.as_ptr(), port, i32::from(index), &mut pkey) };
        check(result, || format!("ibv_query_pkey of {}:{port}, index {index}", self.name))?;
        Ok(u16::from_be(pkey))
    }

    /// The descriptor that gets readable with an event; non-blocking, owned by this context.
    pub fn async_fd(&self) -> RawFd {
        // SAFETY: the context is open; its descriptor stays the same all its life.
        unsafe { self.raw.as_ref() }.async_fd
    }

    /// The next event, or none yet. It is acknowledged already, so that destroying the object it
    /// was about can't wait for it.
    ///
    /// An error (EIO) means that the device has vanished: its descriptor stays readable, so it
    /// must be taken out of the poll set.
    pub fn next_async_event(&self) -> io::Result<Option<AsyncEvent>> {
        // SAFETY: integers and pointers, for which zero is valid.
        let mut event: ffi::ibv_async_event = unsafe { mem::zeroed() };
        // SAFETY: the context is open, `event` a valid place, the descriptor non-blocking.
        while unsafe { ffi::ibv_get_async_event(self.raw.as_ptr(), &mut event) } != 0 {
            match io::Error::last_os_error().kind() {
                io::ErrorKind::WouldBlock => return Ok(None),
                io::ErrorKind::Interrupted => {}
                _ => return Err(failed(format!("ibv_get_async_event of {}", self.name), last_errno())),
            }
        }
        let kind = event.event_type;
        let (mut port, mut qpn) = (0, 0);
        match kind {
            ffi::IBV_EVENT_PORT_ACTIVE
            | ffi::IBV_EVENT_PORT_ERR
            | ffi::IBV_EVENT_LID_CHANGE
            | ffi::IBV_EVENT_PKEY_CHANGE
            | ffi::IBV_EVENT_SM_CHANGE
            | ffi::IBV_EVENT_CLIENT_REREGISTER
            | ffi::IBV_EVENT_GID_CHANGE => {
                // SAFETY: these kinds carry a port number.
                port = u8::try_from(unsafe { event.element.port_num }).unwrap_or(0);
            }
            ffi::IBV_EVENT_QP_FATAL
            | ffi::IBV_EVENT_QP_REQ_ERR
            | ffi::IBV_EVENT_QP_ACCESS_ERR
            | ffi::IBV_EVENT_COMM_EST
            | ffi::IBV_EVENT_SQ_DRAINED
            | ffi::IBV_EVENT_QP_LAST_WQE_REACHED => {
                // SAFETY: these kinds carry a QP, which is alive: an event that isn't
                // acknowledged yet keeps ibv_destroy_qp from returning.
                qpn = unsafe { event.element.qp.as_ref() }.map_or(0, |qp| qp.qp_num);
            }
            _ => {}
        }
        // SAFETY: got above, acknowledged once.
        unsafe { ffi::ibv_ack_async_event(&mut event) };
        Ok(Some(AsyncEvent { kind, port, qpn }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listing_devices_is_harmless_anywhere() {
        match devices() {
            Ok(list) => {
                for device in list {
                    assert!(!device.name().is_empty());
                }
            }
            Err(e) => {
                assert!(e.to_string().starts_with("ibv_get_device_list: "), "{e}");
                assert!(errno_of(&e).is_some());
            }
        }
    }
}
