//! A subnet administrator that takes its time: one question after another, and a queue that can overflow.

use ibacm::engine::PortInfo;
use ibacm::time::Time;
use ibacm_wire::sa::{ATTR_MCMEMBER, ATTR_PATH, METHOD_GET, METHOD_RESP, SaMad};

use super::net::{gid, host_of};

/// For one question, in microseconds: 50,000 a second.
const SERVICE: u64 = 20;
/// Questions that wait; what comes beyond them is dropped.
const QUEUE: usize = 4096;

#[derive(Default)]
pub struct Sa {
    pub down: bool,
    busy_until: Time,
    queue: usize,
    pub longest_queue: usize,
    pub dropped: u64,
    pub paths: u64,
    pub joins: u64,
}

impl Sa {
    /// A question has come: when it will be answered, if at all.
    pub fn arrived(&mut self, now: Time) -> Option<Time> {
        if self.down || self.queue >= QUEUE {
            self.dropped += 1;
            return None;
        }
        self.queue += 1;
        self.longest_queue = self.longest_queue.max(self.queue);
        self.busy_until = Time(self.busy_until.max(now).0 + SERVICE);
        Some(self.busy_until)
    }

    /// The question at the head of the queue is done with.
    pub fn finished(&mut self) {
        self.queue = self.queue.saturating_sub(1);
    }

    /// The answer to a question of this port.
    pub fn answer(&mut self, question: &SaMad, port: &PortInfo, hosts: usize) -> SaMad {
        match question.attribute() {
            ATTR_PATH => {
                self.paths += 1;
                let mut path = question.path();
                let to = host_of(path.dgid());
                assert!(to < hosts, "a path to nobody");
                path.set_dgid(gid(to));
                path.set_dlid(10 + to as u16);
                path.set_sgid(port.gid());
                path.set_slid(port.lid);
                path.set_mtu(0x84);
                path.set_rate(0x83);
                path.set_packet_lifetime(0x92);
                let mut answer = SaMad::path_query(question.tid(), &path);
                answer.0[3] |= METHOD_RESP;
                answer
            }
            ATTR_MCMEMBER => {
                self.joins += 1;
                let mut member = question.mcmember();
                member.mlid = 0xc000 | u16::from(member.mgid.0[7]) << 4 | u16::from(member.mgid.0[8]);
                member.packet_lifetime = 0x92;
                SaMad::membership(METHOD_GET | METHOD_RESP, question.tid(), &member, 0)
            }
            // Whatever else there is to ask, this one does not know it.
            _ => {
                let mut answer = *question;
                answer.0[3] = METHOD_GET | METHOD_RESP;
                answer.set_status(0x000c);
                answer
            }
        }
    }
}
