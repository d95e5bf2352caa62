//! What the kernel says about the machine and about processes.

use std::fs;

use crate::Outcome;

/// Processors that are there, whatever this process is pinned to.
pub fn processors() -> usize {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let count = text.lines().filter(|l| l.starts_with("cpu") && !l.starts_with("cpu ")).count();
    count.max(1)
}

/// The processor's name.
pub fn model() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find(|l| l.starts_with("model name"));
    line.and_then(|l| l.split_once(':')).map_or("unknown", |(_, name)| name.trim()).to_owned()
}

/// The kernel's release.
pub fn kernel() -> String {
    fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned()
}

/// The load averages.
pub fn load() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().take(3).collect::<Vec<_>>().join(" ")
}

/// A number of /proc/PID/status, sizes in KiB.
pub fn status(pid: u32, name: &str) -> Outcome<u64> {
    field(&format!("/proc/{pid}/status"), name)
}

fn field(path: &str, name: &str) -> Outcome<u64> {
    let text = fs::read_to_string(path)?;
    let line = text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':'));
    let number = line.and_then(|l| l.split_whitespace().next()?.parse().ok());
    Ok(number.ok_or_else(|| format!("{path}: no {name}"))?)
}

/// How often the threads of a process have gone to sleep.
pub fn sleeps(pid: u32) -> Outcome<u64> {
    let mut sum = 0;
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        let path = thread?.path().join("status");
        sum += field(&path.to_string_lossy(), "voluntary_ctxt_switches")?;
    }
    Ok(sum)
}

/// Processor time of a process with one thread that matters, nanoseconds.
pub fn processor_time(pid: u32) -> Outcome<u64> {
    let mut sum = 0;
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        let text = fs::read_to_string(thread?.path().join("schedstat"))?;
        sum += text.split_whitespace().next().and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
    }
    Ok(sum)
}
