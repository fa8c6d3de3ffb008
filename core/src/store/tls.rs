//! The meaning of `tls=` for every server store: which certificates are trusted, which one this program shows, and when a
//! password may be sent.
//!
//! A password is sent as it is only inside TLS, to a socket file, or if the configuration says `tls=off`. Under a key that came
//! from the server it is sent with `tls=off` only. Over any other connection only proofs are sent, from which no password can be
//! read: SCRAM, and the scrambles of MySQL and MariaDB. This is the rule of libpq and of Connector/J.
//!
//! Loopback is no exception: any login of this machine can listen on a port that is free. Without `tls=` a connection to it is
//! not encrypted, because the bytes do not leave the machine. If the server asks for the password there, the login is tried
//! again inside TLS. Redis is an exception on loopback, because `AUTH` is its only login.

use std::net::SocketAddr;

use super::server::{PASSWORD_VARIABLE, PasswordSource, ServerOptions, Target, TlsMode};
use super::{Fault, FaultKind};
use crate::system::file_rights::is_shared;

/// The mode of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Not encrypted, because the configuration says so or the server listens on a socket file.
    Off,
    /// Not encrypted, because the address is this machine's own.
    Loopback,
    /// Not encrypted: a socket file, which every user of the machine may make.
    SharedFolder,
    Prefer,
    Require,
    /// The server's certificate is by an authority of `ca=`, whatever host it names.
    VerifyCa,
    Verify,
}

/// How a connection is protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protection {
    None,
    /// Encrypted, but the server's identity is unknown.
    Encrypted,
    /// The server has shown a certificate by an authority of `ca=`, for whatever host.
    VerifiedCa,
    /// The server has shown a trusted certificate for its name.
    Verified,
}

impl Protection {
    /// As `status` shows it.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Protection::None => "none",
            Protection::Encrypted => {
                "encrypted, server not authenticated (`tls=verify`, or `tls=verify-ca` with `ca=FILE.pem`, authenticates it)"
            }
            Protection::VerifiedCa => "verified by the authority, whatever host",
            Protection::Verified => "verified",
        }
    }
}

impl Mode {
    /// The mode of a connection to this place. Without `tls=` socket files and loopback addresses are not encrypted: the
    /// bytes do not leave the machine.
    pub(crate) fn of(options: &ServerOptions, target: &Target) -> Mode {
        let address = match target {
            // A socket file is never encrypted.
            Target::Socket(path) => {
                let is_off = options.tls.mode == TlsMode::Off;
                return if !is_off && is_shared(path) { Mode::SharedFolder } else { Mode::Off };
            }
            Target::Tcp { address, .. } => address,
        };
        match options.tls.mode {
            TlsMode::Default if address.ip().to_canonical().is_loopback() => Mode::Loopback,
            TlsMode::Off => Mode::Off,
            TlsMode::Require => Mode::Require,
            TlsMode::VerifyCa => Mode::VerifyCa,
            TlsMode::Verify => Mode::Verify,
            TlsMode::Prefer | TlsMode::Default => Mode::Prefer,
        }
    }

    /// Whether the connection is not encrypted, whatever the server offers.
    pub(crate) fn is_plain(self) -> bool {
        matches!(self, Mode::Off | Mode::Loopback | Mode::SharedFolder)
    }

    /// The protection that TLS in this mode gives.
    pub(crate) fn encrypted(self) -> Protection {
        match self {
            Mode::Off | Mode::Loopback | Mode::SharedFolder => Protection::None,
            Mode::Prefer | Mode::Require => Protection::Encrypted,
            Mode::VerifyCa => Protection::VerifiedCa,
            Mode::Verify => Protection::Verified,
        }
    }

    /// Whether the password itself may be sent over a connection with this protection.
    pub(crate) fn may_send_password(self, protection: Protection) -> bool {
        self == Mode::Off || protection != Protection::None
    }

    /// Whether Redis' `AUTH` may be sent, which is the password itself.
    #[cfg(feature = "redis")]
    pub(crate) fn may_send_auth(self, protection: Protection) -> bool {
        matches!(self, Mode::Loopback | Mode::SharedFolder) || self.may_send_password(protection)
    }

    /// Whether a login that needs the password is tried again inside TLS.
    #[cfg(any(feature = "mysql", feature = "postgres"))]
    pub(crate) fn tries_tls_next(self) -> bool {
        self == Mode::Loopback
    }
}

/// The message of a refused login: the user, the password's origin, and other possible causes.
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(crate) fn login_refused(options: &ServerOptions, mode: Mode) -> String {
    const CHECK: &str = "check user and password";
    let with = match &options.password_source {
        PasswordSource::File(path) => format!("with the password in `{}`; {CHECK}", path.display()),
        PasswordSource::Environment => format!("with the password in {PASSWORD_VARIABLE}; {CHECK}"),
        _ if options.password.reveal().is_empty() => {
            format!("without a password; {CHECK}, which `password_file=FILE` or {PASSWORD_VARIABLE} names")
        }
        _ => format!("with this password; {CHECK}"),
    };
    let or_else = match (mode, &options.tls.cert) {
        (mode, _) if mode.is_plain() => "the server demands TLS: `tls=require`, or `tls=verify`",
        (Mode::Prefer, None) => {
            "the server demands TLS: `tls=require`; or a certificate of this user: `cert=FILE.pem&key=FILE.pem`"
        }
        (_, None) => "the server demands a certificate of this user: `cert=FILE.pem&key=FILE.pem`",
        (_, Some(_)) => "the server does not know this user's certificate",
    };
    format!("the server refuses user `{}` {with} (or {or_else})", options.user)
}

/// The fault for a server that asked for the password itself over a connection that is not encrypted. `how` names the method.
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(crate) fn password_withheld(how: &str, mode: Mode) -> Fault {
    let what = format!("the server wants {how}, and it was not sent");
    match mode {
        Mode::Loopback => withheld(
            &format!(
                "{what}: the server offers no TLS, and any login of this machine may listen on a port of {LOOPBACK}; use `socket=FILE`"
            ),
            ", turn TLS on at the server, take a login that sends only a proof",
        ),
        Mode::SharedFolder => withheld(
            &format!(
                "{what}: any login of this machine may make a socket file in this folder; use one that only the server may write to"
            ),
            ", or a login that sends only a proof",
        ),
        _ => withheld(
            &format!("{what}: the server offers no TLS; turn it on there"),
            ", take a login that sends only a proof",
        ),
    }
}

/// Redis has no other login than the plain password.
#[cfg(feature = "redis")]
pub(crate) fn auth_withheld() -> Fault {
    withheld(
        "`AUTH` would send the password in clear, and it was not sent; use `rediss://` (with `ca=FILE.pem` for an authority of your own), or `tls=require`",
        "",
    )
}

#[cfg(any(feature = "mysql", feature = "postgres"))]
const LOOPBACK: &str = "127.0.0.1 and ::1";

fn withheld(what: &str, other_way: &str) -> Fault {
    Fault::new(FaultKind::Refused, format!("{what}{other_way}, or write `tls=off` to send it all the same"))
}

/// The fault for a server without TLS if the configuration demands it. `tls=off` is no advice here: it would take away what the
/// configuration asks for.
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(crate) fn not_offered() -> Fault {
    Fault::new(
        FaultKind::Refused,
        "the server offers no TLS, and no login was sent: turn it on there; is it the right server, and nothing in between that takes the offer away?",
    )
}

/// The fault for bytes in clear that came before the login, and would have counted as an answer to it.
#[cfg(feature = "mysql")]
pub(crate) fn spoke_too_early() -> Fault {
    Fault::new(
        FaultKind::Refused,
        "more than a greeting came before the login, and nothing of it was used: no MySQL server does that; is there a proxy or an attacker between this program and the server?",
    )
}

pub(crate) use encrypted::*;

mod encrypted {
    use std::fmt;
    use std::io;
    use std::path::Path;
    use std::sync::Arc;

    use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
    use rustls::client::verify_server_cert_signed_by_trust_anchor;
    use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
    use rustls::server::ParsedCertificate;
    use rustls::{
        CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    };

    use super::{Fault, FaultKind, Mode, SocketAddr};
    use crate::store::secret_file;
    use crate::store::server::{NEEDS_CA, Tls};

    const CLIENT_CERT: &str = "the certificate has to be one of X.509 version 3, and the key its own";

    fn refused(message: String) -> Fault {
        Fault::new(FaultKind::Refused, message)
    }

    /// The TLS of one connection. The ciphers are named here: the process's provider, which belongs to the host program, is
    /// neither used nor set.
    pub(crate) fn client_config(tls: &Tls, mode: Mode) -> Result<ClientConfig, Fault> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| refused(format!("TLS cannot be set up: {error}")))?;
        let builder = match mode {
            Mode::Off | Mode::Loopback | Mode::SharedFolder | Mode::Prefer | Mode::Require => {
                let any = ServerCertificate { trusted: None, provider };
                builder.dangerous().with_custom_certificate_verifier(Arc::new(any))
            }
            Mode::VerifyCa => {
                // The system's authorities sign for everybody: without a name they would prove nothing.
                let Some(file) = &tls.ca else { return Err(refused(NEEDS_CA.to_owned())) };
                let by_authority = ServerCertificate { trusted: Some(authorities_in(file)?), provider };
                builder.dangerous().with_custom_certificate_verifier(Arc::new(by_authority))
            }
            Mode::Verify => builder.with_root_certificates(match &tls.ca {
                Some(file) => authorities_in(file)?,
                None => authorities_of_the_system()?,
            }),
        };
        match (&tls.cert, &tls.key) {
            (Some(cert), Some(key)) => {
                let chain = certificates_in(cert, "the client's certificate")?;
                let wrong =
                    |why: &dyn fmt::Display| refused(format!("the client's key `{}` {why}", key.display()));
                let file = secret_file::read(key, 1 << 20)
                    .map_err(|error| wrong(&format_args!("cannot be read: {error}")))?;
                if let Some(exposed) = file.exposed {
                    return Err(wrong(&exposed));
                }
                let key = PrivateKeyDer::from_pem_slice(file.text.as_bytes())
                    .map_err(|error| wrong(&format_args!("cannot be read: {error}")))?;
                builder.with_client_auth_cert(chain, key).map_err(|error| {
                    refused(format!("`cert=` and `key=` cannot be used together: {error}; {CLIENT_CERT}"))
                })
            }
            _ => Ok(builder.with_no_client_auth()),
        }
    }

    /// The name that the certificate has to be for. Without verification a placeholder that no certificate can have is
    /// used.
    pub(crate) fn server_name(
        host: &str,
        address: SocketAddr,
        mode: Mode,
    ) -> Result<ServerName<'static>, Fault> {
        match ServerName::try_from(host.to_owned()) {
            Ok(name) => Ok(name),
            Err(_) if mode == Mode::Verify => {
                Err(refused(format!("no certificate can be for the name `{host}`")))
            }
            Err(_) => Ok(ServerName::from(address.ip())),
        }
    }

    fn certificates_in(file: &Path, what: &str) -> Result<Vec<CertificateDer<'static>>, Fault> {
        let wrong = |error: &dyn fmt::Display| {
            refused(format!("{what} `{}` cannot be read: {error}", file.display()))
        };
        let (_, bytes) = secret_file::contents(file, 16 << 20).map_err(|error| wrong(&error))?;
        let found = CertificateDer::pem_slice_iter(&bytes);
        let found: Vec<_> = found.collect::<Result<_, _>>().map_err(|error| wrong(&error))?;
        if found.is_empty() {
            return Err(wrong(&"it has to be a PEM file with a certificate"));
        }
        Ok(found)
    }

    /// Only the configured authorities.
    fn authorities_in(file: &Path) -> Result<RootCertStore, Fault> {
        let mut authorities = RootCertStore::empty();
        for certificate in certificates_in(file, "the authority's certificate")? {
            authorities.add(certificate).map_err(|error| {
                refused(format!("the authority's certificate `{}` cannot be used: {error}", file.display()))
            })?;
        }
        Ok(authorities)
    }

    /// The authorities of the operating system, read for each connection: they change while a program runs.
    fn authorities_of_the_system() -> Result<RootCertStore, Fault> {
        let found = rustls_native_certs::load_native_certs();
        let mut authorities = RootCertStore::empty();
        let (added, _) = authorities.add_parsable_certificates(found.certs);
        if added == 0 {
            let why = found.errors.first().map_or(String::new(), |error| format!(" ({error})"));
            return Err(refused(format!(
                "this machine names no authorities{why}: install `ca-certificates`, or name one with `ca=FILE.pem`"
            )));
        }
        Ok(authorities)
    }

    /// A certificate whose host is not compared. It checks that the server has the certificate's key, which matters for SCRAM bound to
    /// the certificate too.
    #[derive(Debug)]
    struct ServerCertificate {
        /// The certificate has to be by one of these authorities, valid today, and for a server. `None`: any certificate will do.
        trusted: Option<RootCertStore>,
        provider: Arc<CryptoProvider>,
    }

    impl ServerCertVerifier for ServerCertificate {
        fn verify_server_cert(
            &self,
            certificate: &CertificateDer<'_>,
            chain: &[CertificateDer<'_>],
            _: &ServerName<'_>,
            _: &[u8],
            now: UnixTime,
        ) -> Result<ServerCertVerified, Error> {
            if let Some(authorities) = &self.trusted {
                // All that `tls=verify` checks, but for the host.
                let certificate = ParsedCertificate::try_from(certificate)?;
                let known = self.provider.signature_verification_algorithms.all;
                verify_server_cert_signed_by_trust_anchor(&certificate, authorities, chain, now, known)?;
            }
            Ok(ServerCertVerified::assertion())
        }

        fn verify_tls12_signature(
            &self,
            message: &[u8],
            cert: &CertificateDer<'_>,
            dss: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            cert: &CertificateDer<'_>,
            dss: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            self.provider.signature_verification_algorithms.supported_schemes()
        }
    }

    /// The fault for a TLS error, with its remedy; `None` if something else failed. Another attempt would fail too.
    pub(crate) fn refusal(error: &io::Error) -> Option<Fault> {
        let mut inner: &(dyn std::error::Error + 'static) = error.get_ref()?;
        let error = loop {
            match inner.downcast_ref::<Error>() {
                Some(error) => break error,
                None => inner = inner.source()?,
            }
        };
        let advice = match error {
            Error::InvalidCertificate(CertificateError::NotValidForNameContext { presented, .. })
                if presented.is_empty() =>
            {
                "it names no host, like every certificate that MySQL makes by itself: write `tls=verify-ca` with `ca=` the server's own `ca.pem`, or give the server a certificate with the host as its subjectAltName"
            }
            Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            ) => "write the host as the certificate has it",
            Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature) => {
                "name the certificate of the authority that signed it: `ca=FILE.pem`"
            }
            Error::InvalidCertificate(_) => "the server needs another certificate",
            Error::AlertReceived(_) => {
                "the server refused: does it want a certificate of this program (`cert=`, `key=`), or no TLS of today (1.2, 1.3)?"
            }
            Error::InvalidMessage(_) => "does the server speak TLS on this port?",
            _ => "the server and this program agree on no TLS: let the server speak TLS 1.2 or 1.3",
        };
        Some(refused(format!("{error}; {advice}")))
    }

    #[cfg(test)]
    mod tests {
        use std::time::Duration;

        use super::*;

        #[test]
        fn a_certificate_without_a_host_to_compare_is_checked_in_all_else() {
            let pem = include_bytes!("tls_certificates.pem");
            let found: Vec<_> = CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().expect("PEM");
            let [ca, other, db1, nameless, client] = &found[..] else {
                panic!("{} certificates", found.len())
            };
            let mut broken = db1.to_vec();
            *broken.last_mut().expect("a signature") ^= 1;
            let broken = CertificateDer::from(broken);
            // The first days of 2020, 2030 and 2130.
            let (before, now, after) = (1_577_836_800, 1_893_456_000, 5_049_129_600);
            for (what, certificate, authority, at, is_trusted) in [
                ("another host", db1, ca, now, true),
                ("no host", nameless, ca, now, true),
                ("another authority of that name", db1, other, now, false),
                ("a client's", client, ca, now, false),
                ("a broken signature", &broken, ca, now, false),
                ("not yet valid", db1, ca, before, false),
                ("expired", db1, ca, after, false),
                ("the other authority itself", other, ca, now, false),
            ] {
                let mut authorities = RootCertStore::empty();
                authorities.add(authority.clone()).expect("an authority");
                let checked = |trusted| {
                    let verifier =
                        ServerCertificate { trusted, provider: Arc::new(ring::default_provider()) };
                    let name = ServerName::try_from("elsewhere").expect("a name");
                    let at = UnixTime::since_unix_epoch(Duration::from_secs(at));
                    verifier.verify_server_cert(certificate, &[], &name, &[], at)
                };
                let answer = checked(Some(authorities));
                assert_eq!(answer.is_ok(), is_trusted, "{what}: {answer:?}");
                assert!(checked(None).is_ok(), "{what}: `require` checks nothing");
            }
        }

        /// Every one of them may be shown to a program that demands TLS.
        #[test]
        fn no_error_of_tls_advises_to_leave_it_out() {
            for error in [
                Error::PeerIncompatible(rustls::PeerIncompatible::Tls12NotOfferedOrEnabled),
                Error::PeerMisbehaved(rustls::PeerMisbehaved::TooMuchEarlyDataReceived),
                Error::NoCertificatesPresented,
                Error::DecryptError,
                Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType),
                Error::AlertReceived(rustls::AlertDescription::ProtocolVersion),
                Error::InvalidCertificate(CertificateError::UnknownIssuer),
                Error::InvalidCertificate(CertificateError::Expired),
                Error::InvalidCertificate(CertificateError::NotValidForName),
            ] {
                let fault = refusal(&io::Error::new(io::ErrorKind::InvalidData, error)).expect("a fault");
                assert!(!fault.to_string().contains("tls=off"), "{fault}");
            }
        }

        #[test]
        fn the_chain_alone_needs_an_authority_of_its_own() {
            let refused = client_config(&Tls::default(), Mode::VerifyCa).expect_err("no authority");
            assert!(refused.to_string().contains("add ca=FILE.pem"), "{refused}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::super::server::Tls;
    use super::*;

    fn to(mode: TlsMode, address: &str) -> Mode {
        let options = ServerOptions { tls: Tls { mode, ..Tls::default() }, ..ServerOptions::default() };
        let address = address.parse().unwrap();
        Mode::of(&options, &Target::Tcp { host: "db".to_owned(), address })
    }

    #[test]
    fn without_a_word_only_what_leaves_the_machine_is_encrypted() {
        for here in ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
            assert_eq!(to(TlsMode::Default, here), Mode::Loopback, "{here}");
            assert_eq!(to(TlsMode::Off, here), Mode::Off, "{here}");
            assert_eq!(to(TlsMode::Prefer, here), Mode::Prefer, "{here}");
        }
        for there in ["10.0.0.1:1", "0.0.0.0:1", "[2001:db8::1]:1", "[::ffff:10.0.0.1]:1"] {
            assert_eq!(to(TlsMode::Default, there), Mode::Prefer, "{there}");
            assert_eq!(to(TlsMode::Off, there), Mode::Off, "{there}");
        }
        let options = ServerOptions {
            tls: Tls { mode: TlsMode::Verify, ..Tls::default() },
            ..ServerOptions::default()
        };
        assert_eq!(Mode::of(&options, &Target::Socket("/run/db".into())), Mode::Off);
    }

    #[test]
    fn a_socket_file_in_a_folder_of_all_users_gets_no_password() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let file = Target::Socket(folder.path().join("s"));
        let options =
            |mode| ServerOptions { tls: Tls { mode, ..Tls::default() }, ..ServerOptions::default() };
        for (permissions, shared) in [(0o700, false), (0o2775, false), (0o1777, true)] {
            std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(permissions)).unwrap();
            let wanted = if shared { Mode::SharedFolder } else { Mode::Off };
            assert_eq!(Mode::of(&options(TlsMode::Default), &file), wanted, "{permissions:o}");
            assert_eq!(Mode::of(&options(TlsMode::Off), &file), Mode::Off);
        }
        // The same by a link, which may lead nowhere yet, and by a folder of this login's own below.
        let safe = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(folder.path().join("s"), safe.path().join("link")).unwrap();
        std::os::unix::fs::symlink(folder.path(), safe.path().join("linked")).unwrap();
        std::fs::create_dir(folder.path().join("own")).unwrap();
        std::os::unix::fs::symlink(safe.path(), folder.path().join("away")).unwrap();
        for (permissions, below) in [(0o1777, Mode::Off), (0o777, Mode::SharedFolder)] {
            std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(permissions)).unwrap();
            let mode_at = |path: PathBuf| Mode::of(&options(TlsMode::Default), &Target::Socket(path));
            assert_eq!(mode_at(safe.path().join("s")), Mode::Off);
            assert_eq!(mode_at(safe.path().join("link")), Mode::SharedFolder);
            assert_eq!(mode_at(safe.path().join("linked/s")), Mode::SharedFolder);
            assert_eq!(mode_at(safe.path().join("linked")), Mode::SharedFolder);
            assert_eq!(mode_at(safe.path().join("missing/s")), Mode::SharedFolder);
            assert_eq!(mode_at(folder.path().join("own/s")), below, "{permissions:o}");
            assert_eq!(mode_at(safe.path().join("linked/own/s")), below, "{permissions:o}");
            // A link in the open folder, which leads to a closed one.
            assert_eq!(mode_at(folder.path().join("away/s")), below, "{permissions:o}");
        }
    }

    #[test]
    fn a_password_is_sent_inside_tls_or_where_tls_off_is_written() {
        use Protection::{Encrypted, None, Verified, VerifiedCa};
        for (mode, protection, sent) in [
            (Mode::Off, None, true),
            (Mode::Loopback, None, false),
            (Mode::SharedFolder, None, false),
            (Mode::Prefer, None, false),
            (Mode::Require, None, false),
            (Mode::VerifyCa, None, false),
            (Mode::Verify, None, false),
            (Mode::Prefer, Encrypted, true),
            (Mode::Require, Encrypted, true),
            (Mode::VerifyCa, VerifiedCa, true),
            (Mode::Verify, Verified, true),
        ] {
            assert_eq!(mode.may_send_password(protection), sent, "{mode:?} {protection:?}");
            assert!(protection == None || mode.encrypted() == protection, "{mode:?}");
        }
    }
}
