//! Judges the owners of a table and of everything attached to it. Pure.
//!
//! A policy, a trigger, a column's default, a constraint or a view runs with the rights of the role that uses the table. So a
//! role that may create a table of the right name could run its own code as keymill, or count instead of keymill's table. A
//! table is used only if these own it, and the functions, types and relations that it uses:
//! * keymill's role and the roles it belongs to;
//! * the database's owner and superusers, and their members, who may act as they do;
//! * a role that could log in as keymill anyway: one with the ADMIN option on keymill's, before PostgreSQL 16 one with
//!   CREATEROLE.
//!
//! A membership counts only if a superuser, the database's owner or such a role granted it. Before PostgreSQL 15 every login may
//! grant membership in itself: `GRANT evil TO keymill`. For a superuser `pg_has_role` answers true for every role, so the
//! grants themselves are read.

use super::place::{FoundRelation, Place};
use super::postgres_dialect::identifier;
use crate::store::{Absence, Fault, FaultKind, Remedy};

/// Every relation of this name: its schema, kind and persistence, whether this user may use the schema and read it, its
/// `oid`, its owner and whether that role is trusted, this user, and, of what the relation uses, something that another role
/// owns: what is attached to the relation, what that uses, and the owner.
///
/// Dependencies are followed in both directions: to the parts of an object (`a`, `i`, …: a table's triggers, policies,
/// defaults and partitions, a domain's checks, a view's rule), and to what it uses. A foreign key does not run code of the
/// other table's owner as keymill, so it is not followed to that table. A sequence runs no code, whatever table it belongs to.
///
/// A trigger has no owner: the right `TRIGGER` is enough to make one, at any time, so a role that holds it on the table or on a
/// partition has to be trusted; such a holder is answered without a part (PUBLIC without an owner too). Triggers that were made before are judged. Its function has one, but its `WHEN` may hand any text to
/// a function of the system that runs it as SQL (`ts_rewrite`, `query_to_xml`), by its name or by an operator that was made for it.
/// Those are not `IMMUTABLE`, so a `WHEN` may call only functions that are, and a few that conditions often need. Such a trigger is
/// answered without an owner, and so is the function of a trigger with arguments where it is written in C: functions of `refint` run them
/// as SQL, no matter who made the trigger.
///
/// The first argument is 1 where the relation is only read: then no trigger, constraint, default, index or partition of it
/// runs code, and a table may have very many of them.
pub(super) const RELATIONS: &str = "WITH RECURSIVE own(oid) AS (\
     SELECT oid FROM pg_catalog.pg_roles WHERE rolname = CURRENT_USER OR rolname = SESSION_USER), \
     chief(oid) AS (\
     SELECT oid FROM pg_catalog.pg_roles WHERE rolsuper OR rolname = 'pg_database_owner' \
     UNION SELECT datdba FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database()), \
     granting(oid) AS (\
     SELECT oid FROM chief \
     UNION SELECT oid FROM pg_catalog.pg_roles WHERE rolcreaterole \
     AND CAST(pg_catalog.current_setting('server_version_num') AS pg_catalog.int4) < 160000 \
     UNION SELECT m.member FROM pg_catalog.pg_auth_members m JOIN chief c ON c.oid = m.roleid \
     JOIN chief g ON g.oid = m.grantor \
     UNION SELECT m.member FROM pg_catalog.pg_auth_members m JOIN own o ON o.oid = m.roleid WHERE m.admin_option), \
     belongs(oid) AS (\
     SELECT oid FROM own \
     UNION SELECT m.roleid FROM pg_catalog.pg_auth_members m JOIN belongs b ON b.oid = m.member \
     JOIN granting g ON g.oid = m.grantor), \
     trusted(oid) AS (SELECT oid FROM granting UNION SELECT oid FROM belongs) \
     SELECT n.nspname::pg_catalog.text, c.relkind::pg_catalog.text, c.relpersistence::pg_catalog.text, \
     pg_catalog.has_schema_privilege(n.oid, 'USAGE')::pg_catalog.text, \
     pg_catalog.has_table_privilege(c.oid, 'SELECT')::pg_catalog.text, c.oid::pg_catalog.int8, \
     pg_catalog.pg_get_userbyid(c.relowner)::pg_catalog.text, (t.oid IS NOT NULL)::pg_catalog.text, \
     CURRENT_USER::pg_catalog.text, s.part_type, s.part, s.used_type, s.used, s.owner \
     FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
     LEFT JOIN trusted t ON t.oid = c.relowner \
     CROSS JOIN (SELECT CAST(? AS pg_catalog.int8) = 0) r(is_written) \
     LEFT JOIN LATERAL (\
     WITH RECURSIVE used(class, oid, part_class, part) AS (\
     SELECT 'pg_catalog.pg_class'::pg_catalog.regclass::pg_catalog.oid, c.oid, NULL::pg_catalog.oid, NULL::pg_catalog.oid \
     WHERE t.oid IS NOT NULL AND c.relkind <> 'S' \
     UNION SELECT d.class, d.oid, \
     COALESCE(CASE WHEN d.class <> 'pg_catalog.pg_trigger'::pg_catalog.regclass THEN u.part_class END, d.class), \
     COALESCE(CASE WHEN d.class <> 'pg_catalog.pg_trigger'::pg_catalog.regclass THEN u.part END, d.oid) \
     FROM used u CROSS JOIN LATERAL (\
     SELECT a.classid, a.objid FROM pg_catalog.pg_depend a \
     WHERE a.refclassid = u.class AND a.refobjid = u.oid AND a.deptype = ANY ('{a,i,I,P,S}'::pg_catalog.\"char\"[]) \
     AND (r.is_written OR a.classid <> ALL ('{pg_catalog.pg_class,pg_catalog.pg_trigger,pg_catalog.pg_constraint,\
     pg_catalog.pg_attrdef}'::pg_catalog.regclass[])) \
     UNION ALL SELECT f.refclassid, f.refobjid FROM pg_catalog.pg_depend f \
     WHERE f.classid = u.class AND f.objid = u.oid AND f.deptype <> 'e' \
     AND (f.classid <> 'pg_catalog.pg_constraint'::pg_catalog.regclass \
     OR f.refclassid <> 'pg_catalog.pg_class'::pg_catalog.regclass)) d(class, oid) \
     WHERE d.class <> 'pg_catalog.pg_class'::pg_catalog.regclass OR d.oid <> c.oid) \
     SELECT CASE WHEN NOT o.is_right THEN p.type END AS part_type, p.identity AS part, w.type AS used_type, w.identity AS used, \
     CASE WHEN o.owner = 0 THEN '' ELSE pg_catalog.pg_get_userbyid(o.owner)::pg_catalog.text END AS owner \
     FROM used u CROSS JOIN LATERAL (\
     SELECT proowner, false FROM pg_catalog.pg_proc \
     WHERE u.class = 'pg_catalog.pg_proc'::pg_catalog.regclass AND oid = u.oid \
     UNION ALL SELECT oprowner, false FROM pg_catalog.pg_operator \
     WHERE u.class = 'pg_catalog.pg_operator'::pg_catalog.regclass AND oid = u.oid \
     UNION ALL SELECT typowner, false FROM pg_catalog.pg_type \
     WHERE u.class = 'pg_catalog.pg_type'::pg_catalog.regclass AND oid = u.oid AND (typtype <> 'b' OR typcategory <> 'A') \
     UNION ALL SELECT relowner, false FROM pg_catalog.pg_class \
     WHERE u.class = 'pg_catalog.pg_class'::pg_catalog.regclass AND oid = u.oid \
     UNION ALL SELECT h.grantee, true FROM pg_catalog.pg_class k CROSS JOIN LATERAL pg_catalog.aclexplode(k.relacl) h \
     WHERE r.is_written AND u.class = 'pg_catalog.pg_class'::pg_catalog.regclass AND k.oid = u.oid \
     AND (k.oid = c.oid OR k.relispartition) AND h.privilege_type = 'TRIGGER' \
     UNION ALL SELECT 0, false FROM pg_catalog.pg_trigger g JOIN pg_catalog.pg_proc f ON f.oid = g.tgfoid \
     JOIN pg_catalog.pg_language l ON l.oid = f.prolang \
     WHERE u.class = 'pg_catalog.pg_proc'::pg_catalog.regclass AND f.oid = u.oid \
     AND u.part_class = 'pg_catalog.pg_trigger'::pg_catalog.regclass AND g.oid = u.part \
     AND g.tgnargs > 0 AND l.lanname = 'c' AND f.proname <> 'moddatetime' \
     UNION ALL SELECT 0, false FROM pg_catalog.pg_trigger g \
     WHERE u.class = 'pg_catalog.pg_trigger'::pg_catalog.regclass AND g.oid = u.oid AND g.tgqual IS NOT NULL AND EXISTS (\
     SELECT 1 FROM pg_catalog.pg_proc f WHERE f.provolatile <> 'i' AND (f.pronamespace <> 'pg_catalog'::pg_catalog.regnamespace \
     OR f.proname <> ALL ('{pg_trigger_depth,now,statement_timestamp,clock_timestamp,current_setting}'::pg_catalog.name[])) \
     AND (pg_catalog.strpos(g.tgqual::pg_catalog.text, 'funcid ' || f.oid::pg_catalog.text || ' ') > 0 OR EXISTS (\
     SELECT 1 FROM pg_catalog.pg_operator q WHERE q.oprcode = f.oid \
     AND pg_catalog.strpos(g.tgqual::pg_catalog.text, ':opno ' || q.oid::pg_catalog.text || ' ') > 0)))) o(owner, is_right) \
     CROSS JOIN LATERAL pg_catalog.pg_identify_object(u.part_class, u.part, 0) p \
     CROSS JOIN LATERAL pg_catalog.pg_identify_object(u.class, u.oid, 0) w \
     WHERE NOT EXISTS (SELECT 1 FROM trusted x WHERE x.oid = o.owner) \
     ORDER BY u.class = 'pg_catalog.pg_operator'::pg_catalog.regclass, u.class DESC, u.part_class, u.part, u.oid LIMIT 1) s ON true \
     WHERE c.relname = CAST(? AS pg_catalog.name) AND n.nspname !~ '^pg_(temp|toast)'";

/// What keymill does with a relation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RelationUse {
    Write,
    /// `init=max` reads it.
    Read,
}

/// Whose a relation is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RelationOwner {
    pub(super) name: String,
    /// It is keymill's role, one it belongs to, the database's owner or a superuser.
    pub(super) is_trusted: bool,
    /// keymill's role.
    pub(super) user: String,
    /// Something of another role that the relation uses.
    pub(super) other: Option<Other>,
}

/// What a relation of a trusted role uses of another role. The types and names are as `pg_identify_object` gives them:
/// `function`, `evil.run()`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Other {
    pub(super) part_type: String,
    pub(super) part: String,
    pub(super) used_type: String,
    pub(super) used: String,
    /// Empty for a trigger whose condition calls what it may not, for a function to which a trigger hands arguments, and for PUBLIC.
    pub(super) owner: String,
}

/// Why another role's objects are not used.
const WHY: &str = "and what that role owns may have been planted to run with this user's rights or to count instead of its table: only this user, a role it belongs to, roles that may grant this user, the database's owner, superusers and members of these two are trusted";

/// What a statement calls a relation of this `pg_class.relkind`.
fn noun(kind: &str) -> &'static str {
    match kind {
        "v" => "VIEW",
        "m" => "MATERIALIZED VIEW",
        "S" => "SEQUENCE",
        "f" => "FOREIGN TABLE",
        "i" | "I" => "INDEX",
        "c" => "TYPE",
        _ => "TABLE",
    }
}

/// Refuses a relation that another role owns, or that uses something of another role.
pub(super) fn check(table: &str, found: &FoundRelation) -> Result<(), Fault> {
    if !found.owner.is_trusted {
        return Err(not_owned(table, found));
    }
    match &found.owner.other {
        Some(other) if other.part_type.is_empty() => Err(may_make_triggers(other, found)),
        Some(other) if other.owner.is_empty() && other.used_type == "trigger" => {
            Err(condition_calls(&other.part))
        }
        Some(other) if other.owner.is_empty() => Err(hands_arguments(other)),
        Some(other) => Err(uses_of(other, table, found)),
        None => Ok(()),
    }
}

/// To trust all that this role owns.
fn grant(role: &str, user: &str) -> Remedy {
    Remedy::Sql {
        first: "or, to trust all that this role owns, and to give this user its rights, run as a superuser",
        // Before PostgreSQL 16 a second grant does not replace the grantor.
        statements: vec![
            format!("REVOKE {} FROM {user}", identifier(role)),
            format!("GRANT {} TO {user}", identifier(role)),
        ],
    }
}

/// The relation belongs to another role.
fn not_owned(table: &str, found: &FoundRelation) -> Fault {
    let FoundRelation { schema, name, kind, owner, .. } = found;
    let (place, user) = (Place::quoted(schema, name).quoted, identifier(&owner.user));
    let (noun, role) = (noun(kind), identifier(&owner.name));
    let what = format!("`{schema}.{table}` belongs to role `{}`, {WHY}", owner.name);
    Fault::new(FaultKind::Refused, what)
        .with_absence(Some(Absence::NotOurs))
        .with_remedy(Remedy::Sql {
            first: "if it is not yours, run as a superuser",
            statements: vec![
                format!("DROP {noun} {place}"),
                format!("REVOKE CREATE ON SCHEMA {} FROM PUBLIC, {role}", identifier(schema)),
            ],
        })
        .with_remedy(Remedy::Sql {
            first: "if it is, run as a superuser, or as a member of both roles",
            statements: vec![format!("ALTER {noun} {place} OWNER TO {user}")],
        })
        .with_remedy(grant(&owner.name, &user))
        .with_remedy(Remedy::Text(
            "`schema=` in the store's URL names another schema, if no id of this source was issued",
        ))
}

/// A role that is not trusted, or PUBLIC where it is empty, has the right to make triggers.
fn may_make_triggers(other: &Other, found: &FoundRelation) -> Fault {
    let Other { part, used: partition, owner, .. } = other;
    let table = Place::quoted(&found.schema, &found.name).quoted;
    let (place, shown) = match part.as_str() {
        "" => (&table, format!("{}.{}", found.schema, found.name)),
        _ => (partition, partition.clone()),
    };
    let (role, named) = match owner.as_str() {
        "" => ("PUBLIC".to_owned(), "PUBLIC".to_owned()),
        role => (identifier(role), format!("role `{role}`")),
    };
    let what = format!(
        "{named} holds the right `TRIGGER` on `{shown}`, {WHY}; a trigger runs functions with this user's rights"
    );
    Fault::new(FaultKind::Refused, what)
        .with_remedy(Remedy::Sql {
            first: "keymill's tables need no such right: run as a superuser or as the table's owner",
            statements: vec![format!("REVOKE TRIGGER ON {place} FROM {role}")],
        })
        .with_remedy(Remedy::Text(
            "what it made stays: drop every trigger of the table that you did not make (`\\d` lists them)",
        ))
}

/// A trigger hands arguments to a function in C.
fn hands_arguments(other: &Other) -> Fault {
    let Other { part: trigger, used: function, .. } = other;
    let what = format!(
        "trigger `{trigger}` hands arguments to `{function}`, which is written in C and may run them as SQL with this user's rights, and a trigger has no owner who could be trusted"
    );
    Fault::new(FaultKind::Refused, what).with_remedy(Remedy::Sql {
        first: "keymill needs no such trigger: run as a superuser",
        statements: vec![format!("DROP TRIGGER {trigger}")],
    })
}

/// The condition of a trigger calls a function that it may not.
fn condition_calls(trigger: &str) -> Fault {
    let what = format!(
        "the condition (`WHEN`) of trigger `{trigger}` calls a function that is not `IMMUTABLE`: with such a function it can run any SQL with this user's rights, and a trigger has no owner who could be trusted"
    );
    Fault::new(FaultKind::Refused, what)
        .with_remedy(Remedy::Sql {
            first: "if it is not yours, run as a superuser",
            statements: vec![format!("DROP TRIGGER {trigger}")],
        })
        .with_remedy(Remedy::Text("if it is, move the condition into its function"))
}

/// The relation uses something of another role.
fn uses_of(other: &Other, table: &str, found: &FoundRelation) -> Fault {
    let Other { part_type, part, used_type, used, owner: role } = other;
    let through = if (part_type, part) == (used_type, used) {
        String::new()
    } else {
        format!(" in its {part_type} `{part}`")
    };
    let what =
        format!("`{}.{table}` uses {used_type} `{used}` of role `{role}`{through}, {WHY}", found.schema);
    let user = identifier(&found.owner.user);
    let take_off = match part_type.as_str() {
        "trigger" | "policy" => Remedy::Sql {
            first: "if it is not yours, run as a superuser",
            statements: vec![format!("DROP {} {part}", part_type.to_uppercase())],
        },
        _ => Remedy::Text("if it is not yours, alter the table as a superuser so that it does without"),
    };
    Fault::new(FaultKind::Refused, what)
        .with_remedy(take_off)
        .with_remedy(Remedy::Sql {
            first: "if it is, run as a superuser, or as a member of both roles",
            statements: vec![format!("ALTER {} {used} OWNER TO {user}", used_type.to_uppercase())],
        })
        .with_remedy(grant(role, &user))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: &str, owner: RelationOwner) -> String {
        let found = FoundRelation {
            schema: "My \"x\"".into(),
            name: "t".into(),
            kind: kind.into(),
            owner,
            ..FoundRelation::default()
        };
        check("T", &found).unwrap_err().to_string()
    }

    fn evil() -> RelationOwner {
        RelationOwner { name: "e\"vil".into(), user: "ids".into(), ..RelationOwner::default() }
    }

    #[test]
    fn a_refusal_names_the_owner_and_each_remedy_as_sql() {
        for (kind, noun) in [("r", "TABLE"), ("p", "TABLE"), ("v", "VIEW"), ("S", "SEQUENCE"), ("c", "TYPE")]
        {
            let message = message(kind, evil());
            for part in [
                "`My \"x\".T` belongs to role `e\"vil`".to_owned(),
                format!(
                    "`DROP {noun} \"My \"\"x\"\"\".\"t\"`, `REVOKE CREATE ON SCHEMA \"My \"\"x\"\"\" FROM PUBLIC, \"e\"\"vil\"`"
                ),
                format!("`ALTER {noun} \"My \"\"x\"\"\".\"t\" OWNER TO \"ids\"`"),
                "`GRANT \"e\"\"vil\" TO \"ids\"`".to_owned(),
            ] {
                assert!(message.contains(&part), "{part}: {message}");
            }
        }
    }

    #[test]
    fn what_is_attached_is_named_with_what_it_uses() {
        let other = Other {
            part_type: "trigger".into(),
            part: "t on public.t".into(),
            used_type: "function".into(),
            used: "e.run()".into(),
            owner: "evil".into(),
        };
        let refusal = |other| message("r", RelationOwner { is_trusted: true, other: Some(other), ..evil() });
        let said = refusal(other.clone());
        for part in [
            "uses function `e.run()` of role `evil` in its trigger `t on public.t`",
            "`DROP TRIGGER t on public.t`",
            "`ALTER FUNCTION e.run() OWNER TO \"ids\"`",
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
        let typed = Other {
            part_type: "type".into(),
            part: "e.d".into(),
            used_type: "type".into(),
            used: "e.d".into(),
            ..other
        };
        let said = refusal(typed);
        assert!(
            said.contains("uses type `e.d` of role `evil`, and") && said.contains("alter the table"),
            "{said}"
        );
    }
}
