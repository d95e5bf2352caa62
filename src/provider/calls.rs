//! The calls into a plug-in, and the structures that it is given with them. On the plug-in's call thread alone.

// Calls through the plug-in's table; each block says why it is sound as far as that is ours to say.
#![allow(unsafe_code)]

use std::ffi::{CString, c_int, c_void};
use std::ptr;
use std::sync::Arc;

use super::abi;
use super::core::core;
use super::tree::{Plugin, Wanted, WantedAddr};
use crate::engine::{AskId, EpId, PortId, ProviderId};
use crate::ffi;
use crate::log;

/// `IBV_EVENT_CLIENT_REREGISTER`.
const REREGISTER: u32 = ffi::IBV_EVENT_CLIENT_REREGISTER;
/// Counters that `query_perf` can report: their number is 8 bits.
const COUNTERS: usize = 256;

/// An open device of the service, as plug-ins are given it. Whoever makes one keeps the device open as long as there is
/// a clone of the [`Arc`] elsewhere.
#[derive(Debug)]
pub struct OpenedDevice {
    verbs: *mut ffi::ibv_context,
    guid: u64,
    name: String,
}

// SAFETY: the pointer is handed to plug-ins, and libibverbs may be called from every thread.
unsafe impl Send for OpenedDevice {}
// SAFETY: likewise.
unsafe impl Sync for OpenedDevice {}

impl OpenedDevice {
    /// `verbs` has to stay open; `guid` in host order.
    pub fn new(verbs: *mut ffi::ibv_context, guid: u64, name: &str) -> OpenedDevice {
        OpenedDevice { verbs, guid, name: name.to_owned() }
    }
}

/// What a plug-in made of an opening call.
struct Context(*mut c_void);

/// A device that is open at the plug-in; what [`abi::Port`] points to.
pub struct Device {
    context: Context,
    c: Box<abi::Device>,
    _held: Arc<OpenedDevice>,
}

/// A port that is open at the plug-in.
pub struct Port {
    context: Context,
    c: Box<abi::Port>,
    name: String,
}

/// An endpoint that is open at the plug-in.
pub struct Endpoint {
    context: Context,
    c: Box<abi::Endpoint>,
    name: String,
}

/// An address that is added at the plug-in.
pub struct Address {
    context: Context,
    _c: Box<abi::Address>,
    _text: CString,
}

/// A plug-in's table of functions, checked.
pub struct Calls {
    id: ProviderId,
    name: String,
    table: &'static abi::Provider,
    /// Before an endpoint or port is closed: lets the plug-in hear first how its questions to the SA ended.
    settle: Box<dyn Fn()>,
}

/// A pointer to a structure of ours, as the plug-in is given it: the header has it without `const` in places.
fn given<T>(of: &T) -> *mut T {
    ptr::from_ref(of).cast_mut()
}

impl Calls {
    /// Calls through `table`. The functions in it have to be those of a plug-in that stays loaded.
    pub fn new(id: ProviderId, name: &str, table: &'static abi::Provider, settle: Box<dyn Fn()>) -> Calls {
        Calls { id, name: name.to_owned(), table, settle }
    }

    /// What an opening call came to: an error where it refused, and where there is no such function.
    fn open(&self, what: &str, of: &str, call: impl FnOnce(*mut *mut c_void) -> Option<c_int>) -> Result<Context, i32> {
        let mut context = ptr::null_mut();
        let result = call(&raw mut context).unwrap_or(-libc::ENOSYS);
        log!(2, "provider {}: {what} {of}: {result}", self.name);
        if result == 0 {
            return Ok(Context(context));
        }
        log!(0, "provider {}: {what} of {of} failed with {result}", self.name);
        Err(result)
    }

    fn close(&self, what: &str, of: &str, function: Option<unsafe extern "C" fn(*mut c_void)>, context: &Context) {
        log!(2, "provider {}: {what} {of}", self.name);
        if let Some(function) = function {
            // SAFETY: the plug-in's own function with its own context, from an opening call that has had no closing one.
            unsafe { function(context.0) }
        }
    }

    /// `resolve` or `query`: whether the plug-in took it.
    pub fn ask(&self, is_query: bool, address: &Address, mut message: Box<abi::Message>, id: AskId) -> bool {
        let function = if is_query { self.table.query } else { self.table.resolve };
        // SAFETY: the address is open; the message has the length that the header says and is writable for the call.
        let result = function.map(|f| unsafe { f(address.context.0, &raw mut *message, id.0) });
        if result != Some(0) {
            crate::log_limited!(1, "provider {}: a question was refused with {result:?}", self.name);
        }
        result == Some(0)
    }

    /// `query_perf`: the counters, or none.
    pub fn counters(&self, endpoint: &Endpoint) -> Vec<u64> {
        let mut values = [0u64; COUNTERS];
        let mut count = 0;
        if let Some(function) = self.table.query_perf {
            // SAFETY: the endpoint is open; `count` is 8 bits, so that the values cannot be more than there is room for.
            unsafe { function(endpoint.context.0, values.as_mut_ptr(), &raw mut count) }
        }
        values.iter().take(usize::from(count)).map(|v| u64::from_be(*v)).collect()
    }

    /// `handle_event`: the subnet manager wants all registrations once more.
    pub fn reregister(&self, port: &Port) {
        let Some(function) = self.table.handle_event else { return };
        // SAFETY: the port is open.
        let result = unsafe { function(port.context.0, REREGISTER) };
        if result != 0 {
            log!(0, "provider {}: {} could not register again: {result}", self.name, port.name);
        }
    }
}

impl Plugin for Calls {
    type Device = Arc<OpenedDevice>;
    type OpenDevice = Device;
    type OpenPort = Port;
    type OpenEndpoint = Endpoint;
    type OpenAddress = Address;

    fn is_same(a: &Self::Device, b: &Self::Device) -> bool {
        Arc::ptr_eq(a, b)
    }

    fn open_device(&mut self, device: &Self::Device) -> Result<Device, i32> {
        let c = Box::new(abi::Device { verbs: device.verbs, dev_guid: device.guid.to_be() });
        // SAFETY: the structure lives until the matching closing call has returned.
        let call = |context| self.table.open_device.map(|f| unsafe { f(&raw const *c, context) });
        let context = self.open("open_device", &device.name, call)?;
        Ok(Device { context, c, _held: Arc::clone(device) })
    }

    fn close_device(&mut self, device: Device) {
        self.close("close_device", &device._held.name, self.table.close_device, &device.context);
    }

    fn open_port(&mut self, _: PortId, wanted: &Wanted<Self::Device>, on: &Device) -> Result<Port, i32> {
        let c = Box::new(abi::Port { dev: given(&*on.c), port_num: wanted.port });
        let name = format!("{} port {}", wanted.device.name, wanted.port);
        core().add_port(&raw const *c, wanted.gids.clone());
        // SAFETY: the structures live until the matching closing calls have returned; the device is open.
        let call = |context| self.table.open_port.map(|f| unsafe { f(&raw const *c, on.context.0, context) });
        let opened = self.open("open_port", &name, call);
        if opened.is_err() {
            core().remove_port(&raw const *c);
        }
        Ok(Port { context: opened?, c, name })
    }

    fn close_port(&mut self, port: Port) {
        (self.settle)();
        self.close("close_port", &port.name, self.table.close_port, &port.context);
        core().remove_port(&raw const *port.c);
    }

    fn open_endpoint(&mut self, id: EpId, pkey: u16, on: &Port) -> Result<Endpoint, i32> {
        let c = Box::new(abi::Endpoint { port: given(&*on.c), pkey });
        let name = format!("{} pkey {pkey:#06x}", on.name);
        core().add_endpoint(&raw const *c, id, self.id);
        // SAFETY: the structures live until the matching closing calls have returned; the port is open.
        let call = |context| self.table.open_endpoint.map(|f| unsafe { f(&raw const *c, on.context.0, context) });
        let opened = self.open("open_endpoint", &name, call);
        if opened.is_err() {
            core().remove_endpoint(&raw const *c);
        }
        Ok(Endpoint { context: opened?, c, name })
    }

    fn close_endpoint(&mut self, endpoint: Endpoint) {
        (self.settle)();
        self.close("close_endpoint", &endpoint.name, self.table.close_endpoint, &endpoint.context);
        core().remove_endpoint(&raw const *endpoint.c);
    }

    fn add_address(&mut self, addr: &WantedAddr, on: &Endpoint) -> Result<Address, i32> {
        // nothing with a zero in it comes from interfaces or from a line of a file
        let text = CString::new(addr.text.clone()).map_err(|_| -libc::EINVAL)?;
        let c = Box::new(abi::Address {
            endpoint: given(&*on.c),
            info: *addr.addr.wire(),
            id_string: text.as_ptr().cast_mut(),
            kind: addr.addr.kind(),
        });
        // SAFETY: the structures live until the matching closing calls have returned; the endpoint is open.
        let call = |context| self.table.add_address.map(|f| unsafe { f(&raw const *c, on.context.0, context) });
        let context = self.open("add_address", &addr.addr.to_string(), call)?;
        Ok(Address { context, _c: c, _text: text })
    }

    fn remove_address(&mut self, addr: Address) {
        self.close("remove_address", &addr._text.to_string_lossy(), self.table.remove_address, &addr.context);
    }
}
