//! The few names of each library that matter to a store: where, as whom, how encrypted, which certificates, how long; and
//! harmless ones that hold a word of `words`. Every other name is ignored, or refused by its words.

use super::client_library::{ClientLibrary, DatabaseKind, Role, RoleRows, TlsLevel};

use Role::{Ignored, Only, Refused};
use TlsLevel::{Off, Prefer, Require, Verify, VerifyCa};

/// Most libraries tell letters apart, and decode what stands in a URL.
const PLAIN: ClientLibrary = ClientLibrary {
    name: "",
    kind: DatabaseKind::Sqlite,
    has_case: true,
    is_encoded: true,
    has_plus: false,
    guards_password: false,
    tables: &[],
};

pub(super) static CONNECTOR_J: ClientLibrary = ClientLibrary {
    name: "MySQL Connector/J",
    kind: DatabaseKind::Mysql,
    has_case: false,
    has_plus: true,
    guards_password: true,
    tables: &[CONNECTOR_J_ROWS, MYSQL_JDBC_ROWS, SHARED_ROWS],
    ..PLAIN
};

pub(super) static MARIADB_JAVA: ClientLibrary = ClientLibrary {
    name: "MariaDB Connector/J",
    kind: DatabaseKind::Mysql,
    has_case: false,
    is_encoded: false,
    guards_password: true,
    tables: &[MARIADB_ROWS, MYSQL_JDBC_ROWS, SHARED_ROWS],
    ..PLAIN
};

pub(super) static PGJDBC: ClientLibrary = ClientLibrary {
    name: "pgjdbc",
    kind: DatabaseKind::Postgres,
    has_plus: true,
    tables: &[PGJDBC_ROWS, SHARED_ROWS],
    ..PLAIN
};

pub(super) static SQLITE_JDBC: ClientLibrary =
    ClientLibrary { name: "sqlite-jdbc", has_case: false, tables: &[SQLITE_ROWS, SHARED_ROWS], ..PLAIN };

/// `PyMySQL`, mysqlclient, mysql-connector-python, mysql2, Prisma.
pub(super) static MYSQL_CLIENTS: ClientLibrary = ClientLibrary {
    name: "a MySQL client library",
    kind: DatabaseKind::Mysql,
    tables: &[MYSQL_ROWS, SHARED_ROWS],
    ..PLAIN
};

/// Names of libpq (psycopg, Ruby, PHP), asyncpg, pg8000, node-postgres, Prisma.
pub(super) static POSTGRES_CLIENTS: ClientLibrary = ClientLibrary {
    name: "a PostgreSQL client library",
    kind: DatabaseKind::Postgres,
    tables: &[POSTGRES_ROWS, SHARED_ROWS],
    ..PLAIN
};

/// Python's and Prisma's.
pub(super) static SQLITE_CLIENTS: ClientLibrary = ClientLibrary {
    name: "a SQLite client library",
    tables: &[SQLITE_CLIENT_ROWS, SQLITE_ROWS, SHARED_ROWS],
    ..PLAIN
};

/// Every table, for the documentation.
#[cfg(feature = "internals")]
pub(super) const TABLES: [(&str, RoleRows); 9] = [
    ("Every library, and the pools in front of them", SHARED_ROWS),
    ("The JDBC drivers of MySQL and MariaDB", MYSQL_JDBC_ROWS),
    ("MySQL Connector/J", CONNECTOR_J_ROWS),
    ("MariaDB Connector/J", MARIADB_ROWS),
    ("pgjdbc", PGJDBC_ROWS),
    ("MySQL client libraries", MYSQL_ROWS),
    ("PostgreSQL client libraries", POSTGRES_ROWS),
    ("SQLite libraries", SQLITE_ROWS),
    ("SQLite client libraries", SQLITE_CLIENT_ROWS),
];

const TRUST_STORE: &str = "keymill reads no Java key stores; export the certificates and write ca=FILE.pem (and cert= and key=) into the store's own URL";
const OWN_SOCKETS: &str = "keymill connects by itself, over TCP or by a socket file; to Cloud SQL through its Auth Proxy: write the proxy's host and port, or `socket=/cloudsql/PROJECT:REGION:INSTANCE`";
const LOGIN_WAYS: &str = "keymill logs in with a user and a password, or with a certificate";
const OPTION_FILE: &str = "keymill reads no option files of other clients; write what stands in it";
const PRIMARY: &str = "keymill writes, so it needs the primary";
const REPLICATION: &str = "it is a connection for replication";
const ENCRYPTED_FILE: &str = "keymill's file would not be encrypted";
const TLS_VERSIONS: &str = "keymill speaks TLS 1.2 and 1.3";
const ASKS_FIRST: &str = "keymill asks the server before it encrypts, which every PostgreSQL takes; leave it out, and write sslmode=require or more";
const BY_TLS: &str = "keymill encrypts by TLS";

/// Versions of TLS that do not demand more than keymill does.
const OLD_VERSIONS: &[&str] = &[
    "",
    "TLSv1.2",
    "TLSv1.2,TLSv1.3",
    "TLSv1.3,TLSv1.2",
    "TLSv1,TLSv1.1,TLSv1.2",
    "TLSv1,TLSv1.1,TLSv1.2,TLSv1.3",
];
const UTF_8: &[&str] = &["", "UTF-8", "UTF8", "utf8mb4", "US-ASCII"];
const LOWEST_VERSIONS: &[&str] = &["", "TLSv1", "TLSv1.1", "TLSv1.2"];

/// The words for what a connection demands: MySQL's, libpq's, node-postgres', MariaDB's and Prisma's.
const MODES: &[(&str, TlsLevel)] = &[
    ("DISABLED", Off),
    ("PREFERRED", Prefer),
    ("REQUIRED", Require),
    ("VERIFY_CA", VerifyCa),
    ("VERIFY_IDENTITY", Verify),
    ("disable", Off),
    ("allow", Prefer),
    ("prefer", Prefer),
    ("require", Require),
    ("verify-ca", VerifyCa),
    ("verify-full", Verify),
    ("no-verify", Require),
    ("trust", Require),
    ("strict", Verify),
    ("accept_invalid_certs", Prefer),
];
/// A switch in the place of such a word, which verifies.
const SWITCH: &[(&str, TlsLevel)] = &[("true", Verify), ("1", Verify), ("false", Off), ("0", Off)];
/// Python's `verify_mode` inside a dictionary, which asks for encryption by being there.
const VERIFY_MODES: &[(&str, TlsLevel)] = &[
    ("none", Require),
    ("false", Require),
    ("0", Require),
    ("optional", Verify),
    ("required", Verify),
    ("true", Verify),
    ("1", Verify),
];
/// Of every library, and of the pools in front of them.
const SHARED_ROWS: RoleRows = &[
    (&["readOnly", "defaultReadOnly", "read_only"], Only(&["", "false"], "keymill writes")),
    (&["connectionInitSql", "connectionInitSqls", "initSQL", "init_command"], Role::SessionSql),
    // How the application checks its rows, and from which address of this machine it connects.
    (&["foreign_key_checks", "localAddress", "localSocketAddress"], Ignored),
];

/// Of the JDBC drivers of MySQL and MariaDB: applications give each driver the other's names too.
const MYSQL_JDBC_ROWS: RoleRows = &[
    (&["user", "username"], Role::User),
    (&["password"], Role::Password),
    (&["connectTimeout"], Role::ConnectMillis),
    (&["socketTimeout"], Role::AnswerMillis),
    (&["requireSSL"], Role::TlsSwitch { on: Some(Require), off: None }),
    (&["verifyServerCertificate"], Role::VerifySwitch),
    (&["allowPublicKeyRetrieval"], Role::KeyFromServer),
    (&["passwordCharacterEncoding"], Only(UTF_8, "keymill writes a password as UTF-8")),
    (&["dnsSrv"], Only(&["", "false"], "keymill asks for no SRV records; write each host")),
    (
        &[
            "trustCertificateKeyStoreUrl",
            "trustCertificateKeyStorePassword",
            "trustCertificateKeyStoreType",
            "clientCertificateKeyStoreUrl",
            "clientCertificateKeyStorePassword",
            "clientCertificateKeyStoreType",
            "keyStore",
            "keyStorePassword",
            "trustStore",
            "trustStorePassword",
        ],
        Refused(TRUST_STORE),
    ),
    (&["fallbackToSystemTrustStore", "fallbackToSystemKeyStore"], Only(&["true", ""], TRUST_STORE)),
    (&["tlsVersions", "enabledTLSProtocols", "enabledSslProtocolSuites"], Only(OLD_VERSIONS, TLS_VERSIONS)),
    (
        &["defaultAuthenticationPlugin"],
        Only(
            &[
                "mysql_native_password",
                "caching_sha2_password",
                "com.mysql.cj.protocol.a.authentication.MysqlNativePasswordPlugin",
                "com.mysql.cj.protocol.a.authentication.CachingSha2PasswordPlugin",
            ],
            LOGIN_WAYS,
        ),
    ),
    (
        &["propertiesTransform", "useConfigs"],
        Refused("it sets other parameters; write those into the URL itself"),
    ),
    (&["cloudSqlInstance", "socketFactory", "protocol", "path", "type", "priority"], Refused(OWN_SOCKETS)),
    (
        &[
            "allowUrlInLocalInfile",
            "compensateOnDuplicateKeyUpdateCounts",
            "createDatabaseIfNotExist",
            "databaseTerm",
            "disableSslHostnameVerification",
            "disconnectOnExpiredPasswords",
            "dontCheckOnDuplicateKeyUpdateInSQL",
            "loadBalanceHostRemovalGracePeriod",
            "metaExportedKeys",
            "nullCatalogMeansCurrent",
            "nullDatabaseMeansCurrent",
            "serverConfigCacheFactory",
            "useCatalogTerm",
            "useHostsInPrivileges",
            "useInformationSchema",
            "useIpForKillQuery",
        ],
        Ignored,
    ),
];

const CONNECTOR_J_ROWS: RoleRows = &[
    (&["sslMode"], Role::TlsMode(&[MODES])),
    // Where it is written, encryption is wanted: it is not given up silently.
    (&["useSSL"], Role::TlsSwitch { on: Some(Require), off: Some(Off) }),
    (&["host"], Role::Host),
    (&["port"], Role::Port),
    (&["dbname"], Role::Database),
];

const MARIADB_ROWS: RoleRows = &[
    (&["sslMode"], Role::TlsMode(&[MODES, SWITCH])),
    (&["useSsl"], Role::TlsSwitch { on: Some(Verify), off: Some(Off) }),
    (&["trustServerCertificate"], Role::TrustAll),
    (&["serverSslCert"], Role::Ca),
    (&["localSocket"], Role::Socket),
    // It says which driver takes the URL, and has no value.
    (&["permitMysqlScheme"], Ignored),
];

const PGJDBC_ROWS: RoleRows = &[
    (&["user", "username"], Role::User),
    (&["password"], Role::Password),
    (&["PGHOST", "host"], Role::Host),
    (&["PGPORT", "port"], Role::Port),
    (&["PGDBNAME", "dbname"], Role::Database),
    (&["currentSchema"], Role::Schema),
    (&["options"], Role::ServerOptions),
    (&["sslmode"], Role::TlsMode(&[MODES])),
    (&["ssl"], Role::TlsSwitch { on: Some(Verify), off: None }),
    (&["sslfactory"], Role::SocketClass),
    (&["sslrootcert"], Role::Ca),
    (&["sslcert"], Role::Cert),
    (&["sslkey"], Role::Key),
    (&["connectTimeout", "loginTimeout"], Role::ConnectSeconds),
    (&["socketTimeout"], Role::AnswerSeconds),
    (&["channelBinding"], Role::ChannelBinding),
    (&["sslNegotiation"], Only(&["", "postgres"], ASKS_FIRST)),
    (&["gssEncMode"], Only(&["", "disable", "allow", "prefer"], BY_TLS)),
    (&["cloudSqlInstance", "socketFactory"], Refused(OWN_SOCKETS)),
    (&["targetServerType"], Only(&["", "any", "primary", "master", "preferPrimary"], PRIMARY)),
    (&["replication"], Refused(REPLICATION)),
    (
        &[
            "databaseMetadataCacheFields",
            "databaseMetadataCacheFieldsMiB",
            "gsslib",
            "gssResponseTimeout",
            "gssUseDefaultCreds",
            "hostRecheckSeconds",
            "jaasLogin",
            "loadBalanceHosts",
            "loggerFile",
            "pemKeyAlgorithm",
            "scramMaxIterations",
            "sslResponseTimeout",
            "sspiServiceClass",
        ],
        Ignored,
    ),
];

const MYSQL_ROWS: RoleRows = &[
    (&["user", "username"], Role::User),
    (&["password", "passwd"], Role::Password),
    (&["host"], Role::Host),
    (&["port"], Role::Port),
    (&["database", "db"], Role::Database),
    (&["unix_socket", "socket", "socketPath"], Role::Socket),
    (&["ssl_mode", "ssl-mode", "sslmode", "sslMode", "sslaccept"], Role::TlsMode(&[MODES])),
    (&["ssl"], Role::TlsSwitch { on: Some(Require), off: Some(Off) }),
    (&["ssl_disabled"], Role::TlsSwitch { on: Some(Off), off: None }),
    (&["ssl_verify_cert", "ssl_verify_identity", "ssl_check_hostname", "sslverify"], Role::VerifySwitch),
    // A dictionary asks for encryption by being there.
    (
        &["ssl.verify_cert", "ssl.verify_identity", "ssl.check_hostname"],
        Role::TlsSwitch { on: Some(Verify), off: Some(Require) },
    ),
    (&["ssl.rejectUnauthorized"], Role::RejectUnauthorized),
    (&["ssl.verify_mode"], Role::TlsMode(&[VERIFY_MODES])),
    (&["ssl.minVersion"], Only(LOWEST_VERSIONS, TLS_VERSIONS)),
    (&["ssl_ca", "ssl-ca", "ssl.ca", "ssl.ssl_ca", "ssl.ssl-ca", "sslca"], Role::Ca),
    (&["ssl_cert", "ssl-cert", "ssl.cert", "ssl.ssl_cert", "ssl.ssl-cert"], Role::Cert),
    (&["ssl_key", "ssl-key", "ssl.key", "ssl.ssl_key", "ssl.ssl-key"], Role::Key),
    (
        &["sslcert"],
        Refused(
            "for Prisma it is the authority of the server's certificate, for others the client's certificate; write ca=FILE.pem into the store's own URL",
        ),
    ),
    (&["connect_timeout", "connection_timeout"], Role::ConnectSeconds),
    (&["connectTimeout"], Role::ConnectMillis),
    (&["read_timeout", "socket_timeout"], Role::AnswerSeconds),
    (&["read_default_file", "read_default_group", "default_group"], Refused(OPTION_FILE)),
    (&["failover", "stream"], Refused("keymill connects by itself, to the hosts of the URL")),
    (&["allowPublicKeyRetrieval"], Only(&["true", ""], LOGIN_WAYS)),
];

const POSTGRES_ROWS: RoleRows = &[
    (&["user", "username"], Role::User),
    (&["password"], Role::Password),
    (&["host"], Role::Host),
    (&["port"], Role::Port),
    (&["dbname", "database"], Role::Database),
    (
        &["schema", "currentSchema", "search_path", "schema_search_path", "server_settings.search_path"],
        Role::Schema,
    ),
    (&["options"], Role::ServerOptions),
    (&["sslmode", "sslMode", "sslaccept"], Role::TlsMode(&[MODES])),
    // asyncpg takes the words of `sslmode`; what is on, and nothing else, is verified by node-postgres.
    (&["ssl"], Role::TlsMode(&[MODES, SWITCH])),
    (&["ssl.rejectUnauthorized"], Role::RejectUnauthorized),
    (&["requiressl"], Role::TlsSwitch { on: Some(Require), off: None }),
    (&["channel_binding"], Role::ChannelBinding),
    (&["sslrootcert", "sslRootCert", "ssl.ca"], Role::RootCert),
    (&["sslcert", "sslCert", "ssl.cert"], Role::Cert),
    (&["sslkey", "sslKey", "ssl.key"], Role::Key),
    (&["ssl_min_protocol_version", "ssl.minVersion"], Only(LOWEST_VERSIONS, TLS_VERSIONS)),
    (&["ssl_max_protocol_version"], Only(&["", "TLSv1.3"], TLS_VERSIONS)),
    (&["sslnegotiation"], Only(&["", "postgres"], ASKS_FIRST)),
    (&["direct_tls"], Only(&["", "false"], ASKS_FIRST)),
    (&["gssencmode"], Only(&["", "disable", "allow", "prefer"], BY_TLS)),
    (&["requirepeer"], Refused(LOGIN_WAYS)),
    (&["connect_timeout", "timeout"], Role::ConnectSeconds),
    (&["connectionTimeoutMillis"], Role::ConnectMillis),
    (&["command_timeout", "socket_timeout"], Role::AnswerSeconds),
    (&["tcp_user_timeout"], Role::AnswerMillis),
    (&["target_session_attrs"], Only(&["", "any", "read-write", "primary", "prefer-primary"], PRIMARY)),
    (&["replication"], Refused(REPLICATION)),
    (&["load_balance_hosts"], Only(&["", "disable"], "keymill prefers the first host")),
    // TLS of today has no compression and names the host.
    (&["sslcompression", "sslsni"], Ignored),
];

const SQLITE_CLIENT_ROWS: RoleRows = &[(&["database"], Role::Database)];

/// What concerns the application's own file is ignored: keymill's stands beside it.
const SQLITE_ROWS: RoleRows = &[
    (&["mode"], Only(&["ro", "rw", "rwc"], "a database in memory keeps no numbers")),
    (&["key", "hexkey", "hexkey_mode", "cipher", "kdf_iter", "password"], Refused(ENCRYPTED_FILE)),
    (
        &[
            "defer_foreign_keys",
            "foreign_keys",
            "host",
            "init_command",
            "jdbc.get_generated_keys",
            "legacy_file_format",
            "port",
            "secure_delete",
            "socket_timeout",
            "uri",
            "user",
            "user_version",
            "username",
        ],
        Ignored,
    ),
];
