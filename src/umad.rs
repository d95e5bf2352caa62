//! Management datagrams to and from the subnet's administration (SA), through libibumad.
//!
//! The kernel repeats an unanswered request, and gives it back with status [`TIMED_OUT`] in the
//! end. It owns the upper 32 bits of a request's transaction id: an answer, and a request that is
//! given back, must be matched by the lower 32 alone.

// The calls into libibumad; each block says why it is sound.
#![allow(unsafe_code)]

use std::ffi::{CString, c_long};
use std::os::fd::RawFd;
use std::path::Path;
use std::sync::Once;
use std::{io, mem};

use ibacm_wire::notice::METHOD_REPORT;

use crate::ffi;
use crate::verbs::{failed, set_nonblocking};

/// Length of a management datagram, bytes.
pub const MAD: usize = 256;

/// [`Received::status`] of a request that got no answer.
pub const TIMED_OUT: u32 = libc::ETIMEDOUT.cast_unsigned();

/// [`Received::status`] of an answer that was longer than a datagram: what there is was cut.
///
/// The kernel takes the request as answered, so nothing else comes for it.
pub const TOO_LONG: u32 = libc::EMSGSIZE.cast_unsigned();

/// The Q_Key of every QP 1 (IBA 10.2.5).
const GSI_QKEY: u32 = 0x8001_0000;
const GSI_QPN: u32 = 1;
/// Management class and class version of the SA (IBA 15.2.1).
const SA_CLASS: i32 = 0x03;
const SA_VERSION: i32 = 2;
/// Longest message that is read (to be cut), bytes; one that is longer is an error.
const LONGEST: usize = 1 << 20;

/// Has libibumad print what it does on stderr: 0 nothing, 1 calls, 2 whole datagrams.
pub fn set_debug_level(level: i32) {
    // SAFETY: takes a number.
    unsafe { ffi::umad_debug(level) };
}

/// What came from the kernel, integers in host byte order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    /// 0: a datagram from the fabric; otherwise a request of our own comes back, and this is why:
    /// [`TIMED_OUT`] or another error number. Or an answer is unusable: [`TOO_LONG`].
    pub status: u32,
    /// LID of the sender (of the destination, for a request that comes back).
    pub lid: u16,
    /// QP of the sender, likewise.
    pub qpn: u32,
    /// Service level.
    pub sl: u8,
    /// Index of the partition key.
    pub pkey_index: u16,
    /// The datagram, zero after `len` bytes.
    pub mad: [u8; MAD],
    /// How much of it there is; a request that comes back may be its 24-byte header alone.
    pub len: usize,
}

impl Received {
    /// Whether it is a report, which somebody made without being asked.
    pub fn is_report(&self) -> bool {
        self.status == 0 && self.mad[3] == METHOD_REPORT
    }
}

/// Agents for the SA's class on a port.
pub struct UmadPort {
    id: i32,
    agent: i32,
    fd: RawFd,
    name: String,
    message: Box<Message>,
    cut: u64,
    /// Requests that nothing has come back for.
    open: u32,
    /// The agent that reports come to, or -1.
    reports: i32,
}

/// One message as the kernel takes and gives it.
///
/// The header has the partition key's index in it, which libibumad enables wherever the kernel
/// knows it (all since Linux 2.6.24).
#[repr(C)]
struct Message {
    header: ffi::ib_user_mad,
    mad: [u8; MAD],
}

const HEADER: usize = mem::size_of::<ffi::ib_user_mad>();
const _: () = assert!(mem::size_of::<Message>() == HEADER + MAD);

impl Message {
    fn zeroed() -> Message {
        // SAFETY: plain integers, for which zero is valid.
        unsafe { mem::zeroed() }
    }
}

/// The error of a call that returned a negative number: that of a system call, which errno tells, if it is EIO; the
/// library's own otherwise, and then errno is an old one.
fn call_error(what: String, result: i32) -> io::Error {
    let errno = match result.checked_neg() {
        None | Some(1 | libc::EIO) => match io::Error::last_os_error().raw_os_error() {
            None | Some(0 | libc::EAGAIN) => libc::EIO,
            Some(errno) => errno,
        },
        Some(errno) => errno,
    };
    failed(what, errno)
}

/// Whether the kernel's side is there; unknown (and taken as there) where there is no RDMA in sysfs at all.
///
/// The library looks for it once in a process, and what it has not found then it never finds.
fn kernel_side() -> bool {
    Path::new("/sys/class/infiniband_mad/abi_version").exists() || !Path::new("/sys/class/infiniband_verbs").exists()
}

/// The registration's bit mask of the methods that are to be received unsolicited; none if a
/// method isn't one of a request (below 0x80).
fn method_mask(methods: &[u8]) -> Option<[c_long; 16 / mem::size_of::<c_long>()]> {
    let mut mask = [0; 16 / mem::size_of::<c_long>()];
    for &method in methods {
        let bit = u32::from(method);
        let word = mask.get_mut((bit / c_long::BITS) as usize)?;
        *word |= (1 as c_long) << (bit % c_long::BITS);
    }
    Some(mask)
}

impl UmadPort {
    /// Opens `port` of a device and registers for answers of the SA, and for requests with one of
    /// `methods`, normally none.
    ///
    /// Only one agent of a port can have a method: an error (EPERM) otherwise.
    pub fn open(device: &str, port: u8, methods: &[u8]) -> io::Result<UmadPort> {
        static INIT: Once = Once::new();
        // SAFETY: takes nothing; called once before everything else, as the library asks.
        INIT.call_once(|| unsafe {
            ffi::umad_init();
        });
        let name = format!("{device}:{port}");
        let open_failed = |errno| failed(format!("umad_open_port of {name}"), errno);
        if !kernel_side() {
            return Err(failed(format!("umad_open_port of {name}, without the module ib_umad"), libc::ENODEV));
        }
        let c_name = CString::new(device).map_err(|_| open_failed(libc::EINVAL))?;
        // SAFETY: a string that ends with a NUL and lives through the call.
        let id = unsafe { ffi::umad_open_port(c_name.as_ptr(), i32::from(port)) };
        if id < 0 {
            return Err(call_error(format!("umad_open_port of {name}"), id));
        }
        // From here on dropping closes the port.
        // SAFETY: the port is open.
        let fd = unsafe { ffi::umad_get_fd(id) };
        let mut opened =
            UmadPort { id, agent: -1, fd, name, message: Box::new(Message::zeroed()), cut: 0, open: 0, reports: -1 };
        set_nonblocking(fd, &format!("the umad descriptor of {}", opened.name))?;
        opened.agent = opened.register(methods)?;
        Ok(opened)
    }

    /// Registers an agent of the SA's class that gets requests with one of `methods`, too.
    fn register(&self, methods: &[u8]) -> io::Result<i32> {
        let what = || format!("umad_register on {}", self.name);
        let mut mask = method_mask(methods).ok_or_else(|| failed(what(), libc::EINVAL))?;
        // SAFETY: the port is open; the mask has the length that the header says.
        let agent = unsafe { ffi::umad_register(self.id, SA_CLASS, SA_VERSION, 0, mask.as_mut_ptr()) };
        if agent < 0 { Err(call_error(what(), agent)) } else { Ok(agent) }
    }

    /// Has reports of the SA come here from now on.
    ///
    /// An error (EPERM) if another program has them.
    pub fn take_reports(&mut self) -> io::Result<()> {
        if !self.has_reports() {
            self.reports = self.register(&[METHOD_REPORT])?;
        }
        Ok(())
    }

    /// The descriptor that gets readable with a message; non-blocking, owned by the port.
    pub fn fd(&self) -> RawFd {
        self.fd
    }

    /// Whether reports of the SA come here.
    pub fn has_reports(&self) -> bool {
        self.reports >= 0
    }

    /// Whether an answer to a request may come, or the request itself. If not, hardly a message waits behind the one that
    /// was read.
    pub fn expects_answer(&self) -> bool {
        self.open > 0
    }

    /// Messages that were cut, as they were longer than a datagram.
    pub fn cut(&self) -> u64 {
        self.cut
    }

    /// Sends a datagram to QP 1 of `lid` with service level `sl`.
    ///
    /// A request is repeated `retries` times, each time after `timeout_ms` without an answer. With
    /// `timeout_ms` 0 no answer is waited for: for answers of our own.
    pub fn send(
        &mut self,
        lid: u16,
        sl: u8,
        pkey_index: u16,
        (timeout_ms, retries): (u32, u32),
        mad: &[u8; MAD],
    ) -> io::Result<()> {
        let what = || format!("umad_send on {} to LID {lid:#x}", self.name);
        let number = |n: u32| i32::try_from(n).map_err(|_| failed(what(), libc::EINVAL));
        let (timeout_ms, retries) = (number(timeout_ms)?, number(retries)?);
        *self.message = Message::zeroed();
        let address = &mut self.message.header.addr;
        address.lid = lid.to_be();
        address.sl = sl;
        address.qpn = GSI_QPN.to_be();
        address.qkey = GSI_QKEY.to_be();
        address.pkey_index = pkey_index;
        self.message.mad = *mad;
        let message = (&raw mut *self.message).cast();
        // SAFETY: port and agent are registered; the message is complete and MAD bytes long.
        let result = unsafe { ffi::umad_send(self.id, self.agent, message, MAD as i32, timeout_ms, retries) };
        if result < 0 {
            return Err(call_error(what(), result));
        }
        self.open += u32::from(timeout_ms > 0);
        Ok(())
    }

    /// The next message, or none yet. Never waits.
    ///
    /// An error (EIO, ENODEV) means that the device has vanished: the descriptor stays readable,
    /// so it must be taken out of the poll set.
    pub fn recv(&mut self) -> io::Result<Option<Received>> {
        let mut length = MAD as i32;
        let message = (&raw mut *self.message).cast();
        // SAFETY: there is room for the header and `length` bytes.
        let result = unsafe { ffi::umad_recv(self.id, message, &mut length, 0) };
        if result < 0 {
            return match io::Error::last_os_error().raw_os_error() {
                Some(libc::EAGAIN | libc::ETIMEDOUT) => Ok(None),
                // The message stays in the kernel's queue until it is read in full.
                Some(libc::ENOSPC) => self.cut_down().map(Some),
                _ => Err(call_error(format!("umad_recv on {}", self.name), result)),
            };
        }
        let received = self.take(usize::try_from(length).unwrap_or(0).min(MAD));
        if !received.is_report() {
            self.open = self.open.saturating_sub(1);
        }
        Ok(Some(received))
    }

    /// Reads a message that is longer than a datagram; the kernel left its header, which tells
    /// the length, in the buffer. What fits is kept: its sender waits for no other answer.
    fn cut_down(&mut self) -> io::Result<Received> {
        let what = || format!("umad_recv on {} of a long message", self.name);
        let told = usize::try_from(self.message.header.length).unwrap_or(usize::MAX);
        if told > LONGEST {
            return Err(failed(what(), libc::EMSGSIZE));
        }
        let room = told.max(MAD);
        // Words of 64 bits, for the header's alignment.
        let mut long = vec![0_u64; (HEADER + room).div_ceil(8)];
        let mut length = room as i32;
        // SAFETY: there is room for the header and `length` bytes.
        let result = unsafe { ffi::umad_recv(self.id, long.as_mut_ptr().cast(), &mut length, 0) };
        if result < 0 {
            return Err(call_error(what(), result));
        }
        self.cut += 1;
        self.open = self.open.saturating_sub(1);
        // SAFETY: as many bytes were allocated at least, aligned, and any bytes are a message.
        *self.message = unsafe { long.as_ptr().cast::<Message>().read() };
        let message = self.take(usize::try_from(length).unwrap_or(0).min(MAD));
        Ok(Received { status: TOO_LONG, ..message })
    }

    /// The message that was read, with `len` bytes of a datagram.
    fn take(&self, len: usize) -> Received {
        let ffi::ib_user_mad { status, addr, .. } = &self.message.header;
        let mut mad = [0; MAD];
        mad[..len].copy_from_slice(&self.message.mad[..len]);
        Received {
            status: *status,
            lid: u16::from_be(addr.lid),
            qpn: u32::from_be(addr.qpn),
            sl: addr.sl,
            pkey_index: addr.pkey_index,
            mad,
            len,
        }
    }
}

impl Drop for UmadPort {
    fn drop(&mut self) {
        // SAFETY: opened and registered here, each given back once.
        unsafe {
            for agent in [self.reports, self.agent].into_iter().filter(|a| *a >= 0) {
                ffi::umad_unregister(self.id, agent);
            }
            ffi::umad_close_port(self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::errno_of;

    #[test]
    fn methods_become_bits() {
        let bits = |methods| method_mask(methods).map(|mask| mask.map(c_long::cast_unsigned));
        assert!(bits(&[]).is_some_and(|mask| mask.iter().all(|word| *word == 0)));
        assert!(bits(&[0x06]).is_some_and(|mask| mask[0] == 1 << 6));
        let last = bits(&[0x7f]).expect("a method of a request");
        assert_eq!(last.last(), Some(&(1 << (c_long::BITS - 1))));
        assert_eq!(method_mask(&[0x80]), None);
    }

    #[test]
    fn absent_devices_and_bad_names_are_errors() {
        for name in ["no_such_device", "with\0nul", ""] {
            let Err(e) = UmadPort::open(name, 1, &[]) else { panic!("{name:?} was opened") };
            assert!(e.to_string().starts_with("umad_open_port of "), "{e}");
            assert!(errno_of(&e).is_some_and(|errno| errno > 0), "{e}");
        }
    }
}
