//! The servers that `ci/servers/` starts for one test are identified by their process, not by its pid alone: a free pid is
//! soon reused for another process or thread, perhaps for another test's server.

use std::fs;
use std::path::PathBuf;

use keymill_tests::ci::Server;
use keymill_tests::{mariadb, postgres, redis};

/// One of two servers is killed and its pid file names the other's process: the other is left alone, and the first starts
/// again.
fn starts_again(servers: [&Server; 2], number: fn(&Server) -> PathBuf, serves: fn(&str)) {
    let [killed, other] = servers;
    let urls = servers.map(Server::url);
    killed.kill();
    let others = fs::read_to_string(number(other)).expect("a number");
    let process = others.lines().next().expect("a line");
    fs::write(number(killed), format!("{process}\n")).expect("a number");
    killed.kill();
    serves(&urls[1]);
    killed.start_again();
    serves(&urls[0]);
    serves(&urls[1]);
}

#[test]
fn a_mariadb_whose_pid_another_server_has_is_started_again() {
    let servers = [mariadb::Private::start(""), mariadb::Private::start("")];
    let number = |server: &Server| server.folder().join("pid");
    starts_again([&servers[0], &servers[1]], number, |url| drop(mariadb::connection_of(url)));
}

#[test]
fn a_postgresql_whose_pid_another_server_has_is_started_again() {
    let servers = [postgres::Private::start(""), postgres::Private::start("")];
    let number = |server: &Server| {
        let data = fs::read_to_string(server.folder().join("data")).expect("a server's folder");
        PathBuf::from(data.trim()).join("primary/postmaster.pid")
    };
    starts_again([&servers[0], &servers[1]], number, |url| drop(postgres::Sql::root(url)));
}

#[test]
fn a_redis_whose_pid_another_server_has_is_started_again() {
    let servers = [redis::Private::start(""), redis::Private::start("")];
    let number = |server: &Server| server.folder().join("server.pid");
    starts_again([&servers[0], &servers[1]], number, |url| drop(redis::connection_of(url)));
}
