//! A well-behaved client beside others that are not: it keeps one connection, asks all the time, and is to notice nothing.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ibacm_wire::client::Entry;

use super::util::{Client, Lab};

/// No answer may take longer, whatever else the machine does: one that waits for a bad client takes seconds.
pub const LATEST: Duration = Duration::from_secs(3);

/// The client, at work until this value ends.
pub struct Beside {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<(u64, Duration)>>,
}

impl Beside {
    /// Connects to a host's service, and asks these questions in turn. Each answer is to be the same each time.
    pub fn start(lab: &Lab<'_>, host: &str, questions: Vec<[Entry; 2]>) -> Beside {
        let mut client = Client::connect(lab, host);
        let answers: Vec<_> = questions.iter().map(|question| client.resolve(question).path()).collect();
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let (mut count, mut worst) = (0, Duration::ZERO);
            while !told.load(Ordering::Relaxed) {
                for (question, answer) in questions.iter().zip(&answers) {
                    let begin = Instant::now();
                    assert_eq!(client.resolve(question).path(), *answer, "after {count} answers");
                    worst = worst.max(begin.elapsed());
                    count += 1;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            (count, worst)
        });
        Beside { stop, thread: Some(thread) }
    }

    /// It has been answered all the time, and in time.
    #[track_caller]
    pub fn was_served(mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().expect("it ends once");
        let (count, worst) = thread.join().expect("a client that does nothing wrong is answered");
        println!("{count} answers beside, the slowest after {worst:?}");
        assert!(count > 20 && worst < LATEST, "{count} answers, the slowest after {worst:?}");
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // The test has failed already.
            let _ = thread.join();
        }
    }
}
