//! The target that has everything happen to the service that can: clients, peers, the SA, the kernel, the device, time.

use std::time::Duration;

use ibacm_wire::Gid;
use ibacm_wire::client::COUNTERS;

use super::decode;
use super::input::Input;
use super::names;
use super::sa::answer_all;
use super::world::World;
use crate::engine::{EpId, PortId};
use crate::preload::{Preload, Wanted, parse_hosts, parse_routes};

impl World {
    /// Something of a port changes.
    fn port_changes(&mut self, input: &mut Input<'_>) {
        let kind = input.byte();
        let (number, value) = (usize::from(kind >> 7), input.byte());
        let port = &mut self.ports[number];
        match kind & 15 {
            0 | 1 => port.active = !port.active,
            2 => port.lid = [names::lid(128 * number), 0x100, 0, 0xbfff][usize::from(value & 3)],
            3 => port.lmc = value & 7,
            4 => port.gids = (0..value & 3).map(|i| names::gid(128 * number + 64 * usize::from(i))).collect(),
            5 => {
                port.pkeys = (0..4).map(|i| value >> (2 * i) & 3).map(|i| names::PKEYS[usize::from(i)]).collect();
                port.pkeys.truncate(usize::from(kind >> 4 & 7));
            }
            6 => port.sm_lid = u16::from(value & 3),
            7 => port.rate = [7, 2, 3, 16, 0, 31][usize::from(value) % 6],
            8 => port.mtu = value % 6,
            9 => port.subnet_timeout = [14, 18, 0, 8][usize::from(value & 3)],
            10 => return self.engine.port_bounced(self.now, PortId(number as u32)),
            11 => return self.engine.reregister(self.now, PortId(number as u32)),
            12 => return self.engine.set_reports(self.now, PortId(number as u32), value & 1 != 0),
            13 => port.guid ^= u64::from(value),
            14 => {
                // the device goes
                port.active = false;
                return self.engine.port_gone(self.now, PortId(number as u32));
            }
            _ => port.sm_sl = value & 15,
        }
        let info = port.clone();
        self.engine.set_port(self.now, info);
    }

    /// A queue pair is made where there is none, or breaks.
    fn queue_pairs(&mut self, input: &mut Input<'_>) {
        let kind = input.byte();
        let ep = EpId(u32::from(kind & 7));
        self.shut = kind & 0x80 != 0;
        if self.engine.endpoint_wanted(ep).is_some() {
            self.open(ep);
        }
    }

    /// The end of a send is told, or a send fails.
    fn sends(&mut self, input: &mut Input<'_>) {
        let kind = input.byte();
        match self.unsent.pop_front() {
            Some((ep, token, ok)) if kind < 0xf0 => self.engine.sent(self.now, ep, token, ok && kind & 1 == 0),
            _ => self.engine.sent(self.now, EpId(u32::from(kind & 7)), u64::from(kind), kind & 8 != 0),
        }
    }

    /// The kernel says something of a neighbour.
    fn neighbour_told(&mut self, input: &mut Input<'_>) {
        let kind = input.byte();
        let host = usize::from(kind & 7);
        let gid = [None, Some(names::gid(host)), Some(Gid::ZERO), Some(names::gid(128))][usize::from(kind >> 3 & 3)];
        if kind & 0x80 != 0 {
            let ip = names::ip(host, usize::from(kind >> 5 & 3));
            self.engine.neighbour_changed(self.ports[0].gid(), 0xffff, ip, gid);
        } else if self.neighbours() != 0 {
            let pick = input.below(self.neighbours());
            if kind & 0x40 != 0 {
                return self.forget_neighbour(pick);
            }
            self.neighbour(pick, gid);
        }
    }

    /// A provider answers.
    fn provider(&mut self, input: &mut Input<'_>) {
        let kind = input.byte();
        if kind & 7 == 7 {
            let mad = self.old_mads.back().map(|m| m.1);
            return mad.into_iter().for_each(|mad| self.provider_mad(EpId(u32::from(kind >> 3 & 7)), &mad));
        }
        let Some((id, counters)) = self.asks.get(input.below(self.asks.len().max(1))).copied() else { return };
        if kind & 0x80 == 0 {
            self.asks.retain(|a| a.0 != id);
        }
        match kind & 7 {
            0 => self.engine.provider_refused(self.now, id),
            _ if counters != (kind & 7 == 1) => {
                let values = vec![u64::from(kind); usize::from(input.short() & 0x1ff)];
                self.engine.provider_counters(self.now, id, &values);
            }
            _ => {
                let mut message = [0; crate::engine::MESSAGE];
                message[2] = kind >> 3 & 3;
                message[6..8].copy_from_slice(&(16 + 72 * u16::from(kind >> 5 & 3)).to_ne_bytes());
                let raw = input.piece();
                message.iter_mut().zip(raw).for_each(|(to, from)| *to ^= from);
                self.engine.provider_answered(self.now, id, &message);
            }
        }
        if self.asks.iter().any(|a| a.0 == id) && kind & 0x40 != 0 {
            // once more: it is answered already
            self.engine.provider_refused(self.now, id);
        }
        self.asks.retain(|a| a.0 != id);
    }

    /// Preloaded paths and addresses come.
    fn preloads(&mut self, input: &mut Input<'_>) {
        let kind = input.byte();
        let guid = |host| names::gid(host).interface_id();
        let row = |h: usize| format!("0x{:04X} : 0 : 4 : 7\n", names::lid(h));
        let port =
            |h: usize| format!("Channel Adapter 0x{:016x}, base LID {}, \"h\", port 1\n", guid(h), names::lid(h));
        let known: Vec<usize> = (0..names::HOSTS).filter(|h| kind >> h & 1 != 0).collect();
        let dump = port(0)
            + &known.iter().map(|h| row(*h)).collect::<String>()
            + &known.iter().map(|h| port(*h)).collect::<String>();
        let line =
            |h: &usize| format!("{} {}\n{} {}\n", names::ip(*h, 0), names::gid(*h), names::name(*h), names::gid(*h));
        let hosts: String = if input.byte() & 1 != 0 { known.iter().map(line).collect() } else { String::new() };
        let routes = parse_routes(dump.as_bytes(), "r", Wanted::Ports(&[guid(0)])).0;
        let preload = Preload { routes, hosts: parse_hosts(hosts.as_bytes(), "h").0 };
        self.engine.set_preload(self.now, preload);
    }
}

/// Anything happens, in any order.
pub fn engine(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let config = decode::config(&mut input);
    let providers = decode::providers(input.byte());
    let (addrs, names) = (input.byte(), input.byte());
    let mut world = World::new(config, providers);
    world.start(!addrs, !names);
    answer_all(&mut world);
    while !input.is_empty() {
        match input.byte() % 32 {
            0..=5 => world.client_asks(&mut input),
            6..=10 => world.hears(&mut input),
            11..=14 => world.sa_answers(&mut input),
            15 => answer_all(&mut world),
            16 => world.run(u64::from(input.byte())),
            17 => world.run(u64::from(input.byte()) * 1000),
            18 => world.run(u64::from(input.byte()) * 250_000),
            19 => world.sleep(Duration::from_secs(u64::from(input.byte()))),
            20 => world.sleep(Duration::from_secs(60 * u64::from(input.byte() & 15))),
            21 => world.close(input.below(4)),
            22 | 23 => world.port_changes(&mut input),
            24 => world.engine.set_system_addrs(super::names::system(input.byte())),
            25 => world.engine.set_names(super::names::names(input.byte())),
            26 => {
                let config = decode::config(&mut input);
                world.set_config(config);
            }
            27 => world.neighbour_told(&mut input),
            28 => world.queue_pairs(&mut input),
            29 => world.sends(&mut input),
            30 => world.provider(&mut input),
            _ => match input.byte() & 3 {
                0 => world.preloads(&mut input),
                1 => world.unroutable = input.byte() & 3,
                2 => world.engine.routes_changed(),
                _ => world.engine.add_counts(&[0; COUNTERS]),
            },
        }
        // a loop may have more than one event in a turn
        world.act();
        if input.byte() & 1 == 0 {
            world.turn();
        }
    }
    world.end();
}
