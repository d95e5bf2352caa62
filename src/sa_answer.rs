//! What an answer of the subnet administrator means: whether it is one to the question, and if not, why. Pure.

use ibacm_wire::notice::ATTR_INFORM;
use ibacm_wire::sa::{self, SaMad};
use ibacm_wire::{PathRecord, client::Status, path::mask};

use crate::sa::Ask;

/// The answer to a question that was asked on behalf of `who`.
pub struct Answer<P> {
    /// As given to [`SaClient::submit`](crate::sa::SaClient::submit).
    pub who: P,
    /// The answer's MAD.
    pub result: Result<SaMad, SaError>,
}

/// Why there is no usable answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SaError {
    /// None came in time.
    Timeout,
    /// Busy, and again busy, until the time was up.
    Busy,
    /// The MAD's status.
    Status(u16),
    /// The answer is not one to this question.
    Malformed,
    /// The port is gone, or the MAD could not be sent.
    Down,
}

impl SaError {
    /// What a client is told.
    pub fn client_status(self) -> Status {
        match self {
            SaError::Timeout | SaError::Busy => Status::Etimedout,
            SaError::Malformed => Status::Enodata,
            SaError::Down => Status::Enotconn,
            // the SA's class-specific codes (IBA 15.2.2) are in the high byte
            SaError::Status(s) => match s >> 8 {
                1 => Status::Enomem,
                3 => Status::Enodata,
                5 => Status::Edestaddr,
                2 | 4 | 6 | 7 => Status::Einval,
                _ => Status::Enodata,
            },
        }
    }
}

impl std::fmt::Display for SaError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SaError::Timeout => f.write_str("the SA did not answer in time"),
            SaError::Busy => f.write_str("the SA stayed busy"),
            SaError::Malformed => f.write_str("the SA's answer does not fit the question"),
            SaError::Down => f.write_str("the port is not usable"),
            SaError::Status(s) => {
                let what = match s >> 8 {
                    1 => "no resources",
                    2 => "request invalid",
                    3 => "no records",
                    4 => "too many records",
                    5 => "invalid GID",
                    6 => "insufficient components",
                    7 => "request denied",
                    _ => "failure",
                };
                write!(f, "the SA answered status {s:#06x} ({what})")
            }
        }
    }
}

/// Whether `mad` answers `ask`, and how.
pub(crate) fn check(ask: &Ask, mad: &SaMad) -> Result<(), SaError> {
    let status = mad.status();
    if status & 0xff == sa::STATUS_BUSY && status >> 8 == 0 {
        return Err(SaError::Status(sa::STATUS_BUSY));
    }
    let attribute = match ask {
        Ask::Path(_) => sa::ATTR_PATH,
        Ask::Join(_) => sa::ATTR_MCMEMBER,
        Ask::Inform(_) => ATTR_INFORM,
        // what it means is for whoever asked
        Ask::Mad(_) => return Ok(()),
    };
    // a refusal is one whatever else is in it: an SA may send the question back with nothing but the status changed
    if status != 0 {
        return Err(SaError::Status(status));
    }
    if mad.method() != sa::METHOD_GET | sa::METHOD_RESP || mad.attribute() != attribute {
        return Err(SaError::Malformed);
    }
    let fits = match ask {
        Ask::Path(q) => path_fits(q, &mad.path()),
        Ask::Join(m) => {
            let r = mad.mcmember();
            r.mgid == m.mgid && (0xc000..0xffff).contains(&r.mlid)
        }
        // one that cannot subscribe somebody may say so with this bit alone (IBA 13.4.8.3)
        Ask::Inform(i) => mad.inform().subscribe == i.subscribe && mad.inform().trap == i.trap,
        Ask::Mad(_) => true,
    };
    if fits { Ok(()) } else { Err(SaError::Malformed) }
}

/// Whether the path is between the ports that were asked for, and one that packets can be sent along.
pub(crate) fn path_fits(q: &PathRecord, p: &PathRecord) -> bool {
    let asked = q.component_mask();
    let dgid = asked & mask::DGID == 0 || q.dgid().names(p.dgid());
    let sgid = asked & mask::SGID == 0 || q.sgid().names(p.sgid());
    let dlid = asked & mask::DLID == 0 || p.dlid() == q.dlid();
    dgid && sgid && dlid && p.dlid() != 0
}
