//! A destination that is in use is asked for again before it expires, of peers with either service.

mod util;

use std::time::{Duration, Instant};

use util::client::between;
use util::{Client, Shared};

static SUBNET: Shared = Shared::new(|o| o.hosts = 3);

/// The shortest life that there is.
const LIFE: Duration = Duration::from_secs(60);

/// How long the SA takes: whoever waits for it notices. The two questions are asked one after the other, and both may
/// begin no more than five seconds before what is known expires.
const SLOW: Duration = Duration::from_millis(1500);

#[test]
fn who_asks_all_the_time_does_not_wait_when_an_address_expires() {
    let lab = SUBNET.enter();
    let _daemons = [lab.ours("H1", "addr_timeout 1\n"), lab.stock("H2", ""), lab.ours("H3", "")];
    let questions = ["10.77.0.2", "10.77.0.3"].map(|to| between("10.77.0.1", to));
    let mut client = Client::connect(&lab, "H1");
    let paths = questions.each_ref().map(|q| client.resolve(q).path());
    let asked = || [lab.count("mcast.H1", "sent"), lab.count("sa.H1", "PathRecord.Get")];
    assert_eq!(asked(), [2, 2]);
    lab.inject(&format!("sa delay ms={} host=H1 attr=0x35", SLOW.as_millis())).unwrap();
    let begin = Instant::now();
    while begin.elapsed() < LIFE + LIFE / 10 {
        for (question, path) in questions.iter().zip(&paths) {
            let before = Instant::now();
            assert_eq!(client.resolve(question).path(), *path);
            assert!(before.elapsed() < SLOW, "{:?} after {:?}", before.elapsed(), begin.elapsed());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(asked(), [4, 4], "each was asked for again once");
}
