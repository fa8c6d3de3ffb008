//! Files that hold a password or a private key: a configuration file, or what `password_file=` and `key=` name.
//!
//! The rule is libpq's for `.pgpass`, with the exceptions of a service and of a container:
//! * users outside the file's owner and group may not read or write it;
//! * its group may not either where the file belongs to the user of this process. `root:app` with mode 640 is the usual way
//!   to give a service its configuration, and passes;
//! * on a file system that is mounted read-only every mode is accepted: Kubernetes and Docker mount secrets like that, as
//!   0644, into the only container that reads them, and no process there could change the mode.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use zeroize::Zeroizing;

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
/// Those of opening and reading; `InvalidData` where it is no regular file, too long, or not UTF-8.
pub(crate) fn read(path: &Path, most: u64) -> io::Result<SecretFile> {
    let (file, mut bytes) = contents(path, most)?;
    let found = file.metadata()?;
    let text =
        String::from_utf8(std::mem::take(&mut bytes)).map_err(|_| invalid("it is not UTF-8".to_owned()))?;
    // SAFETY: takes no arguments, touches no memory and always succeeds.
    let user = unsafe { libc::geteuid() };
    let is_fixed = is_mounted_read_only(&file);
    let exposed = exposed(found.mode(), found.uid() == user, path).filter(|_| !is_fixed);
    let is_trusted = [0, user].contains(&found.uid());
    let changeable = changeable(found.mode(), is_trusted, path).filter(|_| !is_fixed);
    Ok(SecretFile { text: Zeroizing::new(text), exposed, changeable })
}

/// The bytes of a regular file of at most `most` bytes, and the file itself.
///
/// # Errors
/// Those of opening and reading; `InvalidData` where it is no regular file or too long.
pub(crate) fn contents(path: &Path, most: u64) -> io::Result<(File, Zeroizing<Vec<u8>>)> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC).open(path)?;
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

/// What is wrong with the mode of a file that holds a password.
fn exposed(mode: u32, is_ours: bool, path: &Path) -> Option<String> {
    const GROUP: u32 = 0o060;
    const OTHERS: u32 = 0o006;
    let path = path.display();
    let mode = mode & 0o777;
    if is_ours && mode & (GROUP | OTHERS) != 0 {
        return Some(format!(
            "has mode {mode:03o}, so other users can read or change it: run `chmod 600 {path}`"
        ));
    }
    (mode & OTHERS != 0).then(|| {
        format!(
            "has mode {mode:03o}, so every user of this machine can read or change it: have its owner run `chmod 640 {path}` and give it a group of this program's user"
        )
    })
}

/// What is wrong with the mode of a file that says where a password goes.
fn changeable(mode: u32, is_trusted: bool, path: &Path) -> Option<String> {
    let (mode, path) = (mode & 0o777, path.display());
    if !is_trusted {
        return Some(format!(
            "belongs to another user, who can change it: run `chown root {path}`, and give it a group of this program's user"
        ));
    }
    (mode & 0o002 != 0).then(|| {
        format!("has mode {mode:03o}, so every user of this machine can change it: run `chmod o-w {path}`")
    })
}

fn is_mounted_read_only(file: &File) -> bool {
    use std::os::fd::AsRawFd;
    let mut found = std::mem::MaybeUninit::<libc::statvfs>::zeroed();
    // SAFETY: the descriptor is open and `found` is a statvfs to be written; both outlive the call.
    if unsafe { libc::fstatvfs(file.as_raw_fd(), found.as_mut_ptr()) } != 0 {
        return false;
    }
    // SAFETY: zero is a valid value of every field, and the call has succeeded.
    unsafe { found.assume_init() }.f_flag & libc::ST_RDONLY != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_private_by_its_owner_and_mode() {
        let refused = |mode, ours| exposed(mode, ours, Path::new("ids.toml"));
        for mode in [0o600, 0o400, 0o700] {
            assert_eq!(refused(0o100_000 | mode, true), None, "{mode:o}");
        }
        for mode in [0o644, 0o640, 0o660, 0o604, 0o620] {
            let why = refused(0o100_000 | mode, true).unwrap_or_default();
            assert!(why.contains("chmod 600 ids.toml"), "{mode:o}: {why}");
        }
        assert_eq!(refused(0o100_640, false), None, "root:app 640 gives a service its configuration");
        let can_be_changed = |mode, is_trusted| changeable(mode, is_trusted, Path::new("ids.toml"));
        for mode in [0o600, 0o640, 0o644, 0o664] {
            assert_eq!(can_be_changed(0o100_000 | mode, true), None, "{mode:o}");
        }
        assert!(can_be_changed(0o100_666, true).is_some_and(|why| why.contains("chmod o-w ids.toml")));
        assert!(can_be_changed(0o100_600, false).is_some_and(|why| why.contains("chown root ids.toml")));
        assert!(refused(0o100_644, false).is_some_and(|why| why.contains("chmod 640 ids.toml")));
    }

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
