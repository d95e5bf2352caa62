//! UD QPs.

use std::ptr::{self, NonNull};
use std::rc::Rc;
use std::{io, mem, slice};

use super::error::{check, destroyed, errno_of, failed, non_null};
use super::{Ah, Cq, Mr, Pd};
use crate::ffi;

/// What a [`Qp`] is made of.
pub struct QpSetup {
    /// Port number, from 1.
    pub port: u8,
    /// Index of the partition key in the port's table.
    pub pkey_index: u16,
    /// Q_Key that received datagrams must carry.
    pub qkey: u32,
    /// Receives that can be posted at a time.
    pub recv_depth: u32,
    /// Sends that can be posted at a time.
    pub send_depth: u32,
}

/// A UD QP, ready to send, and the two buffers its work requests point into.
pub struct Qp {
    raw: NonNull<ffi::ibv_qp>,
    name: String,
    recv: Mr,
    send: Mr,
    groups: Vec<([u8; 16], u16)>,
    _cq: Rc<Cq>,
    _pd: Rc<Pd>,
}

impl Qp {
    /// Most groups that one QP can be attached to at a time.
    pub const MAX_GROUPS: usize = 256;
    /// Most receives that [`Qp::post_recv`] takes at a time.
    pub const MAX_BATCH: usize = 16;

    /// Makes a QP and brings it from Reset over Init and RTR to RTS. Every send is signaled.
    pub fn new(pd: Rc<Pd>, cq: Rc<Cq>, recv: Mr, send: Mr, setup: &QpSetup) -> io::Result<Qp> {
        let name = format!("{}:{}", pd.context().name(), setup.port);
        // SAFETY: integers and pointers, for which zero is valid.
        let mut init: ffi::ibv_qp_init_attr = unsafe { mem::zeroed() };
        init.send_cq = cq.raw.as_ptr();
        init.recv_cq = cq.raw.as_ptr();
        init.cap.max_recv_wr = setup.recv_depth;
        init.cap.max_send_wr = setup.send_depth;
        init.cap.max_recv_sge = 2;
        init.cap.max_send_sge = 1;
        init.qp_type = ffi::IBV_QPT_UD;
        init.sq_sig_all = 1;
        // SAFETY: domain and queue are alive, `init` is complete.
        let raw = unsafe { ffi::ibv_create_qp(pd.raw.as_ptr(), &mut init) };
        let raw = non_null(raw, || format!("ibv_create_qp on {name}"))?;
        let qp = Qp { raw, name, recv, send, groups: Vec::new(), _cq: cq, _pd: pd };

        // SAFETY: integers and unions of them, for which zero is valid.
        let mut attr: ffi::ibv_qp_attr = unsafe { mem::zeroed() };
        attr.pkey_index = setup.pkey_index;
        attr.port_num = setup.port;
        attr.qkey = setup.qkey;
        attr.qp_state = ffi::IBV_QPS_INIT;
        let init_mask = ffi::IBV_QP_STATE | ffi::IBV_QP_PKEY_INDEX | ffi::IBV_QP_PORT | ffi::IBV_QP_QKEY;
        qp.modify(&mut attr, init_mask, "Init").map_err(|e| match errno_of(&e) {
            // a Q_Key with the high bit set is the administration's (IBA 10.2.5)
            Some(libc::EPERM) => {
                failed(format!("ibv_modify_qp to Init on {}, which takes CAP_NET_RAW", qp.name), libc::EPERM)
            }
            _ => e,
        })?;
        attr.qp_state = ffi::IBV_QPS_RTR;
        qp.modify(&mut attr, ffi::IBV_QP_STATE, "RTR")?;
        attr.qp_state = ffi::IBV_QPS_RTS;
        qp.modify(&mut attr, ffi::IBV_QP_STATE | ffi::IBV_QP_SQ_PSN, "RTS")?;
        Ok(qp)
    }

    fn modify(&self, attr: &mut ffi::ibv_qp_attr, mask: u32, to: &str) -> io::Result<()> {
        // SAFETY: the QP is alive and `attr` holds what `mask` names.
        let result = unsafe { ffi::ibv_modify_qp(self.raw.as_ptr(), attr, mask.cast_signed()) };
        check(result, || format!("ibv_modify_qp to {to} on {}, pkey index {}", self.name, attr.pkey_index))
    }

    /// The QP's number.
    pub fn qpn(&self) -> u32 {
        // SAFETY: the QP is alive.
        unsafe { self.raw.as_ref() }.qp_num
    }

    /// The QP's state as the device has it.
    fn state(&self) -> io::Result<u32> {
        // SAFETY: integers and unions of them, for which zero is valid.
        let mut attr: ffi::ibv_qp_attr = unsafe { mem::zeroed() };
        // SAFETY: integers and pointers, for which zero is valid.
        let mut init: ffi::ibv_qp_init_attr = unsafe { mem::zeroed() };
        let mask = ffi::IBV_QP_STATE.cast_signed();
        // SAFETY: the QP is alive and both places are valid.
        let result = unsafe { ffi::ibv_query_qp(self.raw.as_ptr(), &mut attr, mask, &mut init) };
        check(result, || format!("ibv_query_qp on {}", self.name))?;
        Ok(attr.qp_state)
    }

    /// Brings a QP whose sends have failed back to sending; false if it is beyond that.
    ///
    /// A UD send that fails takes the send side alone into the SQE state.
    pub fn recover(&self) -> io::Result<bool> {
        match self.state()? {
            ffi::IBV_QPS_RTS => Ok(true),
            ffi::IBV_QPS_SQE => {
                // SAFETY: integers and unions of them, for which zero is valid.
                let mut attr: ffi::ibv_qp_attr = unsafe { mem::zeroed() };
                attr.cur_qp_state = ffi::IBV_QPS_SQE;
                attr.qp_state = ffi::IBV_QPS_RTS;
                self.modify(&mut attr, ffi::IBV_QP_STATE | ffi::IBV_QP_CUR_STATE, "RTS from SQE")?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Attaches to a group; nothing to do if that is so already. With another LID than before the
    /// old attachment is replaced.
    pub fn attach(&mut self, mgid: &[u8; 16], mlid: u16) -> io::Result<()> {
        if self.groups.contains(&(*mgid, mlid)) {
            return Ok(());
        }
        self.detach(mgid)?;
        let what = || format!("ibv_attach_mcast on {} to LID {mlid:#x}", self.name);
        if self.groups.len() >= Qp::MAX_GROUPS {
            return Err(failed(what(), libc::ENOSPC));
        }
        let gid = ffi::ibv_gid { raw: *mgid };
        // SAFETY: the QP is alive, the library only reads the GID.
        check(unsafe { ffi::ibv_attach_mcast(self.raw.as_ptr(), &gid, mlid) }, what)?;
        self.groups.push((*mgid, mlid));
        Ok(())
    }

    /// Detaches from a group; nothing to do if it isn't attached.
    pub fn detach(&mut self, mgid: &[u8; 16]) -> io::Result<()> {
        let Some(index) = self.groups.iter().position(|(g, _)| g == mgid) else { return Ok(()) };
        let mlid = self.groups[index].1;
        let gid = ffi::ibv_gid { raw: *mgid };
        // SAFETY: the QP is alive, the library only reads the GID.
        let result = unsafe { ffi::ibv_detach_mcast(self.raw.as_ptr(), &gid, mlid) };
        check(result, || format!("ibv_detach_mcast on {} from LID {mlid:#x}", self.name))?;
        self.groups.swap_remove(index);
        Ok(())
    }

    /// Posts receives of `length` bytes each, given as (work request id, offset in the receive
    /// buffer), at most [`Qp::MAX_BATCH`] (EINVAL). After an error some of them may be posted.
    ///
    /// What is longer than that goes to the part of the buffer that `spill` names (offset and
    /// length), the same for all: a datagram that doesn't fit would end the QP.
    pub fn post_recv(&self, receives: &[(u64, usize)], length: usize, spill: (usize, usize)) -> io::Result<()> {
        let what = || format!("ibv_post_recv on {}", self.name);
        if receives.len() > Qp::MAX_BATCH {
            return Err(failed(what(), libc::EINVAL));
        }
        // SAFETY: integers, for which zero is valid.
        let mut sges: [[ffi::ibv_sge; 2]; Qp::MAX_BATCH] = unsafe { mem::zeroed() };
        // SAFETY: integers and pointers, for which zero is valid.
        let mut requests: [ffi::ibv_recv_wr; Qp::MAX_BATCH] = unsafe { mem::zeroed() };
        let mut next: *mut ffi::ibv_recv_wr = ptr::null_mut();
        // From the last to the first, as each one points to the one after it.
        for ((&(id, offset), sge), request) in receives.iter().zip(&mut sges).zip(&mut requests).rev() {
            let sge_of = |(offset, length)| self.recv.sge(offset, length).ok_or_else(|| failed(what(), libc::EINVAL));
            *sge = [sge_of((offset, length))?, sge_of(spill)?];
            request.wr_id = id;
            request.sg_list = sge.as_mut_ptr();
            request.num_sge = 2;
            request.next = next;
            next = request;
        }
        if next.is_null() {
            return Ok(());
        }
        let mut bad = ptr::null_mut();
        // SAFETY: the QP is alive; the chain is complete and read before the call returns; the
        // bytes belong to a region that lives as long as the QP.
        check(unsafe { ffi::ibv_post_recv(self.raw.as_ptr(), next, &mut bad) }, what)
    }

    /// Copies `payload` to `offset` of the send buffer and posts it. The bytes there are the
    /// device's, and `ah` must be kept, until the completion with `id`.
    pub fn post_send(
        &self,
        id: u64,
        offset: usize,
        payload: &[u8],
        ah: &Ah,
        (remote_qpn, remote_qkey): (u32, u32),
    ) -> io::Result<()> {
        let what = || format!("ibv_post_send on {} to QP {remote_qpn:#x}", self.name);
        let bad_range = || failed(what(), libc::EINVAL);
        let place = self.send.place(offset, payload.len()).ok_or_else(bad_range)?;
        let mut sge = self.send.sge(offset, payload.len()).ok_or_else(bad_range)?;
        // SAFETY: `place` has that many bytes, and no reference into the send buffer exists.
        unsafe { ptr::copy_nonoverlapping(payload.as_ptr(), place, payload.len()) };
        // SAFETY: integers, pointers and unions of them, for which zero is valid.
        let mut request: ffi::ibv_send_wr = unsafe { mem::zeroed() };
        request.wr_id = id;
        request.sg_list = &mut sge;
        request.num_sge = 1;
        request.opcode = ffi::IBV_WR_SEND;
        request.send_flags = ffi::IBV_SEND_SIGNALED;
        request.wr.ud.ah = ah.raw.as_ptr();
        request.wr.ud.remote_qpn = remote_qpn;
        request.wr.ud.remote_qkey = remote_qkey;
        let mut bad = ptr::null_mut();
        // SAFETY: QP and handle are alive; the request is complete and read before the call
        // returns; the bytes belong to a region that lives as long as the QP.
        check(unsafe { ffi::ibv_post_send(self.raw.as_ptr(), &mut request, &mut bad) }, what)
    }

    /// Bytes of the receive buffer; none if that isn't within it.
    ///
    /// # Safety
    ///
    /// The receive that was posted over these bytes has completed, and none is posted over them
    /// while the result is in use.
    pub unsafe fn received(&self, offset: usize, length: usize) -> Option<&[u8]> {
        let place = self.recv.place(offset, length)?;
        // SAFETY: within the buffer, initialised (zeroed when made), and not the device's now.
        Some(unsafe { slice::from_raw_parts(place, length) })
    }
}

impl Drop for Qp {
    fn drop(&mut self) {
        // A QP that is attached can't be destroyed (EBUSY), which is then what counts as a failure:
        // detaching alone also fails when the device has vanished, and nothing is left behind.
        while let Some((mgid, mlid)) = self.groups.pop() {
            let gid = ffi::ibv_gid { raw: mgid };
            // SAFETY: the QP is alive, the library only reads the GID.
            unsafe { ffi::ibv_detach_mcast(self.raw.as_ptr(), &gid, mlid) };
        }
        // If it fails, giving the regions back, which comes next, still takes the buffers from the device.
        // SAFETY: made in `new`, destroyed once.
        destroyed(unsafe { ffi::ibv_destroy_qp(self.raw.as_ptr()) });
    }
}
