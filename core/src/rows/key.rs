//! Ids as values of the key, and ranges of them.

use std::fmt;

use crate::moves::PlannedMove;

/// An id as the key column holds it. All of one table are of one form, and are ordered as the server orders them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Id {
    /// Of a column of 64 bits.
    Number(u64),
    /// Of a column of bytes: 8 or 16, big-endian. Their first bytes are the gene's in both forms.
    Bytes(Vec<u8>),
}

/// The values of the primary key, as the server writes them.
pub type Primary = Vec<Vec<u8>>;

impl Id {
    /// The first eight bytes as a number, which says where in a range it is.
    fn place(&self) -> u64 {
        match self {
            Id::Number(number) => *number,
            Id::Bytes(bytes) => {
                let mut first = [0; 8];
                for (to, from) in first.iter_mut().zip(bytes) {
                    *to = *from;
                }
                u64::from_be_bytes(first)
            }
        }
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Id::Number(number) => write!(f, "{number}"),
            Id::Bytes(bytes) => {
                f.write_str("0x")?;
                bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }
    }
}

/// The ids from `first` to `last`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdRange {
    pub first: Id,
    pub last: Id,
}

impl IdRange {
    /// The ids of a range of genes: one range of the key, or two where it goes on at gene 0.
    pub fn of(moved: &PlannedMove, wide: bool) -> Vec<IdRange> {
        let one = |planned: &PlannedMove| {
            if wide {
                let (first, last) = planned.wide_ids();
                let bytes = |id: u128| Id::Bytes(id.to_be_bytes().to_vec());
                return IdRange { first: bytes(first), last: bytes(last) };
            }
            let (first, last) = planned.ids();
            IdRange { first: Id::Number(first), last: Id::Number(last) }
        };
        if moved.first <= moved.last {
            return vec![one(moved)];
        }
        let (mut below, mut above) = (moved.clone(), moved.clone());
        (below.first, above.last) = (0, u16::MAX);
        vec![one(&below), one(&above)]
    }

    /// How much of the range lies up to this id, 0 to 1. Genes are spread evenly over the keys, so this is about the share of the rows.
    pub fn share(&self, upto: &Id) -> f64 {
        let (first, last, at) = (self.first.place(), self.last.place(), upto.place());
        at.saturating_sub(first) as f64 / (last.saturating_sub(first) as f64).max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moved(first: u16, last: u16) -> PlannedMove {
        let text = format!(
            "version = 1\nring = \"0\"\n[[move]]\nfirst = {first}\nlast = {}\nfrom = \"a\"\nto = \"b\"\n",
            last.max(first)
        );
        let mut planned = crate::moves::MovePlan::from_text(&text).expect("a plan").moves.remove(0);
        planned.last = last;
        planned
    }

    #[test]
    fn a_range_that_goes_on_at_gene_0_is_two_ranges_of_the_key() {
        let ranges = IdRange::of(&moved(65_535, 1), false);
        let ids: Vec<_> =
            ranges.iter().map(|range| (range.first.to_string(), range.last.to_string())).collect();
        let text = |first: u64, last: u64| (first.to_string(), last.to_string());
        assert_eq!(ids, [text(0, (2 << 47) - 1), text(65_535 << 47, (1 << 63) - 1)]);
    }

    #[test]
    fn ids_of_8_and_of_16_bytes_are_of_one_range() {
        let range = IdRange::of(&moved(1, 1), true).remove(0);
        let narrow = Id::Bytes(((1_u64 << 47) + 5).to_be_bytes().to_vec());
        let wide = Id::Bytes(((1_u128 << 111) + 5).to_be_bytes().to_vec());
        for id in [narrow, wide] {
            assert!(range.first < id && id < range.last, "{id}");
        }
        let beyond = Id::Bytes((2_u64 << 47).to_be_bytes().to_vec());
        assert!(range.last < beyond);
    }

    #[test]
    fn the_share_of_a_range_is_told_by_the_key() {
        let range = IdRange::of(&moved(0, 65_535), false).remove(0);
        assert!((range.share(&Id::Number(1 << 62)) - 0.5).abs() < 1e-9);
        assert!(range.share(&range.first).abs() < 1e-9 && (range.share(&range.last) - 1.0).abs() < 1e-9);
    }
}
