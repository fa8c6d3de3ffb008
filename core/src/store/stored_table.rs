//! A route table as a store keeps it, and its one reader.

use crate::error::{Code, Error, shown};
use crate::request::reader::LARGEST_VERSION;
use crate::router::RouteTable;

use super::{Fault, FaultKind, Key, Remedy, RouteStore};

/// A route table as a store keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredTable {
    /// The version of its text.
    pub version: u64,
    /// TOML or JSON; `None` where the caller knows this version.
    pub text: Option<String>,
    /// Why the table cannot be used: its row cannot be read, or two of several stores have different texts of this version.
    pub refused: Option<String>,
}

impl StoredTable {
    /// The table of one store.
    #[must_use]
    pub fn new(version: u64, text: Option<String>) -> StoredTable {
        StoredTable { version, text, refused: None }
    }

    /// A table that cannot be read, in a list of tables that can.
    pub(crate) fn unreadable(why: &Fault) -> StoredTable {
        StoredTable { refused: Some(why.to_string()), ..StoredTable::new(0, None) }
    }

    /// The table that router `name` has in the store.
    ///
    /// # Errors
    /// `STORE_REFUSED`: its row cannot be read, or two stores have different texts of this version. `INVALID_CONFIG`: every fault of the
    /// text, or its version differs from its row's.
    pub(crate) fn table(&self, name: &str) -> Result<RouteTable, Error> {
        if let Some(refused) = &self.refused {
            return Err(Error::new(Code::StoreRefused, refused.clone()));
        }
        let text = self.text.as_deref().unwrap_or_default();
        if self.version > LARGEST_VERSION {
            return Err(Error::config(format!(
                "route table `{}` of the store: its row says version {}, and the largest is 2^52; store a table with `keymill route put`: its `version` has to be above that of every process that follows the table",
                shown(name),
                self.version
            )));
        }
        let table = RouteTable::parse(text).and_then(|table| {
            if table.version() == self.version {
                return Ok(table);
            }
            Err(Error::config(format!(
                "its row says version {}, and its text version {}; store it again with `keymill route put`",
                self.version,
                table.version()
            )))
        });
        table.map_err(|error| Error {
            message: format!("route table `{}` of the store: {}", shown(name), error.message),
            ..error
        })
    }
}

/// Reads the table of router `name`, with its text.
///
/// # Errors
/// See [`FaultKind`]; `Refused` where the store has none.
pub(crate) fn stored_table(store: &mut (impl RouteStore + ?Sized), name: &str) -> Result<StoredTable, Fault> {
    store.read_route(&Key::of_route(name), 0)?.ok_or_else(|| no_stored_table(name))
}

/// The store has no table of router `name`.
pub(crate) fn no_stored_table(name: &str) -> Fault {
    Fault::new(FaultKind::Refused, format!("the store has no route table `{}`", shown(name)))
        .with_remedy(Remedy::PutRoutes(name.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_whose_row_or_stores_contradict_its_text_is_refused() {
        let stored = |version| {
            StoredTable::new(version, Some("version = 5\n[[range]]\nupper = 65535\nshard = \"a\"".to_owned()))
        };
        assert_eq!(stored(5).table("orders").map(|table| table.version()), Ok(5));
        let refused = stored(6).table("orders").expect_err("another version");
        assert_eq!(refused.code, Code::InvalidConfig);
        assert!(refused.message.contains("route table `orders` of the store: its row says version 6"));
        let split = StoredTable { refused: Some("two texts".to_owned()), ..stored(5) };
        let refused = split.table("orders").expect_err("which of them?");
        assert_eq!((refused.code, refused.message.as_str()), (Code::StoreRefused, "two texts"));
    }
}
