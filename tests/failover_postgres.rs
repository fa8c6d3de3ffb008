//! PostgreSQL under blows: killed under load, frozen, failed over to a replica that has everything and to one that has not.
