//! What the subnet administrator tells of itself: each port that is active subscribes to the notices that say something
//! of paths, and what comes is believed from nobody but the SA.
//!
//! Subscribing has the lowest priority of all that the SA is asked, and nothing depends on it: where it is refused, or
//! another program of the host has the reports, the service is what it is without. A subscription is forgotten by an SA
//! that starts anew, and by one that has seen the port go. What it told meanwhile is not told again, so that after a
//! new subscription all that was learned before is looked at once more, as after a change of routes.

use std::time::Duration;

use ibacm_wire::client::More;
use ibacm_wire::notice::{
    ATTR_NOTICE, InformInfo, TRAP_GID_IN, TRAP_GID_OUT, TRAP_LINK_STATE, TRAP_REPATH, TRAP_UNPATH,
};
use ibacm_wire::sa::{LEN, SaMad};

use super::Engine;
use super::action::{Action, PortId};
use super::resolve::SaWho;
use crate::sa::{Ask, SaError};
use crate::time::Time;

/// What is subscribed to, one after another. Each for itself: "all" would bring every error of every link.
const WANTED: [u16; 3] = [TRAP_GID_OUT, TRAP_GID_IN, TRAP_LINK_STATE];
/// The hosts of a subnet, which hear of a new SA together, take this long to subscribe.
const SPREAD: Duration = Duration::from_secs(2);
/// When it is tried again if the SA did not answer; then twice that, and so on.
const RETRY: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(60);
/// The same, if it refused.
const REFUSED: Duration = Duration::from_secs(60);
const REFUSED_MAX: Duration = Duration::from_secs(3600);

/// How far a port's subscription has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// There is no port, or nobody to take reports.
    Idle,
    /// The SA is asked at this time.
    Wait(Time),
    /// It is asked.
    Asked,
    /// It tells.
    Subscribed,
}

/// A port's subscription.
pub(super) struct Notices {
    state: State,
    /// Reports reach this service.
    heard: bool,
    /// How many of [`WANTED`] are granted.
    granted: usize,
    /// Failures in a row.
    failures: u32,
    /// The level at which it was said that nobody tells, and not taken back.
    told: Option<u8>,
    /// There was a subscription before.
    renewed: bool,
    /// Distinguishes questions from those before the last change.
    life: u32,
}

impl Default for Notices {
    fn default() -> Notices {
        let (state, life) = (State::Idle, 0);
        Notices { state, heard: false, granted: 0, failures: 0, told: None, renewed: false, life }
    }
}

impl Notices {
    /// When the SA is to be asked next.
    pub fn deadline(&self) -> Time {
        match self.state {
            State::Wait(at) => at,
            _ => Time::NEVER,
        }
    }

    /// The port or its SA is gone, and with it the subscription.
    pub fn forget(&mut self) {
        self.life = self.life.wrapping_add(1);
        (self.state, self.granted) = (State::Idle, 0);
    }
}

impl Engine {
    /// Tells whether reports to the port reach this service.
    pub fn set_reports(&mut self, now: Time, port: PortId, heard: bool) {
        let Some(p) = self.ports.get_mut(port.0 as usize).filter(|p| p.notices.heard != heard) else { return };
        p.notices.heard = heard;
        self.subscribe_again(now, port);
    }

    /// Whether the SA tells this port what changes.
    pub fn is_subscribed(&self, port: PortId) -> bool {
        self.ports.get(port.0 as usize).is_some_and(|p| p.notices.state == State::Subscribed)
    }

    /// The SA may know nothing of a subscription: makes one, soon.
    pub(super) fn subscribe_again(&mut self, now: Time, port: PortId) {
        let pause = Duration::from_micros(self.rng.below(SPREAD.as_micros() as u64));
        let Some(p) = self.ports.get_mut(port.0 as usize) else { return };
        p.notices.forget();
        p.sa.withdraw(|who| matches!(who, SaWho::Inform { .. }));
        if p.info.active && p.notices.heard && p.provider.is_none() {
            p.notices.failures = 0;
            p.notices.state = State::Wait(now.plus(pause));
        }
    }

    /// Asks where it is time to.
    pub(super) fn subscribe_due(&mut self, now: Time) {
        for i in 0..self.ports.len() {
            if self.ports[i].notices.deadline() <= now {
                self.subscribe(now, PortId(i as u32));
            }
        }
    }

    fn subscribe(&mut self, now: Time, port: PortId) {
        let Some(p) = self.ports.get_mut(port.0 as usize) else { return };
        let Some(trap) = WANTED.get(p.notices.granted) else { return };
        let who = SaWho::Inform { port, life: p.notices.life };
        p.notices.state = State::Asked;
        if p.sa.submit_idle(now, who, Ask::Inform(InformInfo::to_trap(*trap))).is_err() {
            self.subscribe_failed(now, port, SaError::Busy);
        }
    }

    /// The SA's word on a subscription.
    pub(super) fn inform_answered(&mut self, now: Time, port: PortId, life: u32, result: Result<(), SaError>) {
        let Some(p) = self.ports.get_mut(port.0 as usize).filter(|p| p.notices.life == life) else { return };
        if let Err(error) = result {
            return self.subscribe_failed(now, port, error);
        }
        let n = &mut p.notices;
        n.granted += 1;
        n.failures = 0;
        if n.granted < WANTED.len() {
            return self.subscribe(now, port);
        }
        n.state = State::Subscribed;
        let (again, told) = (std::mem::replace(&mut n.renewed, true), n.told.take());
        let name = p.name();
        self.log_own(told.unwrap_or(1), || {
            format!("{name}: the subnet administrator tells what changes: subscribed to its notices (InformInfo)")
        });
        if again {
            self.routes_told(now, port);
        }
    }

    fn subscribe_failed(&mut self, now: Time, port: PortId, error: SaError) {
        let jitter = self.rng.below(1000) as f64 / 1000.0;
        let Some(p) = self.ports.get_mut(port.0 as usize) else { return };
        let refused = matches!(error, SaError::Status(_) | SaError::Malformed);
        let (base, most) = if refused { (REFUSED, REFUSED_MAX) } else { (RETRY, RETRY_MAX) };
        let pause = base.saturating_mul(1 << p.notices.failures.min(6)).min(most);
        let pause = (pause / 2 + pause.mul_f64(jitter)).clamp(RETRY, most);
        p.notices.failures += 1;
        p.notices.state = State::Wait(now.plus(pause));
        // once, whatever the reasons are one after another; but a refusal is for every operator
        let level = u8::from(!refused);
        let news = p.notices.told.is_none_or(|told| level < told);
        if news {
            p.notices.told = Some(level);
        }
        let name = p.name();
        self.log_own(if news { level } else { 2 }, || {
            format!(
                "{name}: nobody tells what changes: no subscription to the SA's notices (InformInfo: {error}); the \
                 service works as before, and tries again"
            )
        });
    }

    /// A report came to the port. It is answered whatever it says, and believed if it is the SA's.
    pub fn report(&mut self, now: Time, port: PortId, from_lid: u16, mad: &[u8]) {
        let Some(p) = self.ports.get(port.0 as usize).filter(|p| p.info.active) else { return };
        let Some(mad) = mad.first_chunk::<LEN>().map(|b| SaMad(*b)).filter(SaMad::is_report) else {
            self.count_more(None, More::MadsDropped);
            return;
        };
        if from_lid == 0 || from_lid != p.info.sm_lid {
            let sm_lid = p.info.sm_lid;
            self.count_more(None, More::MadsDropped);
            return self.log(2, || format!("dropped a notice from LID {from_lid}: the SA is at LID {sm_lid}"));
        }
        self.actions.push_back(Action::Respond {
            port,
            lid: p.info.sm_lid,
            sl: p.info.sm_sl,
            pkey_index: p.info.sa_pkey_index(),
            mad: Box::new(mad.report_response()),
        });
        let (notice, plugged) = (mad.notice(), p.provider.is_some());
        if mad.attribute() != ATTR_NOTICE || !notice.generic || plugged {
            return;
        }
        match notice.trap {
            TRAP_GID_IN | TRAP_GID_OUT => {
                let (gid, what) = (notice.gid(), if notice.trap == TRAP_GID_IN { "in" } else { "out of" });
                self.log(2, || format!("notice: {gid} is {what} service"));
                self.gid_told(now, port, gid);
            }
            TRAP_LINK_STATE | TRAP_UNPATH | TRAP_REPATH => {
                self.log(2, || format!("notice: routes may change (trap {})", notice.trap));
                self.routes_told(now, port);
            }
            other => self.log(2, || format!("notice: trap {other}, which says nothing of paths")),
        }
    }
}
