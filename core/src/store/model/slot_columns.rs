//! The columns of `keymill_worker` and `keymill_reader`, and how a row of them is written and read. Nothing is guessed: what cannot be
//! read refuses the whole pool, because the row that it was may have the newest mark.

#[cfg(feature = "_sql")]
use super::value::{ColumnValue, Value};
use crate::error::shown;
use crate::request::worker::POOL_ROW;
#[cfg(feature = "_sql")]
use crate::store::SlotRow;
use crate::store::{Fault, FaultKind, Key, SlotState, StoreIndex};

/// Every column, in the order of the table.
#[cfg(feature = "_sql")]
pub(crate) const COLUMNS: [&str; 11] =
    ["pool", "slot", "token", "mark", "ends_at", "state", "source", "process", "layout", "stores", "store"];

/// A row as the table holds it, in the order of [`COLUMNS`].
#[cfg(feature = "_sql")]
pub(crate) fn values(key: &Key, row: &SlotRow) -> [Value; 11] {
    let [stores, store] = row.store.columns();
    [
        key.name.as_str().into(),
        row.slot.into(),
        row.token.into(),
        row.mark.into(),
        row.ends_at.into(),
        row.state.word().into(),
        row.source.as_str().into(),
        row.owner.as_str().into(),
        row.layout.as_str().into(),
        stores.into(),
        store.into(),
    ]
}

/// The row in these cells: [`COLUMNS`] without the pool. Of readers none is refused: a login that follows tables may have written
/// any, and a row with a negative number belongs to no process.
#[cfg(feature = "_sql")]
pub(crate) fn row_of(key: &Key, cells: &[ColumnValue]) -> Result<Option<SlotRow>, Fault> {
    match sound_row(key, cells) {
        Err(_) if key.is_of_readers() => {
            let is_record = cells.first().and_then(ColumnValue::number) == Some(POOL_ROW);
            Ok(is_record.then(|| SlotRow { slot: POOL_ROW, state: SlotState::Pool, ..SlotRow::default() }))
        }
        row => row.map(Some),
    }
}

#[cfg(feature = "_sql")]
fn sound_row(key: &Key, cells: &[ColumnValue]) -> Result<SlotRow, Fault> {
    let cell = |column: &str| {
        let at = COLUMNS.iter().skip(1).position(|name| *name == column);
        at.and_then(|at| cells.get(at)).unwrap_or(&ColumnValue::Null)
    };
    let number = |column: &str| {
        cell(column).number().ok_or_else(|| unreadable(key, &format!("a `{column}` that is no whole number")))
    };
    let text = |column: &str| {
        cell(column).text().ok_or_else(|| unreadable(key, &format!("a `{column}` that is no text")))
    };
    Ok(SlotRow {
        slot: number("slot")?,
        token: number("token")?,
        mark: number("mark")?,
        ends_at: number("ends_at")?,
        state: state_of(key, text("state")?)?,
        source: text("source")?.to_owned(),
        // It decides nothing.
        owner: cell("process").text().unwrap_or_default().to_owned(),
        layout: text("layout")?.to_owned(),
        store: store_of(key, [number("stores")?, number("store")?])?,
    })
}

/// The columns to read, each text cut to what keymill writes: another role may have written a longer one.
#[cfg(feature = "_sql")]
pub(crate) fn read_columns() -> String {
    let texts = ["state", "source", "process", "layout"];
    let read = |column: &&str| {
        if texts.contains(column) { format!("SUBSTR(`{column}`, 1, 513)") } else { format!("`{column}`") }
    };
    COLUMNS[1..].iter().map(read).collect::<Vec<_>>().join(", ")
}

/// The state that this word of a row says. A reader's row has none that decides anything, and a login that follows tables may have written
/// any word.
pub(crate) fn state_of(key: &Key, word: &str) -> Result<SlotState, Fault> {
    SlotState::of_word(word).or_else(|| key.is_of_readers().then_some(SlotState::Leased)).ok_or_else(|| {
        let words = SlotState::ALL.map(|state| format!("`{}`", state.word())).join(", ");
        unreadable(key, &format!("`{}` in `state`, which is none of {words}", shown(word)))
    })
}

/// The store that these columns of a row say; as for the state of a reader's row, none of them is refused.
pub(crate) fn store_of(key: &Key, columns: [u64; 2]) -> Result<StoreIndex, Fault> {
    let found = StoreIndex::of_columns(columns);
    found.or_else(|| key.is_of_readers().then_some(StoreIndex::ONLY)).ok_or_else(|| {
        let [stores, store] = columns;
        unreadable(key, &format!("stores={stores} store={store}, which is no place in a list of stores"))
    })
}

/// A row says what cannot be read.
fn unreadable(key: &Key, found: &str) -> Fault {
    Fault::new(
        FaultKind::Refused,
        format!(
            "a row of pool `{}` in `{}` has {found}; mend the row: stop every program of the pool; the state of a slot is `repaired`, with a `mark` above the tick of each of its ids; the state of row {POOL_ROW} is `pool`, and above it `other_pool`; `stores` and `store` are as in the mill, 1 and 1 with one store; nothing was changed",
            key.name, key.table
        ),
    )
}

#[cfg(all(test, feature = "_sql"))]
mod tests {
    use super::*;

    fn cells(row: &SlotRow) -> Vec<ColumnValue> {
        let cell = |value: Value| match value {
            Value::Null => ColumnValue::Null,
            Value::Number(number) => ColumnValue::Number(number.into()),
            Value::Text(text) => ColumnValue::Text(text),
        };
        values(&key(), row).into_iter().skip(1).map(cell).collect()
    }

    fn key() -> Key {
        Key::pool("keymill_worker", "tx")
    }

    fn rows() -> Vec<SlotRow> {
        let row = |state| SlotRow {
            slot: 7,
            token: u64::MAX >> 1,
            mark: 42,
            ends_at: 9,
            state,
            source: "a source for b".to_owned(),
            owner: "a host store 2 of 3:12".to_owned(),
            layout: "time:41@1ms,worker:10,seq:12 epoch E store 2 of 3".to_owned(),
            store: StoreIndex { stores: 3, index: 1 },
        };
        SlotState::ALL.map(row).to_vec()
    }

    #[test]
    fn a_row_reads_as_it_was_written() {
        for row in rows() {
            assert_eq!(row_of(&key(), &cells(&row)), Ok(Some(row)));
        }
    }

    #[test]
    fn a_row_that_cannot_be_read_is_refused_by_the_name_of_the_column() {
        let sound = cells(&rows()[0]);
        for (column, wrong, says) in [
            ("token", ColumnValue::Text("x".to_owned()), "a `token` that is no whole number"),
            (
                "state",
                ColumnValue::Text("lent".to_owned()),
                "`lent` in `state`, which is none of `leased`, `elsewhere`",
            ),
            ("state", ColumnValue::Null, "a `state` that is no text"),
            ("source", ColumnValue::Null, "a `source` that is no text"),
            ("store", ColumnValue::Number(0), "stores=3 store=0"),
            ("store", ColumnValue::Number(4), "stores=3 store=4"),
            ("stores", ColumnValue::Number(0), "stores=0 store=2"),
        ] {
            let mut cells = sound.clone();
            let at = COLUMNS.iter().skip(1).position(|name| *name == column).expect("a column");
            cells[at] = wrong;
            let fault = row_of(&key(), &cells).expect_err(column);
            assert!(fault.kind == FaultKind::Refused && fault.to_string().contains(says), "{fault}");
        }
        let mut nobody = sound;
        nobody[6] = ColumnValue::Null;
        assert_eq!(
            row_of(&key(), &nobody).map(|row| row.map(|row| row.owner)),
            Ok(Some(String::new())),
            "the owner is for people"
        );
    }
}
