//! Sorting, by code that is there once: the standard library's is made anew for each type, five kilobytes at a time, and
//! is faster than is of use for lists that are sorted when the configuration or a port changes.

use std::cmp::Ordering;

/// Sorts `list`; equals stay in their order. Beside the list it needs eight bytes for each of its elements.
pub(crate) fn sort_by<T>(list: &mut [T], mut compare: impl FnMut(&T, &T) -> Ordering) {
    let mut from = order(list.len(), &mut |a, b| compare(&list[a], &list[b]));
    // Each place gets what belongs there, and hands on what it had, until the circle closes.
    for start in 0..list.len() {
        let mut at = start;
        while from[at] as usize != start {
            let next = from[at] as usize;
            list.swap(at, next);
            from[at] = at as u32;
            at = next;
        }
        from[at] = at as u32;
    }
}

/// [`sort_by`] with a key of each element.
pub(crate) fn sort_by_key<T, K: Ord>(list: &mut [T], key: impl Fn(&T) -> K) {
    sort_by(list, |a, b| key(a).cmp(&key(b)));
}

/// The numbers below `len` in the order that `compare` gives: merging ever longer runs.
fn order(len: usize, compare: &mut dyn FnMut(usize, usize) -> Ordering) -> Vec<u32> {
    // No list here has more than 2^32 elements: all are bounded far below.
    let mut runs: Vec<u32> = (0..len as u32).collect();
    let mut merged = runs.clone();
    let mut width = 1;
    while width < len {
        for start in (0..len).step_by(2 * width) {
            let (middle, end) = ((start + width).min(len), (start + 2 * width).min(len));
            let (mut left, mut right) = (start, middle);
            for place in &mut merged[start..end] {
                let is_right = left == middle
                    || right < end && compare(runs[right] as usize, runs[left] as usize) == Ordering::Less;
                let taken = if is_right { &mut right } else { &mut left };
                *place = runs[*taken];
                *taken += 1;
            }
        }
        std::mem::swap(&mut runs, &mut merged);
        width *= 2;
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_all_lengths_are_sorted_as_the_library_does() {
        let mut state = 1_u32;
        for len in (0..70).chain([1000, 4097]) {
            let mut list: Vec<(u32, usize)> = (0..len)
                .map(|i| {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    (state >> 28, i)
                })
                .collect();
            let mut expected = list.clone();
            expected.sort_by_key(|e| e.0);
            sort_by_key(&mut list, |e| e.0);
            assert_eq!(list, expected);
            sort_by(&mut list, |a, b| b.cmp(a));
            assert!(list.is_sorted_by(|a, b| a >= b));
        }
    }
}
