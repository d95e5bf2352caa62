//! Questions to the subnet administrator, sent by this program itself through the kernel.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ibacm::sa::SaError;
use ibacm::umad::{self, UmadPort};
use ibacm_wire::sa::{self, McMember, SaMad};
use ibacm_wire::{Gid, PathRecord, path};

use super::facts::Port;

/// How often the kernel asks again within the time limit.
const RETRIES: u32 = 2;
/// Before one that is busy is asked again.
const PAUSE: Duration = Duration::from_millis(100);
/// Between looks for answers.
const TICK: Duration = Duration::from_millis(1);
/// Components of a question for one port's membership of one group: MGID and PortGID.
const MEMBER_MASK: u64 = 1 | 1 << 1;

/// What is asked.
#[derive(Clone, Copy, Debug)]
pub enum Question {
    /// The path from the port to itself.
    Myself,
    /// The port's membership of a group.
    Member(Gid),
}

impl Question {
    fn mad(self, tid: u64, port: &Port) -> SaMad {
        match self {
            Question::Myself => {
                let mut record = PathRecord::default();
                record.set_sgid(port.gid());
                record.set_dgid(port.gid());
                record.set_reversible_numpath(path::REVERSIBLE | 1);
                SaMad::path_query(tid, &record)
            }
            Question::Member(mgid) => {
                let record = McMember { mgid, port_gid: port.gid(), ..McMember::default() };
                SaMad::membership(sa::METHOD_GET, tid, &record, MEMBER_MASK)
            }
        }
    }

    fn attribute(self) -> u16 {
        match self {
            Question::Myself => sa::ATTR_PATH,
            Question::Member(_) => sa::ATTR_MCMEMBER,
        }
    }
}

/// A port through which the administrator can be asked.
pub struct Line {
    port: Port,
    umad: UmadPort,
    /// Whether nothing can be sent or received any more.
    broken: bool,
}

impl Line {
    /// Opens a port for asking.
    pub fn open(port: &Port) -> io::Result<Line> {
        let umad = UmadPort::open(&port.device, port.number, &[])?;
        Ok(Line { port: port.clone(), umad, broken: false })
    }

    /// The port.
    pub fn port(&self) -> &Port {
        &self.port
    }
}

/// A question on its way.
struct Open {
    line: usize,
    question: Question,
    tid: u64,
    /// When to ask again, after "busy".
    again: Option<Instant>,
    result: Option<Result<SaMad, SaError>>,
}

/// Asks all of these at once, each by the line with that place. Every question has a result, after `limit` at the latest.
pub fn ask(lines: &mut [Line], questions: &[(usize, Question)], limit: Duration) -> Vec<Result<SaMad, SaError>> {
    let end = Instant::now() + limit;
    let timeout = limit / (RETRIES + 1);
    let mut open: Vec<Open> = Vec::new();
    for (line, question) in questions {
        let tid = next_tid();
        let mut this = Open { line: *line, question: *question, tid, again: None, result: None };
        send(lines, &mut this, timeout);
        open.push(this);
    }
    while open.iter().any(|o| o.result.is_none()) && Instant::now() < end {
        for (place, line) in lines.iter_mut().enumerate() {
            receive(place, line, &mut open);
        }
        let now = Instant::now();
        for this in open.iter_mut().filter(|o| o.again.is_some_and(|at| at <= now)) {
            this.again = None;
            send(lines, this, timeout);
        }
        thread::sleep(TICK);
    }
    let late = |o: &Open| if o.again.is_some() { SaError::Busy } else { SaError::Timeout };
    open.into_iter().map(|o| o.result.unwrap_or_else(|| Err(late(&o)))).collect()
}

/// A number that no question of this program has had, so that what answers an earlier one late is told apart. It has
/// 32 bits: the rest is the kernel's.
fn next_tid() -> u64 {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    u64::from(NEXT.fetch_add(1, Ordering::Relaxed))
}

fn send(lines: &mut [Line], open: &mut Open, timeout: Duration) {
    let Some(line) = lines.get_mut(open.line) else {
        open.result = Some(Err(SaError::Down));
        return;
    };
    let mad = open.question.mad(open.tid, &line.port);
    let times = (u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX).max(1), RETRIES);
    let (lid, sl, pkey) = (line.port.sm_lid, line.port.sm_sl, line.port.sa_pkey_index());
    if line.broken || line.umad.send(lid, sl, pkey, times, &mad.0).is_err() {
        open.result = Some(Err(SaError::Down));
    }
}

fn receive(place: usize, line: &mut Line, open: &mut [Open]) {
    while !line.broken {
        let received = match line.umad.recv() {
            Ok(Some(received)) => received,
            Ok(None) => return,
            Err(_) => {
                line.broken = true;
                for this in open.iter_mut().filter(|o| o.line == place && o.result.is_none()) {
                    this.result = Some(Err(SaError::Down));
                }
                return;
            }
        };
        let mad = SaMad(received.mad);
        let mine = |o: &&mut Open| o.line == place && o.result.is_none() && mad.tid() as u32 == o.tid as u32;
        let Some(this) = open.iter_mut().find(mine) else { continue };
        match read(this.question, received.status, &mad) {
            Err(SaError::Busy) => this.again = Some(Instant::now() + PAUSE),
            result => this.result = Some(result.map(|()| mad)),
        }
    }
}

/// What has come for a question: an answer to it, or the question itself with the reason.
fn read(question: Question, umad_status: u32, mad: &SaMad) -> Result<(), SaError> {
    match umad_status {
        0 => {}
        umad::TIMED_OUT => return Err(SaError::Timeout),
        umad::TOO_LONG => return Err(SaError::Malformed),
        _ => return Err(SaError::Down),
    }
    match mad.status() {
        0 => {}
        s if s >> 8 == 0 && s & 0xff == sa::STATUS_BUSY => return Err(SaError::Busy),
        s => return Err(SaError::Status(s)),
    }
    let answer = mad.is_sa() && mad.method() == sa::METHOD_GET | sa::METHOD_RESP;
    if answer && mad.attribute() == question.attribute() { Ok(()) } else { Err(SaError::Malformed) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_and_answers() {
        let gid = Gid([1; 16]);
        let port = Port { gids: vec![gid], ..Port::default() };
        let mgid = Gid([0xff; 16]);
        let mad = Question::Member(mgid).mad(7, &port);
        assert_eq!((mad.component_mask(), mad.method(), mad.tid()), (3, sa::METHOD_GET, 7));
        assert_eq!((mad.mcmember().mgid, mad.mcmember().port_gid), (mgid, gid));
        let mad = Question::Myself.mad(8, &port);
        assert_eq!((mad.path().sgid(), mad.path().dgid()), (gid, gid));
        assert_eq!(read(Question::Myself, 0, &mad), Err(SaError::Malformed), "the question is no answer");
        let mut answer = mad;
        answer.0[3] |= sa::METHOD_RESP;
        assert_eq!(read(Question::Myself, 0, &answer), Ok(()));
        assert_eq!(read(Question::Member(mgid), 0, &answer), Err(SaError::Malformed));
        assert_eq!(read(Question::Myself, umad::TIMED_OUT, &mad), Err(SaError::Timeout));
        assert_eq!(read(Question::Myself, 5, &mad), Err(SaError::Down));
        for (status, result) in
            [(1, SaError::Busy), (0x0300, SaError::Status(0x0300)), (0x0101, SaError::Status(0x0101))]
        {
            answer.set_status(status);
            assert_eq!(read(Question::Myself, 0, &answer), Err(result));
        }
    }
}
