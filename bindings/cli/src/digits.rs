//! Numbers as decimal lines, many of them: of neighbours only the last four digits are made anew.
//!
//! `seq` does the same with a carry through the text; here the front is kept with its value, so that ids that do not
//! follow one another (snowflakes) come out right as well, only slower.

use keymill::serial::write_number;

/// The last four digits of every number, `0000` to `9999`.
static LAST: [[u8; 4]; 10_000] = {
    let mut table = [[b'0'; 4]; 10_000];
    let mut n = 0;
    while n < table.len() {
        table[n] = [
            b'0' + (n / 1000) as u8,
            b'0' + (n / 100 % 10) as u8,
            b'0' + (n / 10 % 10) as u8,
            b'0' + (n % 10) as u8,
        ];
        n += 1;
    }
    table
};

/// Digits of a `u64` without its last four.
const MOST_FRONT: usize = 16;
/// A front, four digits, and `"` before, `",⏎` after them.
const ROOM: usize = MOST_FRONT + 4 + 4;

/// Appends numbers to `out`, each with a line end; `quoted`: as JSON strings, each with a comma and a line end.
pub fn append(out: &mut Vec<u8>, numbers: &[u64], quoted: bool) {
    let (head, tail): (&[u8], &[u8]) = if quoted { (b"\"", b"\",\n") } else { (b"", b"\n") };
    let mut front = 0;
    // Head and front digits, as they stand before the last four.
    let mut kept = [0_u8; ROOM];
    let mut kept_len = 0;
    for &number in numbers {
        if number < 10_000 {
            let mut digits = [0; 4];
            let len = write_number(&mut digits, number, 1).unwrap_or(0);
            out.extend_from_slice(head);
            out.extend_from_slice(&digits[..len]);
            out.extend_from_slice(tail);
            continue;
        }
        if number / 10_000 != front {
            front = number / 10_000;
            kept[..head.len()].copy_from_slice(head);
            kept_len = head.len() + write_number(&mut kept[head.len()..], front, 1).unwrap_or(0);
        }
        // A copy of a fixed length is two instructions; what is too much is cut off again.
        let mut line = kept;
        line[kept_len..kept_len + 4].copy_from_slice(&LAST[(number % 10_000) as usize]);
        line[kept_len + 4..kept_len + 4 + tail.len()].copy_from_slice(tail);
        let end = out.len() + kept_len + 4 + tail.len();
        out.extend_from_slice(&line);
        out.truncate(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The slow way, which is surely right.
    fn expected(numbers: &[u64], before: &str, after: &str) -> String {
        numbers.iter().fold(String::new(), |all, n| all + before + &n.to_string() + after)
    }

    fn lines(numbers: &[u64], quoted: bool) -> String {
        let mut out = Vec::new();
        append(&mut out, numbers, quoted);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn numbers_read_as_rust_would_write_them() {
        let mut numbers = vec![0, 1, 9, 10, 9_998, 9_999, 10_000, 10_001, 99_999, 100_000, 19_999, 20_000];
        numbers.extend((0..20).flat_map(|zeros| {
            let power = 10_u64.pow(zeros);
            [power - 1, power, power + 1]
        }));
        numbers.extend([u64::MAX, i64::MAX as u64, u64::MAX - 1, 1 << 53]);
        assert_eq!(lines(&numbers, false), expected(&numbers, "", "\n"));
        assert_eq!(lines(&numbers, true), expected(&numbers, "\"", "\",\n"));
    }

    #[test]
    fn a_run_of_neighbours_carries_through_every_digit() {
        let numbers: Vec<u64> = (999_900..1_020_100).collect();
        assert_eq!(lines(&numbers, false), expected(&numbers, "", "\n"));
    }
}
