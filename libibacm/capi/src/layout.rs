//! The structures of `infiniband/ib_acm.h`, and what goes from a path into them and back.

use std::ffi::c_int;

use ibacm_wire::path::{LEN, REVERSIBLE};
use libibacm::{Gid, PathRecord};

use crate::devices::Port;
use crate::ffi::{ibv_ah_attr, ibv_gid};

/// Selector "exactly" of MTU, rate and lifetime.
const EXACTLY: u8 = 2 << 6;
/// What the selector leaves.
const VALUE: u8 = 0x3f;

/// `struct ib_acm_dev_addr`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct DevAddr {
    /// Network order.
    pub guid: u64,
    pub pkey_index: u16,
    pub port_num: u8,
    pub reserved: [u8; 5],
}

/// `struct ib_acm_resolve_data`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct ResolveData {
    pub reserved1: u32,
    pub init_depth: u8,
    pub resp_resources: u8,
    pub packet_lifetime: u8,
    pub mtu: u8,
    pub reserved2: [u8; 8],
}

/// `struct ib_path_record`, which callers align to 8 bytes.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub struct CPath(pub [u8; LEN]);

/// `struct ib_acm_result`.
#[repr(C)]
pub struct CResult {
    pub ticket: u64,
    pub result: c_int,
    pub flags: u32,
    pub path: CPath,
}

const _: () = assert!(size_of::<DevAddr>() == 16 && size_of::<ResolveData>() == 16);
const _: () = assert!(size_of::<CPath>() == 64 && size_of::<CResult>() == 80);

/// The device's end of a path. The partition is matched without its membership bit.
pub fn dev_addr(record: &PathRecord, port: &Port) -> Option<DevAddr> {
    let partition = |key: &u16| key & 0x7fff == record.pkey() & 0x7fff;
    let exact = port.pkeys.iter().position(|key| *key == record.pkey());
    let index = exact.or_else(|| port.pkeys.iter().position(partition))?;
    Some(DevAddr {
        guid: port.guid.to_be(),
        pkey_index: u16::try_from(index).ok()?,
        port_num: port.number,
        reserved: [0; 5],
    })
}

/// The address handle of a path.
pub fn address_handle(record: &PathRecord, port: &Port) -> ibv_ah_attr {
    let mut ah = ibv_ah_attr {
        dlid: record.dlid(),
        sl: record.sl(),
        src_path_bits: (record.slid() & port.path_mask()) as u8,
        static_rate: record.rate() & VALUE,
        port_num: port.number,
        ..ibv_ah_attr::default()
    };
    let hop_limit = (record.flow_hop() & 0xff) as u8;
    // Beyond the subnet there is no way without a global route header.
    if hop_limit > 1 || record.dgid().subnet_prefix() != record.sgid().subnet_prefix() {
        ah.is_global = 1;
        ah.grh.dgid = ibv_gid { raw: record.dgid().0 };
        ah.grh.flow_label = (record.flow_hop() >> 8) & 0xf_ffff;
        ah.grh.hop_limit = hop_limit;
        ah.grh.traffic_class = record.tclass();
        ah.grh.sgid_index = port.gids.iter().position(|g| *g == record.sgid()).unwrap_or(0).min(255) as u8;
    }
    ah
}

/// What else there is to know of a path.
pub fn resolve_data(record: &PathRecord, port: &Port) -> ResolveData {
    ResolveData {
        init_depth: port.init_depth,
        resp_resources: port.resp_resources,
        packet_lifetime: record.packet_lifetime() & VALUE,
        mtu: record.mtu() & VALUE,
        ..ResolveData::default()
    }
}

/// The record for an address handle on a port; `dgid` is that of the handle, if it is global.
pub fn to_path(
    port: &Port,
    dev: &DevAddr,
    ah: &ibv_ah_attr,
    dgid: Option<Gid>,
    data: &ResolveData,
) -> Option<PathRecord> {
    let mut record = PathRecord::default();
    let sgid_index = if dgid.is_some() { usize::from(ah.grh.sgid_index) } else { 0 };
    record.set_sgid(*port.gids.get(sgid_index)?);
    if let Some(dgid) = dgid {
        record.set_dgid(dgid);
        record.set_flow_hop((ah.grh.flow_label & 0xf_ffff) << 8 | u32::from(ah.grh.hop_limit));
        record.set_tclass(ah.grh.traffic_class);
    }
    record.set_dlid(ah.dlid);
    record.set_slid(port.lid | u16::from(ah.src_path_bits));
    record.set_reversible_numpath(REVERSIBLE | 1);
    record.set_pkey(*port.pkeys.get(usize::from(dev.pkey_index))?);
    record.set_qos_sl(u16::from(ah.sl & 0xf));
    record.set_mtu(EXACTLY | data.mtu & VALUE);
    record.set_rate(EXACTLY | ah.static_rate & VALUE);
    record.set_packet_lifetime(EXACTLY | data.packet_lifetime & VALUE);
    Some(record)
}
