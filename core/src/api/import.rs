//! Taking over the row of another program's table. (floor 4)

use std::sync::Arc;

use crate::config::spec_string;
use crate::error::{Error, Result, shown};
use crate::reservation::{Key, Scheme};
use crate::store::{Handover, check_schemes, handed_over};

use super::Source;

impl Source {
    /// The schemes whose rows [`Source::import`] takes over.
    pub const IMPORTS: [&'static str; 5] =
        ["leaf_alloc", "tiny_id_info", "cosid", "key_producer", "sequence_table"];

    /// Hands the row of another program over to this source, in one transaction: the old row is moved 2^62 numbers away
    /// first, so that old nodes that still run never meet this source's numbers, then this source's row begins where the
    /// old one stood. `row` is the old row's name where it is not the source's (`TABLE/COLUMN` of a `key_producer` row).
    /// A second time does nothing. With `dry_run` nothing is written.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for a scheme without such rows, `STORE_REFUSED` where there is no row, or where numbers could
    /// come twice; `STORE_UNAVAILABLE`.
    pub fn import(
        &self,
        scheme: &str,
        table: Option<&str>,
        row: Option<&str>,
        dry_run: bool,
    ) -> Result<Handover> {
        let old = self.old_key(scheme, table, row).map_err(|error| self.failed(error))?;
        let new = self.spec().key.clone();
        let period = self.spec().pattern().map_or(0, |p| p.period_at(self.shared.mill.clock().wall_ms()));
        let answer = self.shared.mill.engine()?.errand(move |store| {
            check_schemes(&old, &new)?;
            // Each look also makes sure that the table is of its scheme's shape.
            let (old_row, new_row) = (store.look(&old)?, store.look(&new)?);
            let seen = handed_over(&old, &new, old_row, new_row, period).map_err(|mut fault| {
                fault.message.insert_str(0, &format!("importing `{}` failed: ", new.name));
                fault
            })?;
            if dry_run || seen.was_done() { Ok(seen) } else { store.hand_over(&old, &new, period) }
        });
        answer.map_err(|error| self.failed(error))
    }

    /// Under what the other program keeps its row.
    fn old_key(&self, scheme: &str, table: Option<&str>, row: Option<&str>) -> Result<Arc<Key>> {
        if !Source::IMPORTS.contains(&scheme) {
            return Err(Error::argument(format!(
                "no row can be imported from `{}`; valid: {}",
                shown(scheme),
                Source::IMPORTS.join(", ")
            )));
        }
        // Said in any case: a TOML file may name this source's own table.
        let default =
            Scheme::ALL.into_iter().find(|of| of.name() == scheme).map_or("", Scheme::default_table);
        let mut options = vec![("scheme", scheme), ("table", table.unwrap_or(default))];
        let spec = match &self.spec().key.serial {
            None => {
                let own = self.label().strip_prefix("segment:").ok_or_else(|| {
                    Error::argument(format!(
                        "`{}` keeps no counted numbers, so it imports none",
                        self.label()
                    ))
                })?;
                spec_string("segment", &[row.unwrap_or(own)], &options)
            }
            Some(serial) => {
                let (of, column) = match row {
                    None => (serial.table.as_str(), serial.column.as_str()),
                    Some(row) => row.split_once('/').ok_or_else(|| {
                        Error::argument(format!(
                            "`{}` is no row of key_producer; write TABLE/COLUMN",
                            shown(row)
                        ))
                    })?,
                };
                let pattern = &serial.pattern;
                options.extend([("date", pattern.date_pattern()), ("number", pattern.number_pattern())]);
                options.push(("zone", pattern.zone_name()));
                spec_string("serial", &[of, column], &options)
            }
        };
        Ok(self.shared.mill.config.spec(&spec)?.key)
    }
}
