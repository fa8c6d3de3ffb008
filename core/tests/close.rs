//! What closing a mill leaves behind, through the public API.

use keymill::Mill;

#[test]
#[cfg(target_os = "linux")]
fn a_closed_mill_has_let_go_of_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ids.db");
    // Whoever closes may delete the file and make another of its name: a connection that closes behind their back would
    // delete the new file's log with its last checkpoint.
    for _ in 0..20 {
        let mill = Mill::open(&format!("sqlite:{}", path.display())).unwrap();
        mill.source("segment:orders").unwrap().next().unwrap();
        mill.close();
        let open = std::fs::read_dir("/proc/self/fd")
            .unwrap()
            .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok())
            .filter(|file| file.starts_with(folder.path()))
            .count();
        assert_eq!(open, 0);
    }
}
