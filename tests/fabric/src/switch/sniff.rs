//! A record of the datagrams that hosts send, for tests that look at the wire.

use std::collections::VecDeque;
use std::fmt::Write as _;

use super::route::Datagram;

/// So many are kept.
const KEEP: usize = 4096;

/// The record.
#[derive(Debug, Default)]
pub struct Sniffer {
    seen: VecDeque<(u64, String, Datagram)>,
    next: u64,
}

/// Bytes in hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut out, b| {
        let _ = write!(out, "{b:02x}");
        out
    })
}

/// Bytes from hexadecimal.
pub fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> = text.bytes().filter(|b| !b.is_ascii_whitespace() && *b != b':').collect();
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

impl Sniffer {
    /// Takes a datagram down.
    pub fn record(&mut self, host: &str, datagram: &Datagram) {
        if self.seen.len() == KEEP {
            self.seen.pop_front();
        }
        self.seen.push_back((self.next, host.to_owned(), datagram.clone()));
        self.next += 1;
    }

    /// Those of a host (or all) from this number on, one a line.
    pub fn dump(&self, host: Option<&str>, since: u64) -> String {
        let mut out = String::new();
        for (number, from, d) in &self.seen {
            if *number < since || host.is_some_and(|h| h != from) {
                continue;
            }
            let _ = write!(
                out,
                "n={number} from={from} slid={} dlid={} sl={} sqpn={} dqpn={} pkey=0x{:04x} qkey=0x{:08x}",
                d.slid, d.dlid, d.sl, d.sqpn, d.dqpn, d.pkey, d.qkey
            );
            if let Some(grh) = &d.grh {
                let _ = write!(
                    out,
                    " sgid={} dgid={} flow={} tclass={} hop={}",
                    hex(&grh.sgid),
                    hex(&grh.dgid),
                    grh.flow_label,
                    grh.tclass,
                    grh.hop_limit
                );
            }
            let _ = writeln!(out, " data={}", hex(&d.payload));
        }
        out
    }

    /// The number that the next datagram will have.
    pub fn next(&self) -> u64 {
        self.next
    }
}
