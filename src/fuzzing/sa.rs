//! What the subnet administrator says, and the target that gives the service nothing else.

use ibacm_wire::notice::Notice;
use ibacm_wire::sa::{LEN, SaMad};

use super::decode;
use super::input::Input;
use super::names;
use super::world::World;
use crate::engine::{EpId, PortId, Providers};
use crate::time::Time;

/// The SA answers everything, whatever it is asked because of that too.
pub(super) fn answer_all(world: &mut World) {
    for _ in 0..64 {
        let Some(asked) = world.mads.pop() else { return };
        let answer = world.truth(&asked.mad);
        world.engine.mad_received(world.now, asked.port, 0, &answer.0);
        world.turn();
    }
}

impl World {
    /// A MAD comes: an answer to a question, or what looks like one.
    pub fn sa_answers(&mut self, input: &mut Input<'_>) {
        let kind = input.byte();
        let pick = input.below(self.mads.len().max(1));
        if pick >= self.mads.len() && kind & 15 < 11 {
            return;
        }
        match kind & 15 {
            // true
            0..=3 => {
                let asked = self.mads.swap_remove(pick);
                let answer = self.truth(&asked.mad);
                self.remember(asked.port, answer);
                self.mad(asked.port, 0, &answer);
            }
            // busy, or another refusal
            4 | 5 => {
                let asked = self.mads.swap_remove(pick);
                let mut answer = self.truth(&asked.mad);
                answer.set_status(if kind & 1 == 0 { 1 } else { [0x0300, 0x0200, 1 << 8 | 1, 4][input.below(4)] });
                self.remember(asked.port, answer);
                self.mad(asked.port, 0, &answer);
            }
            // true but for some bytes
            6 | 7 => {
                let asked = self.mads.swap_remove(pick);
                let mut answer = self.truth(&asked.mad);
                for _ in 0..=kind >> 6 {
                    let at = usize::from(input.byte());
                    answer.0[at] ^= input.byte();
                }
                self.remember(asked.port, answer);
                self.mad(asked.port, 0, &answer);
            }
            // the kernel gives it back now, forgets it, or cannot send it
            8 => self.give_back(pick),
            9 => self.mads[pick].ends = Time::NEVER,
            10 => {
                let asked = self.mads.swap_remove(pick);
                self.remember(asked.port, asked.mad);
                self.engine.mad_failed(self.now, asked.port, asked.tid);
            }
            // once more, or too late
            11 | 12 => {
                let back = input.below(self.old_mads.len().max(1));
                let Some((port, mad)) = self.old_mads.iter().rev().nth(back).copied() else { return };
                self.mad(port, 0, &mad);
            }
            13 => self.report(input),
            // anything, with the transaction id of a question
            _ => {
                let port = PortId(u32::from(kind >> 7));
                let mut bytes = input.piece().to_vec();
                if kind & 16 != 0 {
                    bytes.resize(LEN, 0);
                }
                if let (Some(asked), Some(place)) = (self.mads.get(pick), bytes.get_mut(8..16)) {
                    place.copy_from_slice(&asked.mad.tid().to_be_bytes());
                }
                self.engine.mad_received(self.now, port, u32::from(kind >> 5 & 1) * 110, &bytes);
            }
        }
    }

    fn mad(&mut self, port: PortId, status: u32, mad: &SaMad) {
        self.engine.mad_received(self.now, port, status, &mad.0);
    }

    /// A notice comes.
    pub fn report(&mut self, input: &mut Input<'_>) {
        let kind = input.byte();
        let host = usize::from(kind >> 3) % names::HOSTS;
        let notice = match kind & 3 {
            0 => Notice::about_gid(64, 1, names::gid(host)),
            1 => Notice::about_gid(65, 1, names::gid(host)),
            _ => Notice::about_links(u16::from(kind >> 3)),
        };
        let mut mad = SaMad::report(u64::from(kind), &notice);
        let from = if kind & 4 != 0 { u16::from(input.byte()) } else { 1 };
        let mut length = LEN;
        if kind & 0x80 != 0 {
            let at = usize::from(input.byte());
            mad.0[at] ^= input.byte();
            length -= usize::from(kind & 0x40 != 0);
        }
        self.engine.report(self.now, PortId(u32::from(kind >> 6 & 1)), from, &mad.0[..length]);
    }
}

/// MADs come to a host whose clients ask all the time; nobody answers it over multicast.
pub fn sa(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let config = decode::config(&mut input);
    let plugged = input.byte();
    let mut world = World::new(config, if plugged & 1 == 0 { Providers::default() } else { decode::providers(1) });
    world.start(0xff, 0xf);
    while !input.is_empty() {
        match input.byte() {
            0..=63 => world.client_asks(&mut input),
            64..=79 => world.run(u64::from(input.byte()) * 1000),
            80..=95 => world.run(u64::from(input.byte()) * 500_000),
            96..=103 => answer_all(&mut world),
            104..=111 => {
                let ep = EpId(u32::from(input.byte() & 3));
                let question = world.old_mads.back().map_or(SaMad([0; LEN]), |m| m.1);
                world.provider_mad(ep, &question);
            }
            112..=127 => world.report(&mut input),
            _ => world.sa_answers(&mut input),
        }
        world.turn();
    }
    world.end();
}
