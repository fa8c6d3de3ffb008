//! Certificates for tests: an authority, and the certificates that it signs, made by `openssl`.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

/// An authority, a certificate of it for a server (`server.pem`, `server.key`), and one for a client named `keymill`
/// (`client.pem`, `client.key`).
#[derive(Debug)]
pub struct Authority {
    folder: PathBuf,
    /// The folder, if it lives as long as the authority.
    _kept: Option<tempfile::TempDir>,
}

impl Authority {
    /// The server is `localhost`.
    ///
    /// # Panics
    /// Where `openssl` cannot make certificates.
    #[must_use]
    pub fn new() -> Authority {
        Authority::with("subjectAltName=DNS:localhost")
    }

    /// The server's certificate has this extension.
    ///
    /// # Panics
    /// Where `openssl` cannot make certificates.
    #[must_use]
    pub fn with(extension: &str) -> Authority {
        let folder = tempfile::tempdir().expect("a folder");
        // The server runs as another user.
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).expect("a mode");
        let at = Authority::at(folder.path().to_owned(), extension);
        Authority { _kept: Some(folder), ..at }
    }

    /// The same in this folder.
    ///
    /// # Panics
    /// Where `openssl` cannot make certificates.
    #[must_use]
    pub fn at(folder: PathBuf, extension: &str) -> Authority {
        let authority = Authority { folder, _kept: None };
        authority.openssl(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout ca.key -out ca.pem -days 2 -subj /CN=keymill-tests \
             -addext basicConstraints=critical,CA:TRUE",
        );
        authority.sign("server", "localhost", extension);
        std::fs::set_permissions(authority.file("server.key"), PermissionsExt::from_mode(0o644))
            .expect("a mode");
        authority.sign("client", "keymill", "extendedKeyUsage=clientAuth");
        authority
    }

    fn sign(&self, name: &str, subject: &str, extension: &str) {
        self.openssl(&format!(
            "req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout {name}.key -out {name}.csr -subj /CN={subject}"
        ));
        std::fs::write(self.file("names"), extension).expect("a file");
        self.openssl(&format!(
            "x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out {name}.pem -days 2 -extfile names"
        ));
    }

    fn openssl(&self, arguments: &str) {
        let run = Command::new("openssl").args(arguments.split(' ')).current_dir(&self.folder).output();
        let run = run.expect("`openssl` is installed (`ci/steps/setup`)");
        assert!(run.status.success(), "openssl {arguments}: {}", String::from_utf8_lossy(&run.stderr));
    }

    /// One of the files.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// `cert=…&key=…` with the client's certificate.
    #[must_use]
    pub fn client(&self) -> String {
        format!("cert={}&key={}", self.file("client.pem").display(), self.file("client.key").display())
    }
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}
