//! What macOS does in its own way.

use std::ffi::{CStr, CString, c_void};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::{self, NonNull};
use std::sync::Once;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use libc::clockid_t;

use super::forks::{self, zeroed_pages};
use crate::system::FileSystem;

#[cfg(feature = "sqlite")]
pub(crate) mod sqlite_descriptors;

/// No coarse clock never falls, so it is the one below.
pub(super) const COARSE: clockid_t = BOOT;
/// The time of day.
pub(super) const COARSE_WALL: clockid_t = libc::CLOCK_REALTIME;
/// `mach_continuous_time`, which counts sleep. `CLOCK_MONOTONIC` is the time of day since the start, and falls a little where that is
/// adjusted; `CLOCK_UPTIME_RAW` stops in sleep.
pub(super) const BOOT: clockid_t = libc::CLOCK_MONOTONIC_RAW;

/// A lock of the process, which has no children of a raw `clone`.
pub(super) const SET_LOCK: libc::c_int = libc::F_SETLK;

/// Pages that a forked child finds zeroed. Regions are never freed: one whose pages were given back is used again.
struct WipedRegion {
    /// NULL: it has no pages.
    start: AtomicPtr<AtomicU64>,
    /// 0: it may be used again.
    bytes: AtomicUsize,
    older: *mut WipedRegion,
}

static REGIONS: AtomicPtr<WipedRegion> = AtomicPtr::new(ptr::null_mut());

/// All regions, the newest one first.
fn regions() -> impl Iterator<Item = &'static WipedRegion> {
    // ordering: Acquire — pairs with the release in `region`: a region is written before it is shown.
    let mut at = REGIONS.load(Ordering::Acquire);
    std::iter::from_fn(move || {
        // SAFETY: null, or a region, which is never freed.
        let region = unsafe { at.as_ref() }?;
        at = region.older;
        Some(region)
    })
}

/// A region without pages, for so many bytes.
fn region(bytes: usize) -> &'static WipedRegion {
    let claimed = |region: &&WipedRegion| {
        // ordering: Acquire — pairs with the release in `unmap`: the last pages are forgotten. Relaxed on failure: nothing is read.
        region.bytes.compare_exchange(0, bytes, Ordering::Acquire, Ordering::Relaxed).is_ok()
    };
    if let Some(free) = regions().find(claimed) {
        return free;
    }
    let fresh = Box::leak(Box::new(WipedRegion {
        start: AtomicPtr::new(ptr::null_mut()),
        bytes: AtomicUsize::new(bytes),
        older: ptr::null_mut(),
    }));
    loop {
        // ordering: Relaxed — the exchange below decides.
        fresh.older = REGIONS.load(Ordering::Relaxed);
        let (older, new) = (fresh.older, ptr::from_mut(fresh));
        // ordering: Release — publishes the region; pairs with the acquire in `regions`.
        if REGIONS.compare_exchange(older, new, Ordering::Release, Ordering::Relaxed).is_ok() {
            // SAFETY: it is never freed, and from now on only shared.
            return unsafe { &*new };
        }
    }
}

/// Runs in a forked child, where no other thread exists.
extern "C" fn wipe() {
    for region in regions() {
        // ordering: Relaxed — the child has one thread.
        let (start, bytes) = (region.start.load(Ordering::Relaxed), region.bytes.load(Ordering::Relaxed));
        if !start.is_null() {
            // SAFETY: the pages of the region, whole, which are words.
            let words = unsafe { std::slice::from_raw_parts(start, bytes / size_of::<AtomicU64>()) };
            for word in words {
                // ordering: Relaxed — as above.
                word.store(0, Ordering::Relaxed);
            }
        }
    }
}

/// Zeroed pages of words that a forked child finds zeroed. The kernel wipes none, so a function does that in the child. `None`: there
/// are none to be had.
pub(crate) fn wiped_pages(bytes: usize) -> Option<NonNull<c_void>> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| forks::in_child(wipe));
    let pages = zeroed_pages(bytes)?;
    // ordering: Release — the count of bytes comes first; a child of a fork in between has nothing on the pages yet.
    region(bytes).start.store(pages.as_ptr().cast(), Ordering::Release);
    Some(pages)
}

/// Gives pages back.
///
/// # Safety
/// They are those that [`wiped_pages`] gave for so many bytes, and nothing refers to them.
pub(crate) unsafe fn unmap(pages: NonNull<c_void>, bytes: usize) {
    // ordering: Relaxed — the caller has the pages from `wiped_pages`.
    if let Some(region) =
        regions().find(|region| region.start.load(Ordering::Relaxed) == pages.as_ptr().cast())
    {
        // ordering: Release — forgotten before they are given back, and before the region is used again.
        region.start.store(ptr::null_mut(), Ordering::Release);
        // SAFETY: as the caller promises.
        unsafe { libc::munmap(pages.as_ptr(), bytes) };
        // ordering: Release — pairs with the acquire in `region`.
        region.bytes.store(0, Ordering::Release);
    }
}

/// Keeps the library mapped that has this code, as `-z nodelete` does on Linux: a thread may never find its code gone.
pub(crate) fn pin() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let mut found = MaybeUninit::<libc::Dl_info>::zeroed();
        // SAFETY: the address is of this library, and `found` is writable and outlives the call.
        if unsafe { libc::dladdr((pin as *const ()).cast(), found.as_mut_ptr()) } == 0 {
            return;
        }
        // SAFETY: zero is a valid value of every field, and the call has succeeded.
        let found = unsafe { found.assume_init() };
        // SAFETY: the name is the library's own, and ends with NUL. It is loaded, so nothing of it runs; the program itself is refused,
        // and needs no pin.
        unsafe { libc::dlopen(found.dli_fname, libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE) };
    });
}

/// How long sent bytes may stay unacknowledged before the connection counts as broken, in whole seconds.
#[cfg(any(feature = "mysql", feature = "redis"))]
pub(crate) fn give_up_after(stream: &std::net::TcpStream, limit: std::time::Duration) -> std::io::Result<()> {
    use std::os::fd::AsRawFd;
    /// Of `netinet/tcp.h`.
    const TCP_RXT_CONNDROPTIME: libc::c_int = 0x80;
    let seconds = libc::c_int::try_from(limit.as_millis().div_ceil(1000)).unwrap_or(libc::c_int::MAX).max(1);
    // SAFETY: the option's value is a number of this size, and `seconds` lives through the call.
    let set = unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::IPPROTO_TCP,
            TCP_RXT_CONNDROPTIME,
            (&raw const seconds).cast(),
            size_of_val(&seconds) as libc::socklen_t,
        )
    };
    if set == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

/// Whether an interface is a bridge, as virtual machines and shared connections make them.
pub(super) fn is_bridge(interface: &str) -> bool {
    interface.starts_with("bridge")
}

/// The kind of the file system that a path is on, by the name and the flag of statfs(2); `None`: a local disk, or not known.
pub(crate) fn file_system(path: &Path) -> Option<FileSystem> {
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    let mut found = MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: `path` ends with NUL and `found` is a statfs to be written; both outlive the call.
    if unsafe { libc::statfs(path.as_ptr(), found.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: zero is a valid value of every field, and the call has succeeded.
    let found = unsafe { found.assume_init() };
    // SAFETY: the kernel ends the name with NUL.
    let name = unsafe { CStr::from_ptr(found.f_fstypename.as_ptr()) };
    match name.to_bytes() {
        b"nfs" => Some(FileSystem::Network("NFS")),
        b"smbfs" => Some(FileSystem::Network("SMB")),
        b"afpfs" => Some(FileSystem::Network("AFP")),
        b"webdav" => Some(FileSystem::Network("WebDAV")),
        b"tmpfs" => Some(FileSystem::Memory("tmpfs")),
        b"macfuse" | b"osxfuse" | b"fusefs" => Some(FileSystem::Doubtful("FUSE")),
        _ if found.f_flags & libc::MNT_LOCAL as u32 == 0 => Some(FileSystem::Network("a remote volume")),
        _ => None,
    }
}
