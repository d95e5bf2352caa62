//! What is to be said of the subnet administrator, and of the groups that the service ought to have joined. Pure.

use std::io;
use std::time::Duration;

use ibacm::sa::SaError;
use ibacm::verbs::errno_of;
use ibacm_wire::Gid;
use ibacm_wire::sa::{McMember, SaMad};

use super::facts::Port;
use super::report::Finding;

/// The class-specific status "no records".
const NO_RECORDS: u16 = 0x0300;
/// The bit of full members in a membership's join state.
const FULL_MEMBER: u8 = 1;

/// A port through which the administrator cannot be asked.
pub fn unasked(port: &Port, error: &io::Error) -> Finding {
    match errno_of(error) {
        Some(libc::EACCES | libc::EPERM | libc::ENOENT) => Finding::warning(
            "sa",
            port.name(),
            format!("not looked at: {error}"),
            "run this as root, where /dev/infiniband/umad* is",
        ),
        _ => Finding::failed(
            "sa",
            port.name(),
            format!("it cannot be asked: {error}"),
            "load the kernel's part of it (modprobe ib_umad), and restart the service (systemctl restart ibacm)",
        ),
    }
}

/// What came of asking the administrator for the path from the port to itself.
pub fn answered(port: &Port, result: &Result<SaMad, SaError>, limit: Duration) -> Finding {
    let lid = port.sm_lid;
    match result {
        Ok(_) => Finding::ok("sa", port.name(), format!("the subnet administrator (SA) at LID {lid} answers")),
        // Limited members have no path to each other, and for OpenSM none to themselves.
        Err(SaError::Status(NO_RECORDS)) if !port.is_full_member() => {
            Finding::ok("sa", port.name(), format!("the subnet administrator (SA) at LID {lid} answers"))
        }
        Err(SaError::Timeout) => Finding::failed(
            "sa",
            port.name(),
            format!("the subnet administrator (SA) at LID {lid} does not answer within {} s", limit.as_secs_f64()),
            format!(
                "look whether the subnet manager still runs there (sminfo; smpquery nodedesc {lid}), and start it, or \
                 restart it if it hangs (systemctl restart opensm)"
            ),
        ),
        Err(SaError::Busy) => Finding::failed(
            "sa",
            port.name(),
            format!("the subnet administrator (SA) at LID {lid} is busy, all of {} s", limit.as_secs_f64()),
            "look what keeps the subnet manager busy (its log; saquery from many hosts at once), and check again",
        ),
        Err(SaError::Down) => Finding::failed(
            "sa",
            port.name(),
            "questions for it cannot be sent",
            "look into dmesg whether the device has been reset or removed",
        ),
        Err(e) => Finding::failed(
            "sa",
            port.name(),
            format!("asked for the path from the port to itself: {e}"),
            "look into the subnet manager's log (opensm: /var/log/opensm.log) why it does not know this port, and \
             restart it",
        ),
    }
}

/// A group that the service has to be in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Group {
    /// Port and partition of the endpoint, for people.
    pub endpoint: String,
    /// Its GID.
    pub mgid: Gid,
    /// The options that are in the name of the group, for people.
    pub options: String,
}

/// Whether the record, with which the question for one port's membership was answered, is a full member's. Who is a
/// member joined in some way: none says that the subnet administrator does not tell it. OpenSM blanks it and the port,
/// others leave what they were asked with.
fn is_full_member(record: &McMember) -> bool {
    let join_state = record.scope_state & 0x0f;
    join_state & FULL_MEMBER != 0 || join_state == 0
}

/// What came of asking whether the port is a member of a group.
pub fn member(group: &Group, result: &Result<SaMad, SaError>) -> Finding {
    let Group { endpoint, mgid, options } = group;
    let rejoin = format!(
        "wait, if the subnet manager or the service has just been started: it joins again by itself within about a \
         minute; if it stays so, look into the service's log why it cannot join, and at {options}, which have to be \
         the same on all hosts; then restart it (systemctl restart ibacm)"
    );
    match result {
        Ok(mad) if is_full_member(&mad.mcmember()) => {
            Finding::ok("group", endpoint, format!("member of {mgid} (LID {:#06x})", mad.mcmember().mlid))
        }
        Ok(_) => Finding::failed("group", endpoint, format!("no full member of {mgid}, and hears no requests"), rejoin),
        Err(SaError::Status(NO_RECORDS)) => {
            Finding::failed("group", endpoint, format!("not a member of {mgid}, and hears no requests"), rejoin)
        }
        Err(e) => Finding::failed(
            "group",
            endpoint,
            format!("asked whether it is a member of {mgid}: {e}"),
            "look into the subnet manager's log",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::report::Level;
    use ibacm_wire::sa::METHOD_GET;

    fn port() -> Port {
        Port { device: "mlx5_0".into(), number: 1, sm_lid: 7, ..Port::default() }
    }

    #[test]
    fn silence_refusal_and_nonsense_differ() {
        let limit = Duration::from_secs(2);
        let say = |result| answered(&Port { pkeys: vec![0xffff], ..port() }, &result, limit);
        let good = say(Ok(SaMad::request(METHOD_GET, 0, 0)));
        assert_eq!((good.level, good.subject.as_str()), (Level::Ok, "mlx5_0/1"));
        for (error, found, remedy) in [
            (SaError::Timeout, "at LID 7 does not answer within 2 s", "smpquery nodedesc 7"),
            (SaError::Busy, "busy", "check again"),
            (SaError::Status(0x0700), "0x0700 (request denied)", "log"),
            (SaError::Status(NO_RECORDS), "0x0300 (no records)", "log"),
            (SaError::Malformed, "does not fit", "log"),
            (SaError::Down, "cannot be sent", "dmesg"),
        ] {
            let finding = say(Err(error));
            assert_eq!(finding.level, Level::Failed);
            assert!(finding.found.contains(found) && finding.remedy.unwrap().contains(remedy), "{error:?}");
        }
    }

    #[test]
    fn limited_members_have_no_path() {
        let limited = Port { pkeys: vec![0x7fff], ..port() };
        assert_eq!(answered(&limited, &Err(SaError::Status(NO_RECORDS)), Duration::ZERO).level, Level::Ok);
        assert_eq!(answered(&limited, &Err(SaError::Timeout), Duration::ZERO).level, Level::Failed);
    }

    #[test]
    fn without_permission_nothing_is_known() {
        let finding = unasked(&port(), &io::Error::from_raw_os_error(libc::EACCES));
        assert_eq!(finding.level, Level::Warning);
        assert!(finding.remedy.unwrap().contains("root"));
        let finding = unasked(&port(), &io::Error::from_raw_os_error(libc::ENODEV));
        assert_eq!(finding.level, Level::Failed);
        assert!(finding.remedy.unwrap().contains("ib_umad"));
    }

    #[test]
    fn members_are_full_members() {
        let group = Group { endpoint: "mlx5_0/1 0xffff".into(), mgid: Gid([0xff; 16]), options: "min_mtu".into() };
        let with = |scope_state, port_gid| {
            let record = McMember { scope_state, port_gid, ..McMember::default() };
            member(&group, &Ok(SaMad::membership(METHOD_GET, 0, &record, 3)))
        };
        assert_eq!(with(0x51, Gid([1; 16])).level, Level::Ok);
        assert_eq!(with(0x52, Gid([1; 16])).level, Level::Failed);
        assert_eq!(with(0x50, Gid::ZERO).level, Level::Ok, "as OpenSM blanks it");
        assert_eq!(with(0x50, Gid([1; 16])).level, Level::Ok, "the question's port, and no word of how it joined");
        let absent = member(&group, &Err(SaError::Status(NO_RECORDS)));
        assert!(absent.level == Level::Failed && absent.found.contains("not a member"));
        // Right after a start nothing is to be done.
        let remedy = absent.remedy.unwrap();
        assert!(remedy.starts_with("wait, ") && remedy.contains("by itself within about a minute; if it stays so, "));
        assert!(remedy.contains("min_mtu"), "{remedy}");
        let silent = member(&group, &Err(SaError::Timeout));
        assert!(silent.level == Level::Failed && !silent.found.contains("not a member"));
    }
}
