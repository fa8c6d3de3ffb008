//! Whose parameters they are: a client library of a database, with what each of its parameters means for a store.

/// What a connection demands of its encryption, the weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum TlsLevel {
    Off,
    Prefer,
    Require,
    Verify,
}

/// What a parameter means for a store.
#[derive(Clone, Copy, Debug)]
pub(super) enum Role {
    User,
    Password,
    Host,
    Port,
    Database,
    /// A socket file.
    Socket,
    /// A schema, or several joined by `,`: the first one has the tables that are made.
    Schema,
    /// PostgreSQL's `options`: `-c search_path=NAME` is a schema.
    ServerOptions,
    /// A word for what the connection demands; the words and what they demand.
    TlsMode(&'static [(&'static str, TlsLevel)]),
    /// A switch that demands this much where it is on, and this where it is off.
    TlsSwitch {
        on: Option<TlsLevel>,
        off: Option<TlsLevel>,
    },
    /// A switch: the server's certificate is not looked at, where a switch alone asked for encryption.
    TrustAll,
    /// A class of pgjdbc that makes sockets.
    SocketClass,
    /// A switch: over a connection that is not encrypted the password may go out under a key that the server sends.
    KeyFromServer,
    Ca,
    /// As [`Role::Ca`]; `system` names the authorities of the system.
    RootCert,
    Cert,
    Key,
    ConnectSeconds,
    ConnectMillis,
    AnswerSeconds,
    AnswerMillis,
    /// A store does not need it, and why.
    Unused(&'static str),
    /// These values say what a store does anyway; every other one is refused, and why.
    Only(&'static [&'static str], &'static str),
    /// There is no counterpart, and what to do.
    Refused(&'static str),
}

/// Names that mean the same.
pub(super) type Rows = &'static [(&'static [&'static str], Role)];

/// The database that a library talks to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    Mysql,
    Postgres,
    Sqlite,
}

/// One or several client libraries whose parameters have the same names.
#[derive(Debug)]
pub(super) struct ClientLibrary {
    /// For messages.
    pub(super) name: &'static str,
    pub(super) family: Family,
    /// Names are told apart by the case of their letters.
    pub(super) has_case: bool,
    /// Values in the URL are percent-encoded.
    pub(super) is_encoded: bool,
    /// A `+` of the URL is a blank.
    pub(super) has_plus: bool,
    /// Without [`Role::KeyFromServer`] a password never leaves an unencrypted connection as it is.
    pub(super) guards_password: bool,
    pub(super) tables: &'static [Rows],
}

impl ClientLibrary {
    /// The role of a parameter, and its name as the library writes it.
    pub(super) fn role(&self, name: &str) -> Option<(&'static str, Role)> {
        let is_it =
            |known: &&&str| if self.has_case { **known == name } else { known.eq_ignore_ascii_case(name) };
        self.tables
            .iter()
            .flat_map(|table| table.iter())
            .find_map(|(names, role)| names.iter().find(is_it).map(|known| (*known, *role)))
    }
}
