//! Faults that a test has ordered.

use std::collections::HashSet;
use std::time::Duration;

/// What becomes of a MAD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Nothing special.
    Pass,
    /// Lost.
    Drop,
    /// Held back.
    Delay(Duration),
    /// Answered with this status, without asking the SA.
    Status(u16),
}

/// What becomes of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct DatagramFate {
    pub drop: bool,
    pub copies: u32,
    pub delay: Option<Duration>,
}

/// Which side of the SA a fault is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The request doesn't get there.
    Request,
    /// The answer doesn't come back.
    Answer,
}

/// A fault in the way to or from the SA.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the names say it")]
pub struct SaFault {
    pub host: Option<String>,
    pub attribute: Option<u16>,
    pub method: Option<u8>,
    pub side: Side,
    pub fate: Fate,
    /// How many more times; `None` is for ever.
    pub left: Option<u32>,
}

/// A fault on the wires.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the names say it")]
pub struct DatagramFault {
    pub from: Option<String>,
    pub to: Option<String>,
    pub multicast: Option<bool>,
    /// In how many of a hundred cases.
    pub percent: u32,
    pub fate: DatagramFate,
    pub left: Option<u32>,
}

/// An error completion to come.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the names say it")]
pub struct SendError {
    pub host: String,
    /// The n-th send from now on, counting from 1.
    pub nth: u32,
    pub status: u32,
}

/// All of them.
#[derive(Debug, Default)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Faults {
    pub sa: Vec<SaFault>,
    pub datagrams: Vec<DatagramFault>,
    pub send_errors: Vec<SendError>,
    /// Hosts whose multicast doesn't come back to themselves.
    pub no_loopback: HashSet<String>,
    pub peers: super::peers::Peers,
    dice: u64,
}

impl Faults {
    /// Forgets all faults.
    pub fn clear(&mut self) {
        *self = Faults { dice: self.dice, ..Faults::default() };
    }

    /// Sets the seed of what happens with a probability.
    pub fn seed(&mut self, seed: u64) {
        self.dice = seed;
    }

    fn roll(&mut self) -> u32 {
        // A linear congruential generator: the same run gives the same faults.
        self.dice = self.dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.dice >> 33) as u32 % 100
    }

    fn sa_fate(&mut self, side: Side, host: &str, attribute: u16, method: u8) -> Fate {
        let found = self.sa.iter().position(|f| {
            f.side == side
                && f.host.as_deref().is_none_or(|h| h == host)
                && f.attribute.is_none_or(|a| a == attribute)
                // A GetResp answers Get and Set alike: compare requests only.
                && (side == Side::Answer || f.method.is_none_or(|m| m == method))
        });
        let Some(at) = found else { return Fate::Pass };
        let fate = self.sa[at].fate;
        if let Some(left) = &mut self.sa[at].left {
            *left = left.saturating_sub(1);
            if *left == 0 {
                self.sa.remove(at);
            }
        }
        fate
    }

    /// A request is on its way to the SA.
    pub fn sa_request(&mut self, host: &str, attribute: u16, method: u8) -> Fate {
        self.sa_fate(Side::Request, host, attribute, method)
    }

    /// An answer of the SA is on its way back.
    pub fn sa_answer(&mut self, host: &str, attribute: u16, method: u8) -> Fate {
        self.sa_fate(Side::Answer, host, attribute, method)
    }

    /// The status of a host's next send, if that one is to fail.
    pub fn send_status(&mut self, host: &str) -> Option<u32> {
        let mut status = None;
        for error in self.send_errors.iter_mut().filter(|e| e.host == host) {
            error.nth = error.nth.saturating_sub(1);
            if error.nth == 0 {
                status = Some(error.status);
            }
        }
        self.send_errors.retain(|e| e.nth > 0);
        status
    }

    /// A datagram leaves a host.
    pub fn datagram_sent(&mut self, from: &str, multicast: bool) -> DatagramFate {
        self.datagram(multicast, |f| f.to.is_none() && f.from.as_deref().is_none_or(|h| h == from))
            .unwrap_or(DatagramFate { drop: false, copies: 1, delay: None })
    }

    /// A datagram reaches a host: is it lost?
    pub fn datagram_received(&mut self, from: &str, to: &str, multicast: bool) -> bool {
        let applies = |f: &DatagramFault| f.to.as_deref() == Some(to) && f.from.as_deref().is_none_or(|h| h == from);
        self.datagram(multicast, applies).is_some_and(|fate| fate.drop)
    }

    /// Each fault that applies has its throw, in their order: one that misses leaves the datagram to the next.
    fn datagram(&mut self, multicast: bool, applies: impl Fn(&DatagramFault) -> bool) -> Option<DatagramFate> {
        let is_meant = |f: &DatagramFault| applies(f) && f.multicast.is_none_or(|wanted| wanted == multicast);
        let mut at = 0;
        while !is_meant(self.datagrams.get(at)?) || self.roll() >= self.datagrams[at].percent {
            at += 1;
        }
        let fate = self.datagrams[at].fate;
        if let Some(left) = &mut self.datagrams[at].left {
            *left = left.saturating_sub(1);
            if *left == 0 {
                self.datagrams.remove(at);
            }
        }
        Some(fate)
    }
}
