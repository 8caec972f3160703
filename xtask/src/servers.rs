//! Private servers for one command: started before it, gone after it, whatever happens in between.
//!
//! The servers are the children of a small process of their own, the [guard](crate::guard), which is tied to us by a
//! pipe. When we are done, and also when we panic, are interrupted or killed, the pipe closes: the guard then ends
//! what we ran, stops the servers by their process ids and removes their folders. So nothing here needs a signal
//! handler, and nothing outlives the command.
//!
//! Only PostgreSQL so far. A test suite that needs Redis adds a second server to the guard and a second variable
//! to [`Servers::run`].

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};

use crate::command::{Group, shown};
use crate::{Result, apt, postgres};

/// The variable that tells tests where PostgreSQL is: the URL of a role that may create databases and roles.
pub const POSTGRES: &str = "COMPOSER_TEST_POSTGRES";

/// Running private servers.
#[derive(Debug)]
pub struct Servers {
    guard: Child,
    /// Closing it is what stops the servers.
    lifeline: Option<ChildStdin>,
    postgres_url: String,
}

impl Servers {
    /// Finds or installs the programs, and starts the servers.
    ///
    /// # Errors
    /// When there is no PostgreSQL and it cannot be installed, or it does not start.
    pub fn start(settings: &[&str]) -> Result<Self> {
        let bin = match postgres::find()? {
            Some(bin) => bin,
            None => {
                apt::install(&["postgresql"])?;
                postgres::find()?
                    .ok_or("the package `postgresql` was installed, but brought no usable server")?
            }
        };
        let mut guard = Command::new(std::env::current_exe().map_err(|e| format!("our own program: {e}"))?);
        guard.arg("guard").arg(&bin).args(settings).process_group(0);
        let mut guard = guard
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| format!("cannot start the guard of the servers: {e}"))?;
        let lifeline = guard.stdin.take();
        let mut answer = String::new();
        let stdout = guard.stdout.take().expect("asked for a pipe");
        let read = BufReader::new(stdout).read_line(&mut answer);
        let mut servers = Self { guard, lifeline, postgres_url: String::new() };
        match answer.trim_end().strip_prefix("ready ") {
            Some(url) if read.is_ok() => servers.postgres_url = url.to_owned(),
            _ => return Err("the private PostgreSQL did not start (see above)".to_owned()),
        }
        Ok(servers)
    }

    /// The URL of a role that may create databases and roles.
    pub fn postgres_url(&self) -> &str {
        &self.postgres_url
    }

    /// Runs a command that is told where the servers are, and ends it together with them.
    ///
    /// # Errors
    /// When it cannot be started or does not succeed.
    pub fn run(&mut self, command: &mut Command) -> Result<()> {
        self.with_group(command, Group::wait)
    }

    /// As [`run`](Self::run), and returns what the command printed.
    ///
    /// # Errors
    /// When it cannot be started or does not succeed.
    pub fn output(&mut self, command: &mut Command) -> Result<String> {
        self.with_group(command.stdout(Stdio::piped()), Group::output)
    }

    fn with_group<T>(
        &mut self,
        command: &mut Command,
        work: impl FnOnce(&mut Group) -> Result<T>,
    ) -> Result<T> {
        // A developer's own settings for another server must not leak into the tests.
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("PG") {
                command.env_remove(name);
            }
        }
        let shown = shown(command); // before the variable, which means nothing once the servers are gone
        let mut group = Group::spawn(command.env(POSTGRES, &self.postgres_url), shown)?;
        let id = group.id();
        self.tell_guard("begun", id)?;
        let outcome = work(&mut group);
        drop(group);
        // From here on the id may become somebody else's.
        self.tell_guard("ended", id)?;
        outcome
    }

    fn tell_guard(&mut self, what: &str, group: u32) -> Result<()> {
        let Some(lifeline) = &mut self.lifeline else { return Ok(()) };
        writeln!(lifeline, "{what} {group}").map_err(|e| format!("the guard of the servers is gone: {e}"))
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        self.lifeline = None;
        let _ = self.guard.wait();
    }
}
