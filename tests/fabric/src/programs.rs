//! Programs that tests run to their end.

use std::process::{Command, Output, Stdio};
use std::time::Duration;

use crate::subnet::wait_for;

/// No program, and no step of a test, takes longer: a machine that is busy may need OpenSM's next look at the subnet, ten
/// seconds later, and that look takes its time then.
pub const PATIENCE: Duration = Duration::from_secs(40);

/// Runs a program to its end, which must come in time.
pub fn run(command: &mut Command) -> Output {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
    if wait_for(PATIENCE, || child.try_wait().expect("is a child")).is_none() {
        let _ = child.kill();
        let output = child.wait_with_output().expect("is a child");
        panic!("{command:?} takes too long: {}", text(&output));
    }
    child.wait_with_output().expect("is a child")
}

/// Both outputs as text.
pub fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Runs a program that must succeed, and returns what it says.
pub fn succeed(command: &mut Command) -> String {
    let output = run(command);
    assert!(output.status.success(), "{command:?}: {}: {}", output.status, text(&output));
    text(&output)
}
