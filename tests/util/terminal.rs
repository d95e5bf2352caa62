//! Programs on a terminal of 80 columns, and what is to be seen there.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::process::Command;

use super::run::{Ran, Tool, finish};
use super::util::Lab;

/// Runs a command on a new terminal and passes on what it writes. `$STDOUT` is a file of the host that gets its standard output.
const RUN: &str = "
import os, pty, subprocess, sys
outer, inner = pty.openpty()
stdout = open(os.environ['STDOUT'], 'wb') if 'STDOUT' in os.environ else inner
child = subprocess.Popen(sys.argv[1:], stdin=inner, stdout=stdout, stderr=inner)
os.close(inner)
while True:
    try:
        data = os.read(outer, 65536)
    except OSError:
        break
    if not data:
        break
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
sys.exit(child.wait())
";

/// A command line of ours on a terminal, which is `stdout` of the result. With a file of the host the terminal is for standard error
/// alone.
pub fn on_terminal(lab: &Lab<'_>, host: &str, words: &[&str], file: Option<&str>) -> Ran {
    let mut command: Command = lab.exec(host, "/usr/bin/python3");
    command.args(["-c", RUN]).arg(Tool::Ours.path()).args(words);
    if let Some(file) = file {
        command.env("STDOUT", file);
    }
    finish(&mut command)
}

/// The same on this machine, where no host is needed.
pub fn here(words: &[&str]) -> Ran {
    finish(Command::new("/usr/bin/python3").args(["-c", RUN]).arg(Tool::Ours.path()).args(words))
}

/// The lines that are to be seen in the end, after whatever was written over.
pub fn seen(written: &str) -> Vec<String> {
    written.split('\n').map(visible).collect()
}

fn visible(line: &str) -> String {
    let line = line.trim_end_matches('\r');
    let mut cells = Vec::new();
    for (turn, text) in line.split('\r').enumerate() {
        assert!(text.chars().count() < 80 || line.split('\r').count() == turn + 1, "it would wrap: {line:?}");
        for (column, c) in text.chars().enumerate() {
            match cells.get_mut(column) {
                Some(cell) => *cell = c,
                None => cells.push(c),
            }
        }
    }
    cells.iter().collect::<String>().trim_end().to_owned()
}
