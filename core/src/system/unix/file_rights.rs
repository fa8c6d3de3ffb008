//! Which other users can read or change a file, or make one of that name.

use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use crate::system::Rights;

/// The rights of a file that holds a secret.
///
/// # Errors
/// Its mode cannot be read.
pub(crate) fn of_secret(file: &File, path: &Path) -> io::Result<Rights> {
    let found = file.metadata()?;
    let user = user();
    let is_fixed = is_mounted_read_only(file);
    let exposed = exposed(found.mode(), found.uid() == user, path).filter(|_| !is_fixed);
    let is_trusted = [0, user].contains(&found.uid());
    let changeable = changeable(found.mode(), is_trusted, path).filter(|_| !is_fixed);
    Ok(Rights { exposed, changeable })
}

fn user() -> libc::uid_t {
    // SAFETY: takes no arguments, touches no memory and always succeeds.
    unsafe { libc::geteuid() }
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
    let mut found = std::mem::MaybeUninit::<libc::statvfs>::zeroed();
    // SAFETY: the descriptor is open and `found` is a statvfs to be written; both outlive the call.
    if unsafe { libc::fstatvfs(file.as_raw_fd(), found.as_mut_ptr()) } != 0 {
        return false;
    }
    // SAFETY: zero is a valid value of every field, and the call has succeeded.
    unsafe { found.assume_init() }.f_flag & libc::ST_RDONLY != 0
}

/// What the file's mode lets users do who are neither its owner nor of its group, as the end of a sentence about the file;
/// `None`: nothing, or a folder above it lets none of them through.
pub(crate) fn exposed_database(real: &Path) -> Option<String> {
    let mode = |path: &Path| std::fs::metadata(path).map(|found| found.mode()).ok();
    let file = mode(real)?;
    let reached = real.ancestors().skip(1).all(|folder| mode(folder).is_none_or(|mode| mode & 0o001 != 0));
    if file & 0o006 == 0 || !reached {
        return None;
    }
    Some(format!(
        "has mode {:03o}: {} can hold its locks, so that each reservation waits, {}; `chmod 600`, or `chmod 660` for the users of one group",
        file & 0o777,
        "every user of this machine",
        if file & 0o002 == 0 { "and read it" } else { "and change the numbers in it" },
    ))
}

/// Whether another login of this machine may make a socket file of this name while the server is down: a folder of its path, or of
/// the path of a link in it, is open to all users, such as `/tmp`, or cannot be looked at.
pub(crate) fn is_shared(socket: &Path) -> bool {
    const MOST_LINKS: u32 = 40;
    let Ok(path) = std::path::absolute(socket) else { return true };
    let (mut folder, mut links) = (PathBuf::from("/"), 0);
    let mut rest: Vec<OsString> = names_of(&path);
    while let Some(name) = rest.pop() {
        if name == ".." {
            folder.pop();
            continue;
        }
        let entry = folder.join(&name);
        let is_last = rest.is_empty();
        let Ok(found) = entry.symlink_metadata() else { return !is_last || is_open(&folder) };
        if found.is_symlink() {
            links += 1;
            let Ok(target) = entry.read_link() else { return true };
            if links > MOST_LINKS || may_be_replaced(&folder, &found) {
                return true;
            }
            if target.is_absolute() {
                folder = PathBuf::from("/");
            }
            rest.extend(names_of(&target));
        } else if found.is_dir() {
            if may_be_replaced(&folder, &found) {
                return true;
            }
            folder = entry;
        } else {
            return !is_last || is_open(&folder);
        }
    }
    // PostgreSQL's may be given as its folder.
    is_open(&folder)
}

/// The parts of a path, the last one first.
fn names_of(path: &Path) -> Vec<OsString> {
    let name = |part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    };
    path.components().rev().filter_map(name).collect()
}

/// Whether every user may make a file here.
fn is_open(folder: &Path) -> bool {
    const OTHERS_MAY_WRITE: u32 = 0o002;
    folder.metadata().map_or(true, |folder| folder.mode() & OTHERS_MAY_WRITE != 0)
}

/// Whether another login may put something of its own in the place of a folder or link. In an open folder that is sticky it may not, if
/// neither of them is another login's.
fn may_be_replaced(folder: &Path, found: &Metadata) -> bool {
    const STICKY: u32 = 0o1000;
    let user = user();
    let is_own = |file: &Metadata| file.uid() == 0 || file.uid() == user;
    let stays = folder.metadata().is_ok_and(|folder| folder.mode() & STICKY != 0 && is_own(&folder));
    is_open(folder) && !(stays && is_own(found))
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
}
