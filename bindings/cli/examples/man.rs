//! Writes the pages of the manual, `keymill.1` and one for each verb, into a folder:
//!
//! `cargo run -p keymill-cli --example man -- ~/.local/share/man/man1`

use std::path::PathBuf;

fn main() -> std::io::Result<()> {
    let Some(folder) = std::env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("name the folder of the pages, such as ~/.local/share/man/man1");
        std::process::exit(2);
    };
    std::fs::create_dir_all(&folder)?;
    clap_mangen::generate_to(keymill_cli::command(), folder)
}
