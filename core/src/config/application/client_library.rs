//! Whose parameters they are: a client library of a database, with what each of its parameters means for a store.

/// What a connection demands of its encryption, the weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum TlsLevel {
    Off,
    Prefer,
    Require,
    /// The chain by the authorities that are named, no host. Without a file with authorities it is [`TlsLevel::Verify`].
    VerifyCa,
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
    /// A word for what the connection demands; lists of words and what they demand.
    TlsMode(&'static [&'static [(&'static str, TlsLevel)]]),
    /// A switch that demands this much where it is on, and this where it is off.
    TlsSwitch {
        on: Option<TlsLevel>,
        off: Option<TlsLevel>,
    },
    /// A switch: the server's certificate is verified, whatever other switches trust.
    VerifySwitch,
    /// Node's switch inside `ssl`, which only `false` itself turns off.
    RejectUnauthorized,
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
    /// PostgreSQL's `channel_binding`: where it is demanded, the server's certificate is verified instead.
    ChannelBinding,
    /// SQL for each new connection: ignored where it sets variables of the session, else refused.
    SessionSql,
    /// Harmless, although its name holds a word of `words`.
    Ignored,
    /// These values say what a store does anyway; every other one is refused, and why.
    Only(&'static [&'static str], &'static str),
    /// There is no counterpart, and what to do.
    Refused(&'static str),
}

/// Names that mean the same.
pub(super) type RoleRows = &'static [(&'static [&'static str], Role)];

/// Names of parameters and what they mean, as a line of Markdown.
pub type DescribedRow = (Vec<&'static str>, String);

/// The database that a library talks to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DatabaseKind {
    Mysql,
    Postgres,
    Sqlite,
}

/// One or several client libraries whose parameters have the same names.
#[derive(Debug)]
pub(super) struct ClientLibrary {
    /// For messages.
    pub(super) name: &'static str,
    pub(super) kind: DatabaseKind,
    /// Names are told apart by the case of their letters.
    pub(super) has_case: bool,
    /// Values in the URL are percent-encoded.
    pub(super) is_encoded: bool,
    /// A `+` of the URL is a blank.
    pub(super) has_plus: bool,
    /// Without [`Role::KeyFromServer`] a password never leaves an unencrypted connection as it is.
    pub(super) guards_password: bool,
    pub(super) tables: &'static [RoleRows],
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

impl TlsLevel {
    fn described(self) -> &'static str {
        match self {
            TlsLevel::Off => "no encryption",
            TlsLevel::Prefer => "`tls=prefer`",
            TlsLevel::Require => "`tls=require`",
            TlsLevel::VerifyCa => "`tls=verify-ca` with a file of authorities, else `tls=verify`",
            TlsLevel::Verify => "`tls=verify`",
        }
    }
}

impl Role {
    /// What it means, as a line of Markdown.
    pub(super) fn described(self) -> String {
        let listed = |words: &[&str]| {
            let words = words
                .iter()
                .map(|word| if word.is_empty() { "nothing".to_owned() } else { format!("`{word}`") });
            words.collect::<Vec<_>>().join(", ")
        };
        match self {
            Role::User => "the user".to_owned(),
            Role::Password => "the password".to_owned(),
            Role::Host => "the host".to_owned(),
            Role::Port => "the port".to_owned(),
            Role::Database => "the database".to_owned(),
            Role::Socket => "`socket=`".to_owned(),
            Role::Schema => "`schema=`: the first of the schemas, folded to lower case as the server does, unless it is quoted".to_owned(),
            Role::ServerOptions => "`schema=`, where it is `-c search_path=NAME`; ignored: Neon's `endpoint=` of the same host; refused: everything else".to_owned(),
            Role::TlsMode(words) => {
                use TlsLevel::{Off, Prefer, Require, Verify, VerifyCa};
                let each = [Off, Prefer, Require, VerifyCa, Verify].map(|level| {
                    let words = words.iter().copied().flatten().filter(|(_, its)| *its == level);
                    let words: Vec<_> = words.map(|(word, _)| *word).collect();
                    (!words.is_empty()).then(|| format!("{}: {}", listed(&words), level.described()))
                });
                each.into_iter().flatten().collect::<Vec<_>>().join("; ")
            }
            Role::TlsSwitch { on, off } => {
                let side = |level: Option<TlsLevel>| level.map_or("says nothing", TlsLevel::described);
                format!("on: {}; off: {}", side(on), side(off))
            }
            Role::VerifySwitch => "on: `tls=verify`; off: says nothing".to_owned(),
            Role::RejectUnauthorized => "`false`: `tls=require`; everything else: `tls=verify`".to_owned(),
            Role::TrustAll => "on: where a switch alone asks for encryption, `tls=require`".to_owned(),
            Role::SocketClass => "`NonValidatingFactory`: where `ssl` alone asks for encryption, `tls=require`; the driver's two others: nothing more; refused: every other class".to_owned(),
            Role::KeyFromServer => "on, without encryption: `tls=off`".to_owned(),
            Role::Ca | Role::RootCert => "`ca=` with `tls=verify`, or with `tls=verify-ca` where that is asked for: a PEM file; refused: other files and texts".to_owned(),
            Role::Cert => "`cert=`: a PEM file; refused: other files and texts".to_owned(),
            Role::Key => "`key=`: a PEM file; refused: other files and texts".to_owned(),
            Role::ConnectSeconds => "`connect_timeout=`, in seconds".to_owned(),
            Role::ConnectMillis => "`connect_timeout=`, in milliseconds".to_owned(),
            Role::AnswerSeconds => "`timeout=`, in seconds".to_owned(),
            Role::AnswerMillis => "`timeout=`, in milliseconds".to_owned(),
            Role::ChannelBinding => "`require`: `tls=verify`, which keeps out a false server in another way".to_owned(),
            Role::SessionSql => "ignored where it only sets variables (`SET …`); refused: a role, a schema, everything else".to_owned(),
            Role::Ignored => "ignored".to_owned(),
            Role::Only(same, why) => format!("ignored where it is {}; refused: everything else ({why})", listed(same)),
            Role::Refused(why) => format!("refused: {why}"),
        }
    }
}
