//! Which file a path is, its names and its file system.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io;
use std::mem::MaybeUninit;
use std::os::windows::ffi::{OsStrExt, OsStringExt};
use std::os::windows::fs::OpenOptionsExt;
use std::os::windows::io::AsRawHandle;
use std::path::{Path, PathBuf};

use windows_sys::Win32::Foundation::{ERROR_LOCK_VIOLATION, ERROR_SHARING_VIOLATION};
use windows_sys::Win32::Storage::FileSystem::{
    BY_HANDLE_FILE_INFORMATION, FILE_ATTRIBUTE_DIRECTORY, FILE_FLAG_BACKUP_SEMANTICS, FILE_ID_INFO,
    FileIdInfo, GetDriveTypeW, GetFileInformationByHandle, GetFileInformationByHandleEx, GetLongPathNameW,
    GetVolumePathNameW,
};

use crate::system::{FileId, FileSystem};

/// Opens a file or a folder for its attributes only: such a handle takes part in no sharing, and closing it drops no lock of another one.
fn opened(path: &Path) -> io::Result<File> {
    // With this flag a folder can be opened.
    OpenOptions::new().access_mode(0).custom_flags(FILE_FLAG_BACKUP_SEMANTICS).open(path)
}

fn information(file: &File) -> io::Result<BY_HANDLE_FILE_INFORMATION> {
    let mut found = MaybeUninit::zeroed();
    // SAFETY: the handle is open, and `found` is writable and outlives the call.
    if unsafe { GetFileInformationByHandle(file.as_raw_handle(), found.as_mut_ptr()) } == 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: zero is a valid value of every field, and the call has succeeded.
    Ok(unsafe { found.assume_init() })
}

/// Which file a path leads to.
///
/// # Errors
/// There is none, or it cannot be looked at.
pub(crate) fn identity(path: &Path) -> io::Result<FileId> {
    identity_of(&opened(path)?)
}

/// Which file this is. Numbers of ReFS have 128 bits; numbers of other file systems have the lower 64 only.
///
/// # Errors
/// It cannot be looked at.
pub(crate) fn identity_of(file: &File) -> io::Result<FileId> {
    let mut found = MaybeUninit::<FILE_ID_INFO>::zeroed();
    // SAFETY: the handle is open, and `found` is writable, as long as is said, and outlives the call.
    let is_known = unsafe {
        GetFileInformationByHandleEx(
            file.as_raw_handle(),
            FileIdInfo,
            found.as_mut_ptr().cast(),
            size_of::<FILE_ID_INFO>() as u32,
        )
    };
    if is_known != 0 {
        // SAFETY: zero is a valid value of every field, and the call has succeeded.
        let found = unsafe { found.assume_init() };
        let number = u128::from_le_bytes(found.FileId.Identifier);
        return Ok((found.VolumeSerialNumber, number as u64 ^ (number >> 64) as u64));
    }
    // A file system that has no such numbers, as FAT.
    let found = information(file)?;
    let number = (u64::from(found.nFileIndexHigh) << 32) | u64::from(found.nFileIndexLow);
    Ok((u64::from(found.dwVolumeSerialNumber), number))
}

/// How many names a regular file has; 0: it is none, or is not there.
pub(crate) fn names(path: &Path) -> u64 {
    let found = opened(path).and_then(|file| information(&file));
    let regular = found.ok().filter(|found| found.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY == 0);
    regular.map_or(0, |found| u64::from(found.nNumberOfLinks))
}

/// The path that a URL names: `/C:/ids.db`, of `sqlite:///C:/ids.db`, is `C:/ids.db`.
pub(crate) fn path_of_url(text: &str) -> PathBuf {
    let after = text.strip_prefix('/').filter(|after| {
        let letters = after.as_bytes();
        letters.len() > 2
            && letters[0].is_ascii_alphabetic()
            && letters[1] == b':'
            && matches!(letters[2], b'/' | b'\\')
    });
    PathBuf::from(after.unwrap_or(text))
}

/// The path without short names such as `ORDERS~1.DB`. The path itself where nothing is there.
///
/// On Windows `canonicalize` answers without them; wine's leaves them as they are.
pub(crate) fn without_short_names(path: PathBuf) -> PathBuf {
    let short: Vec<u16> = path.as_os_str().encode_wide().chain([0]).collect();
    let mut long = vec![0; 1 << 15];
    // SAFETY: the path ends with NUL, and `long` is as long as is said.
    let length = unsafe { GetLongPathNameW(short.as_ptr(), long.as_mut_ptr(), long.len() as u32) } as usize;
    if length == 0 || length > long.len() {
        return path;
    }
    OsString::from_wide(&long[..length]).into()
}

/// Whether another program has kept a file from being opened for writing, as virus scanners, indexers and backups do for a moment:
/// it still does, or the file can be opened by now.
pub(crate) fn was_held(path: &Path) -> bool {
    // Closing the handle drops no lock of another one.
    match OpenOptions::new().read(true).write(true).open(path) {
        Ok(_) => true,
        Err(error) => {
            let number = error.raw_os_error().map(i32::cast_unsigned);
            matches!(number, Some(ERROR_SHARING_VIOLATION | ERROR_LOCK_VIOLATION))
        }
    }
}

/// Opens a file to read.
///
/// # Errors
/// The errors of opening.
pub(crate) fn open_at_once(path: &Path) -> io::Result<File> {
    File::open(path)
}

/// Creates a file with the rights of its folder.
///
/// # Errors
/// It is there already, or cannot be created.
pub(crate) fn create_private(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create_new(true).open(path)
}

/// Refuses: only the child of a `clone` would need one.
///
/// # Errors
/// Always.
pub(crate) fn share_lock(_file: &File, _start: i64, _len: i64) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// The kind of the volume that a path is on: a share of another machine, or a disk in memory; `None`: a local disk, or not known.
pub(crate) fn file_system(path: &Path) -> Option<FileSystem> {
    const REMOTE: u32 = 4;
    const RAM: u32 = 6;
    // `\\?\C:\`, as `canonicalize` says it, hides from wine which drive it is.
    const VERBATIM: [u16; 4] = [b'\\' as u16, b'\\' as u16, b'?' as u16, b'\\' as u16];
    let mut path: Vec<u16> = path.as_os_str().encode_wide().chain([0]).collect();
    if path.starts_with(&VERBATIM) && path.get(5) == Some(&u16::from(b':')) {
        path.drain(..VERBATIM.len());
    }
    // The name of a volume is a part of the path, with a separator behind it.
    let mut volume = vec![0; path.len() + 1];
    // SAFETY: the path ends with NUL, and `volume` is as long as is said.
    if unsafe { GetVolumePathNameW(path.as_ptr(), volume.as_mut_ptr(), volume.len() as u32) } == 0 {
        return None;
    }
    // SAFETY: the call above has written a text that ends with NUL.
    match unsafe { GetDriveTypeW(volume.as_ptr()) } {
        REMOTE => Some(FileSystem::Network("a network drive")),
        RAM => Some(FileSystem::Memory("a RAM disk")),
        _ => None,
    }
}
