//! A URL with the port of another kind of server, of an unknown protocol, or of a server that accepts connections and stays
//! silent: the error names the likely cause, within the time limit of an answer. And servers that answer a byte now and then,
//! or that want what is not theirs.
//!
//! The servers are found by `KEYMILL_TEST_MYSQL`, `KEYMILL_TEST_POSTGRES` and `KEYMILL_TEST_REDIS`
//! (`ci/servers/mariadb run ci/servers/postgres run ci/servers/redis run cargo test …`).

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use keymill::{Code, Mill};
use keymill_tests::authority::Authority;
use keymill_tests::impostor::{Asks, Impostor, Manner, Moment, Protocol};
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
    // What the X protocol of a MySQL 9.7 says first.
    let x = speaker(b"\x05\0\0\0\x0b\x08\x05\x1a\0");
    for (kind, own, says) in [
        ("mysql", &mariadb, "is it a MySQL or MariaDB server"),
        ("postgres", &postgres, "is it a PostgreSQL server"),
        ("redis", &redis, "Redis server"),
    ] {
        for place in [&mariadb, &postgres, &redis, &silent, &http, &ssh, &x] {
            if place == own {
                continue;
            }
            let began = Instant::now();
            let mill = Mill::open(&url(kind, place)).unwrap();
            let error = mill.source("segment:orders").unwrap().status().unwrap_err();
            let says = if kind == "mysql" && *place == x { "the port of MySQL's X protocol" } else { says };
            // An answer may take half a second, and the machine may be busy.
            assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
            assert!(
                error.message.contains(says) && error.message.contains(place.as_str()),
                "{kind}: {error}"
            );
            assert!(!error.message.contains("certificate"), "{kind}: {error}");
            if kind != "redis" {
                is_no_question_of_tls(kind, place);
            }
            assert!(error.message.chars().all(|c| !c.is_control() && c != '\u{fffd}'), "{kind}: {error}");
            println!("wrong    {kind}: {}", error.message);
            mill.close();
        }
    }
}

/// The error about a server of another kind does not send anybody to its TLS. (The `S` of SSH is PostgreSQL's word for an offer of it.)
fn is_no_question_of_tls(kind: &str, place: &str) {
    let mill = Mill::open(&format!("{}&tls=require", url(kind, place))).unwrap();
    let error = mill.source("segment:orders").unwrap().status().unwrap_err();
    assert!(!error.message.contains("offers no TLS"), "{kind}: {error}");
    println!("wrong    {kind}, tls=require: {}", error.message);
    mill.close();
}

#[test]
fn a_port_without_a_listener_is_reported_with_what_to_check() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    for kind in ["mysql", "postgres", "redis"] {
        let mill = Mill::open(&url(kind, &free)).unwrap();
        let error = mill.source("segment:orders").unwrap().status().unwrap_err();
        let says = "nothing listens there: is the server started, and are its host and its port right?";
        assert!(error.message.contains(says) && error.message.contains(&free), "{kind}: {error}");
        assert!(!error.message.contains("broke"), "{kind}: none was made: {error}");
        println!("wrong    {kind}: {}", error.message);
        mill.close();
        let mill = Mill::open(&format!("{}&socket=/nowhere/sock", url(kind, &free))).unwrap();
        let error = mill.source("segment:orders").unwrap().status().unwrap_err();
        let says = "is the server started, and is this its socket file?";
        assert!(error.message.contains(says) && error.message.contains("/nowhere/sock"), "{kind}: {error}");
        mill.close();
    }
}

/// Its callers would wait for their deadline, of a minute here, in case the server comes back.
#[test]
fn callers_of_a_new_source_do_not_wait_for_a_port_without_a_listener() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    for kind in ["mysql", "postgres", "redis"] {
        for spec in ["segment:orders", "snowflake:orders?worker=1", "snowflake:orders?worker=lease"] {
            let mill = Mill::open(&url(kind, &free)).unwrap();
            let began = Instant::now();
            let spec = format!("{spec}{}deadline=60s", if spec.contains('?') { '&' } else { '?' });
            let error = mill.source(&spec).unwrap().next().unwrap_err();
            let took = began.elapsed();
            println!("refused  {kind} {spec}: {took:?}: {error}");
            assert_eq!(error.code, Code::StoreUnavailable, "{error}");
            assert!(error.message.contains("nothing listens there"), "{error}");
            assert!(took < Duration::from_secs(30), "{kind}: {took:?}");
            mill.close();
        }
    }
}

/// A server of MySQL's protocol whose greeting is followed by these packets, whatever it receives.
fn mysql_speaker(packets: &[&[u8]]) -> String {
    let greeting = [
        &b"\x0a8.0.36\0\x01\0\0\0abcdefgh\0\xff\xf7\x2d\x02\0\xff\xc1\x15"[..],
        &[0; 10],
        b"ijklmnopqrst\0mysql_native_password\0",
    ]
    .concat();
    let mut bytes = Vec::new();
    // The client's own packets have the odd numbers.
    for (number, packet) in std::iter::once(&&greeting[..]).chain(packets).enumerate() {
        bytes.extend([packet.len() as u8, 0, 0, 2 * number as u8]);
        bytes.extend_from_slice(packet);
    }
    speaker(bytes.leak())
}

#[test]
fn a_login_that_no_driver_makes_ends_with_its_reason() {
    let parsec = |nonce: &[u8]| [b"\xfeparsec\0", nonce].concat();
    let salt = [&b"\x01P\0"[..], &[b's'; 18]].concat();
    let old = b"\xfemysql_old_password\0abcdefgh\0";
    for (packets, password, code, says) in [
        (vec![&parsec(&[7; 32])[..], &salt], "", Code::StoreRefused, "refuses user `app` without a password"),
        (
            vec![&parsec(&[7; 31])[..], &salt],
            ":secret",
            Code::StoreUnavailable,
            "is not of the MySQL protocol",
        ),
        (vec![&[]], ":secret", Code::StoreUnavailable, "is not of the MySQL protocol"),
        (vec![&[1]], ":secret", Code::StoreUnavailable, "is not of the MySQL protocol"),
        (
            vec![&old[..]],
            ":secret",
            Code::StoreRefused,
            "log in by mysql_old_password, which keymill does not know",
        ),
    ] {
        let place = mysql_speaker(&packets);
        let mill = Mill::open(&format!("mysql://app{password}@{place}/ids?timeout=10s")).unwrap();
        let error = mill.source("segment:orders").unwrap().status().unwrap_err();
        println!("login    {packets:?}: {error}");
        assert_eq!(error.code, code, "{packets:?}: {error}");
        assert!(error.message.contains(says), "{packets:?}: {error}");
        mill.close();
    }
}

/// Whether a greeting came is what tells a server that hangs from another program on the port.
#[test]
fn a_server_that_is_silent_after_its_greeting_is_not_said_to_have_sent_none() {
    let place = mysql_speaker(&[]);
    // The greeting comes within this time on a busy machine too.
    let error = refused(&format!("mysql://app:secret@{place}/ids?timeout=5s&connect_timeout=20s"));
    println!("silent   {error}");
    assert_eq!(error.code, Code::StoreUnavailable, "{error}");
    for says in ["the server did not answer in time", "its greeting came, and nothing after it"] {
        assert!(error.message.contains(says), "{error}");
    }
    assert!(!error.message.contains("no MySQL greeting came"), "{error}");
    let error = refused(&format!("mysql://app:secret@{}/ids?timeout=500ms", speaker(b"")));
    assert!(error.message.contains("no MySQL greeting came"), "{error}");
}

/// A login by SCRAM proves the server too. One that cannot do it may be an attacker's, and the next try would tell him no less.
#[test]
fn a_server_that_cannot_prove_that_it_knows_the_password_is_refused_at_once() {
    let authority = Authority::new();
    let ca = authority.file("ca.pem");
    for (tls, encrypts) in [
        (String::new(), None),
        ("tls=off&".to_owned(), None),
        ("tls=prefer&".to_owned(), Some(&authority)),
        ("tls=require&".to_owned(), Some(&authority)),
        (format!("tls=verify&ca={}&", ca.display()), Some(&authority)),
    ] {
        let impostor = Impostor::with(Manner::ProvesFalsely, Protocol::Postgres, Asks::Proof, encrypts);
        let mill = Mill::open(&impostor_url(
            Protocol::Postgres,
            &impostor,
            &format!("{tls}timeout=20s&connect_timeout=20s"),
        ));
        let mill = mill.expect("a mill opens lazily");
        let source = mill.source("segment:orders?deadline=60s").expect("a source");
        let error = source.next().expect_err("it is no server");
        println!("proof    {tls}: {error}");
        assert_eq!(error.code, Code::StoreRefused, "{tls}: {error}");
        assert!(error.message.contains("did not prove that it knows the password"), "{tls}: {error}");
        mill.close();
        let deadline = Instant::now() + Duration::from_secs(60);
        while impostor.sent().is_empty() {
            assert!(Instant::now() < deadline, "{tls}: its connection ends");
            std::thread::sleep(Duration::from_millis(1));
        }
        let sent = impostor.sent();
        assert!(sent.iter().all(|sent| sent.encrypted == encrypts.is_some()), "{tls}: less protection");
        assert!(sent.iter().all(|sent| !sent.discloses("T0pSecretPw")), "{tls}: {error}");
    }
}

/// `tls=off` would take away what the program's own setting asks for.
#[test]
fn a_program_that_demands_tls_is_never_advised_to_leave_it_out() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let ca = authority.file("ca.pem");
    for protocol in PROTOCOLS {
        for tls in [
            "require".to_owned(),
            format!("verify-ca&ca={}", ca.display()),
            format!("verify&ca={}", ca.display()),
        ] {
            for offers in [None, Some(&stranger), Some(&authority)] {
                for asks in [Asks::Proof, Asks::Password] {
                    let impostor = Impostor::start(protocol, asks, offers);
                    let error = refused(&impostor_url(
                        protocol,
                        &impostor,
                        &format!("tls={tls}&timeout=20s&connect_timeout=20s"),
                    ));
                    println!("demands  {protocol:?} {tls}: {error}");
                    assert!(!error.message.contains("tls=off"), "{protocol:?} {tls}: {error}");
                    if offers.is_none() && protocol != Protocol::Redis {
                        assert_eq!(error.code, Code::StoreRefused, "{error}");
                        assert!(error.message.contains("the server offers no TLS"), "{error}");
                    }
                }
            }
        }
    }
}

const PROTOCOLS: [Protocol; 3] = [Protocol::Mysql, Protocol::Postgres, Protocol::Redis];

/// The URL of an impostor, with a login.
fn impostor_url(protocol: Protocol, impostor: &Impostor, options: &str) -> String {
    let (scheme, database) = match protocol {
        Protocol::Mysql => ("mysql", "/ids"),
        Protocol::Postgres => ("postgres", "/ids"),
        Protocol::Redis => ("redis", ""),
    };
    format!("{scheme}://app:T0pSecretPw@localhost:{}{database}?{options}", impostor.port())
}

/// The error of a question to the server.
fn refused(url: &str) -> keymill::Error {
    let mill = Mill::open(url).expect("a mill opens lazily");
    let error = mill.facts().expect_err("an impostor answers no question");
    mill.close();
    assert!(!error.message.contains("T0pSecretPw"), "{error}");
    error
}

/// Each byte arrives in time, and the message would take hours.
#[test]
fn a_server_that_answers_a_byte_now_and_then_holds_the_keeper_for_no_longer_than_the_timeout() {
    let authority = &Authority::new();
    let promise = |protocol, moment, encrypted: bool, options: &str| {
        let impostor =
            Impostor::with(Manner::Drips(moment), protocol, Asks::Proof, encrypted.then_some(authority));
        let tls = if encrypted { "tls=require" } else { "tls=off" };
        let tls = match protocol {
            // Redis' login is the password.
            Protocol::Redis if encrypted => format!("tls=verify&ca={}", authority.file("ca.pem").display()),
            _ => tls.to_owned(),
        };
        let url = impostor_url(protocol, &impostor, &format!("{tls}&timeout=500ms{options}"));
        let began = Instant::now();
        let error = refused(&url);
        let took = began.elapsed();
        println!("drips    {protocol:?} {moment:?} {tls}{options}: {took:?}: {}", error.message);
        // Half a second twice or thrice, and the machine may be busy.
        assert!(took < Duration::from_secs(20), "{url} {moment:?}: {took:?}: {error}");
        assert_eq!(error.code, Code::StoreUnavailable, "{url} {moment:?}: {error}");
        assert!(error.message.contains("did not answer in time"), "{url} {moment:?}: {error}");
    };
    let promise = &promise;
    std::thread::scope(|scope| {
        for protocol in PROTOCOLS {
            for moment in [Moment::Greeting, Moment::Login, Moment::Answer] {
                scope.spawn(move || promise(protocol, moment, false, ""));
            }
            for moment in [Moment::Handshake, Moment::Login, Moment::Answer] {
                scope.spawn(move || promise(protocol, moment, true, ""));
            }
        }
        scope.spawn(|| promise(Protocol::Redis, Moment::Answer, false, "&sentinel=mymaster"));
        scope.spawn(|| promise(Protocol::Redis, Moment::Login, true, "&sentinel=mymaster"));
    });
}

/// The class of CVE-2021-23222: an attacker between a program and its server cannot decrypt, but speaks first.
#[test]
fn nothing_that_came_before_a_tls_handshake_counts_after_it() {
    // The driver and the server number their packets differently: after `SSLRequest` these are the driver's number 2.
    const OK: &[u8] = &[7, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0];
    const ERR: &[u8] = b"\x11\0\0\x03\xff\x15\x04#28000injected";
    const SWITCH: &[u8] = b"\x2c\0\0\x03\xfemysql_native_password\0injectedinjectedinje\0";
    const LOGGED_IN: &[u8] = b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I";
    const FATAL: &[u8] = b"E\0\0\0\x24SFATAL\0VFATAL\0C28P01\0Minjected\0\0";
    let authority = Authority::new();
    for (protocol, injected) in [
        (Protocol::Mysql, OK),
        (Protocol::Mysql, ERR),
        (Protocol::Mysql, SWITCH),
        (Protocol::Postgres, LOGGED_IN),
        (Protocol::Postgres, FATAL),
        (Protocol::Redis, b"+OK\r\n"),
        (Protocol::Redis, b"-ERR injected\r\n"),
    ] {
        let ca = authority.file("ca.pem");
        for tls in [
            "require".to_owned(),
            format!("verify-ca&ca={}", ca.display()),
            format!("verify&ca={}", ca.display()),
        ] {
            let manner = Manner::Injects(injected);
            let impostor = Impostor::with(manner, protocol, Asks::Proof, Some(&authority));
            let error = refused(&impostor_url(
                protocol,
                &impostor,
                &format!("tls={tls}&timeout=20s&connect_timeout=20s"),
            ));
            println!("injected {protocol:?} {:?}: {}", String::from_utf8_lossy(injected), error.message);
            assert_eq!(error.code, Code::StoreRefused, "{protocol:?} {injected:?}: {error}");
            assert!(!error.message.contains("injected"), "{protocol:?}: {error}");
            let sent = impostor.sent();
            assert!(sent.iter().all(|sent| !sent.logged_in), "{protocol:?} {injected:?}: it logged in");
            if protocol == Protocol::Mysql {
                assert!(error.message.contains("more than a greeting came before the login"), "{error}");
            }
        }
    }
}

#[test]
fn another_login_of_this_machine_that_listens_on_a_free_port_gets_no_password_of_a_database() {
    let authority = Authority::new();
    for protocol in [Protocol::Mysql, Protocol::Postgres] {
        let impostor = Impostor::start(protocol, Asks::Password, None);
        let error = refused(&impostor_url(protocol, &impostor, "timeout=20s&connect_timeout=20s"));
        assert_eq!(error.code, Code::StoreRefused, "{error}");
        for says in
            ["it was not sent", "any login of this machine", "`socket=FILE`", "turn TLS on", "`tls=off`"]
        {
            assert!(error.message.contains(says), "{protocol:?}: {error}");
        }
        println!("loopback {protocol:?}: {}", error.message);
        // It offers TLS until it has asked for the password.
        let manner = Manner::DeniesTlsNext;
        let impostor = Impostor::with(manner, protocol, Asks::Password, Some(&authority));
        let error = refused(&impostor_url(protocol, &impostor, "timeout=20s&connect_timeout=20s"));
        assert_eq!(error.code, Code::StoreRefused, "{error}");
        assert!(error.message.contains("the server offers no TLS"), "{protocol:?}: {error}");
        let deadline = Instant::now() + Duration::from_secs(60);
        while impostor.sent().len() < 2 {
            assert!(Instant::now() < deadline, "{protocol:?}: the second try never came: {error}");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(impostor.sent().iter().all(|sent| !sent.discloses("T0pSecretPw")), "{protocol:?}: {error}");
        // Proofs are sent as before.
        for asks in [Asks::Proof, Asks::WeakProof] {
            let impostor = Impostor::start(protocol, asks, None);
            let error = refused(&impostor_url(protocol, &impostor, "timeout=20s&connect_timeout=20s"));
            assert!(!error.message.contains("it was not sent"), "{protocol:?} {asks:?}: {error}");
        }
    }
}

/// The driver takes its end of the connection for a socket file; keymill asks for the server's key in its place.
#[test]
fn a_password_goes_under_the_servers_key_where_tls_off_is_written() {
    let impostor = Impostor::with(Manner::Decrypts, Protocol::Mysql, Asks::Password, None);
    let error = refused(&impostor_url(Protocol::Mysql, &impostor, "tls=off&timeout=20s&connect_timeout=20s"));
    let deadline = Instant::now() + Duration::from_secs(60);
    let sent = loop {
        match impostor.sent().first() {
            Some(sent) => break sent.clone(),
            None => assert!(Instant::now() < deadline, "the client never came: {error}"),
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    // Its first statement shows that it took the login for a success.
    assert!(sent.logged_in && sent.asked_for_a_key, "{error}");
    assert!(sent.says("T0pSecretPw\0"), "the password arrived: {error}");
}

/// A socket file is the server's only where its folder is: `/tmp`, which PostgreSQL and MySQL take when they are built from
/// source, is open to all, and while the server is down any login listens there.
#[test]
fn a_socket_file_in_a_folder_of_all_users_gets_no_password() {
    use std::io::Read;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixListener;
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o1777)).unwrap();
    let listener = UnixListener::bind(folder.path().join(".s.PGSQL.5432")).unwrap();
    let server = std::thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        let mut bytes = [0; 4096];
        assert_ne!(client.read(&mut bytes).unwrap(), 0);
        // AuthenticationCleartextPassword.
        client.write_all(b"R\0\0\0\x08\0\0\0\x03").unwrap();
        let read = client.read(&mut bytes).unwrap_or(0);
        String::from_utf8_lossy(&bytes[..read]).into_owned()
    });
    let url =
        format!("postgres://app:T0pSecretPw@localhost/ids?timeout=500ms&socket={}", folder.path().display());
    let mill = Mill::open(&url).unwrap();
    let answer = mill.facts();
    mill.close();
    let sent = server.join().unwrap();
    assert!(!sent.contains("T0pSecretPw"), "{sent:?}: {answer:?}");
}
