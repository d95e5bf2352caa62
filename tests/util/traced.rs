//! System calls of a running process, counted by strace(1).

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::util::{PATIENCE, wait_for};

/// System calls that a process has made, each as strace shows it.
#[derive(Clone, PartialEq, Eq)]
pub struct Calls(Vec<String>);

impl Calls {
    /// Those that this process makes while `what` goes on, and just after. It is to be at rest before.
    pub fn of(pid: u32, what: impl FnOnce()) -> Calls {
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("calls-{pid}"));
        let mut strace = Command::new("strace")
            .args(["-f", "-o"])
            .arg(&file)
            .args(["-p", &pid.to_string()])
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("scripts/setup installs it");
        let mut said = BufReader::new(strace.stderr.take().expect("a pipe")).lines();
        let attached = said.next().expect("it says that it is there").expect("a line");
        assert!(attached.contains("attached"), "{attached}");
        what();
        // What comes after the last reply.
        std::thread::sleep(Duration::from_millis(300));
        let stopped = Command::new("kill").args(["-s", "INT", &strace.id().to_string()]).status().expect("kill runs");
        assert!(stopped.success(), "it has ended before");
        strace.wait().expect("it is a child");
        let text = fs::read_to_string(&file).expect("it has written");
        let _ = fs::remove_file(&file);
        // "4711 epoll_wait(3, ...": what is of signals, or the end of what has begun before, has no name in front.
        let calls = text.lines().filter_map(|line| Some(line.split_once(' ')?.1.trim_start()));
        let is_call = |call: &&str| call.split_once('(').is_some_and(|(name, _)| !name.contains([' ', '<']));
        let mut calls: Vec<String> = calls.filter(is_call).map(str::to_owned).collect();
        // New interfaces are looked at again and again for a while, each time later: from opening a file to closing it.
        let mut looks = false;
        calls.retain(|call| {
            looks |= call.starts_with("openat(") && call.contains("/sys/class/net/");
            let kept = !looks;
            looks &= !call.starts_with("close(");
            kept
        });
        Calls(calls)
    }

    /// Waits until the process does nothing of its own accord.
    pub fn rest(pid: u32) {
        let rest = wait_for(PATIENCE, || {
            let calls = Calls::of(pid, || std::thread::sleep(Duration::from_millis(700)));
            // Nothing but waits that are over.
            calls.0.iter().all(|call| call.starts_with("epoll_wait(")).then_some(())
        });
        assert!(rest.is_some(), "it does not come to rest");
    }

    /// How many of them have this name and this text in them; each is counted once.
    pub fn take(&mut self, name: &str, text: &str) -> usize {
        let before = self.0.len();
        self.0.retain(|call| !(call.split_once('(').is_some_and(|(n, _)| n == name) && call.contains(text)));
        before - self.0.len()
    }

    /// How many are left.
    pub fn others(&self) -> usize {
        self.0.len()
    }
}

impl fmt::Debug for Calls {
    /// How often each has been made.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut counts = BTreeMap::new();
        for call in &self.0 {
            let name = call.split_once('(').map_or("", |(name, _)| name);
            *counts.entry(name).or_insert(0_usize) += 1;
        }
        f.debug_map().entries(counts).finish()
    }
}
