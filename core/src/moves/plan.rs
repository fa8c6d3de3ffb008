//! The fewest moves that give each shard its share of the genes, or of their load.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::document;
use crate::error::{Error, Result, shown};
use crate::gene::hash::xxhash64;
use crate::gene::{NUMBER_BITS, WIDE_SHIFT};
use crate::router::{LONGEST_TEXT, Range, RouteTable, is_shard_name};

/// The largest weight of a shard.
const LARGEST_WEIGHT: u32 = 1_000_000;

/// Genes from `first` to `last`, of one shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Interval {
    pub(super) first: u16,
    pub(super) last: u16,
    pub(super) shard: String,
}

/// The ranges of a table as intervals of the genes from 0 to 65535, neighbours of one shard joined.
pub(super) fn intervals(ranges: &[Range]) -> Vec<Interval> {
    let mut all = Vec::with_capacity(ranges.len() + 1);
    let mut first = 0;
    for range in ranges {
        all.push(Interval { first, last: range.upper, shard: range.shard.clone() });
        first = range.upper.saturating_add(1);
    }
    // Behind the highest bound the first range begins.
    if let (Some(last), Some(begin)) = (ranges.last(), ranges.first())
        && last.upper < u16::MAX
    {
        all.push(Interval { first, last: u16::MAX, shard: begin.shard.clone() });
    }
    let shard = all.first().map(|one| one.shard.clone()).unwrap_or_default();
    given(&all, 0, 0, &shard)
}

/// Gives genes to a shard. Neighbours of one shard become one interval.
pub(super) fn given(all: &[Interval], first: u16, last: u16, shard: &str) -> Vec<Interval> {
    let mut new: Vec<Interval> = Vec::with_capacity(all.len() + 2);
    let mut put = |first: u32, last: u32, shard: &str| {
        if first > last {
            return;
        }
        let (first, last) = (first as u16, last as u16);
        match new.last_mut() {
            Some(before) if before.shard == shard => before.last = last,
            _ => new.push(Interval { first, last, shard: shard.to_owned() }),
        }
    };
    let (first, last) = (u32::from(first), u32::from(last));
    for interval in all {
        let (begin, end) = (u32::from(interval.first), u32::from(interval.last));
        if end < first || begin > last {
            put(begin, end, &interval.shard);
            continue;
        }
        if begin < first {
            put(begin, first - 1, &interval.shard);
        }
        put(begin.max(first), end.min(last), shard);
        put(last + 1, end, &interval.shard);
    }
    new
}

/// A move of a [`MovePlan`]: genes from `first` to `last`.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PlannedMove {
    /// The first gene.
    pub first: u16,
    /// The last gene.
    pub last: u16,
    /// The shard that has them.
    pub from: String,
    /// The shard that gets them.
    pub to: String,
    /// Which share of all genes, or of the load that the plan was made for, this is.
    pub share: f64,
}

impl PlannedMove {
    /// The ids of 64 bits that move: one range of the key, its first and its last number.
    #[must_use]
    pub fn ids(&self) -> (u64, u64) {
        let end = (u64::from(self.last) + 1) << NUMBER_BITS;
        (u64::from(self.first) << NUMBER_BITS, end - 1)
    }

    /// The ids of 128 bits that move.
    #[must_use]
    pub fn wide_ids(&self) -> (u128, u128) {
        let end = (u128::from(self.last) + 1) << WIDE_SHIFT;
        (u128::from(self.first) << WIDE_SHIFT, end - 1)
    }

    /// The condition of SQL on a key of 64 bits.
    #[must_use]
    pub fn predicate(&self, column: &str) -> String {
        let (first, last) = self.ids();
        format!("{column} BETWEEN {first} AND {last}")
    }

    /// The condition on a key of 16 bytes, with the literals of MySQL.
    #[must_use]
    pub fn wide_predicate(&self, column: &str) -> String {
        let (first, last) = self.wide_ids();
        format!("{column} BETWEEN X'{first:032x}' AND X'{last:032x}'")
    }
}

/// Which genes have to move so that each shard has its share.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct MovePlan {
    /// The version of the table that it was made for.
    pub version: u64,
    /// The moves, in the order in which they are made.
    pub moves: Vec<PlannedMove>,
    /// Stands for who has which gene when all moves are made.
    ring: u64,
}

/// A shard, and what it has and should have.
struct Balance {
    name: String,
    has: u128,
    wants: u128,
}

impl MovePlan {
    /// The fewest moves that give each of these shards a share by its weight. A shard of the table that is not among them gives all
    /// of its genes away. `load` says how much each gene counts; empty: all the same.
    pub(crate) fn new(table: &RouteTable, shards: &[(&str, u32)], load: &[u64]) -> Result<MovePlan> {
        check(table, shards)?;
        // Each gene counts a little, so that genes without load are shared out, too.
        let load_of = |gene: u16| u128::from(load.get(usize::from(gene)).copied().unwrap_or(0)) * 2 + 1;
        let mut all = intervals(&table.ranges);
        let mut has: BTreeMap<&str, u128> = BTreeMap::new();
        for one in &all {
            *has.entry(one.shard.as_str()).or_default() += (one.first..=one.last).map(load_of).sum::<u128>();
        }
        let whole: u128 = has.values().sum();
        let mut shares = shares(&has, shards, whole);
        let mut moves: Vec<PlannedMove> = Vec::new();
        // A load is what it was until now: what a cut at a gene leaves over is worth no move of its own.
        let least = if load.is_empty() { 0 } else { whole / 1000 };
        let is_left = |balance: &Balance| shards.iter().all(|(name, _)| *name != balance.name);
        // The largest surplus to the largest need, so that there are few moves.
        loop {
            let gives =
                |balance: &&Balance| balance.has > balance.wants + if is_left(balance) { 0 } else { least };
            let from = shares
                .iter()
                .filter(gives)
                .max_by_key(|balance| (is_left(balance), balance.has - balance.wants));
            let Some(from) = from else { break };
            let is_left = is_left(from);
            let least = if is_left { 0 } else { least };
            let to = shares
                .iter()
                .filter(|balance| balance.has + least < balance.wants)
                .max_by_key(|balance| balance.wants - balance.has);
            let Some(to) = to else { break };
            let amount = (from.has - from.wants).min(to.wants - to.has);
            let (from, to) = (from.name.clone(), to.name.clone());
            let Some((first, last, sum)) = cut(&all, &from, amount, &load_of, is_left) else {
                // The next gene is worth more than what is left to give.
                let Some(done) = shares.iter_mut().find(|balance| balance.name == from) else { break };
                done.wants = done.has;
                continue;
            };
            for balance in &mut shares {
                if balance.name == from {
                    balance.has -= sum;
                } else if balance.name == to {
                    balance.has += sum;
                }
            }
            all = given(&all, first, last, &to);
            let share = sum as f64 / whole as f64;
            match moves.last_mut() {
                Some(before)
                    if before.from == from
                        && before.to == to
                        && last.checked_add(1) == Some(before.first) =>
                {
                    before.first = first;
                    before.share += share;
                }
                _ => moves.push(PlannedMove { first, last, from, to, share }),
            }
        }
        Ok(MovePlan { version: table.version(), moves, ring: digest(&all) })
    }

    /// The share of all genes that moves, or of the load.
    #[must_use]
    pub fn share(&self) -> f64 {
        // The sum of no floating-point numbers is -0.
        self.moves.iter().map(|planned| planned.share).sum::<f64>() + 0.0
    }

    /// The plan as TOML, which [`MovePlan::from_text`] reads.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = format!(
            "# Made by `keymill move plan`.\nversion = {}\nring = \"{:016x}\"\n",
            self.version, self.ring
        );
        let quoted = |name: &str| serde_json::Value::from(name).to_string();
        for planned in &self.moves {
            // A String takes whatever is written.
            let _ = write!(
                text,
                "[[move]]\nfirst = {}\nlast = {}\nfrom = {}\nto = {}\nshare = {:?}\n",
                planned.first,
                planned.last,
                quoted(&planned.from),
                quoted(&planned.to),
                planned.share
            );
        }
        text
    }

    /// Reads a plan.
    ///
    /// # Errors
    /// `INVALID_CONFIG`: it is no plan.
    pub fn from_text(text: &str) -> Result<MovePlan> {
        #[derive(serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Written {
            version: u64,
            ring: String,
            #[serde(default, rename = "move")]
            moves: Vec<WrittenMove>,
        }
        #[derive(serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct WrittenMove {
            first: u16,
            last: u16,
            from: String,
            to: String,
            #[serde(default)]
            share: f64,
        }
        let bad = |why: &str| {
            Error::config(format!("this is no plan of moves: {why}; make one with `keymill move plan`"))
        };
        let written: Written =
            document::read_toml(text, LONGEST_TEXT).map_err(|unreadable| bad(&format!("it {unreadable}")))?;
        let ring = u64::from_str_radix(&written.ring, 16)
            .map_err(|_| bad(&format!("`ring` is `{}`, not 16 hexadecimal digits", shown(&written.ring))))?;
        let moves: Vec<_> = written
            .moves
            .into_iter()
            .map(|WrittenMove { first, last, from, to, share }| PlannedMove { first, last, from, to, share })
            .collect();
        if let Some(wrong) =
            moves.iter().find(|planned| planned.first > planned.last || planned.from == planned.to)
        {
            return Err(bad(&format!(
                "a move of genes {}-{} from `{}` to `{}`",
                wrong.first,
                wrong.last,
                shown(&wrong.from),
                shown(&wrong.to)
            )));
        }
        Ok(MovePlan { version: written.version, moves, ring })
    }

    /// Refuses a table that another plan, or an operator, has changed meanwhile.
    pub(crate) fn check(&self, table: &RouteTable) -> Result<()> {
        let mut all = intervals(&table.ranges);
        for planned in &self.moves {
            all = given(&all, planned.first, planned.last, &planned.to);
        }
        if table.version() >= self.version && digest(&all) == self.ring {
            return Ok(());
        }
        Err(Error::config(format!(
            "the plan was made for version {} of the table, and version {} has other ranges; make a new plan",
            self.version,
            table.version()
        )))
    }
}

fn check(table: &RouteTable, shards: &[(&str, u32)]) -> Result<()> {
    if table.moves() {
        return Err(Error::config(
            "a range of the table moves; finish the move or go back before making a plan",
        ));
    }
    if shards.is_empty() {
        return Err(Error::argument("a plan needs the shards; write --shards s1,s2,s3=2"));
    }
    for (at, (name, weight)) in shards.iter().enumerate() {
        if shards[..at].iter().any(|(other, _)| other == name) {
            return Err(Error::argument(format!("shard `{}` is named twice", shown(name))));
        }
        if !is_shard_name(name) {
            return Err(Error::argument(format!(
                "`{}` is no name of a shard: 1 to 255 bytes, without control characters and without a blank at an end; write --shards s1,s2 without blanks",
                shown(name)
            )));
        }
        if !(1..=LARGEST_WEIGHT).contains(weight) {
            return Err(Error::argument(format!(
                "shard `{}` has weight {weight}; weights are 1 to {LARGEST_WEIGHT}",
                shown(name)
            )));
        }
        if table.shards.as_ref().is_some_and(|listed| !listed.iter().any(|listed_name| listed_name == name)) {
            return Err(Error::config(format!(
                "shard `{}` is not in `shards` of the table; store a table that lists it first",
                shown(name)
            )));
        }
    }
    Ok(())
}

/// What each shard should have. What the division leaves goes to the shards that have most above their share already, so that it
/// does not move.
fn shares(has: &BTreeMap<&str, u128>, shards: &[(&str, u32)], whole: u128) -> Vec<Balance> {
    let weights: u128 = shards.iter().map(|(_, weight)| u128::from(*weight)).sum();
    let mut all: Vec<Balance> = shards
        .iter()
        .map(|(name, weight)| Balance {
            name: (*name).to_owned(),
            has: has.get(name).copied().unwrap_or(0),
            wants: whole * u128::from(*weight) / weights.max(1),
        })
        .collect();
    let mut rest = whole - all.iter().map(|balance| balance.wants).sum::<u128>();
    all.sort_by_key(|balance| std::cmp::Reverse(balance.has.saturating_sub(balance.wants)));
    for balance in &mut all {
        let more = rest.min(1);
        balance.wants += more;
        rest -= more;
    }
    let named = |name: &str| shards.iter().any(|(known, _)| *known == name);
    let left = has.iter().filter(|(name, _)| !named(name));
    all.extend(left.map(|(name, has)| Balance { name: (*name).to_owned(), has: *has, wants: 0 }));
    all
}

/// The last genes of a shard's longest interval that are worth `amount` or a little less: first, last, and what they are worth. `None`:
/// a single gene is worth much more. A shard that is left gives whatever its genes are worth.
fn cut(
    all: &[Interval],
    shard: &str,
    amount: u128,
    load_of: &impl Fn(u16) -> u128,
    is_left: bool,
) -> Option<(u16, u16, u128)> {
    let own = all.iter().filter(|one| one.shard == shard);
    let from = own.max_by_key(|one| (one.first..=one.last).map(load_of).sum::<u128>())?;
    let (mut first, mut sum) = (None, 0);
    for gene in (from.first..=from.last).rev() {
        let more = load_of(gene);
        // Half a gene too much is nearer than half a gene too little.
        let fits = sum + more <= amount || (sum + more - amount) * 2 <= more && sum + more - amount < amount;
        let must_give = is_left && sum == 0;
        if !(fits || must_give) {
            break;
        }
        first = Some(gene);
        sum += more;
        if sum >= amount {
            break;
        }
    }
    first.map(|first| (first, from.last, sum))
}

fn digest(all: &[Interval]) -> u64 {
    let mut bytes = Vec::new();
    for interval in all {
        bytes.extend(interval.last.to_be_bytes());
        bytes.extend((interval.shard.len() as u16).to_be_bytes());
        bytes.extend(interval.shard.as_bytes());
    }
    xxhash64(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gene::GENES;
    use proptest::prelude::*;

    fn table(shards: usize) -> RouteTable {
        let bound = |at: usize| GENES as usize * at / shards - 1;
        let ranges = (1..=shards).map(|at| format!("[[range]]\nupper = {}\nshard = \"s{at}\"\n", bound(at)));
        RouteTable::parse(&format!("version = 7\n{}", ranges.collect::<String>())).expect("a table")
    }

    fn plan(table: &RouteTable, shards: &[(String, u32)], load: &[u64]) -> Result<MovePlan> {
        let shards: Vec<_> = shards.iter().map(|(name, weight)| (name.as_str(), *weight)).collect();
        MovePlan::new(table, &shards, load)
    }

    fn equal(shards: impl IntoIterator<Item = usize>) -> Vec<(String, u32)> {
        shards.into_iter().map(|at| (format!("s{at}"), 1)).collect()
    }

    fn moved(plan: &MovePlan) -> u32 {
        plan.moves.iter().map(|planned| u32::from(planned.last) - u32::from(planned.first) + 1).sum()
    }

    /// Who has how many genes after the plan.
    fn after(table: &RouteTable, plan: &MovePlan) -> BTreeMap<String, u32> {
        let mut all = intervals(&table.ranges);
        for planned in &plan.moves {
            let owners: Vec<_> =
                all.iter().filter(|one| one.first <= planned.first && planned.last <= one.last).collect();
            assert!(owners.len() == 1 && owners[0].shard == planned.from, "{planned:?} of {all:?}");
            all = given(&all, planned.first, planned.last, &planned.to);
        }
        assert_eq!((all[0].first, all[all.len() - 1].last), (0, u16::MAX));
        assert!(all.windows(2).all(|pair| u32::from(pair[0].last) + 1 == u32::from(pair[1].first)));
        let mut has = BTreeMap::new();
        for one in &all {
            *has.entry(one.shard.clone()).or_default() += u32::from(one.last) - u32::from(one.first) + 1;
        }
        has
    }

    #[test]
    fn the_ids_of_a_range_of_genes_are_one_range_of_the_key() {
        let planned = PlannedMove { first: 1, last: u16::MAX, from: "a".into(), to: "b".into(), share: 1.0 };
        assert_eq!(planned.predicate("order_id"), "order_id BETWEEN 140737488355328 AND 9223372036854775807");
        assert_eq!(
            planned.wide_predicate("order_id"),
            "order_id BETWEEN X'00008000000000000000000000000000' AND X'7fffffffffffffffffffffffffffffff'"
        );
    }

    #[test]
    fn a_plan_is_read_as_it_was_written_and_only_for_its_table() -> Result<()> {
        let table = table(3);
        let made = plan(&table, &equal(1..=4), &[])?;
        let read = MovePlan::from_text(&made.to_text())?;
        assert_eq!(read, made);
        read.check(&table)?;
        // The first move is done, in a later version.
        let first = &made.moves[0];
        let mut later = table.clone();
        later.version = 20;
        later.ranges = given(&intervals(&table.ranges), first.first, first.last, &first.to)
            .into_iter()
            .map(|interval| Range { upper: interval.last, shard: interval.shard, moves: None })
            .collect();
        read.check(&later)?;
        for (other, why) in
            [(self::table(4), "others"), (RouteTable { version: 6, ..table }, "a lower version")]
        {
            let error = read.check(&other).expect_err(why);
            assert!(error.message.contains("make a new plan"), "{error}");
        }
        for wrong in [
            "",
            "version = 1",
            "version = 1\nring = \"x\"",
            "version = 1\nring = \"0\"\n[[move]]\nfirst = 9\nlast = 8\nfrom = \"a\"\nto = \"b\"",
        ] {
            assert!(MovePlan::from_text(wrong).is_err(), "{wrong}");
        }
        Ok(())
    }

    #[test]
    fn shards_that_cannot_be_planned_for_are_refused() {
        let two = table(2);
        for (shards, says) in [
            (vec![], "needs the shards"),
            (vec![("s1".to_owned(), 1), ("s1".to_owned(), 1)], "named twice"),
            (vec![("s1".to_owned(), 0)], "weight 0"),
            (vec![("s1".to_owned(), 1), (" s2".to_owned(), 1)], "is no name of a shard"),
            (vec![("s1".to_owned(), 1), (String::new(), 1)], "is no name of a shard"),
            (vec![("s1".to_owned(), 1), ("s\t2".to_owned(), 1)], "is no name of a shard"),
            (vec![("s1".to_owned(), 1), ("s".repeat(256), 1)], "is no name of a shard"),
        ] {
            let error = plan(&two, &shards, &[]).expect_err(says);
            assert!(error.message.contains(says), "{error}");
        }
        let listed = RouteTable { shards: Some(vec!["s1".into(), "s2".into()]), ..two };
        let error = plan(&listed, &equal(1..=3), &[]).expect_err("s3 is not listed");
        assert!(error.message.contains("`s3` is not in `shards`"), "{error}");
    }

    #[test]
    fn a_hot_range_is_split_by_its_load() -> Result<()> {
        let table = table(2);
        // Nearly all load is in the first quarter of the ring.
        let load: Vec<u64> = (0..GENES).map(|gene| if gene < 16_384 { 1000 } else { 1 }).collect();
        let made = plan(&table, &equal(1..=3), &load)?;
        let gives: Vec<_> = made.moves.iter().map(|planned| planned.from.as_str()).collect();
        assert!(gives.iter().all(|from| *from == "s1"), "{made:?}");
        let moved: u64 = made
            .moves
            .iter()
            .flat_map(|planned| planned.first..=planned.last)
            .map(|gene| load[usize::from(gene)])
            .sum();
        let share = moved as f64 / load.iter().sum::<u64>() as f64;
        assert!((share - 2.0 / 3.0).abs() < 0.01, "{share}");
        assert!((made.share() - share).abs() < 0.01, "{} {share}", made.share());
        Ok(())
    }

    #[test]
    fn what_a_cut_of_the_load_leaves_over_makes_no_move() -> Result<()> {
        // The orders of two thousand buyers by Zipf's law.
        let mut load = vec![0_u64; GENES as usize];
        for buyer in 0..2000_usize {
            load[buyer * 40_503 % GENES as usize] += 1_000_000 / (buyer as u64 + 1);
        }
        let text = "version = 1\n[[range]]\nupper = 32767\nshard = \"s1\"\n[[range]]\nupper = 49151\nshard = \"s2\"\n[[range]]\nupper = 65535\nshard = \"s3\"\n";
        let table = RouteTable::parse(text)?;
        let made = plan(&table, &equal(1..=4), &load)?;
        assert_eq!(made.moves.len(), 3, "one for each shard that needs some: {made:?}");
        // A shard that is not among them gives even what is worth nothing.
        let made = plan(&table, &equal(1..=2), &load)?;
        assert!(!after(&table, &made).contains_key("s3"), "{made:?}");
        Ok(())
    }

    #[test]
    fn a_single_hot_gene_is_not_sent_to_and_fro() -> Result<()> {
        let mut load = vec![0; GENES as usize];
        load[9] = 1 << 40;
        let made = plan(&table(2), &equal(1..=2), &load)?;
        assert!(made.moves.len() < 8, "{made:?}");
        Ok(())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn adding_the_last_of_equal_shards_moves_at_most_its_share(shards in 1..40_usize) {
            let table = table(shards);
            let made = plan(&table, &equal(1..=shards + 1), &[])?;
            prop_assert!(moved(&made) <= GENES / (shards as u32 + 1), "{} of {}", moved(&made), GENES);
            prop_assert!(made.moves.iter().all(|planned| planned.to == format!("s{}", shards + 1)), "{:?}", made);
            let has = after(&table, &made);
            let (least, most) = (has.values().min(), has.values().max());
            prop_assert!(most.zip(least).is_some_and(|(most, least)| most - least <= 1), "{:?}", has);
            prop_assert!((made.share() - f64::from(moved(&made)) / f64::from(GENES)).abs() < 1e-9);
        }

        #[test]
        fn removing_a_shard_moves_only_its_own(shards in 2..40_usize, away in 0..40_usize) {
            let away = away % shards + 1;
            let table = table(shards);
            let made = plan(&table, &equal((1..=shards).filter(|at| *at != away)), &[])?;
            prop_assert!(made.moves.iter().all(|planned| planned.from == format!("s{away}")), "{:?}", made);
            prop_assert_eq!(Some(moved(&made)), intervals(&table.ranges).get(away - 1).map(|interval| u32::from(interval.last) - u32::from(interval.first) + 1));
            let has = after(&table, &made);
            prop_assert_eq!(has.get(&format!("s{away}")), None);
        }

        /// No plan can move less than what the shards have above their shares.
        #[test]
        fn any_weights_are_reached_by_the_fewest_genes(
            uppers in proptest::collection::btree_map(any::<u16>(), 0..6_usize, 1..20),
            weights in proptest::collection::vec(1..50_u32, 1..8),
        ) {
            let mut text = "version = 1\n".to_owned();
            for (upper, shard) in &uppers {
                let _ = write!(text, "[[range]]\nupper = {upper}\nshard = \"s{shard}\"\n");
            }
            let table = RouteTable::parse(&text)?;
            let shards: Vec<_> = weights.iter().enumerate().map(|(at, weight)| (format!("s{at}"), *weight)).collect();
            let made = plan(&table, &shards, &[])?;
            let none = MovePlan { moves: Vec::new(), ..made.clone() };
            let (before, after) = (after(&table, &none), after(&table, &made));
            let sum: u32 = weights.iter().sum();
            for (name, weight) in &shards {
                let exact = f64::from(GENES) * f64::from(*weight) / f64::from(sum);
                let has = f64::from(after.get(name).copied().unwrap_or(0));
                prop_assert!((has - exact).abs() < 1.0 + shards.len() as f64, "{} has {}, wants {}", name, has, exact);
            }
            let surplus: u32 = before.iter().map(|(name, has)| has.saturating_sub(after.get(name).copied().unwrap_or(0))).sum();
            prop_assert_eq!(moved(&made), surplus);
        }
    }
}
