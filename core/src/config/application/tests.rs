//! What the table of `tests/vectors/application.json` cannot hold: what is true of every input.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::client_library::{ClientLibrary, Role, TlsLevel};
use super::known_names::{
    CONNECTOR_J, MARIADB_JAVA, MYSQL_CLIENTS, PGJDBC, POSTGRES_CLIENTS, SQLITE_CLIENTS, SQLITE_JDBC,
};
use super::words;
use crate::config::{MillConfig, StoreConfig, store_of};
use crate::store::server::{ServerOptions, TlsMode};

/// A word that stands nowhere in a message by itself.
const CANARY: &str = "Kanarienvogel";

/// Each library, and a URL that it reads.
const LIBRARIES: [(&ClientLibrary, &str); 7] = [
    (&CONNECTOR_J, "jdbc:mysql://db/shop"),
    (&MARIADB_JAVA, "jdbc:mariadb://db/shop"),
    (&PGJDBC, "jdbc:postgresql://db/shop"),
    (&SQLITE_JDBC, "jdbc:sqlite:/app.db"),
    (&MYSQL_CLIENTS, "mysql+pymysql://app@db/shop"),
    (&POSTGRES_CLIENTS, "postgresql://app@db/shop"),
    (&SQLITE_CLIENTS, "sqlite:////app.db"),
];

fn server(mill: &str) -> Option<ServerOptions> {
    match MillConfig::read(mill).expect("a mill's configuration").store {
        StoreConfig::Mysql(server) | StoreConfig::Postgres(server) => Some(server),
        _ => None,
    }
}

/// Every row of a library, the first of a name alone.
fn rows(library: &'static ClientLibrary) -> Vec<(&'static str, Role)> {
    let all = library.tables.iter().flat_map(|table| table.iter()).flat_map(|(names, _)| names.iter());
    all.map(|name| (*name, library.role(name).expect("a known name").1)).collect()
}

#[test]
fn no_table_has_a_name_twice() {
    for (library, _) in LIBRARIES {
        for table in library.tables {
            let mut seen = BTreeSet::new();
            for name in table.iter().flat_map(|(names, _)| names.iter()) {
                let name = if library.has_case { (*name).to_owned() } else { name.to_ascii_lowercase() };
                assert!(seen.insert(name.clone()), "{}: {name}", library.name);
            }
        }
    }
}

#[test]
fn no_refusal_of_a_parameter_repeats_its_value() {
    for (library, url) in LIBRARIES {
        for (name, role) in rows(library) {
            for value in [
                CANARY,
                "Kanarienvogel.p12",
                "pg_Kanarienvogel",
                "\"$Kanarienvogel",
                "-c Kanarienvogel=1",
                "Kanarienvogel:x",
                "/Kanarienvogel,b",
            ] {
                let answer = store_of(url, &[("user", "app"), (name, value)]);
                let Err(error) = answer else { continue };
                assert!(!error.message.contains(CANARY), "{name}={value}: {}", error.message);
                let says_which = !matches!(role, Role::Refused(_) | Role::Only(..))
                    || error.message.contains(&format!("`{name}`"));
                assert!(says_which, "{name}={value}: {}", error.message);
            }
        }
    }
}

#[test]
fn whatever_has_no_counterpart_is_refused_by_its_name() {
    for (library, url) in LIBRARIES {
        let refused = rows(library).into_iter().filter(|(_, role)| matches!(role, Role::Refused(_)));
        for (name, _) in refused.chain([("someNewSslThing", Role::User), ("some_new_host", Role::User)]) {
            let error = store_of(url, &[("user", "app"), (name, "1")]).expect_err(name);
            assert_eq!(error.code, crate::Code::InvalidConfig);
            assert!(error.message.contains(&format!("`{name}`")), "{}", error.message);
        }
    }
}

#[test]
fn whatever_speaks_of_nothing_that_a_store_needs_is_ignored_and_named_once() {
    for (library, url) in LIBRARIES {
        let given =
            [("user", "app"), ("somethingNew", "1"), ("another.new-thing", "x"), ("somethingNew", "2")];
        let mill = store_of(url, &given).expect("a mill");
        assert!(mill.ends_with("ignored=somethingNew,another.new-thing"), "{}: {mill}", library.name);
        let ignored = MillConfig::read(&mill).expect("a configuration").ignored;
        assert_eq!(ignored, ["somethingNew", "another.new-thing"]);
    }
}

#[test]
fn a_harmless_name_stands_in_a_table_only_where_its_words_would_refuse_it() {
    for (library, _) in LIBRARIES {
        for (name, _) in rows(library).into_iter().filter(|(_, role)| matches!(role, Role::Ignored)) {
            assert!(words::speaks(name).is_some() || name == "permitMysqlScheme", "{}: {name}", library.name);
        }
    }
}

#[test]
fn of_many_ignored_names_the_last_are_counted_and_none_is_cut() {
    let names: Vec<_> = (0..500).map(|at| format!("parameter_{at}")).collect();
    let given: Vec<_> = names.iter().map(|name| (name.as_str(), "1")).chain([("a b", "1")]).collect();
    let mill = store_of("postgres://app@db/shop", &given).expect("a mill");
    let ignored = MillConfig::read(&mill).expect("a configuration").ignored;
    let (more, named) = ignored.split_last().expect("names");
    assert_eq!(named, &names[..named.len()]);
    assert_eq!(*more, format!("+{}", 501 - named.len()));
}

#[test]
fn an_object_in_place_of_a_text_is_refused_where_it_matters_and_never_read() {
    for name in ["password", "ssl", "sslContext"] {
        let error = store_of("postgres://app@db/shop", &[(name, "\u{fdd0}Function")]).expect_err(name);
        assert!(error.message.contains(&format!("`{name}`")), "{}", error.message);
    }
    let mill = store_of("postgres://app@db/shop", &[("rowFactory", "\u{fdd0}Function")]).expect("a mill");
    assert_eq!(mill, "postgres://app@db:5432/shop?tls=prefer&ignored=rowFactory");
}

/// What the mill demands.
fn demanded(server: &ServerOptions) -> TlsLevel {
    match server.tls.mode {
        // By default nothing is encrypted to this machine; but there no password is sent in clear.
        TlsMode::Off | TlsMode::Default => TlsLevel::Off,
        TlsMode::Prefer => TlsLevel::Prefer,
        TlsMode::Require => TlsLevel::Require,
        TlsMode::VerifyCa => TlsLevel::VerifyCa,
        TlsMode::Verify => TlsLevel::Verify,
    }
}

/// Parameters of encryption with a value, and what each of them demands by itself.
fn tls_parameters(library: &'static ClientLibrary) -> Vec<(&'static str, &'static str, TlsLevel)> {
    let mut found = Vec::new();
    for (name, role) in rows(library) {
        match role {
            Role::TlsMode(words) => {
                found.extend(words.iter().copied().flatten().map(|(word, level)| (name, *word, *level)));
            }
            Role::TlsSwitch { on, off } => {
                found.extend(on.map(|level| (name, "true", level)));
                found.extend(off.map(|level| (name, "false", level)));
            }
            Role::VerifySwitch | Role::RejectUnauthorized => found.push((name, "true", TlsLevel::Verify)),
            // Beside a word that asks for the chain alone; every other one with a file is `verify`, see below.
            Role::Ca | Role::RootCert => found.push((name, "/ca.pem", TlsLevel::VerifyCa)),
            Role::ChannelBinding => found.push((name, "require", TlsLevel::Verify)),
            _ => {}
        }
    }
    found
}

#[test]
fn any_two_parameters_of_encryption_give_no_less_than_the_stronger_one() {
    for (library, url) in LIBRARIES {
        let all = tls_parameters(library);
        for (first, second) in all.iter().flat_map(|first| all.iter().map(move |second| (first, second))) {
            let given = [("user", "app"), (first.0, first.1), (second.0, second.1)];
            // A certificate with encryption off, or two files.
            let Ok(mill) = store_of(url, &given) else { continue };
            let server = server(&mill).expect("a server");
            assert!(demanded(&server) >= first.2.max(second.2), "{given:?}: {mill}");
        }
    }
}

#[test]
fn the_host_is_left_out_only_where_a_word_asks_for_the_chain_alone_and_names_its_authorities() {
    for (url, given, tls) in [
        ("jdbc:mysql://db/shop", &[("sslMode", "VERIFY_CA")][..], "verify"),
        (
            "jdbc:mariadb://db/shop",
            &[("sslMode", "verify-ca"), ("serverSslCert", "/ca.pem")],
            "verify-ca&ca=/ca.pem",
        ),
        ("jdbc:mariadb://db/shop", &[("serverSslCert", "/ca.pem")], "verify&ca=/ca.pem"),
        (
            "jdbc:mariadb://db/shop",
            &[("sslMode", "trust"), ("serverSslCert", "/ca.pem")],
            "verify&ca=/ca.pem",
        ),
        (
            "jdbc:postgresql://db/shop",
            &[("sslmode", "verify-ca"), ("sslrootcert", "/ca.pem")],
            "verify-ca&ca=/ca.pem",
        ),
        (
            "jdbc:postgresql://db/shop",
            &[("sslmode", "verify-full"), ("sslrootcert", "/ca.pem")],
            "verify&ca=/ca.pem",
        ),
        (
            "jdbc:postgresql://db/shop",
            &[("sslmode", "require"), ("sslrootcert", "/ca.pem")],
            "verify&ca=/ca.pem",
        ),
        ("postgresql+psycopg://db/shop?sslmode=verify-ca&sslrootcert=system", &[], "verify"),
        (
            "jdbc:postgresql://db/shop",
            &[("sslmode", "verify-ca"), ("channelBinding", "require"), ("sslrootcert", "/ca.pem")],
            "verify&ca=/ca.pem",
        ),
        ("postgresql+psycopg://db/shop?sslmode=verify-ca&sslrootcert=/ca.pem", &[], "verify-ca&ca=/ca.pem"),
        ("postgresql+asyncpg://db/shop?ssl=verify-ca", &[], "verify"),
        ("mysql+pymysql://db/shop", &[("ssl_ca", "/ca.pem")], "verify&ca=/ca.pem"),
        ("mysql://db/shop", &[("ssl_mode", "VERIFY_CA"), ("ssl_ca", "/ca.pem")], "verify-ca&ca=/ca.pem"),
        (
            "mysql://db/shop",
            &[("ssl_mode", "VERIFY_CA"), ("ssl_ca", "/ca.pem"), ("ssl_verify_identity", "true")],
            "verify&ca=/ca.pem",
        ),
        ("mysql2://db/shop?ssl-mode=VERIFY_CA&sslca=/ca.pem", &[], "verify-ca&ca=/ca.pem"),
        ("postgres://db/shop?sslmode=verify-ca&sslrootcert=/ca.pem", &[], "verify-ca&ca=/ca.pem"),
    ] {
        let given: Vec<_> = [("user", "app")].iter().chain(given).copied().collect();
        let mill = store_of(url, &given).expect(url);
        assert_eq!(mill.split_once("?tls=").expect("a word").1, tls, "{url} {given:?}");
        assert!(server(&mill).is_some(), "{mill}");
    }
}

#[test]
fn no_name_without_a_value_weakens_a_connection() {
    for (library, url) in LIBRARIES {
        let off = [("useSSL", "false"), ("ssl_disabled", "true")];
        let bases = std::iter::once(None).chain(off.into_iter().map(Some));
        for base in bases.filter(|base| base.is_none_or(|(name, _)| library.role(name).is_some())) {
            let given: Vec<_> = std::iter::once(("user", "app")).chain(base).collect();
            let Some(before) = server(&store_of(url, &given).expect("a mill")) else { continue };
            for (name, _) in rows(library) {
                let given: Vec<_> = given.iter().copied().chain([(name, "")]).collect();
                let Ok(mill) = store_of(url, &given) else { continue };
                let after = server(&mill).expect("a server");
                let is_kept = after.tls.mode == before.tls.mode || demanded(&after) > demanded(&before);
                assert!(is_kept, "{given:?}: {mill}");
            }
        }
    }
}

#[test]
fn without_a_word_about_encryption_a_mill_is_encrypted_where_the_server_can() {
    for (_, url) in LIBRARIES {
        let mill = store_of(url, &[("user", "app")]).expect("a mill");
        if let Some(server) = server(&mill) {
            assert_eq!(server.tls.mode, TlsMode::Prefer, "{mill}");
        }
    }
}

fn a_form() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "jdbc:mysql://",
        "jdbc:mariadb:sequential://",
        "jdbc:postgresql://",
        "jdbc:sqlite:",
        "jdbc:",
        "mysql+pymysql://",
        "postgresql+asyncpg://",
        "postgres://",
        "sqlite:///",
        "file:",
        "r2dbc:mysql://",
        "django:django.db.backends.mysql",
        "",
    ])
}

proptest! {
    #[test]
    fn any_text_is_a_mill_or_refused_in_one_line(
        form in a_form(),
        rest in "\\PC{0,60}",
        properties in prop::collection::vec(("[a-zA-Z_.]{0,16}", "\\PC{0,20}"), 0..4),
    ) {
        let properties: Vec<_> = properties.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        match store_of(&format!("{form}{rest}"), &properties) {
            Ok(mill) => prop_assert!(MillConfig::read(&mill).is_ok()),
            Err(error) => prop_assert!(!error.message.contains('\n')),
        }
    }

    /// Also where it was not encoded, and what it holds is read as something else.
    #[test]
    fn no_message_repeats_a_password_of_a_login(
        form in a_form(),
        before in "[!-~]{0,8}",
        after in "[!-~]{0,8}",
        rest in "[!-~]{0,20}",
    ) {
        let password = format!("{before}{CANARY}{after}");
        let urls = [
            format!("{form}app:{password}@db:3306/shop?{rest}"),
            format!("{form}db/shop?user=app&password={password}&{rest}"),
            format!("{form}db/shop?password={password}"),
            // A host and a port, and a parameter whose name is a piece of the password.
            format!("{form}app:12?{CANARY}={rest}@db:3306/shop"),
            format!("{form}db/shop?user=app&password={before}&{CANARY}=1"),
        ];
        for url in urls {
            match store_of(&url, &[]) {
                Err(error) => prop_assert!(!error.message.contains(CANARY), "{}: {}", url, error.message),
                // An event and `status` show it.
                Ok(mill) => {
                    let ignored = MillConfig::read(&mill).expect("a configuration").ignored.join(",");
                    prop_assert!(!ignored.contains(CANARY), "{}: {}", url, ignored);
                }
            }
        }
    }

    /// A password beside the URL arrives as it is, and encoded in the URL as it was.
    #[test]
    fn every_password_arrives_as_it_is(password in prop_oneof!["\\PC{1,24}", "[%&?@+#/:=;, a-f0-9]{1,16}"]) {
        let encoded = percent_encoding::utf8_percent_encode(&password, percent_encoding::NON_ALPHANUMERIC);
        let beside = |url: &str| store_of(url, &[("user", "app"), ("password", &password)]);
        let mills = [
            beside("jdbc:mysql://db/shop"),
            beside("jdbc:mariadb://db/shop"),
            beside("jdbc:postgresql://db/shop"),
            store_of("django:django.db.backends.mysql", &[("USER", "app"), ("PASSWORD", &password), ("NAME", "shop")]),
            store_of(&format!("jdbc:mysql://db/shop?user=app&password={encoded}"), &[]),
            store_of(&format!("jdbc:postgresql://db/shop?user=app&password={encoded}"), &[]),
            store_of(&format!("mysql://app:{encoded}@db/shop"), &[]),
            store_of(&format!("postgresql+psycopg://app:{encoded}@db/shop"), &[]),
        ];
        for mill in mills {
            let server = server(&mill.map_err(|error| TestCaseError::fail(error.message))?).expect("a server");
            prop_assert_eq!(server.password.reveal(), password.as_str());
            prop_assert_eq!(server.user.as_str(), "app");
        }
    }
}
