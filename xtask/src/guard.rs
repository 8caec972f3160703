//! The process that owns the private servers.
//!
//! It promises that they end when its parent does, however that happens: it waits for the end of its standard
//! input, whose other end only the parent holds. On the way each line says that a process group was begun, which must
//! end with the servers, or has ended. It has a process group of its own, so that Ctrl-C reaches the parent and not the guard at work.

use std::collections::BTreeSet;
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
    end(&running(std::io::stdin().lock()));
    Ok(()) // dropping the server stops it
}

/// The groups that were begun and have not ended when the parent does.
fn running(lines: impl BufRead) -> BTreeSet<u32> {
    let mut groups = BTreeSet::new();
    for line in lines.lines().map_while(|line| line.ok()) {
        match line.split_once(' ').map(|(what, id)| (what, id.parse())) {
            Some(("begun", Ok(id))) if id > 1 => groups.insert(id),
            Some(("ended", Ok(id))) => groups.remove(&id),
            _ => false,
        };
    }
    groups
}

/// Politely first: what the command is made of may have something to tidy up.
fn end(groups: &BTreeSet<u32>) {
    for signal in ["TERM", "KILL"] {
        for _ in 0..20 {
            let alive = groups.iter().filter(|id| is_alive(**id)).collect::<Vec<_>>();
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

fn is_alive(group: u32) -> bool {
    let mut kill = std::process::Command::new("kill");
    kill.args(["-s", "0", "--", &format!("-{group}")]).stderr(std::process::Stdio::null());
    kill.status().is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_groups_that_still_run_are_ended() {
        let lines = "begun 20\nbegun 30\nended 20\nbegun 1\nnonsense\n";
        assert_eq!(running(lines.as_bytes()), BTreeSet::from([30]));
    }
}
