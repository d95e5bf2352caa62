#![allow(unsafe_code)] // system calls; one call per block

use std::os::fd::FromRawFd;
use std::os::unix::net::UnixStream;

use super::*;
use crate::engine::Outcome;
use crate::local_service::message::Question;
use crate::local_service::message::tests::{RESOLVE, message};
use crate::sock::socklen;

struct Nobody;

impl Resolver for Nobody {
    fn ask(&mut self, _: ClientId, question: &Question, _: bool, _: &mut Vec<u8>) -> Outcome {
        panic!("{question:?} does not come from the kernel")
    }
}

/// A socket of the protocol on which processes talk to each other, bound to the group.
fn user_socket() -> OwnedFd {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: no memory is passed.
    let raw = unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_USERSOCK) };
    assert!(raw >= 0, "{}", io::Error::last_os_error());
    // SAFETY: the kernel has just made this descriptor for us and nobody else has its number.
    let fd = unsafe { OwnedFd::from_raw_fd(raw) };
    let addr = netlink_sock::address(LISTENERS);
    let size = socklen::<libc::sockaddr_nl>();
    // SAFETY: the pointer is to a live sockaddr_nl and the length says so.
    let bound = unsafe { libc::bind(fd.as_raw_fd(), (&raw const addr).cast(), size) };
    assert_eq!(bound, 0, "{}", io::Error::last_os_error());
    fd
}

#[test]
fn only_netlink_sockets_are_adopted() {
    let (one, _two) = UnixStream::pair().unwrap();
    let error = RdmaNl::adopt(one.into()).expect_err("no netlink socket");
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    assert!(RdmaNl::adopt(std::fs::File::open("/dev/null").unwrap().into()).is_err());
}

#[test]
fn an_adopted_socket_is_read_without_waiting_and_others_are_not_believed() {
    let mut adopted = RdmaNl::adopt(user_socket()).unwrap();
    let other = user_socket();
    // there is no kernel socket behind the group: the message went out all the same
    let count = DATAGRAMS_PER_TURN + 3;
    for n in 0..count {
        let sent = netlink_sock::send(&other, LISTENERS, &message(RESOLVE, n as u32, &[]));
        assert_eq!(sent.unwrap_err().raw_os_error(), Some(libc::ECONNREFUSED));
    }
    assert!(adopted.has_pending(), "something may have waited in it");
    adopted.run_pending(Time(0), &mut Nobody);
    assert!(adopted.has_pending(), "one turn has its bound");
    adopted.on_ready(Time(0), &mut Nobody);
    assert!(!adopted.has_pending());
    let wanted = Counters { foreign: count as u64, ..Counters::default() };
    assert_eq!((adopted.counters(), adopted.next_deadline()), (wanted, Time::NEVER));
    adopted.close();
    let mut into = [0; 64];
    let silent = netlink_sock::receive(&other, &mut into).unwrap_err();
    assert_eq!(silent.kind(), io::ErrorKind::WouldBlock, "nobody was answered");
}

/// Answers with distinct sequence numbers.
fn answers(count: usize) -> Vec<Answer> {
    let mut service = LocalService::new(1);
    let mut out = Vec::new();
    for n in 0..count {
        service.received(Time(0), &message(RESOLVE, n as u32, &[]), &mut Nobody, &mut |a| out.push(a));
    }
    out
}

/// A socket with room for some messages.
#[derive(Default)]
struct Narrow {
    room: usize,
    error: i32,
    took: Vec<Vec<u8>>,
}

impl Narrow {
    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.room == 0 {
            return Err(io::Error::from_raw_os_error(self.error));
        }
        self.room -= 1;
        self.took.push(bytes.to_vec());
        Ok(())
    }
}

#[test]
fn answers_wait_in_order_while_the_socket_is_full() {
    for error in [libc::EAGAIN, libc::ENOBUFS, libc::ENOMEM] {
        let all = answers(MAX_QUEUED + 12);
        let mut socket = Narrow { room: 10, error, ..Narrow::default() };
        let mut outbox = Outbox::new();
        for answer in &all {
            outbox.push(Time(0), *answer, &mut |b| socket.send(b));
        }
        assert_eq!((socket.took.len(), outbox.queue.len(), outbox.unsent), (10, MAX_QUEUED, 2));
        assert_eq!(outbox.retry, Time(0).plus(RETRY));
        socket.room = 5;
        outbox.flush(Time(20_000), &mut |b| socket.send(b));
        assert_eq!((socket.took.len(), outbox.retry), (15, Time(20_000).plus(RETRY)));
        socket.room = usize::MAX;
        outbox.flush(Time(40_000), &mut |b| socket.send(b));
        assert_eq!((outbox.queue.len(), outbox.retry), (0, Time::NEVER));
        let sent = all.iter().take(MAX_QUEUED + 10).map(Answer::as_bytes);
        assert!(socket.took.iter().map(Vec::as_slice).eq(sent), "all, once each, in order");
    }
}

#[test]
fn an_answer_that_is_not_wanted_holds_up_nobody() {
    let mut socket = Narrow { error: libc::EPERM, ..Narrow::default() };
    let mut outbox = Outbox::new();
    for answer in answers(3) {
        outbox.push(Time(0), answer, &mut |b| socket.send(b));
    }
    assert_eq!((outbox.queue.len(), outbox.unsent, outbox.retry), (0, 3, Time::NEVER));
}
