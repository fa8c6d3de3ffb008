//! The mill that `store_of` makes of an application's settings, opened on real servers: it is the database that the application
//! means, and it is encrypted as the application's own connection, or more.

use std::collections::HashSet;

use keymill::store::mysql::ServerOptions;
use keymill::{Change, Code, Error, EventKind, Mill, store_of};
use keymill_tests::authority::Authority;
use keymill_tests::ci::patient;
use keymill_tests::{mariadb, postgres};
use mysql::prelude::Queryable;

/// How an application writes a server: host and port, user, password, database.
struct Written {
    place: String,
    host: String,
    port: String,
    user: String,
    password: String,
    database: String,
}

impl Written {
    fn of(options: &ServerOptions) -> Written {
        let (host, port) = options.hosts.first().expect("a host").clone();
        Written {
            place: format!("{host}:{port}"),
            host,
            port: port.to_string(),
            user: options.user.clone(),
            password: options.password.reveal().to_owned(),
            database: options.database.clone(),
        }
    }

    fn login(&self) -> [(&str, &str); 2] {
        [("user", &self.user), ("password", &self.password)]
    }

    fn django<'w>(&'w self, more: &[(&'w str, &'w str)]) -> Vec<(&'w str, &'w str)> {
        let own = [
            ("NAME", &*self.database),
            ("USER", &self.user),
            ("PASSWORD", &self.password),
            ("HOST", &self.host),
            ("PORT", &self.port),
        ];
        [&own, more].concat()
    }
}

/// Takes ten ids of one source through each of these mills.
fn take_ten_each(mills: &[String]) -> HashSet<u64> {
    let name = format!("segment:application_{}_{}", std::process::id(), fastrand::u32(..));
    let mut ids = HashSet::new();
    for mill in mills {
        let mill = Mill::open(&patient(mill)).expect("a mill");
        mill.init(&[], Change::Apply).expect("tables");
        let source = mill.source(&format!("{name}?deadline=60s")).expect("a source");
        ids.extend(source.take(10).expect("ten ids"));
        mill.close();
    }
    ids
}

#[test]
fn every_way_to_write_a_mariadb_is_the_same_store() {
    let written = Written::of(&mariadb::options());
    let Written { place, user, password, database, .. } = &written;
    let mills = [
        store_of(&format!("jdbc:mysql://{place}/{database}?rewriteBatchedStatements=true"), &written.login()),
        store_of(&format!("jdbc:mariadb://{place}/{database}"), &written.login()),
        store_of(&format!("mysql+pymysql://{user}:{password}@{place}/{database}?charset=utf8mb4"), &[]),
        store_of("django:django.db.backends.mysql", &written.django(&[("OPTIONS.charset", "utf8mb4")])),
    ];
    let mills: Vec<_> = mills.map(|mill| mill.expect("a mill's configuration")).into();
    assert_eq!(take_ten_each(&mills).len(), 40, "{} mills, and no id twice", mills.len());
}

#[test]
fn every_way_to_write_a_postgresql_is_the_same_store() {
    let written = Written::of(&postgres::options());
    let Written { place, user, password, database, .. } = &written;
    let mills = [
        store_of(&format!("jdbc:postgresql://{place}/{database}?currentSchema=public"), &written.login()),
        store_of(&format!("postgresql+psycopg://{user}:{password}@{place}/{database}?sslmode=prefer"), &[]),
        store_of(
            &format!("postgres://{user}:{password}@{place}/{database}?schema=public&connection_limit=5"),
            &[],
        ),
        store_of(
            "django:django.db.backends.postgresql",
            &written.django(&[("OPTIONS.options", "-c search_path=public")]),
        ),
    ];
    let mills: Vec<_> = mills.map(|mill| mill.expect("a mill's configuration")).into();
    assert_eq!(take_ten_each(&mills).len(), 40, "{} mills, and no id twice", mills.len());
}

#[test]
fn the_mill_of_an_application_is_encrypted_as_its_driver_is() {
    let (authority, other) = (Authority::new(), Authority::new());
    let file = |name: &str| authority.file(name).display().to_string();
    let server = mariadb::Private::encrypted(&authority, "");
    let written = Written::of(&mariadb::options_of(&server.url()));
    let (place, database) = (format!("localhost:{}", written.port), &written.database);
    let first_id = |url: String, properties: &[(&str, &str)]| -> Result<u64, Error> {
        let given = [&written.login(), properties].concat();
        let mill = Mill::open(&patient(&store_of(&url, &given)?))?;
        mill.init(&[], Change::Apply)?;
        mill.source("segment:orders?deadline=60s")?.next()
    };
    // The server's report, not our request.
    let mut root = server.root();
    let mut encrypted = || -> u64 {
        let status = "SHOW GLOBAL STATUS LIKE 'Ssl_finished_accepts'";
        root.query_first::<(String, u64), _>(status).expect("a status").expect("a row").1
    };
    for (url, properties) in [
        (format!("jdbc:mysql://{place}/{database}"), vec![]),
        (format!("jdbc:mysql://{place}/{database}?useSSL=true"), vec![]),
        (format!("jdbc:mysql://{place}/{database}?sslMode=REQUIRED"), vec![]),
        (
            format!("jdbc:mariadb://{place}/{database}?sslMode=verify-full"),
            vec![("serverSslCert", file("ca.pem"))],
        ),
        // The certificate names another host.
        (
            format!("jdbc:mariadb://127.0.0.1:{}/{database}?sslMode=verify-ca", written.port),
            vec![("serverSslCert", file("ca.pem"))],
        ),
        (format!("mysql+pymysql://{place}/{database}"), vec![("ssl.ca", file("ca.pem"))]),
    ] {
        let properties: Vec<_> = properties.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let before = encrypted();
        first_id(url.clone(), &properties).unwrap_or_else(|error| panic!("{url}: {error}"));
        assert_eq!(encrypted(), before + 1, "{url}: one mill, one connection, encrypted");
    }
    // Where the driver would not connect, the mill does not.
    let wrong = other.file("ca.pem").display().to_string();
    for (url, properties) in [
        (format!("jdbc:mysql://{place}/{database}?sslMode=VERIFY_CA"), vec![]),
        (format!("jdbc:mariadb://{place}/{database}?sslMode=verify-ca"), vec![("serverSslCert", &*wrong)]),
        (format!("mysql+pymysql://{place}/{database}"), vec![("ssl.ca", &*wrong)]),
    ] {
        let error = first_id(url.clone(), &properties).expect_err(&url);
        assert_eq!(error.code, Code::StoreRefused, "{url}: {error}");
    }
    let off = format!("jdbc:mysql://{place}/{database}?useSSL=false&allowPublicKeyRetrieval=true");
    let before = encrypted();
    first_id(off, &[]).expect("a server that does not insist");
    assert_eq!(encrypted(), before, "what is turned off in so many words is off");
}

/// Opens the mill of each of these strings, whose words providers hand out, and takes an id.
fn opens(strings: &[(String, &str)]) {
    for (url, protection) in strings {
        let config = store_of(url, &[]).unwrap_or_else(|error| panic!("{url}: {error}"));
        // Some of them set a time themselves.
        let config = if config.contains("timeout=") { config } else { patient(&config) };
        let mill = Mill::open(&config).unwrap_or_else(|error| panic!("{url}: {error}"));
        mill.init(&[], Change::Apply).unwrap_or_else(|error| panic!("{url}: {error}"));
        let source = mill.source("segment:orders?deadline=60s").expect("a source");
        source.next().unwrap_or_else(|error| panic!("{url}: {error}"));
        let tls = mill.facts().expect("facts").tls;
        assert_eq!(tls.split(" (").next(), Some(*protection), "{url}");
        let named =
            mill.events().into_iter().filter(|event| event.kind == EventKind::SettingsIgnored).count();
        assert_eq!(named, usize::from(config.contains("ignored=")), "{url}");
        mill.close();
    }
}

const ENCRYPTED: &str = "encrypted, server not authenticated";
const VERIFIED: &str = "verified";

#[test]
fn what_providers_of_postgresql_hand_out_opens_a_mill() {
    let (server, authority) = postgres::Private::encrypted();
    let Written { user, password, database, port, .. } = Written::of(&server.options());
    let ca = authority.file("ca.pem").display().to_string();
    let place = format!("localhost:{port}/{database}");
    let login = format!("{user}:{password}@{place}");
    opens(&[
        // Neon: what the certificate proves there is proved here by an authority of our own.
        (format!("postgresql://{login}?sslmode=require&channel_binding=require&sslrootcert={ca}"), VERIFIED),
        (format!("postgresql://{login}?sslmode=require&options=endpoint%3Dlocalhost"), ENCRYPTED),
        (
            format!(
                "jdbc:postgresql://{place}?user={user}&password={password}&sslmode=require&channelBinding=require&sslrootcert={ca}"
            ),
            VERIFIED,
        ),
        // Supabase and Vercel.
        (format!("postgresql://{login}?pgbouncer=true&connection_limit=1&sslmode=require"), ENCRYPTED),
        (format!("postgres://{login}?sslmode=require&supa=base-pooler.x"), ENCRYPTED),
        (format!("postgres://{login}?pgbouncer=true&connect_timeout=15&sslmode=require"), ENCRYPTED),
        // Heroku, Aiven, Amazon RDS.
        (format!("jdbc:postgresql://{place}?user={user}&password={password}&sslmode=require"), ENCRYPTED),
        (format!("postgres://{login}?sslmode=verify-full&sslrootcert={ca}"), VERIFIED),
    ]);
    // Render, Railway: without a word about encryption it is a proof that is sent, encrypted where the server can.
    opens(&[(format!("postgresql://{login}"), ENCRYPTED)]);
    let stranger = store_of(&format!("postgresql://{login}?sslmode=require&channel_binding=require"), &[]);
    let mill = Mill::open(&patient(&stranger.expect("a mill"))).expect("a mill");
    let error =
        mill.source("segment:orders?deadline=60s").expect("a source").next().expect_err("no authority");
    assert_eq!(error.code, Code::StoreRefused, "what was demanded is not given up: {error}");
}

#[test]
fn what_providers_of_mysql_hand_out_opens_a_mill() {
    let authority = Authority::new();
    let file = |name: &str| authority.file(name).display().to_string();
    let server = mariadb::Private::encrypted(&authority, "");
    let Written { user, password, database, port, .. } = Written::of(&mariadb::options_of(&server.url()));
    let ca = file("ca.pem");
    let place = format!("localhost:{port}/{database}");
    let login = format!("{user}:{password}@{place}");
    opens(&[
        // PlanetScale and TiDB Cloud, with an authority of our own.
        (format!("mysql://{login}?sslaccept=strict&sslca={ca}"), VERIFIED),
        (format!("mysql://{login}?ssl={{\"rejectUnauthorized\":true,\"ca\":\"{ca}\"}}"), VERIFIED),
        (
            format!("mysql://{login}?ssl={{\"minVersion\":\"TLSv1.2\",\"rejectUnauthorized\":false}}"),
            ENCRYPTED,
        ),
        (
            format!("mysql+pymysql://{login}?ssl_ca={ca}&ssl_verify_cert=true&ssl_verify_identity=true"),
            VERIFIED,
        ),
        (
            format!(
                "jdbc:mysql://{place}?user={user}&password={password}&sslMode=REQUIRED&enabledTLSProtocols=TLSv1.2,TLSv1.3&useUnicode=true"
            ),
            ENCRYPTED,
        ),
        // Aiven, Heroku's ClearDB, Railway.
        (format!("mysql://{login}?ssl-mode=REQUIRED"), ENCRYPTED),
        (format!("mysql://{login}?reconnect=true&ssl-mode=REQUIRED"), ENCRYPTED),
        (format!("mysql://{login}"), ENCRYPTED),
    ]);
}

#[test]
fn beside_a_sqlite_file_that_the_application_is_writing_ids_come() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("app.db");
    let application = rusqlite::Connection::open(&file).expect("the application's file");
    application
        .execute_batch("CREATE TABLE orders (id INTEGER PRIMARY KEY); BEGIN IMMEDIATE")
        .expect("a transaction");
    let mill = store_of(&format!("jdbc:sqlite:{}", file.display()), &[]).expect("a mill's configuration");
    let mill = Mill::open(&mill).expect("a mill");
    let id = mill.source("segment:orders").expect("a source").next().expect("an id while the file is locked");
    application
        .execute("INSERT INTO orders VALUES (?1)", [i64::try_from(id).expect("a small id")])
        .expect("a row");
    application.execute_batch("ROLLBACK").expect("the end");
    assert!(folder.path().join("app.db.keymill").is_file());
    assert_ne!(
        mill.source("segment:orders").expect("a source").next().expect("another id"),
        id,
        "a rollback gives nothing back"
    );
}
