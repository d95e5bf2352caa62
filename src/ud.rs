//! Datagram endpoints: a UD QP with its queues, buffers and address handles.
//!
//! A [`UdDevice`] has one descriptor to poll for all endpoints of a device; an event names the
//! endpoint by the number (cookie) that its owner chose. The rule that loses no completion:
//! [`UdEndpoint::poll`] empties the queue, the owner does what follows from that, [`UdEndpoint::arm`]
//! has the next completion make an event, and another poll takes what came before that. Where a
//! budget ended a poll ([`Polled::more`]) no event may come: the owner calls again without waiting
//! for one.

// One block reads a receive buffer, and completions start as zeroed structures.
#![allow(unsafe_code)]

use std::os::fd::RawFd;
use std::rc::Rc;
use std::{io, mem};

use crate::ffi;
use crate::verbs::{Ah, CompChannel, Context, Cq, Mr, Pd, Qp, QpSetup, errno_of, failed};

#[path = "verbs_datagram.rs"]
mod datagram;
#[path = "verbs_slots.rs"]
mod slots;

pub use datagram::{Av, AvGrh, Completion, PAYLOAD, Polled, Recv, RecvGrh, SendError};

use datagram::GRH;

use slots::{Depths, HandleCache, HandleId, Slots};

const RECV_SLOT: usize = GRH + PAYLOAD;
/// Where the rest of longer datagrams goes, one place for all: up to the largest MTU (IBA 5.2).
const SPILL: usize = 4096 - PAYLOAD;
/// Address handles kept per endpoint.
const HANDLES: usize = 256;
/// Completions taken from the queue at a time.
const BATCH: usize = Qp::MAX_BATCH;
/// Marks the work request ids of sends.
const SEND_ID: u64 = 1 << 63;

/// What the endpoints of one device share: a protection domain and a completion channel.
pub struct UdDevice {
    pd: Rc<Pd>,
    channel: Rc<CompChannel>,
}

impl UdDevice {
    /// Prepares an open device.
    pub fn new(context: Rc<Context>) -> io::Result<UdDevice> {
        let pd = Pd::new(Rc::clone(&context))?;
        Ok(UdDevice { pd, channel: CompChannel::new(context)? })
    }

    /// The device.
    pub fn context(&self) -> &Rc<Context> {
        self.pd.context()
    }

    /// The descriptor that gets readable with an event of any endpoint; non-blocking, owned by
    /// the device.
    pub fn fd(&self) -> RawFd {
        self.channel.fd()
    }

    /// Takes up to `max` events and gives the cookies of their endpoints to `f`. The number of
    /// events; if it is `max`, more may be waiting. As an armed queue makes one event, nothing is
    /// read when that of each has been: only the first read may find nothing.
    ///
    /// An error (EIO) means that the device has vanished: its descriptor stays readable, so it
    /// must be taken out of the poll set.
    pub fn drain_events(&mut self, max: usize, mut f: impl FnMut(u64)) -> io::Result<usize> {
        let mut count = 0;
        while count < max {
            let Some(cookie) = self.channel.next_event()? else { break };
            f(cookie);
            count += 1;
            if !self.channel.expects_event() {
                break;
            }
        }
        Ok(count)
    }
}

/// What is kept of a send until it has ended.
#[derive(Debug)]
struct Load {
    token: u64,
    handle: HandleId,
}

/// A UD QP on one port and partition, with all that it needs.
pub struct UdEndpoint {
    // The QP goes first, then what it works with.
    qp: Qp,
    handles: HandleCache<Ah>,
    cq: Rc<Cq>,
    pd: Rc<Pd>,
    slots: Slots<Load>,
    /// Receives that have ended and are to be posted again.
    spent: Vec<u64>,
    depths: Depths,
    port: u8,
    pkey_index: u16,
    broken: bool,
}

impl UdEndpoint {
    /// Makes an endpoint: all its receives are posted, its queue is armed with `cookie`.
    ///
    /// `recv_depth` and `send_slots` are cut to what the device can hold; where memory is short
    /// (locked pages too) fewer receives are tried: see [`UdEndpoint::recv_depth`].
    pub fn new(
        device: &UdDevice,
        cookie: u64,
        port: u8,
        pkey_index: u16,
        qkey: u32,
        recv_depth: usize,
        send_slots: usize,
    ) -> io::Result<UdEndpoint> {
        let context = device.context();
        let wanted = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let (recv, send) = (wanted(recv_depth), wanted(send_slots));
        let mut depths = Depths::clamped(recv, send, context.max_qp_wr(), context.max_cqe());
        loop {
            let setup = QpSetup { port, pkey_index, qkey, recv_depth: depths.recv, send_depth: depths.send };
            match UdEndpoint::build(device, cookie, &setup, depths) {
                Err(e) if errno_of(&e) == Some(libc::ENOMEM) => match depths.smaller() {
                    Some(fewer) => depths = fewer,
                    None => return Err(e),
                },
                result => return result,
            }
        }
    }

    fn build(device: &UdDevice, cookie: u64, setup: &QpSetup, depths: Depths) -> io::Result<UdEndpoint> {
        let (pd, channel) = (Rc::clone(&device.pd), Rc::clone(&device.channel));
        let cq = Cq::new(channel, cookie, depths.recv + depths.send)?;
        let recv = Mr::new(Rc::clone(&pd), depths.recv as usize * RECV_SLOT + SPILL)?;
        let send = Mr::new(Rc::clone(&pd), depths.send as usize * PAYLOAD)?;
        let qp = Qp::new(Rc::clone(&pd), Rc::clone(&cq), recv, send, setup)?;
        let endpoint = UdEndpoint {
            qp,
            handles: HandleCache::new(HANDLES),
            cq,
            pd,
            slots: Slots::new(depths.send),
            spent: Vec::with_capacity(BATCH * 2),
            depths,
            port: setup.port,
            pkey_index: setup.pkey_index,
            broken: false,
        };
        // Armed before the first receive is there, so that no datagram can be missed.
        endpoint.cq.arm()?;
        let all: Vec<u64> = (0..u64::from(depths.recv)).collect();
        for ids in all.chunks(BATCH) {
            endpoint.post_receives(ids)?;
        }
        Ok(endpoint)
    }

    fn post_receives(&self, ids: &[u64]) -> io::Result<()> {
        let mut receives = [(0, 0); BATCH];
        for (receive, &id) in receives.iter_mut().zip(ids) {
            // Ids are below the depth; a wrong one is refused as out of the buffer.
            *receive = (id, usize::try_from(id).unwrap_or(usize::MAX).saturating_mul(RECV_SLOT));
        }
        let spill = (self.depths.recv as usize * RECV_SLOT, SPILL);
        self.qp.post_recv(&receives[..ids.len().min(BATCH)], RECV_SLOT, spill)
    }

    /// The QP's number.
    pub fn qpn(&self) -> u32 {
        self.qp.qpn()
    }

    /// Whether it was made on `device`.
    pub fn is_on(&self, device: &UdDevice) -> bool {
        Rc::ptr_eq(&self.pd, &device.pd)
    }

    /// The port.
    pub fn port(&self) -> u8 {
        self.port
    }

    /// Index of the partition key that the QP works with. A table that was re-ordered needs a new
    /// endpoint.
    pub fn pkey_index(&self) -> u16 {
        self.pkey_index
    }

    /// Receives that are posted.
    pub fn recv_depth(&self) -> usize {
        self.depths.recv as usize
    }

    /// Sends that can be in flight at a time.
    pub fn send_slots(&self) -> usize {
        self.depths.send as usize
    }

    /// Sends that can be started now.
    pub fn free_slots(&self) -> usize {
        self.slots.free()
    }

    /// The QP can't be used any more: the owner makes a new endpoint and drops this one.
    ///
    /// Sends in flight may then never complete.
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// Attaches to a group (its LID as the SA gave it, host byte order); harmless if it is
    /// attached already. Another LID replaces the one before.
    pub fn attach(&mut self, mgid: &[u8; 16], mlid: u16) -> io::Result<()> {
        self.qp.attach(mgid, mlid)
    }

    /// Detaches from a group; harmless if it isn't attached.
    pub fn detach(&mut self, mgid: &[u8; 16]) -> io::Result<()> {
        self.qp.detach(mgid)
    }

    /// Forgets the cached address handles, for when the port's GID table has changed.
    pub fn forget_handles(&mut self) {
        self.handles.clear();
    }

    /// Sends a datagram; its end is told by [`Completion::Sent`] with `token`.
    ///
    /// The device takes a Q_Key with the high bit set from the QP instead (IBA 10.2.5).
    pub fn send(
        &mut self,
        token: u64,
        to: &Av,
        remote_qpn: u32,
        remote_qkey: u32,
        payload: &[u8],
    ) -> Result<(), SendError> {
        if payload.len() > PAYLOAD {
            return Err(SendError::TooLong);
        }
        if self.broken {
            return Err(SendError::Io(failed("sending on a QP in error", libc::ENOTCONN)));
        }
        let Some(slot) = self.slots.next_free() else { return Err(SendError::Full) };
        let (pd, port) = (&self.pd, self.port);
        let made = self.handles.take(to, || Ah::new(Rc::clone(pd), port, to));
        let Some(handle) = made.map_err(SendError::Io)? else { return Err(SendError::Full) };
        let Some(ah) = self.handles.get(handle) else { return Err(SendError::Full) };
        let offset = slot as usize * PAYLOAD;
        let id = SEND_ID | u64::from(slot);
        match self.qp.post_send(id, offset, payload, ah, (remote_qpn, remote_qkey)) {
            Ok(()) => {
                self.slots.start(Load { token, handle });
                Ok(())
            }
            Err(e) => {
                self.handles.release(handle);
                Err(SendError::Io(e))
            }
        }
    }

    /// Has the next completion make an event. What came before that makes none: a poll has to follow.
    ///
    /// After an error the endpoint is broken.
    pub fn arm(&mut self) -> io::Result<()> {
        self.cq.arm().inspect_err(|_| self.broken = true)
    }

    /// Hands up to `budget` completions to `f`, in their order, until the queue is empty. Receives
    /// are posted again after `f` has returned, some of them together. See the module's text for
    /// when to call again.
    ///
    /// After an error the endpoint is broken.
    pub fn poll(&mut self, budget: usize, mut f: impl FnMut(Completion<'_>)) -> io::Result<Polled> {
        let mut completions = 0;
        while completions < budget {
            let room = BATCH.min(budget - completions);
            // SAFETY: plain integers, for which zero is valid.
            let mut found: [ffi::ibv_wc; BATCH] = unsafe { mem::zeroed() };
            let count = self.cq.poll(&mut found[..room]).inspect_err(|_| self.broken = true)?;
            completions += count;
            self.handle_batch(&found[..count], &mut f)?;
            // Fewer than there was room for: the queue was emptied.
            if count < room {
                return Ok(Polled { completions, more: false });
            }
        }
        Ok(Polled { completions, more: true })
    }

    fn handle_batch(&mut self, found: &[ffi::ibv_wc], f: &mut impl FnMut(Completion<'_>)) -> io::Result<()> {
        let mut failures = false;
        for wc in found {
            let status = wc.status;
            failures |= status != ffi::IBV_WC_SUCCESS;
            if wc.wr_id & SEND_ID != 0 {
                if let Some(Load { token, handle }) = self.slots.finish(wc.wr_id & !SEND_ID) {
                    self.handles.release(handle);
                    f(Completion::Sent { token, ok: status == ffi::IBV_WC_SUCCESS, status });
                }
                continue;
            }
            if status == ffi::IBV_WC_SUCCESS {
                f(self.received(wc).map_or(Completion::RecvError { status }, Completion::Recv));
            } else {
                // Receives are only flushed when the QP is in error.
                self.broken |= status == ffi::IBV_WC_WR_FLUSH_ERR;
                f(Completion::RecvError { status });
            }
            if wc.wr_id < u64::from(self.depths.recv) {
                self.spent.push(wc.wr_id);
            }
        }
        if failures && !self.broken {
            self.broken = !self.qp.recover().unwrap_or(false);
        }
        // On a QP in error each receive would be flushed at once, for ever.
        if !self.broken && self.spent.len() >= self.post_at() {
            for ids in self.spent.chunks(BATCH) {
                self.post_receives(ids).inspect_err(|_| self.broken = true)?;
            }
            self.spent.clear();
        }
        Ok(())
    }

    /// How many spent receives are posted together: telling the device has a price, and so have missing receives.
    fn post_at(&self) -> usize {
        (self.depths.recv as usize / 8).clamp(1, BATCH)
    }

    /// A received datagram; none if its length is that of no message.
    fn received(&self, wc: &ffi::ibv_wc) -> Option<Recv<'_>> {
        let length = usize::try_from(wc.byte_len).ok().filter(|n| (GRH..=RECV_SLOT).contains(n))?;
        let offset = usize::try_from(wc.wr_id).ok()?.checked_mul(RECV_SLOT)?;
        // SAFETY: this receive has completed, and is posted again only after the result, which
        // lives as long as the call of the caller's function, is gone.
        let bytes = unsafe { self.qp.received(offset, length) }?;
        let (grh, payload) = bytes.split_first_chunk::<GRH>()?;
        Some(Recv {
            slid: wc.slid,
            src_qp: wc.src_qp,
            sl: wc.sl,
            dlid_path_bits: wc.dlid_path_bits,
            pkey_index: wc.pkey_index,
            grh: (wc.wc_flags & ffi::IBV_WC_GRH != 0).then_some(RecvGrh(grh)),
            payload,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn send_ids_are_apart_from_receive_ids() {
        assert!(u64::from(Depths::MAX) < SEND_ID);
    }
}
