//! What a Redis server reports about itself, and what that means for a commit.
//!
//! A reservation survives the server's machine only if the append-only file is written and flushed before the answer:
//! `appendonly yes`, `appendfsync always`, and no pause of that during rewrites. And only if the row is never evicted. All of
//! these can be changed on a running server, so they are read again in one pipeline with each reservation.

use std::collections::HashMap;

use redis::{Cmd, Value, cmd};

use super::redis_session::text;
use crate::store::{Durability, tried};

/// The settings that a reservation depends on, with the safe value and what happens otherwise.
const FLUSHED: [(&str, &str, &str); 3] = [
    ("appendonly", "yes", "a restart forgets what was reserved"),
    ("appendfsync", "always", "a crash of the machine forgets what was reserved last"),
    ("no-appendfsync-on-rewrite", "no", "while the file is rewritten nothing is flushed"),
];
const EVICTION: &str = "maxmemory-policy";

/// What `status` shows, in this order.
const SHOWN: [&str; 5] =
    ["appendonly", "appendfsync", "no-appendfsync-on-rewrite", EVICTION, "min-replicas-to-write"];

/// `CONFIG GET` with these patterns names all of [`FLUSHED`] and [`EVICTION`]. Servers before Redis 7 take one at a time.
const PATTERNS: [&str; 2] = ["*append*", EVICTION];

/// Queries that show whether a reservation survives; only `role` if the settings are not checked.
pub(super) fn questions(with_settings: bool) -> Vec<Cmd> {
    let patterns = if with_settings { &PATTERNS[..] } else { &[] };
    let config = patterns.iter().map(|pattern| cmd("CONFIG").arg("GET").arg(*pattern).take());
    config.chain([cmd("INFO").arg("replication").take()]).collect()
}

/// Queried once a connection, for `status`.
pub(super) fn replicas_to_write() -> Cmd {
    cmd("CONFIG").arg("GET").arg("min-replicas-to-write").take()
}

/// The fields of `INFO`, with the answers of `CONFIG GET` where the server gave them.
#[derive(Debug, Default)]
pub(super) struct RedisServer {
    info: HashMap<String, String>,
    settings: HashMap<String, String>,
}

/// One problem with the settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Finding {
    /// It loses commits.
    Unsafe(String),
    /// It is reported, not refused.
    Warning(String),
}

impl RedisServer {
    pub(super) fn new(info: &str) -> RedisServer {
        RedisServer { info: fields(info).collect(), settings: HashMap::new() }
    }

    fn set(&mut self, name: &str, value: String) {
        self.settings.insert(name.to_owned(), value);
    }

    /// Takes the answers to [`questions`]; `false` if one of them is an error. A setting without an answer is forgotten: an
    /// old value says nothing about this reservation.
    pub(super) fn take_answers(&mut self, with_settings: bool, answers: &[Value]) -> bool {
        let (config, info) =
            answers.split_at(if with_settings { PATTERNS.len() } else { 0 }.min(answers.len()));
        if with_settings {
            self.settings.retain(|name, _| name == "min-replicas-to-write");
        }
        let mut complete = true;
        for answer in config {
            complete &= self.take_config(answer);
        }
        match info.first().and_then(text) {
            Some(info) => self.info.extend(fields(&info)),
            None => {
                self.info.remove("role");
                complete = false;
            }
        }
        complete
    }

    /// The answer to one `CONFIG GET`; `false` if it is malformed.
    pub(super) fn take_config(&mut self, answer: &Value) -> bool {
        match answer {
            Value::Array(pairs) => {
                for pair in pairs.chunks_exact(2) {
                    if let (Some(name), Some(value)) = (text(&pair[0]), text(&pair[1])) {
                        self.set(&name, value);
                    }
                }
                true
            }
            Value::Map(pairs) => {
                for (name, value) in pairs {
                    if let (Some(name), Some(value)) = (text(name), text(value)) {
                        self.set(&name, value);
                    }
                }
                true
            }
            _ => false,
        }
    }

    fn info(&self, name: &str) -> &str {
        self.info.get(name).map_or("", String::as_str)
    }

    /// A setting, from `CONFIG GET` or else from `INFO`.
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

    /// Why nothing may be written here. Only `role:master` is known to be the single server that takes writes; KeyDB's
    /// `role:active-replica` is a second one.
    pub(super) fn not_writable(&self, durability: Durability) -> Option<String> {
        match (self.info("role"), durability) {
            ("master", _) | ("", Durability::Warn) => None,
            ("slave", _) => Some(
                "the server is a replica, which reserves nothing: name the master, or follow it with `sentinel=NAME`"
                    .to_owned(),
            ),
            ("", _) => Some(
                "the server does not say whether it is a master (`INFO replication`), and only a master may reserve; allow `+info`, or `durability=warn` accepts the risk of duplicates"
                    .to_owned(),
            ),
            (role, _) => Some(format!(
                "the server says role:{role}, and only a master may reserve: two servers that take writes would give the same numbers"
            )),
        }
    }

    pub(super) fn replicas(&self) -> u64 {
        self.info("connected_slaves").parse().unwrap_or(0)
    }

    /// Whether a script can change the functions that other logins' scripts call.
    fn shares_scripts(&self) -> bool {
        let mut parts = self.version().split('.').map(|part| part.parse::<u32>().ok());
        let mut next = || parts.next().flatten();
        let version = next().zip(next()).zip(next());
        self.dialect() == "redis"
            && version.is_some_and(|((major, minor), patch)| (major, minor, patch) < (6, 2, 7))
    }

    /// Why this server keeps no rows (a cluster, a Sentinel).
    pub(super) fn is_no_store(&self) -> Option<&'static str> {
        // Valkey calls it `server_mode`.
        let mode = self.info.get("redis_mode").or_else(|| self.info.get("server_mode"));
        match mode.map_or("", String::as_str) {
            "cluster" => Some(
                "this is a node of a Redis Cluster, which is not supported: use a server of its own, with replicas followed by Sentinel",
            ),
            "sentinel" => Some("this is a Sentinel; say whom it watches: `?sentinel=NAME`"),
            _ => None,
        }
    }

    /// The settings that decide whether a commit survives, `name=value`.
    pub(super) fn durability(&self, wait_replicas: u32) -> Vec<String> {
        let mut told: Vec<_> =
            SHOWN.iter().filter_map(|name| Some(format!("{name}={}", self.setting(name)?))).collect();
        told.push(format!("replicas={}", self.replicas()));
        told.push(format!("wait_replicas={wait_replicas}"));
        told
    }

    /// Settings that lose commits, each with its remedy. A setting that cannot be read may lose them too.
    pub(super) fn losses(&self) -> Vec<String> {
        let mut losses = Vec::new();
        for (name, safe, why) in FLUSHED {
            match self.setting(name) {
                Some(value) if value == safe => {}
                Some(value) => losses.push(format!(
                    "the server has {name}={value}, which loses commits: {why}; set {name}={safe}"
                )),
                None => losses.push(unreadable(name, safe)),
            }
        }
        match self.setting(EVICTION) {
            // `volatile-…` evicts keys that expire, and keymill's do not.
            Some(policy) if policy == "noeviction" || policy.starts_with("volatile-") => {}
            Some(policy) => losses.push(format!(
                "the server has {EVICTION}={policy}, which deletes rows when memory is short; set {EVICTION}=noeviction"
            )),
            None => losses.push(unreadable(EVICTION, "noeviction")),
        }
        losses
    }

    /// Problems of the server. `follows`: a Sentinel may name another server at any time.
    pub(super) fn findings(&self, wait_replicas: u32, follows: bool) -> Vec<Finding> {
        let mut findings: Vec<_> = self.losses().into_iter().map(Finding::Unsafe).collect();
        findings.extend(tried::too_old(self.dialect(), self.version()).map(Finding::Warning));
        if self.shares_scripts() {
            findings.push(Finding::Warning(format!(
                "Redis {} is older than 6.2.7: every login that may run scripts can change what keymill's scripts do, and so repeat ids (CVE-2022-24735); update the server, or let no other login run scripts",
                self.version()
            )));
        }
        if wait_replicas == 0 && (follows || self.replicas() > 0) {
            findings.push(Finding::Warning(
                "replicas follow asynchronously: a failover may lose reservations that were answered. A process that has seen them refuses to go on; another process would issue them again; `wait_replicas=N` waits for N replicas"
                    .to_owned(),
            ));
        }
        findings
    }
}

/// `name:value` lines of `INFO`, up to the first replica. A replica names its own address, with line breaks where it likes: what follows may
/// be its words. Every field that is used stands before.
fn fields(info: &str) -> impl Iterator<Item = (String, String)> {
    let names_replica = |line: &str| {
        line.strip_prefix("slave").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    info.lines()
        .take_while(move |line| !names_replica(line))
        .filter_map(|line| line.trim_end().split_once(':'))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
}

fn unreadable(name: &str, safe: &str) -> String {
    format!("`{name}` cannot be read on this server, and it has to be {safe}: allow `+config|get`")
}

#[cfg(test)]
mod tests {
    use super::*;

    const INFO: &str = "# Server\r\nredis_version:7.0.15\r\nredis_mode:standalone\r\nrole:master\r\nconnected_slaves:0\r\n\
                        aof_enabled:1\r\nmaxmemory_policy:noeviction\r\n";

    fn server_with(pairs: &[(&str, &str)]) -> RedisServer {
        let mut server = RedisServer::new(INFO);
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
        let server = server_with(&[]);
        assert_eq!(server.findings(0, false), []);
        assert_eq!((server.dialect(), server.version()), ("redis", "7.0.15"));
        assert_eq!(server.not_writable(Durability::Refuse), None);
        assert_eq!(server_with(&[("maxmemory-policy", "volatile-ttl")]).findings(0, false), []);
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
            let findings = server_with(&[(name, value)]).findings(0, false);
            assert!(
                matches!(&findings[..], [Finding::Unsafe(text)] if text.contains(&format!("{name}={value}"))),
                "{findings:?}"
            );
        }
    }

    #[test]
    fn a_setting_that_cannot_be_read_is_a_loss_unless_info_tells_it() {
        let losses = RedisServer::new(INFO).losses();
        assert_eq!(losses.len(), 2, "{losses:?}");
        assert!(losses.iter().all(|text| text.contains("cannot be read")), "{losses:?}");
        let off = RedisServer::new("aof_enabled:0\r\nmaxmemory_policy:allkeys-lru").losses();
        assert_eq!(off.iter().filter(|text| text.contains("the server has")).count(), 2, "{off:?}");
        assert_eq!(RedisServer::new("").losses().len(), 4);
    }

    #[test]
    fn only_a_master_is_writable() {
        let role =
            |role: &str, durability| RedisServer::new(&format!("role:{role}")).not_writable(durability);
        for durability in [Durability::Refuse, Durability::Warn] {
            assert_eq!(role("master", durability), None);
            for other in ["slave", "active-replica", "sentinel", "primary"] {
                assert!(role(other, durability).is_some(), "{other}");
            }
        }
        assert!(
            role("active-replica", Durability::Warn).is_some_and(|why| why.contains("role:active-replica"))
        );
        assert!(
            RedisServer::new("").not_writable(Durability::Refuse).is_some_and(|why| why.contains("`+info`"))
        );
        assert_eq!(RedisServer::new("").not_writable(Durability::Warn), None);
    }

    #[test]
    fn a_server_whose_logins_change_each_others_scripts_is_warned_about() {
        for (version, is_warned) in [
            ("6.0.16", true),
            ("6.2.6", true),
            ("6.2.7", false),
            ("7.0.15", false),
            ("x", false),
            ("", false),
        ] {
            let mut server = server_with(&[]);
            server.info.insert("redis_version".to_owned(), version.to_owned());
            let findings = server.findings(0, false);
            let warned = matches!(&findings[..], [Finding::Warning(text)] if text.contains("CVE-2022-24735"));
            assert_eq!(warned, is_warned, "{version}: {findings:?}");
        }
        let mut valkey = server_with(&[]);
        valkey.info.extend(
            [("redis_version", "6.0.0"), ("valkey_version", "8.1.1")]
                .map(|(n, v)| (n.to_owned(), v.to_owned())),
        );
        assert_eq!(valkey.findings(0, false), []);
    }

    #[test]
    fn a_replica_that_names_itself_in_several_lines_plants_nothing() {
        let planted = |role: &str, planted: &str| {
            format!(
                "{}connected_slaves:1\r\nslave0:ip=x\r\n{planted}\r\ny,port=6379,state=online\r\nmaster_replid:0\r\n",
                INFO.replace("role:master", role)
            )
        };
        let master =
            RedisServer::new(&planted("role:master", "role:slave\r\nredis_mode:cluster\r\naof_enabled:0"));
        assert_eq!((master.not_writable(Durability::Refuse), master.is_no_store()), (None, None));
        assert_eq!((master.setting("appendonly"), master.replicas()), (Some("yes"), 1));
        let replica = RedisServer::new(&planted("role:slave", "# Replication\r\nrole:master"));
        assert!(replica.not_writable(Durability::Warn).is_some(), "a writable replica is no master");
    }

    #[test]
    fn later_answers_replace_earlier_ones_and_a_missing_answer_is_not_the_old_one() {
        let bulk = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let pairs = |words: &[&str]| Value::Array(words.iter().map(|word| bulk(word)).collect());
        let mut server = server_with(&[("min-replicas-to-write", "1")]);
        let aof =
            |on: &str| pairs(&["appendfsync", "always", "appendonly", on, "no-appendfsync-on-rewrite", "no"]);
        let policy = pairs(&["maxmemory-policy", "noeviction"]);
        assert!(server.take_answers(true, &[aof("yes"), policy.clone(), bulk("role:master\r\n")]));
        assert_eq!(server.losses(), Vec::<String>::new());
        assert!(server.take_answers(true, &[aof("no"), policy.clone(), bulk("role:slave\r\n")]));
        assert!(
            matches!(&server.losses()[..], [loss] if loss.contains("appendonly=no")),
            "{:?}",
            server.losses()
        );
        assert!(server.not_writable(Durability::Warn).is_some());
        assert!(!server.take_answers(true, &[Value::Nil, policy, bulk("role:master\r\n")]));
        assert_eq!(server.losses().len(), 2, "{:?}", server.losses());
        assert_eq!(server.not_writable(Durability::Refuse), None);
        assert!(!server.take_answers(false, &[]));
        assert!(server.not_writable(Durability::Refuse).is_some_and(|why| why.contains("`+info`")));
        assert!(server.durability(0).contains(&"min-replicas-to-write=1".to_owned()));
    }

    #[test]
    fn unawaited_replicas_are_reported() {
        let mut server = server_with(&[]);
        server.info.insert("connected_slaves".to_owned(), "1".to_owned());
        assert!(
            matches!(&server.findings(0, false)[..], [Finding::Warning(text)] if text.contains("wait_replicas"))
        );
        assert_eq!(server.findings(1, true), []);
    }

    #[test]
    fn clusters_and_sentinels_keep_no_rows() {
        assert!(
            RedisServer::new("valkey_version:9.1.2\r\nserver_mode:cluster")
                .is_no_store()
                .is_some_and(|why| why.contains("Cluster"))
        );
        assert!(
            RedisServer::new("redis_mode:cluster").is_no_store().is_some_and(|why| why.contains("Cluster"))
        );
        assert!(
            RedisServer::new("redis_mode:sentinel")
                .is_no_store()
                .is_some_and(|why| why.contains("?sentinel="))
        );
        assert_eq!(RedisServer::new(INFO).is_no_store(), None);
    }
}
