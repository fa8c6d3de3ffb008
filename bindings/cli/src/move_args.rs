//! The words of `keymill move`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

/// The steps of a move.
#[derive(Debug, Subcommand)]
pub enum MoveVerb {
    /// Find the fewest moves that give each shard its share
    Plan {
        /// The router's name
        router: String,
        /// The shards, with their weights if not 1: s1,s2,s3=2
        #[arg(long, value_name = "NAME[=N],…", required = true, value_delimiter = ',', value_parser = shard)]
        shards: Vec<(String, u32)>,
        /// Share out the ids that this source of business ids has reserved, instead of the genes
        #[arg(long, value_name = "SOURCE")]
        hot: Option<String>,
        /// The column of the ids, for the conditions that are printed
        #[arg(long, value_name = "COLUMN", default_value = "order_id")]
        key: String,
        /// Write the plan into this file
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
    /// Begin a move: from now on its ids are written to both shards
    Start {
        /// The router's name
        router: String,
        /// The plan
        #[arg(long, value_name = "FILE")]
        plan: PathBuf,
        /// Which of its moves
        #[arg(long = "move", value_name = "N", default_value_t = 1)]
        nth: usize,
        /// The percentages of the cut-over
        #[arg(long, value_name = "N,…", value_delimiter = ',', default_values_t = [5, 25, 50, 100])]
        steps: Vec<u8>,
        /// How long each step is watched before the next one
        #[arg(long, value_name = "TIME", default_value = "60s", value_parser = time)]
        watch: Duration,
        /// What is cut over first: ids by their number, or the first genes, so that the ids of a key stay together
        #[arg(long, value_name = "WHAT", default_value = "number", value_parser = ["number", "gene"])]
        by: String,
        #[command(flatten)]
        how: How,
    },
    /// Copy the older rows from the old shard to the new one
    Copy {
        /// The router's name
        router: String,
        #[command(flatten)]
        rows: RowsArgs,
        /// The most rows a second
        #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
        rows_per_second: u64,
        #[command(flatten)]
        how: How,
    },
    /// Compare the rows of both shards, and record that they are alike
    #[command(long_about = "\
Compare the rows of both shards, and record that they are alike.

For the first percentage, the comparison has to begin `settle` after every reader writes to both shards; for `finish`,
`settle` after every reader reads all ids from the new shard. With --yes this command records that the readers do so, and
waits for that time. Sub-ranges are compared by count and checksum, and row by row if those differ; rows that differ are
read again after `settle`. What still differs is printed, and the exit code is 1. Name all tables of the
range: only a comparison of all of them allows the next step.

Without --table it only waits and prints the store's time. Compare the shards by other means then; if they are alike,
say so with --began and that time.")]
    #[command(after_help = "\
Examples:
  keymill move verify orders --table t_order --key order_id --from s1=file:s1.toml --to s2=file:s2.toml --wait --yes
  keymill move verify orders --table t_order --table t_item --key order_id --from … --to … --repair --wait --yes")]
    Verify {
        /// The router's name
        router: String,
        #[command(flatten)]
        rows: Option<RowsArgs>,
        /// Make rows of the new shard equal to the old shard's, which decides until the move is finished
        #[arg(long, requires = "table")]
        repair: bool,
        /// With --repair: delete rows that only the new shard has
        #[arg(long, requires = "repair")]
        delete: bool,
        /// The comparison that began at this time of the store found no difference
        #[arg(long, value_name = "MS", conflicts_with = "table")]
        began: Option<u64>,
        #[command(flatten)]
        how: How,
    },
    /// Cut over the next percentage
    Next {
        /// The router's name
        router: String,
        /// Watch for this time instead of the move's
        #[arg(long, value_name = "TIME", value_parser = time)]
        watch: Option<Duration>,
        #[command(flatten)]
        how: How,
    },
    /// Undo: from any percentage to mirrored, then to a range that does not move
    Back {
        /// The router's name
        router: String,
        #[command(flatten)]
        how: How,
    },
    /// End a move whose ids are all read from the new shard
    #[command(long_about = "\
End a move whose ids are all read from the new shard.

It needs a new comparison (`keymill move verify`), begun after the last percentage. Two steps are stored: after the
first, writes of the range wait until every reader knows it, about half a second; then the new shard decides. If a
process has died, the command names it and waits until its row ends.")]
    Finish {
        /// The router's name
        router: String,
        /// Watch for this time instead of the move's
        #[arg(long, value_name = "TIME", value_parser = time)]
        watch: Option<Duration>,
        #[command(flatten)]
        how: How,
    },
    /// Remove the rows of finished moves from the old shard, if the new shard has them
    #[command(long_about = "\
Remove the rows of finished moves from the old shard, if the new shard has them.

First the whole range is checked: where the new shard lacks a row, or has it with other values, nothing is removed. This
is also so if programs changed or deleted rows in the new shard since the move; --changed-too says that this is the
reason. Then rows are deleted in chunks, each row only if it still has the values that were checked.")]
    #[command(after_help = "\
Examples:
  keymill move clean orders --table t_order --key order_id --from s1=file:s1.toml --to s2=file:s2.toml
  keymill move clean orders --table t_order --key order_id --from s1=file:s1.toml --to s2=file:s2.toml --changed-too --yes")]
    Clean {
        /// The router's name
        router: String,
        #[command(flatten)]
        rows: RowsArgs,
        /// Only moves that were finished at least this long ago
        #[arg(long, value_name = "TIME", default_value = "7d", value_parser = time)]
        older_than: Duration,
        /// Rows that differ were changed or deleted in the new shard since the move: remove the old ones, too
        #[arg(long)]
        changed_too: bool,
        /// The most rows a second
        #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
        rows_per_second: u64,
        /// Remove them
        #[arg(long)]
        yes: bool,
    },
    /// Show where a move stands, and which processes follow the table
    Status {
        /// The router's name
        router: String,
    },
}

/// Where the rows are.
#[derive(Debug, Args)]
pub struct RowsArgs {
    /// The table; may be given several times
    #[arg(long, value_name = "T")]
    pub table: Vec<String>,
    /// The column of the ids, the first of the primary key; one for all tables, or one for each
    #[arg(long, value_name = "COLUMN")]
    pub key: Vec<String>,
    /// The database of the old shard: mysql://…, postgres://… or file:CONFIG.toml, with the shard's name in front: s1=file:s1.toml
    #[arg(long, value_name = "[NAME=]URL", default_value = "", hide_default_value = true)]
    pub from: String,
    /// The database of the new shard
    #[arg(long, value_name = "[NAME=]URL", default_value = "", hide_default_value = true)]
    pub to: String,
}

/// How a step is made.
#[derive(Debug, Args)]
pub struct How {
    /// Wait for readers that have not followed, and for the watching time
    #[arg(long)]
    pub wait: bool,
    /// The process of this reader has ended; or `all`: the process of every reader whose row has ended by now
    #[arg(long, value_name = "MEMBER")]
    pub gone: Vec<String>,
    /// Write it
    #[arg(long)]
    pub yes: bool,
}

fn shard(text: &str) -> Result<(String, u32), String> {
    let (name, weight) = text.rsplit_once('=').unwrap_or((text, "1"));
    let weight = weight.parse().map_err(|_| format!("`{weight}` is no weight; write NAME=N"))?;
    Ok((name.to_owned(), weight))
}

fn time(text: &str) -> Result<Duration, String> {
    keymill::binding::duration(text).ok_or_else(|| "write a time such as 60s, 5m or 1h".to_owned())
}
