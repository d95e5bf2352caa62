//! How far a long list of destinations has come, for somebody who waits at a terminal.

use crate::out::Out;

/// A line on standard error that is written again and again.
pub struct Progress {}

impl Progress {
    /// For so many destinations; nothing is shown where nobody waits, or the list is short.
    pub fn new(_count: usize) -> Progress {
        Progress {}
    }

    /// Called before the destination with this number, from 0.
    pub fn show(&mut self, _out: &mut Out, _number: usize, _destination: &str) {}

    /// Takes the line away.
    pub fn end(&mut self, _out: &mut Out) {}
}
