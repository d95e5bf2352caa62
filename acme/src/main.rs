//! The program `ib_acme`; all of it is in the library of the same name.

use std::process::ExitCode;

fn main() -> ExitCode {
    ib_acme::main()
}
