//! One client connection: the bytes that wait each way, and when to stop reading.
//!
//! A connection owns no buffer while nothing waits: requests are read into a buffer that all
//! connections share and answered into another one, so an idle client costs [`Conn`]'s size and
//! its descriptor.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use crate::frame::{ClientId, MAX_REQUEST, Outcome, Reason, Service, frame, has_whole};
use crate::sock;

/// Requests of one client that may wait for a late reply; more are not read. Fewer where clients have many together.
pub const MAX_IN_FLIGHT: u16 = 256;
/// Reply bytes that may wait for a client that does not read; more close the connection.
pub const MAX_OUTPUT: usize = 256 * 1024;
/// Requests of one client that are served in one turn of the loop.
pub const MAX_PER_TURN: usize = 256;
/// Replies of one batch are written when this much is there, so that the shared buffer stays
/// small even when each request brings the largest reply.
const FLUSH_AT: usize = 64 * 1024;

/// What the server has to do about a connection after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct After {
    /// Close it, for this reason.
    pub close: Option<Reason>,
    /// Call again: there is more to do that no event will tell of.
    pub again: bool,
    /// What the clock that runs against the client should do.
    pub timer: Timer,
}

/// The clock for an unfinished message, and for the last bytes of a connection being closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timer {
    /// Nothing is owed.
    Off,
    /// Something is owed, and was owed before: start the clock only if it stands.
    On,
    /// A new debt began in this turn.
    Restart,
}

/// The state of one connection.
#[derive(Debug)]
pub(crate) struct Conn {
    fd: OwnedFd,
    /// Requests that were given to the service and are not answered yet.
    pub in_flight: u16,
    /// How many may be.
    pub share: u16,
    /// There may be bytes to read: an event said so and no short read has denied it.
    readable: bool,
    /// The end of the stream is in the socket: only a read of 0 bytes ends the reading.
    end_follows: bool,
    /// The end of the stream was read.
    ended: bool,
    /// Reading waits for replies to be taken or to be made.
    stalled: bool,
    /// Set when the connection is only kept to write what was answered.
    closing: Option<Reason>,
    /// Write events are asked for.
    pub writing: bool,
    /// On the server's list of those to be called again.
    pub queued: bool,
    /// When the client's time is over, in microseconds; 0 while no clock runs.
    pub deadline: u64,
    /// Neighbours in the server's list of running clocks.
    pub before: u32,
    /// See `before`.
    pub after: u32,
    /// What this connection counts for in the server's sum of buffered bytes.
    pub accounted: u32,
    /// Bytes read and not served: a part of a message, or what came while reading was stopped.
    input: Vec<u8>,
    /// Bytes answered that the socket did not take.
    output: Vec<u8>,
}

impl Conn {
    pub fn new(fd: OwnedFd) -> Conn {
        Conn {
            fd,
            in_flight: 0,
            share: MAX_IN_FLIGHT,
            readable: false,
            end_follows: false,
            ended: false,
            stalled: false,
            closing: None,
            writing: false,
            queued: false,
            deadline: 0,
            before: u32::MAX,
            after: u32::MAX,
            accounted: 0,
            input: Vec::new(),
            output: Vec::new(),
        }
    }

    #[cfg(test)]
    pub fn fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.fd.as_fd()
    }

    pub fn raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Bytes of memory that wait in buffers.
    #[inline(always)]
    pub fn buffered(&self) -> usize {
        self.input.capacity() + self.output.capacity()
    }

    /// Whether write events are needed.
    pub fn wants_write(&self) -> bool {
        !self.output.is_empty()
    }

    /// Notes what an event said.
    pub fn note(&mut self, readable: bool, read_closed: bool) {
        self.readable |= readable || read_closed;
        self.end_follows |= read_closed;
    }

    /// Marks the connection as one to be closed at its next turn.
    pub fn doom(&mut self, reason: Reason) {
        self.closing = Some(reason);
        self.output = Vec::new();
    }

    /// The first half of a turn: write what waits, read once if that may be done, serve what is whole.
    ///
    /// The replies are put behind what `out` holds for others, or written where they became too many; [`Conn::answer`] has
    /// to be called with them. The usual case (one request, answered at once) is one recv and touches no memory but `buf`
    /// and `out`.
    pub fn take(
        &mut self,
        id: ClientId,
        buf: &mut [u8],
        out: &mut Vec<u8>,
        svc: &mut impl Service,
    ) -> Result<usize, Reason> {
        if !self.output.is_empty() {
            self.flush()?;
        }
        if self.closing.is_some() || self.must_stall() {
            return Ok(0);
        }
        let mut have = self.input.len();
        let room = buf.get_mut(..have).ok_or(Reason::Overflow)?;
        room.copy_from_slice(&self.input);
        if self.readable && !self.ended && !has_whole(&self.input) {
            self.read(buf, &mut have)?;
        }
        let bytes = buf.get(..have).unwrap_or_default();
        let served = self.serve(id, bytes, out, svc)?;
        if served < have || self.input.capacity() > 0 {
            self.keep_input(bytes.get(served..).unwrap_or_default());
        }
        Ok(served)
    }

    /// The second half of a turn: writes the `replies` that the first one made. `taken` is what that gave back.
    pub fn answer(&mut self, taken: Result<usize, Reason>, replies: &[u8]) -> After {
        // A late reply of which only a part was taken has doomed it meanwhile: nothing may follow that part.
        if let Some(reason @ (Reason::Gone | Reason::Overflow)) = self.closing {
            return self.closed(reason);
        }
        match taken.and_then(|served| self.write_bytes(replies).map(|()| served)) {
            Ok(served) => self.settle(served > 0),
            Err(reason) => self.closed(reason),
        }
    }

    /// Lets the client send no more: what it has sent is still there to be read, and then the end of the stream.
    pub fn end_input(&mut self) {
        // Fails where the client has gone: the read says so.
        let _ = sock::end_input(self.fd.as_fd());
        self.note(true, true);
    }

    /// Reads once, behind the `have` bytes that `buf` holds already.
    #[inline(always)]
    fn read(&mut self, buf: &mut [u8], have: &mut usize) -> Result<(), Reason> {
        let room = buf.get_mut(*have..).unwrap_or_default();
        match sock::recv(self.fd.as_fd(), room) {
            Ok(0) => {
                self.ended = true;
                self.readable = false;
            }
            Ok(count) => {
                // A stream socket that gives less than there was room for is empty, and what
                // comes later is a new event; but the end of the stream has no event left.
                if count < room.len() && !self.end_follows {
                    self.readable = false;
                }
                *have += count;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.readable = false,
            Err(_) => return Err(Reason::Gone),
        }
        Ok(())
    }

    /// Hands the whole messages at the beginning of `bytes` to the service; gives back how many
    /// bytes they were. The replies are behind what was in `out`, or written where they became too many.
    fn serve(
        &mut self,
        id: ClientId,
        bytes: &[u8],
        out: &mut Vec<u8>,
        svc: &mut impl Service,
    ) -> Result<usize, Reason> {
        let (mut served, start) = (0, out.len());
        for _ in 0..MAX_PER_TURN {
            let rest = bytes.get(served..).unwrap_or_default();
            let message = match frame(rest) {
                Ok(Some(length)) => rest.get(..length),
                Ok(None) => None,
                Err(reason) => {
                    self.closing = Some(reason);
                    break;
                }
            };
            let Some(message) = message else { break };
            let before = out.len();
            match svc.request(id, message, out) {
                Outcome::Replied => {}
                Outcome::Pending => {
                    out.truncate(before);
                    self.in_flight += 1;
                }
                Outcome::Close => {
                    out.truncate(before);
                    self.closing = Some(Reason::Protocol);
                    break;
                }
            }
            served += message.len();
            if out.len() - start >= FLUSH_AT {
                let written = self.write_bytes(out.get(start..).unwrap_or_default());
                out.truncate(start);
                written?;
            }
            if self.must_stall() {
                break;
            }
        }
        Ok(served)
    }

    /// Whether no further request may be taken now.
    #[inline(always)]
    fn must_stall(&self) -> bool {
        !self.output.is_empty() || self.in_flight >= self.share
    }

    /// Whether it is read no further because others have requests under way.
    pub fn is_held(&self) -> bool {
        self.stalled && self.in_flight >= self.share && self.share < MAX_IN_FLIGHT
    }

    /// Writes whole replies, or keeps them behind those that wait already.
    fn write_bytes(&mut self, bytes: &[u8]) -> Result<(), Reason> {
        if bytes.is_empty() {
            return Ok(());
        }
        let mut taken = 0;
        if self.output.is_empty() {
            taken = match sock::send(self.fd.as_fd(), bytes) {
                Ok(taken) => taken,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
                Err(_) => return Err(Reason::Gone),
            };
        }
        let rest = bytes.get(taken..).unwrap_or_default();
        if rest.is_empty() {
            return Ok(());
        }
        if self.output.len() + rest.len() > MAX_OUTPUT {
            return Err(Reason::Overflow);
        }
        self.output.reserve_exact(rest.len());
        self.output.extend_from_slice(rest);
        Ok(())
    }

    /// Writes what waits; the buffer goes away when it is empty.
    fn flush(&mut self) -> Result<(), Reason> {
        match sock::send(self.fd.as_fd(), &self.output) {
            Ok(taken) if taken >= self.output.len() => self.output = Vec::new(),
            Ok(taken) => drop(self.output.drain(..taken)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return Err(Reason::Gone),
        }
        Ok(())
    }

    /// Keeps bytes that were read and not served.
    fn keep_input(&mut self, rest: &[u8]) {
        if rest.is_empty() {
            if self.input.capacity() > 0 {
                self.input = Vec::new();
            }
            return;
        }
        // A large buffer is not kept for a small rest.
        if self.input.capacity() > MAX_REQUEST && rest.len() <= MAX_REQUEST {
            self.input = Vec::new();
        }
        self.input.clear();
        self.input.reserve_exact(rest.len());
        self.input.extend_from_slice(rest);
    }

    /// A late reply. Errors close the connection at its next turn; `true` says that it needs one.
    pub fn reply(&mut self, bytes: &[u8]) -> bool {
        self.in_flight = self.in_flight.saturating_sub(1);
        if self.closing.is_some() {
            return false;
        }
        if let Err(reason) = self.write_bytes(bytes) {
            self.doom(reason);
            return true;
        }
        (self.stalled && !self.must_stall()) || (self.ended && self.in_flight == 0)
    }

    /// What comes after a turn; `served` says whether a message was finished in it.
    #[inline(always)]
    fn settle(&mut self, served: bool) -> After {
        let mut after = After { close: None, again: false, timer: Timer::Off };
        if let Some(reason) = self.closing {
            self.input = Vec::new();
            after.timer = Timer::On;
            after.close = self.output.is_empty().then_some(reason);
            return after;
        }
        self.stalled = self.must_stall();
        let whole = has_whole(&self.input);
        if self.stalled {
            // The client cannot finish its message while nobody reads: no clock.
            return after;
        }
        if self.ended && !whole && self.in_flight == 0 {
            after.close = Some(Reason::Gone);
            return after;
        }
        after.again = whole || self.readable;
        if !whole && !self.ended && !self.input.is_empty() {
            after.timer = if served { Timer::Restart } else { Timer::On };
        }
        after
    }

    /// The connection is of no more use.
    fn closed(&mut self, reason: Reason) -> After {
        self.doom(reason);
        After { close: Some(reason), again: false, timer: Timer::Off }
    }

    /// Why the connection is being closed, if it is.
    pub fn closing(&self) -> Option<Reason> {
        self.closing
    }
}
