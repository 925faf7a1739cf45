//! From a failing sequence to the shortest one that can be found by leaving commands out.

use crate::generator::Sequence;
use crate::runner::{Bench, Difference, Tally};

/// Leaves out what the difference does not need. Returns what is left and the difference in it; none when the sequence
/// does not differ when it is run again.
pub(crate) fn shrink(bench: &mut Bench<'_>, sequence: &Sequence, found: &Difference) -> Option<(Sequence, Difference)> {
    let mut short = sequence.clone();
    short.steps.truncate(found.step + 1);
    let mut differs = |sequence: &Sequence| bench.run(sequence, &mut Tally::default()).err();
    let mut difference = differs(&short)?;
    let mut size = short.steps.len().div_ceil(2);
    while size > 0 {
        let mut at = short.steps.len();
        let before = at;
        while at > 0 {
            at = at.saturating_sub(size);
            let mut candidate = short.clone();
            candidate.steps.drain(at..(at + size).min(short.steps.len()));
            if let Some(other) = differs(&candidate) {
                (short, difference) = (candidate, other);
            }
        }
        if size == 1 && short.steps.len() == before {
            break;
        }
        size = (size / 2).max(1);
    }
    Some((short, difference))
}
