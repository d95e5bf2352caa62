//! Commands in words: what `fabric inject`, `stats`, `sniff` and `ports` send to the daemon.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::time::Duration;

use super::Switch;
use super::fault::{DatagramFate, DatagramFault, Fate, SaFault, SendError, Side};
use super::port::{Device, LINK_ETHERNET, LINK_INFINIBAND, Port, event};
use super::route::{Datagram, Grh};
use super::sniff::{hex, unhex};
use crate::ib::{self, Gid};

/// What went wrong, in words.
pub type Outcome = Result<String, String>;

/// The words of a command: those with `=` by name, the others in order.
#[derive(Debug)]
pub struct Words<'a> {
    plain: Vec<&'a str>,
    named: HashMap<&'a str, &'a str>,
}

impl<'a> Words<'a> {
    /// Splits a line.
    pub fn new(line: &'a str) -> Self {
        let mut words = Words { plain: Vec::new(), named: HashMap::new() };
        for word in line.split_whitespace() {
            match word.split_once('=') {
                Some((name, value)) => drop(words.named.insert(name, value)),
                None => words.plain.push(word),
            }
        }
        words
    }

    /// The n-th plain word.
    pub fn plain(&self, n: usize) -> Result<&'a str, String> {
        self.plain.get(n).copied().ok_or_else(|| "a word is missing".to_owned())
    }

    /// A named word.
    pub fn text(&self, name: &str) -> Option<&'a str> {
        self.named.get(name).copied()
    }

    /// A named number, decimal or with 0x.
    pub fn number<T: TryFrom<u64>>(&self, name: &str) -> Result<Option<T>, String> {
        self.text(name).map(|text| parse(text).ok_or_else(|| format!("{name}={text}: no such number"))).transpose()
    }

    /// Refuses names that nobody reads: a misspelt fault would be a test that tests nothing.
    pub fn only(&self, known: &[&str]) -> Result<(), String> {
        match self.named.keys().find(|name| !known.contains(name)) {
            Some(name) => Err(format!("{name}=: unknown here; known are {}", known.join(", "))),
            None => Ok(()),
        }
    }
}

/// A number, decimal or with 0x, that fits.
pub fn parse<T: TryFrom<u64>>(text: &str) -> Option<T> {
    let value = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    T::try_from(value.ok()?).ok()
}

pub(super) fn gid(text: &str) -> Result<Gid, String> {
    if let Ok(address) = text.parse::<std::net::Ipv6Addr>() {
        return Ok(address.octets());
    }
    unhex(text).and_then(|b| b.try_into().ok()).ok_or_else(|| format!("{text}: not a GID"))
}

impl Switch {
    /// Carries out a command of the switch; `None` if it is not one.
    pub fn command(&mut self, line: &str) -> Option<Outcome> {
        let words = Words::new(line);
        let outcome = match words.plain(0).unwrap_or_default() {
            "stats" => Ok(self.stats.iter().fold(String::new(), |mut out, (key, n)| {
                let _ = writeln!(out, "{key}={n}");
                out
            })),
            "stats-reset" => {
                self.stats.clear();
                Ok(String::new())
            }
            "ports" => Ok(self.describe()),
            "sniff" => words.number("since").map(|since| self.sniffer.dump(words.plain(1).ok(), since.unwrap_or(0))),
            "sniff-next" => Ok(format!("{}\n", self.sniffer.next())),
            "inject" => self.inject(&words),
            _ => return None,
        };
        Some(outcome)
    }

    fn describe(&self) -> String {
        let mut out = String::new();
        for (dev, device) in self.devices.iter().enumerate() {
            for (index, port) in device.ports.iter().enumerate() {
                let view = port.view();
                let gid = view.gid(0).unwrap_or_default();
                let pkeys: Vec<String> = view.pkeys.iter().filter(|&&k| k != 0).map(|k| format!("0x{k:04x}")).collect();
                let number = index as u32 + 1;
                let mut qpns: Vec<u32> =
                    self.qps.iter().filter(|(k, q)| k.0 == dev && q.port == number).map(|(k, _)| k.1).collect();
                qpns.sort_unstable();
                let qpns: Vec<String> = qpns.iter().map(u32::to_string).collect();
                let mut groups: Vec<String> =
                    port.joined.iter().map(|(g, m)| format!("{}@0x{:04x}", hex(g), m.mlid)).collect();
                groups.sort();
                let there = self.qps.iter().filter(|(k, q)| k.0 == dev && q.port == number);
                let mut attached: Vec<String> = there.flat_map(|(_, q)| &q.attached).map(|(g, _)| hex(g)).collect();
                attached.sort();
                let _ = writeln!(
                    out,
                    "host={} dev={} port={number} guid=0x{:016x} state={} lid={} smlid={} gid={} pkeys={} qpns={} \
                     joined={} attached={}{}",
                    device.host,
                    device.name,
                    port.guid,
                    view.state,
                    view.lid,
                    view.sm_lid,
                    hex(&gid),
                    pkeys.join(","),
                    qpns.join(","),
                    groups.join(","),
                    attached.join(","),
                    if device.gone { " gone=1" } else { "" }
                );
            }
        }
        out
    }

    fn inject(&mut self, words: &Words) -> Outcome {
        match words.plain(1)? {
            "clear" => self.faults.clear(),
            "seed" => self.faults.seed(words.number("value")?.unwrap_or(0)),
            "sa" => return self.inject_sa(words),
            "datagram" => return self.inject_datagram(words),
            "send-error" => {
                words.only(&["nth", "status"])?;
                let host = self.host(words)?;
                let (nth, status) = (words.number("nth")?.unwrap_or(1), words.number("status")?.unwrap_or(12));
                self.faults.send_errors.push(SendError { host, nth, status });
            }
            "loopback" => {
                let host = self.host(words)?;
                match words.plain(3)? {
                    "off" => drop(self.faults.no_loopback.insert(host)),
                    _ => drop(self.faults.no_loopback.remove(&host)),
                }
            }
            "event" => {
                words.only(&["dev", "port"])?;
                let dev = self.device(words)?;
                let event = event::parse(words.plain(3)?).ok_or("no such event")?;
                let obj = words.number("port")?.unwrap_or(u32::from(event != event::DEVICE_FATAL));
                self.raise(dev, event, obj);
            }
            "port" => return self.inject_port(words),
            "port-reset" => {
                words.only(&["dev", "port"])?;
                let dev = self.device(words)?;
                let number = words.number("port")?.unwrap_or(1);
                self.devices[dev].port_mut(number).ok_or("no such port")?.over = Default::default();
                self.notice_changes(dev);
            }
            "leave" => {
                words.only(&["dev", "port"])?;
                let dev = self.device(words)?;
                let number = words.number("port")?.unwrap_or(1);
                self.devices[dev].port_mut(number).ok_or("no such port")?.joined.clear();
            }
            "node-guid" => {
                words.only(&["dev", "guid"])?;
                let dev = self.device(words)?;
                self.devices[dev].node_guid = words.number("guid")?.ok_or("guid= is missing")?;
            }
            "device-add" => return self.add_device(words),
            "device-remove" => {
                words.only(&["dev"])?;
                let dev = self.device(words)?;
                self.raise(dev, event::DEVICE_FATAL, 0);
                self.devices[dev].gone = true;
                self.hang_up(dev);
            }
            "device-restore" => {
                words.only(&["dev"])?;
                let dev = self.device(words)?;
                self.devices[dev].gone = false;
            }
            "raw" => return self.inject_raw(words),
            "peers" => return self.inject_peers(words),
            "report" => return self.inject_report(words),
            other => return Err(format!("inject {other}: no such fault")),
        }
        Ok(String::new())
    }

    fn host(&self, words: &Words) -> Result<String, String> {
        let host = words.plain(2)?;
        self.find_device(host, None).map(|_| host.to_owned()).ok_or_else(|| format!("{host}: no such host"))
    }

    pub(super) fn device(&self, words: &Words) -> Result<usize, String> {
        let (host, name) = (words.plain(2)?, words.text("dev"));
        self.find_device(host, name).ok_or_else(|| format!("{host} {}: no such device", name.unwrap_or_default()))
    }

    fn inject_sa(&mut self, words: &Words) -> Outcome {
        words.only(&["host", "attr", "method", "count", "ms", "status"])?;
        let (side, fate) = match words.plain(2)? {
            "drop-request" => (Side::Request, Fate::Drop),
            "drop" | "drop-answer" => (Side::Answer, Fate::Drop),
            "delay" => {
                let ms = words.number("ms")?.ok_or("ms= is missing")?;
                (Side::Answer, Fate::Delay(Duration::from_millis(ms)))
            }
            "status" => (Side::Request, Fate::Status(words.number("status")?.ok_or("status= is missing")?)),
            other => return Err(format!("inject sa {other}: drop, drop-request, delay or status")),
        };
        self.faults.sa.push(SaFault {
            host: words.text("host").map(str::to_owned),
            attribute: words.number("attr")?,
            method: words.number("method")?,
            side,
            fate,
            left: words.number("count")?,
        });
        Ok(String::new())
    }

    fn inject_datagram(&mut self, words: &Words) -> Outcome {
        words.only(&["from", "to", "kind", "percent", "count", "ms"])?;
        let fate = match words.plain(2)? {
            "drop" => DatagramFate { drop: true, copies: 0, delay: None },
            "duplicate" => DatagramFate { drop: false, copies: 2, delay: None },
            "delay" => {
                let ms = words.number("ms")?.ok_or("ms= is missing")?;
                DatagramFate { drop: false, copies: 1, delay: Some(Duration::from_millis(ms)) }
            }
            other => return Err(format!("inject datagram {other}: drop, duplicate or delay")),
        };
        let to = words.text("to").map(str::to_owned);
        if to.is_some() && !fate.drop {
            return Err("to= goes with drop only".into());
        }
        let multicast = match words.text("kind") {
            None => None,
            Some("mcast") => Some(true),
            Some("ucast") => Some(false),
            Some(other) => return Err(format!("kind={other}: mcast or ucast")),
        };
        self.faults.datagrams.push(DatagramFault {
            from: words.text("from").map(str::to_owned),
            to,
            multicast,
            percent: words.number("percent")?.unwrap_or(100),
            fate,
            left: words.number("count")?,
        });
        Ok(String::new())
    }

    fn inject_port(&mut self, words: &Words) -> Outcome {
        const KNOWN: &[&str] = &[
            "dev",
            "port",
            "state",
            "phys_state",
            "lid",
            "lmc",
            "sm_lid",
            "sm_sl",
            "mtu",
            "max_mtu",
            "width",
            "speed",
            "link_layer",
            "subnet_timeout",
            "gid_tbl_len",
            "pkey_tbl_len",
            "pkeys",
            "gid",
            "gid_index",
            "quiet",
        ];
        words.only(KNOWN)?;
        let dev = self.device(words)?;
        let port = self.devices[dev].port_mut(words.number("port")?.unwrap_or(1)).ok_or("no such port")?;
        let over = &mut port.over;
        macro_rules! set {
            ($($field:ident),*) => {$(
                if let Some(value) = words.number(stringify!($field))? {
                    over.$field = Some(value);
                }
            )*};
        }
        set!(state, phys_state, lid, lmc, sm_lid, sm_sl, mtu, max_mtu, width, speed, subnet_timeout);
        set!(gid_tbl_len, pkey_tbl_len);
        if let Some(layer) = words.text("link_layer") {
            over.link_layer = Some(link_layer(layer)?);
        }
        if let Some(keys) = words.text("pkeys") {
            let keys: Option<Vec<u16>> = keys.split(',').filter(|k| !k.is_empty()).map(parse).collect();
            over.pkeys = Some(keys.ok_or("pkeys= is a list like 0xffff,0x8001")?);
        }
        if let Some(text) = words.text("gid") {
            over.gids.insert(words.number("gid_index")?.unwrap_or(0), gid(text)?);
        }
        if words.text("quiet").is_some() {
            port.changes();
        }
        self.notice_changes(dev);
        Ok(String::new())
    }

    fn add_device(&mut self, words: &Words) -> Outcome {
        words.only(&["ports", "guid", "lid", "sm_lid"])?;
        let host = self.host(words)?;
        let name = words.plain(3)?.to_owned();
        if self.find_device(&host, Some(&name)).is_some() {
            return Err(format!("{host} has a device {name}"));
        }
        let count = self.devices.len() as u64;
        let node_guid = words.number("guid")?.unwrap_or(0x0002_c903_00f0_0000 + (count << 8));
        let mut ports = Vec::new();
        for (index, layer) in words.text("ports").unwrap_or("eth").split(',').enumerate() {
            let mut port = Port::imaginary(node_guid + index as u64 + 1);
            port.over.link_layer = Some(link_layer(layer)?);
            // With LIDs it stands for an HCA of the subnet that nobody runs on.
            port.info.lid = words.number("lid")?.unwrap_or(0);
            port.info.sm_lid = words.number("sm_lid")?.unwrap_or(0);
            port.seen = port.view();
            ports.push(port);
        }
        let next_qpn = super::verbs::FIRST_QPN;
        self.devices.push(Device { host, name, node: None, node_guid, gone: false, ports, next_qpn });
        Ok(String::new())
    }

    /// A datagram out of nowhere.
    fn inject_raw(&mut self, words: &Words) -> Outcome {
        const KNOWN: &[&str] = &[
            "to", "dev", "port", "mgid", "mlid", "dlid", "dqpn", "slid", "sqpn", "sgid", "dgid", "pkey", "qkey", "sl",
            "flow", "tclass", "hop", "grh", "data", "count",
        ];
        words.only(KNOWN)?;
        let payload = unhex(words.text("data").unwrap_or_default()).ok_or("data= is hexadecimal")?;
        if payload.len() > 4096 {
            return Err("more than 4096 bytes".into());
        }
        let (mut dlid, mut dgid, mut dqpn) = (0, Gid::default(), ib::MULTICAST_QPN);
        if let Some(host) = words.text("to") {
            let dev = self.find_device(host, words.text("dev")).ok_or_else(|| format!("{host}: no such device"))?;
            let number = words.number("port")?.unwrap_or(1);
            let view = self.devices[dev].port(number).ok_or("no such port")?.view();
            let qpn = self.qps.iter().filter(|(k, q)| k.0 == dev && q.port == number).map(|(k, _)| k.1).min();
            (dlid, dgid, dqpn) = (view.lid, view.gid(0).unwrap_or_default(), qpn.unwrap_or(0));
        } else if let Some(text) = words.text("mgid") {
            dgid = gid(text)?;
            let mut members = self.devices.iter().flat_map(|d| &d.ports);
            dlid = members.find_map(|p| p.joined.get(&dgid)).map(|m| m.mlid).ok_or("nobody is in that group")?;
        }
        let datagram = Datagram {
            from: None,
            slid: words.number("slid")?.unwrap_or(1),
            dlid: words.number("dlid")?.or(words.number("mlid")?).unwrap_or(dlid),
            sl: words.number("sl")?.unwrap_or(0),
            sqpn: words.number("sqpn")?.unwrap_or(1),
            dqpn: words.number("dqpn")?.unwrap_or(dqpn),
            pkey: words.number("pkey")?.unwrap_or(0xffff),
            qkey: words.number("qkey")?.unwrap_or(ib::GSI_QKEY),
            grh: (words.text("grh") != Some("no"))
                .then(|| -> Result<Grh, String> {
                    Ok(Grh {
                        sgid: words.text("sgid").map_or(Ok(Gid::default()), gid)?,
                        dgid: words.text("dgid").map_or(Ok(dgid), gid)?,
                        flow_label: words.number("flow")?.unwrap_or(0),
                        tclass: words.number("tclass")?.unwrap_or(0),
                        hop_limit: words.number("hop")?.unwrap_or(0),
                    })
                })
                .transpose()?,
            imm: None,
            solicited: false,
            payload,
        };
        for _ in 0..words.number("count")?.unwrap_or(1u32).min(100_000) {
            self.deliver(&datagram);
        }
        Ok(String::new())
    }
}

fn link_layer(name: &str) -> Result<u8, String> {
    match name {
        "ib" | "infiniband" => Ok(LINK_INFINIBAND),
        "eth" | "ethernet" => Ok(LINK_ETHERNET),
        other => Err(format!("{other}: ib or eth")),
    }
}
