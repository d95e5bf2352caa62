//! The C types of `infiniband/acm.h` and `infiniband/acm_prov.h`, version 1. Written down here, since these headers come
//! with the package that this one takes the place of; a test holds the layouts against them.

use std::ffi::{c_char, c_int, c_void};

use crate::engine::MESSAGE;
use crate::ffi;

/// `ACM_PROV_VERSION`: the version of the interface.
pub const VERSION: u32 = 1;

/// `struct acm_msg`: a message of a client, or the answer to one. In its header `length` and `tid` are in host order.
#[repr(C, align(8))]
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message(pub [u8; MESSAGE]);

/// `struct acm_device`.
#[repr(C)]
#[derive(Debug)]
pub struct Device {
    /// The core's open device.
    pub verbs: *mut ffi::ibv_context,
    /// Node GUID, network order.
    pub dev_guid: u64,
}

/// `struct acm_port`.
#[repr(C)]
#[derive(Debug)]
pub struct Port {
    /// The port's device.
    pub dev: *mut Device,
    /// Port number, from 1.
    pub port_num: u8,
}

/// `struct acm_endpoint`.
#[repr(C)]
#[derive(Debug)]
pub struct Endpoint {
    /// The endpoint's port.
    pub port: *mut Port,
    /// P_Key, host order.
    pub pkey: u16,
}

/// `struct acm_address`.
#[repr(C)]
#[derive(Debug)]
pub struct Address {
    /// The address's endpoint.
    pub endpoint: *mut Endpoint,
    /// `union acm_ep_info`: the address, network order, zero padded.
    pub info: [u8; 64],
    /// The address as text.
    pub id_string: *mut c_char,
    /// `ACM_ADDRESS_*`, the type of a client's entry.
    pub kind: u16,
}

/// `struct acm_provider`: what a plug-in is.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Provider {
    /// Bytes of this structure.
    pub size: usize,
    /// As in `provider_query`.
    pub version: u32,
    /// Its name.
    pub name: *const c_char,
    /// 0, and the context of the device.
    pub open_device: Option<unsafe extern "C" fn(*const Device, *mut *mut c_void) -> c_int>,
    /// Ends what `open_device` began.
    pub close_device: Option<unsafe extern "C" fn(*mut c_void)>,
    /// With the device's context.
    pub open_port: Option<unsafe extern "C" fn(*const Port, *mut c_void, *mut *mut c_void) -> c_int>,
    /// Ends what `open_port` began.
    pub close_port: Option<unsafe extern "C" fn(*mut c_void)>,
    /// With the port's context.
    pub open_endpoint: Option<unsafe extern "C" fn(*const Endpoint, *mut c_void, *mut *mut c_void) -> c_int>,
    /// Ends what `open_endpoint` began.
    pub close_endpoint: Option<unsafe extern "C" fn(*mut c_void)>,
    /// With the endpoint's context.
    pub add_address: Option<unsafe extern "C" fn(*const Address, *mut c_void, *mut *mut c_void) -> c_int>,
    /// Ends what `add_address` began.
    pub remove_address: Option<unsafe extern "C" fn(*mut c_void)>,
    /// With the address's context. The answer comes through `acm_resolve_response`, now or later.
    pub resolve: Option<unsafe extern "C" fn(*mut c_void, *mut Message, u64) -> c_int>,
    /// With the address's context. The answer comes through `acm_query_response`, now or later.
    pub query: Option<unsafe extern "C" fn(*mut c_void, *mut Message, u64) -> c_int>,
    /// With the port's context and an `enum ibv_event_type`.
    pub handle_event: Option<unsafe extern "C" fn(*mut c_void, u32) -> c_int>,
    /// With the endpoint's context: up to 255 counters, network order, and how many.
    pub query_perf: Option<unsafe extern "C" fn(*mut c_void, *mut u64, *mut u8)>,
}

/// `struct acm_sa_mad`.
#[repr(C)]
pub struct SaMad {
    /// The plug-in's own.
    pub context: *mut c_void,
    /// The header that libibumad takes.
    pub umad: ffi::ib_user_mad,
    /// The MAD (`struct umad_sa_packet`), 256 bytes.
    pub mad: [u8; 256],
}

/// The plug-in's function that is told how a [`SaMad`] ended: `umad.status` is 0 and the answer is in it, or an errno.
pub type SaHandler = unsafe extern "C" fn(*mut SaMad);

const _: () = {
    // "must follow umad and be 64-bit aligned"
    assert!(std::mem::offset_of!(SaMad, mad) % 8 == 0);
    assert!(std::mem::offset_of!(SaMad, mad) == std::mem::offset_of!(SaMad, umad) + size_of::<ffi::ib_user_mad>());
};
