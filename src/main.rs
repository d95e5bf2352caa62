//! `ibacm`: the InfiniBand communication management assistant.

#[path = "provider/exports.rs"]
mod provider;

use std::io::Write;
use std::process::ExitCode;

use ibacm::cli::{self, Mode};
use ibacm::lifecycle::{self, Ready};
use ibacm::systemd::Environment;
use ibacm::{log, service};

/// Exit code of a daemon that could not serve.
const EXIT_FAILURE: u8 = 1;

fn main() -> ExitCode {
    let (mode, files) = match cli::parse(std::env::args_os()) {
        Ok(cli::Action::Run(mode, files)) => (mode, files),
        Ok(cli::Action::Print(text)) => {
            let _ = write!(std::io::stdout(), "{text}");
            return ExitCode::SUCCESS;
        }
        Ok(cli::Action::CheckConfig(files)) => return service::check_config(&files),
        Err(e) => {
            let _ = writeln!(std::io::stderr(), "{e}");
            return ExitCode::from(cli::EXIT_USAGE);
        }
    };
    let ready = match mode {
        Mode::Daemon => match lifecycle::daemonise() {
            Ok(ready) => ready,
            Err(e) => {
                let _ = writeln!(std::io::stderr(), "ibacm: {e}");
                return ExitCode::from(EXIT_FAILURE);
            }
        },
        Mode::Process | Mode::Systemd => Ready::foreground(),
    };
    let environment = (mode == Mode::Systemd).then(Environment::take);
    lifecycle::tighten_umask();
    let mut service = match service::start(&files, environment) {
        Ok(started) => started,
        Err(e) => {
            log!(0, "error: {e}");
            log::finish();
            ready.fail(EXIT_FAILURE, &e.to_string());
            return ExitCode::from(EXIT_FAILURE);
        }
    };
    if let Err(e) = ready.ready() {
        log!(0, "cannot leave the terminal: {e}");
    }
    log!(0, "serving");
    let code = match service.run() {
        Ok(()) => 0,
        Err(e) => {
            log!(0, "error: the loop ended: {e}");
            EXIT_FAILURE
        }
    };
    let plugged = service.is_plugged();
    drop(service);
    log::finish();
    if plugged {
        lifecycle::end_now(code);
    }
    ExitCode::from(code)
}
