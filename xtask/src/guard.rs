//! The process that owns the private servers.
//!
//! It promises that they end when its parent does, however that happens: it waits for the end of its standard
//! input, whose other end only the parent holds. On the way each line names a process group that must end with the
//! servers. It has a process group of its own, so that Ctrl-C reaches the parent and not the guard at work.

use std::io::{BufRead, Write};
use std::path::Path;
use std::time::Duration;

use crate::Result;
use crate::command::kill;
use crate::postgres::Postgres;

/// Starts the server with the given settings, says where it is, and waits for the parent's end.
///
/// # Errors
/// When the server does not start.
pub fn run(bin: &Path, settings: &[String]) -> Result<()> {
    let server = Postgres::start(bin, settings)?;
    let mut stdout = std::io::stdout();
    // Nobody reads any more: then the input is at its end, too.
    let _ = writeln!(stdout, "ready {}", server.url()).and_then(|()| stdout.flush());
    let groups = std::io::stdin().lock().lines().map_while(|line| line.ok());
    let groups = groups.filter(|line| line.parse().is_ok_and(|id: u32| id > 1)).collect::<Vec<_>>();
    end(&groups);
    Ok(()) // dropping the server stops it
}

/// Politely first: what the command is made of may have something to tidy up.
fn end(groups: &[String]) {
    for signal in ["TERM", "KILL"] {
        for _ in 0..20 {
            let alive = groups.iter().filter(|id| is_alive(id)).collect::<Vec<_>>();
            if alive.is_empty() {
                return;
            }
            for id in alive {
                kill(signal, &format!("-{id}"));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

fn is_alive(group: &str) -> bool {
    let mut kill = std::process::Command::new("kill");
    kill.args(["-s", "0", "--", &format!("-{group}")]).stderr(std::process::Stdio::null());
    kill.status().is_ok_and(|status| status.success())
}
