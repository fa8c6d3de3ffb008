//! Files that hold a password or a private key: a configuration file, or what `password_file=` and `key=` name.
//!
//! The rule is libpq's for `.pgpass`, with the exceptions of a service and of a container:
//! * users outside the file's owner and group may not read or write it;
//! * its group may not either where the file belongs to the user of this process. `root:app` with mode 640 is the usual way
//!   to give a service its configuration, and passes;
//! * on a file system that is mounted read-only every mode is accepted: Kubernetes and Docker mount secrets like that, as
//!   0644, into the only container that reads them, and no process there could change the mode.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use zeroize::Zeroizing;

use crate::system::{Rights, file_rights, files};

/// A file's text, and why it may not hold a password.
pub(crate) struct SecretFile {
    pub(crate) text: Zeroizing<String>,
    /// Which other users can read it and what to run, as the end of a sentence that names the file.
    pub(crate) exposed: Option<String>,
    /// Which other users can change it and what to run, as the end of a sentence that names the file.
    pub(crate) changeable: Option<String>,
}

/// Reads a regular file of at most `most` bytes. A pipe would block until its other end writes, and could be read only
/// once.
///
/// # Errors
/// The errors of opening and reading; `InvalidData` where it is no regular file, too long, or not UTF-8.
pub(crate) fn read(path: &Path, most: u64) -> io::Result<SecretFile> {
    let (file, mut bytes) = contents(path, most)?;
    let text =
        String::from_utf8(std::mem::take(&mut bytes)).map_err(|_| invalid("it is not UTF-8".to_owned()))?;
    let Rights { exposed, changeable } = file_rights::of_secret(&file, path)?;
    Ok(SecretFile { text: Zeroizing::new(text), exposed, changeable })
}

/// The bytes of a regular file of at most `most` bytes, and the file itself.
///
/// # Errors
/// The errors of opening and reading; `InvalidData` where it is no regular file or too long.
pub(crate) fn contents(path: &Path, most: u64) -> io::Result<(File, Zeroizing<Vec<u8>>)> {
    let file = files::open_at_once(path)?;
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(invalid("it is not a regular file".to_owned()));
    }
    // Allocated at full size: a buffer that grows leaves copies of the secret behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(found.len().min(most) as usize + 1));
    (&file).take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(invalid(format!("it is longer than {most} bytes")));
    }
    Ok((file, bytes))
}

fn invalid(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_short_regular_text_is_refused() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("secret");
        let kind =
            |path: &Path| read(path, 8).map(|file| file.text.to_string()).map_err(|error| error.kind());
        assert_eq!(kind(&path), Err(io::ErrorKind::NotFound));
        assert_eq!(kind(folder.path()), Err(io::ErrorKind::InvalidData));
        for (bytes, expected) in [
            (b"12345678".as_slice(), Ok("12345678".to_owned())),
            (b"123456789", Err(io::ErrorKind::InvalidData)),
            (b"\xff\xfe", Err(io::ErrorKind::InvalidData)),
        ] {
            std::fs::write(&path, bytes)?;
            assert_eq!(kind(&path), expected);
        }
        Ok(())
    }
}
