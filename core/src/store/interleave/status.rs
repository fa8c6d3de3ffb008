//! What an operator sees of several stores, and does to all of them. A store that does not answer is shown as such; a repair needs
//! every store.

use std::sync::Arc;

use super::marks::of_one_store;
use super::record::{self, Recorded};
use super::rotation::MemberRow;
use super::{Interleaved, Member, check_shared, is_mark};
use crate::store::Catalogue;
use crate::store::model::rows;
use crate::store::{Facts, Fault, FaultKind, Key, Mark, Row};

impl Interleaved {
    /// The source's row of every store.
    fn inspect_each(&mut self, key: &Key) -> Vec<Result<Recorded, Fault>> {
        self.ask_each(|_, store| store.inspect(key))
    }

    pub(super) fn look_at_all(&mut self, key: &Key) -> Result<Option<Row>, Fault> {
        if key.is_of_bank() {
            // Every store has these rows.
            let found = self.ask_each(|_, store| store.look(key));
            return any_row(found);
        }
        if is_mark(key) {
            let found = self.home(key)?.ask(|store| store.look(key))?;
            return Ok(found.map(of_one_store));
        }
        check_shared(key)?;
        let found = self.inspect_each(key);
        self.shown(key, found)
    }

    /// The rows of a source in all stores as one.
    fn shown(&self, key: &Key, found: Vec<Result<Recorded, Fault>>) -> Result<Option<Row>, Fault> {
        if found.iter().all(Result::is_err) {
            return found.into_iter().find_map(Result::err).map_or(Ok(None), Err);
        }
        let stands = |(row, member): (&Result<Recorded, Fault>, &Member)| match row {
            Ok(Recorded::Ours { next }) if *next > 0 => Some(member.partition().stands(*next)),
            _ => None,
        };
        // The lowest number that no store has reserved.
        let next = found.iter().zip(&self.members).filter_map(stands).min();
        if next.is_none()
            && found.iter().all(|row| matches!(row, Ok(Recorded::Nothing | Recorded::Ours { .. })))
        {
            return Ok(None);
        }
        if next.is_none() && found.iter().any(|row| matches!(row, Ok(Recorded::Foreign(_)))) {
            let refused = |(row, member): (&Result<Recorded, Fault>, &Member)| {
                member.partition().refusal(key, row.as_ref().ok()?).map(|refusal| member.said(refusal))
            };
            return found.iter().zip(&self.members).find_map(refused).map_or(Ok(None), Err);
        }
        let each = found.iter().zip(&self.members).map(|(row, member)| match row {
            Ok(Recorded::Nothing) if next.is_some() => {
                format!("{}: {}", member.name(), member.partition().shown(key, &Recorded::Lost))
            }
            Ok(row) => format!("{}: {}", member.name(), member.partition().shown(key, row)),
            Err(fault) => fault.to_string(),
        });
        let text = each.collect::<Vec<_>>().join("; ");
        Ok(Some(Row::at(next.unwrap_or(0), text)))
    }

    pub(super) fn warnings_of_all(&mut self, key: &Key) -> Result<Vec<Fault>, Fault> {
        if is_mark(key) {
            return Ok(Vec::new());
        }
        check_shared(key)?;
        let found = self.inspect_each(key);
        let in_use = found.iter().any(|row| matches!(row, Ok(Recorded::Ours { .. } | Recorded::Lost)));
        let warning = |(row, member): (&Result<Recorded, Fault>, &Member)| match row {
            Ok(Recorded::Nothing) if !in_use => None,
            Ok(Recorded::Nothing | Recorded::Lost) => Some(member.said(record::lost(key))),
            Ok(row) => member.partition().refusal(key, row).map(|refusal| member.said(refusal)),
            Err(fault) => Some(fault.clone()),
        };
        Ok(found.iter().zip(&self.members).filter_map(warning).collect())
    }

    pub(super) fn init_each(&mut self, keys: &[Arc<Key>], dry_run: bool) -> Result<Vec<String>, Fault> {
        keys.iter().try_for_each(|key| check_shared(key))?;
        let keys = record::keys_with_records(keys);
        let mut statements = Vec::new();
        for member in &mut self.members {
            let own = member.operate(|store| store.init(&keys, dry_run))?;
            if !own.is_empty() {
                statements.push(format!("-- {}", member.name()));
            }
            statements.extend(own);
        }
        Ok(statements)
    }

    /// Refuses a number below every row, most likely a typing error: it would raise none of them.
    fn not_lower(&self, found: &[Recorded], to: u64) -> Result<(), Fault> {
        let rows: Option<Vec<_>> = self
            .members
            .iter()
            .zip(found)
            .map(|(member, row)| match row {
                Recorded::Ours { next } => Some((member.partition().stands(*next), member.name())),
                _ => None,
            })
            .collect();
        match rows.and_then(|rows| rows.into_iter().min()) {
            Some((lowest, name)) if lowest > to => Err(Fault::new(
                FaultKind::Refused,
                format!(
                    "the lowest of its rows, that of {name}, stands at {lowest}, above {to}, and repair never lowers a row"
                ),
            )),
            _ => Ok(()),
        }
    }

    pub(super) fn repair_all(&mut self, key: &Key, to: Mark) -> Result<(Option<Row>, Row), Fault> {
        if is_mark(key) {
            return self.home(key)?.operate(|store| {
                let own = store.own(key);
                store.repair(&own, to)
            });
        }
        check_shared(key)?;
        let doing = format!("repairing `{}`", key.name);
        let in_context = |fault: Fault| fault.with_context(&doing);
        // All are asked before any is raised.
        let found = self.operate_on_each(|_, store| store.inspect(key))?;
        let before = self.shown(key, found.iter().copied().map(Ok).collect())?;
        for (member, row) in self.members.iter().zip(&found) {
            let may_adopt = member.partition().may_adopt(key, row, to.next);
            may_adopt.map_err(|fault| in_context(member.said(fault)))?;
        }
        self.not_lower(&found, to.next).map_err(in_context)?;
        let key = &Arc::new(key.clone());
        for (member, row) in self.members.iter_mut().zip(&found) {
            member.operate(|store| store.raise_to(key, row, to.next)).map_err(in_context)?;
        }
        // A store that was left out for its row has the next turn.
        let mut rotation = self.rotation_of(key);
        if let Some(at) = rotation.rows.iter().position(|row| row.pause.is_some()) {
            rotation.turn = at;
        }
        rotation.rows.iter_mut().for_each(|row| *row = MemberRow { seen: row.seen, ..MemberRow::default() });
        self.keep(key, rotation);
        let after = self.look_at_all(key)?;
        after.map(|after| (before, after)).ok_or_else(|| Fault::new(FaultKind::Refused, "no store has a row"))
    }

    pub(super) fn would_repair_all(&mut self, key: &Key, to: Mark) -> Result<(Option<Row>, Row), Fault> {
        if is_mark(key) {
            return self.home(key)?.operate(|store| {
                let own = store.own(key);
                store.would_repair(&own, to)
            });
        }
        check_shared(key)?;
        let would_fail = |fault| rows::would_fail(key, fault);
        self.operate_on_each(|_, store| store.writable()).map_err(would_fail)?;
        let found = self.operate_on_each(|_, store| store.inspect(key))?;
        let before = self.shown(key, found.iter().copied().map(Ok).collect())?;
        self.not_lower(&found, to.next).map_err(would_fail)?;
        let (mut next, mut each) = (u64::MAX, Vec::new());
        for (member, row) in self.members.iter().zip(&found) {
            let partition = member.partition();
            partition.may_adopt(key, row, to.next).map_err(|fault| would_fail(member.said(fault)))?;
            let stands = partition.stands(partition.would_stand(key, row, to.next)?);
            next = next.min(stands);
            each.push(format!("{}: next={stands}", member.name()));
        }
        Ok((before, Row::at(next, each.join("; "))))
    }

    pub(super) fn facts_of_all(&mut self) -> Result<Facts, Fault> {
        let told = self.ask_each(|_, store| store.facts());
        if told.iter().all(Result::is_err) {
            return Err(Fault::all(FaultKind::Unavailable, told.into_iter().filter_map(Result::err)));
        }
        let chunk = self.members.first().map_or(0, |member| member.partition().chunk);
        let mut all = Facts {
            dialect: "interleaved".to_owned(),
            version: format!("over {} stores, chunk={chunk}", told.len()),
            ..Facts::default()
        };
        for (member, facts) in self.members.iter().zip(told) {
            let name = member.name();
            match facts {
                Ok(facts) => {
                    let kind = format!("{name}: {} {}", facts.dialect, facts.version);
                    all.durability.push(
                        format!("{} {}", kind.trim_end(), facts.durability.join(" ")).trim_end().to_owned(),
                    );
                    if !facts.tls.is_empty() {
                        let before = if all.tls.is_empty() { "" } else { "; " };
                        all.tls.push_str(&format!("{before}{name}: {}", facts.tls));
                    }
                    all.tables.extend(facts.tables.iter().map(|table| format!("{name}: {table}")));
                    all.warnings.extend(facts.warnings.iter().map(|warning| format!("{name}: {warning}")));
                }
                Err(fault) => all.warnings.push(fault.to_string()),
            }
        }
        Ok(all)
    }

    pub(super) fn warnings_read_last(&mut self) -> Option<Vec<String>> {
        let mut all = None;
        for member in &mut self.members {
            let Some(warnings) = member.without_asking(Catalogue::warnings) else { continue };
            let named = warnings.iter().map(|warning| format!("{}: {warning}", member.name()));
            all.get_or_insert_with(Vec::new).extend(named);
        }
        all
    }
}

/// The row of the first store that answers and has one.
fn any_row(found: Vec<Result<Option<Row>, Fault>>) -> Result<Option<Row>, Fault> {
    let mut fault = None;
    for row in found {
        match row {
            Ok(Some(row)) => return Ok(Some(row)),
            Ok(None) => {}
            Err(failed) => fault = Some(failed),
        }
    }
    fault.map_or(Ok(None), Err)
}
