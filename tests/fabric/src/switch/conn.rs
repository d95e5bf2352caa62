//! Connections of the programs in the hosts.

use std::collections::HashMap;
use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;

use nix::sys::socket::{setsockopt, sockopt};

use super::Switch;
use crate::proto::{self, Msg, conn, op};

/// Completions and events that a program has not read pile up here.
const SEND_BUFFER: usize = 16 << 20;

/// One connection.
#[derive(Debug)]
pub struct Conn {
    /// Its name in the switch.
    pub token: u64,
    /// The host at the other end.
    pub host: String,
    /// The process at the other end.
    pub pid: u32,
    /// What it is for.
    pub kind: Kind,
    stream: UnixStream,
}

/// What a connection is for.
#[derive(Debug)]
pub enum Kind {
    /// Not introduced yet.
    New,
    /// Requests of a device context.
    Control(Control),
    /// Completions of a CQ.
    Cq {
        /// Token of its context's control connection.
        ctx: u64,
        /// Its handle there.
        handle: u32,
    },
    /// Asynchronous events.
    Async {
        /// Token of its context's control connection.
        ctx: u64,
    },
    /// MADs of an open port.
    Umad(super::mad::Umad),
}

/// A device context.
#[derive(Debug, Default)]
pub struct Control {
    /// The opened device.
    pub dev: Option<usize>,
    /// Opened only to ask questions.
    pub peek: bool,
    /// Connections of its CQs by handle.
    pub cqs: HashMap<u32, Option<u64>>,
    /// The next CQ's handle.
    pub next_cq: u32,
}

impl Conn {
    /// A connection that has not said what it is for.
    pub fn new(token: u64, stream: UnixStream) -> Self {
        if let Err(e) = setsockopt(&stream, sockopt::SndBufForce, &SEND_BUFFER) {
            eprintln!("connection {token}: send buffer: {e}");
        }
        Conn { token, host: String::new(), pid: 0, kind: Kind::New, stream }
    }

    /// The next message; `None` at the end.
    pub fn recv(&mut self) -> io::Result<Option<Msg>> {
        let mut packet = [0; proto::FIXED + proto::MAX_PAYLOAD];
        match self.stream.read(&mut packet)? {
            0 => Ok(None),
            n => Msg::decode(&packet[..n]).map(Some).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData)),
        }
    }

    /// Sends a message; false if there is no room or nobody there.
    pub fn send(&mut self, msg: &Msg) -> bool {
        self.stream.write(&msg.encode()).is_ok()
    }
}

impl Switch {
    pub(super) fn dispatch(&mut self, token: u64, msg: Msg) {
        let Some(conn) = self.conns.get(&token) else { return };
        match conn.kind {
            Kind::New => self.hello(token, msg),
            Kind::Control(_) => self.control(token, msg),
            Kind::Umad(_) => self.umad(token, msg),
            // Nothing is expected here.
            Kind::Cq { .. } | Kind::Async { .. } => {}
        }
    }

    pub(super) fn reply(&mut self, token: u64, msg: Msg) {
        if let Some(conn) = self.conns.get_mut(&token)
            && !conn.send(&msg)
        {
            eprintln!("connection {token}: reply lost");
        }
    }

    fn hello(&mut self, token: u64, msg: Msg) {
        let mut reply = Msg::new(op::HELLO);
        let mut names = msg.payload.split(|&b| b == 0).map(|n| String::from_utf8_lossy(n).into_owned());
        let (host, device) = (names.next().unwrap_or_default(), names.next().unwrap_or_default());
        let kind = if msg.op != op::HELLO || msg.index != proto::VERSION {
            Err(nix::libc::EPROTO)
        } else {
            self.introduce(token, &host, &device, &msg)
        };
        match kind {
            Ok(kind) => {
                reply.id = token;
                if let Some(conn) = self.conns.get_mut(&token) {
                    conn.host = host;
                    conn.pid = msg.v[0];
                    conn.kind = kind;
                }
            }
            Err(e) => reply.err = e,
        }
        self.reply(token, reply);
    }

    fn introduce(&mut self, token: u64, host: &str, device: &str, msg: &Msg) -> Result<Kind, i32> {
        match msg.flags {
            conn::CONTROL => Ok(Kind::Control(Control::default())),
            conn::CQ => {
                let ctx = self.context(msg.id).ok_or(nix::libc::EINVAL)?;
                *ctx.cqs.get_mut(&msg.obj).ok_or(nix::libc::EINVAL)? = Some(token);
                Ok(Kind::Cq { ctx: msg.id, handle: msg.obj })
            }
            conn::ASYNC => {
                self.context(msg.id).ok_or(nix::libc::EINVAL)?;
                Ok(Kind::Async { ctx: msg.id })
            }
            conn::UMAD => {
                let dev = self.find_device(host, Some(device)).filter(|&d| !self.devices[d].gone);
                let dev = dev.ok_or(nix::libc::ENODEV)?;
                self.devices[dev].port(msg.port).ok_or(nix::libc::EINVAL)?;
                Ok(Kind::Umad(super::mad::Umad::new(dev, msg.port)))
            }
            _ => Err(nix::libc::EINVAL),
        }
    }

    pub(super) fn context(&mut self, token: u64) -> Option<&mut Control> {
        match self.conns.get_mut(&token).map(|c| &mut c.kind) {
            Some(Kind::Control(control)) => Some(control),
            _ => None,
        }
    }

    /// An asynchronous event for everybody who has this device open.
    pub fn raise(&mut self, dev: usize, event: u32, obj: u32) {
        let contexts: Vec<u64> = self
            .conns
            .values()
            .filter(|c| matches!(&c.kind, Kind::Control(control) if control.dev == Some(dev) && !control.peek))
            .map(|c| c.token)
            .collect();
        for ctx in contexts {
            self.raise_in(ctx, event, obj);
        }
    }

    pub(super) fn raise_in(&mut self, context: u64, event: u32, obj: u32) {
        let msg = Msg { index: event, obj, ..Msg::new(op::EVENT) };
        for conn in self.conns.values_mut() {
            if matches!(conn.kind, Kind::Async { ctx } if ctx == context) && !conn.send(&msg) {
                eprintln!("connection {}: event lost", conn.token);
            }
        }
    }

    /// Ends all connections of a device that is unplugged.
    pub(super) fn hang_up(&mut self, dev: usize) {
        let contexts: Vec<u64> = self
            .conns
            .values()
            .filter(|c| match &c.kind {
                Kind::Control(control) => control.dev == Some(dev),
                Kind::Umad(umad) => umad.dev == dev,
                _ => false,
            })
            .map(|c| c.token)
            .collect();
        let dependent: Vec<u64> = self
            .conns
            .values()
            .filter(|c| match c.kind {
                Kind::Cq { ctx, .. } | Kind::Async { ctx } => contexts.contains(&ctx),
                _ => false,
            })
            .map(|c| c.token)
            .collect();
        for token in contexts.into_iter().chain(dependent) {
            self.close(token);
        }
    }
}
