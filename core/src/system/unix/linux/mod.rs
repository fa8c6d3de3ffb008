//! What Linux does in its own way.

use std::ffi::{CString, c_void};
use std::io;
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::NonNull;
use std::time::Duration;

use libc::clockid_t;

use super::forks::zeroed_pages;
use crate::system::FileSystem;

#[cfg(feature = "sqlite")]
pub(crate) mod sqlite_descriptors;

/// Up to one kernel tick old; stops in suspend.
pub(super) const COARSE: clockid_t = libc::CLOCK_MONOTONIC_COARSE;
/// The time of day, up to one kernel tick old.
pub(super) const COARSE_WALL: clockid_t = libc::CLOCK_REALTIME_COARSE;
/// Counts suspend; `CLOCK_MONOTONIC` stops in it and would let a lease outlive its term.
pub(super) const BOOT: clockid_t = libc::CLOCK_BOOTTIME;

/// Zeroed pages that the kernel zeroes again in a forked child, at a raw `clone` too (`MADV_WIPEONFORK`, Linux 4.14). `None`: there
/// are none to be had. An older kernel refuses the advice, and a child inherits what is on them.
pub(crate) fn wiped_pages(bytes: usize) -> Option<NonNull<c_void>> {
    if cfg!(miri) {
        return None;
    }
    let pages = zeroed_pages(bytes)?;
    // SAFETY: the mapping above, whole.
    unsafe { libc::madvise(pages.as_ptr(), bytes, libc::MADV_WIPEONFORK) };
    Some(pages)
}

/// Gives pages back.
///
/// # Safety
/// They are those that [`wiped_pages`] gave for so many bytes, and nothing refers to them.
pub(crate) unsafe fn unmap(pages: NonNull<c_void>, bytes: usize) {
    // SAFETY: as the caller promises.
    unsafe { libc::munmap(pages.as_ptr(), bytes) };
}

/// The linker's `-z nodelete` keeps the library mapped that has this code.
#[inline]
pub(crate) fn pin() {}

pub(super) const SET_LOCK: libc::c_int = libc::F_OFD_SETLK;

#[cfg(any(feature = "mysql", feature = "redis"))]
/// How long sent bytes may stay unacknowledged before the connection counts as broken.
pub(crate) fn give_up_after(stream: &TcpStream, limit: Duration) -> io::Result<()> {
    let millis = libc::c_uint::try_from(limit.as_millis()).unwrap_or(libc::c_uint::MAX).max(1);
    // SAFETY: the option's value is a number of this size, and `millis` lives through the call.
    let set = unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_USER_TIMEOUT,
            (&raw const millis).cast(),
            size_of_val(&millis) as libc::socklen_t,
        )
    };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Whether an interface is a bridge: Linux shows them in its files.
pub(super) fn is_bridge(interface: &str) -> bool {
    !interface.contains('/') && std::path::Path::new("/sys/class/net").join(interface).join("bridge").exists()
}

/// The kind of the file system that a path is on; `None`: a local disk, or not known.
pub(crate) fn file_system(path: &Path) -> Option<FileSystem> {
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    let mut found = std::mem::MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: `path` ends with NUL and `found` is a statfs to be written; both outlive the call.
    if unsafe { libc::statfs(path.as_ptr(), found.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: zero is a valid value of every field, and the call has succeeded.
    let kind = unsafe { found.assume_init() }.f_type;
    FILE_SYSTEMS.iter().find(|(number, _)| *number == kind as u32).map(|(_, kind)| *kind)
}

/// Looks up the type number that statfs(2) returns, 32 bits wide whatever the field's type. libc defines the numbers of the kernel's own
/// file systems; the rest are from the kernel's `linux/magic.h` and the list in GNU coreutils' `stat`.
const FILE_SYSTEMS: &[(u32, FileSystem)] = &[
    (libc::NFS_SUPER_MAGIC as u32, FileSystem::Network("NFS")),
    (libc::SMB_SUPER_MAGIC as u32, FileSystem::Network("SMB")),
    (0xff53_4d42, FileSystem::Network("CIFS")),
    (0xfe53_4d42, FileSystem::Network("SMB2")),
    (libc::AFS_SUPER_MAGIC as u32, FileSystem::Network("AFS")),
    (0x6b41_4653, FileSystem::Network("AFS")),
    (libc::CODA_SUPER_MAGIC as u32, FileSystem::Network("Coda")),
    (libc::NCP_SUPER_MAGIC as u32, FileSystem::Network("NCP")),
    (libc::OCFS2_SUPER_MAGIC as u32, FileSystem::Network("OCFS2")),
    (0x0116_1970, FileSystem::Network("GFS2")),
    (0x00c3_6400, FileSystem::Network("Ceph")),
    (0x0bd0_0bd0, FileSystem::Network("Lustre")),
    (0x4750_4653, FileSystem::Network("GPFS")),
    (0x1983_0326, FileSystem::Network("BeeGFS")),
    (0xaad7_aaea, FileSystem::Network("PanFS")),
    (0xbeef_dead, FileSystem::Network("StorNext")),
    (0x6163_6673, FileSystem::Network("ACFS")),
    (0x0131_11a8, FileSystem::Network("IBRIX")),
    (libc::TMPFS_MAGIC as u32, FileSystem::Memory("tmpfs")),
    (0x8584_58f6, FileSystem::Memory("ramfs")),
    (libc::OVERLAYFS_SUPER_MAGIC as u32, FileSystem::Layer("overlay")),
    (0x6175_6673, FileSystem::Layer("aufs")),
    (0x0102_1997, FileSystem::Doubtful("9p")),
    (libc::FUSE_SUPER_MAGIC as u32, FileSystem::Doubtful("FUSE")),
    (libc::HOSTFS_SUPER_MAGIC as u32, FileSystem::Doubtful("hostfs")),
    (0x786f_4256, FileSystem::Doubtful("VirtualBox shared folder")),
    (0xbacb_acbc, FileSystem::Doubtful("VMware shared folder")),
    (0x7c7c_6673, FileSystem::Doubtful("Parallels shared folder")),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_system_has_one_number_and_one_meaning() {
        let mut numbers: Vec<_> = FILE_SYSTEMS.iter().map(|(number, _)| number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), FILE_SYSTEMS.len());
    }

    #[test]
    fn a_file_system_in_memory_is_recognised() {
        // Not on every machine, but where it is there it is this.
        if Path::new("/dev/shm").is_dir() {
            assert_eq!(file_system(Path::new("/dev/shm")), Some(FileSystem::Memory("tmpfs")));
        }
        assert_eq!(file_system(Path::new("/proc/self/no/such/folder")), None);
    }
}
