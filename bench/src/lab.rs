//! The subnet that everything is measured on: hosts, and ports that nobody runs on that answer for thousands of
//! addresses.

use std::fmt::Write as _;
use std::fs;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use fabric::subnet::unique_state;
use fabric::{Options, Subnet};

use crate::Outcome;
use crate::args::Args;
use crate::place::{Place, pin};

/// Ports that nobody runs on.
const PORTS: usize = 1000;
/// Addresses that they answer for, from [`address`] 0 on.
pub const ADDRESSES: usize = 24_000;
/// Host that services run on, one at a time where it matters.
pub const HOST: &str = "H1";
/// Host for a second service that runs at the same time.
pub const OTHER: &str = "H2";

/// The subnet.
pub struct Lab {
    /// It.
    pub subnet: Subnet,
    /// This service's program.
    pub ours: PathBuf,
    /// Options that it has wherever it is measured.
    pub options: String,
    peers: PathBuf,
}

/// An address that a peer answers for.
pub fn address(number: usize) -> Ipv4Addr {
    Ipv4Addr::from_bits(Ipv4Addr::new(10, 77, 4, 0).to_bits() + number as u32)
}

/// An address that nobody answers for.
pub fn nobody(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, 250, number)
}

impl Lab {
    /// Brings it up; its own programs are where services are not.
    pub fn up(args: &Args) -> Outcome<Lab> {
        pin(Place::Others)?;
        let mut options = Options::new(unique_state(), 2);
        options.extra_hcas = args.pick(PORTS, 100);
        let subnet = Subnet::up(options)?;
        let peers = subnet.state().file("peers");
        let lab = Lab { subnet, ours: args.ours.clone(), options: args.options.clone(), peers };
        fs::write(&lab.peers, lab.peer_lines()?)?;
        lab.peers_answer_after(0)?;
        Ok(lab)
    }

    /// An address, a LID and a GID a line: ports take turns.
    fn peer_lines(&self) -> Outcome<String> {
        let table = fs::read_to_string(self.subnet.state().file("guid2lid"))?;
        let taken: Vec<u64> = self.subnet.ports()?.iter().map(|p| p.guid).collect();
        let hex = |word: Option<&str>| u64::from_str_radix(word?.strip_prefix("0x")?, 16).ok();
        let mut ports: Vec<(u64, u64)> = table
            .lines()
            .filter_map(|line| {
                let mut words = line.split_whitespace();
                let (guid, lid) = (hex(words.next())?, hex(words.next())?);
                // Not switches, hosts, or the subnet manager's port.
                (guid >> 20 == 1 && lid != 1 && !taken.contains(&guid)).then_some((lid, guid))
            })
            .collect();
        ports.sort_unstable();
        if ports.is_empty() {
            return Err("the subnet manager knows no ports".into());
        }
        let mut lines = String::new();
        for (number, (lid, guid)) in (0..ADDRESSES).zip(ports.iter().cycle()) {
            writeln!(lines, "{} {lid} fe80{guid:028x}", address(number))?;
        }
        Ok(lines)
    }

    /// From now on peers take so long to answer.
    pub fn peers_answer_after(&self, ms: u32) -> Outcome<()> {
        Ok(self.subnet.inject(&format!("peers file={} ms={ms}", self.peers.display()))?)
    }
}
