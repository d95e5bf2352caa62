//! Peers that are not there: ports that nobody runs on answer the multicast protocol's questions for made-up addresses,
//! so that a host can look up thousands of destinations.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use super::Switch;
use super::command::{Outcome, Words, gid, parse};
use super::route::{Datagram, Grh};
use super::timer::Timer;
use crate::ib::{self, Gid};

/// Bytes of the protocol's datagrams.
const LEN: usize = 256;
/// Offsets in them: method, number of groups, wanted address, groups.
const METHOD: usize = 3;
const WANTED_TYPE: usize = 16;
const GROUP_COUNT: usize = 20;
const WANTED: usize = 24;
const GROUPS: usize = 152;
/// Groups that a question has room for.
const MAX_GROUPS: usize = 6;
/// The queue pair that they all have.
const QPN: u32 = 0x40;

/// Who answers for which address, and after what time.
#[derive(Debug, Default)]
pub struct Peers {
    places: HashMap<IpAddr, (u16, Gid)>,
    delay: Duration,
}

impl Peers {
    /// Reads lines of an address, the LID and the GID of the port that answers for it.
    pub fn read(text: &str, delay: Duration) -> Result<Peers, String> {
        let mut places = HashMap::new();
        for line in text.lines() {
            let mut words = line.split_whitespace();
            let (Some(ip), Some(lid), Some(port)) = (words.next(), words.next(), words.next()) else {
                return Err(format!("{line}: ADDRESS LID GID"));
            };
            let ip = ip.parse().map_err(|_| format!("{ip}: not an address"))?;
            let lid = parse(lid).ok_or_else(|| format!("{lid}: not a LID"))?;
            places.insert(ip, (lid, gid(port)?));
        }
        Ok(Peers { places, delay })
    }

    /// The answer to a datagram that asks for one of the addresses: the last of the asker's groups is common.
    fn answer(&self, d: &Datagram) -> Option<Datagram> {
        let (grh, question) = (d.grh.as_ref()?, d.payload.first_chunk::<LEN>()?);
        let wanted = &question[WANTED..];
        let ip = match question[WANTED_TYPE] {
            2 => IpAddr::from(*wanted.first_chunk::<4>()?),
            3 => IpAddr::from(*wanted.first_chunk::<16>()?),
            _ => return None,
        };
        let count = usize::from(question[GROUP_COUNT]);
        if question[..METHOD + 1] != [1, 0x2c, 1, 1] || !(1..=MAX_GROUPS).contains(&count) {
            return None;
        }
        let &(lid, gid) = self.places.get(&ip)?;
        let mut payload = question.to_vec();
        payload[METHOD] |= 0x80;
        payload[GROUP_COUNT] = 1;
        payload.copy_within(GROUPS + 16 * (count - 1)..GROUPS + 16 * count, GROUPS);
        payload[GROUPS + 16..].fill(0);
        Some(Datagram {
            from: None,
            slid: lid,
            dlid: d.slid,
            sl: d.sl,
            sqpn: QPN,
            dqpn: d.sqpn,
            pkey: d.pkey,
            qkey: d.qkey,
            grh: Some(Grh { sgid: gid, dgid: grh.sgid, flow_label: 0, tclass: 0, hop_limit: 0xff }),
            imm: None,
            solicited: false,
            payload,
        })
    }
}

impl Switch {
    pub(super) fn inject_peers(&mut self, words: &Words) -> Outcome {
        words.only(&["file", "ms"])?;
        let file = words.text("file").ok_or("file= is missing")?;
        let text = std::fs::read_to_string(file).map_err(|e| format!("{file}: {e}"))?;
        let delay = Duration::from_millis(words.number("ms")?.unwrap_or(0));
        self.faults.peers = Peers::read(&text, delay)?;
        Ok(String::new())
    }

    /// A datagram reaches everybody in a group; those who are not there may answer too.
    pub(super) fn ask_peers(&mut self, datagram: &Datagram) {
        if self.faults.peers.places.is_empty() || datagram.dqpn != ib::MULTICAST_QPN {
            return;
        }
        let Some(answer) = self.faults.peers.answer(datagram) else { return };
        self.count("peers.answered");
        if self.faults.peers.delay.is_zero() {
            self.deliver(&answer);
        } else {
            self.timers.set(self.now + self.faults.peers.delay, Timer::Deliver(Box::new(answer)));
        }
    }
}
