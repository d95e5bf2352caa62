//! Which multicast groups an endpoint is in: the one that all ports can use, that of its own port, and as many between
//! them as `multicast_groups` allows.
//!
//! A group stands for a *class*: a rate and an MTU that each of its members has at least. With `route_prot acm` a path
//! is as good as the best group that both hosts are in, which the responder picks: the last one of the asker's list
//! that it is in. A datagram has room for six. So that any two hosts find the best group that both are in,
//!
//! - the order of the list is that of all hosts: by rate, and by MTU where the rate is the same;
//! - which classes come between the first and the own one says a list that all hosts have ([`standing`]), of which each
//!   takes those that its port is good for, from the front. So two hosts differ only in what one of them cannot have, or
//!   has no room for; and whoever is in more groups is in all that he would be in otherwise;
//! - a request names the first group, the own one, and of the rest the four that stand foremost.
//!
//! With at most six groups a request names all of them, and both hosts find the same, whoever asks. No list of six can
//! do so for more: each group of a host is the best that it shares with some peer, if only with one whose own it is. What
//! is beyond six serves those who ask: slower and rarer peers, which name their own class, find it.

use std::cmp::Ordering;

use ibacm_wire::PathRecord;

use super::config::Config;
use crate::rates;
use crate::sorted::sort_by;

/// A rate and an MTU (IB enums).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Class {
    pub rate: u8,
    pub mtu: u8,
}

/// Rates that whole fabrics are made of (Gb/s), the commonest first: EDR, HDR, NDR, FDR, QDR, XDR.
const COMMON: [u32; 6] = [100, 200, 400, 56, 40, 800];
/// The others: older ones, narrow and broken cables, wide ports.
const RARE: [u32; 17] = [20, 10, 50, 25, 14, 28, 80, 112, 5, 300, 120, 168, 60, 30, 600, 1200, 2];
/// Codes of the MTUs that ports have, and of those that `min_mtu` can name.
const USUAL_MTUS: [u8; 2] = [5, 4];
const SMALL_MTUS: [u8; 3] = [3, 2, 1];

/// Every class, foremost first.
fn standing() -> impl Iterator<Item = Class> {
    let usual = |rates: &'static [u32]| USUAL_MTUS.iter().flat_map(move |mtu| rates.iter().map(move |r| (*r, *mtu)));
    let small = SMALL_MTUS.iter().flat_map(|mtu| COMMON.iter().chain(&RARE).map(move |r| (*r, *mtu)));
    let all = usual(&COMMON).chain(usual(&RARE)).chain(small);
    all.filter_map(|(gbps, mtu)| Some(Class { rate: rates::rate_code(gbps)?, mtu }))
}

impl Class {
    /// The class in a byte: rates have five bits, MTUs three.
    pub fn code(self) -> u8 {
        self.rate << 3 | self.mtu & 7
    }

    /// The class of which a path is made.
    pub fn of(path: &PathRecord) -> Class {
        // without the selectors
        Class { rate: path.rate() & 0x3f, mtu: path.mtu() & 0x3f }
    }

    /// The class with this code.
    pub fn from_code(code: u8) -> Class {
        Class { rate: code >> 3, mtu: code & 7 }
    }

    /// Whether it is better than another one, for all hosts alike.
    pub fn is_better(self, than: Class) -> bool {
        self.order(&than).is_gt()
    }

    /// Whether a port of this class can be in a group of class `group`.
    pub fn can(self, group: Class) -> bool {
        let mbps = |c: Class| rates::rate_mbps(c.rate);
        mbps(self).is_some_and(|own| mbps(group).is_some_and(|other| other <= own)) && group.mtu <= self.mtu
    }

    fn order(&self, other: &Class) -> Ordering {
        let mbps = |c: &Class| rates::rate_mbps(c.rate).unwrap_or(0);
        (mbps(self), self.mtu).cmp(&(mbps(other), other.mtu))
    }
}

/// A class and how it stands: 0 the first group, 1 the port's own, then those between them, foremost first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Rung {
    pub class: Class,
    pub standing: u8,
}

/// The classes of the groups of a port of class `own`, the worst first.
pub(super) fn ladder(config: &Config, own: Class) -> Vec<Rung> {
    let first = Class { rate: config.min_rate, mtu: config.min_mtu };
    let mut rungs = vec![Rung { class: first, standing: 0 }];
    // further groups only say what a path can do, which the SA says otherwise
    if config.route_prot != super::RouteProt::Acm || own == first || config.multicast_groups < 2 {
        return rungs;
    }
    let between = standing().filter(|c| *c != first && *c != own && own.can(*c) && c.can(first));
    let between = between.zip(2..).take(config.multicast_groups - 2);
    rungs.extend(between.map(|(class, standing)| Rung { class, standing }));
    sort_by(&mut rungs, |a, b| a.class.order(&b.class));
    // last also where the port cannot do what the first group asks for
    rungs.push(Rung { class: own, standing: 1 });
    rungs
}

#[cfg(test)]
#[path = "tests/ladder.rs"]
mod tests;
