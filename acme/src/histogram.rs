//! Durations by the thousand or the billion in a table of fixed size.

use std::time::Duration;

/// Bits of a value that are kept: one bucket is at most 1/128 of its values wide.
const KEPT: u32 = 7;
/// Buckets to each power of two.
const EACH: usize = 1 << KEPT;
/// Powers of two of a nanosecond: what takes more than 2^45 of them, nearly ten hours, is counted as that much.
const POWERS: u32 = 45;
/// All buckets: 40 kB.
const BUCKETS: usize = EACH * (POWERS - KEPT + 1) as usize;

/// How often each duration was seen, to less than one per cent.
pub struct Histogram {
    counts: Vec<u64>,
    count: u64,
    sum: u128,
    min: u64,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { counts: vec![0; BUCKETS], count: 0, sum: 0, min: u64::MAX, max: 0 }
    }
}

/// A row of [`Histogram::rows`]: durations from one up to another, and how many there were.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row {
    /// The shortest.
    pub from: Duration,
    /// The next row's shortest; the longest of all in the last row.
    pub to: Duration,
    /// How many.
    pub count: u64,
}

/// The bucket of a value in nanoseconds: exact below 128, then 128 to each power of two.
fn bucket(value: u64) -> usize {
    let value = value.min((1 << POWERS) - 1);
    let shift = (u64::BITS - value.leading_zeros()).saturating_sub(KEPT + 1);
    shift as usize * EACH + (value >> shift) as usize
}

/// The value that stands for all of a bucket: its middle.
fn middle(bucket: usize) -> u64 {
    let shift = (bucket / EACH).saturating_sub(1);
    let from = ((bucket - shift * EACH) as u64) << shift;
    from + (1 << shift) / 2
}

impl Histogram {
    /// Counts a duration.
    pub fn add(&mut self, duration: Duration) {
        let value = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        if let Some(count) = self.counts.get_mut(bucket(value)) {
            *count += 1;
        }
        self.count += 1;
        self.sum += u128::from(value);
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    /// How many were counted.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The shortest, exactly.
    pub fn min(&self) -> Option<Duration> {
        (self.count > 0).then(|| Duration::from_nanos(self.min))
    }

    /// The longest, exactly.
    pub fn max(&self) -> Option<Duration> {
        (self.count > 0).then(|| Duration::from_nanos(self.max))
    }

    /// The mean, exactly.
    pub fn mean(&self) -> Option<Duration> {
        let mean = self.sum.checked_div(u128::from(self.count))?;
        Some(Duration::from_nanos(u64::try_from(mean).unwrap_or(u64::MAX)))
    }

    /// The shortest duration that at least this share of all (0 to 1) do not exceed.
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        // Of 1000, the 999th is p99.9: no rounding error may make it the 1000th.
        let rank = ((share * self.count as f64 - 1e-6).ceil() as u64).clamp(1, self.count.max(1));
        let mut below = 0;
        let found = self.counts.iter().position(|count| {
            below += count;
            below >= rank
        })?;
        Some(Duration::from_nanos(middle(found).clamp(self.min, self.max)))
    }

    /// At most so many rows from the shortest to the longest, each as many times longer than the one before.
    pub fn rows(&self, most: u32) -> Vec<Row> {
        if self.count == 0 {
            return Vec::new();
        }
        let (from, to) = (self.min.max(1) as f64, self.max.max(1) as f64);
        // Rows are never narrower than what is told apart.
        let fit = (to / from).ln() / 1.02f64.ln();
        let rows = most.min(fit as u32).max(1);
        let edge = |i: u32| {
            let value =
                if i == rows { self.max } else { (from * (to / from).powf(f64::from(i) / f64::from(rows))) as u64 };
            if i == 0 { self.min } else { value }
        };
        let mut made: Vec<Row> = (0..rows)
            .map(|i| (Duration::from_nanos(edge(i)), Duration::from_nanos(edge(i + 1))))
            .map(|(from, to)| Row { from, to, count: 0 })
            .collect();
        for (bucket, count) in self.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let value = Duration::from_nanos(middle(bucket));
            let last = made.len() - 1;
            let row = made.iter().position(|row| value < row.to).unwrap_or(last);
            if let Some(row) = made.get_mut(row) {
                row.count += count;
            }
        }
        made
    }
}

#[cfg(test)]
mod tests {
    use std::hash::{BuildHasher, RandomState};

    use super::*;

    /// Values from nanoseconds to hours, as many of each size.
    fn random(count: usize) -> Vec<u64> {
        let state = RandomState::new();
        let value = |i| {
            let word = state.hash_one(i);
            (word >> 20) >> (word % 44)
        };
        (0..count).map(value).collect()
    }

    fn histogram(values: &[u64]) -> Histogram {
        let mut histogram = Histogram::default();
        values.iter().for_each(|v| histogram.add(Duration::from_nanos(*v)));
        histogram
    }

    #[test]
    fn buckets_are_in_order_and_narrow() {
        for value in (0..100_000u64).chain(random(100_000)) {
            let found = bucket(value);
            assert!(bucket(value + 1) - found <= 1, "{value}");
            let error = middle(found).abs_diff(value) as f64;
            assert!(error <= value as f64 / 128.0, "{value}: {}", middle(found));
        }
        assert!(bucket(u64::MAX) == BUCKETS - 1 && bucket((1 << POWERS) - 1) == BUCKETS - 1);
    }

    #[test]
    fn quantiles_are_those_of_the_sorted_values_to_one_per_cent() {
        for count in [1, 2, 10, 99, 1000, 12_345] {
            let mut values = random(count);
            let histogram = histogram(&values);
            values.sort_unstable();
            for (share, per_mille) in [(0.0, 0), (0.5, 500), (0.9, 900), (0.99, 990), (0.999, 999), (1.0, 1000)] {
                let rank = (per_mille * count).div_ceil(1000).max(1);
                let (exact, found) = (values[rank - 1], histogram.quantile(share).unwrap().as_nanos() as u64);
                assert!(found.abs_diff(exact) as f64 <= exact as f64 / 100.0, "p{share} of {count}: {found} {exact}");
            }
            assert_eq!(histogram.count(), count as u64);
            assert_eq!(histogram.min().unwrap().as_nanos() as u64, values[0]);
            assert_eq!(histogram.max().unwrap().as_nanos() as u64, values[count - 1]);
            let mean = values.iter().map(|v| u128::from(*v)).sum::<u128>() / count as u128;
            assert_eq!(histogram.mean().unwrap().as_nanos(), mean);
        }
    }

    #[test]
    fn nothing_has_no_quantiles() {
        let empty = Histogram::default();
        assert_eq!((empty.min(), empty.max(), empty.mean(), empty.quantile(0.5)), (None, None, None, None));
        assert!(empty.rows(16).is_empty());
    }

    #[test]
    fn days_are_counted_as_hours() {
        let mut histogram = Histogram::default();
        histogram.add(Duration::MAX);
        assert!(histogram.quantile(0.5).unwrap() > Duration::from_secs(9 * 3600));
    }

    #[test]
    fn rows_cover_everything_once() {
        let mut sets = vec![vec![0], vec![5], vec![7; 100], vec![1000, 1001, 1005], vec![0, 1 << 50]];
        sets.extend([3, 100, 10_000].map(random));
        for values in sets {
            let histogram = histogram(&values);
            let rows = histogram.rows(16);
            assert!((1..=16).contains(&rows.len()), "{rows:?}");
            assert_eq!(rows.iter().map(|r| r.count).sum::<u64>(), values.len() as u64);
            assert!(rows.windows(2).all(|w| w[0].to == w[1].from), "{rows:?}");
            assert!(rows.iter().all(|r| r.from <= r.to), "{rows:?}");
            assert_eq!(Some(rows[0].from), histogram.min());
            assert_eq!(rows.last().map(|r| r.to), histogram.max());
        }
        // From 1 to 100000, each row is ten times the one before.
        let rows = histogram(&[1, 2, 30, 100_000]).rows(5);
        let counts: Vec<u64> = rows.iter().map(|r| r.count).collect();
        assert_eq!(counts, [2, 1, 0, 0, 1]);
    }
}
