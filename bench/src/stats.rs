//! Medians and percentiles.

/// The middle one, or the mean of the two in the middle; not a number if there are none.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match (sorted.get((sorted.len().max(1) - 1) / 2), sorted.get(sorted.len() / 2)) {
        (Some(a), Some(b)) => (a + b) / 2.0,
        _ => f64::NAN,
    }
}

/// The median of the ratios of pairs that were measured one after the other.
pub fn ratio(ours: &[f64], other: &[f64]) -> f64 {
    let ratios: Vec<f64> = ours.iter().zip(other).map(|(a, b)| a / b).collect();
    median(&ratios)
}

/// The value that this share of `sorted` does not exceed.
pub fn percentile(sorted: &[u64], share: f64) -> f64 {
    let at = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(at.clamp(1, sorted.len().max(1)) - 1).map_or(f64::NAN, |&v| v as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan());
        assert_eq!(ratio(&[2.0, 9.0, 4.0], &[1.0, 3.0, 4.0]), 2.0);
    }

    #[test]
    fn shares() {
        let values: Vec<u64> = (1..=1000).collect();
        assert_eq!(percentile(&values, 0.5), 500.0);
        assert_eq!(percentile(&values, 0.999), 999.0);
        assert_eq!(percentile(&values, 1.0), 1000.0);
        assert_eq!(percentile(&values, 0.0), 1.0);
        assert!(percentile(&[], 0.5).is_nan());
    }
}
