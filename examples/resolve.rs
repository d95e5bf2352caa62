//! The path to a name or an IP address: resolve DESTINATION [SOURCE]

use std::process::ExitCode;

use libibacm::{Address, Client};

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let Some(destination) = arguments.next() else { return ExitCode::from(2) };
    let source = arguments.next().map(|s| Address::parse(&s));
    match Client::default().resolve(source, Address::parse(&destination)) {
        Ok(path) => {
            let r = path.record;
            let mtu = 128 << (r.mtu() & 0x3f);
            println!("from LID {} to LID {}, SL {}, P_Key {:#06x}, MTU {mtu}", r.slid(), r.dlid(), r.sl(), r.pkey());
            ExitCode::SUCCESS
        }
        Err(e) => {
            eprintln!("{destination}: {e}");
            ExitCode::FAILURE
        }
    }
}
