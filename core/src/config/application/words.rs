//! Names that keymill does not know: which of them may be ignored.
//!
//! A library adds parameters with each release, and most of them shape statements, results or pools. A mill can do without
//! them. It cannot do without a parameter that says where the database is, as whom to log in, or how the connection is protected: the
//! mill could then reach another server, or be less protected than the application. Such a name holds one of the words below.

/// What words in a name may be about. Words stand in groups, with the names of some client that they decide.
pub struct Topic {
    /// Completes "it may say …".
    pub about: &'static str,
    /// Words that begin or end a part of a name: `sslmode`, `requiressl`.
    affixes: &'static [&'static str],
    /// Words that are too short or too common for that: they are a whole part.
    parts: &'static [&'static str],
    /// Words that are refused anywhere in a name, because its parts cannot be told by the case of its letters: `SSLmode`,
    /// `dbsslmode`, `noverify`.
    stems: &'static [&'static str],
}

/// The words for which a name is refused.
pub(super) const TOPICS: [Topic; 4] = [
    Topic {
        about: "how the connection is encrypted or whose certificates are trusted",
        affixes: &[
            "ssl tls",              // sslmode, useSSL, enabledTLSProtocols
            "cert trust verif",     // rootCertPath, trustServerCertificate, verifyPeer
            "cipher crypt encrypt", // a chosen cipher, encrypt=true, encryption=strict
            "key",                  // a client's, the server's, an encrypted file's, a store of keys
        ],
        parts: &[
            "ca crl pem",               // files of authorities, and what they revoked
            "secure insecure security", // secure=true, insecure=true
            "channel peer",             // channel_binding, requirepeer
            "vault wallet kms",         // services that keep keys and certificates
        ],
        stems: &[
            "ssl tls cert trust verif",
            "cipher crypt cleartext fingerprint",
            "publickey privatekey keystore keyfile",
            "channelbinding minversion maxversion",
        ],
    },
    Topic {
        about: "as whom the application logs in",
        affixes: &[
            "auth oidc openid saml", // auth_plugin, requireAuth, oauth_issuer
            "passw passfile passphrase secret token credential", // the secret, or where it is
            "login user",            // loginName, dbUser
            "krb kerberos gss sspi jaas ldap", // krbsrvname, gsslib
            "principal identity",    // servicePrincipalName, sslidentity
        ],
        parts: &[
            "pass pwd uid",      // other spellings of a login
            "role",              // assume_role: other rights, and another search path
            "iam otp mfa scram", // logins by a cloud, second factors
            "plugin plugins",    // wrapperPlugins=iam
        ],
        stems: &["auth passw passfile passphrase secret credential kerberos"],
    },
    Topic {
        about: "which server, database or schema is meant",
        affixes: &[
            "host socket",        // hostaddr, dbHost, socketFactory
            "socks proxy tunnel", // what stands between the client and the server
            "schema catalog",     // defaultSchema, currentCatalog: whose tables
            "service",            // an entry of pg_service.conf, a service's name of Kerberos
        ],
        parts: &[
            "port ports ip addr address url uri dns srv pipe ssh", // serverPort, ipTypes, dnsSrv, namedPipePath
            "search",                                              // search_path
            "jndi datasource",                                     // dataSourceJNDI
            "db dbname database",                                  // defaultDatabase
            "instance region cluster endpoint",                    // cloudSqlInstance, cluster of CockroachDB
            "file files config option", // configFile, option_files: logins and hosts
        ],
        stems: &["socket configfile optionfile defaultsfile dnssrv nameserver hostaddr searchpath"],
    },
    Topic {
        about: "what is run on each new connection, which may change the login, the database or the schema",
        affixes: &[],
        // init_command, connectionInitSql; but not initialSize or initializationFailTimeout.
        parts: &["init initsql"],
        stems: &["initsql initialsql initcommand"],
    },
];

/// The words of these groups.
fn each(groups: &'static [&'static str]) -> impl Iterator<Item = &'static str> {
    groups.iter().flat_map(|group| group.split(' '))
}

/// Names that are refused as a whole, and harmless as a part: PostgreSQL's `options` sets the schema or the role, but there are
/// `POOL_OPTIONS` and `serverTimezone` too.
const WHOLE: [&str; 2] = ["options", "server"];

/// Words that make an `ssl` with an `l` behind them: `classLoader`, `processList`.
const ENDS_IN_SS: [&str; 4] = ["access", "class", "compress", "process"];

/// The word of a name for which it is refused, and what it may be about.
pub(super) fn speaks(name: &str) -> Option<(&'static str, &'static Topic)> {
    if let Some(word) = WHOLE.iter().find(|word| word.eq_ignore_ascii_case(name)) {
        return Some((word, &TOPICS[2]));
    }
    let of_parts = parts(name).iter().find_map(|part| {
        TOPICS.iter().find_map(|topic| {
            let mut affixes = each(topic.affixes);
            let affix = affixes.find(|word| part.starts_with(word) || part.ends_with(word));
            affix.or_else(|| each(topic.parts).find(|word| part == word)).map(|word| (word, topic))
        })
    });
    of_parts.or_else(|| {
        let letters = letters(name);
        TOPICS
            .iter()
            .find_map(|topic| each(topic.stems).find(|stem| letters.contains(stem)).map(|stem| (stem, topic)))
    })
}

/// The letters of a name in lower case, in which no word of [`ENDS_IN_SS`] can be a piece of a stem.
fn letters(name: &str) -> String {
    let letters: String = name.chars().filter(|c| c.is_alphabetic()).flat_map(char::to_lowercase).collect();
    ENDS_IN_SS.iter().fold(letters, |letters, word| letters.replace(word, " "))
}

/// `useSSLMode`, `use_ssl_mode` and `use.ssl-mode` are `use`, `ssl`, `mode`. Digits belong to no part: `password2`.
fn parts(name: &str) -> Vec<String> {
    let letters: Vec<char> = name.chars().collect();
    let mut parts = vec![String::new()];
    for (at, letter) in letters.iter().enumerate() {
        let before = at.checked_sub(1).and_then(|at| letters.get(at));
        let after = letters.get(at + 1);
        // The last capital of several begins a word: `SSLMode`.
        let begins = letter.is_uppercase()
            && (before.is_some_and(|c| c.is_lowercase()) || after.is_some_and(|c| c.is_lowercase()));
        if begins || !letter.is_alphabetic() {
            parts.push(String::new());
        }
        if letter.is_alphabetic()
            && let Some(part) = parts.last_mut()
        {
            part.extend(letter.to_lowercase());
        }
    }
    parts.retain(|part| !part.is_empty());
    parts
}

impl Topic {
    /// Its words, for the documentation.
    pub fn words(&self) -> impl Iterator<Item = String> {
        let is_stem = |word: &&str| each(self.stems).any(|stem| stem == *word);
        let stems = each(self.stems).map(|word| format!("…{word}…"));
        let affixes = each(self.affixes).filter(move |word| !is_stem(word)).map(|word| format!("{word}…"));
        stems.chain(affixes).chain(each(self.parts).map(str::to_owned))
    }
}

/// Whether SQL for each new connection only sets the session's variables: not its login, and not where names are looked up.
pub(super) fn sets_only_variables(sql: &str) -> bool {
    const ELSEWHERE: [&str; 9] = [
        "role",
        "authorization",
        "session_authorization",
        "schema",
        "search_path",
        "catalog",
        "database",
        "password",
        "use",
    ];
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    sql.split(';').map(str::trim).filter(|statement| !statement.is_empty()).all(|statement| {
        let words = statement.split(|c| !is_word(c)).filter(|word| !word.is_empty());
        let mut words = words.map(str::to_ascii_lowercase);
        words.next().as_deref() == Some("set") && words.all(|word| !ELSEWHERE.contains(&word.as_str()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_in_parts_however_it_is_written() {
        for name in
            ["useSSLMode", "use_ssl_mode", "use-ssl-mode", "USE_SSL_MODE", "use.ssl.mode", "UseSslMode3"]
        {
            assert_eq!(parts(name), ["use", "ssl", "mode"], "{name}");
        }
        assert_eq!(parts("tinyInt1isBit"), ["tiny", "int", "is", "bit"]);
        assert_eq!(parts("haEnableJMX"), ["ha", "enable", "jmx"]);
        assert!(parts("=1&").is_empty());
        // What is refused and what is ignored for its parts stands in `tests/vectors/application.json`.
    }

    #[test]
    fn a_word_of_trust_or_place_is_found_in_any_letter_case() {
        for name in [
            "SSLmode",
            "SSLca",
            "PGSSLMODE",
            "dbsslmode",
            "DbTLSver",
            "noverify",
            "skipverify",
            "enabledsslciphersuites",
            "serverrsapublickeyfile",
            "localsocketaddress",
            "allow_cleartext",
            "allowcleartextpasswords",
            "disabledauthenticationplugins",
            "ociconfigfile",
            "dnssrv",
            "channelbinding",
            "minVersion",
            "initialSql",
            "nameserver",
            "classssl",
            "mytrustedca",
            "class_ssl_mode",
        ] {
            assert!(speaks(name).is_some(), "{name}");
        }
        for name in [
            "classLoaderStrategy",
            "processList",
            "accessLevel",
            "compressLevel",
            "readOnlyPropagatesToServer",
            "failOverReadOnly",
            "assumeMinServerVersion",
            "initialSize",
            "useServerPrepStmts",
        ] {
            assert!(speaks(name).is_none(), "{name}");
        }
    }

    #[test]
    fn of_what_runs_on_a_new_connection_only_variables_may_be_set() {
        for sql in
            ["", "SET NAMES utf8mb4", "set sql_mode='STRICT_TRANS_TABLES'; SET SESSION time_zone = '+00:00';"]
        {
            assert!(sets_only_variables(sql), "{sql}");
        }
        for sql in [
            "USE other",
            "SET ROLE owner",
            "SET search_path TO a",
            "SET NAMES x; use y",
            "SELECT set_config('a', 'b')",
        ] {
            assert!(!sets_only_variables(sql), "{sql}");
        }
    }
}
