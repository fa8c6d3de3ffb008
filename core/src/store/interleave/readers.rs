//! Readers of route tables over several stores. A process has a row in each store that answers, because a step of a move is stored in
//! every store: who stores it reads all of them, and finds each process that any of them knows.

use std::sync::Arc;

use crate::store::model::reader_rows;
use crate::store::{Fault, KeepReader, Key, OwnReader, ReaderStore, Readers, StoreIndex, drawn_member};

use super::{Interleaved, is_outage};

impl ReaderStore for Interleaved {
    /// One row is enough: no step is stored while the store that has it is not asked.
    fn keep_reader(&mut self, key: &Arc<Key>, own: &mut OwnReader, keep: &KeepReader) -> Result<u64, Fault> {
        let all = self.members.len() as u64;
        if own.each.is_empty() {
            // A store that refuses it costs no lease, so each answer counts here.
            for known in self.ask_each(|_, store| store.all_readers(key)).into_iter().flatten() {
                reader_rows::check_stores(&key.name, &known, all)?;
            }
            // Who reads all stores finds one process, and not several.
            let number = Some(drawn_member());
            own.each.resize(self.members.len(), OwnReader { number, ..OwnReader::default() });
        }
        let each = &mut own.each;
        let answers = self.ask_each(|at, store| match each.get_mut(at) {
            Some(own) => {
                let own_store = StoreIndex { stores: all, index: at as u64 };
                store.keep_reader(key, own, &KeepReader { store: own_store, ..keep.clone() })
            }
            None => Ok(0),
        });
        if let Some(highest) = answers.iter().flatten().max() {
            return Ok(*highest);
        }
        let answered = answers.iter().position(|answer| !is_outage(answer)).unwrap_or(0);
        let kept = answers.into_iter().nth(answered).unwrap_or(Ok(0));
        self.judged(kept)
    }

    fn remove_reader(&mut self, key: &Key, own: &OwnReader) -> Result<(), Fault> {
        let answers =
            self.ask_each(|at, store| own.each.get(at).map_or(Ok(()), |own| store.remove_reader(key, own)));
        answers.into_iter().collect()
    }

    fn readers(&mut self, key: &Key) -> Result<Readers, Fault> {
        let found = self.all_readers(key)?;
        reader_rows::check_stores(&key.name, &found, self.members.len() as u64)?;
        Ok(found)
    }

    fn all_readers(&mut self, key: &Key) -> Result<Readers, Fault> {
        self.operate_on_each(|_, store| store.all_readers(key)).map(reader_rows::joined)
    }

    fn forget_readers(&mut self, key: &Key, members: &[u64]) -> Result<Vec<u64>, Fault> {
        let mut gone = self.operate_on_each(|_, store| store.forget_readers(key, members))?.concat();
        gone.sort_unstable();
        gone.dedup();
        Ok(gone)
    }
}
