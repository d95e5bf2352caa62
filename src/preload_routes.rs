//! OpenSM's dump of all paths (`route_preload opensm_full_v1`): for each source port a line with its GUID, base LID and
//! node description, then a line for each LID with service level, MTU and rate.
//!
//! A dump grows with the square of the subnet, so it is taken in pieces and read once: all headers are kept, and the
//! destinations of those ports that are this host's.

use crate::options::Finding;
use crate::options::text::{Findings, MAX_LINE, quote};
use crate::sorted::sort_by_key;

use super::MULTICAST_LID;

/// Most source ports whose destinations are kept: more than a host has.
const MAX_BLOCKS: usize = 256;
/// Highest service level.
const MAX_SL: u8 = 15;
/// Highest MTU (IB enum): 4096 bytes.
const MAX_MTU: u8 = 5;
/// Lowest rate (IB enum): 2.5 Gb/s.
const MIN_RATE: u8 = 2;
/// Highest rate that fits beside a selector.
const MAX_RATE: u8 = 63;
/// What the lines of source ports begin with.
const HEADERS: [&[u8]; 3] = [b"Channel Adapter", b"Switch", b"Router"];

/// What is known of the path to a LID, beside its ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Route {
    /// The destination.
    pub lid: u16,
    /// Service level.
    pub sl: u8,
    /// MTU (IB enum).
    pub mtu: u8,
    /// Rate (IB enum).
    pub rate: u8,
}

#[derive(Debug)]
struct Block {
    guid: u64,
    lid: u16,
    /// By LID.
    routes: Vec<Route>,
}

/// Paths from some ports to all LIDs.
#[derive(Debug, Default)]
pub struct Routes {
    /// Known LIDs in order, and the port GUID of each.
    lids: Vec<u16>,
    guids: Vec<u64>,
    /// Places in these two, by GUID.
    by_guid: Vec<u16>,
    blocks: Vec<Block>,
}

/// Paths from one port.
#[derive(Clone, Copy)]
pub struct RoutesFrom<'a> {
    all: &'a Routes,
    routes: &'a [Route],
}

impl Routes {
    /// Whether no file has said anything.
    pub fn is_empty(&self) -> bool {
        self.lids.is_empty()
    }

    /// Number of LIDs whose port is known.
    pub fn lids(&self) -> usize {
        self.lids.len()
    }

    /// Bytes of memory that this takes.
    pub fn memory(&self) -> usize {
        let blocks = self.blocks.iter().map(|b| b.routes.capacity() * size_of::<Route>() + size_of::<Block>());
        self.lids.capacity() * 2 + self.guids.capacity() * 8 + self.by_guid.capacity() * 2 + blocks.sum::<usize>()
    }

    /// The paths from the port with this GUID and base LID. Without both nothing is known: paths to and from another
    /// LID are others.
    pub fn from(&self, guid: u64, lid: u16) -> Option<RoutesFrom<'_>> {
        let block = self.blocks.iter().find(|b| b.guid == guid && b.lid == lid)?;
        Some(RoutesFrom { all: self, routes: &block.routes })
    }
}

impl RoutesFrom<'_> {
    /// Number of destinations.
    pub fn len(&self) -> usize {
        self.routes.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.routes.is_empty()
    }

    fn route(&self, lid: u16) -> Option<Route> {
        self.routes.binary_search_by_key(&lid, |r| r.lid).ok().and_then(|i| self.routes.get(i)).copied()
    }

    /// The path to a LID, and the GUID of the port that has it.
    pub fn to_lid(&self, lid: u16) -> Option<(Route, u64)> {
        let route = self.route(lid)?;
        let place = self.all.lids.binary_search(&lid).ok()?;
        Some((route, *self.all.guids.get(place)?))
    }

    /// The path to a port; of several the one to the highest LID.
    pub fn to_guid(&self, guid: u64) -> Option<Route> {
        let by_guid = &self.all.by_guid;
        let of = |place: u16| self.all.guids.get(usize::from(place)).copied().unwrap_or(0);
        let end = by_guid.partition_point(|p| of(*p) <= guid);
        let places = by_guid.get(..end)?.iter().rev().take_while(|p| of(**p) == guid);
        let mut lids = places.filter_map(|p| self.all.lids.get(usize::from(*p)));
        lids.find_map(|lid| self.route(*lid))
    }
}

/// Whose destinations are kept.
#[derive(Clone, Copy, Debug)]
pub enum Wanted<'a> {
    /// Those of the ports with these GUIDs; the others' lines are passed over.
    Ports(&'a [u64]),
    /// Nobody's: all lines are only looked at for what is wrong in them.
    Check,
}

/// The block that the lines belong to.
#[derive(Clone, Copy)]
enum Current {
    /// None, or one that is of no interest.
    Skipped,
    /// One that is checked.
    Checked,
    /// One that is kept: its source and its header's line.
    Kept { guid: u64, lid: u16, header: usize },
}

/// Takes a dump piece by piece.
pub struct RouteParser<'a> {
    wanted: Wanted<'a>,
    findings: Findings<'a>,
    line: usize,
    /// The beginning of a line whose end has not come yet; of too long a line as much as shows that it is.
    partial: Vec<u8>,
    /// GUID of each LID up to the highest; 0 where unknown.
    guids: Vec<u64>,
    current: Current,
    /// Destinations of the current block, by LID up to the highest; LID 0 where there is none.
    routes: Vec<Route>,
    blocks: Vec<(usize, Block)>,
}

/// Parses a whole dump; see [`RouteParser`].
pub fn parse_routes(bytes: &[u8], file: &str, wanted: Wanted<'_>) -> (Routes, Vec<Finding>) {
    let mut parser = RouteParser::new(file, wanted);
    parser.feed(bytes);
    parser.finish()
}

impl<'a> RouteParser<'a> {
    /// A parser; `file` is only for the findings.
    pub fn new(file: &'a str, wanted: Wanted<'a>) -> RouteParser<'a> {
        RouteParser {
            wanted,
            findings: Findings::new(file),
            line: 0,
            partial: Vec::new(),
            guids: Vec::new(),
            current: Current::Skipped,
            routes: Vec::new(),
            blocks: Vec::new(),
        }
    }

    /// Takes the next bytes.
    pub fn feed(&mut self, mut bytes: &[u8]) {
        while let Some(end) = memchr::memchr(b'\n', bytes) {
            let (line, rest) = (&bytes[..end], &bytes[end + 1..]);
            self.line += 1;
            if self.partial.is_empty() {
                self.take_line(line);
            } else {
                self.keep(line);
                let whole = std::mem::take(&mut self.partial);
                self.take_line(&whole);
            }
            bytes = rest;
        }
        self.keep(bytes);
    }

    fn keep(&mut self, bytes: &[u8]) {
        let room = (MAX_LINE + 1).saturating_sub(self.partial.len());
        self.partial.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    fn take_line(&mut self, line: &[u8]) {
        let begin = line.trim_ascii_start();
        let is_header = HEADERS.iter().any(|h| begin.starts_with(h));
        let is_row = begin.first().is_some_and(u8::is_ascii_digit);
        if begin.is_empty() || begin.starts_with(b"#") || (!is_header && matches!(self.current, Current::Skipped)) {
            return;
        }
        let result = if line.len() > MAX_LINE {
            Err(format!("line of more than {MAX_LINE} bytes"))
        } else if line.contains(&0) {
            Err(String::from("line with a NUL byte"))
        } else if is_header {
            header(begin).and_then(|(guid, lid)| self.take_header(guid, lid))
        } else if is_row {
            self.take_row(begin)
        } else {
            Err(format!("neither a source port nor a destination {}", quote(begin.trim_ascii_end())))
        };
        let Err(problem) = result else { return };
        if is_row {
            self.findings.warn(self.line, format!("{problem}: ignored"));
        } else {
            // it may have been a source port, so the destinations that follow must not count for the one before
            self.end_block();
            self.findings.warn(self.line, format!("{problem}: ignored up to the next source port"));
        }
    }

    fn take_header(&mut self, guid: u64, lid: u16) -> Result<(), String> {
        self.end_block();
        let known = at(&mut self.guids, lid);
        match *known {
            0 => *known = guid,
            other if other == guid => {
                self.findings.warn(self.line, format!("{guid:#018x} with LID {lid} was there further up: ignored"));
            }
            other => {
                let text = format!("LID {lid} of {guid:#018x} is that of {other:#018x}, as said further up");
                self.findings.warn(self.line, text);
            }
        }
        self.current = match self.wanted {
            Wanted::Check => Current::Checked,
            Wanted::Ports(guids) if !guids.contains(&guid) => Current::Skipped,
            Wanted::Ports(_) if self.blocks.iter().any(|(_, b)| b.guid == guid && b.lid == lid) => Current::Skipped,
            Wanted::Ports(_) if self.blocks.len() == MAX_BLOCKS => {
                return Err(format!("more than {MAX_BLOCKS} blocks for this host"));
            }
            Wanted::Ports(_) => Current::Kept { guid, lid, header: self.line },
        };
        Ok(())
    }

    fn take_row(&mut self, line: &[u8]) -> Result<(), String> {
        let Some((route, extra)) = row(line)? else { return Ok(()) };
        if extra {
            self.findings.warn(self.line, String::from("what follows the rate is ignored"));
        }
        if !matches!(self.current, Current::Kept { .. }) {
            return Ok(());
        }
        let place = at(&mut self.routes, route.lid);
        if place.lid != 0 && *place != route {
            let text = format!("LID {} was different further up: this line holds", route.lid);
            self.findings.warn(self.line, text);
        }
        *place = route;
        Ok(())
    }

    fn end_block(&mut self) {
        if let Current::Kept { guid, lid, header } = self.current {
            let routes: Vec<Route> = self.routes.iter().filter(|r| r.lid != 0).copied().collect();
            self.routes.clear();
            self.blocks.push((header, Block { guid, lid, routes }));
        }
        self.current = Current::Skipped;
    }

    /// What has come, and what is wrong in it.
    pub fn finish(mut self) -> (Routes, Vec<Finding>) {
        let last = std::mem::take(&mut self.partial);
        if last.trim_ascii().first().is_some_and(|b| *b != b'#') && !matches!(self.current, Current::Skipped) {
            // half a number is a number too
            self.findings.warn(self.line + 1, String::from("the file ends within a line: ignored"));
        }
        self.end_block();
        let mut routes = Routes::default();
        for (lid, guid) in self.guids.iter().enumerate().filter(|(_, guid)| **guid != 0) {
            routes.lids.push(lid as u16);
            routes.guids.push(*guid);
        }
        routes.by_guid = (0..routes.lids.len() as u16).collect();
        sort_by_key(&mut routes.by_guid, |p| routes.guids[usize::from(*p)]);
        for (header, mut block) in self.blocks {
            let is_known = |r: &Route| self.guids.get(usize::from(r.lid)).is_some_and(|guid| *guid != 0);
            let mut nobodys = block.routes.iter().filter(|r| !is_known(r));
            if let Some(first) = nobodys.next() {
                let (lid, more) = (first.lid, nobodys.count());
                let text = format!("no port is said to have LID {lid} and {more} more of its destinations: ignored");
                self.findings.warn(header, text);
                block.routes.retain(is_known);
            }
            block.routes.shrink_to_fit();
            routes.blocks.push(block);
        }
        routes.lids.shrink_to_fit();
        routes.guids.shrink_to_fit();
        (routes, self.findings.into_vec())
    }
}

/// The place of a LID in a table that grows as far as it must.
fn at<T: Clone + Default>(table: &mut Vec<T>, lid: u16) -> &mut T {
    let index = usize::from(lid);
    if table.len() <= index {
        table.resize(index + 1, T::default());
    }
    &mut table[index]
}

fn not_unicast(lid: u32) -> String {
    format!("LID {lid:#06x} is not a unicast LID")
}

/// GUID and base LID of a source port: `Channel Adapter 0x<GUID>, base LID <LID>, "<description>", port <number>`.
/// The description, which may hold anything, is not looked at.
fn header(line: &[u8]) -> Result<(u64, u16), String> {
    let bad = || format!("bad source port {}", quote(line.trim_ascii_end()));
    let rest = HEADERS.iter().find_map(|h| line.strip_prefix(*h)).ok_or_else(bad)?;
    let mut fields = rest.splitn(3, |b| *b == b',');
    let guid = fields.next().map(<[u8]>::trim_ascii).ok_or_else(bad)?;
    let guid = guid.strip_prefix(b"0x").filter(|digits| digits.len() <= 16).and_then(hex).ok_or_else(bad)?;
    let lid = fields.next().and_then(|f| f.trim_ascii().strip_prefix(b"base LID")).ok_or_else(bad)?;
    let lid = decimal(lid.trim_ascii()).ok_or_else(bad)?;
    if guid == 0 {
        return Err(bad());
    }
    unicast(lid).map(|lid| (guid, lid))
}

/// A destination, `0x<LID> : <SL> : <MTU> : <rate>`, and whether something follows it; `None` if it is unreachable.
fn row(line: &[u8]) -> Result<Option<(Route, bool)>, String> {
    let bad = |what| format!("bad {what} in {}", quote(line.trim_ascii_end()));
    let mut fields = line.split(|b| *b == b':').map(<[u8]>::trim_ascii);
    let lid = fields.next().unwrap_or_default();
    let number = match lid.strip_prefix(b"0x").or(lid.strip_prefix(b"0X")) {
        Some(digits) => hex(digits).and_then(|n| u32::try_from(n).ok()),
        None => decimal(lid),
    };
    let lid = unicast(number.ok_or_else(|| bad("LID"))?)?;
    let sl = fields.next().unwrap_or_default();
    if sl == b"UNREACHABLE" {
        return Ok(None);
    }
    let within = |field: Option<&[u8]>, least: u8, most: u8| {
        let number = field.and_then(decimal).and_then(|n| u8::try_from(n).ok());
        number.filter(|n| (least..=most).contains(n))
    };
    let sl = within(Some(sl), 0, MAX_SL).ok_or_else(|| bad("service level"))?;
    let mtu = within(fields.next(), 1, MAX_MTU).ok_or_else(|| bad("MTU"))?;
    let rate = within(fields.next(), MIN_RATE, MAX_RATE).ok_or_else(|| bad("rate"))?;
    Ok(Some((Route { lid, sl, mtu, rate }, fields.next().is_some())))
}

fn unicast(lid: u32) -> Result<u16, String> {
    let fits = u16::try_from(lid).ok().filter(|lid| (1..MULTICAST_LID).contains(lid));
    fits.ok_or_else(|| not_unicast(lid))
}

fn hex(digits: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(digits).ok().filter(|t| t.bytes().all(|b| b.is_ascii_hexdigit()))?;
    u64::from_str_radix(text, 16).ok()
}

fn decimal(digits: &[u8]) -> Option<u32> {
    let text = std::str::from_utf8(digits).ok().filter(|t| t.bytes().all(|b| b.is_ascii_digit()))?;
    text.parse().ok()
}

#[cfg(test)]
#[path = "preload_routes_tests.rs"]
mod tests;
