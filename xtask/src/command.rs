//! Running other programs: with a clear error when they cannot start or fail, and in words that can be repeated.
//!
//! Two ways to run one. [`run`] keeps it in the terminal's foreground, where Ctrl-C reaches it like us. [`Group`]
//! gives it a process group of its own, so that it can be ended with everything that it started.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};

use crate::Result;

/// `cargo`, the one that runs us, in the workspace's root.
pub fn cargo(args: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args).current_dir(crate::root());
    for inherited in ["CARGO_MANIFEST_DIR", "CARGO_MANIFEST_PATH", "RUST_RECURSION_COUNT"] {
        command.env_remove(inherited); // set by the `cargo run` around us; would make cargo rebuild for nothing
    }
    command
}

/// Runs to the end in the foreground.
///
/// # Errors
/// When it cannot be started or does not succeed.
pub fn run(command: &mut Command) -> Result<()> {
    let status = command.stdin(Stdio::null()).status().map_err(|e| cannot_start(command, &e))?;
    check(command, status)
}

/// Runs to the end and returns what it printed, without the last newline.
///
/// # Errors
/// When it cannot be started or does not succeed; with what it printed as an error.
pub fn output(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output().map_err(|e| cannot_start(command, &e))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{}: {}\n{}", shown(command), output.status, stderr.trim_end()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
}

/// The command as one would type it, with the environment that was set for it.
pub fn shown(command: &Command) -> String {
    let set = command.get_envs().filter_map(|(name, value)| {
        Some(format!("{}={}", name.to_string_lossy(), quoted(&value?.to_string_lossy())))
    });
    let program = std::path::Path::new(command.get_program());
    let program = program.file_name().unwrap_or(program.as_os_str()).to_string_lossy().into_owned();
    let args = command.get_args().map(|arg| quoted(&arg.to_string_lossy()));
    set.chain([program]).chain(args).collect::<Vec<_>>().join(" ")
}

/// A running program in a process group of its own.
///
/// Dropped, it ends the whole group: whatever the program started and left behind goes with it.
#[derive(Debug)]
pub struct Group {
    child: Child,
    shown: String,
}

impl Group {
    /// Starts it; errors name it as `shown`.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn spawn(command: &mut Command, shown: String) -> Result<Self> {
        // A background group must not read from the terminal: it would be stopped.
        let child = command.process_group(0).stdin(Stdio::null()).spawn();
        Ok(Self { child: child.map_err(|e| format!("cannot start {shown}: {e}"))?, shown })
    }

    /// The group's id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the program itself (not for what it left behind).
    ///
    /// # Errors
    /// When it does not succeed.
    pub fn wait(&mut self) -> Result<()> {
        let status = self.child.wait().map_err(|e| format!("{}: {e}", self.shown))?;
        if status.success() { Ok(()) } else { Err(format!("{}: {status}", self.shown)) }
    }

    /// Waits for the program, whose standard output is a pipe, and returns what it printed.
    ///
    /// # Errors
    /// When it does not succeed; with what it printed.
    pub fn output(&mut self) -> Result<String> {
        let mut text = String::new();
        if let Some(mut stdout) = self.child.stdout.take() {
            stdout.read_to_string(&mut text).map_err(|e| format!("{}: {e}", self.shown))?;
        }
        self.wait().map(|()| text.clone()).map_err(|e| format!("{e}\n{text}"))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        kill("KILL", &format!("-{}", self.child.id()));
        let _ = self.child.wait();
    }
}

/// Sends a signal to a process, or to a group when the id has a minus sign. Nobody there is not an error.
pub(crate) fn kill(signal: &str, id: &str) {
    let mut kill = Command::new("kill");
    kill.args(["-s", signal, "--", id]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let _ = kill.status();
}

fn check(command: &Command, status: ExitStatus) -> Result<()> {
    if status.success() { Ok(()) } else { Err(format!("{}: {status}", shown(command))) }
}

fn cannot_start(command: &Command, error: &std::io::Error) -> String {
    format!("cannot start {}: {error}", shown(command))
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_shown_as_one_would_type_it() {
        let mut command = Command::new("/usr/bin/cargo");
        command
            .args(["test", "--", "two words", "it's"])
            .env("RUSTDOCFLAGS", "-D warnings")
            .env_remove("HOME");
        assert_eq!(shown(&command), r"RUSTDOCFLAGS='-D warnings' cargo test -- 'two words' 'it'\''s'");
    }
}
