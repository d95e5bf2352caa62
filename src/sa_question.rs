//! What can be asked of the subnet administrator, and how patiently. Pure.

use std::time::Duration;

use ibacm_wire::PathRecord;
use ibacm_wire::notice::InformInfo;
use ibacm_wire::sa::{self, McMember, SaMad};

use crate::keyed::Rng;

const BUSY_PAUSE: Duration = Duration::from_millis(50);
const BUSY_PAUSE_MAX: Duration = Duration::from_secs(2);

/// Limits of the client.
#[derive(Clone, Copy, Debug)]
pub struct SaConfig {
    /// Questions on their way at a time, at most.
    pub depth: usize,
    /// The depth holds as it is, without a window: whoever has set it knows the fabric, a slow one too.
    pub fixed: bool,
    /// How long the kernel waits for an answer, in milliseconds.
    pub timeout_ms: u32,
    /// How often the kernel asks again.
    pub retries: u32,
}

impl SaConfig {
    /// The time in which a question is answered or fails, once it is on its way.
    pub fn total(&self) -> Duration {
        Duration::from_millis(u64::from(self.timeout_ms) * (u64::from(self.retries) + 1))
    }
}

/// A question.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ask {
    /// SubnAdmGet(PathRecord) by every component that is not zero.
    Path(PathRecord),
    /// Join a multicast group.
    Join(McMember),
    /// Subscribe to notices.
    Inform(InformInfo),
    /// A provider's, as it is but for its transaction id. Every answer of the SA is one to it.
    Mad(Box<SaMad>),
}

impl Ask {
    /// The MAD that asks it.
    pub fn mad(&self, tid: u32) -> SaMad {
        match self {
            Ask::Path(p) => SaMad::path_query(u64::from(tid), p),
            Ask::Join(m) => SaMad::membership(sa::METHOD_SET, u64::from(tid), m, sa::JOIN_MASK),
            Ask::Inform(i) => SaMad::subscription(u64::from(tid), i),
            Ask::Mad(m) => {
                let mut mad = **m;
                mad.set_tid(u64::from(tid));
                mad
            }
        }
    }
}

/// How long to ask nothing after the answer "busy" to a question that had it `times` before.
pub fn busy_pause(times: u32, rng: &mut Rng) -> Duration {
    let base = BUSY_PAUSE.saturating_mul(1 << times.min(6)).min(BUSY_PAUSE_MAX);
    base / 2 + Duration::from_micros(rng.below(base.as_micros() as u64))
}
