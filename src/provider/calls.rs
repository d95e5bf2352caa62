//! The calls into a plug-in, and the structures that it is given with them. On the plug-in's call thread alone.

// Calls through the plug-in's table; each block says why it is sound as far as that is ours to say.
#![allow(unsafe_code)]

use std::ffi::{CString, c_int, c_void};
use std::ptr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::abi;
use super::core::core;
use super::place::Place;
use super::tree::{Plugin, Wanted};
use crate::engine::{AskId, EpId, PluggedAddr, PortId, ProviderId};
use crate::ffi;
use crate::log;

/// `IBV_EVENT_CLIENT_REREGISTER`.
const REREGISTER: u32 = ffi::IBV_EVENT_CLIENT_REREGISTER;
/// How long a plug-in's handlers may take before a port is closed all the same.
const SETTLE: Duration = Duration::from_secs(1);
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
    /// Which call it is in.
    place: Arc<Place>,
    /// Before an endpoint or port is closed: lets the plug-in hear first how its questions to the SA ended.
    settle: Box<dyn Fn(Duration)>,
    /// Until when that may take, for a port with its endpoints.
    settled: Option<Instant>,
}

/// A pointer to a structure of ours, as the plug-in is given it: the header has it without `const` in places.
fn given<T>(of: &T) -> *mut T {
    ptr::from_ref(of).cast_mut()
}

impl Calls {
    /// Calls through `table`. The functions in it have to be those of a plug-in that stays loaded.
    pub fn new(
        id: ProviderId,
        name: &str,
        table: &'static abi::Provider,
        place: Arc<Place>,
        settle: Box<dyn Fn(Duration)>,
    ) -> Calls {
        Calls { id, name: name.to_owned(), table, place, settle, settled: None }
    }

    /// Something else is to be open: whoever is closed now has all of the time for it.
    pub fn begin(&mut self) {
        self.settled = None;
    }

    fn settle(&mut self) {
        let now = Instant::now();
        let until = *self.settled.get_or_insert(now + SETTLE);
        (self.settle)(until.saturating_duration_since(now));
    }

    /// What an opening call came to: an error where it refused, and where there is no such function.
    fn open(
        &self,
        what: &'static str,
        of: &str,
        call: impl FnOnce(*mut *mut c_void) -> Option<c_int>,
    ) -> Result<Context, i32> {
        let mut context = ptr::null_mut();
        let inside = self.place.enter(what);
        let result = call(&raw mut context).unwrap_or(-libc::ENOSYS);
        drop(inside);
        log!(2, "provider {}: {what} {of}: {result}", self.name);
        if result == 0 {
            return Ok(Context(context));
        }
        log!(0, "provider {}: {what} of {of} failed with {result}", self.name);
        Err(result)
    }

    fn close(
        &self,
        what: &'static str,
        of: &str,
        function: Option<unsafe extern "C" fn(*mut c_void)>,
        context: &Context,
    ) {
        log!(2, "provider {}: {what} {of}", self.name);
        if let Some(function) = function {
            let _inside = self.place.enter(what);
            // SAFETY: the plug-in's own function with its own context, from an opening call that has had no closing one.
            unsafe { function(context.0) }
        }
    }

    /// `resolve` or `query`: whether the plug-in took it.
    pub fn ask(&self, is_query: bool, address: &Address, mut message: Box<abi::Message>, id: AskId) -> bool {
        let (function, what) = if is_query { (self.table.query, "query") } else { (self.table.resolve, "resolve") };
        let inside = self.place.enter(what);
        // SAFETY: the address is open; the message has the length that the header says and is writable for the call.
        let result = function.map(|f| unsafe { f(address.context.0, &raw mut *message, id.0) });
        drop(inside);
        if let Some(error) = result.filter(|r| *r != 0) {
            crate::log_keyed!(0, (self.id, what), "provider {}: {what} has refused a question with {error}", self.name);
        }
        result == Some(0)
    }

    /// `query_perf`: the counters, or none.
    pub fn counters(&self, endpoint: &Endpoint) -> Vec<u64> {
        let mut values = [0u64; COUNTERS];
        let mut count = 0;
        if let Some(function) = self.table.query_perf {
            let _inside = self.place.enter("query_perf");
            // SAFETY: the endpoint is open; `count` is 8 bits, so that the values cannot be more than there is room for.
            unsafe { function(endpoint.context.0, values.as_mut_ptr(), &raw mut count) }
        }
        values.iter().take(usize::from(count)).map(|v| u64::from_be(*v)).collect()
    }

    /// `handle_event`: the subnet manager wants all registrations once more.
    pub fn reregister(&self, port: &Port) {
        let Some(function) = self.table.handle_event else { return };
        let inside = self.place.enter("handle_event");
        // SAFETY: the port is open.
        let result = unsafe { function(port.context.0, REREGISTER) };
        drop(inside);
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
        self.settle();
        self.close("close_port", &port.name, self.table.close_port, &port.context);
        self.settled = None;
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
        self.settle();
        self.close("close_endpoint", &endpoint.name, self.table.close_endpoint, &endpoint.context);
        core().remove_endpoint(&raw const *endpoint.c);
    }

    fn add_address(&mut self, addr: &PluggedAddr, on: &Endpoint) -> Result<Address, i32> {
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

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    static NOTHING: abi::Provider = abi::Provider {
        size: size_of::<abi::Provider>(),
        version: abi::VERSION,
        name: c"x".as_ptr(),
        open_device: None,
        close_device: None,
        open_port: None,
        close_port: None,
        open_endpoint: None,
        close_endpoint: None,
        add_address: None,
        remove_address: None,
        resolve: None,
        query: None,
        handle_event: None,
        query_perf: None,
    };

    /// A port that closes waits once for handlers that hang, however many endpoints it has.
    #[test]
    fn a_port_with_its_endpoints_settles_within_one_time() {
        let waited = Arc::new(Mutex::new(Vec::new()));
        let settle = {
            let waited = Arc::clone(&waited);
            Box::new(move |most: Duration| {
                waited.lock().unwrap().push(most);
                std::thread::sleep(most.min(SETTLE / 20));
            })
        };
        let mut calls = Calls::new(ProviderId(0), "x", &NOTHING, Arc::default(), settle);
        let context = || Context(ptr::null_mut());
        let endpoint = || Endpoint {
            context: context(),
            c: Box::new(abi::Endpoint { port: ptr::null_mut(), pkey: 1 }),
            name: String::new(),
        };
        let c = || Box::new(abi::Port { dev: ptr::null_mut(), port_num: 1 });
        for _ in 0..2 {
            (0..3).for_each(|_| calls.close_endpoint(endpoint()));
            calls.close_port(Port { context: context(), c: c(), name: String::new() });
            let waits = std::mem::take(&mut *waited.lock().unwrap());
            assert_eq!((waits.len(), waits[0]), (4, SETTLE));
            assert!(waits.windows(2).all(|w| w[1] + SETTLE / 20 <= w[0]), "{waits:?}");
        }
        calls.close_endpoint(endpoint());
        calls.begin();
        calls.close_endpoint(endpoint());
        assert_eq!(*waited.lock().unwrap(), [SETTLE; 2]);
    }
}
