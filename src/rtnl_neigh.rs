//! The kernel's neighbour table, asked and followed over rtnetlink.
//!
//! Reading needs no privilege. To have the kernel look for a neighbour (RTM_NEWNEIGH with NTF_USE, which sends what a
//! datagram to the neighbour would have it send, and no datagram) takes CAP_NET_ADMIN. A datagram would take none, but
//! would go to strangers, and be dropped where a service manager allows the service no internet traffic. Without the
//! privilege only what the kernel knows anyway is found.
//!
//! A question is one request, which the kernel answers before the send returns. It has a socket of its own, and
//! events another one, so that neither waits for the other.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd};

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};

use crate::neighbours::{Entry, Table};
use crate::rtnl_parse::{self, Neighbour, News};
use crate::{log, log_limited, netlink_sock};

/// The kernel's group for neighbours.
const RTNLGRP_NEIGH: libc::c_int = 3;
/// Datagrams that one call reads.
const DATAGRAMS_PER_TURN: usize = 64;
/// The kernel makes datagrams of at most 32 KiB. From this size on memory comes from the system page by page: what is
/// never used of it is not there.
const BUFFER: usize = 128 * 1024;
/// Datagrams that may lie before an answer: what an earlier question left behind.
const LEFTOVERS: usize = 8;

/// The table, with a socket that is there while it is needed.
#[derive(Debug, Default)]
pub struct KernelTable {
    fd: Option<OwnedFd>,
    sequence: u32,
    /// It was said that the kernel does not look for neighbours.
    refused: bool,
    buffer: Vec<u8>,
}

/// What the kernel said to a request.
enum Said {
    Neighbour(Neighbour),
    Error(i32),
}

impl KernelTable {
    fn request(&mut self, request: impl FnOnce(u32) -> Vec<u8>) -> io::Result<Said> {
        self.sequence = self.sequence.wrapping_add(1).max(1);
        let sequence = self.sequence;
        if self.buffer.is_empty() {
            self.buffer = vec![0; BUFFER];
        }
        let fd = match &mut self.fd {
            Some(fd) => fd,
            none => none.insert(netlink_sock::open_route_for(&[])?),
        };
        netlink_sock::send(fd, 0, &request(sequence))?;
        for _ in 0..LEFTOVERS {
            let received = netlink_sock::receive(fd, &mut self.buffer)?;
            let datagram = self.buffer.get(..received.length).unwrap_or_default();
            if !received.from_kernel {
                continue;
            }
            let Some(answer) = rtnl_parse::messages(datagram).find(|m| m.sequence == sequence) else { continue };
            return match answer.news {
                Ok(News::Neighbour(n)) => Ok(Said::Neighbour(n)),
                Ok(News::Failed(errno)) => Ok(Said::Error(errno)),
                _ => Err(io::ErrorKind::InvalidData.into()),
            };
        }
        Err(io::ErrorKind::WouldBlock.into())
    }

    /// There is no question for the moment: the socket goes.
    pub fn rest(&mut self) {
        self.fd = None;
        self.buffer = Vec::new();
    }
}

/// What an entry is good for.
fn entry(n: &Neighbour) -> Entry {
    match (n.state, n.hardware) {
        (libc::NUD_REACHABLE | libc::NUD_PERMANENT, Some(hardware)) => Entry::Known { hardware, old: false },
        (libc::NUD_STALE | libc::NUD_DELAY | libc::NUD_PROBE, Some(hardware)) => Entry::Known { hardware, old: true },
        (libc::NUD_INCOMPLETE, _) => Entry::Looking,
        (libc::NUD_FAILED, _) => Entry::Failed,
        (libc::NUD_NONE, _) => Entry::Absent,
        // without address resolution there is the interface's own address in it
        _ => Entry::Useless,
    }
}

impl Table for KernelTable {
    fn look(&mut self, link: u32, ip: IpAddr) -> Entry {
        match self.request(|sequence| rtnl_parse::get_neighbour(link, ip, sequence)) {
            Ok(Said::Neighbour(n)) if (n.index, n.ip) == (link, ip) => entry(&n),
            Ok(Said::Error(libc::ENOENT)) => Entry::Absent,
            Ok(Said::Neighbour(_)) => Entry::Useless,
            Ok(Said::Error(errno)) => {
                let e = io::Error::from_raw_os_error(errno);
                log_limited!(1, "the kernel does not say who {ip} is: {e}");
                Entry::Useless
            }
            Err(e) => {
                log_limited!(1, "cannot ask the kernel who {ip} is: {e}");
                self.fd = None;
                Entry::Useless
            }
        }
    }

    fn probe(&mut self, link: u32, ip: IpAddr, entry: Entry) -> bool {
        let create = entry == Entry::Absent;
        match self.request(|sequence| rtnl_parse::use_neighbour(link, ip, create, sequence)) {
            // somebody else may have been quicker
            Ok(Said::Error(0 | libc::EEXIST)) => true,
            Ok(Said::Error(errno)) => {
                let e = io::Error::from_raw_os_error(errno);
                if matches!(errno, libc::EPERM | libc::EACCES) && !std::mem::replace(&mut self.refused, true) {
                    log!(0, "the kernel looks for no neighbours (addr_fallback) without CAP_NET_ADMIN: {e}");
                } else {
                    log_limited!(1, "the kernel does not look for {ip}: {e}");
                }
                false
            }
            Ok(Said::Neighbour(_)) => false,
            Err(e) => {
                log_limited!(1, "cannot have the kernel look for {ip}: {e}");
                self.fd = None;
                false
            }
        }
    }
}

/// News of neighbours, once there is somebody whom they matter to.
#[derive(Debug, Default)]
pub struct NeighbourEvents {
    fd: Option<OwnedFd>,
    buffer: Vec<u8>,
    overruns: u64,
}

impl NeighbourEvents {
    /// Times that news were lost.
    pub fn overruns(&self) -> u64 {
        self.overruns
    }

    /// Begins to listen, unless that has begun.
    ///
    /// # Errors
    /// There is no such socket to be had, or it cannot be watched.
    pub fn listen(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        if self.fd.is_none() {
            let fd = netlink_sock::open_route_for(&[RTNLGRP_NEIGH])?;
            registry.register(&mut SourceFd(&fd.as_raw_fd()), token, Interest::READABLE)?;
            self.fd = Some(fd);
            if self.buffer.is_empty() {
                self.buffer = vec![0; BUFFER];
            }
        }
        Ok(())
    }

    /// Reads what there is, up to a bound: whether there is more. Each entry that is known, or that the kernel found to
    /// be nobody's, is given to `each`. News that are lost are not made up for: what they would have cast doubt upon
    /// has its end anyway.
    pub fn read(&mut self, mut each: impl FnMut(&Neighbour, Entry)) -> bool {
        let Some(fd) = &self.fd else { return false };
        for _ in 0..DATAGRAMS_PER_TURN {
            let received = match netlink_sock::receive(fd, &mut self.buffer) {
                Ok(received) => received,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return false,
                Err(e) if e.raw_os_error() == Some(libc::ENOBUFS) => {
                    self.overruns += 1;
                    continue;
                }
                Err(e) => {
                    log_limited!(1, "news of neighbours cannot be read: {e}");
                    return false;
                }
            };
            if !received.from_kernel {
                continue;
            }
            let datagram = self.buffer.get(..received.length).unwrap_or_default();
            for message in rtnl_parse::messages(datagram) {
                let (Ok(News::Neighbour(n)) | Ok(News::NeighbourGone(n))) = message.news else { continue };
                // an entry that goes because nobody used it was not wrong
                each(&n, entry(&n));
            }
        }
        true
    }
}

#[cfg(test)]
#[path = "rtnl_neigh_tests.rs"]
mod tests;
