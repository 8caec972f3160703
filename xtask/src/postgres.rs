//! A PostgreSQL server of our own: found on the machine, run on a free loopback port from a temporary folder.
//!
//! It never runs as root (PostgreSQL refuses that, rightly): root starts it as the user `postgres`, or `nobody`
//! where there is none. Everybody on the loopback address may log in, so it must hold nothing but test data.
//! It is stopped by the process id of the child we started, and its folder is removed, when [`Postgres`] is dropped.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::Result;
use crate::command::{kill, output};

/// The oldest major version that Composer supports.
const OLDEST: u32 = 14;

/// The folder with `postgres` and `initdb`, where the machine has them: the `PATH` first, then the usual places,
/// newest version first.
///
/// # Errors
/// When there are only versions that are too old.
pub fn find() -> Result<Option<PathBuf>> {
    let mut too_old = None;
    for place in places() {
        // A link on the PATH may stand alone: its target's folder has the other programs, too.
        let Ok(server) = fs::canonicalize(place.join("postgres")) else { continue };
        let bin = server.parent().unwrap_or(&place).to_path_buf();
        if !bin.join("initdb").is_file() {
            continue;
        }
        match major_version(&server) {
            Some(version) if version >= OLDEST => return Ok(Some(bin)),
            Some(version) => too_old = Some(format!("PostgreSQL {version} in {}", bin.display())),
            None => {}
        }
    }
    match too_old {
        Some(found) => Err(format!("found only {found}: install PostgreSQL {OLDEST} or newer")),
        None => Ok(None),
    }
}

/// A running server.
#[derive(Debug)]
pub struct Postgres {
    server: Child,
    port: u16,
    home: PathBuf,
    program: PathBuf,
    settings: Vec<String>,
}

impl Postgres {
    /// Makes a cluster and starts it, with `name=value` settings beside our own.
    ///
    /// # Errors
    /// When the cluster cannot be made or the server does not answer; with the end of its log.
    pub fn start(bin: &Path, settings: &[String]) -> Result<Self> {
        let user = User::unprivileged()?;
        let home = Home(make_home(&user)?);
        let data = home.0.join("data");
        let mut initdb = user.command(&bin.join("initdb"), &home.0);
        initdb.args(["--username=postgres", "--auth=trust", "--no-locale", "--encoding=UTF8", "--no-sync"]);
        output(initdb.arg("--pgdata").arg(&data))?;

        let program = bin.join("postgres");
        for _ in 0..5 {
            // Another program may take the port between our look and the server's: then try another one.
            let port = free_port()?;
            let server = spawn(&user, &program, &home.0, port, settings)?;
            let (program, settings) = (program.clone(), settings.to_vec());
            let mut server = Self { server, port, home: home.0.clone(), program, settings };
            if server.answers()? {
                std::mem::forget(home); // now the server's to remove
                return Ok(server);
            }
            server.home = PathBuf::new(); // still ours
        }
        let log = fs::read_to_string(home.0.join("log")).unwrap_or_default();
        let end = log.lines().rev().take(20).collect::<Vec<_>>();
        Err(format!("PostgreSQL does not start:\n{}", end.into_iter().rev().collect::<Vec<_>>().join("\n")))
    }

    /// The URL of the superuser, in the database `postgres`.
    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    /// Stops the server, by the signal `INT` (in order) or `QUIT` (at once, to be recovered), and starts it again on
    /// the same data and port.
    ///
    /// # Errors
    /// When it does not come back.
    pub fn restart(&mut self, signal: &str) -> Result<()> {
        self.stop(&[signal, "KILL"]);
        self.server = spawn(&User::unprivileged()?, &self.program, &self.home, self.port, &self.settings)?;
        if self.answers()? {
            return Ok(());
        }
        Err(format!("PostgreSQL did not come back; its log is {}", self.home.join("log").display()))
    }

    /// Signals, one after the other as long as it runs.
    fn stop(&mut self, signals: &[&str]) {
        let id = self.server.id().to_string();
        for signal in signals {
            if matches!(self.server.try_wait(), Ok(None)) {
                kill(signal, &id);
            }
            let patience = Instant::now() + Duration::from_secs(15);
            while matches!(self.server.try_wait(), Ok(None)) && Instant::now() < patience {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }

    /// Waits until it accepts connections, which it says itself in its data folder; `false` when it ends instead.
    fn answers(&mut self) -> Result<bool> {
        let id = self.server.id().to_string();
        let patience = Instant::now() + Duration::from_secs(60);
        while Instant::now() < patience {
            if self.server.try_wait().map_err(|e| e.to_string())?.is_some() {
                return Ok(false);
            }
            let status = fs::read_to_string(self.home.join("data/postmaster.pid")).unwrap_or_default();
            // A file that a killed predecessor left says nothing.
            let ours = status.lines().next() == Some(&id);
            if ours && status.lines().nth(7).is_some_and(|status| status.trim() == "ready") {
                return Ok(true);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(false)
    }
}

impl Drop for Postgres {
    /// An immediate shutdown: the data is thrown away, so nothing is worth writing back.
    fn drop(&mut self) {
        self.stop(&["QUIT", "KILL"]);
        if !self.home.as_os_str().is_empty() {
            let _ = fs::remove_dir_all(&self.home);
        }
    }
}

/// The server's process, on data in `home`.
fn spawn(user: &User, program: &Path, home: &Path, port: u16, settings: &[String]) -> Result<Child> {
    let log = home.join("log");
    let out = fs::File::create(&log).map_err(|e| format!("{}: {e}", log.display()))?;
    let mut postgres = user.command(program, home);
    postgres.arg("-D").arg(home.join("data")).arg(format!("--port={port}"));
    postgres.args(["--listen_addresses=127.0.0.1", "--unix_socket_directories="]);
    postgres.arg(format!("--max_connections={}", max_connections()));
    postgres.args(settings.iter().map(|setting| format!("--{setting}")));
    postgres.stdin(Stdio::null()).stdout(Stdio::null()).stderr(out);
    postgres.spawn().map_err(|e| format!("cannot start {}: {e}", program.display()))
}

/// A folder that is removed unless somebody took it over.
struct Home(PathBuf);

impl Drop for Home {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Who the server runs as.
struct User {
    /// `None`: as whoever we are.
    ids: Option<(u32, u32)>,
}

impl User {
    fn unprivileged() -> Result<Self> {
        let ask = |args: &[&str]| -> Option<u32> { output(Command::new("id").args(args)).ok()?.parse().ok() };
        if ask(&["-u"]).ok_or("cannot run `id -u`")? != 0 {
            return Ok(Self { ids: None });
        }
        let ids = |name| Some((ask(&["-u", name])?, ask(&["-g", name])?));
        match ids("postgres").or_else(|| ids("nobody")) {
            Some(ids) => Ok(Self { ids: Some(ids) }),
            None => {
                Err("root must not run PostgreSQL, and there is no user `postgres` or `nobody`".to_owned())
            }
        }
    }

    /// A command as this user, in a folder that the user may enter and with nothing of our own PostgreSQL settings.
    fn command(&self, program: &Path, folder: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir(folder).env_clear().env("LC_ALL", "C");
        command.envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
        if let Some((user, group)) = self.ids {
            command.uid(user).gid(group);
        }
        command
    }
}

/// Makes a folder that the server's user owns and can reach.
fn make_home(user: &User) -> Result<PathBuf> {
    let unique = format!("composer-servers-{}-{}", std::process::id(), unix_nanos());
    let mut tried = String::new();
    for parent in [std::env::temp_dir(), "/tmp".into(), "/var/tmp".into()] {
        let home = parent.join(&unique);
        let made = fs::create_dir_all(&home)
            .and_then(|()| fs::set_permissions(&home, fs::Permissions::from_mode(0o700)))
            .and_then(|()| user.ids.map_or(Ok(()), |(user, group)| chown(&home, Some(user), Some(group))));
        if let Err(e) = made {
            tried.push_str(&format!("\n  {}: {e}", home.display()));
        } else if user.command(Path::new("true"), &home).status().is_ok_and(|status| status.success()) {
            return Ok(home);
        } else {
            tried.push_str(&format!("\n  {}: the server's user cannot enter it", home.display()));
        }
        let _ = fs::remove_dir_all(&home);
    }
    Err(format!("no place for PostgreSQL's data folder; set TMPDIR to one. Tried:{tried}"))
}

fn places() -> Vec<PathBuf> {
    let mut places = std::env::var_os("PATH")
        .map(|path| std::env::split_paths(&path).collect::<Vec<_>>())
        .unwrap_or_default();
    places.extend(output(Command::new("pg_config").arg("--bindir")).ok().map(PathBuf::from));
    for (parent, prefix) in [
        ("/usr/lib/postgresql", ""),
        ("/usr", "pgsql-"),
        ("/opt/homebrew/opt", "postgresql"),
        ("/usr/local/opt", "postgresql"),
        ("/Applications/Postgres.app/Contents/Versions", ""),
    ] {
        places.extend(versions(Path::new(parent), prefix).into_iter().map(|version| version.join("bin")));
    }
    places
}

/// The folders with the prefix, the highest number first.
fn versions(parent: &Path, prefix: &str) -> Vec<PathBuf> {
    let number = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.chars().filter(char::is_ascii_digit).collect::<String>().parse::<u32>().unwrap_or(0)
    };
    let mut found = fs::read_dir(parent)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix)))
        .collect::<Vec<_>>();
    found.sort_by_key(|path| std::cmp::Reverse(number(path)));
    found
}

/// From `postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)`.
fn major_version(postgres: &Path) -> Option<u32> {
    major(&output(Command::new(postgres).arg("--version")).ok()?)
}

fn major(version: &str) -> Option<u32> {
    let number = version.split("(PostgreSQL) ").nth(1)?;
    number.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// A test program runs a test a core, and a test may have several workers.
fn max_connections() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get() * 24).max(300)
}

fn free_port() -> Result<u16> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).map_err(|e| format!("no free loopback port: {e}"))?;
    Ok(listener.local_addr().map_err(|e| e.to_string())?.port())
}

fn unix_nanos() -> u128 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_nanos())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_what_the_server_says() {
        assert_eq!(major("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)"), Some(15));
        assert_eq!(major("postgres (PostgreSQL) 18beta1"), Some(18));
        assert_eq!(major("postgres (PostgreSQL) 9.6.24"), Some(9));
        assert_eq!(major("something else"), None);
    }
}
