//! What a Redis server says about itself, and what that means for a commit. (floor 2)
//!
//! A reservation survives the server's machine only if the append-only file is written and flushed before the answer:
//! `appendonly yes`, `appendfsync always`, and no pause of that during rewrites. And only if the row is never evicted.

use std::collections::HashMap;

/// The settings that are asked for, by `CONFIG GET`.
pub(super) const SETTINGS: &[&str] = &[
    "appendonly",
    "appendfsync",
    "no-appendfsync-on-rewrite",
    "maxmemory",
    "maxmemory-policy",
    "min-replicas-to-write",
];

/// What `INFO` said, with the answers of `CONFIG GET` where they were given.
#[derive(Debug, Default)]
pub(super) struct Server {
    info: HashMap<String, String>,
    settings: HashMap<String, String>,
}

/// One thing that is wrong with the settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Finding {
    /// It loses commits.
    Unsafe(String),
    /// To be told, not refused.
    Warning(String),
}

impl Server {
    pub(super) fn new(info: &str) -> Server {
        let info = info
            .lines()
            .filter_map(|line| line.trim_end().split_once(':'))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        Server { info, settings: HashMap::new() }
    }

    pub(super) fn set(&mut self, name: &str, value: String) {
        self.settings.insert(name.to_owned(), value);
    }

    fn info(&self, name: &str) -> &str {
        self.info.get(name).map_or("", String::as_str)
    }

    /// A setting as `CONFIG GET` or else `INFO` tells it.
    fn setting(&self, name: &str) -> Option<&str> {
        let told = self.settings.get(name).map(String::as_str);
        told.or_else(|| match (name, self.info("aof_enabled")) {
            ("appendonly", "0") => Some("no"),
            ("appendonly", "1") => Some("yes"),
            ("maxmemory-policy", _) => self.info.get("maxmemory_policy").map(String::as_str),
            _ => None,
        })
    }

    pub(super) fn dialect(&self) -> &'static str {
        if self.info.contains_key("valkey_version") { "valkey" } else { "redis" }
    }

    pub(super) fn version(&self) -> &str {
        let own = self.info("valkey_version");
        if own.is_empty() { self.info("redis_version") } else { own }
    }

    pub(super) fn is_replica(&self) -> bool {
        self.info("role") == "slave"
    }

    pub(super) fn replicas(&self) -> u64 {
        self.info("connected_slaves").parse().unwrap_or(0)
    }

    /// Why this is no server that keeps rows, if it is none.
    pub(super) fn is_no_store(&self) -> Option<&'static str> {
        match self.info("redis_mode") {
            "cluster" => Some(
                "this is a node of a Redis Cluster, which is not supported: use a server of its own, with replicas followed by \
                 Sentinel",
            ),
            "sentinel" => Some("this is a Sentinel; say whom it watches: `?sentinel=NAME`"),
            _ => None,
        }
    }

    /// The settings that decide whether a commit survives, `name=value`.
    pub(super) fn durability(&self, wait_replicas: u32) -> Vec<String> {
        let mut told: Vec<_> = SETTINGS
            .iter()
            .filter(|name| **name != "maxmemory")
            .filter_map(|name| Some(format!("{name}={}", self.setting(name)?)))
            .collect();
        told.push(format!("replicas={}", self.replicas()));
        told.push(format!("wait_replicas={wait_replicas}"));
        told
    }

    /// What is wrong with them. `follows`: a Sentinel may name another server any time.
    pub(super) fn findings(&self, wait_replicas: u32, follows: bool) -> Vec<Finding> {
        let mut findings = Vec::new();
        for (name, safe, why) in [
            ("appendonly", "yes", "a restart forgets what was reserved"),
            ("appendfsync", "always", "a crash of the machine forgets what was reserved last"),
            ("no-appendfsync-on-rewrite", "no", "while the file is rewritten nothing is flushed"),
        ] {
            match self.setting(name) {
                Some(value) if value == safe => {}
                Some(value) => findings.push(Finding::Unsafe(format!(
                    "the server has {name}={value}, which loses commits: {why} ({name}={safe} is safe)"
                ))),
                None => findings.push(Finding::Warning(format!(
                    "`{name}` cannot be read on this server; it has to be {safe}"
                ))),
            }
        }
        match self.setting("maxmemory-policy") {
            // `volatile-…` takes keys that expire, and ours do not.
            Some(policy) if policy == "noeviction" || policy.starts_with("volatile-") => {}
            Some(policy) => findings.push(Finding::Unsafe(format!(
                "the server has maxmemory-policy={policy}, which deletes rows when memory is short (noeviction is safe)"
            ))),
            None => findings.push(Finding::Warning(
                "`maxmemory-policy` cannot be read on this server; it has to be noeviction".to_owned(),
            )),
        }
        if wait_replicas == 0 && (follows || self.replicas() > 0) {
            findings.push(Finding::Warning(
                "replicas follow asynchronously: a failover may lose reservations that were answered. A process that has seen \
                 them refuses to go on, one that has not would issue them again; `wait_replicas=N` waits for N replicas"
                    .to_owned(),
            ));
        }
        findings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INFO: &str = "# Server\r\nredis_version:7.0.15\r\nredis_mode:standalone\r\nrole:master\r\nconnected_slaves:0\r\n\
                        aof_enabled:1\r\nmaxmemory_policy:noeviction\r\n";

    fn told(pairs: &[(&str, &str)]) -> Server {
        let mut server = Server::new(INFO);
        for (name, value) in
            [("appendonly", "yes"), ("appendfsync", "always"), ("no-appendfsync-on-rewrite", "no")]
                .iter()
                .chain(pairs)
        {
            server.set(name, (*value).to_owned());
        }
        server
    }

    #[test]
    fn a_server_that_flushes_before_it_answers_is_safe() {
        let server = told(&[]);
        assert_eq!(server.findings(0, false), []);
        assert_eq!((server.dialect(), server.version(), server.is_replica()), ("redis", "7.0.15", false));
        assert_eq!(told(&[("maxmemory-policy", "volatile-ttl")]).findings(0, false), []);
    }

    #[test]
    fn each_setting_that_loses_commits_is_found() {
        for (name, value) in [
            ("appendonly", "no"),
            ("appendfsync", "everysec"),
            ("appendfsync", "no"),
            ("no-appendfsync-on-rewrite", "yes"),
            ("maxmemory-policy", "allkeys-lru"),
            ("maxmemory-policy", "allkeys-random"),
        ] {
            let findings = told(&[(name, value)]).findings(0, false);
            assert!(
                matches!(&findings[..], [Finding::Unsafe(text)] if text.contains(&format!("{name}={value}"))),
                "{findings:?}"
            );
        }
    }

    #[test]
    fn what_cannot_be_read_is_warned_about_unless_info_tells_it() {
        let findings = Server::new(INFO).findings(0, false);
        assert_eq!(findings.len(), 2, "{findings:?}");
        assert!(
            findings.iter().all(|f| matches!(f, Finding::Warning(text) if text.contains("cannot be read")))
        );
        let off = Server::new("aof_enabled:0\r\nmaxmemory_policy:allkeys-lru").findings(0, false);
        assert_eq!(off.iter().filter(|f| matches!(f, Finding::Unsafe(_))).count(), 2, "{off:?}");
    }

    #[test]
    fn replicas_that_nobody_waits_for_are_told() {
        let mut server = told(&[]);
        server.info.insert("connected_slaves".to_owned(), "1".to_owned());
        assert!(
            matches!(&server.findings(0, false)[..], [Finding::Warning(text)] if text.contains("wait_replicas"))
        );
        assert_eq!(server.findings(1, true), []);
    }

    #[test]
    fn clusters_and_sentinels_keep_no_rows() {
        assert!(Server::new("redis_mode:cluster").is_no_store().is_some_and(|why| why.contains("Cluster")));
        assert!(
            Server::new("redis_mode:sentinel").is_no_store().is_some_and(|why| why.contains("?sentinel="))
        );
        assert_eq!(Server::new(INFO).is_no_store(), None);
    }
}
