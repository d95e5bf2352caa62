//! Datagrams of other hosts, true and false, and the target that gives the service nothing else.

use ibacm_wire::client::MAX_ADDRESS;
use ibacm_wire::datagram::{Datagram, Groups, LEN, Request, Response, group_gid};

use super::input::Input;
use super::names;
use super::world::World;
use super::{decode, sa};
use crate::engine::{EpId, Providers, Rx};

/// Where a datagram says that it is from.
fn from(world: &World, input: &mut Input<'_>, ep: EpId, host: usize) -> Rx {
    let group = group_gid(0xffff, world.config.min_rate, world.config.min_mtu);
    let port = world.engine.endpoint_wanted(ep).and_then(|(port, _)| world.engine.port(port));
    let own = port.map(|p| p.gid()).unwrap_or_default();
    let flaws = input.byte();
    let other = (host + usize::from(flaws >> 5)) % names::HOSTS;
    Rx {
        sgid: if flaws & 1 != 0 { names::gid(other) } else { names::gid(host) },
        dgid: if flaws & 2 != 0 { group } else { own },
        slid: if flaws & 4 != 0 { input.short() } else { names::lid(host) },
        src_qp: if flaws & 8 != 0 { u32::from(input.short()) } else { 0x600 + host as u32 },
        dlid_path_bits: if flaws & 16 != 0 { input.byte() & 0x7f } else { 0 },
    }
}

fn wire(host: usize, kind: usize) -> (u8, [u8; MAX_ADDRESS]) {
    let (kind, bytes) = names::address(host, kind);
    let mut info = [0; MAX_ADDRESS];
    info[..bytes.len()].copy_from_slice(&bytes);
    (kind as u8, info)
}

impl World {
    /// A datagram comes.
    pub fn hears(&mut self, input: &mut Input<'_>) {
        let kind = input.byte();
        let host = usize::from(kind >> 5);
        let ep = EpId(u32::from(kind >> 3 & 3));
        match kind & 7 {
            // the response to a request of the service, of the one that was last sent above all
            0..=2 => {
                let back = input.below(self.sent.len().max(1));
                let Some((ep, Datagram::Request(asked))) = self.sent.iter().rev().nth(back).copied() else { return };
                let flaws = input.byte();
                let offered = asked.groups.as_slice();
                let group = offered.get(usize::from(flaws & 7)).or(offered.first()).copied().unwrap_or_default();
                let group = if flaws & 8 != 0 { group_gid(0x8001, flaws >> 4, 4) } else { group };
                let status = if flaws & 16 != 0 { input.byte() } else { 0 };
                let tid = if flaws & 32 != 0 { asked.tid ^ 1 } else { asked.tid };
                let groups = if flaws & 64 != 0 { Groups::default() } else { Groups::new([group]) };
                let rx = from(self, input, ep, host);
                self.datagram(ep, &rx, &Datagram::Response(Response { tid, status, groups }).emit());
            }
            // a request, mostly for an own address
            3..=5 => {
                let (source, wanted) = (input.byte(), input.byte());
                let claims = if source & 0x80 != 0 { usize::from(source >> 3) % names::HOSTS } else { host };
                let (src_type, src) = wire(claims, usize::from(source & 7));
                let (dest_type, dest) = wire(usize::from(wanted >> 3) % names::HOSTS, usize::from(wanted & 7));
                let pkey = names::PKEYS[usize::from(kind >> 3 & 1)];
                let first = group_gid(pkey, self.config.min_rate, self.config.min_mtu);
                let groups = Groups::new([first, group_gid(pkey, 7, 5)]);
                let tid = u64::from(input.byte());
                let rx = from(self, input, ep, host);
                let request = Request { tid, dest_type, dest, src_type, src, groups };
                self.datagram(ep, &rx, &Datagram::Request(request).emit());
            }
            // anything, with the transaction id of a request, and as long as one or shorter
            _ => {
                let raw = input.piece();
                let rx = from(self, input, ep, host);
                let mut bytes = raw.to_vec();
                if kind & 1 != 0 {
                    bytes.resize(LEN, 0);
                }
                if let (Some((_, Datagram::Request(asked))), Some(place)) = (self.sent.back(), bytes.get_mut(8..16)) {
                    place.copy_from_slice(&asked.tid.to_be_bytes());
                }
                self.datagram(ep, &rx, &bytes);
            }
        }
    }

    fn datagram(&mut self, ep: EpId, rx: &Rx, payload: &[u8]) {
        if let Ok(said) = Datagram::parse(payload) {
            assert_eq!(Datagram::parse(&said.emit()), Ok(said), "what is said is not what is understood");
        }
        self.engine.datagram(self.now, ep, rx, payload);
    }
}

/// Datagrams come to a host that asks for others all the time; the SA answers what it is asked.
pub fn datagram(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let config = decode::config(&mut input);
    let mut world = World::new(config, Providers::default());
    world.start(0xff, 0xf);
    sa::answer_all(&mut world);
    while !input.is_empty() {
        match input.byte() {
            0..=63 => world.client_asks(&mut input),
            64..=79 => world.run(u64::from(input.byte()) * 1000),
            80..=95 => world.run(u64::from(input.byte()) * 500_000),
            96..=111 => sa::answer_all(&mut world),
            _ => world.hears(&mut input),
        }
        world.turn();
    }
    world.end();
}
