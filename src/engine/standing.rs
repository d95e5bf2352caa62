//! What an operator hears of outages, at log level 0: one line when a port can serve nobody any more, one when it can
//! again; one when the SA falls silent, one when it answers. A port that flaps costs a line a second, the last of which
//! says how it is.

use std::time::Duration;

use super::Engine;
use super::action::PortId;
use super::ports::Port;
use super::resolve::SaWho;
use crate::sa::SaError;
use crate::time::Time;

/// The least time between two lines on how a port is.
const PAUSE: Duration = Duration::from_secs(1);

/// How a port is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Standing {
    /// It is not active.
    Down,
    /// It has no endpoint.
    Bare,
    /// It has this many.
    Serving(usize),
}

/// What was last said of a port.
#[derive(Default)]
pub(super) struct Told {
    standing: Option<Standing>,
    /// Before then nothing more is said.
    quiet_until: Time,
    /// That the SA is silent.
    sa_silent: bool,
    /// When the SA last answered.
    sa_heard: Time,
}

impl Told {
    /// Whether it was said that the SA is silent.
    pub fn is_sa_silent(&self) -> bool {
        self.sa_silent
    }
}

impl Port {
    /// How the port is called where people read it.
    pub fn name(&self) -> String {
        format!("{} port {}", self.info.device, self.info.port)
    }
}

impl Engine {
    /// Says how ports are, of which that has changed.
    pub(super) fn tell_ports(&mut self, now: Time) {
        if self.tell_at > now {
            return;
        }
        self.tell_at = Time::NEVER;
        let mut endpoints = vec![0; self.ports.len()];
        for e in self.eps.iter().filter(|e| e.up) {
            if let Some(n) = endpoints.get_mut(e.port.0 as usize) {
                *n += 1;
            }
        }
        for (i, endpoints) in endpoints.into_iter().enumerate() {
            let Some(p) = self.ports.get_mut(i) else { return };
            let standing = match endpoints {
                _ if !p.info.active => Standing::Down,
                0 => Standing::Bare,
                n => Standing::Serving(n),
            };
            let is_news = match (p.told.standing, standing) {
                (Some(Standing::Serving(_)), Standing::Serving(_)) => false,
                (told, standing) => told != Some(standing),
            };
            if !is_news {
                continue;
            }
            if p.told.quiet_until > now {
                self.tell_at = self.tell_at.min(p.told.quiet_until);
                continue;
            }
            let before = p.told.standing.replace(standing);
            p.told.quiet_until = now.plus(PAUSE);
            let name = p.name();
            // what is so from the beginning is no outage
            self.log_own(u8::from(before.is_none()), || match standing {
                Standing::Down => format!("{name} is down"),
                Standing::Bare => format!(
                    "{name} is up and serves nobody: no interface of it has an address, and no line of the address \
                     file a name for it"
                ),
                Standing::Serving(n) => format!("{name} is up and serves; endpoints: {n}"),
            });
        }
    }

    /// What became of a question to the SA of a port, of which it may be the first that shows that the SA is silent, or
    /// answers again.
    pub(super) fn sa_told(&mut self, now: Time, port: PortId, who: &SaWho, error: Option<SaError>) {
        let silence = self.config.sa().total();
        let Some(p) = self.ports.get_mut(port.0 as usize) else { return };
        let (silent, lid) = (p.told.sa_silent, p.info.sm_lid);
        match error {
            Some(SaError::Down) => return,
            // who may only subscribe has a line of its own
            Some(SaError::Timeout) if silent || matches!(who, SaWho::Inform { .. }) => return,
            // it has answered others meanwhile
            Some(SaError::Timeout) if p.told.sa_heard.plus(silence) > now => return,
            Some(SaError::Timeout) => p.told.sa_silent = true,
            _ => {
                (p.told.sa_silent, p.told.sa_heard) = (false, now);
                if !silent {
                    return;
                }
            }
        }
        let name = p.name();
        let how = if silent { "answers again" } else { "does not answer" };
        self.log_own(0, || format!("{name}: the subnet administrator (SA) at LID {lid} {how}"));
    }
}
