//! Clients that ask all the time, each on a connection of its own, and note every answer.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ibacm_wire::PathRecord;
use ibacm_wire::client::{Entry, HDR_LEN, Header, resolve_request};

use super::world::{Ends, Question, Topic, World};

/// No answer takes longer: several times what the options of these tests make of it, since the machine is busy, and since
/// a service that is stopped for a while answers nobody.
pub const LIMIT: Duration = Duration::from_secs(20);
/// Between the answer to one question and the next question.
const PAUSE: Duration = Duration::from_millis(8);

/// What came of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Path(Ends),
    Failed(u8),
    /// The service has closed the connection, or there is none.
    Closed,
    /// Nothing has come within [`LIMIT`].
    Hung,
}

/// A question with its answer.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    pub asked: Instant,
    pub took: Duration,
    pub question: Question,
    pub outcome: Outcome,
}

impl Answer {
    /// When it came.
    pub fn came(&self) -> Instant {
        self.asked + self.took
    }
}

/// What clients and the test share.
#[derive(Default)]
struct Common {
    world: RwLock<World>,
    topics: RwLock<Vec<Topic>>,
    answers: Mutex<Vec<Answer>>,
    stop: AtomicBool,
    /// Makes questions new.
    number: AtomicU64,
}

/// The clients. They end with this value.
pub struct Clients {
    common: Arc<Common>,
    threads: Vec<JoinHandle<()>>,
}

impl Clients {
    /// Starts this many clients of the service behind a socket.
    pub fn start(count: usize, socket: PathBuf, topics: Vec<Topic>, world: World) -> Clients {
        let common = Common { world: RwLock::new(world), topics: RwLock::new(topics), ..Common::default() };
        let common = Arc::new(common);
        let threads = (0..count).map(|n| {
            let (common, socket) = (Arc::clone(&common), socket.clone());
            std::thread::spawn(move || work(n, &common, &socket))
        });
        Clients { threads: threads.collect(), common }
    }

    /// Questions are about this from now on.
    pub fn show(&self, world: &World) {
        self.common.world.write().unwrap_or_else(PoisonError::into_inner).clone_from(world);
    }

    /// What is asked about from now on.
    pub fn set_topics(&self, topics: Vec<Topic>) {
        *self.common.topics.write().unwrap_or_else(PoisonError::into_inner) = topics;
    }

    /// The answers since the last time.
    pub fn take(&self) -> Vec<Answer> {
        std::mem::take(&mut *self.common.answers.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Looks at the answers so far.
    pub fn with<T>(&self, look: impl FnOnce(&[Answer]) -> T) -> T {
        look(&self.common.answers.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Clients {
    /// Ends all of them.
    pub fn stop(&mut self) {
        self.common.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking(), "a client panics");
        }
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        self.stop();
    }
}

fn work(number: usize, common: &Common, socket: &Path) {
    let mut stream = None;
    for n in number.. {
        if common.stop.load(Ordering::Relaxed) {
            return;
        }
        let topic = {
            let topics = common.topics.read().unwrap_or_else(PoisonError::into_inner);
            // Each goes through them in an order of its own.
            topics.get((n * 7 + number) % topics.len().max(1)).copied()
        };
        let world = common.world.read().unwrap_or_else(PoisonError::into_inner);
        let Some(question) = topic.and_then(|t| t.question(&world)) else { continue };
        drop(world);
        let tid = common.number.fetch_add(1, Ordering::Relaxed);
        let asked = Instant::now();
        let outcome = ask(&mut stream, socket, &question, tid).unwrap_or_else(|e| match e.kind() {
            io::ErrorKind::WouldBlock => Outcome::Hung,
            _ => Outcome::Closed,
        });
        let answer = Answer { asked, took: asked.elapsed(), question, outcome };
        common.answers.lock().unwrap_or_else(PoisonError::into_inner).push(answer);
        if matches!(outcome, Outcome::Closed | Outcome::Hung) {
            stream = None;
            std::thread::sleep(PAUSE * 6);
        }
        std::thread::sleep(PAUSE);
    }
}

/// Asks one question on a connection, which is made if there is none.
fn ask(stream: &mut Option<UnixStream>, socket: &Path, question: &Question, tid: u64) -> io::Result<Outcome> {
    let stream = match stream {
        Some(stream) => stream,
        None => {
            let new = UnixStream::connect(socket)?;
            new.set_read_timeout(Some(LIMIT))?;
            new.set_write_timeout(Some(LIMIT))?;
            stream.insert(new)
        }
    };
    let (bytes, length) = resolve_request(tid, &question.entries(tid + 1));
    stream.write_all(&bytes[..length])?;
    let mut reply = vec![0; HDR_LEN];
    stream.read_exact(&mut reply)?;
    let header = Header::read(&reply).ok_or(io::ErrorKind::InvalidData)?;
    assert_eq!(header.tid, tid.to_ne_bytes(), "the answer to another question");
    reply.resize(usize::from(header.length).max(HDR_LEN), 0);
    stream.read_exact(&mut reply[HDR_LEN..])?;
    if header.status != 0 {
        return Ok(Outcome::Failed(header.status));
    }
    let path = Entry::read(&reply, 0).ok_or(io::ErrorKind::InvalidData)?;
    Ok(Outcome::Path(PathRecord(path.info).into()))
}
