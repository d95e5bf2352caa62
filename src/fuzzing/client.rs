//! A client's bytes, in pieces of any size, as the server takes them: a real connection, of which nobody but this has the
//! other end.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use ibacm_wire::client::{HDR_LEN, OP_MASK, OP_RESOLVE};

use super::input::Input;
use super::world::World;
use super::{decode, sa};
use crate::conn::{Conn, MAX_IN_FLIGHT, MAX_OUTPUT};
use crate::engine::{self, Providers};
use crate::frame::{ClientId, MAX_REQUEST, Outcome, Service};

/// What the server's shared buffer has.
const BUFFER: usize = 64 * 1024;

/// The service as the server sees it.
struct Requests<'a> {
    world: &'a mut World,
    replied: &'a mut usize,
    pending: &'a mut usize,
}

impl Service for Requests<'_> {
    fn request(&mut self, _: ClientId, msg: &[u8], out: &mut Vec<u8>) -> Outcome {
        assert!((HDR_LEN..=MAX_REQUEST).contains(&msg.len()));
        let client = self.world.client(0);
        match self.world.request(client, msg, out) {
            engine::Outcome::Replied => {
                *self.replied += 1;
                Outcome::Replied
            }
            engine::Outcome::Pending => {
                *self.pending += 1;
                Outcome::Pending
            }
            engine::Outcome::Close => Outcome::Close,
        }
    }

    fn closed(&mut self, _: ClientId) {}
}

/// Counts the replies in `bytes`, which have to be whole.
fn replies(mut bytes: &[u8]) -> usize {
    let mut count = 0;
    while !bytes.is_empty() {
        let length = [bytes[6], bytes[7]];
        let resolve = bytes[1] & OP_MASK == OP_RESOLVE;
        let length = if resolve { u16::from_ne_bytes(length) } else { u16::from_be_bytes(length) };
        bytes = bytes.get(usize::from(length)..).expect("a whole reply");
        count += 1;
    }
    count
}

/// The first byte says how long pieces are, the rest is what the client sends.
pub fn client(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let config = decode::config(&mut input);
    let size = 1 + usize::from(input.short() & 0x3ff);
    let mut world = World::new(config, Providers::default());
    world.start(0xff, 0xf);
    let (Ok((mut peer, own)), id) = (UnixStream::pair(), ClientId::new(0, 0)) else { return };
    own.set_nonblocking(true).and_then(|()| peer.set_nonblocking(true)).expect("a flag of a socket");
    let mut conn = Conn::new(own.into());
    let (mut replied, mut pending, mut answered) = (0, 0, 0);
    let (mut buffer, mut out, mut got) = (vec![0; BUFFER], Vec::new(), Vec::new());
    let mut closed = false;
    for piece in input.all().chunks(size) {
        if peer.write_all(piece).is_err() || closed {
            break;
        }
        conn.note(true, false);
        loop {
            let mut svc = Requests { world: &mut world, replied: &mut replied, pending: &mut pending };
            // behind what others were answered
            out.extend_from_slice(b"others");
            let taken = conn.take(id, &mut buffer, &mut out, &mut svc);
            assert!(out.starts_with(b"others") && conn.in_flight <= MAX_IN_FLIGHT);
            let after = conn.answer(taken, &out["others".len()..]);
            out.clear();
            assert!(conn.buffered() <= MAX_OUTPUT + BUFFER + MAX_REQUEST);
            closed |= after.close.is_some();
            if !after.again || closed {
                break;
            }
        }
        while let Ok(count @ 1..) = peer.read(&mut buffer) {
            got.extend_from_slice(&buffer[..count]);
        }
        world.turn();
        sa::answer_all(&mut world);
        for (_, reply) in std::mem::take(&mut world.replies) {
            // not so when it is closed: then the server has forgotten the client
            answered += 1;
            conn.reply(&reply);
        }
    }
    world.end();
    for (_, reply) in std::mem::take(&mut world.replies) {
        answered += 1;
        conn.reply(&reply);
    }
    while let Ok(count @ 1..) = peer.read(&mut buffer) {
        got.extend_from_slice(&buffer[..count]);
    }
    assert_eq!(answered, pending, "late replies");
    let seen = replies(&got);
    assert!(seen == replied + answered || closed || conn.closing().is_some(), "{seen} of {replied} and {answered}");
    assert!(seen <= replied + answered);
}
