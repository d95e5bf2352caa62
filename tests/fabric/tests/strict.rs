//! The stand-in forgives no more than hardware does, and says what was wrong.

mod common;

use common::{compile, run, subnet, text};

/// The misuse, and words of the violation.
const MISUSES: &[(&str, &str)] = &[
    ("send-too-early", "ibv_post_send: QP 0x"),
    ("attribute-mask", "with mask 0x"),
    ("state-order", "from state 0 to 2"),
    ("bad-lkey", "names no memory region"),
    ("out-of-bounds", "outside of their memory region"),
    ("read-only-receive", "no local write access"),
    ("small-receive", "came to a receive of 45"),
    ("receive-overflow", "receive queue of QP"),
    ("send-overflow", "send queue of QP"),
    ("mtu", "the MTU is 2048"),
    ("foreign-pd", "two protection domains"),
    ("destroyed-ah", "is no live address handle"),
    ("cq-overflow", "completion queue overflow"),
    ("busy-pd", "still has objects"),
    ("busy-cq", "queue pairs still use it"),
    ("attached", "is attached to 1 multicast groups"),
    ("too-many-acks", "2 acknowledged, 1 outstanding"),
    ("no-ack", "1 completion events were not acknowledged"),
];

#[test]
fn misuse_is_told() {
    let program = compile("misuse", &["-libverbs"]);
    let subnet = subnet(1);
    for right in ["edges", "correct"] {
        let output = run(subnet.exec("H1", &program).arg(right));
        assert!(output.status.success(), "{right}: {}", text(&output));
    }
    assert_eq!(subnet.violations().unwrap(), [""; 0]);
    let stats = subnet.stats().unwrap();
    assert_eq!((stats["drop.qkey"], stats["drop.no_receive"]), (1, 1));

    let mut known = 0;
    for (misuse, words) in MISUSES {
        let output = run(subnet.exec("H1", &program).arg(misuse));
        assert!(output.status.success(), "{misuse}: {}", text(&output));
        let violations = subnet.violations().unwrap();
        let fresh = &violations[known..];
        assert!(!fresh.is_empty() && fresh.iter().any(|v| v.contains(words)), "{misuse}: {fresh:?}");
        assert!(fresh.iter().all(|v| v.starts_with("FABRIC VIOLATION: H1: misuse-")), "{misuse}: {fresh:?}");
        assert!(text(&output).contains(words) || *misuse == "mtu", "{misuse}: also on standard error");
        known = violations.len();
    }
}
