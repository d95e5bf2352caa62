//! The structures of `infiniband/ib_acm.h`, and what goes from a path into them and back.

use std::ffi::c_int;

use ibacm_wire::path::{LEN, REVERSIBLE};
use libibacm::{Address, Counters, Endpoint, Gid, PathRecord};

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

/// Bytes of a text, the zero at its end included: more than the 64 that an address has on the wire.
const TEXT: usize = 72;

/// `struct ib_acm_address`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CAddress {
    pub text: [u8; TEXT],
}

impl CAddress {
    /// A text, which is cut where it is too long.
    pub fn new(text: &[u8]) -> CAddress {
        let mut bytes = [0; TEXT];
        bytes.iter_mut().zip(text.iter().take(TEXT - 1)).for_each(|(to, from)| *to = *from);
        CAddress { text: bytes }
    }

    /// An address as text.
    pub fn of(address: &Address) -> CAddress {
        match address {
            Address::Name(name) => CAddress::new(name.as_bytes()),
            Address::Ip(ip) => CAddress::new(ip.to_string().as_bytes()),
        }
    }
}

/// `struct ib_acm_counters`.
#[repr(C)]
pub struct CCounters {
    pub values: [u64; 7],
    pub reserved: u64,
}

impl CCounters {
    pub fn new(c: &Counters) -> CCounters {
        let values = [c.error, c.resolve, c.nodata, c.addr_query, c.addr_cache, c.route_query, c.route_cache];
        CCounters { values, reserved: 0 }
    }
}

/// `struct ib_acm_endpoint`.
#[repr(C)]
pub struct CEndpoint {
    /// Network order.
    pub guid: u64,
    pub pkey: u16,
    pub port_num: u8,
    pub port_cnt: u8,
    pub address_cnt: u32,
    pub provider: CAddress,
    pub reserved: [u8; 8],
}

impl CEndpoint {
    pub fn new(endpoint: &Endpoint) -> CEndpoint {
        CEndpoint {
            guid: endpoint.device_guid.to_be(),
            pkey: endpoint.pkey,
            port_num: endpoint.port,
            port_cnt: endpoint.ports,
            address_cnt: u32::try_from(endpoint.addresses.len()).unwrap_or(u32::MAX),
            provider: CAddress::new(endpoint.provider.as_bytes()),
            reserved: [0; 8],
        }
    }
}

const _: () = assert!(size_of::<CAddress>() == 72 && size_of::<CCounters>() == 64 && size_of::<CEndpoint>() == 96);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn port() -> Port {
        Port {
            guid: 0x10,
            number: 2,
            lid: 0x40,
            lmc: 2,
            gids: vec![Gid([1; 16]), Gid([2; 16])],
            pkeys: vec![0xffff, 0x7001, 0x8001],
            init_depth: 16,
            resp_resources: 4,
        }
    }

    fn path(dgid: Gid) -> PathRecord {
        let mut path = PathRecord::default();
        path.set_sgid(Gid([2; 16]));
        path.set_dgid(dgid);
        path.set_dlid(7);
        path.set_slid(0x43);
        path.set_pkey(0x8001);
        path.set_qos_sl(0x123);
        path.set_flow_hop(0x00ab_cd40);
        path.set_tclass(9);
        path.set_mtu(0x84);
        path.set_rate(0x83);
        path.set_packet_lifetime(0x92);
        path.set_reversible_numpath(0x81);
        path
    }

    #[test]
    fn a_path_between_subnets_survives_the_way_there_and_back() {
        let (port, path) = (port(), path(Gid([9; 16])));
        let dev = dev_addr(&path, &port).expect("the partition is there");
        assert_eq!((dev.guid, dev.pkey_index, dev.port_num), (0x10_u64.to_be(), 2, 2));
        let ah = address_handle(&path, &port);
        assert_eq!((ah.is_global, ah.src_path_bits, ah.grh.sgid_index, ah.grh.hop_limit), (1, 3, 1, 0x40));
        assert_eq!((ah.sl, ah.static_rate, ah.grh.flow_label, ah.grh.traffic_class), (3, 3, 0xabcd, 9));
        let data = resolve_data(&path, &port);
        assert_eq!((data.mtu, data.packet_lifetime, data.init_depth, data.resp_resources), (4, 0x12, 16, 4));
        let mut back = path;
        // The QoS class is in none of the structures.
        back.set_qos_sl(3);
        assert_eq!(to_path(&port, &dev, &ah, Some(path.dgid()), &data), Some(back));
    }

    #[test]
    fn a_path_within_the_subnet_has_no_global_route() {
        let mut dgid = [2; 16];
        dgid[15] = 3;
        let mut path = path(Gid(dgid));
        path.set_flow_hop(0);
        let ah = address_handle(&path, &port());
        assert_eq!((ah.is_global, ah.grh.hop_limit, ah.grh.sgid_index), (0, 0, 0));
    }

    #[test]
    fn texts_always_end() {
        for (text, length) in
            [(&b""[..], 0), (b"10.77.0.1/16", 12), (b"n\xe4me", 4), (&[b'x'; 71], 71), (&[b'x'; 99], 71)]
        {
            let made = CAddress::new(text).text;
            assert_eq!((&made[..length], made[length]), (&text[..length], 0));
        }
    }

    #[test]
    fn partitions_match_without_their_membership() {
        let mut path = path(Gid::ZERO);
        for (pkey, index) in
            [(0xffff, Some(0)), (0x7fff, Some(0)), (0x7001, Some(1)), (0xf001, Some(1)), (0x8002, None)]
        {
            path.set_pkey(pkey);
            assert_eq!(dev_addr(&path, &port()).map(|d| d.pkey_index), index, "{pkey:#x}");
        }
    }

    #[test]
    fn indices_beyond_the_tables_make_no_path() {
        let (port, path) = (port(), path(Gid([9; 16])));
        let (mut ah, data) = (address_handle(&path, &port), ResolveData::default());
        let dev = DevAddr { pkey_index: 3, ..DevAddr::default() };
        assert_eq!(to_path(&port, &dev, &ah, None, &data), None);
        ah.grh.sgid_index = 2;
        assert_eq!(to_path(&port, &DevAddr::default(), &ah, Some(Gid::ZERO), &data), None);
    }
}
