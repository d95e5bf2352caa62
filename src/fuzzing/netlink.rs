//! Datagrams of the kernel's: interfaces, addresses and neighbours, and the questions of its local service.

use std::time::Duration;

use ibacm_wire::Gid;
use ibacm_wire::client::resolve_request;

use super::input::Input;
use super::world::World;
use super::{decode, sa};
use crate::engine::{ClientId, Outcome, Providers, SystemAddr};
use crate::local_service::message::{Answer, Question, ip_entries};
use crate::local_service::{self, LocalService, Resolver};
use crate::rtnl_parse::{self, News};
use crate::rtnl_table::{MAX_ADDRESSES, MAX_INTERFACES, Sysfs, Table};
use crate::time::Time;

/// Asks the service as the daemon does.
struct Questions<'a>(&'a mut World);

impl Resolver for Questions<'_> {
    fn ask(&mut self, id: ClientId, question: &Question, wait: bool, reply: &mut Vec<u8>) -> Outcome {
        assert!(local_service::is_kernel(id) && question.to_string().len() < 1024);
        let entries = match question {
            Question::Path(question) => vec![question.entry(Some(self.0.ports[0].gid()), wait)],
            Question::Ip { dest, interface } if *interface != 0 => {
                ip_entries(*dest, Some(super::names::ip(0, 2)), wait)
            }
            Question::Ip { dest, .. } => ip_entries(*dest, None, wait),
        };
        let (request, length) = resolve_request(0, &entries);
        let outcome = self.0.request(id, &request[..length], reply);
        assert!(wait || outcome != Outcome::Pending, "who does not wait is not answered");
        outcome
    }
}

/// The kernel, as far as it can be heard.
struct Kernel {
    service: LocalService,
    answers: u64,
    table: Table,
    told: bool,
}

impl Kernel {
    fn rdma(&mut self, world: &mut World, datagram: &[u8]) {
        let now = world.now;
        let answers = &mut self.answers;
        self.service.received(now, datagram, &mut Questions(world), &mut |answer| {
            *answers += 1;
            is_whole(&answer);
        });
    }

    /// Late answers, and refusals where there is none.
    fn turn(&mut self, world: &mut World) {
        world.turn();
        for (id, reply) in std::mem::take(&mut world.replies) {
            if let Some(answer) = self.service.answered(id, &reply) {
                self.answers += 1;
                is_whole(&answer);
            }
        }
        while let Some(answer) = self.service.on_time(world.now) {
            self.answers += 1;
            is_whole(&answer);
        }
        assert!(self.service.next_deadline() > world.now && self.service.open() <= local_service::MAX_OPEN);
        let counters = self.service.counters();
        assert_eq!(counters.answered + counters.refused, self.answers, "one answer to each question");
        let ended = self.answers + self.service.open() as u64;
        assert!((counters.questions..=counters.questions + counters.malformed).contains(&ended));
    }

    fn route(&mut self, world: &mut World, datagram: &[u8]) {
        let now = world.now.0;
        for message in rtnl_parse::messages(datagram) {
            let Ok(news) = message.news else { continue };
            match news {
                News::Link(link) => {
                    self.told |= self.table.link(link, now);
                }
                News::LinkGone(index) => self.table.link_gone(index),
                News::Addr(addr) => self.table.addr(addr),
                News::AddrGone(addr) => self.table.addr_gone(addr),
                News::Neighbour(n) | News::NeighbourGone(n) => {
                    let gid = n.hardware.and_then(|h| h.last_chunk().copied()).map(Gid);
                    if let Some((port, pkey)) = self.table.link_of(n.index) {
                        world.engine.neighbour_changed(Gid(port), pkey, n.ip, gid);
                    }
                }
                News::Routes => world.engine.routes_changed(),
                News::Done if message.sequence & 1 == 0 => self.table.sweep_links(),
                News::Done => self.table.sweep_addrs(),
                News::Overrun => self.table.begin_round(),
                News::Failed(_) | News::Other => {}
            }
        }
    }

    /// Sysfs is read, and the service is told its addresses.
    fn look(&mut self, world: &mut World, found: Sysfs) {
        let now = world.now.0;
        for (index, name) in self.table.due(now, 16) {
            assert!(name.len() < 16 && !name.contains(&b'/'), "a name that is a path");
            self.table.probed(index, found, now);
        }
        assert!(self.table.due(now, MAX_INTERFACES + 1).len() <= MAX_INTERFACES);
        let addrs = self.table.snapshot();
        assert!(addrs.is_sorted() && addrs.len() <= MAX_ADDRESSES);
        for a in &addrs {
            assert!(self.table.place(a.ifindex) == Some((a.gid, a.pkey)) && a.pkey & 0x8000 != 0);
        }
        if self.table.take_changed() {
            let own = |a: crate::rtnl_table::SystemAddr| SystemAddr {
                ip: a.ip,
                prefix_len: a.prefix_len,
                gid: Gid(a.gid),
                pkey: a.pkey,
            };
            world.engine.set_system_addrs(addrs.into_iter().map(own).collect());
        }
    }
}

/// An answer is one message.
fn is_whole(answer: &Answer) {
    let bytes = answer.as_bytes();
    let length = bytes.first_chunk().map(|l| u32::from_ne_bytes(*l));
    assert_eq!(length, u32::try_from(bytes.len()).ok());
}

/// Datagrams of both kinds, one after another, each with its length in front.
pub fn netlink(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let config = decode::config(&mut input);
    let mut world = World::new(config, Providers::default());
    world.start(0xff, 0xf);
    sa::answer_all(&mut world);
    let service = LocalService::new(7);
    let mut kernel = Kernel { service, answers: 0, table: Table::default(), told: false };
    while !input.is_empty() {
        let kind = input.byte();
        match kind & 7 {
            0..=2 => {
                let length = usize::from(input.short());
                kernel.rdma(&mut world, input.take(length));
            }
            3..=5 => {
                let length = usize::from(input.short());
                kernel.route(&mut world, input.take(length));
            }
            6 if kind & 8 == 0 => sa::answer_all(&mut world),
            6 => world.run(u64::from(input.byte()) * 50_000),
            _ => {
                let pkey = (kind & 16 != 0).then(|| input.short());
                let hardware = (kind & 8 != 0).then(|| [input.byte(); 20]);
                kernel.look(&mut world, Sysfs { hardware, pkey });
            }
        }
        kernel.turn(&mut world);
    }
    world.end();
    kernel.turn(&mut world);
    world.now = world.now.plus(Duration::from_secs(1000));
    while kernel.service.on_time(world.now).is_some() {}
    assert_eq!((kernel.service.open(), kernel.service.next_deadline()), (0, Time::NEVER));
}
