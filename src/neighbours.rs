//! Questions to the kernel's neighbour table: which are open, and when each is looked at again. Pure but for
//! [`Table`], which stands for the kernel.
//!
//! An entry that is there answers at once. Else the kernel is made to look for the neighbour, which takes it some
//! milliseconds and a request or two on the link, and the entry is looked at again and again meanwhile. Any client can
//! ask for addresses that nobody has, and for each of them the kernel has an entry as long as it looks, whether anybody
//! still waits or not: only [`PROBES`] are looked for at a time.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::Duration;

use ibacm_wire::Gid;

use crate::rtnl_parse::HARDWARE;
use crate::time::Time;

/// Neighbours that the kernel is made to look for at a time: half of what it keeps without ever cleaning up (gc_thresh1).
pub const PROBES: usize = 64;
/// How long the kernel looks for one that is not there: it asks on the link three times, once a second.
pub const PROBE_LASTS: Duration = Duration::from_secs(3);
/// Questions that wait for their turn.
pub const MAX_WAITING: usize = 1024;
/// Interfaces that one question is asked of.
pub const MAX_LINKS: usize = 4;
/// The first pause before the table is looked at again; it doubles up to the last.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LAST_PAUSE: Duration = Duration::from_millis(160);

/// What the kernel has for an address on an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Nothing.
    Absent,
    /// It is looking.
    Looking,
    /// It has looked, and found nobody.
    Failed,
    /// This hardware address, which it has not seen confirmed for some time if `old`.
    Known {
        /// Of an IPoIB interface: flags, QPN, and the port's GID.
        hardware: [u8; HARDWARE],
        /// It may be somebody else's by now.
        old: bool,
    },
    /// Nothing that there could be a GID in.
    Useless,
}

/// The kernel's table.
pub trait Table {
    /// The entry of an address on an interface.
    fn look(&mut self, link: u32, ip: IpAddr) -> Entry;
    /// Has the kernel look for the neighbour whose entry is this one. False if it does not.
    fn probe(&mut self, link: u32, ip: IpAddr, entry: Entry) -> bool;
}

/// An interface where an address may be a neighbour's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The interface's number.
    pub index: u32,
    /// The address is in one of its networks. Otherwise it may be behind a gateway, and the kernel is not to look for it.
    pub near: bool,
}

struct Question<T> {
    token: T,
    ip: IpAddr,
    links: Vec<Place>,
    /// When the answer is of no use any more.
    until: Time,
    /// When the kernel has given up.
    given_up: Time,
    next: Time,
    pause: Duration,
}

/// The GID in a hardware address.
fn gid_of(hardware: &[u8; HARDWARE]) -> Option<Gid> {
    hardware.last_chunk().map(|gid| Gid(*gid))
}

impl<T> Question<T> {
    /// The GID, if one of the interfaces has it.
    fn look(&self, table: &mut impl Table) -> (Option<Gid>, Vec<(u32, Entry)>) {
        let mut unknown = Vec::new();
        for link in &self.links {
            match table.look(link.index, self.ip) {
                entry @ Entry::Known { hardware, old } => {
                    if old {
                        // good enough for now; the kernel tells if it finds that it isn't
                        table.probe(link.index, self.ip, entry);
                    }
                    return (gid_of(&hardware), Vec::new());
                }
                Entry::Useless => {}
                entry if link.near => unknown.push((link.index, entry)),
                _ => {}
            }
        }
        (None, unknown)
    }

    /// Has the kernel look for it. False if it does not.
    fn probe(&mut self, now: Time, table: &mut impl Table, unknown: &[(u32, Entry)]) -> bool {
        self.given_up = now.plus(PROBE_LASTS);
        self.next = now.plus(self.pause).min(self.until);
        unknown.iter().filter(|(link, entry)| table.probe(*link, self.ip, *entry)).count() > 0
    }
}

/// Open questions, each for a `T`.
pub struct Neighbours<T> {
    open: Vec<Question<T>>,
    waiting: VecDeque<Question<T>>,
    /// When the kernel has given up what nobody waits for any more.
    left: Vec<Time>,
    refused: u64,
}

impl<T> Default for Neighbours<T> {
    fn default() -> Neighbours<T> {
        Neighbours { open: Vec::new(), waiting: VecDeque::new(), left: Vec::new(), refused: 0 }
    }
}

impl<T> Neighbours<T> {
    /// Asks for `ip` on these interfaces. `Some` is the answer; else it comes from [`Neighbours::on_time`], not later
    /// than `until`.
    pub fn ask(
        &mut self,
        now: Time,
        table: &mut impl Table,
        token: T,
        (ip, mut links): (IpAddr, Vec<Place>),
        until: Time,
    ) -> Option<(T, Option<Gid>)> {
        links.truncate(MAX_LINKS);
        let mut q = Question { token, ip, links, until, given_up: now, next: now, pause: FIRST_PAUSE };
        let (gid, unknown) = q.look(table);
        if gid.is_some() || unknown.is_empty() || until <= now {
            return Some((q.token, gid));
        }
        if self.has_room(now) {
            if !q.probe(now, table, &unknown) {
                return Some((q.token, None));
            }
            self.open.push(q);
        } else if self.waiting.len() < MAX_WAITING {
            self.waiting.push_back(q);
        } else {
            self.refused += 1;
            return Some((q.token, None));
        }
        None
    }

    /// Questions that were not asked because too many waited.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Whether the kernel may be made to look for one more.
    fn has_room(&mut self, now: Time) -> bool {
        self.left.retain(|at| *at > now);
        self.open.len() + self.left.len() < PROBES
    }

    /// Looks again at what is due: one answer, or `None` when there is no more.
    pub fn on_time(&mut self, now: Time, table: &mut impl Table) -> Option<(T, Option<Gid>)> {
        if let Some(i) = self.waiting.iter().position(|q| q.until <= now) {
            return self.waiting.remove(i).map(|q| (q.token, None));
        }
        while let Some(i) = self.open.iter().position(|q| q.next <= now) {
            let q = &mut self.open[i];
            let (gid, unknown) = q.look(table);
            let looking = !unknown.iter().all(|(_, entry)| *entry == Entry::Failed);
            if gid.is_some() || !looking || q.until <= now {
                let q = self.open.swap_remove(i);
                if looking && gid.is_none() {
                    self.left.push(q.given_up);
                }
                return Some((q.token, gid));
            }
            q.pause = (q.pause * 2).min(LAST_PAUSE);
            q.next = now.plus(q.pause).min(q.until);
        }
        while self.has_room(now)
            && let Some(mut q) = self.waiting.pop_front()
        {
            let (gid, unknown) = q.look(table);
            if gid.is_some() || !q.probe(now, table, &unknown) {
                return Some((q.token, gid));
            }
            self.open.push(q);
        }
        None
    }

    /// When [`Neighbours::on_time`] has something to do next.
    pub fn next_deadline(&self) -> Time {
        let room = self.left.iter().copied().filter(|_| !self.waiting.is_empty());
        let next = self.open.iter().map(|q| q.next).chain(self.waiting.iter().map(|q| q.until)).chain(room).min();
        next.unwrap_or(Time::NEVER)
    }
}

#[cfg(test)]
#[path = "neighbours_tests.rs"]
mod tests;
