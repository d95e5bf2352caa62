//! What a client costs: nothing from the heap for a request that is answered at once, and little
//! for a connection that is idle.
#![allow(unsafe_code)] // a counting allocator is an unsafe trait

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use ibacm::server::{ClientId, Limits, Outcome, Ready, Server, Service};
use mio::Poll;

thread_local! {
    /// Calls of the allocator and bytes in use, of this thread.
    static COUNTS: Cell<(usize, isize)> = const { Cell::new((0, 0)) };
}

struct Counting;

fn count(bytes: isize) {
    // Without a value while the thread ends: nobody looks then.
    let _ = COUNTS.try_with(|counts| {
        let (calls, used) = counts.get();
        counts.set((calls + 1, used + bytes));
    });
}

// SAFETY: everything is handed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size().cast_signed());
        // SAFETY: the caller keeps the promises, which are the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-layout.size().cast_signed());
        // SAFETY: the caller keeps the promises, which are the same.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Answers at once, with 88 bytes.
struct Cached;

impl Service for Cached {
    fn request(&mut self, _client: ClientId, msg: &[u8], out: &mut Vec<u8>) -> Outcome {
        out.extend_from_slice(msg);
        Outcome::Replied
    }

    fn closed(&mut self, _client: ClientId) {}
}

fn request() -> Vec<u8> {
    let mut bytes = vec![0; 88];
    bytes[..2].copy_from_slice(&[1, 1]);
    bytes[6..8].copy_from_slice(&88u16.to_ne_bytes());
    bytes
}

#[test]
fn an_answer_from_the_cache_allocates_nothing() {
    let poll = Poll::new().unwrap();
    let mut server = Server::new(poll.registry(), Limits::default()).unwrap();
    let (ours, mut client) = UnixStream::pair().unwrap();
    let id = server.insert(ours.into()).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let (message, mut reply) = (request(), [0; 256]);
    let ready = Ready { readable: true, ..Ready::default() };
    let before = COUNTS.get();
    for _ in 0..1_000 {
        client.write_all(&message).unwrap();
        server.on_client(id, ready, 5, &mut Cached);
        assert_eq!(client.read(&mut reply).unwrap(), 88);
        assert!(!server.has_pending());
    }
    assert_eq!(COUNTS.get(), before);
}

#[test]
fn an_idle_connection_is_small() {
    let poll = Poll::new().unwrap();
    let mut server = Server::new(poll.registry(), Limits::default()).unwrap();
    let mut clients = Vec::with_capacity(256);
    let before = COUNTS.get().1;
    for _ in 0..256 {
        let (ours, mut client) = UnixStream::pair().unwrap();
        let id = server.insert(ours.into()).unwrap();
        // A partial message, and its end: the buffer for it does not stay.
        client.write_all(&request()[..50]).unwrap();
        let ready = Ready { readable: true, ..Ready::default() };
        server.on_client(id, ready, 5, &mut Cached);
        client.write_all(&request()[50..]).unwrap();
        server.on_client(id, ready, 5, &mut Cached);
        clients.push(client);
    }
    let each = (COUNTS.get().1 - before) / 256;
    println!("{each} bytes for an idle connection");
    assert!(each <= 160, "{each} bytes");
}
