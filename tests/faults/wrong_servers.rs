//! A URL with the port of another kind of server, of an unknown protocol, or of a server that accepts connections and stays
//! silent: the error names the likely cause, within the time limit of an answer.
//!
//! The servers are found by `KEYMILL_TEST_MYSQL`, `KEYMILL_TEST_POSTGRES` and `KEYMILL_TEST_REDIS`
//! (`ci/servers/mariadb run ci/servers/postgres run ci/servers/redis run cargo test …`).

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use keymill::Mill;
use keymill_tests::{mariadb, postgres, redis};

/// The URL of each kind for this address.
fn url(kind: &str, place: &str) -> String {
    match kind {
        "redis" => format!("redis://{place}/0?timeout=500ms"),
        _ => format!("{kind}://app:secret@{place}/ids?timeout=500ms"),
    }
}

fn place_of(url: &str) -> String {
    let at = url.rsplit('@').next().unwrap();
    at.split('/').next().unwrap().to_owned()
}

/// A server that accepts connections and answers each with these bytes, whatever it receives.
fn speaker(bytes: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let place = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        let mut kept: Vec<TcpStream> = Vec::new();
        for stream in listener.incoming().flatten() {
            let _ = (&stream).write_all(bytes);
            kept.push(stream);
        }
    });
    place
}

#[test]
fn a_server_of_another_kind_is_called_by_its_likely_name() {
    let mariadb = place_of(&mariadb::url());
    let postgres = place_of(&postgres::url());
    let redis = place_of(&redis::url());
    let silent = speaker(b"");
    let http = speaker(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n<html></html>");
    let ssh = speaker(b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n");
    for (kind, own, says) in [
        ("mysql", &mariadb, "is it a MySQL or MariaDB server"),
        ("postgres", &postgres, "is it a PostgreSQL server"),
        ("redis", &redis, "Redis server"),
    ] {
        for place in [&mariadb, &postgres, &redis, &silent, &http, &ssh] {
            if place == own {
                continue;
            }
            let began = Instant::now();
            let mill = Mill::open(&url(kind, place)).unwrap();
            let error = mill.source("segment:orders").unwrap().standing().unwrap_err();
            // An answer may take half a second, and the machine may be busy.
            assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
            assert!(
                error.message.contains(says) && error.message.contains(place.as_str()),
                "{kind}: {error}"
            );
            assert!(!error.message.contains("certificate"), "{kind}: {error}");
            assert!(error.message.chars().all(|c| !c.is_control() && c != '\u{fffd}'), "{kind}: {error}");
            println!("wrong    {kind}: {}", error.message);
            mill.close();
        }
    }
}

#[test]
fn a_port_without_a_listener_is_reported_with_what_to_check() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    for kind in ["mysql", "postgres", "redis"] {
        let mill = Mill::open(&url(kind, &free)).unwrap();
        let error = mill.source("segment:orders").unwrap().standing().unwrap_err();
        let says = "nothing listens there: is the server started, and are its host and its port right?";
        assert!(error.message.contains(says) && error.message.contains(&free), "{kind}: {error}");
        assert!(!error.message.contains("broke"), "{kind}: none was made: {error}");
        println!("wrong    {kind}: {}", error.message);
        mill.close();
        let mill = Mill::open(&format!("{}&socket=/nowhere/sock", url(kind, &free))).unwrap();
        let error = mill.source("segment:orders").unwrap().standing().unwrap_err();
        let says = "is the server started, and is this its socket file?";
        assert!(error.message.contains(says) && error.message.contains("/nowhere/sock"), "{kind}: {error}");
        mill.close();
    }
}
