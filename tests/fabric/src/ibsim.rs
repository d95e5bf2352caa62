//! A client of ibsim: one for each HCA that a host uses.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

const MAGIC: u32 = 0xdead_beef;
const CTL_SIZE: usize = 80;
const PACKET_SIZE: usize = 288;
/// ibsim names our sockets by a number of our choice. Other clients take their process id, which is smaller.
const FIRST_ID: u32 = 0x4000_0000;
/// How long ibsim may take for an answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Kinds of control message.
#[allow(missing_docs, reason = "named as ibsim names them")]
pub mod ctl {
    pub const CONNECT: u32 = 1;
    pub const DISCONNECT: u32 = 2;
    pub const NODEINFO: u32 = 7;
    pub const PORTINFO: u32 = 8;
    pub const PKEYS: u32 = 10;
}

/// Attribute PortInfo of subnet management.
pub const SMP_PORTINFO: u16 = 0x15;
/// Attribute P_KeyTable of subnet management.
pub const SMP_PKEYS: u16 = 0x16;

/// A MAD on its way through ibsim.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields of a packet")]
pub struct Packet {
    pub dlid: u16,
    pub slid: u16,
    pub dqp: u32,
    pub sqp: u32,
    /// 110: nobody there.
    pub status: u32,
    pub mad: [u8; 256],
}

impl Packet {
    /// A question of subnet management: to a LID, or (0) to the node that the client is attached to.
    pub fn smp_get(lid: u16, attribute: u16, modifier: u32, tid: u64) -> Self {
        let mut mad = [0; 256];
        // Base version, class (LID-routed or directed), class version, method Get.
        mad[..4].copy_from_slice(&[1, if lid == 0 { 0x81 } else { 1 }, 1, 1]);
        mad[8..16].copy_from_slice(&tid.to_be_bytes());
        mad[16..18].copy_from_slice(&attribute.to_be_bytes());
        mad[20..24].copy_from_slice(&modifier.to_be_bytes());
        if lid == 0 {
            // A directed route of no hops, with the permissive LID at both ends.
            mad[32..36].fill(0xff);
        }
        let (dlid, slid) = if lid == 0 { (0xffff, 0xffff) } else { (lid, 0) };
        Packet { dlid, slid, dqp: 0, sqp: 0, status: 0, mad }
    }

    fn encode(&self) -> [u8; PACKET_SIZE] {
        let mut p = [0; PACKET_SIZE];
        // The LID stands as it does in libibumad's header: two big-endian bytes at the start of a word.
        p[0..2].copy_from_slice(&self.dlid.to_be_bytes());
        p[4..6].copy_from_slice(&self.slid.to_be_bytes());
        p[8..12].copy_from_slice(&self.dqp.to_be_bytes());
        p[12..16].copy_from_slice(&self.sqp.to_be_bytes());
        p[16..20].copy_from_slice(&self.status.to_be_bytes());
        p[24..32].copy_from_slice(&256u64.to_be_bytes());
        p[32..].copy_from_slice(&self.mad);
        p
    }

    fn decode(p: &[u8; PACKET_SIZE]) -> Self {
        let word = |at: usize| u32::from_be_bytes(p[at..at + 4].try_into().expect("four bytes"));
        Packet {
            dlid: u16::from_be_bytes([p[0], p[1]]),
            slid: u16::from_be_bytes([p[4], p[5]]),
            dqp: word(8),
            sqp: word(12),
            status: word(16),
            mad: p[32..].try_into().expect("256 bytes"),
        }
    }
}

/// A connection to ibsim, attached to one node.
#[derive(Debug)]
pub struct Client {
    ctl: UnixDatagram,
    data: UnixDatagram,
    number: u32,
}

fn address(base: &str, what: &str) -> io::Result<SocketAddr> {
    // ibsim counts a trailing NUL in its names.
    SocketAddr::from_abstract_name(format!("{base}:{what}\0"))
}

fn request(client: u32, kind: u32, data: &[u8]) -> [u8; CTL_SIZE] {
    let mut m = [0; CTL_SIZE];
    m[0..4].copy_from_slice(&MAGIC.to_ne_bytes());
    m[4..8].copy_from_slice(&client.to_ne_bytes());
    m[8..12].copy_from_slice(&kind.to_ne_bytes());
    m[16..16 + data.len()].copy_from_slice(data);
    m
}

impl Client {
    /// Attaches to a node. `slot` tells this process's clients apart; one with `issm` gets the SA's reports.
    pub fn connect(base: &str, slot: u32, node: &str, issm: bool) -> io::Result<Self> {
        let id = FIRST_ID + slot;
        let ctl = UnixDatagram::bind_addr(&address(base, &format!("ctl{id}"))?)?;
        ctl.connect_addr(&address(base, "ctl")?)?;
        let data = UnixDatagram::bind_addr(&address(base, &format!("in{id}"))?)?;
        let mut info = Vec::from(id.to_ne_bytes());
        let qp = 1u32;
        info.extend_from_slice(&qp.to_ne_bytes());
        info.extend_from_slice(&u32::from(issm).to_ne_bytes());
        info.extend_from_slice(node.as_bytes().get(..31).unwrap_or(node.as_bytes()));
        ctl.set_read_timeout(Some(PATIENCE))?;
        ctl.send(&request(0, ctl::CONNECT, &info))?;
        let mut client = Client { ctl, data, number: 0 };
        let (kind, reply) = client.reply()?;
        if kind != ctl::CONNECT {
            return Err(io::Error::other(format!("ibsim refuses a client at {node:?}")));
        }
        client.number = u32::from_ne_bytes(reply[..4].try_into().expect("four bytes"));
        client.data.connect_addr(&address(base, &format!("out{}", client.number))?)?;
        Ok(client)
    }

    /// One question and its answer; only before [`Client::set_nonblocking`].
    pub fn ask(&self, kind: u32) -> io::Result<[u8; 64]> {
        self.send_request(kind)?;
        Ok(self.reply()?.1)
    }

    /// From now on nothing here waits.
    pub fn set_nonblocking(&self) -> io::Result<()> {
        self.ctl.set_nonblocking(true)?;
        self.data.set_nonblocking(true)
    }

    /// Sends a question; the answer comes on the control socket. About ports, ibsim speaks of the first one only.
    pub fn send_request(&self, kind: u32) -> io::Result<()> {
        self.ctl.send(&request(self.number, kind, &[])).map(drop)
    }

    /// The next answer: its kind and data.
    pub fn reply(&self) -> io::Result<(u32, [u8; 64])> {
        let mut m = [0; CTL_SIZE];
        if self.ctl.recv(&mut m)? != CTL_SIZE {
            return Err(io::Error::from(io::ErrorKind::InvalidData));
        }
        let kind = u32::from_ne_bytes(m[8..12].try_into().expect("four bytes"));
        Ok((kind, m[16..].try_into().expect("64 bytes")))
    }

    /// ibsim's number of this client: it belongs into the top 16 bits of a request's transaction id.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Sends a MAD.
    pub fn send(&self, packet: &Packet) -> io::Result<()> {
        self.data.send(&packet.encode()).map(drop)
    }

    /// The next MAD.
    pub fn recv(&self) -> io::Result<Packet> {
        let mut p = [0; PACKET_SIZE];
        if self.data.recv(&mut p)? != PACKET_SIZE {
            return Err(io::Error::from(io::ErrorKind::InvalidData));
        }
        Ok(Packet::decode(&p))
    }

    /// Descriptor of the control socket.
    pub fn ctl(&self) -> &UnixDatagram {
        &self.ctl
    }

    /// Descriptor of the MAD socket.
    pub fn data(&self) -> &UnixDatagram {
        &self.data
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // The slot is wanted by the next client; if ibsim is gone, so is the slot.
        let _ = self.ctl.send(&request(self.number, ctl::DISCONNECT, &[]));
    }
}
