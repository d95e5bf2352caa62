//! Options and clients' requests out of bytes.

use ibacm_wire::PathRecord;
use ibacm_wire::client::{
    EP_FLAG_DEST, EP_FLAG_SOURCE, Entry, FLAG_NODELAY, FLAG_QUERY_SA, HDR_LEN, Header, MAX_REQUEST, OP_EP_QUERY,
    OP_PERF_QUERY, OP_RESOLVE, VERSION, resolve_request,
};

use super::input::Input;
use super::names;
use super::world::World;
use crate::engine::{Config, Outcome, ProviderId, Providers, RouteProt};

/// Options from five bytes; all 0 are close to the defaults.
pub(super) fn config(input: &mut Input<'_>) -> Config {
    let [flags, depths, times, life, more] = [0; 5].map(|_| input.byte());
    Config {
        resolve_fixed: false,
        sa_fixed: false,
        route_prot: if flags & 1 != 0 { RouteProt::Acm } else { RouteProt::Sa },
        loopback_local: flags & 2 == 0,
        addr_fallback: flags & 4 == 0,
        addr_timeout: if flags & 8 != 0 { None } else { Some(u32::from(life & 3) + 1) },
        route_timeout: if flags & 16 != 0 { Some(u32::from(life >> 2 & 3)) } else { None },
        timeout_ms: [2000, 1, 50, 500][usize::from(times & 3)],
        retries: [2, 0, 1, 3][usize::from(times >> 2 & 3)],
        resolve_depth: [1, 2, 8, 64][usize::from(depths & 3)],
        sa_depth: [1, 2, 8, 64][usize::from(depths >> 2 & 3)],
        send_depth: [1, 2, 8, 64][usize::from(depths >> 4 & 3)],
        min_mtu: [4, 2, 5, 1][usize::from(times >> 4 & 3)],
        min_rate: [3, 2, 7, 6][usize::from(times >> 6)],
        multicast_groups: [2, 1, 6, 16][usize::from(more & 3)],
        max_destinations: [64, 4, 8, 16][usize::from(more >> 2 & 3)],
        negative_cache_ms: [0, 0, 100, 5000][usize::from(more >> 4 & 3)],
        log_level: [0, 1, 2, 2][usize::from(more >> 6)],
    }
}

/// Who serves which port.
pub(super) fn providers(choice: u8) -> Providers {
    let plug = ProviderId(0);
    let other = names::gid(128).subnet_prefix();
    Providers {
        names: vec!["plug".into()],
        subnets: if choice & 1 != 0 { vec![(other, Some(plug))] } else { Vec::new() },
        default: (choice & 2 != 0).then_some(plug),
        timeout_ms: [2000, 100][usize::from(choice >> 2 & 1)],
    }
}

/// Three bits of a byte are a kind of address, the others a host.
fn named(input: &mut Input<'_>, flags: u32) -> Entry {
    let byte = usize::from(input.byte());
    let host = if byte >> 3 == 31 { 128 } else { (byte >> 3) % names::HOSTS };
    names::entry(flags, host, byte & 7)
}

/// What is known of a path.
fn path(input: &mut Input<'_>) -> PathRecord {
    let fields = input.byte();
    let mut p = PathRecord::default();
    let host = |input: &mut Input<'_>| match input.byte() {
        255 => 128,
        host => usize::from(host) % names::HOSTS,
    };
    if fields & 1 != 0 {
        p.set_dgid(names::gid(host(input)));
    }
    if fields & 2 != 0 {
        p.set_dlid(names::lid(host(input)));
    }
    if fields & 4 != 0 {
        p.set_sgid(names::gid(host(input)));
    }
    if fields & 8 != 0 {
        p.set_slid(names::lid(host(input)));
    }
    if fields & 16 != 0 {
        p.set_pkey(names::PKEYS[input.below(4)]);
    }
    if fields & 32 != 0 {
        p.set_service_id(u64::from(input.byte()));
    }
    if fields & 64 != 0 {
        let at = input.below(64);
        p.0[at] = input.byte();
    }
    p
}

fn header(operation: u8, data: [u8; 3], length: usize) -> [u8; HDR_LEN] {
    Header { version: VERSION, opcode: operation, status: 0, data, length: length as u16, tid: [0; 8] }.emit()
}

/// A request of any kind.
pub(super) fn request(input: &mut Input<'_>) -> Vec<u8> {
    let kind = input.byte();
    let nodelay = if kind & 0x80 != 0 { FLAG_NODELAY } else { 0 };
    let resolve = |entries: &[Entry]| {
        let (msg, length) = resolve_request(0, entries);
        msg[..length].to_vec()
    };
    match kind & 7 {
        0 | 1 => resolve(&[named(input, EP_FLAG_DEST | nodelay)]),
        2 => {
            let source = named(input, EP_FLAG_SOURCE);
            resolve(&[source, named(input, EP_FLAG_DEST | nodelay)])
        }
        3 => resolve(&[Entry::path(nodelay, &path(input))]),
        4 => resolve(&[Entry::path(FLAG_QUERY_SA, &path(input))]),
        5 => {
            let data = [0, input.byte() & 7, input.byte() & 1];
            let entry = if kind & 8 != 0 { named(input, EP_FLAG_SOURCE).emit().to_vec() } else { Vec::new() };
            [header(OP_PERF_QUERY, data, HDR_LEN + entry.len()).to_vec(), entry].concat()
        }
        6 => header(OP_EP_QUERY, [input.byte() & 7, input.byte() & 3, 0], HDR_LEN).to_vec(),
        _ => {
            let operation = [OP_RESOLVE, OP_RESOLVE, OP_PERF_QUERY, OP_EP_QUERY][usize::from(kind >> 3 & 3)];
            let rest = input.piece();
            let length = (HDR_LEN + rest.len()).min(MAX_REQUEST);
            let data = [input.byte(), input.byte(), input.byte()];
            [&header(operation, data, length)[..], &rest[..length - HDR_LEN]].concat()
        }
    }
}

impl World {
    /// A client asks something.
    pub fn client_asks(&mut self, input: &mut Input<'_>) {
        let client = self.client(input.below(4));
        let msg = request(input);
        let outcome = self.request(client, &msg, &mut Vec::new());
        assert!(outcome != Outcome::Close, "a request that is well-formed");
    }
}
