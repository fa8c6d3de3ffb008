//! Finds the schema of a table. Pure.
//!
//! PostgreSQL looks an unqualified name up along the `search_path`, so every role that may create a schema, or change that
//! path, decides which table is used: an empty copy that comes first would begin at 1 again. So a table is looked up once,
//! by its name, in all schemas, and every statement then names `"schema"."table"`. If several tables match, keymill
//! refuses: the store's URL has to say `schema=`. A table of a role that is not trusted does not count beside another, so no
//! such role can stop keymill; alone it is refused.

use super::owners::{self, RelationOwner};
use super::postgres_dialect::identifier;
use crate::store::{Absence, Fault, FaultKind};

/// Where a table or a sequence is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) schema: String,
    /// `"schema"."table"`.
    pub(super) quoted: String,
}

impl Place {
    /// The place of a relation whose name is this one in quotes.
    pub(super) fn quoted(schema: &str, name: &str) -> Place {
        Place { schema: schema.to_owned(), quoted: format!("{}.{}", identifier(schema), identifier(name)) }
    }

    /// The place of this table in this schema; its name is folded, as in [`translated`](super::postgres_dialect::translated).
    pub(super) fn new(schema: &str, table: &str) -> Place {
        Place::quoted(schema, &table.to_ascii_lowercase())
    }
}

/// A relation with the name of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FoundRelation {
    pub(super) schema: String,
    /// As it is written in quotes.
    pub(super) name: String,
    /// `pg_class.relkind`.
    pub(super) kind: String,
    /// `pg_class.relpersistence`.
    pub(super) storage: String,
    /// This user may use the schema.
    pub(super) usable: bool,
    /// This user may read the table.
    pub(super) readable: bool,
    pub(super) oid: u64,
    pub(super) owner: RelationOwner,
}

/// Chooses the relation that is the table; `None`: none exists yet. `schema`: the schema that the URL names, or in which
/// this process has counted. `path`: the schemas of the `search_path`.
pub(super) fn chosen<'n>(
    table: &str,
    found: &'n [FoundRelation],
    path: &[String],
    schema: Option<&str>,
) -> Result<Option<&'n FoundRelation>, Fault> {
    let one = one_of(table, found, path, schema)?;
    one.map_or(Ok(()), |one| owners::check(table, one))?;
    Ok(one)
}

fn one_of<'n>(
    table: &str,
    found: &'n [FoundRelation],
    path: &[String],
    schema: Option<&str>,
) -> Result<Option<&'n FoundRelation>, Fault> {
    if let Some(schema) = schema {
        return Ok(found.iter().find(|relation| relation.schema == schema));
    }
    let on_path = |relation: &FoundRelation| path.contains(&relation.schema);
    // A view on the path hides a table behind it. Off the path only relations that can hold a counter matter.
    let counts =
        |relation: &&FoundRelation| relation.readable && matches!(relation.kind.as_str(), "r" | "p" | "S");
    let near = |relation: &&FoundRelation| relation.usable && (on_path(relation) || counts(relation));
    let (trusted, others): (Vec<_>, Vec<_>) =
        found.iter().filter(near).partition(|relation| relation.owner.is_trusted);
    let (here, elsewhere): (Vec<_>, Vec<_>) = trusted.into_iter().partition(|relation| on_path(relation));
    match (here.as_slice(), elsewhere.as_slice()) {
        // No trusted table was found: this one is probably meant, and the refusal names its owner.
        ([], []) => Ok(others.iter().copied().find(|relation| on_path(relation)).or_else(|| others.first().copied())),
        ([one], []) => Ok(Some(one)),
        ([], [one]) => Err(Fault::new(
            FaultKind::Refused,
            format!(
                "table `{table}` is not in a schema of this user's search_path, but there is one in schema `{0}`: if it is the one, write `schema={0}` in the store's URL, else the schema where the table is to be",
                one.schema
            ),
        )
        .with_absence(Some(Absence::NotOurs))),
        _ => {
            let mut schemas: Vec<_> =
                here.iter().chain(&elsewhere).map(|relation| format!("`{}`", relation.schema)).collect();
            schemas.sort();
            Err(Fault::new(
                FaultKind::Refused,
                format!(
                    "there is a table `{table}` in each of the schemas {}, and none knows what another has issued: write in the store's URL which it is, `schema=NAME`",
                    schemas.join(", ")
                ),
            )
            .with_absence(here.is_empty().then_some(Absence::NotOurs)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(schema: &str) -> FoundRelation {
        FoundRelation {
            schema: schema.to_owned(),
            kind: "r".to_owned(),
            usable: true,
            readable: true,
            owner: RelationOwner { is_trusted: true, ..RelationOwner::default() },
            ..FoundRelation::default()
        }
    }

    fn choose(
        found: &[FoundRelation],
        path: &[&str],
        schema: Option<&str>,
    ) -> Result<Option<String>, String> {
        let path: Vec<_> = path.iter().map(ToString::to_string).collect();
        chosen("t", found, &path, schema)
            .map(|one| one.map(|one| one.schema.clone()))
            .map_err(|fault| fault.to_string())
    }

    #[test]
    fn a_table_that_is_the_only_one_is_found_by_the_search_path() {
        assert_eq!(choose(&[], &["a", "public"], None), Ok(None));
        assert_eq!(choose(&[table("public")], &["a", "public"], None), Ok(Some("public".to_owned())));
        let closed = FoundRelation { usable: false, ..table("b") };
        assert_eq!(choose(&[table("public"), closed], &["public"], None), Ok(Some("public".to_owned())));
        let secret = FoundRelation { readable: false, ..table("b") };
        assert_eq!(choose(&[table("public"), secret], &["public"], None), Ok(Some("public".to_owned())));
    }

    #[test]
    fn a_second_table_of_the_name_is_refused_wherever_it_is() {
        let both = [table("keymill"), table("public")];
        for path in [&["keymill", "public"][..], &["public", "keymill"], &["public"], &["keymill"], &[]] {
            let message = choose(&both, path, None).unwrap_err();
            assert!(message.contains("`keymill`, `public`") && message.contains("schema="), "{message}");
        }
        let unread = FoundRelation { readable: false, ..table("keymill") };
        assert!(choose(&[unread, table("public")], &["keymill", "public"], None).is_err(), "it comes first");
        let view = FoundRelation { kind: "v".to_owned(), ..table("keymill") };
        assert!(choose(&[view.clone(), table("public")], &["keymill", "public"], None).is_err());
        assert_eq!(choose(&[view, table("public")], &["public"], None), Ok(Some("public".to_owned())));
    }

    #[test]
    fn a_table_that_is_off_the_path_is_not_made_anew() {
        let message = choose(&[table("shop")], &["public"], None).unwrap_err();
        assert!(message.contains("`schema=shop`"), "{message}");
    }

    #[test]
    fn a_table_that_keymill_does_not_use_is_told_from_two_that_it_may_use() {
        let evil = |schema| FoundRelation { owner: RelationOwner::default(), ..table(schema) };
        let path = ["public".to_owned()];
        let absence = |found: &[FoundRelation]| chosen("t", found, &path, None).unwrap_err().absence();
        for found in
            [vec![table("far")], vec![table("far"), table("hid")], vec![evil("far")], vec![evil("public")]]
        {
            assert_eq!(absence(&found), Some(Absence::NotOurs), "{found:?}");
        }
        assert_eq!(absence(&[table("public"), table("far")]), None, "one of them may have the marks");
        let attached = RelationOwner {
            is_trusted: true,
            other: Some(owners::Other::default()),
            ..RelationOwner::default()
        };
        assert_eq!(absence(&[FoundRelation { owner: attached, ..table("public") }]), None);
    }

    #[test]
    fn a_table_of_a_role_that_is_not_trusted_counts_only_alone_and_is_refused_then() {
        let evil = |schema| FoundRelation {
            owner: RelationOwner { name: "evil".into(), ..RelationOwner::default() },
            ..table(schema)
        };
        let public = Ok(Some("public".to_owned()));
        for place in ["keymill", "far", "public2"] {
            assert_eq!(
                choose(&[evil(place), table("public")], &["keymill", "public"], None),
                public,
                "{place}"
            );
        }
        let hidden = FoundRelation { kind: "v".to_owned(), ..evil("keymill") };
        assert_eq!(choose(&[hidden, table("public")], &["keymill", "public"], None), public);
        for path in [&["keymill"][..], &["public"]] {
            let message = choose(&[evil("far"), evil("keymill")], path, None).unwrap_err();
            assert!(message.contains("role `evil`"), "{message}");
            assert_eq!(message.contains("`keymill.t`"), path == ["keymill"], "{message}");
        }
        let message = choose(&[evil("public"), table("far")], &["public"], None).unwrap_err();
        assert!(message.contains("`schema=far`"), "its own table, not on the path: {message}");
        assert!(choose(&[evil("public"), table("far")], &["far"], Some("public")).is_err());
        let unread = FoundRelation { readable: false, ..evil("far") };
        assert_eq!(choose(&[unread], &["public"], None), Ok(None));
    }

    #[test]
    fn a_schema_that_is_named_decides() {
        let both = [table("keymill"), table("public")];
        assert_eq!(choose(&both, &["keymill"], Some("public")), Ok(Some("public".to_owned())));
        assert_eq!(choose(&both, &["keymill"], Some("new")), Ok(None));
    }

    #[test]
    fn any_schema_can_be_quoted() {
        assert_eq!(Place::new("My \"own\" x-1", "T").quoted, "\"My \"\"own\"\" x-1\".\"t\"");
    }
}
