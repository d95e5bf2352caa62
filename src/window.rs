//! How many questions are on their way at a time: few at first, more while answers come soon, fewer when they do not. Pure.
//!
//! A depth is what one host may do. What the subnet administrator (SA) gets is that of all hosts: a thousand that start at
//! once with 32 questions each are 32,000, more than it has room for, and those that are lost are repeated only seconds
//! later. No host knows what the others do, but each can tell from its answers:
//!
//! - A burst begins with [`START`] questions, whatever was possible before: 10 ms without any are enough for others to
//!   have come. While somebody waits for his turn each answer makes room for one question more, which doubles the window
//!   in each round trip.
//! - An answer that takes long has waited behind others, for wires take microseconds: a window that is wider than what
//!   keeps the other side busy makes queues longer and nothing faster. So there is no growth while an answer takes more
//!   than four times the least that was seen, and 2 ms; beyond sixteen times that and 4 ms the window is halved. A
//!   thousand hosts of which each has one question there have a queue of 20 ms, and stay at one.
//! - What counts as the least is 1 ms at most. Hosts that begin in the crowd have never seen less than its queue, and
//!   would take it for the way.
//! - A question that was lost, or answered with "busy", halves it; silence makes it what it was at first. After that it
//!   grows by one in a round trip, for as long as the burst lasts.
//!
//! Halving is done once in a round trip: what was sent before says nothing of what the window is now.

use std::time::Duration;

use crate::time::Time;

/// The window of a burst that begins.
const START: usize = 1;
/// With no answer for so long, what comes is another burst.
const IDLE: Duration = Duration::from_millis(10);
/// For how long a burst remembers that an earlier one was too much.
const FORGET: Duration = Duration::from_secs(1);
/// The most that counts as the least time of an answer.
const LEAST: Duration = Duration::from_millis(1);
/// No growth beyond so many least times, and [`SLACK`].
const HOLD: u32 = 4;
/// Less beyond so many least times, and twice [`SLACK`].
const TOO_LONG: u32 = 16;
const SLACK: Duration = Duration::from_millis(2);

/// A window.
#[derive(Debug)]
pub struct Window {
    width: usize,
    /// Answers since it has last grown by one.
    credit: usize,
    /// Up to this width each answer counts for one.
    threshold: usize,
    /// The least time that an answer took.
    least: Duration,
    /// When it was last made smaller.
    shrunk: Time,
    /// When the last answer came.
    answered: Time,
}

impl Default for Window {
    fn default() -> Window {
        Window { width: START, credit: 0, threshold: usize::MAX, least: LEAST, shrunk: Time(0), answered: Time(0) }
    }
}

impl Window {
    /// How many may be on their way, `depth` at most and at least one; always as many where that is `fixed`.
    pub fn width(&self, depth: usize, fixed: bool) -> usize {
        let width = if fixed { depth } else { self.width.min(depth) };
        width.max(1)
    }

    /// A question goes out, and no answer is known to be on its way.
    pub fn begin(&mut self, now: Time) {
        if self.answered.plus(IDLE) <= now {
            (self.width, self.credit) = (START, 0);
            if self.shrunk.plus(FORGET) <= now {
                self.threshold = usize::MAX;
            }
        }
    }

    /// The answer to a question that was sent at `sent` came. `wanted`: others wait for their turn.
    pub fn answered(&mut self, now: Time, sent: Time, wanted: bool, depth: usize) {
        self.answered = now;
        let took = sent.until(now);
        self.least = self.least.min(took);
        if sent < self.shrunk {
            return;
        }
        if took > self.least.saturating_mul(TOO_LONG) + 2 * SLACK {
            return self.halve(now, sent);
        }
        if took > self.least.saturating_mul(HOLD) + SLACK {
            self.threshold = self.threshold.min(self.width);
            return;
        }
        if !wanted || self.width >= depth {
            return;
        }
        self.credit += 1;
        if self.width < self.threshold || self.credit >= self.width {
            (self.width, self.credit) = (self.width + 1, 0);
        }
    }

    /// What was sent at `sent` was lost, or was too much.
    pub fn halve(&mut self, now: Time, sent: Time) {
        if sent < self.shrunk {
            return;
        }
        self.width = (self.width / 2).max(1);
        (self.threshold, self.credit, self.shrunk) = (self.width, 0, now);
    }

    /// Nothing is answered any more.
    pub fn silent(&mut self, now: Time) {
        self.threshold = self.threshold.min((self.width / 2).max(1));
        (self.width, self.credit, self.shrunk) = (self.width.min(START), 0, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1000;
    const S: u64 = 1_000_000;

    /// `n` round trips in which the window is used up and each answer takes `took`: the widths that they had, and when
    /// they end.
    fn trips(w: &mut Window, mut now: u64, n: usize, took: u64, depth: usize) -> (Vec<usize>, u64) {
        let mut widths = Vec::new();
        w.begin(Time(now));
        for _ in 0..n {
            let width = w.width(depth, false);
            widths.push(width);
            (0..width).for_each(|_| w.answered(Time(now + took), Time(now), true, depth));
            now += took;
        }
        (widths, now)
    }

    #[test]
    fn it_doubles_in_each_round_trip_up_to_the_depth() {
        let mut w = Window::default();
        assert_eq!(trips(&mut w, S, 8, 100, 32).0, [1, 2, 4, 8, 16, 32, 32, 32]);
        assert_eq!(w.width(5, false), 5, "a depth that has become less holds at once");
        assert_eq!(w.width(0, false), 1);
        assert_eq!(trips(&mut Window::default(), S, 3, 100, 1).0, [1, 1, 1]);
    }

    #[test]
    fn it_does_not_grow_unless_somebody_waits() {
        let mut w = Window::default();
        for i in 0..100 {
            w.answered(Time(S + i), Time(S), false, 32);
        }
        assert_eq!(w.width(32, false), 1);
    }

    #[test]
    fn a_loss_halves_it_once_in_a_round_trip_and_then_it_grows_slowly() {
        let mut w = Window::default();
        let (_, now) = trips(&mut w, S, 5, 100, 32);
        assert_eq!(w.width(32, false), 32);
        for _ in 0..10 {
            w.halve(Time(now + 50), Time(now));
        }
        assert_eq!(w.width(32, false), 16);
        w.answered(Time(now + 60), Time(now), true, 32);
        assert_eq!(trips(&mut w, now + 60, 4, 100, 32).0, [16, 17, 18, 19]);
    }

    #[test]
    fn never_less_than_one() {
        let mut w = Window::default();
        for i in 1..10 {
            w.halve(Time(i), Time(i));
            w.silent(Time(i));
            assert_eq!(w.width(32, false), 1);
        }
    }

    #[test]
    fn a_slow_other_side_holds_it_and_a_slower_one_narrows_it() {
        let mut w = Window::default();
        let (_, now) = trips(&mut w, S, 4, 100, 64);
        assert_eq!(w.width(64, false), 16);
        let (widths, now) = trips(&mut w, now, 3, 3 * MS, 64);
        assert_eq!(widths, [16, 16, 16]);
        let (widths, now) = trips(&mut w, now, 6, 20 * MS, 64);
        assert_eq!(widths, [16, 8, 4, 2, 1, 1]);
        assert_eq!(trips(&mut w, now, 4, 100, 64).0, [1, 2, 3, 4], "by one from then on");
    }

    #[test]
    fn a_crowd_from_the_first_answer_on_is_not_taken_for_the_way() {
        let mut w = Window::default();
        assert_eq!(trips(&mut w, S, 5, 7 * MS, 32).0, [1, 1, 1, 1, 1]);
        // though one that is far, or slow by itself, is
        assert_eq!(trips(&mut Window::default(), S, 4, 5 * MS, 32).0, [1, 2, 4, 8]);
    }

    /// Hosts that begin within the first `stagger` and always want to know more, from somebody who answers one question
    /// after another, each in `service` or half as long again or less: the most questions that ever waited there, and at the end.
    fn crowd(hosts: usize, service: u64, stagger: u64) -> (usize, usize) {
        let mut windows: Vec<(Window, usize)> = (0..hosts).map(|_| (Window::default(), 0)).collect();
        let mut queue: std::collections::VecDeque<(usize, u64)> = Default::default();
        let mut rng = crate::keyed::Rng::new(crate::keyed::SipKey(7, 8));
        let (mut now, mut most, mut begun) = (S, 0, 0);
        while now < 11 * S {
            while begun < hosts && S + stagger * begun as u64 / hosts as u64 <= now {
                windows[begun].0.begin(Time(now));
                windows[begun].1 = 1;
                queue.push_back((begun, now));
                begun += 1;
            }
            now += service / 2 + rng.below(service);
            let Some((host, sent)) = queue.pop_front() else { continue };
            let (w, asked) = &mut windows[host];
            w.answered(Time(now), Time(sent), true, 32);
            *asked -= 1;
            while *asked < w.width(32, false) {
                *asked += 1;
                queue.push_back((host, now));
            }
            most = most.max(queue.len());
        }
        (most, queue.len())
    }

    #[test]
    fn hosts_that_begin_together_have_one_question_each_there() {
        for (hosts, service) in [(1000, 20), (1000, 1000), (300, 50), (3, 20_000)] {
            for stagger in [0, 10 * MS, S] {
                let (most, end) = crowd(hosts, service, stagger);
                assert!(most <= hosts + hosts / 2, "{most} of {hosts} hosts, {service} us each");
                assert!(end >= hosts && end <= hosts + hosts / 4, "{end} of {hosts} hosts, {service} us each");
            }
        }
    }

    #[test]
    fn a_burst_after_a_silence_begins_anew() {
        let mut w = Window::default();
        let (_, now) = trips(&mut w, S, 5, 100, 32);
        w.begin(Time(now + 9 * MS));
        assert_eq!(w.width(32, false), 32);
        let (widths, now) = trips(&mut w, now + 10 * MS, 3, 100, 32);
        assert_eq!(widths, [1, 2, 4]);
        w.halve(Time(now), Time(now));
        assert_eq!(trips(&mut w, now + 20 * MS, 5, 100, 32).0, [1, 2, 4, 5, 6], "what was too much is remembered");
        let later = now + 2 * S;
        assert_eq!(trips(&mut w, later, 5, 100, 32).0, [1, 2, 4, 8, 16], "for a while");
    }
}
